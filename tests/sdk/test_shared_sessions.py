"""Message sessions whose lock others may take over: non-exclusive sessions, on Premium."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from emubus.broker.model.profiles import Profile
from emubus.testing import EmubusServer, QueueDescription

from .client import Sdk
from .conftest import MakeQueue
from .driver import DriverProcess, SdkError
from .features import clients_with, partitioned_only
from .prepare import ALL_CLIENTS

pytestmark = [pytest.mark.sdk, clients_with("shared_sessions")]

QUEUE = "sessions"


@pytest.fixture
def premium(sdk: Sdk) -> Iterator[Sdk]:
    """The SDK, connected to a namespace on Premium with a queue of message sessions."""
    queues = [QueueDescription(QUEUE, requires_session=True)]
    with EmubusServer(queues, profile=Profile.PREMIUM) as server:
        driver = DriverProcess(ALL_CLIENTS[sdk.name], server.connection_string)
        yield Sdk(driver)
        driver.close()


def test_a_session_is_handed_over_by_its_token_with_what_was_delivered(premium: Sdk) -> None:
    premium.send(QUEUE, *[{"body": body, "session_id": "s"} for body in "abc"], how="batch")
    first = premium.accept_session(QUEUE, "s", shared=True)
    delivered = first.receive_one()
    first.set_state(b"state")
    with pytest.raises(SdkError) as refused:
        premium.accept_session(QUEUE, "s", shared=True)
    assert refused.value.kind == "session-cannot-be-locked", str(refused.value)
    second = premium.accept_session(QUEUE, "s", shared=True, lock_token=first.lock_token)
    assert (second.session_id, second.lock_token, second.state()) == ("s", first.lock_token, b"state")
    second.complete_of(first, delivered)
    rest = second.receive_all(2)
    assert [message.body for message in rest] == ["b", "c"]
    second.complete(*rest)
    assert second.peek_all() == []
    with pytest.raises(SdkError) as lost:
        first.set_state(b"of the one that has lost it")
    assert lost.value.kind in ("session-lock-lost", "other")  # or the receiver has disposed itself
    assert second.state() == b"state"


def test_a_wrong_token_and_a_session_locked_exclusively_open_nothing(premium: Sdk) -> None:
    premium.send(QUEUE, {"body": "x", "session_id": "s"})
    shared = premium.accept_session(QUEUE, shared=True)
    for lock_token in ("00000000-0000-0000-0000-000000000001", None):
        with pytest.raises(SdkError) as refused:
            premium.accept_session(QUEUE, "s", shared=True, lock_token=lock_token)
        assert refused.value.kind == "session-cannot-be-locked", str(refused.value)
    assert shared.receive_one().body == "x"
    premium.accept_session(QUEUE, "exclusive")
    with pytest.raises(SdkError) as refused:
        premium.accept_session(QUEUE, "exclusive", shared=True)
    assert refused.value.kind == "session-cannot-be-locked", str(refused.value)


@partitioned_only
def test_standard_declines_in_the_way_that_the_sdk_knows(sdk: Sdk, make_queue: MakeQueue) -> None:
    queue = make_queue(requires_session=True)
    with pytest.raises(SdkError) as declined:
        sdk.accept_session(queue, "s", shared=True)
    assert (declined.value.kind, declined.value.type) == ("other", "NotSupportedException")
    sdk.send(queue, {"body": "x", "session_id": "s"})
    assert sdk.accept_session(queue, "s").receive_one().body == "x"
