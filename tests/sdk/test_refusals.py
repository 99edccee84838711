"""Attaches that are refused: the program sees why, with older versions of an SDK, too."""

from __future__ import annotations

import pytest

from .client import EMPTY_WAIT_MS, Sdk
from .conftest import MakeQueue
from .driver import SdkError
from .features import everyone, partitioned_only

pytestmark = [pytest.mark.sdk, everyone]

MISSING = "there-is-no-such-queue"


@pytest.fixture
def sessions(make_queue: MakeQueue) -> str:
    """A queue of message sessions."""
    return make_queue(requires_session=True)


@partitioned_only
def test_a_message_session_that_is_held_cannot_be_locked(sdk: Sdk, sessions: str) -> None:
    sdk.send(sessions, {"body": "x", "session_id": "a"})
    holder = sdk.accept_session(sessions, "a")
    for _ in range(2):
        with pytest.raises(SdkError) as refused:
            sdk.accept_session(sessions, "a")
        assert refused.value.kind == "session-cannot-be-locked", str(refused.value)
    message = holder.receive_one()
    holder.complete(message)
    holder.close()
    again = sdk.accept_session(sessions, "a")
    assert again.receive(1, EMPTY_WAIT_MS) == []


@partitioned_only
def test_a_receiver_without_session_is_not_allowed_on_a_queue_of_message_sessions(sdk: Sdk, sessions: str) -> None:
    with pytest.raises(SdkError) as refused:
        sdk.receiver(sessions).receive(1)
    assert refused.value.kind == "not-allowed"


def test_a_message_session_of_a_missing_queue_is_not_found(sdk: Sdk) -> None:
    with pytest.raises(SdkError) as refused:
        sdk.accept_session(MISSING, "a")
    assert refused.value.kind == "not-found"


@partitioned_only
def test_a_sender_to_a_missing_queue_is_not_found_and_others_go_on(sdk: Sdk, queue: str) -> None:
    for _ in range(2):
        with pytest.raises(SdkError) as refused:
            sdk.send(MISSING, {"body": "x"})
        assert refused.value.kind == "not-found"
    sdk.send(queue, {"body": "still"})
    assert sdk.receiver(queue).receive_one().body == "still"
