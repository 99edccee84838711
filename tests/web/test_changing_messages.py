"""The changes of an encoded message: pure functions."""

from __future__ import annotations

from emubus.broker.message.builder import NewMessage
from emubus.broker.message.message import PROPERTY_NAMES, parse_message
from emubus.codec.types import (
    Int,
    Uint,
)
from emubus.web.messages.changes import PARTITION_KEY, SCHEDULED_FOR, Changes, Lifetime, changed, scheduled_for

ORIGINAL = NewMessage(
    b"body",
    {"message-id": "m", "subject": "s", "content-type": "text/plain"},
    {"a": Int(1), "b": "two"},
    "key",
    scheduled_enqueue_at=99,
    ttl_ms=1_000,
).encoded()


def test_what_is_not_changed_keeps_its_bytes() -> None:
    assert changed(ORIGINAL, Changes()) == ORIGINAL
    assert changed(ORIGINAL, Changes(properties={"subject": "s"})) == ORIGINAL
    assert changed(ORIGINAL, Changes(application_properties={"a": Int(1)})) == ORIGINAL
    assert changed(ORIGINAL, Changes(b"other")).startswith(ORIGINAL[: -len(b"body") - 2])


def test_fields_are_changed_added_and_removed() -> None:
    message = parse_message(
        changed(
            ORIGINAL,
            Changes(
                b"new",
                {"message-id": None, "subject": "other", "correlation-id": "c"},
                {"a": None, "c": Uint(3)},
                {PARTITION_KEY: None, SCHEDULED_FOR: scheduled_for(None)},
                Lifetime(5, 1_000),
            ),
        )
    )
    assert message.application_properties() == {"b": "two", "c": 3}
    assert (message.partition_key, message.scheduled_enqueue_at, message.ttl_ms) == (None, None, 5)
    assert message.field(PROPERTY_NAMES.index("subject")) == "other"


def test_a_message_without_the_changed_sections_gets_them() -> None:
    bare = NewMessage(b"x").encoded()
    changes = Changes(None, {"subject": "s"}, {"n": 1}, {PARTITION_KEY: "k", SCHEDULED_FOR: scheduled_for(7)})
    message = parse_message(changed(bare, changes))
    assert (message.partition_key, message.scheduled_enqueue_at) == ("k", 7)
    assert message.application_properties() == {"n": 1}
    assert changed(bare, changes).endswith(bare)
