"""The fast column reader reads what the codec reads, or both refuse.

The reader has shorter ways for the usual values, and reads annotations at once by the layout of those before; the
codec decodes one value after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emubus.codec.decode import decode_exactly
from emubus.codec.encode import encode, map_from_items
from emubus.codec.sections import open_items
from emubus.codec.skip import skip
from emubus.codec.types import Char, Long, MapItems, Symbol, Timestamp, Uint, Ulong
from emubus.spark_connector.codec.annotations import read_annotations
from emubus.spark_connector.codec.decode import MALFORMED, MessageReader
from emubus.spark_connector.codec.properties import text, typed_json
from tests.codec.encoded import ENCODED, SPOILED

from ...rounds import rounds
from .kit import with_sections
from .strategies import PLAIN, TEXTS

SHORT_TEXT = TEXTS.map(encode)
USUAL = st.one_of([PLAIN[name] for name in ("boolean", "int", "long", "double", "timestamp", "string")]).map(encode)


def either(read: Any, *arguments: Any) -> Any:
    """What `read` returns; None when it refuses the bytes."""
    try:
        return read(*arguments)
    except MALFORMED:
        return None


def items_one_by_one(data: bytes) -> list[object]:
    """Keys and values of an encoded map by turns. Raises one of MALFORMED."""
    count, pos = open_items(data, 0)
    items: list[object] = []
    for _ in range(count):
        item, pos = decode_exactly(data, pos)
        items.append(item)
    if pos != len(data) or count % 2:
        raise ValueError("the items do not fill the map")
    return items


@pytest.mark.parametrize("properties_format", ["text", "json"])
@settings(max_examples=rounds(150, 3_000))
@given(items=st.lists(SHORT_TEXT | USUAL | ENCODED | SPOILED, max_size=8))
def test_application_properties_are_those_that_the_codec_reads(
    properties_format: Literal["text", "json"], items: list[bytes]
) -> None:
    encoded = map_from_items(len(items), b"".join(items))
    decoded = either(items_one_by_one, encoded)
    reader = MessageReader({"applicationProperties"}, properties_format)
    parts = either(reader.read, with_sections(b"\x00\x53\x74" + encoded))
    if decoded is None or parts is None:
        assert decoded is parts is None
    else:
        show = typed_json if properties_format == "json" else text
        expected = {text(key) or "": show(value) for key, value in zip(decoded[::2], decoded[1::2], strict=True)}
        assert list(parts[3].items()) == list(expected.items())


COLUMNS = ("messageId", "to", "subject", "replyTo", "correlationId", "contentType", "sessionId", "replyToSessionId")
POSITIONS = (0, 2, 3, 4, 5, 6, 10, 12)


@settings(max_examples=rounds(150, 3_000))
@given(st.lists(SHORT_TEXT | ENCODED, max_size=13))
def test_fields_are_those_that_the_codec_reads(items: list[bytes]) -> None:
    head = b"\x00\x53\x73\xd0" + (len(b"".join(items)) + 4).to_bytes(4, "big") + len(items).to_bytes(4, "big")
    parts = either(MessageReader(set(COLUMNS), "text").read, with_sections(head + b"".join(items)))
    decoded = [either(decode_exactly, item) for item in items]
    wanted = [decoded[position] for position in POSITIONS if position < len(items)]
    if parts is None or None in wanted:
        assert parts is None
        assert None in wanted
    else:
        values = [value for value, _ in wanted] + [None] * (len(POSITIONS) - len(wanted))
        assert [parts[2][position] for position in POSITIONS] == [
            value.hex() if type(value) is bytes and position in (0, 5) else text(value)
            for position, value in zip(POSITIONS, values, strict=True)
        ]


ANNOTATIONS = (
    "x-opt-sequence-number",
    "x-opt-enqueued-time",
    "x-opt-message-state",
    "x-opt-scheduled-enqueue-time",
    "x-opt-enqueue-sequence-number",
    "x-opt-partition-key",
    "x-opt-deadletter-source",
)


def annotations_one_by_one(encoded: bytes) -> Sequence[object]:
    """The annotations that become columns; others are skipped, whatever is in them. Raises one of MALFORMED."""
    found: dict[str, object] = {}
    count, pos = open_items(encoded, 0)
    for _ in range(count // 2):
        key = (either(decode_exactly, encoded, pos) or [None])[0]
        value_at = skip(encoded, pos)
        pos = skip(encoded, value_at)
        if type(key) not in (str, Symbol) or key not in ANNOTATIONS:
            continue
        value, _ = decode_exactly(encoded, value_at, pos)
        is_text = isinstance(value, str) and not isinstance(value, Char)
        is_integer = isinstance(value, int) and not isinstance(value, bool) and value < 1 << 63
        if value is not None:
            if not (is_text if key in ANNOTATIONS[5:] else is_integer):
                raise ValueError(f"{key} of another type")
            found[key] = value.encode() if isinstance(value, str) else value
    if pos != len(encoded) or count % 2:
        raise ValueError("the items do not fill the map")
    return [found.get(name) for name in ANNOTATIONS]


def _annotations(draw: st.DrawFn) -> bytes:
    names = draw(st.lists(st.sampled_from(ANNOTATIONS), unique=True, min_size=1))
    entries: list[tuple[object, object]] = []
    for name in names:
        usual = PLAIN["symbol"] | PLAIN["string"] if name in ANNOTATIONS[5:] else PLAIN["long"] | PLAIN["timestamp"]
        entries.append((Symbol(name), draw(usual)))
    return encode(MapItems(entries))


@settings(max_examples=rounds(150, 3_000))
@given(st.composite(_annotations)(), st.lists(st.tuples(st.integers(0, 300), st.integers(0, 255)), max_size=3))
def test_annotations_read_at_once_are_those_that_the_codec_reads(
    encoded: bytes, changes: list[tuple[int, int]]
) -> None:
    damaged = bytearray(encoded)
    for at, octet in changes:
        damaged[5 + at % (len(encoded) - 5)] = octet  # behind what tells layouts apart
    for data in (encoded, encoded, bytes(damaged)):
        expected = either(annotations_one_by_one, data)
        got = either(read_annotations, data, 0, len(data))
        assert (None if got is None else list(got)) == expected


@pytest.mark.parametrize("number", [Long(77), Ulong(77), Uint(77), Ulong(1 << 62)])
def test_messages_that_are_alike_have_the_same_annotations(number: object) -> None:
    long_key = "é" * 128
    entries = [("x-opt-sequence-number", number), ("x-opt-enqueued-time", Timestamp(5)), (ANNOTATIONS[5], long_key)]
    encoded = encode(MapItems((Symbol(name), value) for name, value in entries))
    expected = (int(str(number)), 5, None, None, None, long_key.encode(), None)
    assert [read_annotations(encoded, 0, len(encoded)) for _ in range(3)] == [expected] * 3
