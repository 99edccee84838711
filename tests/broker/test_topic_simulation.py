"""Random commands against a topic with three subscriptions, and against plain rows of it.

One subscription keeps its messages, one forwards everything, one forwards its dead letters; two queues in another store
take what is forwarded. Commits fail now and then, in either store: all of a batch is stored or nothing, in all the
partitions that it touched, and what is forwarded arrives once and in order whatever happens on the way.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

import pytest

from emubus.broker.address import SubQueue
from emubus.broker.api import Abandon, Complete, DeadLetter, Home, Outcome, ReceiveMode
from emubus.broker.errors import BrokerError
from emubus.broker.message.bounds import STANDARD_BOUNDS, MessageBounds
from emubus.broker.message.message import Message, parse_message
from emubus.broker.model.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from emubus.broker.partition.contract import PartitionRef, Received, RoutedMessage
from emubus.broker.partition.records import HOMES, ByteTotal, Due, Record
from emubus.broker.partition.requests import (
    Commit,
    DeleteForwarded,
    ProcessDue,
    ReadOutbox,
    Receive,
    Request,
    Reserve,
    Schedule,
    Send,
    SendDeadLetters,
    Settle,
    StoreForwarded,
    Undeliverable,
)

from .driving import encoded, send_whole, settle_alone
from .tearing import FAILURE, Cell, Fate, Picture, hash_of, name_of, picture_of

SEEDS_THAT_FAILED: tuple[int, ...] = ()
SEEDS = (*range(1, 21), *SEEDS_THAT_FAILED)
COMMANDS_PER_SEED = 1_000
DELIVERIES_MAX = 2
TOPIC = TopicDescription("t", requires_duplicate_detection=True, duplicate_window_ms=10_000)
KEEPS, FORWARDS, BURIES, ELSEWHERE, GRAVE = 2, 3, 4, 11, 12
SUBSCRIPTIONS = {
    KEEPS: SubscriptionDescription("t", "keeps", max_delivery_count=DELIVERIES_MAX),
    FORWARDS: SubscriptionDescription("t", "forwards", forward_to="elsewhere"),
    BURIES: SubscriptionDescription("t", "buries", max_delivery_count=DELIVERIES_MAX, forward_dead_letters_to="grave"),
}
QUEUES = {ELSEWHERE: QueueDescription("elsewhere"), GRAVE: QueueDescription("grave")}
TARGETS = {FORWARDS: ELSEWHERE, BURIES: GRAVE}
OUTBOXES = {FORWARDS: Home.OUTBOX, BURIES: Home.DEAD_LETTER_OUTBOX}

Reply = Callable[[Any], None]


@dataclass
class Place:
    """A partition (`state.PartitionRef`) whose announcements nobody waits for."""

    queue_id: int
    description: Any
    routing: Any = None
    total: ByteTotal | None = None
    index: int = 0
    partitioned: bool = False
    size_bytes_max: int = 1 << 30
    first_counter: int = 1
    gone: None = None
    bounds: MessageBounds = STANDARD_BOUNDS
    delays: None = None

    @property
    def path(self) -> str:
        return str(self.description.name)

    @property
    def name_in_errors(self) -> str:
        return f"ns:Queue:{self.path}"

    def announce(self, sub_queue: SubQueue) -> None: ...

    def announce_session(self, argument: None) -> None: ...

    def announce_outbox(self, argument: None) -> None: ...


class SubscriptionRouting:
    """Every subscription gets every message (`state.SubscriptionRouting`)."""

    def __init__(self, places: list[Place]) -> None:
        self._handles = places

    @property
    def evaluations_max(self) -> int:
        return 0

    def matching(self, message: Message, now: int) -> Generator[None, None, object]:
        raise AssertionError(message, now)

    def route(
        self, message: Message, partition_index: int, now: int, matches: object | None = None
    ) -> list[RoutedMessage]:
        assert matches is None
        return [RoutedMessage(place, message) for place in self._handles]

    def subscriptions(self, partition_index: int) -> list[PartitionRef]:
        return list(self._handles)


# ---- the model: rows by queue, home and number


@dataclass
class Row:
    name: str
    home: Home
    at: int
    origin: int
    due_at: int = 0
    count: int = 0
    hops: int = 0
    note: str = ""
    reason: str | None = None
    own: int = 0
    """In the outbox of dead letters: its number in the queue."""

    def reported(self) -> tuple[object, ...]:
        return self.name, self.count, self.at, self.own, self.origin, self.hops, self.note, self.reason


@dataclass
class Rows:
    """What a partition has."""

    next: int = 1
    rows: dict[int, Row] = field(default_factory=dict)
    locked: dict[int, bytes] = field(default_factory=dict)
    remembered: dict[str, int] = field(default_factory=dict)
    forgets: set[tuple[int, str]] = field(default_factory=set)
    forwarded: dict[tuple[int, int], int] = field(default_factory=dict)

    def number(self) -> int:
        self.next += 1
        return self.next - 1

    def put(self, home: Home, name: str, at: int, origin: int = 0, **fields: Any) -> None:
        number = self.number()
        self.rows[number] = Row(name, home, at, origin or number, **fields)

    def waiting(self, home: Home) -> list[tuple[int, str]]:
        there = sorted((number, row.name) for number, row in self.rows.items() if row.home is home)
        return [(number, name) for number, name in there if number not in self.locked]

    def picture(self) -> Picture:
        counts = Counter(row.home for row in self.rows.values())
        scheduled = {number: row.due_at for number, row in self.rows.items() if row.home is Home.SCHEDULED}
        return {
            "messages": {(row.home, number): row.reported() for number, row in self.rows.items()},
            "next": self.next,
            "counts": [counts[home] for home in HOMES],
            "bytes miscounted": 0,
            "state bytes miscounted": 0,
            "due": {(Due.ACTIVATE, at, number) for number, at in scheduled.items()}
            | {(Due.FORGET, until, hash_of(message_id)) for until, message_id in self.forgets},
            "duplicates": {hash_of(message_id): until for message_id, until in self.remembered.items()},
            "forwarded": self.forwarded,
            "in sessions": set(),
            "session states": {},
        }


class Model:
    """The topic, its subscriptions and the queues, as rows."""

    def __init__(self) -> None:
        self.of = {queue_id: Rows() for queue_id in (1, *SUBSCRIPTIONS, *QUEUES)}

    def picture(self) -> dict[int, Picture]:
        return {queue_id: rows.picture() for queue_id, rows in self.of.items()}

    def send(self, names: list[tuple[str, str]], now: int) -> None:
        topic = self.of[1]
        for name, message_id in names:
            if topic.remembered.get(message_id, 0) <= now:
                until = topic.remembered[message_id] = now + TOPIC.duplicate_window_ms
                topic.forgets.add((until, message_id))
                self.publish(name, now)

    def publish(self, name: str, now: int) -> None:
        origin = self.of[1].number()
        for queue_id in SUBSCRIPTIONS:
            self.of[queue_id].put(Home.OUTBOX if queue_id == FORWARDS else Home.ACTIVE, name, now, origin)

    def schedule(self, name: str, now: int, at: int, number: int | None = None) -> int:
        """By the numbers that were reserved, or by new ones."""
        number = self.of[1].number() if number is None else number
        self.of[1].rows[number] = Row(name, Home.SCHEDULED, now, number, due_at=at)
        return number

    def fall_due(self, now: int) -> None:
        topic = self.of[1]
        due = sorted((row.due_at, number) for number, row in topic.rows.items() if row.due_at <= now)
        for _, number in due:
            self.publish(topic.rows.pop(number).name, now)
        for until, message_id in [each for each in topic.forgets if each[0] <= now]:
            topic.forgets.remove((until, message_id))
            if topic.remembered.get(message_id, now + 1) <= now:
                del topic.remembered[message_id]

    def take(self, queue_id: int, count: int) -> list[tuple[int, str]]:
        return self.of[queue_id].waiting(Home.ACTIVE)[:count]

    def settle(self, queue_id: int, token: bytes, outcome: Outcome) -> bool:
        here = self.of[queue_id]
        number = next((number for number, held in here.locked.items() if held == token), None)
        if number is None:
            return False
        del here.locked[number]
        row = here.rows[number]
        reason = outcome.reason if isinstance(outcome, DeadLetter) else None
        if isinstance(outcome, Abandon):
            row.count += 1
            if row.count < DELIVERIES_MAX:
                return True
            reason = "MaxDeliveryCountExceeded"
        if isinstance(outcome, Complete):
            del here.rows[number]
        else:
            row.home, row.reason = Home.DEAD_LETTER, reason
        return True

    def send_dead_letters(self, queue_id: int, count: int) -> int:
        here = self.of[queue_id]
        waiting = here.waiting(Home.DEAD_LETTER)[:count]
        for number, _ in waiting:
            row = here.rows.pop(number)
            row.home, row.own = Home.DEAD_LETTER_OUTBOX, number
            here.rows[here.number()] = row
        return len(waiting)

    def forwarded(self, source: int, numbers: list[int], now: int) -> None:
        target = self.of[TARGETS[source]]
        for number in numbers:
            row = self.of[source].rows[number]
            if number > target.forwarded.get((source, 0), 0):
                reported = {"hops": row.hops + 1, "note": row.note, "reason": row.reason}
                target.put(Home.ACTIVE, row.name, now, row.origin, **reported)
                target.forwarded[source, 0] = number

    def delivered(self, queue_id: int, numbers: list[int]) -> None:
        for number in numbers:
            del self.of[queue_id].rows[number]

    def undeliverable(self, queue_id: int, number: int, reason: str | None, now: int) -> None:
        here = self.of[queue_id]
        row = here.rows.pop(number)
        if queue_id == FORWARDS and reason is None:  # the setting is there, so that it goes back to the outbox
            here.put(Home.OUTBOX, row.name, now, row.origin, hops=row.hops)
        elif queue_id == FORWARDS:
            row.home, row.reason = Home.DEAD_LETTER, reason
            here.rows[number] = row
        else:
            here.rows[row.own] = row
            row.home, row.own = Home.DEAD_LETTER, 0


# ---- both together


class World:
    """The partitions over two stores, the model, and what the clients know."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        total = ByteTotal()
        subscriptions = [Place(queue_id, each, total=total) for queue_id, each in SUBSCRIPTIONS.items()]
        places = [Place(1, TOPIC, SubscriptionRouting(subscriptions), total), *subscriptions]
        places += [Place(queue_id, each) for queue_id, each in QUEUES.items()]
        self.places = {place.queue_id: place for place in places}
        self.here, self.there = Cell(), Cell()
        self.cells = {queue_id: self.there if queue_id in QUEUES else self.here for queue_id in self.places}
        self.model = Model()
        self.now = 1_700_000_000_000
        self.failing: tuple[Fate, ...] = (Fate.REFUSED, Fate.UNCONFIRMED)
        self.failures = 0.08
        self.found = {"nothing": 0, "all": 0}
        self.tokens: list[tuple[int, bytes]] = []
        self.gives_up = 0.2  # of what is to be forwarded
        self.named = 0
        self.done = 0

    def run(self, queue_id: int, make: Callable[[Reply], Request], on_model: Callable[[Model], object]) -> Any:
        """A command in a batch of its own, for the partition and for the model; its answer, FAILURE if none of it."""
        answers: list[Any] = []
        command = make(answers.append)
        cell = self.cells[queue_id]
        fate = self.random.choice(self.failing) if self.random.random() < self.failures else Fate.STORED
        cell.store.fate = fate
        dropped = cell.run(self.now, (self.places[queue_id], command))
        cell.store.fate = Fate.STORED
        self.done += 1
        if dropped is None:
            on_model(self.model)
        else:
            assert [getattr(answer, "error", answer) for answer in answers] in ([], [FAILURE])
            self.resolve(on_model)
            for each in dropped:
                self.model.of[each].locked.clear()
        return answers[0] if answers else None

    def resolve(self, on_model: Callable[[Model], object]) -> None:
        """After a commit that failed: all of it is stored, or nothing."""
        found = self.picture()
        if found == self.model.picture():
            self.found["nothing"] += 1
            return
        on_model(self.model)
        assert found == self.model.picture(), "a part is stored"
        self.found["all"] += 1

    def picture(self) -> dict[int, Picture]:
        return {queue_id: picture_of(self.cells[queue_id].store, queue_id) for queue_id in self.model.of}

    def check(self) -> None:
        for cell in (self.here, self.there):
            cell.check()
        assert self.picture() == self.model.picture()

    # ---- the commands

    def message(self) -> tuple[tuple[str, str], Message]:
        self.named += 1
        repeats = self.named > 1 and self.random.random() < 0.15
        message_id = f"id-{self.random.randrange(1, self.named)}" if repeats else f"id-{self.named}"
        name = f"{self.named:06}"
        return (name, message_id), parse_message(encoded(f"name:{name}", id=message_id))

    def send(self) -> None:
        both = [self.message() for _ in range(self.random.choice((1, 1, 3)))]
        send = Send([message for _, message in both])
        names = [name for name, _ in both]
        if self.random.random() < 0.3:
            make: Callable[[Reply], Request] = lambda reply: Commit([(self.places[1], send)], reply)  # noqa: E731
        else:
            make = lambda reply: send_whole(send.messages, reply)  # noqa: E731
        self.run(1, make, lambda model: model.send(names, self.now))

    def schedule(self) -> None:
        """Alone, or in a transaction by numbers that were reserved before."""
        from proton import timestamp

        self.named += 1
        name, at = f"{self.named:06}", self.now + self.random.choice((1_000, 5_000))
        messages = [parse_message(encoded(f"name:{name}", annotations={"x-opt-scheduled-enqueue-time": timestamp(at)}))]
        if self.random.random() < 0.5:
            now = self.now
            self.run(1, lambda reply: Schedule(messages, reply), lambda model: model.schedule(name, now, at))
            return
        numbers = self.run(1, lambda reply: Reserve(1, reply), lambda model: model.of[1].number())
        if numbers is not FAILURE:
            schedule = Schedule(messages, lambda _: None, numbers)
            self.run(
                1,
                lambda reply: Commit([(self.places[1], schedule)], reply),
                lambda model: model.schedule(name, self.now, at, numbers[0]),
            )

    def receive(self) -> None:
        queue_id = self.random.choice((KEEPS, BURIES))
        count = self.random.randint(1, 4)
        taken: Received[Any] = self.run(
            queue_id, lambda reply: Receive(SubQueue.ACTIVE, count, ReceiveMode.PEEK_LOCK, reply), lambda _: None
        )
        found = [(each.sequence_number, name_of(each.payload)) for each in taken.deliveries]
        assert found == self.model.take(queue_id, count)
        for each in taken.deliveries:
            self.model.of[queue_id].locked[each.sequence_number] = each.token
            self.tokens.append((queue_id, each.token))

    def settle(self) -> None:
        """Up to two of one subscription, together in a transaction or one alone."""
        if not self.tokens:
            return
        queue_id, token = self.tokens.pop(self.random.randrange(len(self.tokens)))
        outcome = self.random.choice((Complete(), Complete(), DeadLetter("why"), Abandon()))
        expected = token in self.model.of[queue_id].locked.values()
        answer = self.run(
            queue_id,
            lambda reply: settle_alone(token, outcome, reply),
            lambda model: model.settle(queue_id, token, outcome),
        )
        assert answer is FAILURE or (answer is None) == expected

    def move(self) -> None:
        """A transaction over a topic and its subscription: a message is settled and another one sent."""
        if not self.tokens:
            return
        queue_id, token = self.tokens.pop(self.random.randrange(len(self.tokens)))
        name, message = self.message()
        operations: list[Any] = [
            (self.places[queue_id], Settle((token,), (), Complete(), None)),
            (self.places[1], Send([message])),
        ]

        def on_model(model: Model) -> None:
            if model.settle(queue_id, token, Complete()):
                model.send([name], self.now)

        answer = self.run(queue_id, lambda reply: Commit(operations, reply), on_model)
        assert answer is None or isinstance(answer, BrokerError)

    def carry(self) -> None:
        """What waits in an outbox arrives elsewhere, or can't; as the forwarder does it, step by step."""
        queue_id = self.random.choice((FORWARDS, BURIES))
        if queue_id == BURIES:
            count = self.random.choice((1, 2, 5))
            self.run(
                queue_id,
                lambda reply: SendDeadLetters(count, reply),
                lambda model: model.send_dead_letters(queue_id, count),
            )
        rows: list[tuple[int, int, Record]] = self.run(queue_id, lambda reply: ReadOutbox(5, reply), lambda _: None)
        waiting = self.model.of[queue_id].waiting(OUTBOXES[queue_id])[:5]
        assert [(number, name_of(record.stored)) for _, number, record in rows] == waiting
        if rows and self.random.random() < self.gives_up:
            home, number, _ = rows[0]
            reason = self.random.choice(("It is gone.", None)) if queue_id == FORWARDS else None
            self.run(
                queue_id,
                lambda reply: Undeliverable(home, number, reason, "", reply),
                lambda model: model.undeliverable(queue_id, number, reason, self.now),
            )
        elif rows:
            records = [(number, record) for _, number, record in rows]
            numbers = [number for _, number, _ in rows]
            answer = self.run(
                TARGETS[queue_id],
                lambda reply: StoreForwarded(queue_id, 0, records, reply),
                lambda model: model.forwarded(queue_id, numbers, self.now),
            )
            if answer is None:
                self.run(
                    queue_id,
                    lambda reply: DeleteForwarded([(home, number) for home, number, _ in rows], reply),
                    lambda model: model.delivered(queue_id, numbers),
                )

    def pass_time(self) -> None:
        self.now += self.random.choice((500, 2_000))
        due = self.here.due_rows(1, self.now)
        self.run(1, lambda _: ProcessDue(due), lambda model: model.fall_due(self.now))

    def reopen(self) -> None:
        self.here.reopen()
        self.there.reopen()
        for rows in self.model.of.values():
            rows.locked.clear()

    def steps(self, count: int) -> None:
        for _ in range(count):
            self.step()

    def step(self) -> None:
        actions = (*[self.send] * 5, self.schedule, *[self.receive] * 6, *[self.settle] * 9, self.move)
        self.random.choice((*actions, *[self.carry] * 4, self.pass_time))()
        if self.random.random() < 0.01:
            self.reopen()


