"""Values as JSON with their types, and the changes of an encoded message: pure functions."""

from __future__ import annotations

import json
import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emubus.broker.message.builder import NewMessage
from emubus.broker.message.message import PROPERTY_NAMES, parse_message
from emubus.codec.decode import decode_exactly
from emubus.codec.encode import encode
from emubus.codec.types import (
    Array,
    Byte,
    Char,
    Decimal64,
    Described,
    Float,
    Int,
    Long,
    MapItems,
    Short,
    Symbol,
    Timestamp,
    Ubyte,
    Uint,
    Ulong,
    Ushort,
)
from emubus.web.messages.changes import PARTITION_KEY, SCHEDULED_FOR, Changes, Lifetime, changed, scheduled_for
from emubus.web.messages.typed_json import from_json, to_json

from ..rounds import rounds

KEYED = st.sampled_from([Symbol("s"), "t", Long(3), True, uuid.UUID(int=5)])
SIMPLE = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from(["", "text", "é\n\u2028", b"", b"\0\xff"]),
    st.floats(allow_nan=False),
    st.floats(allow_nan=False, width=32).map(Float),
    st.integers(-(1 << 63), (1 << 63) - 1).map(Long),
    st.integers(0, (1 << 64) - 1).map(Ulong),
    st.integers(-(1 << 62), 1 << 62).map(Timestamp),
    st.integers(0, 100).flatmap(lambda n: st.sampled_from([Ubyte(n), Ushort(n), Uint(n), Byte(n), Short(n), Int(n)])),
    st.sampled_from(
        [
            uuid.UUID(int=9),
            Char("é"),
            Symbol("sym"),
            Decimal64(bytes(8)),
            Array(0x71, (Int(1), Int(2))),
            Array(0xA1, ("a",), Symbol("d")),
        ]
    ),
)
VALUES = st.recursive(
    SIMPLE,
    lambda each: st.one_of(
        st.lists(each, max_size=3),
        st.lists(st.tuples(KEYED, each), max_size=3).map(MapItems),
        st.builds(Described, st.sampled_from([Symbol("x"), Ulong(7)]), each),
    ),
    max_leaves=6,
)


@settings(max_examples=rounds(30, 2_000))
@given(VALUES)
def test_every_value_of_amqp_comes_back_from_json_with_its_type(value: object) -> None:
    encoded = encode(value)
    written = json.dumps(to_json(decode_exactly(encoded)[0]), allow_nan=False)
    assert encode(from_json(json.loads(written))) == encoded


@pytest.mark.parametrize(
    "written",
    [
        {"type": "uint"},
        {"type": "uint", "value": "x"},
        {"type": "uint", "value": True},
        {"type": "uint", "value": 1, "unit": "s"},
        {"type": "binary", "value": "?"},
        {"type": "map", "value": [1]},
        {"type": "array", "value": []},
        {"type": "moon", "value": 1},
        {"type": "symbol", "value": 1},
        {"a": 1},
    ],
    ids=str,
)
def test_json_that_is_no_value_is_refused(written: object) -> None:
    with pytest.raises(ValueError, match=r"value|literal|Incorrect"):
        from_json(written)


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
