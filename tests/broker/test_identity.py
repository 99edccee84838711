"""Which texts name one message session or partition key."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emubus.broker.api import Complete, Defer, Home, ReceiveMode, partition_for_key
from emubus.broker.clock import Clock
from emubus.broker.entities.router import Router
from emubus.broker.errors import BrokerError, Condition
from emubus.broker.identity import folded
from emubus.broker.model.descriptions import QueueDescription
from emubus.broker.partition.records import session_key, session_number

from .driving import decoded, encoded, read
from .namespace import open_broker, send
from .test_arrivals import bodies
from .test_sessions import Holder

SAME = (
    ("Order-1", "ORDER-1"),
    ("\u00c4\u00d6", "\u00e4\u00f6"),  # Ä Ö
    ("\u03a3", "\u03c2"),  # sigma and final sigma have one upper case
    ("\u01c4", "\u01c5"),  # a digraph and its form for titles
    ("\u1fbc", "\u1fb3"),  # alpha with iota: its full upper case is two letters, its simple one is one
    ("\U00010400", "\U00010428"),  # outside the first plane
)
OTHERS = (
    ("a", "\uff41"),  # full width
    ("\u00e9", "e\u0301"),  # composed and decomposed
    ("\u00df", "ss"),
    ("\u00df", "\u1e9e"),  # sharp s has no simple upper case
    ("i", "\u0131"),  # dotless
    ("I", "\u0130"),  # with a dot
    ("s", "\u017f"),  # long s
    ("k", "\u212a"),  # Kelvin
    ("a", "a "),
    ("", " "),
)


@pytest.mark.parametrize(("one", "other"), SAME)
def test_texts_that_differ_in_case_are_one(one: str, other: str) -> None:
    assert folded(one) == folded(other)
    assert session_key(7, one) == session_key(7, other)
    assert session_number(one) == session_number(other)
    assert partition_for_key(one, 16) == partition_for_key(other, 16)


@pytest.mark.parametrize(("one", "other"), OTHERS)
def test_texts_that_differ_otherwise_are_two(one: str, other: str) -> None:
    assert folded(one) != folded(other)


def test_only_letters_of_ascii_fold_to_ascii_and_folding_twice_changes_nothing() -> None:
    chars = [chr(code) for code in range(sys.maxunicode + 1) if chr(code).isalpha()]
    assert [char for char in chars if folded(char).isascii() and not char.isascii()] == []
    assert [char for char in chars if folded(folded(char)) != folded(char)] == []


@given(st.text())
def test_a_text_is_folded_char_by_char(text: str) -> None:
    assert folded(text) == "".join(map(folded, text))
    assert len(folded(text)) == len(text)


def test_partitions_of_older_data_folders_are_chosen_with_case() -> None:
    router, older = Router(16), Router(16, exact_keys=True)
    assert router.handle("ORDER-1") == router.handle("order-1") == older.handle("order-1")
    names = ["order", "Order", "oRder", "orDer", "ordEr", "ordeR"]
    assert len({router.handle(each) for each in names}) == 1
    assert len({older.handle(each) for each in names}) > 1


@pytest.fixture(params=[False, True], ids=["plain", "partitioned"])
def queue(request: pytest.FixtureRequest) -> QueueDescription:
    return QueueDescription("s", requires_session=True, enable_partitioning=request.param, lock_duration_ms=30_000)


async def test_a_session_has_the_messages_of_all_spellings_and_each_keeps_its_own(queue: QueueDescription) -> None:
    broker = open_broker(queue)
    names = ["Order", "order", "ORDER", "Order"]
    for n, name in enumerate(names):
        await send(broker, "s", encoded(str(n), group_id=name))
    holder = Holder(broker, "oRDER")
    found = await holder.receive(4)
    assert (await holder.accepted()).session_id == "oRDER"
    assert [message.group_id for message in decoded(found)] == names
    assert bodies(found) == ["0", "1", "2", "3"]
    assert len({each.sequence_number >> 48 for each in found}) == 1


async def test_another_spelling_of_a_held_session_is_refused_and_is_renewed_with_its_state(
    queue: QueueDescription,
) -> None:
    broker = open_broker(queue, clock=Clock(start_at=1_800_000_000_000, frozen=True))
    await Holder(broker, "Order").accepted()
    with pytest.raises(BrokerError) as refused:
        await Holder(broker, "ORDER").accepted()
    assert refused.value.condition is Condition.SESSION_CANNOT_BE_LOCKED
    await broker.sessions.set_state("s", "order", b"state")
    assert await broker.sessions.state("s", "ORDER") == b"state"
    assert await broker.sessions.renew("s", "oRDER") == 1_800_000_030_000
    broker.sessions.release("s", "ORDER")
    assert (await Holder(broker, "order").accepted()).session_id == "order"


async def test_one_session_is_listed_peeked_deferred_and_deleted_in_any_case(queue: QueueDescription) -> None:
    broker = open_broker(queue)
    for name in ("Order", "ORDER", "other"):
        await send(broker, "s", encoded(name, group_id=name))
    assert sorted(await broker.sessions.names("s", None)) == ["Order", "other"]
    shown = [read(each).group_id for each in await broker.messages.peek("s", 0, 10, 1 << 20, "order")]
    assert shown == ["Order", "ORDER"]
    holder = Holder(broker, "order")
    first, _ = await holder.receive(2)
    await holder.settle(first, Complete())
    (await holder.accepted()).close()
    if queue.enable_partitioning:  # such entities refuse to delete many messages
        return
    assert await broker.messages.delete_messages("s", 10, 1 << 50, "oRDER") == 1
    entity = broker.namespace.entity("s")
    assert entity is not None
    assert sum(each.worker.counters(each.queue_id).messages[Home.ACTIVE] for each in entity.partitions) == 1


async def test_the_next_session_is_given_once_whatever_the_spellings(queue: QueueDescription) -> None:
    broker = open_broker(queue)
    for name in ("Order", "ORDER", "order"):
        await send(broker, "s", encoded(name, group_id=name))
    holder = Holder(broker, None)
    assert (await holder.accepted()).session_id == "Order"
    assert len(await holder.receive(3)) == 3
    waiting = Holder(broker, None, timeout_ms=0)
    with pytest.raises(BrokerError) as refused:
        await waiting.accepted()
    assert refused.value.condition is Condition.TIMEOUT


async def test_sessions_are_one_after_a_restart(queue: QueueDescription, tmp_path: Path) -> None:
    broker = open_broker(queue, folder=tmp_path)
    await send(broker, "s", encoded("0", group_id="Order"))
    await broker.stop()
    broker = open_broker(queue, folder=tmp_path)
    await send(broker, "s", encoded("1", group_id="ORDER"))
    assert bodies(await Holder(broker, None).receive(2)) == ["0", "1"]
    await broker.stop()


async def test_messages_of_one_session_are_duplicates_of_each_other_in_any_case() -> None:
    queue = QueueDescription("s", requires_session=True, requires_duplicate_detection=True, enable_partitioning=True)
    broker = open_broker(queue)
    for name, message_id in (("Order", "1"), ("ORDER", "1"), ("order", "2"), ("order", "A"), ("order", "a")):
        await send(broker, "s", encoded(message_id, group_id=name, id=message_id))
    found = await Holder(broker, "order").receive(4)
    assert bodies(found) == ["1", "2", "A", "a"]


async def test_deferred_messages_of_a_session_are_received_in_any_case(queue: QueueDescription) -> None:
    broker = open_broker(queue)
    await send(broker, "s", encoded("0", group_id="Order"))
    holder = Holder(broker, "ORDER")
    (taken,) = await holder.receive(1)
    await holder.settle(taken, Defer())
    numbers = [taken.sequence_number]
    (found,) = await broker.messages.receive_by_sequence_number("s", numbers, ReceiveMode.PEEK_LOCK, "oRDER")
    await holder.settle(found, Defer())
    (locked,) = await (await holder.accepted()).lock(numbers)
    assert bodies([locked]) == ["0"]


async def test_an_empty_message_id_is_an_id() -> None:
    broker = open_broker(QueueDescription("q", requires_duplicate_detection=True))
    counts: list[int] = []
    for more in ({"id": ""}, {}, {"id": ""}, {}):
        await send(broker, "q", encoded(**more))
        counts.append(len(await broker.messages.peek("q", 0, 10, 1 << 20)))
    assert counts == [1, 2, 2, 3]
