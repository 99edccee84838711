"""Rows that are encoded together, in C where that was built, equal those that are encoded one by one in Python."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emubus.broker.message.delivered import IS_NATIVE, DeliveryEncoder
from emubus.broker.message.message import parse_sent
from emubus.broker.partition.records import Record

from .driving import encoded

NOW = 1_800_000_000_000
I64 = st.integers(-(1 << 63), (1 << 63) - 1)
TOKEN = st.binary(min_size=16, max_size=16)
PLAIN = parse_sent(encoded("body", id="one", annotations={"mine": "value"})).stored(NOW, None)
WITH_DELIVERY_ANNOTATIONS = parse_sent(encoded("body", instructions={"mine": 1})).stored(NOW, 1)
ENCODERS = st.builds(
    DeliveryEncoder,
    locked_until_at=I64 | st.none(),
    state=st.integers(0, 2) | st.none(),
    partition_id=st.integers(0, 15) | st.none(),
    with_lock_token=st.booleans(),
    deleted=st.booleans(),
    with_origins=st.booleans(),
)
ROWS = st.builds(
    lambda *fields: Record(*fields).pack(),
    st.sampled_from([PLAIN, PLAIN, PLAIN, WITH_DELIVERY_ANNOTATIONS]),
    I64,
    st.integers(0, 1 << 62),
    st.sampled_from([-1, 0, 1 << 62]),
    st.integers(0, (1 << 32) - 1),
    st.sampled_from([0, 0, 0, 1]),
    st.sampled_from(["", "", "", "queue"]),
    st.integers(0, 15),
    st.sampled_from([False, False, False, True]),
)


def alike(encoder: DeliveryEncoder, numbered: list[tuple[int, bytes]], tokens: list[bytes]) -> None:
    """Both ways give the same, or fail alike."""
    try:
        expected = encoder.encode_each(numbered, tokens)
    except (struct.error, ValueError) as error:
        with pytest.raises(type(error)):
            encoder.encode_rows(numbered, tokens)
    else:
        assert encoder.encode_rows(numbered, tokens) == expected


@given(ENCODERS, st.lists(st.tuples(I64, ROWS, TOKEN), max_size=3))
def test_rows_encoded_together_are_those_encoded_one_by_one(
    encoder: DeliveryEncoder, items: list[tuple[int, bytes, bytes]]
) -> None:
    alike(encoder, [(number, row) for number, row, _ in items], [token for _, _, token in items])


@given(ENCODERS, ROWS, TOKEN, st.integers(0, 60), st.binary(max_size=12))
def test_damaged_rows_are_read_alike(
    encoder: DeliveryEncoder, row: bytes, token: bytes, at: int, instead: bytes
) -> None:
    alike(encoder, [(1, row[:at] + instead)], [token])
    alike(encoder, [(1, row[:at] + instead + row[at + len(instead) :])], [token])


@pytest.mark.parametrize("with_origins", [False, True])
def test_messages_of_queues_and_topics_are_encoded_together(
    monkeypatch: pytest.MonkeyPatch, with_origins: bool
) -> None:
    encoder = DeliveryEncoder(
        locked_until_at=NOW, state=None, partition_id=3, with_lock_token=True, with_origins=with_origins
    )
    rows = [(number, Record(PLAIN, NOW, 0, number).pack()) for number in range(3)]
    tokens = [bytes([number] * 16) for number in range(3)]
    expected = encoder.encode_each(rows, tokens)
    one_by_one: list[object] = []

    def encode_each(*arguments: object) -> list[bytes]:
        one_by_one.append(arguments)
        return expected

    monkeypatch.setattr(DeliveryEncoder, "encode_each", encode_each)
    assert encoder.encode_rows(rows, tokens) == expected
    assert bool(one_by_one) is not IS_NATIVE
