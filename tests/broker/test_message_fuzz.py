"""Whatever bytes arrive: a message or a refusal, never another exception, never a message that fails later."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from hypothesis import given
from hypothesis import strategies as st

from emubus.broker.errors import BrokerError, Condition, EmptyBatchError
from emubus.broker.message.message import parse_message, split_batch
from emubus.broker.message.stored import (
    parse_stored,
    with_application_properties,
)
from emubus.broker.message.stored_form import decoded, named_values
from emubus.codec.decode import decode
from emubus.codec.encode import encode
from emubus.codec.errors import DecodeError
from emubus.codec.types import Described, Symbol, Timestamp, Ubyte, Uint, Ulong

from .driving import delivery_bytes
from .stored_fields import application_properties, properties_fields

T = TypeVar("T")
REFUSALS = {Condition.DECODE_ERROR, Condition.INVALID_FIELD, Condition.ARGUMENT_OUT_OF_RANGE}


def unless_refused(act: Callable[[], T]) -> T | None:
    """Return what `act` gives, None when it refuses the bytes; whatever else it raises fails the test."""
    try:
        return act()
    except BrokerError as refused:
        if refused.condition not in REFUSALS:
            raise
        return None


SIMPLE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.text(max_size=20),
    st.uuids(),
    st.binary(max_size=20),
    st.integers(0, 2**32 - 1).map(Uint),
    st.integers(-(2**40), 2**40).map(Timestamp),
)
KEYS = st.sampled_from(
    [
        Symbol("x-opt-partition-key"),
        Symbol("x-opt-scheduled-enqueue-time"),
        Symbol("x-opt-offset"),
        Symbol("x-opt-locked-until"),
        "x-opt-partition-key",
        Symbol("mine"),
        Ulong(5),
    ]
)
MAPS = st.dictionaries(KEYS, SIMPLE, max_size=5)
SECTION = st.one_of(
    st.tuples(st.just(0x70), st.tuples(st.booleans(), st.none() | st.integers(0, 9).map(Ubyte)).map(list)),
    st.tuples(st.just(0x71), MAPS),
    st.tuples(st.just(0x72), MAPS),
    st.tuples(st.just(0x73), st.lists(st.text(max_size=40) | st.none(), max_size=13)),
    st.tuples(st.just(0x74), st.dictionaries(st.text(max_size=10), SIMPLE, max_size=5)),
    st.tuples(st.just(0x75), st.binary(max_size=300)),
    st.tuples(st.just(0x76), st.lists(SIMPLE, max_size=3)),
    st.tuples(st.just(0x77), SIMPLE),
    st.tuples(st.just(0x78), MAPS),
)
ENCODED = st.lists(SECTION, max_size=8).map(
    lambda sections: b"".join(encode(Described(Ulong(code), value)) for code, value in sections)
)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    octets = bytearray(draw(ENCODED))
    for _ in range(draw(st.integers(0, 3))):
        if octets:
            octets[draw(st.integers(0, len(octets) - 1))] = draw(st.integers(0, 255))
    return bytes(octets[: draw(st.none() | st.integers(0, len(octets)))])


def codes(data: bytes) -> list[int]:
    """The descriptors of a message whose sections must all be whole."""
    found, pos = list[int](), 0
    while pos < len(data):
        assert data[pos : pos + 2] == b"\x00\x53"
        found.append(data[pos + 2])
        try:
            pos = decode(data, pos)[1]
        except DecodeError:  # something inside that nobody looks at is broken: as it was sent
            return found
    return found


def check(data: bytes) -> None:
    message = unless_refused(lambda: parse_message(data))
    if message is None:
        return
    assert message.size_bytes == len(data)
    unless_refused(lambda: message.message_id)
    unless_refused(lambda: message.session_id)
    for ttl_ms in (None, 5):
        stored = message.stored(10**12, ttl_ms)
        again = parse_stored(stored)
        assert again.stored(10**12, ttl_ms) == stored
        assert (again.partition_key, again.durable) == (message.partition_key, message.durable)
        unless_refused(lambda stored=stored: application_properties(stored))  # type: ignore[misc]
        unless_refused(lambda stored=stored: properties_fields(stored))  # type: ignore[misc]
        changed = with_application_properties(stored, {"DeadLetterReason": "x"})
        assert with_application_properties(changed, {"DeadLetterReason": "x"}) == changed
        delivered = delivery_bytes(
            changed,
            sequence_number=1,
            enqueued_at=2,
            delivery_count=3,
            locked_until_at=4,
            state=0,
            partition_id=5,
            enqueue_sequence_number=6,
            lock_token=bytes(16),
        )
        order = codes(delivered)
        assert order == sorted(order)
        assert order[:3] == [0x70, 0x71, 0x72]
        parse_message(delivered)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_refused(data: bytes) -> None:
    check(data)


@given(damaged())
def test_a_damaged_message_is_a_message_or_refused_and_never_fails_later(data: bytes) -> None:
    check(data)


@given(st.binary(max_size=200) | damaged())
def test_any_bytes_are_a_batch_or_refused(data: bytes) -> None:
    try:
        messages = unless_refused(lambda: split_batch(data))
    except EmptyBatchError:
        return
    assert messages is None or len(messages) >= 1


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=10), ENCODED)
def test_a_batch_gives_back_the_messages_that_went_in(messages: list[bytes], envelope: bytes) -> None:
    bodies = b"".join(encode(Described(Ulong(0x75), message)) for message in messages)
    found = split_batch(envelope + bodies)
    assert found[len(found) - len(messages) :] == messages


@given(
    st.dictionaries(st.text(max_size=20) | st.just("long" * 70), st.text(max_size=20) | SIMPLE, max_size=5),
    st.integers(0, 200),
    st.integers(0, 255) | st.none(),
)
def test_a_map_of_texts_is_read_as_the_decoder_reads_it(
    properties: dict[str, object], at: int, byte: int | None
) -> None:
    data = encode(Described(Ulong(0x74), properties))
    if byte is not None and 3 <= at < len(data):
        data = data[:at] + bytes((byte,)) + data[at + 1 :]

    def by_the_decoder() -> dict[str, object]:
        entries = decoded(data, 3)
        return (
            {key: value for key, value in entries.items() if isinstance(key, str)} if isinstance(entries, dict) else {}
        )

    assert repr(unless_refused(lambda: named_values(data, 0))) == repr(unless_refused(by_the_decoder))
