"""Random commands against a topic's partition with three subscriptions in one store, and against plain lists.

One subscription keeps its messages, one forwards everything, one forwards its dead letters. Commits are refused now and
then: then nothing of the batch may be in any of them.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from emubus.broker.address import SubQueue
from emubus.broker.commands import (
    Command,
    Commit,
    Delivered,
    FallDue,
    ReadOutbox,
    ReceiveMode,
    Reserve,
    Schedule,
    Send,
    Settle,
    Step,
    Take,
    Taken,
    Undeliverable,
)
from emubus.broker.description import SubscriptionDescription, TopicDescription
from emubus.broker.errors import BrokerError, Condition
from emubus.broker.line import Reader, WindowBudget
from emubus.broker.message import Message, parse_message
from emubus.broker.outcomes import Complete, DeadLetter
from emubus.broker.partition import Partition
from emubus.broker.records import DUE, DUE_KEY, STATE, STATE_KEY, TABLES, Home, Record
from emubus.broker.state import Copy, PartitionRef
from emubus.storage import MemoryStore, StoreError

from .driving import decoded, encoded

SEEDS = range(1, 21)
COMMANDS_PER_SEED = 600
TOPIC = TopicDescription("t", requires_duplicate_detection=True, duplicate_window_ms=10_000)
SUBSCRIPTIONS = {
    2: SubscriptionDescription("t", "keeps"),
    3: SubscriptionDescription("t", "forwards", forward_to="elsewhere"),
    4: SubscriptionDescription("t", "buries", forward_dead_letters_to="grave"),
}
REFUSAL = BrokerError(Condition.SERVER_BUSY, "refused by the test")


@dataclass
class Place:
    """A partition of the topic or of a subscription (`state.PartitionRef`)."""

    queue_id: int
    description: Any
    fan_out: Any = None
    index: int = 0
    partitioned: bool = False
    size_bytes_max: int = 1 << 30

    @property
    def path(self) -> str:
        return str(self.description.name)

    def announce(self, sub_queue: SubQueue) -> None:
        """Nobody waits here."""

    def announce_session(self, argument: None) -> None:
        """Nobody waits here."""

    def announce_outbox(self, argument: None) -> None:
        """The test looks by itself."""


class World:
    """The partitions over one store, and lists of what should be in them."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.refusing = False
        self.store = MemoryStore(TABLES, self._failpoint)
        self.places = {queue_id: Place(queue_id, each) for queue_id, each in SUBSCRIPTIONS.items()}
        self.topic = Place(1, TOPIC, fan_out=self)
        self.partitions: dict[int, Partition] = {}
        self.budget = WindowBudget(1 << 20)
        self.now = 1_700_000_000_000
        self.order: dict[str, int] = {}  # in which the messages arrived in the subscriptions
        self.active: dict[int, list[str]] = {2: [], 4: []}
        self.locked: dict[bytes, tuple[int, str]] = {}
        self.outbox: dict[int, list[str]] = {3: [], 4: []}
        self.buried: list[str] = []  # of subscription 3, what could not be forwarded
        self.scheduled: list[tuple[int, str]] = []
        self.seen: dict[str, int] = {}
        self.named = 0

    def _failpoint(self, name: str) -> None:
        if self.refusing and name == "batch-applied":
            raise OSError("refused by the test")

    # ---- what the topic's partition asks (`state.FanOut`)

    def copies(self, message: Message, partition_index: int, now: int) -> list[Copy]:
        return [Copy(place, message) for place in self.places.values()]

    def subscriptions(self, partition_index: int) -> list[PartitionRef]:
        return list(self.places.values())

    # ---- running

    def _partition(self, ref: Any, view: Reader) -> Partition:
        if ref.queue_id not in self.partitions:
            self.partitions[ref.queue_id] = Partition(ref, view, self.budget, self._partition)
        return self.partitions[ref.queue_id]

    def run(self, ref: Place, make: Callable[[Callable[[Any], None]], Command]) -> Any:
        """One command in a batch of its own; its answer, an error if the commit was refused."""
        answers: list[Any] = []
        command = make(answers.append)
        batch = self.store.begin(1 << 20)
        step = Step()
        self._partition(ref, batch).apply(command, self.now, batch, step)
        for table, key, value in step.changes:
            if value is None:
                batch.delete(table, key)
            else:
                batch.put(table, key, value)
        for queue_id, counters in step.touched.items():
            batch.put(STATE, STATE_KEY.pack(queue_id), counters.pack())
        try:
            batch.commit()
        except StoreError:
            self.reopen()
            command.fail(REFUSAL)
        else:
            for effect, argument in step.effects:
                effect(argument)
        return answers[0] if answers else None

    def reopen(self) -> None:
        self.partitions.clear()
        for queue_id, name in self.locked.values():
            self.active[queue_id].append(name)
        for names in self.active.values():
            names.sort(key=lambda name: self.order[name])
        self.locked.clear()

    # ---- the commands

    def message(self) -> tuple[str, str, Message]:
        self.named += 1
        repeats = self.named > 1 and self.random.random() < 0.15
        message_id = f"id-{self.random.randrange(1, self.named)}" if repeats else f"id-{self.named}"
        name = f"{self.named:06}"
        return name, message_id, parse_message(encoded(name, id=message_id))

    def publish(self, name: str, message_id: str) -> None:
        """In the model: a copy for each subscription, unless it is a duplicate."""
        if self.seen.get(message_id, 0) > self.now:
            return
        self.seen[message_id] = self.now + TOPIC.duplicate_window_ms
        self.arrive(name)

    def arrive(self, name: str) -> None:
        self.order[name] = len(self.order)
        for names in (*self.active.values(), self.outbox[3]):
            names.append(name)

    def send(self) -> None:
        name, message_id, message = self.message()
        in_transaction = self.random.random() < 0.3
        send = Send([message], lambda _: None)
        self.refusing = self.random.random() < 0.1
        if in_transaction:
            error = self.run(self.topic, lambda reply: Commit([(self.topic, send)], reply))
        else:
            error = self.run(self.topic, lambda reply: Send([message], reply))
        assert (error is REFUSAL) == self.refusing
        if error is None:
            self.publish(name, message_id)
        self.refusing = False

    def schedule(self) -> None:
        from proton import timestamp

        self.named += 1
        name, at = f"{self.named:06}", self.now + self.random.choice((1_000, 5_000))
        data = encoded(name, annotations={"x-opt-scheduled-enqueue-time": timestamp(at)})
        numbers = self.run(self.topic, lambda reply: Reserve(1, reply))
        assert self.run(self.topic, lambda reply: Schedule([parse_message(data)], reply)) > numbers
        self.scheduled.append((at, name))

    def receive(self) -> None:
        queue_id = self.random.choice((2, 4))
        count = self.random.randint(1, 4)
        taken: Taken = self.run(
            self.places[queue_id], lambda reply: Take(SubQueue.ACTIVE, count, ReceiveMode.PEEK_LOCK, reply)
        )
        names = [bytes(message.body).decode() for message in decoded(taken.deliveries)]
        assert names == self.active[queue_id][:count]
        del self.active[queue_id][:count]
        self.locked.update({each.token: (queue_id, name) for each, name in zip(taken.deliveries, names, strict=True)})

    def settle(self) -> None:
        if not self.locked:
            return
        token = self.random.choice(list(self.locked))
        queue_id, name = self.locked.pop(token)
        outcome = self.random.choice((Complete(), DeadLetter("why")))
        assert self.run(self.places[queue_id], lambda reply: Settle(token, outcome, reply)) is None
        if queue_id == 4 and isinstance(outcome, DeadLetter):
            self.outbox[4].append(name)

    def carry(self) -> None:
        """What waits in an outbox arrives elsewhere, or can't."""
        queue_id = self.random.choice((3, 4))
        place = self.places[queue_id]
        rows: list[tuple[int, int, Record]] = self.run(place, lambda reply: ReadOutbox(5, reply))
        assert [name_of(record) for _, _, record in rows] == self.outbox[queue_id][:5]
        if rows and queue_id == 3 and self.random.random() < 0.2:
            home, number, record = rows[0]
            self.run(place, lambda reply: Undeliverable(home, number, "Missing", "It is gone.", reply))
            self.buried.append(name_of(record))
            del self.outbox[3][0]
        elif rows:
            done = [(home, number) for home, number, _ in rows]
            self.run(place, lambda reply: Delivered(done, reply))
            del self.outbox[queue_id][: len(rows)]

    def pass_time(self) -> None:
        self.now += self.random.choice((500, 2_000))
        with self.store.view() as view:
            rows = view.scan(DUE, b"", DUE_KEY.pack(self.now + 1, 0, 0, 0), 1 << 20)
        due = [(at, what, number) for at, _, what, number in (DUE_KEY.unpack(key) for key, _ in rows)]
        self.run(self.topic, lambda _: FallDue(due))
        for at, name in sorted(self.scheduled):
            if at <= self.now:
                self.arrive(name)
        self.scheduled = [each for each in self.scheduled if each[0] > self.now]

    def check(self) -> None:
        with self.store.view() as view:
            for partition in self.partitions.values():
                partition.check_invariants(view)
            if 3 in self.partitions:
                counts = self.partitions[3].counters.messages
                assert counts[Home.OUTBOX] == len(self.outbox[3])
                assert counts[Home.DEAD_LETTER] == len(self.buried)


def name_of(record: Record) -> str:
    """The body of a stored message."""
    body = record.stored[record.stored.rindex(b"\x53\x75") :]
    return body[-6:].decode()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_topic_and_its_subscriptions_behave_like_plain_lists(seed: int) -> None:
    world = World(seed)
    actions = (
        *[world.send] * 5,
        world.schedule,
        *[world.receive] * 4,
        *[world.settle] * 4,
        *[world.carry] * 2,
        world.pass_time,
    )
    for number in range(COMMANDS_PER_SEED):
        world.random.choice(actions)()
        if world.random.random() < 0.01:
            world.reopen()
        if number % 50 == 0:
            world.check()
    world.check()
    assert world.named > COMMANDS_PER_SEED / 5
