"""Random commands against a partition and against a plain model of it: no difference, ever.

All commands take part, with a clock that moves by hand, restarts, and a store that refuses commits. Each run's seed is
its parameter; a seed that failed once is added to `SEEDS_THAT_FAILED`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from emubus.broker.address import SubQueue
from emubus.broker.commands import (
    AcceptSession,
    CancelScheduled,
    Clear,
    Command,
    Commit,
    DeleteMessages,
    Delivery,
    ExpireLocks,
    FallDue,
    Forwarded,
    GetSessionState,
    ListSessions,
    Peek,
    ReceiveMode,
    ReleaseSession,
    Renew,
    RenewSession,
    Schedule,
    Send,
    SessionGrant,
    SetSessionState,
    Settle,
    Take,
    TakeDeferred,
    TakeFromSession,
    Taken,
)
from emubus.broker.description import QueueDescription
from emubus.broker.errors import BrokerError
from emubus.broker.message import parse_message
from emubus.broker.outcomes import Abandon, Complete, DeadLetter, Defer, Outcome, Release
from emubus.broker.records import Record

from .driving import Driver, encoded
from .model import SEEN, Model

SEEDS_THAT_FAILED: tuple[int, ...] = ()
SEEDS = (*range(1, 51), *SEEDS_THAT_FAILED)
COMMANDS_PER_SEED = 2_000
LOCK_MS, DELIVERIES_MAX, WINDOW_MS = 5_000, 3, 8_000
OUTCOMES: tuple[Callable[[], Outcome], ...] = (Complete, Complete, Complete, Release, Abandon, Defer, DeadLetter)
LINES = ((SubQueue.ACTIVE, "active"), (SubQueue.ACTIVE, "active"), (SubQueue.DEAD_LETTER, "dead"))
NAMES = ("s0", "s1", "s2", "s3")
PEEK = ReceiveMode.PEEK_LOCK
NAME_AT = b"name:"
MESSAGE_ANNOTATIONS = b"\x00\x53\x72\xd1"


def nothing(argument: object) -> None:
    """An effect that nobody hears of."""


def seen(payload: bytes) -> SEEN:
    """Name and delivery count of a delivered message, read from its bytes (decoding all of it takes too long here)."""
    start = payload.index(NAME_AT) + len(NAME_AT)
    header_end = payload.index(MESSAGE_ANNOTATIONS)  # the delivery count, a uint, is the header's last field
    count = int.from_bytes(payload[header_end - 4 : header_end], "big")
    return payload[start : start + 6].decode(), count


class Simulation:
    """The partition, the model, and what both were told."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.sessions = seed % 3 == 0
        dead_letter = seed % 2 == 0
        description = QueueDescription(
            "q",
            lock_duration_ms=LOCK_MS,
            max_delivery_count=DELIVERIES_MAX,
            dead_letter_on_expiration=dead_letter,
            requires_session=self.sessions,
            requires_duplicate_detection=seed % 5 == 0,
            duplicate_window_ms=WINDOW_MS,
        )
        self.description = description
        self.driver = Driver(description, index=0, partitioned=False)
        self.driver.budget.bytes_max = self.random.choice((600, 5_000, 1 << 20))
        self.model = Model(LOCK_MS, DELIVERIES_MAX, dead_letter, self.sessions)
        self.tokens: dict[str, bytes] = {}  # by name, the last lock given out
        self.numbers: dict[str, int] = {}  # by name, the last known sequence number
        self.grants: dict[str, int] = {}
        self.named = 0
        self.forwarded_number = 0

    def step(self) -> None:
        action = self.random.choice(self.actions())
        if self.random.random() < 0.02:
            self.refused()
        else:
            action()

    def actions(self) -> Sequence[Callable[[], None]]:
        return self.session_actions if self.sessions else self.plain_actions

    def refused(self) -> None:
        """A commit that the store refuses: nothing has happened, all locks and holdings are gone."""
        answers: list[Any] = []
        message = parse_message(self.message(None)[1])
        token = self.random.choice(list(self.tokens.values()) or [b"\0" * 16])
        commands: list[Command] = [
            Send([message], answers.append),
            Schedule([message], answers.append),
            Settle(token, self.random.choice(OUTCOMES)(), answers.append),
            Take(SubQueue.DEAD_LETTER, 2, ReceiveMode.RECEIVE_AND_DELETE, answers.append),
            Commit([(self.driver.place, Send([message], nothing))], answers.append),
            DeleteMessages(SubQueue.ACTIVE, 3, self.driver.now + 1, None, answers.append),
            Forwarded(9, 0, [(1 << 40, Record(message.stored(0, None), 0, 0, 1))], answers.append),
        ]
        if self.sessions:
            name = self.random.choice(NAMES)
            commands.append(AcceptSession(name, nothing, nothing, answers.append))
            commands.append(SetSessionState(name, b"lost", answers.append))
        self.driver.refusing = True
        self.driver.run(self.random.choice(commands))
        self.driver.refusing = False
        (answer,) = answers
        assert isinstance(answer.error if isinstance(answer, Taken) else answer, BrokerError)
        self.driver.reopen()
        self.model.restart()
        self.grants.clear()

    def message(self, ttl_s: int | None, at: int | None = None) -> tuple[str, bytes, str | None, str]:
        """A new message: its name, its bytes, its session, its message id (sometimes an old one)."""
        self.named += 1
        name = f"{self.named:06}"
        session = self.random.choice(NAMES) if self.sessions else None
        message_id = f"id-{self.random.randrange(self.named)}" if self.random.random() < 0.2 else f"id-{self.named}"
        body = f"name:{name}" + "x" * self.random.choice((0, 20, 300))
        fields = dict(FIELDS_OF_TTL[ttl_s])
        if session is not None:
            fields["group_id"] = session
        if at is not None:
            from proton import timestamp

            fields["annotations"] = {"x-opt-scheduled-enqueue-time": timestamp(at)}
        return name, encoded(body, id=message_id, **fields), session, message_id

    def is_duplicate(self, message_id: str) -> bool:
        return self.description.requires_duplicate_detection and self.model.is_duplicate(
            message_id, self.driver.now, WINDOW_MS
        )

    def note(self, deliveries: Sequence[Delivery]) -> list[SEEN]:
        found = [seen(delivery.payload) for delivery in deliveries]
        for delivery, (name, _) in zip(deliveries, found, strict=True):
            self.tokens[name] = delivery.token
            self.numbers[name] = delivery.sequence_number
        return found

    # ---- the commands

    def send(self) -> None:
        ttl_s = self.random.choice((None, None, 1, 4, 20))
        name, data, session, message_id = self.message(ttl_s)
        assert self.driver.send(data) is None
        if not self.is_duplicate(message_id):
            self.model.send(name, self.driver.now, None if ttl_s is None else ttl_s * 1000, session)

    def schedule(self) -> None:
        at = self.driver.now + self.random.choice((500, 3_000, 9_000))
        name, data, session, message_id = self.message(None, at)
        (number,) = self.driver.ask(Schedule, [parse_message(data)])
        if not self.is_duplicate(message_id):
            self.numbers[name] = number
            self.model.schedule(name, self.driver.now, at, session)

    def forwarded(self) -> None:
        """A message from another entity's outbox; sometimes one that came before, which is dropped."""
        repeated = self.forwarded_number > 0 and self.random.random() < 0.3
        self.forwarded_number += 0 if repeated else self.random.randint(1, 3)
        name, data, session, message_id = self.message(None)
        record = Record(parse_message(data).stored(self.driver.now, None), self.driver.now, 0, 77)
        assert self.driver.ask(Forwarded, 8, 2, [(self.forwarded_number, record)]) is None
        if not repeated and not self.is_duplicate(message_id):
            self.model.send(name, self.driver.now, None, session)

    def cancel(self) -> None:
        scheduled = [item.name for item in self.model.items if item.place == "scheduled"]
        name = self.random.choice(scheduled) if scheduled else next(iter(self.numbers), None)
        if name is not None:
            answer = self.driver.ask(CancelScheduled, [self.numbers[name]])
            assert (answer is None) == self.model.cancel(name)

    def take(self) -> None:
        sub_queue, line = self.random.choice(LINES) if not self.sessions else LINES[2]
        count = self.random.randint(1, 5)
        remove = self.random.random() < 0.1
        deliveries = self.driver.take(count, ReceiveMode.RECEIVE_AND_DELETE if remove else PEEK, sub_queue)
        assert self.note(deliveries) == self.model.take(line, count, self.driver.now, remove)

    def settle(self) -> None:
        if self.tokens:
            name = self.random.choice(list(self.tokens))
            outcome = self.random.choice(OUTCOMES)()
            error = self.driver.settle(self.tokens[name], outcome)
            assert (error is None) == self.model.settle(name, outcome, self.driver.now)
            if error is None:
                del self.tokens[name]

    def commit(self) -> None:
        """A transaction of a send and up to two settlements: all or nothing."""
        name, data, session, message_id = self.message(None)
        chosen = self.random.sample(list(self.tokens), min(2, len(self.tokens)))
        settles = [(each, self.random.choice(OUTCOMES)()) for each in chosen]
        operations = [(self.driver.place, Send([parse_message(data)], nothing))]
        operations += [(self.driver.place, Settle(self.tokens[each], outcome, None)) for each, outcome in settles]  # type: ignore[misc]
        error = self.driver.ask(Commit, operations)
        now = self.driver.now
        assert (error is None) == all(self.model.can_settle(each, outcome, now) for each, outcome in settles)
        if error is None:
            if not self.is_duplicate(message_id):
                self.model.send(name, now, None, session)
            for each, outcome in settles:
                assert self.model.settle(each, outcome, now)
                del self.tokens[each]

    def take_deferred(self) -> None:
        deferred = [item.name for item in self.model.items if "deferred" in item.place] or list(self.numbers)[:1]
        if not deferred:
            return
        name = self.random.choice(deferred)
        sub_queue, line = self.random.choice(LINES)
        session = self.random.choice(NAMES) if self.sessions else None
        answer = self.driver.ask(TakeDeferred, sub_queue, [self.numbers[name]], PEEK, session)
        assert isinstance(answer, list) == self.model.take_deferred(line, name, self.driver.now, session)
        if isinstance(answer, list):
            self.note(answer)

    def renew(self) -> None:
        if self.tokens:
            name = self.random.choice(list(self.tokens))
            answer = self.driver.ask(Renew, [self.tokens[name]])
            assert isinstance(answer, list) == self.model.renew(name, self.driver.now)

    def peek(self) -> None:
        sub_queue, line = self.random.choice(LINES)
        rows = self.driver.ask(Peek, sub_queue, 0, 1 << 20, 1 << 30, None)
        assert [seen(payload)[0] for _, payload in rows] == self.model.peek(line)

    def delete(self) -> None:
        if self.random.random() < 0.3:
            before = self.driver.now - self.random.choice((0, 2_000))
            count = self.random.randint(1, 4)
            answer = self.driver.ask(DeleteMessages, SubQueue.ACTIVE, count, before, None)
            assert answer == self.model.delete(count, before)

    def accept(self) -> None:
        name = self.random.choice((*NAMES, None, None))
        answers: list[Taken] = []
        self.driver.run(AcceptSession(name, nothing, nothing, answers.append))
        expected = self.model.accept(name, self.driver.now)
        found: list[SessionGrant] = answers[0].deliveries
        assert [grant.session_id for grant in found] == ([] if expected is None else [expected])
        self.grants.update({grant.session_id: grant.grant for grant in found})

    def take_from_session(self) -> None:
        for name in self.some_held():
            count = self.random.randint(1, 4)
            answers: list[Taken] = []
            self.driver.run(TakeFromSession(self.grants[name], count, PEEK, answers.append))
            found = self.note(answers[0].deliveries)
            assert found == self.model.take_from_session(name, count, self.driver.now, remove=False)

    def release_session(self) -> None:
        for name in self.some_held():
            self.driver.run(ReleaseSession(self.grants.pop(name)))
            self.model.release_session(name, self.driver.now, counted=False)

    def renew_session(self) -> None:
        name = self.random.choice(NAMES)
        answer = self.driver.ask(RenewSession, name)
        assert isinstance(answer, int) == self.model.renew_session(name, self.driver.now)

    def session_state(self) -> None:
        name = self.random.choice(NAMES)
        state = self.random.choice((None, b"", b"state"))
        answer = self.driver.ask(SetSessionState, name, state)
        assert (answer is None) == self.model.set_state(name, self.driver.now, state)
        if answer is None:
            assert self.driver.ask(GetSessionState, name) == self.model.states.get(name)
        assert self.driver.ask(ListSessions, None) == self.model.list_sessions()

    def some_held(self) -> Iterator[str]:
        held = sorted(name for name in self.grants if name in self.model.held)
        if held:
            yield self.random.choice(held)

    def pass_time(self) -> None:
        self.driver.now += self.random.choice((1, 500, 3_000, 6_000))
        self.driver.run(ExpireLocks())
        self.model.expire_locks(self.driver.now)
        if self.random.random() < 0.7:
            self.driver.run(FallDue(self.driver.due_rows()))
            self.model.fall_due(self.driver.now)

    def restart(self) -> None:
        if self.random.random() < 0.1:
            self.driver.reopen()
            self.model.restart()
            self.grants.clear()

    @property
    def plain_actions(self) -> Sequence[Callable[[], None]]:
        rare = (
            self.schedule,
            self.forwarded,
            self.cancel,
            self.commit,
            self.take_deferred,
            self.renew,
            self.peek,
            self.delete,
        )
        return (*[self.send] * 6, *[self.take] * 5, *[self.settle] * 8, *rare, self.pass_time, self.restart)

    @property
    def session_actions(self) -> Sequence[Callable[[], None]]:
        sessions = (self.release_session, self.renew_session, self.session_state)
        return (*self.plain_actions, *[self.accept] * 4, *[self.take_from_session] * 6, *sessions)


FIELDS_OF_TTL: dict[int | None, dict[str, object]] = {None: {}, 1: {"ttl": 1}, 4: {"ttl": 4}, 20: {"ttl": 20}}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_partition_behaves_like_the_plain_model(seed: int) -> None:
    simulation = Simulation(seed)
    for number in range(COMMANDS_PER_SEED):
        simulation.step()
        if number % 250 == 0:
            simulation.driver.check()
    simulation.driver.check()
    while simulation.driver.ask(Clear, 37):
        simulation.driver.check()
    assert simulation.driver.rows_left() == {}
    assert simulation.named > COMMANDS_PER_SEED / 10
