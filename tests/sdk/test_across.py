"""Across SDKs: what one language sends, every other understands."""

from __future__ import annotations

from typing import Any

import pytest

from .client import How, Sdk
from .conftest import Drivers
from .prepare import available

pytestmark = pytest.mark.sdk


@pytest.mark.parametrize("how", ["single", "batch"])
@pytest.mark.parametrize("partitioned", [True], ids=["partitioned"], indirect=True)
def test_an_sdk_understands_messages_of_every_other(sdk: Sdk, drivers: Drivers, queue: str, how: How) -> None:
    sent: list[dict[str, Any]] = []
    for name in sorted(available()):
        sender = Sdk(drivers.driver(name))
        message: dict[str, Any] = {
            "body": f"größe, sent by {name}",
            "message_id": f"id {name}",
            "subject": "the subject",
            "correlation_id": "the correlation",
            "content_type": "text/plain",
            "ttl_ms": 3_600_000,
            # No boolean, no integer: JavaScript shows Python's booleans (0x56) as numbers, and sends integers as uint,
            # which the protocol has no name for.
            "properties": {"text": "grüße", "number": {"type": "double", "value": 1.5}},
        }
        sender.send(queue, message, how=how)
        sender.reset()
        sent.append(message)
    received = [message.as_sent() for message in sdk.receiver(queue).receive_all(len(sent))]
    assert sorted(received, key=lambda message: message["message_id"]) == sent
