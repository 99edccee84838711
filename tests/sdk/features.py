"""What not every SDK can do, and which can.

Knows the clients that have each feature, so that a test is collected for these clients only. The drivers say the same
in ``hello``, and a test holds one against the other. Does not know what the features mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import pytest

from .client import Sdk
from .driver import Way
from .prepare import ALL_CLIENTS, CLIENTS, OLDER, PREVIEWS

Feature = Literal[
    "session_list", "rules", "transactions", "delete_messages", "administration", "processors", "shared_sessions"
]

CLIENTS_WITH: dict[Feature, tuple[str, ...]] = {
    "session_list": ("python-sync", "python-aio", "go", "dotnet"),
    "rules": ("javascript", "java", "dotnet"),
    "transactions": ("java", "dotnet"),
    "delete_messages": ("javascript-beta",),
    "administration": tuple(CLIENTS | PREVIEWS),
    "processors": ("dotnet",),
    "shared_sessions": ("dotnet",),
}

# What an SDK makes of the server's answers, where it is not the same in all of them.
IGNORES_MISSING_MESSAGES = ("java",)  # no error for message-not-found
REACCEPTS_LOST_SESSIONS = ("go",)  # a lost message session is accepted again behind the application's back
TAKES_NO_EMPTY_SESSION_ID = ("javascript", "java", "dotnet")
PEEKS_BEYOND_ITS_SESSION = ("go",)  # peek requests name no message session
RETRIES_SETTLEMENTS = ("go", "java")  # for long, and Go takes the second try of a refused one for a success
# The answer to a dead letter that is refused is `rejected`, as that to one that is done: they look no further.
TAKES_A_REFUSED_DEAD_LETTER_FOR_DONE = ("java", "go")
ACCEPTS_OVER_THE_LOST_CONNECTION = ("go",)  # and fails once: accepting is not tried again
SETTLES_NOTHING_OF_A_LOST_CONNECTION = ("go",)  # it waits for the lost connection to take the outcome
FAILS_WHAT_MEETS_A_LOSS = ("java",)  # of a link or connection; what comes after it goes over another one
NOTICES_LOSSES_WHEN_IT_RECEIVES = ("python-sync", "python-aio", "python-sync-7.14.3", "python-aio-7.14.3")
COMPARES_KEYS = ("python-sync", "python-aio", "python-sync-7.14.3", "python-aio-7.14.3", "javascript", "java", "dotnet")
PREFETCHES = ("python-sync", "python-aio", "python-sync-7.14.3", "python-aio-7.14.3", "java", "dotnet")
PREFETCHES_AGAIN_WHEN_IT_SETTLES = ("dotnet",)  # of messages that are not settled it holds as many as it prefetches
CLOSES_WITH_ITS_SESSION = ("dotnet",)  # its receivers are disposed then, and fail as that
CHECKS_VALUES_ITSELF = ("dotnet",)  # those of an entity, and how long the reason of a dead letter is
SHOWS_THE_EXPIRY_THAT_WAS_SENT = ("dotnet",)  # by the clock of the machine that sent
IGNORES_REFUSALS_IN_TRANSACTIONS = ("java",)

WRITES_DECIMALS = ("dotnet",)

# How data clients connect beside plain AMQP, with which all other tests are run.
AMQPS, WSS, WS = Way(tls=True), Way("websocket", tls=True), Way("websocket")
WAYS: Mapping[str, tuple[Way, ...]] = {
    "python-sync": (AMQPS, WSS, WS),
    "python-aio": (AMQPS, WSS, WS),
    "python-sync-7.14.3": (AMQPS, WSS),
    "python-aio-7.14.3": (AMQPS, WSS),
    "javascript": (AMQPS, WSS, WS),
    "java": (AMQPS, WSS),
    "go": (AMQPS, WSS, WS),
    "dotnet": (AMQPS, WSS, WS),
}

# Of administration. What does not depend on how an SDK says it is tested with its newest version.
ADMINISTRATORS = tuple(name for name in CLIENTS | PREVIEWS if "-7.14" not in name)
MAKES_DEFAULT_RULES = ("javascript", "javascript-beta", "java", "go", "dotnet")
FILTERS_WITH_TEXTS_ONLY = ("java",)  # it sends and reads every value in a filter as a string
FORGETS_THE_TTL = ("java",)  # an update of a subscription says nothing of it, so that it is the service's default again
KEEPS_STATUS_OF_SUBSCRIPTIONS_BACK = ("go",)  # a change of it is not sent
CHANGES_NOTHING_IMMUTABLE = ("java", "dotnet")  # they have no way to ask for that
LACKS_PROPERTIES: Mapping[str, frozenset[str]] = {
    "go": frozenset({"enable_express", "availability"}),
    "java": frozenset({"enable_express", "availability"}),
    "dotnet": frozenset({"enable_express", "availability"}),
}
CREATES_WITH: Mapping[str, Mapping[str, Any]] = {  # of its own accord, where others leave it to the service
    "java": {"duplicate_window_ms": 60_000, "supports_ordering": False},
    "dotnet": {"supports_ordering": False},
}


def shown_by(sdk: Sdk, properties: Mapping[str, Any]) -> dict[str, Any]:
    """Of an entity's properties those that an SDK has."""
    lacks = LACKS_PROPERTIES.get(sdk.name, frozenset())
    return {name: value for name, value in properties.items() if name not in lacks}


def created_by(sdk: Sdk, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The properties of an entity for which an SDK was given none: the service's defaults, or the SDK's own."""
    own = CREATES_WITH.get(sdk.name, {})
    return {name: own.get(name, value) for name, value in defaults.items()}


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


everyone = only_clients(*CLIENTS, *OLDER)
partitioned_only = pytest.mark.parametrize("partitioned", [True], ids=["partitioned"], indirect=True)
unpartitioned_only = pytest.mark.parametrize("partitioned", [False], ids=["unpartitioned"], indirect=True)
