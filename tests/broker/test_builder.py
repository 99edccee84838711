"""Messages put together of plain values are what the broker reads back."""

from __future__ import annotations

import pytest

from emubus.broker.message.builder import NewMessage
from emubus.broker.message.message import parse_message
from emubus.codec.sections import data_sections
from emubus.codec.types import Long, Timestamp


def test_every_value_is_found_where_it_belongs() -> None:
    encoded = NewMessage(
        b"body",
        {"message-id": "m", "subject": "s", "content-type": "text/plain", "group-id": "g", "to": None},
        {"color": "red", "size": Long(7), "at": Timestamp(1)},
        partition_key="g",
        scheduled_enqueue_at=123_456,
        ttl_ms=9_000,
    ).encoded()
    message = parse_message(encoded)
    assert (message.message_id, message.session_id, message.partition_key) == ("m", "g", "g")
    assert (message.scheduled_enqueue_at, message.ttl_ms, message.durable) == (123_456, 9_000, False)
    assert [message.field(position) for position in (2, 3, 6)] == [None, "s", "text/plain"]
    assert message.application_properties() == {"color": "red", "size": 7, "at": 1}
    assert type(message.application_properties()["size"]) is Long
    assert data_sections(encoded) == [b"body"]


def test_a_message_of_nothing_has_an_empty_body_only() -> None:
    assert NewMessage().encoded() == b"\x00\x53\x75\xa0\x00"


def test_what_amqp_cannot_hold_is_refused() -> None:
    with pytest.raises(TypeError):
        NewMessage(application_properties={"x": object()}).encoded()
    with pytest.raises(ValueError, match="surrogates"):
        NewMessage(properties={"content-type": "t\ud800xt"}).encoded()
