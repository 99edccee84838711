"""The sender's delivery annotations and header, from the sender to the receiver; what the broker adds to them."""

from __future__ import annotations

import pytest

from emubus.broker.errors import BrokerError, Condition
from emubus.broker.message.message import parse_message
from emubus.broker.message.stored import (
    parse_stored,
    with_application_properties,
)
from emubus.codec.types import Symbol, Ubyte, Uint

from .stored_fields import application_properties, properties_fields
from .test_message import (
    ANNOTATIONS,
    BARE,
    DATA,
    DELIVERY,
    ENQUEUED_AT,
    HEADER,
    PLAIN_HEADER,
    STAMPS,
    TAG,
    TOKEN,
    TTL_MS,
    annotate,
    deliver,
    keep,
    section,
    sections,
)

OWN: dict[object, object] = {Symbol("x-opt-mine"): "value", Symbol("n"): 5}
SENT = section(DELIVERY, OWN) + annotate({"a": 1}) + BARE
TOKEN_ENTRY: dict[object, object] = {Symbol("x-opt-lock-token"): TOKEN}


def test_a_sender_s_delivery_annotations_are_given_back_beside_the_lock_token() -> None:
    stored = keep(SENT)
    assert sections(deliver(stored, lock_token=TAG))[:3] == [
        (HEADER, PLAIN_HEADER),
        (DELIVERY, {**OWN, **TOKEN_ENTRY}),
        (ANNOTATIONS, {**STAMPS, Symbol("a"): 1}),
    ]
    assert deliver(stored, lock_token=TAG).endswith(BARE)


@pytest.mark.parametrize("deleted", [False, True])
def test_who_only_looks_or_receives_and_deletes_gets_them_without_a_lock_token(deleted: bool) -> None:
    assert sections(deliver(keep(SENT), deleted=deleted))[1] == (DELIVERY, OWN)


def test_a_message_without_delivery_annotations_has_an_empty_map_of_them_when_it_is_received_and_deleted() -> None:
    assert sections(deliver(keep(BARE), deleted=True))[:3] == [
        (HEADER, PLAIN_HEADER),
        (DELIVERY, {}),
        (ANNOTATIONS, STAMPS),
    ]
    assert [code for code, _ in sections(deliver(keep(BARE)))][:2] == [HEADER, ANNOTATIONS]


def test_the_lock_token_of_an_earlier_delivery_is_dropped_from_what_is_sent_again() -> None:
    again = deliver(keep(SENT), lock_token=bytes(16))
    assert sections(deliver(keep(again), lock_token=TAG))[1] == (DELIVERY, {**OWN, **TOKEN_ENTRY})
    only_token = deliver(keep(BARE), lock_token=bytes(16))
    assert keep(only_token) == keep(BARE)


def test_delivery_annotations_behind_the_body_are_given_back_in_their_place() -> None:
    delivered = deliver(keep(annotate({"a": 1}) + BARE + section(DELIVERY, OWN)))
    assert delivered == deliver(keep(SENT))


def test_many_delivery_annotations_are_given_back() -> None:
    own: dict[object, object] = {Symbol(f"key-{number}"): "x" * 200 for number in range(300)}
    stored = keep(section(DELIVERY, own) + BARE)
    assert sections(deliver(stored, lock_token=TAG))[1] == (DELIVERY, {**own, **TOKEN_ENTRY})


@pytest.mark.parametrize("ttl_ms", [None, TTL_MS])
def test_delivery_annotations_stay_when_a_message_moves_on_or_changes(ttl_ms: int | None) -> None:
    stored = keep(SENT, ttl_ms)
    moved = parse_stored(stored).stored(ENQUEUED_AT, ttl_ms)
    assert deliver(moved) == deliver(stored)
    changed = with_application_properties(stored, {"DeadLetterReason": "bad"})
    assert application_properties(changed) == {"a": 1, "DeadLetterReason": "bad"}
    assert properties_fields(changed)["message-id"] == "id-1"
    assert sections(deliver(changed))[1] == (DELIVERY, OWN)


@pytest.mark.parametrize("damaged", [b"\x00\x53\x71\xc1\x02\x01\x40", b"\x00\x53\x71\xc1\x03\x02\xa1\x05"])
def test_damaged_delivery_annotations_are_refused(damaged: bytes) -> None:
    with pytest.raises(BrokerError) as refused:
        parse_message(damaged)
    assert refused.value.condition is Condition.DECODE_ERROR


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ([], [None, None, None, None, Uint(2)]),
        ([None, Ubyte(4)], [None, Ubyte(4), None, None, Uint(2)]),
        ([True, None, None, True], [True, None, None, True, Uint(2)]),
        ([False, None, Uint(9), False, Uint(7)], [False, None, None, False, Uint(2)]),
    ],
)
def test_header_fields_are_as_the_sender_left_them_but_for_ttl_and_delivery_count(
    header: list[object], expected: list[object]
) -> None:
    delivered = deliver(keep(section(HEADER, header) + BARE), delivery_count=2)
    assert sections(delivered)[0] == (HEADER, expected)
    assert parse_stored(keep(section(HEADER, header) + BARE)).durable is bool(expected[0])


def test_what_an_older_release_has_stored_is_delivered() -> None:
    header = b"\x00\x53\x70\xc0\x0a\x05\x42\x40\x40\x42"  # durable and first-acquirer were false there
    entries = b"\xa3\x01a\x54\x01"
    stored = b"\x01" + bytes((len(header),)) + (2).to_bytes(4, "big") + len(entries).to_bytes(4, "big")
    stored += header + entries + BARE
    expected = [
        (HEADER, [False, None, None, False, Uint(0)]),
        (DELIVERY, TOKEN_ENTRY),
        (ANNOTATIONS, {**STAMPS, Symbol("a"): 1}),
    ]
    assert sections(deliver(stored, lock_token=TAG))[:3] == expected
    moved = parse_stored(stored).stored(ENQUEUED_AT, None)
    assert moved == stored
    assert application_properties(with_application_properties(stored, {"b": 2})) == {"a": 1, "b": 2}


@pytest.mark.parametrize("code", [HEADER, DELIVERY, ANNOTATIONS, 0x73, 0x74, DATA, 0x76, 0x78])
def test_a_section_that_is_null_is_none(code: int) -> None:
    null = b"\x00\x53" + bytes((code, 0x40))
    body = section(0x77, "text")
    assert deliver(keep(null + body)) == deliver(keep(body))
