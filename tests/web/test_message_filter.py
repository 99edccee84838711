"""Filters that look at bytes first choose the same messages as those that decode every message."""

from __future__ import annotations

import asyncio
import re
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emubus.broker.admin.overview import Seen
from emubus.broker.errors import BrokerError
from emubus.broker.message.message import parse_message
from emubus.broker.model.descriptions import SqlFilter
from emubus.broker.rules.context import MessageContext
from emubus.broker.rules.errors import FilterException
from emubus.broker.rules.filters import compile_filter
from emubus.codec.decode import decode
from emubus.codec.encode import encode
from emubus.codec.types import Char, Described, Int, Symbol, Timestamp, Ubyte, Uint, Ulong
from emubus.web.long_work import Pace
from emubus.web.messages.filter import STATES_ASKED, Criteria, filter_of

from ..broker.driving import delivery_bytes

NOW = 1_800_000_000_000
GUID = uuid.UUID("01234567-89ab-cdef-0123-456789abcdef")
TEXTS = (
    "red",
    "RED",
    "grün",
    "x",
    "ü",
    "5",
    "-5",
    "cafe",
    str(GUID),
    "True",
    "false",
    "1.5",
    "",
    "a\nb",
    "sys.PartitionKey",
)
VALUES_OF_ALL_TYPES: list[object] = [
    *TEXTS,
    *(None, True, False, 1.5, 5, -5, Int(5), Ulong(5), Ubyte(5), Timestamp(5), b"\xca\xfe", GUID),
    *(Char("x"), Char("ü"), Symbol("red"), Symbol("grün"), ["red"], {"red": 5}),
    Described(Symbol("com.microsoft:uri"), "red"),
    Described(Symbol("com.microsoft:timespan"), 5),
]
VALUES = st.sampled_from(VALUES_OF_ALL_TYPES)
NAMES = st.sampled_from(["colour", "Colour", "grün", "x"])
BODIES = st.one_of(
    st.sampled_from([b"", b"red", b"\xff\xfe", "GRÜN".encode()]).map(lambda body: (0x75, body)),
    VALUES.map(lambda value: (0x76, [value])),
    VALUES.map(lambda value: (0x77, value)),
)
LITERALS = st.sampled_from(TEXTS).map(lambda text: f"'{text}'") | st.sampled_from(["5", "1.5", "TRUE", "NULL"])
READ = st.sampled_from(
    [*("colour", "[grün]", "user.x", "sys.MessageId", "sys.Label", "sys.SessionId", "sys.CorrelationId"), "sys.To"]
)
TESTS = st.one_of(
    st.tuples(READ, st.sampled_from(["=", "=", "=", "<>", "<"]), LITERALS).map(" ".join),
    st.tuples(LITERALS, st.just("="), READ).map(" ".join),
    st.tuples(READ, st.sampled_from(["LIKE 'r%'", "IS NULL", "IN ('red', '5')", "+ 'd' = 'red'"])).map(" ".join),
    st.sampled_from(["sys.SequenceNumber < 2", "sys.EnqueuedTimeUtc IS NULL", "NOT EXISTS(colour)", "5 / x = 1"]),
    st.sampled_from(["sys.ForcePersistence = TRUE", "sys.TimeToLive IS NULL", "sys.TimeToLive = sys.TimeToLive"]),
    st.sampled_from(["sys.PartitionKey = 'red'", "property('sys.PartitionKey') = 'red'", "p(colour) = 'red'"]),
)
EXPRESSIONS = st.lists(TESTS, min_size=1, max_size=3).flatmap(
    lambda tests: st.sampled_from([" AND ".join(tests), " OR ".join(tests)])
)
CRITERIA = st.builds(
    Criteria,
    text=st.sampled_from(["", "", *TEXTS, "\ud800"]),
    where=st.just("") | EXPRESSIONS,
    state=st.sampled_from(["", "", *STATES_ASKED]),
    after=st.none() | st.integers(NOW - 1, NOW + 1),
    before=st.none() | st.integers(NOW - 1, NOW + 1),
)


@st.composite
def messages(draw: st.DrawFn) -> Seen:
    """A message of a peek: its sections have odd values, and a sender may have mixed up their order."""
    sections: list[tuple[int, object]] = [
        (0x73, draw(st.lists(VALUES, max_size=13))),
        (0x74, draw(st.dictionaries(NAMES, VALUES, max_size=3))),
        draw(BODIES),
    ]
    if draw(st.booleans()):
        sections.append((0x72, {Symbol("mine"): draw(VALUES), Symbol("x-opt-partition-key"): "red"}))
    if draw(st.booleans()):
        sections.append((0x70, [draw(st.sampled_from([True, False, None]))]))
    data = b"".join(encode(Described(Ulong(code), value)) for code, value in draw(st.permutations(sections)))
    number = draw(st.integers(0, 3))
    try:
        stored = parse_message(data).stored(NOW, None)
    except BrokerError:  # the broker refuses it: as bytes that nobody made sense of
        return Seen(0, number, data, None)
    enqueued_at, state = NOW + draw(st.integers(-2, 2)), draw(st.integers(0, 2))
    encoded = delivery_bytes(stored, sequence_number=number, enqueued_at=enqueued_at, delivery_count=0, state=state)
    return Seen(0, number, encoded, draw(st.none() | st.just(NOW)))


