"""The scans of usual messages, in C and in Python, equal the parser byte for byte, wherever they take a message."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from proton import Message as ProtonMessage

from emubus.broker.errors import BrokerError
from emubus.broker.message import message as parsing
from emubus.broker.message.bounds import STANDARD_BOUNDS
from emubus.broker.message.message import Message, parse_sent
from emubus.broker.message.scan import Scanned, Scanner, scan, scan_in_python
from emubus.codec.encode import encode
from emubus.codec.sections import APPLICATION_PROPERTIES
from emubus.codec.types import Described, Symbol, Timestamp, Ubyte, Uint, Ulong

from .test_message_fuzz import ENCODED, SIMPLE, damaged

NOW = 1_800_000_000_000
TEXTS = st.text(max_size=140) | st.none()
NAMES = st.sampled_from([Symbol("x-opt-partition-key"), "x-opt-partition-key", Symbol("mine"), Symbol("x-opt-offset")])
USUAL_SECTIONS = st.tuples(
    st.none()
    | st.tuples(st.booleans() | st.none(), st.none() | st.integers(0, 9).map(Ubyte), st.none() | st.just(Uint(5))).map(
        list
    ),
    st.none() | st.dictionaries(NAMES, st.text(max_size=10) | st.binary(max_size=3), max_size=3),
    st.none() | st.lists(TEXTS, max_size=13),
    st.none() | st.dictionaries(st.text(max_size=10), SIMPLE, max_size=3),
    st.lists(st.binary(max_size=300), max_size=2),
)


@st.composite
def usual(draw: st.DrawFn) -> bytes:
    """A message as SDKs write it, perhaps with a byte of it changed."""
    header, annotations, properties, application, bodies = draw(USUAL_SECTIONS)
    sections = [(0x70, header), (0x72, annotations), (0x73, properties), (0x74, application)]
    sections += [(0x75, body) for body in bodies]
    data = b"".join(encode(Described(Ulong(code), value)) for code, value in sections if value is not None)
    if data and draw(st.booleans()):
        at = draw(st.integers(0, len(data) - 1))
        data = data[:at] + bytes((draw(st.integers(0, 255)),)) + data[at + 1 :]
    return data


def parsed(data: bytes) -> Message:
    """The message as the parser alone reads it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parsing, "scan", lambda *_: None)
        patch.setattr(parsing, "new_message_id", new_id)
        return parse_sent(data)


def new_id() -> str:
    """The id of a message without one."""
    return "0123456789abcdef" * 2


def scanned(data: bytes) -> list[Scanned]:
    """What the scans find in a message that they take; without the function in C the first is the second.

    Without those that `parse_sent` refuses behind the scan, for keys that differ (P9).
    """
    bounds = STANDARD_BOUNDS.key_length_max, STANDARD_BOUNDS.scanned_bytes_max
    taken = [found for take in (scan, scan_in_python) if (found := take(data, *bounds, new_id)) is not None]
    return [found for found in taken if None in found[1:3] or found[1] == found[2]]


@given(usual() | damaged() | ENCODED)
def test_what_the_scan_takes_the_parser_reads_alike(data: bytes) -> None:
    for found in scanned(data):
        message = parsed(data)
        form, session_id, partition_key, with_id, application_at = found
        assert form == message.stored(NOW, None)
        assert (session_id, partition_key) == (message.session_id, message.partition_key)
        assert (message.ttl_ms, message.scheduled_enqueue_at, message.via_partition_key) == (None, None, None)
        whole, at = message.located()
        assert whole == (with_id or data)
        assert application_at == (at[APPLICATION_PROPERTIES] if at[APPLICATION_PROPERTIES + 7] else -1)


