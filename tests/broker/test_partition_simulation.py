"""Random commands against a partition and against a plain model of it: no difference, ever.

All commands take part, one or a few to a batch, with a clock that moves by hand, restarts, and commits that fail: the
callers hear of an error, and the store has all of the batch or nothing. Which of both is found by looking: the model is
forked, and what is stored must be the one or the other as a whole. Each run's seed is its parameter; a seed that failed
once is added to `SEEDS_THAT_FAILED`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from emubus.broker.address import SubQueue
from emubus.broker.api import Abandon, Complete, DeadLetter, Defer, Delivery, Home, Outcome, ReceiveMode, Release
from emubus.broker.errors import BrokerError
from emubus.broker.message.message import parse_message
from emubus.broker.model.descriptions import QueueDescription
from emubus.broker.partition import ready_queue, sessions
from emubus.broker.partition.contract import Received, SessionGrant, SharedLock
from emubus.broker.partition.records import Record, session_number
from emubus.broker.partition.requests import (
    AcceptSession,
    CancelScheduled,
    Commit,
    DeleteForwarded,
    DeleteMessages,
    DeleteRows,
    ExpireLocks,
    GetExtent,
    GetSessionState,
    ListSessions,
    Peek,
    ProcessDue,
    ReadOutbox,
    Receive,
    ReceiveDeferred,
    ReceiveFromSession,
    ReleaseSession,
    Renew,
    RenewSession,
    Reserve,
    Schedule,
    Send,
    SetSessionState,
    Settle,
    StoreForwarded,
    Transfer,
    Undeliverable,
)

from .acts import Act, Part, Reply, Sent, ended_in_parts, is_done, nothing, same, seen
from .driving import Place, encoded, send_whole, settle_alone
from .model import TAKEN, Held, Model
from .tearing import FAILURE, Cell, Fate, heads_of, name_of, picture_of, sessions_of

SEEDS_THAT_FAILED: tuple[int, ...] = (315,)  # those of 1 to 50 that did are run anyway
SEEDS = (*range(1, 51), *SEEDS_THAT_FAILED)
COMMANDS_PER_SEED = 2_000
LOCK_MS, DELIVERIES_MAX, WINDOW_MS = 5_000, 3, 8_000
OUTCOMES: tuple[Callable[[], Outcome], ...] = (
    Complete,
    Complete,
    Complete,
    Release,
    Abandon,
    Defer,
    DeadLetter,
    lambda: DeadLetter("why not"),
)
LINES = (SubQueue.ACTIVE, SubQueue.ACTIVE, SubQueue.ACTIVE, SubQueue.DEAD_LETTER, SubQueue.TRANSFER_DEAD_LETTER)
DEFERRED_HOMES = {
    SubQueue.ACTIVE: Home.DEFERRED,
    SubQueue.DEAD_LETTER: Home.DEAD_LETTER_DEFERRED,
    SubQueue.TRANSFER_DEAD_LETTER: Home.TRANSFER_DEAD_LETTER_DEFERRED,
}
LOCK_TOKENS = b"\x01" * 16, b"\x02" * 16  # of sessions that others may take over
NAMES = ("s0", "s1", "s2", "s3")
PEEK = ReceiveMode.PEEK_LOCK
TTLS_S = (None, None, 1, 4, 20)


class Simulation:
    """The partition, the model, and what their clients know."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.sessions = seed % 3 == 0
        dead_letter, duplicates = seed % 2 == 0, seed % 5 == 0
        description = QueueDescription(
            "q",
            lock_duration_ms=LOCK_MS,
            max_delivery_count=DELIVERIES_MAX,
            dead_letter_on_expiration=dead_letter,
            requires_session=self.sessions,
            requires_duplicate_detection=duplicates,
            duplicate_window_ms=WINDOW_MS,
        )
        self.place = Place(description, index=0, partitioned=False)
        self.cell = Cell(self.random.choice((600, 5_000, 1 << 20)))
        self.model = Model(LOCK_MS, DELIVERIES_MAX, dead_letter, self.sessions, WINDOW_MS if duplicates else None)
        self.now = 1_700_000_000_000
        self.failing: tuple[Fate, ...] = (Fate.REFUSED, Fate.UNCONFIRMED)
        self.failures = 0.06  # of all batches
        self.found = {"nothing": 0, "all": 0}  # after commits that failed
        self.tokens: dict[str, tuple[bytes, int]] = {}  # by name, the last lock given out, also that of the model
        self.holdings: dict[str, tuple[int, int]] = {}  # by session, the last grant, also that of the model
        self.named = 0
        self.done = 0
        self._actions = self.actions()

    # ---- running

    def steps(self, count: int) -> None:
        for _ in range(count):
            self.step()

    def step(self) -> None:
        """One batch of one command or a few."""
        if self.random.random() < 0.02:
            self.now += self.random.choice((1, 500, 3_000, 6_000))
        elif self.random.random() < 0.004:
            self.cell.reopen()
            self.model.restart()
        count = self.random.choice((1, 1, 1, 2, 4))
        acts = [act for _ in range(count) if (act := self.random.choice(self._actions)()) is not None]
        self.run(acts, self.random.choice(self.failing) if self.random.random() < self.failures else Fate.STORED)
        self.done += len(acts)

    def run(self, acts: Sequence[Act], fate: Fate = Fate.STORED) -> None:
        answers: list[list[Any]] = [[] for _ in acts]
        commands = [(self.place, act.make(each.append)) for act, each in zip(acts, answers, strict=True)]
        model = self.model.fork() if fate is not Fate.STORED else self.model
        self.cell.store.fate = fate
        dropped = self.cell.run(self.now, *commands)
        self.cell.store.fate = Fate.STORED
        expected = [act.on_model(model, self.now) for act in acts]
        if dropped is None:
            self.model = model
            for act, each, wanted in zip(acts, answers, expected, strict=True):
                if act.check is not None and act.in_parts:
                    act.check(each, wanted)
                elif act.check is not None:
                    (answer,) = each
                    act.check(answer, wanted)
            return
        for act, each in zip(acts, answers, strict=True):
            assert [getattr(answer, "error", answer) for answer in each] == ([] if act.check is None else [FAILURE])
        self.resolve(model, locks_are_gone=bool(dropped))

    def resolve(self, stored: Model, *, locks_are_gone: bool) -> None:
        """After a commit that failed: all of it is stored, or nothing, and locks and holdings are as before or gone."""
        found = picture_of(self.cell.store, self.place.queue_id)
        if found == self.model.picture():
            self.found["nothing"] += 1
        else:
            all_of_it = stored.picture()
            different = [key for key, value in all_of_it.items() if found[key] != value]
            assert not different, f"neither all nor nothing is stored: {different}"
            self.found["all"] += 1
            self.model = stored
        if locks_are_gone:
            self.model.restart()

    def check(self) -> None:
        """All is as it should be, in memory and in the store."""
        self.cell.check()
        assert picture_of(self.cell.store, self.place.queue_id) == self.model.picture()
        self.check_sessions(exactly=False)

    def check_sessions(self, *, exactly: bool) -> None:
        """Sessions with messages or a state are stored; others only `exactly` not, as they may be left by a crash."""
        rows = sessions_of(self.cell.store, self.place.queue_id)
        heads = heads_of(self.cell.store, self.place.queue_id)
        listed = self.model.list_sessions()
        assert {name: number for name, (number, _) in rows.items()} == {name: session_number(name) for name in rows}
        assert set(listed) <= set(rows)
        firsts: dict[str, int] = {}
        for item in sorted(self.model.items, key=lambda item: item.order):
            if item.home is Home.ACTIVE and item.session is not None:
                firsts.setdefault(item.session, item.order)
        for name, first in firsts.items():
            assert any(heads[number] == name for number in heads if number <= first), (name, first, heads)
        if exactly:
            assert (sorted(rows), heads) == (listed, {first: name for name, first in firsts.items()})

    # ---- what clients know

    def sent(self, *, later: bool = False) -> Sent:
        """A new message, sometimes with an old message id."""
        self.named += 1
        name = f"{self.named:06}"
        session = self.random.choice(NAMES) if self.sessions else None
        message_id = f"id-{self.random.randrange(self.named)}" if self.random.random() < 0.2 else f"id-{self.named}"
        ttl_s = self.random.choice(TTLS_S)
        fields: dict[str, Any] = {} if ttl_s is None else {"ttl": ttl_s}
        if session is not None:
            fields["group_id"] = session
        at = self.now + self.random.choice((500, 3_000, 9_000)) if later else None
        if at is not None:
            from proton import timestamp

            fields["annotations"] = {"x-opt-scheduled-enqueue-time": timestamp(at)}
        data = encoded(f"name:{name}" + "x" * self.random.choice((0, 20, 300)), id=message_id, **fields)
        return Sent(name, message_id, session, None if ttl_s is None else ttl_s * 1000, at, parse_message(data))

    def token(self) -> tuple[str, bytes, int] | None:
        """The name, token and lock of a message that was delivered, perhaps long ago."""
        if not self.tokens:
            return None
        name = self.random.choice(list(self.tokens))
        return (name, *self.tokens[name])

    def noted(self, deliveries: Sequence[Delivery], expected: list[TAKEN]) -> None:
        """These were delivered, as they should."""
        found = [seen(delivery.payload) for delivery in deliveries]
        assert found == [each for each, _ in expected]
        for delivery, ((name, _), lock) in zip(deliveries, expected, strict=True):
            self.tokens[name] = delivery.token, lock

    def orders(self, home: Home) -> list[int]:
        """One or two sequence numbers of messages there, or of something else."""
        there = [item.order for item in self.model.items if item.home is home]
        if not there or self.random.random() < 0.1:
            there.append(self.random.randint(1, self.model.orders + 2))
        return [self.random.choice(there) for _ in range(self.random.choice((1, 1, 2)))]

    # ---- the commands

    def send(self) -> Act:
        messages = [self.sent(later=self.random.random() < 0.1) for _ in range(self.random.choice((1, 1, 1, 3)))]

        def on_model(model: Model, now: int) -> None:
            for each in messages:
                if each.at is None:
                    model.send(each.name, each.message_id, each.session, now, each.ttl_ms)
                else:
                    model.send_scheduled(each.name, each.message_id, each.session, now, each.at, each.ttl_ms)

        return Act(lambda reply: send_whole([each.message for each in messages], reply), on_model)

    def schedule(self) -> Act:
        each = self.sent(later=True)

        def on_model(model: Model, now: int) -> list[int]:
            model.schedule(each.name, each.message_id, each.session, now, each.at or 0, each.ttl_ms)
            return [model.orders]

        return Act(lambda reply: Schedule([each.message], reply), on_model)

    def reserve(self) -> Act:
        def on_model(model: Model, now: int) -> list[int]:
            model.orders += 2
            return [model.orders - 1, model.orders]

        return Act(lambda reply: Reserve(2, reply), on_model)

    def forwarded(self) -> Act:
        """Messages from another entity's outbox; some of them may have come before, and are dropped."""
        source = self.random.choice(((8, 2), (8, 3)))
        known = self.model.forwarded_up_to.get(source, 0)
        number = max(1, known + self.random.randint(-1, 2))
        messages = [(number + step, self.sent()) for step in range(self.random.randint(1, 3))]
        records = [
            (step, Record(each.message.stored(self.now, None), self.now, 0, 77, other_path="from afar"))
            for step, each in messages
        ]

        def on_model(model: Model, now: int) -> None:
            for step, each in messages:
                model.forwarded(source, step, each.name, each.message_id, each.session, now)

        return Act(lambda reply: StoreForwarded(*source, records, reply), on_model)

    def cancel(self) -> Act:
        orders = self.orders(Home.SCHEDULED)
        return Act(lambda reply: CancelScheduled(orders, reply), lambda model, _: model.cancel(orders), is_done)

    def take(self) -> Act:
        line = self.random.choice(LINES if not self.sessions else LINES[3:])
        count = self.random.randint(1, 5)
        remove = self.random.random() < 0.1
        mode = ReceiveMode.RECEIVE_AND_DELETE if remove else PEEK
        return Act(
            lambda reply: Receive(line, count, mode, reply),
            lambda model, now: model.take(line, count, now, remove),
            lambda answer, expected: self.noted(answer.deliveries, expected),
        )

    def settle(self) -> Act | None:
        known = self.token()
        if known is None:
            return None
        name, token, lock = known
        outcome = self.random.choice(OUTCOMES)()
        return Act(
            lambda reply: settle_alone(token, outcome, reply),
            lambda model, now: model.settle(name, lock, outcome, now),
            is_done,
        )

    def settle_run(self) -> Act | None:
        """A run of settlements: of locks that have not ended yet, of any others, of the same twice, of nobody's."""
        locked = [item.name for item in self.model.items if item.locked_until is not None]
        anyone = [*locked, self.random.choice(list(self.tokens))] if self.tokens else []
        if not anyone:
            return None
        names = self.random.choices(anyone, k=self.random.choice((1, 3, 6)))
        tokens = [*((name, *self.tokens[name]) for name in names), ("", self.random.randbytes(16), 0)]
        self.random.shuffle(tokens)
        positions = sorted(self.random.sample(range(50), len(tokens)))
        outcome = self.random.choice(OUTCOMES)()

        def on_model(model: Model, now: int) -> dict[int, bool]:
            ended = [model.settle(name, lock, outcome, now) for name, _, lock in tokens]
            return dict(zip(positions, ended, strict=True))

        def make(reply: Reply) -> Settle:
            return Settle([each[1] for each in tokens], positions, outcome, lambda *part: reply(Part(*part)))

        return Act(make, on_model, ended_in_parts, in_parts=True)

    def commit(self) -> Act:
        """A transaction of a send, a transfer and up to two settlements: all or nothing."""
        sent, passed = self.sent(), self.sent()
        chosen = [
            (name, *self.tokens[name], self.random.choice(OUTCOMES)())
            for name in self.random.sample(list(self.tokens), min(2, len(self.tokens)))
        ]
        operations: list[Any] = [(self.place, Transfer(passed.message, "elsewhere"))]
        operations += [(self.place, Settle((token,), (), outcome, None)) for _, token, _, outcome in chosen]
        operations.append((self.place, Send([sent.message])))  # it comes first, wherever it stands

        def on_model(model: Model, now: int) -> bool:
            if not all(model.can_settle(name, lock, outcome, now) for name, _, lock, outcome in chosen):
                return False
            model.send(sent.name, sent.message_id, sent.session, now, sent.ttl_ms)
            model.transfer(passed.name, passed.session, now, passed.ttl_ms)
            for name, _, lock, outcome in chosen:
                assert model.settle(name, lock, outcome, now)
            return True

        return Act(lambda reply: Commit(operations, reply), on_model, is_done)

    def read_outbox(self) -> Act:
        return Act(
            lambda reply: ReadOutbox(3, reply),
            lambda model, _: model.outbox(3),
            lambda answer, expected: same(
                [(home, number, name_of(record.stored)) for home, number, record in answer], expected
            ),
        )

    def delivered(self) -> Act:
        orders = list(dict.fromkeys(self.orders(Home.TRANSFER_OUTBOX)))
        rows = [(int(Home.TRANSFER_OUTBOX), order) for order in orders]
        return Act(lambda reply: DeleteForwarded(rows, reply), lambda model, _: model.delivered(orders))

    def undeliverable(self) -> Act:
        order = self.orders(Home.TRANSFER_OUTBOX)[0]
        reason = self.random.choice((None, "It is gone."))
        return Act(
            lambda reply: Undeliverable(Home.TRANSFER_OUTBOX, order, reason, "", reply),
            lambda model, now: model.undeliverable(order, reason, now),
        )

    def take_deferred(self) -> Act:
        line = self.random.choice(LINES)
        orders = self.orders(DEFERRED_HOMES[line])
        session = self.random.choice(NAMES) if self.sessions else None

        def check(answer: Any, expected: list[TAKEN] | None) -> None:
            assert isinstance(answer, BrokerError) == (expected is None)
            if expected is not None:
                self.noted(answer, expected)

        return Act(
            lambda reply: ReceiveDeferred(line, orders, PEEK, session, reply),
            lambda model, now: model.take_deferred(line, orders, now, session),
            check,
        )

    def renew(self) -> Act | None:
        known = self.token()
        if known is None:
            return None
        name, token, lock = known
        line = LINES[lock % len(LINES)]
        return Act(
            lambda reply: Renew(line, [token], reply),
            lambda model, now: model.renew(line, name, lock, now),
            lambda answer, expected: same(answer[0] if isinstance(answer, list) else None, expected),
        )

    def look(self) -> Act:
        line = self.random.choice(LINES)
        if self.random.random() < 0.5:
            return Act(
                lambda reply: GetExtent(line, reply),
                lambda model, _: model.extent(line),
                lambda answer, expected: same(
                    (answer.first_sequence_number, answer.next_sequence_number, answer.message_count), expected
                ),
            )
        return Act(
            lambda reply: Peek(line, 0, 1 << 20, 1 << 30, None, reply),
            lambda model, _: model.peek(line),
            lambda answer, expected: same([name_of(payload) for _, payload in answer], expected),
        )

    def delete(self) -> Act | None:
        if self.random.random() > 0.3:
            return None
        line = self.random.choice(LINES)
        before = self.now - self.random.choice((0, 2_000))
        count = self.random.randint(1, 4)
        below = self.random.choice((1 << 60, self.model.orders // 2))
        return Act(
            lambda reply: DeleteMessages(line, count, before, None, reply, below),
            lambda model, now: model.delete(line, count, before, below, now),
        )

    # ---- sessions

    def accept(self) -> Act:
        name = self.random.choice((*NAMES, None, None))
        token = None if name is None else self.random.choice((None, *LOCK_TOKENS))
        shared = None if token is None else SharedLock(token)

        def check(answer: Received[Any], expected: Held | None) -> None:
            grants: list[SessionGrant] = answer.deliveries
            assert [grant.session_id for grant in grants] == ([] if expected is None else [expected.name])
            if expected is not None:
                assert (grants[0].token, grants[0].until_at) == (token, expected.until)
                self.holdings[expected.name] = grants[0].grant, expected.holding

        return Act(
            lambda reply: AcceptSession(name, nothing, nothing, nothing, reply, shared=shared),
            lambda model, now: model.accept(name, now, token),
            check,
        )

    def accept_next(self) -> Act:
        return Act(
            lambda reply: AcceptSession(None, nothing, nothing, nothing, reply),
            lambda model, now: model.accept(None, now),
            lambda answer, held: same([grant.session_id for grant in answer.deliveries], [held.name]),
        )

    def holding(self) -> tuple[str, int, int] | None:
        """A session with its grant, which may be over."""
        if not self.holdings:
            return None
        name = self.random.choice(list(self.holdings))
        return (name, *self.holdings[name])

    def take_from_session(self) -> Act | None:
        known = self.holding()
        if known is None:
            return None
        name, grant, holding = known
        count = self.random.randint(1, 4)

        def check(answer: Received[Any], expected: list[TAKEN] | None) -> None:
            assert (answer.error is not None) == (expected is None)
            self.noted(answer.deliveries, expected or [])

        return Act(
            lambda reply: ReceiveFromSession(grant, count, PEEK, reply),
            lambda model, now: model.take_from_session(name, holding, count, now),
            check,
        )

    def release_session(self) -> Act | None:
        known = self.holding()
        if known is None:
            return None
        name, grant, holding = known
        return Act(lambda _: ReleaseSession(grant), lambda model, now: model.give_back(name, holding, now), None)

    def renew_session(self) -> Act:
        name = self.random.choice(NAMES)
        return Act(
            lambda reply: RenewSession(name, reply),
            lambda model, now: model.renew_session(name, now),
            lambda answer, expected: same(answer if isinstance(answer, int) else None, expected),
        )

    def session_state(self) -> Act:
        name = self.random.choice(NAMES)
        state = self.random.choice((None, b"", b"state", b"another"))
        return Act(
            lambda reply: SetSessionState(name, state, reply),
            lambda model, now: model.set_state(name, now, state),
            is_done,
        )

    def look_at_sessions(self) -> Act:
        name = self.random.choice(NAMES)
        if self.random.random() < 0.5:
            return Act(lambda reply: ListSessions(None, reply), lambda model, _: model.list_sessions())
        return Act(
            lambda reply: GetSessionState(name, reply),
            lambda model, now: (model.holds(name, now), model.states.get(name)),
            lambda answer, expected: same(answer, expected[1]) if expected[0] else is_done(answer, False),
        )

    # ---- time

    def expire_locks(self) -> Act:
        return Act(lambda _: ExpireLocks(), lambda model, now: model.expire_locks(now), None)

    def fall_due(self) -> Act:
        rows = self.cell.due_rows(self.place.queue_id, self.now)
        return Act(lambda _: ProcessDue(rows), lambda model, now: model.fall_due(now), None)

    def actions(self) -> Sequence[Callable[[], Act | None]]:
        """All of them, those that keep the others busy more often."""
        outbox = (self.read_outbox, self.delivered, self.undeliverable)
        rare = (self.schedule, self.reserve, self.forwarded, self.cancel, self.commit, self.take_deferred, self.renew)
        time = (*[self.expire_locks] * 2, self.fall_due)
        often = (*[self.send] * 6, *[self.take] * 5, *[self.settle] * 6, *[self.settle_run] * 4)
        plain = (*often, *rare, *outbox, self.look, self.delete, *time)
        if not self.sessions:
            return plain
        in_sessions = (self.release_session, self.renew_session, self.session_state, self.look_at_sessions)
        return (*plain, *[self.accept] * 4, *[self.take_from_session] * 6, *in_sessions)


def simulated(seed: int, commands: int) -> Simulation:
    """A simulation that has run so many commands."""
    simulation = Simulation(seed)
    checked = 0
    while simulation.done < commands:
        simulation.step()
        if simulation.done - checked > 250:
            simulation.check()
            checked = simulation.done
    simulation.check()
    return simulation


def tidy_up(simulation: Simulation) -> None:
    """Let all sessions go, accept all that have messages, let them go again."""
    now = simulation.now = simulation.now + LOCK_MS
    simulation.run([simulation.expire_locks(), simulation.fall_due()])
    while simulation.model.fork().accept(None, now) is not None:
        simulation.run([simulation.accept_next()])
    simulation.now += LOCK_MS
    simulation.run([simulation.expire_locks()])


@pytest.mark.parametrize("seed", SEEDS)
def test_a_partition_behaves_like_the_plain_model(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if seed % 4 == 0:
        monkeypatch.setattr(sessions, "IDLE_WINDOW_MAX", 2)
        monkeypatch.setattr(ready_queue, "NUMBERS_READ_MAX", 3)
    simulation = simulated(seed, COMMANDS_PER_SEED)
    assert min(simulation.found.values()) > 0  # both outcomes of commits that failed
    tidy_up(simulation)
    simulation.check_sessions(exactly=True)
    cleared: list[bool | BrokerError] = []
    while not cleared or cleared[-1]:
        assert simulation.cell.run(simulation.now, (simulation.place, DeleteRows(37, cleared.append))) is None
        if cleared[-1]:
            simulation.cell.check()
    assert simulation.cell.rows_left() == {}
    assert simulation.named > COMMANDS_PER_SEED / 10


@pytest.mark.parametrize("seed", range(1, 13))
def test_the_simulation_notices_a_store_that_keeps_half_of_a_batch(seed: int) -> None:
    simulation = simulated(seed, 300)
    simulation.failing, simulation.failures = (Fate.HALF,), 1.0
    with pytest.raises(AssertionError, match="neither all nor nothing is stored"):
        simulation.steps(20)