def annotations_of(encoded: bytes) -> dict[object, object]:
    """The message annotations, by decoding every section."""
    at = 0
    while at < len(encoded):
        section, at = decode(encoded, at)
        if isinstance(section, Described) and section.descriptor == 0x72:
            assert isinstance(section.value, dict)
            return section.value
    return {}


def is_true(expression: str, seen: Seen, enqueued_at: int | None) -> bool:
    """Whether the broker's filter takes a message, every part of which is read."""
    try:
        message = parse_message(seen.encoded)
        context = MessageContext(message, sequence_number=seen.sequence_number, enqueued_at=enqueued_at)
        return compile_filter(SqlFilter(expression))(context) is True
    except (BrokerError, FilterException):
        return False


def is_meant(criteria: Criteria, seen: Seen) -> bool:
    """Whether a message is meant, as plainly as can be."""
    annotations = annotations_of(seen.encoded)
    at, state = annotations.get("x-opt-enqueued-time"), annotations.get("x-opt-message-state", 0)
    assert isinstance(state, int)
    instant = at if isinstance(at, int) else 0
    states = {STATES_ASKED[state], *(["locked"] if seen.locked_until_at is not None else [])}
    return (
        re.search(re.escape(criteria.text.encode(errors="replace")), seen.encoded, re.IGNORECASE) is not None
        and (not criteria.state or criteria.state in states)
        and (criteria.after is None or instant >= criteria.after)
        and (criteria.before is None or instant < criteria.before)
        and (not criteria.where or is_true(criteria.where, seen, instant or None))
    )


def chosen_by(criteria: Criteria, seen: list[Seen]) -> list[Seen]:
    return list(asyncio.run(filter_of(criteria).chosen(seen, Pace())))


@given(CRITERIA, st.lists(messages(), min_size=1, max_size=4))
def test_a_filter_chooses_what_decoding_every_message_chooses(criteria: Criteria, seen: list[Seen]) -> None:
    assert chosen_by(criteria, seen) == [each for each in seen if is_meant(criteria, each)]


@pytest.mark.parametrize("name", ["colour", "sys.MessageId", "sys.Label"])
def test_an_equality_with_a_text_finds_it_in_values_of_all_types(name: str) -> None:
    places = {"sys.MessageId": 0, "sys.Label": 3}
    seen: list[Seen] = []
    for number, value in enumerate(VALUES_OF_ALL_TYPES):
        properties = [*[None] * places.get(name, 0), value]
        section = Described(Ulong(0x73), properties) if name in places else Described(Ulong(0x74), {name: value})
        seen.append(Seen(0, number, encode(section), None))
    for text in TEXTS:
        expression = f"{name} = '{text}' AND sys.SequenceNumber >= 0"
        chosen = chosen_by(Criteria(where=expression), seen)
        assert chosen == [each for each in seen if is_true(expression, each, None)]
        assert chosen


def test_the_time_to_live_is_read_from_the_header() -> None:
    header = encode(Described(Ulong(0x70), [True, None, Uint(5_000)]))
    named = encode(Described(Ulong(0x74), {"colour": "red"}))
    seen = [Seen(0, 1, header + named, None), Seen(0, 2, named, None)]
    expression = "sys.TimeToLive IS NOT NULL AND sys.ForcePersistence = TRUE AND colour = 'red'"
    assert chosen_by(Criteria(where=expression), seen) == seen[:1]
    assert is_true(expression, seen[0], None)


def test_a_property_whose_name_a_message_gives_is_one_of_the_application() -> None:
    """`property()` reads no system property, whatever its name; `sys.` does [wire 10.9]."""
    annotations = Described(Ulong(0x72), {Symbol("x-opt-partition-key"): "red"})
    named = Described(Ulong(0x74), {"colour": "sys.PartitionKey"})
    painted = Described(Ulong(0x74), {"colour": "paint", "paint": "red"})
    seen = [
        Seen(0, 1, encode(annotations) + encode(named), None),
        Seen(0, 2, encode(named), None),
        Seen(0, 3, encode(painted), None),
    ]
    assert chosen_by(Criteria(where="P (colour) = 'red'"), seen) == seen[2:]
    assert chosen_by(Criteria(where="sys.partitionkey = 'red'"), seen) == seen[:1]