def simulated(seed: int, commands: int) -> World:
    """A world in which so many commands were run."""
    world = World(seed)
    checked = 0
    while world.done < commands:
        world.step()
        if world.done - checked > 200:
            world.check()
            checked = world.done
    world.check()
    return world


@pytest.mark.parametrize("seed", SEEDS)
def test_a_topic_and_its_subscriptions_behave_like_plain_rows(seed: int) -> None:
    world = simulated(seed, COMMANDS_PER_SEED)
    assert world.named > COMMANDS_PER_SEED / 8
    assert min(world.found.values()) > COMMANDS_PER_SEED / 200


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_forwarded_arrives_once_and_in_order_though_commits_fail(seed: int) -> None:
    world = World(seed)
    world.failures, world.gives_up = 0.3, 0.0
    while world.done < 300:
        world.send()
        world.carry()
    world.failures = 0.0
    while world.model.of[FORWARDS].waiting(Home.OUTBOX):
        world.carry()
    world.check()
    arrived = [name for _, name in world.model.of[ELSEWHERE].waiting(Home.ACTIVE)]
    assert arrived == [name for _, name in world.model.of[KEEPS].waiting(Home.ACTIVE)]
    assert len(arrived) > 50


@pytest.mark.parametrize("seed", range(1, 7))
def test_the_simulation_notices_a_store_that_keeps_half_of_a_batch(seed: int) -> None:
    world = simulated(seed, 100)
    world.failing, world.failures = (Fate.HALF,), 1.0
    with pytest.raises(AssertionError, match="a part is stored"):
        world.steps(20)
