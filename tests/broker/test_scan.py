"""The scan of usual messages equals the parser, byte for byte, wherever it takes a message."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emubus.broker.errors import BrokerError
from emubus.broker.message import message as parsing
from emubus.broker.message.bounds import STANDARD_BOUNDS
from emubus.broker.message.message import Message, parse_sent
from emubus.broker.message.scan import IS_NATIVE, scan
from emubus.codec.encode import encode
from emubus.codec.types import Described, Symbol, Ubyte, Uint, Ulong

from .test_message_fuzz import ENCODED, SIMPLE, damaged, unless_refused

NOW = 1_800_000_000_000
TEXTS = st.text(max_size=140) | st.none()
NAMES = st.sampled_from([Symbol("x-opt-partition-key"), "x-opt-partition-key", Symbol("mine"), Symbol("x-opt-offset")])
USUAL_SECTIONS = st.tuples(
    st.none()
    | st.tuples(st.booleans() | st.none(), st.none() | st.integers(0, 9).map(Ubyte), st.none() | st.just(Uint(5))).map(
        list
    ),
    st.none() | st.dictionaries(NAMES, st.text(max_size=10) | st.binary(max_size=3), max_size=3),
    st.lists(TEXTS, min_size=1, max_size=13),
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
    if draw(st.booleans()):
        at = draw(st.integers(0, len(data) - 1))
        data = data[:at] + bytes((draw(st.integers(0, 255)),)) + data[at + 1 :]
    return data


def parsed(data: bytes) -> Message:
    """The message as the parser alone reads it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parsing, "scan", lambda *_: None)
        return parse_sent(data)


@given(usual() | damaged() | ENCODED)
def test_what_the_scan_takes_the_parser_reads_alike(data: bytes) -> None:
    found = scan(data, STANDARD_BOUNDS.key_length_max, STANDARD_BOUNDS.property_bytes_max)
    if found is None:
        return
    message = parsed(data)
    form, session_id, partition_key = found
    assert form == message.stored(NOW, None)
    assert (session_id, partition_key) == (message.session_id, message.partition_key)
    assert (message.ttl_ms, message.scheduled_enqueue_at, message.via_partition_key) == (None, None, None)


@given(usual())
def test_a_scanned_message_answers_as_a_parsed_one(data: bytes) -> None:
    try:
        message = parsed(data)
    except BrokerError:
        assert scan(data, STANDARD_BOUNDS.key_length_max, STANDARD_BOUNDS.property_bytes_max) is None
        return
    scanned = parse_sent(data)
    message_id = unless_refused(lambda: message.message_id)
    if message_id is None:  # each reading makes an id of its own
        return
    assert scanned.stored(NOW, NOW + 5000) == message.stored(NOW, NOW + 5000)
    assert scanned.stored(NOW, None, b"head") == b"head" + message.stored(NOW, None)
    assert (scanned.durable, scanned.priority, scanned.size_bytes) == (message.durable, message.priority, len(data))
    assert (scanned.message_id, scanned.located()) == (message_id, message.located())


@pytest.mark.parametrize("count", [0, 10, 11])
def test_messages_of_sdks_are_scanned(count: int) -> None:
    properties = ["id", *[None] * 12][:count] if count else ["id"]
    if count > 10:
        properties[10] = "session"
    data = b"".join(
        encode(Described(Ulong(code), value))
        for code, value in [(0x70, [True]), (0x72, {Symbol("x-opt-partition-key"): "k"}), (0x73, properties)]
    ) + encode(Described(Ulong(0x75), b"body"))
    session_id = "session" if count > 10 else None
    found = scan(data, 128, 32768)
    assert (found is not None) is IS_NATIVE
    assert found is None or found[1:] == (session_id, "k")
    assert parse_sent(data).session_id == session_id
