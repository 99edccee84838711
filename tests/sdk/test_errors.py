"""Errors: each condition reaches the application as what it is, at once and not after retries."""

from __future__ import annotations

import pytest

from .client import Sdk
from .conftest import MakeTopic
from .driver import SdkError
from .features import only_clients, partitioned_only

pytestmark = pytest.mark.sdk

AT_ONCE_S = 20.0  # SDKs that try again take longer: JavaScript waits 30 s before, Java more than a minute in all
MISSING = "there-is-no-such-queue"


def test_sending_to_a_missing_queue_fails_at_once(sdk: Sdk) -> None:
    with pytest.raises(SdkError) as refused:
        sdk.send(MISSING, {"body": "x"}, timeout_s=AT_ONCE_S)
    assert refused.value.kind == "not-found"
    assert MISSING in refused.value.message


def test_receiving_from_a_missing_queue_fails_at_once(sdk: Sdk) -> None:
    with pytest.raises(SdkError) as refused:
        sdk.receiver(MISSING).receive(timeout_s=AT_ONCE_S)
    assert refused.value.kind == "not-found"
    assert MISSING in refused.value.message


@partitioned_only
def test_receiving_from_a_missing_subscription_fails_at_once(sdk: Sdk, make_topic: MakeTopic) -> None:
    """The token for it is taken, as its topic is there; Python makes another exception of a refused one."""
    topic = make_topic()
    with pytest.raises(SdkError) as refused:
        sdk.receiver(topic, subscription=MISSING).receive(timeout_s=AT_ONCE_S)
    assert refused.value.kind == "not-found"
    assert f":Topic:{topic}|{MISSING}' could not be found" in refused.value.message


@only_clients("javascript", "java")  # they take it for a reason to try again unless the sentence is the service's
@partitioned_only
def test_a_connected_client_hears_at_once_that_there_is_no_such_queue(sdk: Sdk, queue: str) -> None:
    sdk.send(queue, {"body": "x"})
    with pytest.raises(SdkError) as sending:
        sdk.send(MISSING, {"body": "x"}, timeout_s=AT_ONCE_S)
    with pytest.raises(SdkError) as receiving:
        sdk.receiver(MISSING).receive(timeout_s=AT_ONCE_S)
    assert [error.value.kind for error in (sending, receiving)] == ["not-found", "not-found"]


def test_a_message_above_the_size_limit_is_refused(sdk: Sdk, queue: str) -> None:
    with pytest.raises(SdkError) as refused:
        sdk.send(queue, {"body_size": 300 * 1024}, timeout_s=AT_ONCE_S)
    assert refused.value.kind == "message-size"
    sdk.send(queue, {"body": "small"})
    assert [message.body for message in sdk.receiver(queue).peek_all()] == ["small"]


def test_a_message_is_not_settled_twice(sdk: Sdk, queue: str) -> None:
    sdk.send(queue, {"body": "x"})
    receiver = sdk.receiver(queue)
    message = receiver.receive_one()
    receiver.complete(message)
    with pytest.raises(SdkError):
        receiver.complete(message)
