"""A run of settlements does what the same settlements do one by one: twin partitions, one for each, never differ."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from emubus.broker.address import SubQueue
from emubus.broker.api import Abandon, Complete, DeadLetter, Defer, Delivery, Outcome, ReceiveMode, Release
from emubus.broker.errors import BrokerError
from emubus.broker.message.message import parse_message
from emubus.broker.model.descriptions import QueueDescription
from emubus.broker.partition.contract import Received, SessionGrant
from emubus.broker.partition.requests import (
    AcceptSession,
    ExpireLocks,
    Receive,
    ReceiveDeferred,
    ReceiveFromSession,
    Renew,
    Request,
    Settle,
)

from .acts import nothing
from .driving import Driver, Place, encoded, send_whole, settle_alone
from .tearing import FAILURE, Cell, Fate, picture_of

LOCK_MS = 5_000
OUTCOMES: tuple[Outcome, ...] = (Complete(), Complete(), Release(), Abandon(), Defer(), DeadLetter("no"))
ACTIVE, PEEK = SubQueue.ACTIVE, ReceiveMode.PEEK_LOCK
SUB_QUEUES = (ACTIVE, ACTIVE, SubQueue.DEAD_LETTER)
STEPS = 80


@dataclass
class Twin:
    """One of two partitions with the same history; `received` are its deliveries, in the order of both."""

    sessions: bool
    cell: Cell = field(default_factory=Cell)
    received: list[Delivery] = field(default_factory=list[Delivery])
    grants: list[SessionGrant] = field(default_factory=list[SessionGrant])

    def __post_init__(self) -> None:
        self.place = Place(
            QueueDescription("q", lock_duration_ms=LOCK_MS, max_delivery_count=3, requires_session=self.sessions),
            index=0,
            partitioned=False,
        )

    def run(self, now: int, *requests: Request, fate: Fate = Fate.STORED) -> None:
        self.cell.store.fate = fate
        self.cell.run(now, *((self.place, request) for request in requests))
        self.cell.store.fate = Fate.STORED

    def take(self, now: int, sub_queue: SubQueue, count: int, mode: ReceiveMode) -> None:
        def got(answer: Received[Delivery]) -> None:
            self.received += answer.deliveries

        if self.sessions and sub_queue is ACTIVE:
            accepted: list[Received[SessionGrant]] = []
            self.run(now, AcceptSession(None, nothing, nothing, nothing, accepted.append))
            self.grants += accepted[0].deliveries
            for grant in self.grants:
                self.run(now, ReceiveFromSession(grant.grant, count, mode, got))
        else:
            self.run(now, Receive(sub_queue, count, mode, got))

    def take_deferred(self, now: int, sub_queue: SubQueue, number: int) -> None:
        def got(answer: list[Delivery] | BrokerError) -> None:
            self.received += [] if isinstance(answer, BrokerError) else answer

        self.run(now, ReceiveDeferred(sub_queue, [number], PEEK, None, got))

    def tokens(self, chosen: Sequence[int | bytes]) -> list[bytes]:
        return [each if isinstance(each, bytes) else self.received[each].token for each in chosen]

    def settle_run(
        self, now: int, tokens: Sequence[bytes], outcome: Outcome, sub_queue: SubQueue, fate: Fate
    ) -> list[str]:
        ends: dict[int, str] = {}

        def ended(positions: Sequence[int], error: BrokerError | None) -> None:
            for position in positions:
                assert position not in ends
                ends[position] = str(error)

        self.run(now, Settle(tokens, range(len(tokens)), outcome, ended, sub_queue), fate=fate)
        return [ends[position] for position in range(len(tokens))]

    def settle_each(
        self, now: int, tokens: Sequence[bytes], outcome: Outcome, sub_queue: SubQueue, fate: Fate
    ) -> list[str]:
        ends: list[str] = []
        each = [settle_alone(token, outcome, lambda error: ends.append(str(error)), sub_queue) for token in tokens]
        self.run(now, *each, fate=fate)
        return ends

    def state(self) -> object:
        """What is stored, and all locks in the order in which they end."""
        locks = self.cell.partitions[self.place.queue_id].state.locks
        timed = [(lock.number, lock.until_at) for group in locks.timed.values() for lock in group.locks.values()]
        in_sessions = {lock.number: lock.until_at for lock in locks.by_token.values() if lock.group.session_lock}
        seen = [(each.sequence_number, each.payload[-20:]) for each in self.received]
        return picture_of(self.cell.store, self.place.queue_id), timed, in_sessions, seen


@pytest.mark.parametrize("sessions", [False, True], ids=["plain", "sessions"])
@pytest.mark.parametrize("seed", range(8))
def test_a_run_of_settlements_equals_the_same_one_by_one(seed: int, sessions: bool) -> None:
    chance = random.Random(seed)
    runs, singles = Twin(sessions), Twin(sessions)
    now = 1_700_000_000_000
    settled = refused = 0
    for step in range(STEPS):
        now += chance.choice((0, 0, 1, 900, LOCK_MS // 2))
        names = [f"name:{step:04}{number:02}" for number in range(chance.randint(1, 6))]
        fields = {"ttl": chance.choice((0, 0, 3, 9)), **({"group_id": chance.choice("ab")} if sessions else {})}
        sub_queue, count = chance.choice(SUB_QUEUES), chance.randint(1, 9)
        mode = ReceiveMode.RECEIVE_AND_DELETE if chance.random() < 0.1 else PEEK
        known = range(len(runs.received))
        chosen: list[int | bytes] = [*chance.choices(known[-12:], k=4 if known else 0), chance.randbytes(16)]
        chance.shuffle(chosen)
        outcome, fate = chance.choice(OUTCOMES), chance.choice((Fate.STORED, Fate.STORED, Fate.REFUSED))
        renewed = known[-3:-1]
        ends: list[list[str]] = []
        for twin, settle in ((runs, runs.settle_run), (singles, singles.settle_each)):
            twin.run(now, send_whole([parse_message(encoded(name, **fields)) for name in names], nothing))
            twin.take(now, sub_queue, count, mode)
            twin.take_deferred(now, sub_queue, twin.received[-1].sequence_number if twin.received else 1)
            twin.run(now, Renew(sub_queue, [*twin.tokens(renewed), *twin.tokens(renewed[:1])], nothing))
            ends.append(settle(now, twin.tokens(chosen), outcome, sub_queue, fate))
            twin.run(now, ExpireLocks())
            twin.cell.check()
        assert ends[0] == ends[1]
        assert runs.state() == singles.state()
        settled += ends[0].count("None")
        refused += len(ends[0]) - ends[0].count("None") - ends[0].count(str(FAILURE))
    assert settled > STEPS / 4
    assert refused > STEPS / 4


def test_a_completed_run_is_answered_once_for_each_result() -> None:
    driver = Driver(QueueDescription("q", lock_duration_ms=LOCK_MS))
    driver.send(*(encoded(str(number)) for number in range(4)))
    first, second, third, _ = (delivery.token for delivery in driver.take(4))
    answers: list[tuple[list[int], str | None]] = []

    def done(positions: Sequence[int], error: BrokerError | None) -> None:
        answers.append((list(positions), None if error is None else error.condition.name))

    tokens = [first, bytes(16), second, first, third]
    driver.run(Settle(tokens, [5, 6, 7, 8, 9], Complete(), done))
    assert answers == [([6, 8], "MESSAGE_LOCK_LOST"), ([5, 7, 9], None)]
    answers.clear()
    driver.run(Settle(tokens, [5, 6, 7, 8, 9], Complete(), done))
    assert answers == [([5, 6, 7, 8, 9], "MESSAGE_LOCK_LOST")]
    driver.check()


def test_locks_that_were_renewed_together_end_together_and_after_the_others() -> None:
    driver = Driver(QueueDescription("q", lock_duration_ms=LOCK_MS))
    driver.send(*(encoded(str(number)) for number in range(4)))
    first, second, third, fourth = driver.take(4)
    driver.now += 1_000
    assert driver.ask(Renew, ACTIVE, [third.token, first.token, third.token]) == [driver.now + LOCK_MS] * 3
    driver.now += LOCK_MS - 1_000
    driver.run(ExpireLocks())
    assert [each.sequence_number for each in driver.take(9)] == [second.sequence_number, fourth.sequence_number]
    driver.now += 1_000
    assert driver.settle(first.token, Complete()) is not None
    driver.run(ExpireLocks())
    assert [each.sequence_number for each in driver.take(9)] == [first.sequence_number, third.sequence_number]
    driver.check()
