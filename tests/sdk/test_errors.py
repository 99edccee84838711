"""Errors: each condition reaches the application as what it is, at once and not after retries."""

from __future__ import annotations

import pytest

from .client import FIRST_EMPTY_WAIT_MS, Sdk
from .driver import SdkError

pytestmark = pytest.mark.sdk

AT_ONCE_S = 5.0
MISSING = "there-is-no-such-queue"


def test_sending_to_a_missing_queue_fails_at_once(sdk: Sdk) -> None:
    with pytest.raises(SdkError) as refused:
        sdk.send(MISSING, {"body": "x"}, timeout_s=AT_ONCE_S)
    assert refused.value.kind == "not-found"
    assert MISSING in refused.value.message


def test_receiving_from_a_missing_queue_fails_at_once(sdk: Sdk) -> None:
    with pytest.raises(SdkError) as refused:
        sdk.receiver(MISSING).receive(1, FIRST_EMPTY_WAIT_MS, timeout_s=AT_ONCE_S)
    assert refused.value.kind == "not-found"
    assert MISSING in refused.value.message


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