@given(usual())
def test_a_scanned_message_answers_as_a_parsed_one(data: bytes) -> None:
    try:
        message = parsed(data)
    except BrokerError:
        assert not scanned(data)
        return
    for found in scanned(data):
        form, session_id, partition_key, with_id, at = found
        id_given = () if with_id is None else (None, None)
        again = Message(with_id or data, len(data), form, session_id, partition_key, at, *id_given)
        assert again.message_id == message.message_id
        assert again.stored(NOW, None, b"head") == b"head" + message.stored(NOW, None)
        assert again.stored(NOW, 5000) == message.stored(NOW, 5000)
        assert (again.durable, again.priority, again.size_bytes) == (message.durable, message.priority, len(data))
        assert again.located() == message.located()


CHANGES = st.lists(st.tuples(st.integers(0, 120), st.integers(0, 255)), max_size=4)


@given(usual(), usual(), CHANGES)
def test_what_was_scanned_before_changes_nothing(first: bytes, second: bytes, changes: list[tuple[int, int]]) -> None:
    changed = [first[:at] + bytes((value,)) + first[at + 1 :] for at, value in changes]
    scanner = Scanner()
    for data in (first, second, *changed, first):
        for length_max in (STANDARD_BOUNDS.key_length_max, 3):
            bounds = length_max, STANDARD_BOUNDS.scanned_bytes_max
            assert scanner.scan(data, *bounds, new_id) == Scanner().scan(data, *bounds, new_id)


@pytest.mark.parametrize("count", [0, 10, 11])
def test_messages_of_sdks_are_scanned(count: int) -> None:
    properties: list[str | None] = ["id", *[None] * 12][:count]
    if count > 10:
        properties[10] = "session"
    sections: list[tuple[int, object]] = [(0x70, [True]), (0x72, {Symbol("x-opt-partition-key"): "session"})]
    sections.append((0x73, list[object](properties)))
    data = b"".join(encode(Described(Ulong(code), value)) for code, value in sections) + encode(
        Described(Ulong(0x75), b"body")
    )
    session_id = "session" if count > 10 else None
    first, second = scanned(data)
    assert first == second
    assert first[1:] == (session_id, "session", None if count else first[3], -1)
    assert parse_sent(data).session_id == session_id


@pytest.mark.parametrize("properties", [None, {"a": 1, "b": "x" * 300}])
def test_messages_of_proton_are_scanned(properties: dict[str, object] | None) -> None:
    """An empty header, and application properties with sizes of 4 bytes."""
    data = bytes(ProtonMessage(id="m", body=b"body", inferred=True, properties=properties).encode())
    first, second = scanned(data)
    assert first == second
    assert first[:4] == (parsed(data).stored(NOW, None), None, None, None)


@pytest.mark.parametrize(
    "properties",
    [
        b"",
        bytes.fromhex("005373c00401404040"),  # 3 nulls, but a count of 1
        bytes.fromhex("005373c00301a10169"),  # an id that ends behind the section
        bytes.fromhex("005373c0fe0140") + b"\x40" * 252,
    ],
)
def test_sections_that_are_none_are_left_to_the_parser(properties: bytes) -> None:
    data = encode(Described(Ulong(0x70), [True])) + properties + encode(Described(Ulong(0x75), b"body"))
    assert len(scanned(data)) == (0 if properties else 2)


@pytest.mark.parametrize(
    "sections",
    [
        [(0x70, [None, None, Uint(5)])],  # a time to live
        [(0x72, {Symbol("x-opt-scheduled-enqueue-time"): Timestamp(NOW)})],
        [(0x72, {Symbol("x-opt-partition-key"): "k" * 129})],
        [(0x73, ["k" * 129])],
        [(0x73, ["id", *[None] * 9, "k" * 129])],
        [(0x73, ["id", *[None] * 9, 5])],
    ],
)
def test_what_needs_more_than_bytes_is_left_to_the_parser(sections: list[tuple[int, object]]) -> None:
    data = b"".join(encode(Described(Ulong(code), value)) for code, value in (*sections, (0x75, b"body")))
    for _ in range(2):  # what is remembered of a section makes no difference
        assert not scanned(data)
