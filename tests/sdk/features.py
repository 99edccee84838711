"""What not every SDK can do, and which can.

Knows the clients that have each feature, so that a test is collected for these clients only. The drivers say the same
in ``hello``, and a test holds one against the other. Refuses to know what the features mean.
"""

from __future__ import annotations

from typing import Literal

import pytest

from .prepare import ALL_CLIENTS, CLIENTS

Feature = Literal["session_list", "rules", "transactions", "delete_messages"]

CLIENTS_WITH: dict[Feature, tuple[str, ...]] = {
    "session_list": ("python-sync", "python-aio", "go"),
    "rules": ("javascript", "java"),
    "transactions": ("java",),
    "delete_messages": ("javascript-beta",),
}

# What an SDK makes of the server's answers, where it is not the same in all of them.
IGNORES_MISSING_MESSAGES = ("java",)  # no error for message-not-found
REACCEPTS_LOST_SESSIONS = ("go",)  # a lost message session is accepted again behind the application's back
TAKES_NO_EMPTY_SESSION_ID = ("javascript", "java")
PEEKS_BEYOND_ITS_SESSION = ("go",)  # peek requests name no message session
RETRIES_SETTLEMENTS = ("go", "java")  # for long, and Go takes the second try of a refused one for a success
ACCEPTS_OVER_THE_LOST_CONNECTION = ("go",)  # and fails once: accepting is not tried again
SETTLES_NOTHING_OF_A_LOST_CONNECTION = ("go",)  # it waits for the lost connection to take the outcome
FAILS_WHAT_MEETS_A_LOSS = ("java",)  # of a link or connection; what comes after it goes over another one
NOTICES_LOSSES_WHEN_IT_RECEIVES = ("python-sync", "python-aio", "python-sync-7.14.3", "python-aio-7.14.3")
COMPARES_KEYS = ("python-sync", "python-aio", "python-sync-7.14.3", "python-aio-7.14.3", "javascript", "java")
PREFETCHES = ("python-sync", "python-aio", "python-sync-7.14.3", "python-aio-7.14.3", "java")


def clients_without(names: tuple[str, ...]) -> pytest.MarkDecorator:
    """Run a test with all clients but these."""
    return only_clients(*[name for name in CLIENTS if name not in names])


def clients_with(feature: Feature) -> pytest.MarkDecorator:
    """Run a test with the clients that have a feature."""
    return only_clients(*CLIENTS_WITH[feature])


def only_clients(*names: str) -> pytest.MarkDecorator:
    """Run a test with these clients."""
    assert set(names) <= set(ALL_CLIENTS), names
    return pytest.mark.parametrize("sdk", names, indirect=True)


partitioned_only = pytest.mark.parametrize("partitioned", [True], ids=["partitioned"], indirect=True)
unpartitioned_only = pytest.mark.parametrize("partitioned", [False], ids=["unpartitioned"], indirect=True)
