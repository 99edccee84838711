"""Which messages one answer to a receiver has: up to its limits, in order, each once."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emubus.broker.address import SubQueue
from emubus.broker.api import Abandon, Delivery, ReceiveMode, Release
from emubus.broker.ids import TOKEN_BYTES, new_lock_tokens, partition_index_of_token, positions_by_partition
from emubus.broker.message.message import parse_message
from emubus.broker.model.descriptions import QueueDescription
from emubus.broker.partition import receive
from emubus.broker.partition.contract import Received, SessionGrant
from emubus.broker.partition.requests import AcceptSession, ReceiveFromSession, Request, Settle

from .acts import nothing
from .driving import Driver, Place, decoded, encoded, send_whole
from .tearing import Cell, Fate

NOW = 1_700_000_000_000
MODES = [ReceiveMode.PEEK_LOCK, ReceiveMode.RECEIVE_AND_DELETE]


def bodies(deliveries: list[Delivery]) -> str:
    return "".join(bytes(message.body).decode()[0] for message in decoded(deliveries))


@pytest.mark.parametrize("mode", MODES, ids=["lock", "delete"])
def test_the_message_that_reaches_the_byte_limit_is_the_last_of_an_answer(
    mode: ReceiveMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receive, "RECEIVE_BYTES_MAX", 2_500)
    driver = Driver(QueueDescription("q"))
    driver.send(*(encoded(name + "x" * 999) for name in "abcdefg"))
    first = driver.take(9, ReceiveMode.PEEK_LOCK)
    assert bodies(first) == "abc"
    for delivery in first[:2]:
        assert driver.settle(delivery.token, Release()) is None
    assert bodies(driver.take(9, mode)) == "abd"
    assert bodies(driver.take(2, mode)) == "ef"
    assert bodies(driver.take(9, mode)) == "g"
    driver.check()


def test_a_returned_message_takes_its_place_among_the_others() -> None:
    driver = Driver(QueueDescription("q"))
    driver.send(*(encoded(name) for name in "abcdef"))
    deliveries = driver.take(4)
    for delivery in (deliveries[3], deliveries[1]):
        assert driver.settle(delivery.token, Abandon()) is None
    assert bodies(driver.take(3)) == "bde"
    driver.check()


@pytest.mark.parametrize("mode", MODES, ids=["lock", "delete"])
def test_messages_that_expire_while_they_are_taken_leave_room_for_the_others(mode: ReceiveMode) -> None:
    driver = Driver(QueueDescription("q", dead_letter_on_expiration=True))
    driver.send(*(encoded(name, ttl=1 if name in "bce" else 9) for name in "abcdefg"))
    driver.now += 1_000
    assert bodies(driver.take(3, mode)) == "adf"
    assert bodies(driver.take(9, sub_queue=SubQueue.DEAD_LETTER)) == "bce"
    driver.check()


@pytest.mark.parametrize("mode", MODES, ids=["lock", "delete"])
def test_a_session_gets_a_message_once_that_returns_after_a_refused_batch(mode: ReceiveMode) -> None:
    """Its number was read ahead while it was locked, and is among the returned ones as well."""
    place = Place(QueueDescription("q", requires_session=True))
    cell = Cell()

    def run(*requests: Request) -> None:
        cell.run(NOW, *((place, request) for request in requests))

    run(send_whole([parse_message(encoded(name, group_id="s")) for name in "abc"], nothing))
    accepted: list[Received[SessionGrant]] = []
    run(AcceptSession("s", nothing, nothing, nothing, accepted.append))
    (grant,) = accepted[0].deliveries

    def take(count: int, mode: ReceiveMode) -> list[Delivery]:
        answers: list[Received[Any]] = []
        run(ReceiveFromSession(grant.grant, count, mode, answers.append))
        return answers[0].deliveries

    first, second, _ = take(3, ReceiveMode.PEEK_LOCK)
    cell.store.fate = Fate.REFUSED
    run(send_whole([parse_message(encoded("d", group_id="s"))], nothing))
    cell.store.fate = Fate.STORED
    run(Settle((first.token,), (), Release(), None))
    assert bodies(take(1, ReceiveMode.PEEK_LOCK)) == "a"
    run(Settle((second.token,), (), Release(), None))
    assert bodies(take(9, mode)) == "b"
    cell.check()


def test_lock_tokens_of_one_answer_differ_and_name_their_partition() -> None:
    tokens = new_lock_tokens(0x0102, 3_000)  # more random bytes than are read ahead
    assert len(set(tokens)) == 3_000
    assert {len(token) for token in tokens} == {TOKEN_BYTES}
    assert {partition_index_of_token(token) for token in tokens} == {0x0102}
    assert new_lock_tokens(0, 0) == []


OWN_TOKENS = st.integers(0, 2).map(lambda index: new_lock_tokens(index, 1)[0])


@given(st.lists(OWN_TOKENS, max_size=6) | st.lists(OWN_TOKENS | st.binary(max_size=TOKEN_BYTES + 2), max_size=6))
def test_the_positions_of_tokens_are_grouped_by_the_partitions_that_they_name(tokens: list[bytes]) -> None:
    expected: dict[int, list[int]] = {}
    for position, token in enumerate(tokens):
        expected.setdefault(partition_index_of_token(token), []).append(position)
    groups = positions_by_partition(tokens)
    assert {index: list(positions) for index, positions in groups.items()} == expected
