"""Messages as bytes: what the sender wrote comes out as it went in, what the broker owns is the broker's."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from emubus.broker.entities.entity import parse_delivery
from emubus.broker.errors import BrokerError, Condition, EmptyBatchError
from emubus.broker.message.bounds import STANDARD_BOUNDS
from emubus.broker.message.message import INSTANT_MS_MAX, parse_message, parse_sent, split_batch
from emubus.broker.message.stored import (
    parse_stored,
    with_application_properties,
)
from emubus.codec.decode import decode
from emubus.codec.encode import encode, encode_list, encode_map
from emubus.codec.sections import CONSTRUCTORS_MAX, data_sections_max
from emubus.codec.types import Described, Int, Long, Short, Symbol, Timestamp, Ubyte, Uint, Ulong

from .driving import delivery_bytes
from .stored_fields import application_properties, properties_fields

ENQUEUED_AT = 1767225600000
TTL_MS = 60_000
TOKEN = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
TAG = bytes.fromhex("33221100554477668899aabbccddeeff")

HEADER, DELIVERY, ANNOTATIONS, PROPERTIES, APPLICATION, DATA, SEQUENCE, VALUE, FOOTER = range(0x70, 0x79)
NAMES = {
    HEADER: "amqp:header:list",
    DELIVERY: "amqp:delivery-annotations:map",
    ANNOTATIONS: "amqp:message-annotations:map",
    PROPERTIES: "amqp:properties:list",
    APPLICATION: "amqp:application-properties:map",
    DATA: "amqp:data:binary",
    SEQUENCE: "amqp:amqp-sequence:list",
    VALUE: "amqp:amqp-value:*",
    FOOTER: "amqp:footer:map",
}


def section(code: int, value: object) -> bytes:
    return b"\x00\x53" + bytes((code,)) + encode(value)


def wide(kind: int, items: Sequence[object]) -> bytes:
    """A list32 (0xd0) or map32 (0xd1) even where a short form would do."""
    content = b"".join(map(encode, items))
    return bytes((kind,)) + (len(content) + 4).to_bytes(4, "big") + len(items).to_bytes(4, "big") + content


def annotate(entries: Mapping[str, object]) -> bytes:
    return section(ANNOTATIONS, {Symbol(key): value for key, value in entries.items()})


def sections(data: bytes) -> list[tuple[int, object]]:
    """All sections of an encoded message, decoded: (code, value)."""
    found: list[tuple[int, object]] = []
    pos = 0
    while pos < len(data):
        described, pos = decode(data, pos)
        assert isinstance(described, Described)
        assert isinstance(described.descriptor, Ulong)
        found.append((int(described.descriptor), described.value))
    return found


def deliver(stored: bytes, **changes: Any) -> bytes:
    arguments: dict[str, Any] = {
        "sequence_number": 17,
        "enqueued_at": ENQUEUED_AT,
        "delivery_count": 0,
        "locked_until_at": None,
        "state": None,
        "partition_id": None,
        "enqueue_sequence_number": None,
    }
    return delivery_bytes(stored, **{**arguments, **changes})


def keep(data: bytes, ttl_ms: int | None = None) -> bytes:
    return parse_message(data).stored(ENQUEUED_AT, ttl_ms)


def refusal(data: bytes) -> Condition:
    with pytest.raises(BrokerError) as refused:
        parse_message(data)
    return refused.value.condition


STAMPS: dict[object, object] = {
    Symbol("x-opt-sequence-number"): Long(17),
    Symbol("x-opt-enqueued-time"): Timestamp(ENQUEUED_AT),
}
PLAIN_HEADER = [None, None, None, None, Uint(0)]
BARE = section(PROPERTIES, ["id-1"]) + section(APPLICATION, {"a": 1}) + section(DATA, b"body")

# ---- what arrives


def test_a_message_tells_what_the_broker_needs() -> None:
    data = (
        section(HEADER, [True, Ubyte(7), Uint(5000)])
        + annotate(
            {
                "x-opt-partition-key": "pk",
                "x-opt-via-partition-key": "via",
                "x-opt-scheduled-enqueue-time": Timestamp(99),
            }
        )
        + section(PROPERTIES, ["id-1", *[None] * 9, "session-1"])
        + section(DATA, b"body")
    )
    message = parse_message(data)
    assert message.size_bytes == len(data)
    assert (message.durable, message.priority, message.ttl_ms) == (True, 7, 5000)
    assert (message.partition_key, message.via_partition_key) == ("pk", "via")
    assert message.scheduled_enqueue_at == 99
    assert (message.message_id, message.session_id) == ("id-1", "session-1")
    assert (message.message_id, message.session_id) == ("id-1", "session-1")


@pytest.mark.parametrize("data", [b"", section(DATA, b""), section(HEADER, []), section(PROPERTIES, [])])
def test_a_message_may_leave_everything_out(data: bytes) -> None:
    message = parse_message(data)
    assert (message.durable, message.priority, message.ttl_ms) == (False, None, None)
    assert (message.partition_key, message.via_partition_key, message.scheduled_enqueue_at) == (None,) * 3
    assert (message.message_id, message.session_id) == (None, None)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("é" * 128, "é" * 128),
        (Ulong(2**63), "9223372036854775808"),
        (TOKEN, "00112233-4455-6677-8899-aabbccddeeff"),
        (b"\x00\xff", "00ff"),
        (None, None),
    ],
)
def test_a_message_id_of_any_type_has_a_canonical_text(value: object, text: str | None) -> None:
    assert parse_message(section(PROPERTIES, [value])).message_id == text


@pytest.mark.parametrize("value", [Uint(1), True, []])
def test_a_message_id_of_another_type_is_refused(value: object) -> None:
    data = section(PROPERTIES, [value])
    with pytest.raises(BrokerError) as refused:
        parse_sent(data)
    assert refused.value.condition is Condition.INVALID_FIELD
    assert parse_message(data).message_id is None  # in the row of an older release


@pytest.mark.parametrize("before", [b"", section(HEADER, []), section(DELIVERY, {}), annotate({"a": 1})])
@pytest.mark.parametrize("fields", [None, [], [None], [None, b"user", "to"], [None, *["x" * 40] * 12]])
@pytest.mark.parametrize("behind", [b"", section(APPLICATION, {"a": 1}) + section(DATA, b"body"), section(FOOTER, {})])
def test_a_message_without_an_id_gets_one_and_stays_as_it_is(
    before: bytes, fields: list[object] | None, behind: bytes
) -> None:
    data = before + (section(PROPERTIES, fields) if fields is not None else b"") + behind
    first, second = parse_sent(data), parse_sent(data)
    assert (first.message_id, first.size_bytes) == (None, len(data))
    given = [parse_stored(each.stored(ENQUEUED_AT, None)).message_id for each in (first, second)]
    assert [re.fullmatch("[0-9a-f]{32}", str(each)) is not None for each in given] == [True, True]
    assert given[0] != given[1]
    with_id = section(PROPERTIES, [given[0], *(fields or [None])[1:]])
    assert first.stored(ENQUEUED_AT, None) == parse_message(before + with_id + behind).stored(ENQUEUED_AT, None)
    expiring = first.stored(ENQUEUED_AT, TTL_MS)
    assert expiring == parse_message(before + with_id + behind).stored(ENQUEUED_AT, TTL_MS)
    assert parse_stored(expiring).message_id == given[0]


def test_a_message_with_an_id_stays_as_it_is() -> None:
    data = section(HEADER, []) + BARE
    message = parse_sent(data)
    assert message.message_id == "id-1"
    assert message.stored(ENQUEUED_AT, None) == parse_message(data).stored(ENQUEUED_AT, None)


@pytest.mark.parametrize("name", ["x-opt-partition-key", "x-opt-via-partition-key"])
def test_a_partition_key_that_is_no_string_is_refused(name: str) -> None:
    assert refusal(annotate({name: 5})) is Condition.INVALID_FIELD
    assert parse_message(annotate({name: None})).partition_key is None


def test_a_scheduled_time_that_is_no_timestamp_is_refused() -> None:
    assert refusal(annotate({"x-opt-scheduled-enqueue-time": 5})) is Condition.INVALID_FIELD


def test_an_id_that_is_not_utf8_is_a_decode_error() -> None:
    data = b"\x00\x53\x73\xc0\x04\x01\xa1\x01\xff"
    with pytest.raises(BrokerError) as refused:
        parse_sent(data)
    assert refused.value.condition is Condition.DECODE_ERROR
    assert parse_message(data).message_id is None  # in the row of an older release


@pytest.mark.parametrize(
    ("read", "problem"),
    [
        (lambda: parse_message(b"\x00\x53\x99\x40"), "at offset 1: 153 describes no section of a message"),
        (lambda: parse_message(b"\x00\x53\x73\xc0"), "at offset 4: the message is cut off"),
        (lambda: parse_sent(b"\x00\x53\x75\xa0\x09x"), "at offset 6: the last section should end at 14"),
        (lambda: split_batch(b"\x00\x53\x75\xb0\x00"), "at offset 3: a value ends at 8, the data at 5"),
        (
            lambda: parse_message(section(APPLICATION, {"a": True})[:-1] + b"\x99").application_properties(),
            "at offset 9: no type has the constructor 0x99",
        ),
    ],
)
def test_a_refusal_says_what_is_malformed_and_where(read: Callable[[], object], problem: str) -> None:
    with pytest.raises(BrokerError) as refused:
        read()
    assert refused.value.condition is Condition.DECODE_ERROR
    assert refused.value.description == f"malformed AMQP data {problem}"


# ---- the bytes of the sender

SECTIONS: dict[int, bytes] = {
    HEADER: section(HEADER, [True, None, Uint(9)]),
    DELIVERY: section(DELIVERY, {Symbol("d"): 1}),
    ANNOTATIONS: annotate({"x-opt-partition-key": "k", "other": TOKEN}),
    PROPERTIES: section(PROPERTIES, [TOKEN, b"user", "to"]),
    APPLICATION: section(APPLICATION, {"a": Short(1), "b": TOKEN}),
    DATA: section(DATA, b"x" * 300) + section(DATA, b""),
    FOOTER: section(FOOTER, {Symbol("f"): 1}),
}
ORDERS = [
    [HEADER, DELIVERY, ANNOTATIONS, PROPERTIES, APPLICATION, DATA, FOOTER],
    [HEADER, ANNOTATIONS, PROPERTIES, APPLICATION, DATA, DELIVERY, FOOTER],  # as Python writes it
    [FOOTER, DATA, APPLICATION, PROPERTIES, ANNOTATIONS, DELIVERY, HEADER],
    [PROPERTIES, DATA, HEADER, FOOTER, ANNOTATIONS, APPLICATION, DELIVERY],
]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("descriptor", ["0x53", "0x80", "symbol"])
def test_sections_in_any_order_and_form_are_delivered_in_order(order: list[int], descriptor: str) -> None:
    forms: dict[str, Callable[[int], bytes]] = {
        "0x53": lambda code: b"\x00\x53" + bytes((code,)),
        "0x80": lambda code: b"\x00\x80" + code.to_bytes(8, "big"),
        "symbol": lambda code: b"\x00" + encode(Symbol(NAMES[code])),
    }
    data = b"".join(SECTIONS[code].replace(b"\x00\x53" + bytes((code,)), forms[descriptor](code)) for code in order)
    message = parse_message(data)
    assert (message.ttl_ms, message.partition_key, message.size_bytes) == (9, "k", len(data))
    assert message.message_id == str(TOKEN)
    delivered = deliver(message.stored(ENQUEUED_AT, None))
    bare = b"".join(SECTIONS[code] for code in (PROPERTIES, APPLICATION, DATA, FOOTER))
    assert delivered.endswith(bare)
    assert sections(delivered.removesuffix(bare)) == [
        (HEADER, [True, None, None, None, Uint(0)]),
        (DELIVERY, {Symbol("d"): 1}),
        (ANNOTATIONS, {**STAMPS, Symbol("x-opt-partition-key"): "k", Symbol("other"): TOKEN}),
    ]


BODIES = {
    "none": b"",
    "one data": section(DATA, b"1"),
    "empty data": section(DATA, b""),
    "three data": section(DATA, b"1") + section(DATA, b"2" * 256) + section(DATA, b""),
    "one sequence": section(SEQUENCE, [1, "2"]),
    "two sequences": section(SEQUENCE, []) + section(SEQUENCE, [[1]]),
    "null": section(VALUE, None),
    "string": section(VALUE, "text"),
    "uint zero": section(VALUE, Uint(0)),
    "map": section(VALUE, {"a": [1, {"b": None}]}),
    "described": section(VALUE, Described(Symbol("x:y"), [1])),
    "empty data and value": section(DATA, b"") + section(VALUE, "text"),
    "empty data and sequence": section(DATA, b"") * 2 + section(SEQUENCE, [1]),
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("end", [b"", SECTIONS[FOOTER]], ids=["", "footer"])
@pytest.mark.parametrize("start", [b"", BARE.removesuffix(section(DATA, b"body"))], ids=["", "properties"])
def test_a_body_of_any_kind_keeps_its_bytes(start: bytes, body: bytes, end: bytes) -> None:
    bare = start + body + end
    assert deliver(keep(bare)).endswith(bare)
    assert sections(deliver(keep(bare)).removesuffix(bare)) == [(HEADER, PLAIN_HEADER), (ANNOTATIONS, STAMPS)]


def test_a_message_whose_body_is_an_encoded_message_stays_one_message() -> None:
    inner = SECTIONS[PROPERTIES] + section(DATA, b"inner")
    data = section(PROPERTIES, ["outer"]) + section(DATA, inner)
    assert parse_message(data).message_id == "outer"
    assert deliver(keep(data)).endswith(data)


DAMAGED = {
    "a second header": SECTIONS[HEADER] * 2,
    "a second footer": SECTIONS[FOOTER] * 2,
    "a second value": BODIES["null"] * 2,
    "properties twice, apart": SECTIONS[PROPERTIES] + BODIES["one data"] + SECTIONS[PROPERTIES],
    "data and value": BODIES["one data"] + BODIES["null"],
    "data and sequence": BODIES["one data"] + BODIES["one sequence"],
    "no section": section(0x24, []),
    "no descriptor": b"\x40",
    "a map as header": section(HEADER, {}),
    "a string as data": section(DATA, "x"),
    "a wrong type in the header": section(HEADER, ["yes"]),
    "a wrong ttl in the header": section(HEADER, [True, None, -5]),
    "cut off in a descriptor": b"\x00\x53",
    "cut off behind a descriptor": b"\x00\x53\x75",
    "cut off in a size": b"\x00\x53\x75\xb0\x00",
    "cut off in a body": b"\x00\x53\x75\xa0\x05abc",
    "a count beyond the section": b"\x00\x53\x73\xc0\x02\x02\x40" + BODIES["one data"],
    "a count below the section": b"\x00\x53\x73\xc0\x03\x01\x40\x40",
    "a giant count": b"\x00\x53\x73\xd0\x00\x00\x00\x05\xff\xff\xff\xff\x40",
    "a map of one": b"\x00\x53\x74\xc1\x02\x01\x40",
    "annotations of one": b"\x00\x53\x72\xc1\x02\x01\x40",
    "annotations beyond the section": b"\x00\x53\x72\xc1\x03\x02\xa1\x05",
    "a size that leaves no room for the count": b"\x00\x53\x73\xc0\x00",
}


@pytest.mark.parametrize("data", DAMAGED.values(), ids=DAMAGED)
def test_what_is_no_message_is_refused(data: bytes) -> None:
    assert refusal(data) is Condition.DECODE_ERROR


# ---- what the broker stamps


def test_the_annotations_of_the_broker_have_the_exact_types_that_clients_cast_to() -> None:
    delivered = deliver(
        keep(BARE),
        sequence_number=10696049115006452,
        delivery_count=3,
        locked_until_at=ENQUEUED_AT + 30_000,
        state=2,
        partition_id=38,
        enqueue_sequence_number=5,
        dead_letter_source="other-queue",
        lock_token=TAG,
    )
    (_, header), (_, delivery), (_, stamped), *_ = sections(delivered)
    assert header == [None, None, None, None, Uint(3)]
    assert delivery == {Symbol("x-opt-lock-token"): TOKEN}
    expected: dict[object, object] = {
        "x-opt-sequence-number": Long(10696049115006452),
        "x-opt-enqueued-time": Timestamp(ENQUEUED_AT),
        "x-opt-locked-until": Timestamp(ENQUEUED_AT + 30_000),
        "x-opt-enqueue-sequence-number": Long(5),
        "x-opt-message-state": Int(2),
        "x-opt-partition-id": Short(38),
        "x-opt-deadletter-source": "other-queue",
    }
    assert stamped == expected
    assert isinstance(stamped, dict)
    assert [type(value) for value in stamped.values()] == [type(value) for value in expected.values()]
    assert {type(key) for key in stamped} == {Symbol}
    assert delivered.endswith(BARE)


def test_a_sequence_number_takes_eight_bytes_and_the_delivery_count_is_explicit() -> None:
    delivered = deliver(keep(BARE), sequence_number=1)
    assert b"x-opt-sequence-number\x81" + (1).to_bytes(8, "big") in delivered
    assert delivered.startswith(b"\x00\x53\x70\xc0\x0a\x05\x40\x40\x40\x40\x70\x00\x00\x00\x00\x00\x53\x72\xd1")


OWNED = [
    "x-opt-sequence-number",
    "x-opt-enqueued-time",
    "x-opt-locked-until",
    "x-opt-message-state",
    "x-opt-lock-token",
    "x-opt-enqueue-sequence-number",
    "x-opt-offset",
    "x-opt-partition-id",
    "x-opt-deadletter-source",
]


@pytest.mark.parametrize("form", [b"\xa3", b"\xb3", b"\xa1", b"\xb1"])
def test_annotations_of_the_broker_on_a_message_sent_again_are_replaced(form: bytes) -> None:
    def entry(key: str, value: object) -> bytes:
        return form + len(key).to_bytes(1 if form < b"\xb0" else 4, "big") + key.encode() + encode(value)

    mine = entry("x-opt-partition-key", "k") + entry("mine", {"a": [Ubyte(1)]}) + encode(Ulong(7)) + encode("n")
    items = b"".join(entry(key, 99) for key in OWNED[:4]) + mine + b"".join(entry(key, 99) for key in OWNED[4:])
    size = (len(items) + 4).to_bytes(4, "big") + (2 * len(OWNED) + 6).to_bytes(4, "big")
    stored = keep(b"\x00\x53\x72\xd1" + size + items)
    assert parse_stored(stored).partition_key == "k"
    assert deliver(stored).endswith(mine)
    assert sections(deliver(stored)) == [
        (HEADER, PLAIN_HEADER),
        (ANNOTATIONS, {**STAMPS, "x-opt-partition-key": "k", "mine": {"a": [1]}, Ulong(7): "n"}),
    ]


def test_the_sender_has_no_say_in_the_delivery_count() -> None:
    delivered = deliver(keep(section(HEADER, [True, Ubyte(4), None, True, Uint(9)])), delivery_count=1)
    assert sections(delivered)[0] == (HEADER, [True, Ubyte(4), None, True, Uint(1)])


def test_a_large_header_is_read_like_a_small_one() -> None:
    wide_header = b"\x00\x53\x70" + wide(0xD0, [True, None, Uint(700), None, None, "x" * 100])
    assert parse_message(wide_header).ttl_ms == 700


# ---- expiry

FIELDS: list[object] = [
    TOKEN, b"u", "to", "subject", "reply", Ulong(4), Symbol("text/plain"), Symbol("gzip"),
    Timestamp(1), Timestamp(2), "session", Uint(3), "reply-session",
]  # fmt: skip
PROPERTY_LISTS = {
    "list0": b"\x45",
    "one field": encode_list(FIELDS[:1]),
    "8 fields": encode_list(FIELDS[:8]),
    "9 fields": encode_list(FIELDS[:9]),
    "10 fields": encode_list(FIELDS[:10]),
    "13 fields": encode_list(FIELDS),
    "13 fields, no times": encode_list([*FIELDS[:8], None, None, *FIELDS[10:]]),
    "13 fields, no creation time": encode_list([*FIELDS[:9], None, *FIELDS[10:]]),
    "list32": wide(0xD0, FIELDS),
    "short list32": wide(0xD0, FIELDS[:3]),
    "just below list8": encode_list(["x" * 100, None, "y" * 134]),
    "list8 grows": encode_list(["x" * 100, None, "y" * 146]),
    "large": encode_list(["x" * 100, None, "y" * 5000]),
    "more fields than there are": encode_list([*FIELDS, "extra"]),
    "300 fields": wide(0xD0, [None] * 300),
}


@pytest.mark.parametrize("properties", PROPERTY_LISTS.values(), ids=PROPERTY_LISTS)
@pytest.mark.parametrize("after", [b"", SECTIONS[APPLICATION] + BODIES["three data"]], ids=["", "more"])
def test_an_expiry_goes_into_the_properties_and_leaves_the_other_fields_alone(properties: bytes, after: bytes) -> None:
    data = SECTIONS[HEADER] + SECTIONS[ANNOTATIONS] + b"\x00\x53\x73" + properties + after
    stored = keep(data, TTL_MS)
    delivered = deliver(stored)
    assert delivered.endswith(after)
    fields = decode(properties)[0]
    assert isinstance(fields, list)
    expected = [*fields, *[None] * max(0, 10 - len(fields))]
    created_at = ENQUEUED_AT if expected[9] is None else expected[9]
    assert isinstance(created_at, int)
    expected[8:10] = Timestamp(created_at + TTL_MS), Timestamp(created_at)
    assert sections(delivered.removesuffix(after))[2:] == [(PROPERTIES, expected)]
    assert sections(delivered)[0] == (HEADER, [True, None, Uint(60_000), None, Uint(0)])
    assert parse_stored(stored).stored(ENQUEUED_AT, TTL_MS) == stored


@pytest.mark.parametrize("data", [b"", SECTIONS[APPLICATION], BODIES["null"], SECTIONS[HEADER]])
def test_an_expiry_makes_properties_where_there_are_none(data: bytes) -> None:
    message = parse_message(data)
    stored = message.stored(ENQUEUED_AT, TTL_MS)
    assert properties_fields(stored) == {
        "absolute-expiry-time": Timestamp(ENQUEUED_AT + TTL_MS),
        "creation-time": Timestamp(ENQUEUED_AT),
    }
    assert [code for code, _ in sections(deliver(stored))] == [
        HEADER,
        ANNOTATIONS,
        PROPERTIES,
        *[code for code, _ in sections(data) if code != HEADER],
    ]


def test_fields_that_are_not_touched_keep_the_bytes_of_their_encoding() -> None:
    odd = b"\xb1\x00\x00\x00\x01i" + b"\x40" * 9 + b"\x80" + bytes(8)  # a str32 and an ulong of 8 zero bytes
    data = b"\x00\x53\x73\xc0" + bytes((len(odd) + 1, 11)) + odd
    times = b"\x83" + (ENQUEUED_AT + TTL_MS).to_bytes(8, "big") + b"\x83" + ENQUEUED_AT.to_bytes(8, "big")
    assert odd[:6] + b"\x40" * 7 + times + odd[15:] in keep(data, TTL_MS)


@pytest.mark.parametrize(("ttl_ms", "in_header"), [(2**40, 2**32 - 1), (0, 0), (1, 1)])
def test_the_ttl_of_the_header_is_what_it_can_hold_and_the_properties_say_it_exactly(
    ttl_ms: int, in_header: int
) -> None:
    assert sections(deliver(keep(BARE, ttl_ms)))[0] == (HEADER, [None, None, Uint(in_header), None, Uint(0)])
    fields = properties_fields(keep(BARE, ttl_ms))
    assert fields["absolute-expiry-time"] == Timestamp(ENQUEUED_AT + ttl_ms)
    assert parse_stored(keep(BARE, ttl_ms)).ttl_ms == ttl_ms


def sent_with(header_ttl_ms: int, expiry: object, creation: object) -> bytes:
    header = section(HEADER, [None, None, Uint(header_ttl_ms)])
    return header + section(PROPERTIES, ["id", *[None] * 7, expiry, creation]) + section(DATA, b"x")


@pytest.mark.parametrize("ttl_ms", [0, 1, 60_000, 2**32 - 2, 2**32 - 1, 2**32, 100 * 86_400_000, 9_000_000_000_000])
def test_a_time_to_live_comes_back_as_the_sdk_wrote_it_however_often_the_message_moves(ttl_ms: int) -> None:
    """.NET MessageLiveTests.CanRoundTripAbsoluteExpiryCreationTime; azure-sdk-for-js 28121, azure-sdk-for-net 40915."""
    expiry, creation = Timestamp(ENQUEUED_AT - 40 + ttl_ms), Timestamp(ENQUEUED_AT - 40)
    message = parse_message(sent_with(min(ttl_ms, 2**32 - 1), expiry, creation))
    for hop in range(3):  # scheduled, active, forwarded
        assert message.ttl_ms == ttl_ms
        stored = message.stored(ENQUEUED_AT + 700 * hop, message.ttl_ms)
        fields = properties_fields(stored)
        assert (fields["absolute-expiry-time"], fields["creation-time"]) == (expiry, creation)
        message = parse_stored(stored)


def test_a_shorter_default_of_the_entity_moves_the_expiry_and_keeps_the_creation() -> None:
    message = parse_message(sent_with(60_000, Timestamp(ENQUEUED_AT + 59_000), Timestamp(ENQUEUED_AT - 1_000)))
    stored = message.stored(ENQUEUED_AT, 5_000)
    fields = properties_fields(stored)
    assert (fields["absolute-expiry-time"], fields["creation-time"]) == (ENQUEUED_AT + 4_000, ENQUEUED_AT - 1_000)
    assert parse_stored(stored).ttl_ms == 5_000


@pytest.mark.parametrize(
    ("expiry", "creation", "ttl_ms"),
    [
        (None, None, 7),
        (Timestamp(9), None, 7),
        (None, Timestamp(9), 7),
        (Timestamp(8), Timestamp(9), 7),
        (Ulong(50), Timestamp(9), 7),
        (Timestamp(50), "9", 7),
        (Timestamp(50), Timestamp(9), 41),
        (Timestamp(2**63 - 1), Timestamp(-(2**63)), INSTANT_MS_MAX),
    ],
)
def test_a_pair_that_says_no_time_to_live_leaves_it_to_the_header(
    expiry: object, creation: object, ttl_ms: int
) -> None:
    message = parse_message(sent_with(7, expiry, creation))
    assert message.ttl_ms == ttl_ms
    assert parse_stored(message.stored(ENQUEUED_AT, ttl_ms)).durable is False


def test_a_message_that_never_expires_is_delivered_without_ttl_and_with_its_own_properties() -> None:
    data = SECTIONS[HEADER] + section(PROPERTIES, FIELDS)
    delivered = deliver(keep(data))
    assert sections(delivered)[0] == (HEADER, [True, None, None, None, Uint(0)])
    assert delivered.endswith(section(PROPERTIES, FIELDS))


# ---- application properties

REASONS = {"DeadLetterReason": "TTLExpiredException", "DeadLetterErrorDescription": "The message expired."}


@pytest.mark.parametrize("start", [b"", SECTIONS[PROPERTIES]], ids=["", "properties"])
@pytest.mark.parametrize("end", [b"", BODIES["three data"] + SECTIONS[FOOTER]], ids=["", "body"])
def test_application_properties_are_made_at_their_place(start: bytes, end: bytes) -> None:
    stored = with_application_properties(keep(SECTIONS[ANNOTATIONS] + start + end), REASONS)
    assert application_properties(stored) == REASONS
    assert deliver(stored).endswith(start + section(APPLICATION, REASONS) + end)
    assert application_properties(keep(start + end)) == {}


def test_application_properties_are_replaced_where_they_stand_and_new_ones_come_last() -> None:
    odd = b"\xb1\x00\x00\x00\x03odd" + b"\x80" + bytes(8)
    items = encode("a") + encode(1) + odd + encode("b") + encode(TOKEN)
    data = b"\x00\x53\x74\xc1" + bytes((len(items) + 1, 6)) + items + BODIES["one data"]
    changes = {"b": Short(2), "new": "n", "a": None}
    expected = encode("a") + b"\x40" + odd + encode("b") + encode(Short(2)) + encode("new") + encode("n")
    stored = with_application_properties(keep(data), changes)
    assert deliver(stored).endswith(b"\x00\x53\x74\xc1" + bytes((len(expected) + 1, 8)) + expected + BODIES["one data"])
    assert application_properties(stored) == {"a": None, "odd": Ulong(0), "b": Short(2), "new": "n"}


@pytest.mark.parametrize("entries", [{}, {"a": "x" * 300}, {f"key{n}": n for n in range(200)}])
def test_application_properties_of_any_size_can_be_added_to(entries: dict[str, object]) -> None:
    for encoded in (encode_map(entries), wide(0xD1, [item for pair in entries.items() for item in pair])):
        stored = with_application_properties(keep(b"\x00\x53\x74" + encoded), REASONS)
        assert application_properties(stored) == {**entries, **REASONS}


def test_a_symbol_as_name_of_a_new_application_property_is_written_as_string() -> None:
    stored = with_application_properties(keep(b""), {Symbol("k"): Symbol("v")})
    assert deliver(stored).endswith(b"\x00\x53\x74\xc1\x07\x02\xa1\x01k\xa3\x01v")


def test_a_replaced_application_property_keeps_everything_else_of_the_stored_message() -> None:
    stored = keep(b"".join(SECTIONS.values()), TTL_MS)
    changed = with_application_properties(stored, {"a": 2})
    assert changed == stored.replace(encode("a") + encode(Short(1)), encode("a") + encode(2)).replace(
        SECTIONS[APPLICATION][:6], section(APPLICATION, {"a": 2, "b": TOKEN})[:6]
    )


def test_an_application_property_without_amqp_type_is_a_type_error() -> None:
    with pytest.raises(TypeError):
        with_application_properties(keep(b""), {"a": object()})


def test_properties_are_reported_by_name() -> None:
    assert properties_fields(keep(section(PROPERTIES, FIELDS))) == {
        "message-id": TOKEN,
        "user-id": b"u",
        "to": "to",
        "subject": "subject",
        "reply-to": "reply",
        "correlation-id": Ulong(4),
        "content-type": "text/plain",
        "content-encoding": "gzip",
        "absolute-expiry-time": Timestamp(1),
        "creation-time": Timestamp(2),
        "group-id": "session",
        "group-sequence": Uint(3),
        "reply-to-group-id": "reply-session",
    }
    assert properties_fields(keep(b"")) == {}
    assert properties_fields(keep(section(PROPERTIES, [None, None, "to"]))) == {"to": "to"}


def test_a_stored_message_can_be_taken_up_again() -> None:
    stored = keep(b"".join(SECTIONS.values()), TTL_MS)
    message = parse_stored(stored)
    assert (message.ttl_ms, message.durable, message.partition_key) == (60_000, True, "k")
    assert message.message_id == str(TOKEN)
    forwarded = message.stored(ENQUEUED_AT + 5, TTL_MS + 9)
    assert properties_fields(forwarded)["absolute-expiry-time"] == Timestamp(ENQUEUED_AT + TTL_MS + 9)
    assert properties_fields(forwarded)["creation-time"] == Timestamp(ENQUEUED_AT)


# ---- batches


@pytest.mark.parametrize("count", [1, 2, 100])
def test_a_batch_is_split_into_its_messages(count: int) -> None:
    inner = [section(PROPERTIES, [f"id-{n}"]) + section(DATA, b"x" * n * 10) for n in range(count)]
    bodies = b"".join(section(DATA, data) for data in inner)
    first = SECTIONS[HEADER] + SECTIONS[ANNOTATIONS] + section(PROPERTIES, ["id-0"])
    assert split_batch(bodies) == inner
    assert split_batch(first + bodies + SECTIONS[FOOTER]) == inner
    assert split_batch(bodies + first) == inner
    assert [parse_message(data).message_id for data in split_batch(bodies)] == [f"id-{n}" for n in range(count)]


@pytest.mark.parametrize("head", [b"\x00\x53\x75", b"\x00\x80" + bytes(7) + b"\x75", b"\x00\xa3\x10amqp:data:binary"])
@pytest.mark.parametrize("binary", [b"\xa0\x01x", b"\xb0\x00\x00\x00\x01x"])
@pytest.mark.parametrize("count", [20, 6_000])
def test_the_count_of_a_batch_has_a_bound(head: bytes, binary: bytes, count: int) -> None:
    batch = (head + binary) * count
    assert split_batch(batch) == [b"x"] * count
    assert count <= data_sections_max(batch) <= 2 * count


def test_a_body_full_of_what_begins_a_binary_counts_as_one_message_in_a_whole_batch() -> None:
    batch = section(DATA, section(DATA, b"\xa0\xb0" * 5_000)) * 2
    assert data_sections_max(batch) == 2
    assert data_sections_max(batch + b"no section") == CONSTRUCTORS_MAX


def test_a_batch_has_any_number_of_messages() -> None:
    """The service enforces no count (azure-sdk-for-net 44914, CHANGELOG of 7.20.2)."""
    member = section(DATA, section(DATA, b""))
    assert len(parse_delivery(member * 10_000, STANDARD_BOUNDS, batch=True)) == 10_000


@pytest.mark.parametrize(
    "data",
    [section(DATA, "x"), b"\x00\x53\x75\xa0\x05a", b"\x40", b"\x00"],
)
def test_an_envelope_without_whole_messages_is_refused(data: bytes) -> None:
    with pytest.raises(BrokerError) as refused:
        split_batch(data)
    assert refused.value.condition is Condition.DECODE_ERROR


@pytest.mark.parametrize("data", [b"", SECTIONS[PROPERTIES], BODIES["null"]])
def test_an_envelope_without_messages_is_an_empty_batch(data: bytes) -> None:
    with pytest.raises(EmptyBatchError, match="no data section"):
        split_batch(data)
