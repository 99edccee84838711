"""The sequence numbers of dead letters (docs/decisions/0024): they come in any order, and none is lost or doubled."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from emubus.broker.address import SubQueue
from emubus.broker.api import Abandon, Complete, DeadLetter, Defer, Home, ReceiveMode
from emubus.broker.message.message import parse_message
from emubus.broker.model.descriptions import QueueDescription
from emubus.broker.outcomes import Release
from emubus.broker.partition import ready_queue
from emubus.broker.partition.records import MESSAGES, Counters, Record, message_key
from emubus.broker.partition.requests import (
    Commit,
    ExpireLocks,
    Peek,
    ProcessDue,
    ReadOutbox,
    ReceiveDeferred,
    Resubmit,
    SendDeadLetters,
    Transfer,
    Undeliverable,
)

from .driving import Driver, encoded

QUEUE = QueueDescription("q")
DEAD = SubQueue.DEAD_LETTER
GONE = QueueDescription("q", forward_dead_letters_to="graves")


def peeked(driver: Driver, sub_queue: SubQueue = DEAD) -> list[int]:
    """The numbers of a sub-queue, as a peek shows them."""
    return [number for number, _ in driver.ask(lambda *to: Peek(*to), sub_queue, 0, 1_000, 1 << 30, None)]


@pytest.mark.parametrize("partitioned", [False, True])
def test_a_dead_letter_keeps_the_number_of_its_message_however_it_came_there(partitioned: bool) -> None:
    description = replace(QUEUE, max_delivery_count=1, dead_letter_on_expiration=True)
    driver = Driver(description, index=5, partitioned=partitioned)
    base = 5 << 48 if partitioned else 0
    for number in range(1, 6):
        data = encoded(str(number), ttl=1) if number == 1 else encoded(str(number))
        assert driver.send(data) is None
    expiring, tried, expired_lock, deferred, last = range(base + 1, base + 6)
    driver.now += 1_000
    driver.run(ProcessDue(driver.due_rows()))
    first, second, third, fourth = driver.take(4)
    driver.settle(fourth.token, DeadLetter())
    driver.settle(first.token, Abandon({}))
    driver.settle(third.token, Defer({}))  # one too many
    driver.now += 60_000
    driver.run(ExpireLocks())
    assert second.sequence_number == expired_lock
    wanted = [expiring, tried, expired_lock, deferred, last]
    assert peeked(driver) == wanted
    assert [each.sequence_number for each in driver.take(9, sub_queue=DEAD)] == wanted
    driver.check()


def test_a_deferred_message_keeps_its_number_as_a_dead_letter() -> None:
    driver = Driver(QUEUE, index=0)
    for _ in range(2):
        driver.send(encoded())
    first, _ = driver.take(2)
    driver.settle(first.token, Defer({}))
    (again,) = driver.ask(ReceiveDeferred, SubQueue.ACTIVE, [1], ReceiveMode.PEEK_LOCK, None)
    driver.settle(again.token, DeadLetter("r", None, {}))
    (dead,) = driver.take(2, sub_queue=DEAD)
    driver.settle(dead.token, Defer({}))
    (again,) = driver.ask(ReceiveDeferred, DEAD, [1], ReceiveMode.PEEK_LOCK, None)
    assert (dead.sequence_number, again.sequence_number) == (1, 1)
    driver.check()


def test_a_late_dead_letter_comes_before_those_with_higher_numbers() -> None:
    driver = Driver(QUEUE, index=0)
    for body in ("early", "late"):
        assert driver.send(encoded(body)) is None
    first, second = driver.take(2)
    driver.settle(second.token, DeadLetter())
    (high,) = driver.take(sub_queue=DEAD)
    driver.settle(first.token, DeadLetter())
    driver.settle(high.token, Release())
    assert [each.sequence_number for each in driver.take(2, sub_queue=DEAD)] == [1, 2]
    driver.check()


def test_what_a_transaction_could_not_deliver_keeps_its_number() -> None:
    driver = Driver(QUEUE)
    driver.ask(Commit, [(driver.place, Transfer(parse_message(encoded()), "elsewhere"))])
    ((home, number, _),) = driver.ask(ReadOutbox, 5)
    driver.ask(Undeliverable, home, number, "MessagingEntityNotFound", "")
    (delivery,) = driver.take(sub_queue=SubQueue.TRANSFER_DEAD_LETTER)
    assert delivery.sequence_number == number
    driver.check()


def test_dead_letters_that_go_on_leave_in_order_and_come_back_under_their_numbers() -> None:
    driver = Driver(GONE, index=0)
    for _ in range(3):
        driver.send(encoded())
    for delivery in reversed(driver.take(3)):
        driver.settle(delivery.token, DeadLetter())
    assert driver.ask(SendDeadLetters, 2) == 2
    rows = driver.ask(ReadOutbox, 5)
    assert [(home, number, record.own_number) for home, number, record in rows] == [
        (Home.DEAD_LETTER_OUTBOX, 4, 1),
        (Home.DEAD_LETTER_OUTBOX, 5, 2),
    ]
    assert peeked(driver) == [3]
    driver.ask(Undeliverable, Home.DEAD_LETTER_OUTBOX, 4, None, "")
    driver.ask(Undeliverable, Home.DEAD_LETTER_OUTBOX, 5, "It can't go on.", "")
    assert peeked(driver) == [1, 2, 3]
    assert driver.ask(SendDeadLetters, 9) == 2  # the second one stays
    assert [record.own_number for _, _, record in driver.ask(ReadOutbox, 5)] == [1, 3]
    driver.reopen()
    assert driver.ask(SendDeadLetters, 9) == 1  # until the next start
    driver.check()


def test_a_dead_letter_in_the_outbox_of_an_older_release_keeps_the_number_that_it_has_there() -> None:
    driver = Driver(GONE)
    record = Record(parse_message(encoded("old")).stored(driver.now, None), driver.now, 0, 1, other_path="q")
    row = record.pack()
    batch = driver.store.begin(1 << 20)
    batch.put(MESSAGES, message_key(driver.place.queue_id, Home.DEAD_LETTER_OUTBOX, 7), row)
    counts = [0] * len(Home)
    counts[Home.DEAD_LETTER_OUTBOX] = 1
    batch.put("state", driver.place.queue_id.to_bytes(4, "big"), Counters(8, len(row), counts).pack())
    batch.commit()
    ((home, number, read),) = driver.ask(ReadOutbox, 5)
    assert (home, number, read.own_number) == (Home.DEAD_LETTER_OUTBOX, 7, 0)
    driver.ask(Undeliverable, home, number, None, "")
    assert peeked(driver) == [7]
    driver.check()


@pytest.mark.parametrize("seed", range(20))
def test_dead_letters_in_any_order_are_received_once_each(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ready_queue, "RETURNED_MAX", 3)
    monkeypatch.setattr(ready_queue, "READ_MESSAGES_MAX", 4)
    rng = random.Random(seed)
    driver = Driver(GONE if seed % 3 == 0 else QUEUE)
    held, dead, locked, done = list[tuple[int, bytes]](), set[int](), dict[int, bytes](), set[int]()
    for _ in range(300):
        step = rng.random()
        if step < 0.25:
            driver.send(encoded())
            held += [(each.sequence_number, each.token) for each in driver.take()]
        elif step < 0.5 and held:
            number, token = held.pop(rng.randrange(len(held)))
            assert driver.settle(token, DeadLetter()) is None
            dead.add(number)
        elif step < 0.65:
            found = driver.take(rng.choice((1, 3)), sub_queue=DEAD)
            free = sorted(dead - locked.keys())
            assert [each.sequence_number for each in found] == free[: len(found)]
            assert found or not free
            locked |= {each.sequence_number: each.token for each in found}
        elif step < 0.85 and locked:
            number = rng.choice(sorted(locked))
            outcome = rng.choice((Complete(), Release(), Abandon({})))
            assert driver.settle(locked.pop(number), outcome) is None
            if isinstance(outcome, Complete):
                dead.remove(number)
                done.add(number)
        elif step < 0.9 and (free := sorted(dead - locked.keys())):
            number = rng.choice(free)
            assert driver.ask(Resubmit, [number], driver.place) == {number: None}
            dead.remove(number)
            held += [(each.sequence_number, each.token) for each in driver.take()]
        elif step < 0.93:
            driver.reopen()
            locked.clear()
            driver.take(0)  # in memory again
            held = [(each.sequence_number, each.token) for each in driver.take(1_000)]
        elif step < 0.96 and driver.place.description is GONE and driver.ask(SendDeadLetters, 2):
            for home, number, _ in driver.ask(ReadOutbox, 9):
                driver.ask(Undeliverable, home, number, None, "")
        driver.check()
        assert peeked(driver) == sorted(dead)
    assert not dead & done
