"""Random commands against a partition and against a plain model of it: no difference, ever.

Each run prints its seed by its parameter; a seed that failed once is added to `SEEDS_THAT_FAILED`.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable

import pytest

from emubus.broker.address import SubQueue
from emubus.broker.commands import ExpireLocks, ExpireMessages, Peek, ReceiveMode, Renew, TakeDeferred
from emubus.broker.description import QueueDescription
from emubus.broker.errors import BrokerError
from emubus.broker.outcomes import Abandon, Complete, DeadLetter, Defer, Outcome, Release

from .driving import Driver, decoded, encoded
from .model import Model

SEEDS_THAT_FAILED: tuple[int, ...] = ()
SEEDS = (*range(1, 21), *SEEDS_THAT_FAILED)
COMMANDS_PER_SEED = 1500
LOCK_MS, DELIVERIES_MAX = 5_000, 3
OUTCOMES: tuple[Callable[[], Outcome], ...] = (Complete, Complete, Complete, Release, Abandon, Defer, DeadLetter)
LINES = ((SubQueue.ACTIVE, "active"), (SubQueue.ACTIVE, "active"), (SubQueue.DEAD_LETTER, "dead"))


class Simulation:
    """The partition, the model, and what both were told."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        dead_letter = seed % 2 == 0
        description = QueueDescription(
            "q",
            lock_duration_ms=LOCK_MS,
            max_delivery_count=DELIVERIES_MAX,
            dead_letter_on_expiration=dead_letter,
        )
        self.driver = Driver(description, index=0, partitioned=False)
        self.driver.budget.bytes_max = self.random.choice((600, 5_000, 1 << 20))
        self.model = Model(LOCK_MS, DELIVERIES_MAX, dead_letter)
        self.tokens: dict[int, bytes] = {}  # by number, the last lock given out
        self.sent = 0
        self.templates = [encoded("x" * size) for size in (0, 20, 300)]
        self.short_lived = [encoded("y", ttl=ttl) for ttl in (1, 4, 20)]

    def step(self) -> None:
        action = self.random.choice(ACTIONS)
        if self.random.random() < 0.02:
            self.refused(action)
        else:
            action(self)

    def refused(self, action: Callable[[Simulation], None]) -> None:
        """The same command with a store that refuses the commit: nothing has happened, all locks are gone."""
        before = copy.deepcopy(self.model)
        driver = self.driver
        driver.refusing = True
        random_state = self.random.getstate()
        try:
            if action in WRITING:
                action_without_comparing(self, action)
        finally:
            driver.refusing = False
            self.random.setstate(random_state)
        driver.reopen()
        self.model = before
        self.model.restart()

    # ---- the commands

    def send(self) -> None:
        ttl = self.random.random() < 0.3
        if ttl:
            choice = self.random.randrange(3)
            data, ttl_ms = self.short_lived[choice], (1, 4, 20)[choice] * 1000
        else:
            data, ttl_ms = self.random.choice(self.templates), None
        self.sent += 1
        assert self.driver.send(data) is None
        self.model.send("", self.driver.now, ttl_ms)

    def take(self) -> None:
        sub_queue, line = self.random.choice(LINES)
        count = self.random.randint(1, 5)
        remove = self.random.random() < 0.1
        mode = ReceiveMode.RECEIVE_AND_DELETE if remove else ReceiveMode.PEEK_LOCK
        deliveries = self.driver.take(count, mode, sub_queue)
        expected = self.model.take(line, count, self.driver.now, remove)
        counts = [message.delivery_count for message in decoded(deliveries)]
        found = [(d.sequence_number, "", count) for d, count in zip(deliveries, counts, strict=True)]
        assert found == expected
        self.tokens.update({d.sequence_number: d.token for d in deliveries})

    def settle(self) -> None:
        if not self.tokens:
            return
        number = self.random.choice(list(self.tokens))
        outcome = self.random.choice(OUTCOMES)()
        error = self.driver.settle(self.tokens[number], outcome)
        assert (error is None) == self.model.settle(number, outcome, self.driver.now)
        if error is None:
            del self.tokens[number]

    def take_deferred(self) -> None:
        numbers = [item.number for item in self.model.items if "deferred" in item.place] or [1]
        number = self.random.choice(numbers)
        sub_queue, line = self.random.choice(LINES)
        answer = self.driver.ask(TakeDeferred, sub_queue, [number], ReceiveMode.PEEK_LOCK)
        expected = self.model.take_deferred(line, number, self.driver.now)
        assert isinstance(answer, BrokerError) == (expected is None)
        if not isinstance(answer, BrokerError):
            self.tokens[number] = answer[0].token

    def renew(self) -> None:
        if self.tokens:
            number = self.random.choice(list(self.tokens))
            answer = self.driver.ask(Renew, [self.tokens[number]])
            assert isinstance(answer, list) == self.model.renew(number, self.driver.now)

    def peek(self) -> None:
        sub_queue, line = self.random.choice(LINES)
        rows = self.driver.ask(Peek, sub_queue, 0, 1 << 20, 1 << 30)
        assert [(number, "") for number, _ in rows] == self.model.peek(line)

    def pass_time(self) -> None:
        self.driver.now += self.random.choice((1, 500, 3_000, 6_000))
        self.driver.run(ExpireLocks())
        self.model.expire_locks(self.driver.now)
        if self.random.random() < 0.7:
            self.driver.run(ExpireMessages(self.driver.due_rows()))
            self.model.expire_messages(self.driver.now)

    def restart(self) -> None:
        if self.random.random() < 0.1:
            self.driver.reopen()
            self.model.restart()


def action_without_comparing(simulation: Simulation, action: Callable[[Simulation], None]) -> None:
    """Run an action whose commit is refused: its answers are errors and say nothing about the model."""
    if action is Simulation.send:
        assert simulation.driver.send(simulation.templates[0]) is not None
    elif simulation.tokens:
        simulation.driver.settle(next(iter(simulation.tokens.values())), Complete())


WRITING = (Simulation.send, Simulation.settle)
ACTIONS = (
    *[Simulation.send] * 6,
    *[Simulation.take] * 5,
    *[Simulation.settle] * 8,
    Simulation.take_deferred,
    Simulation.renew,
    Simulation.peek,
    Simulation.pass_time,
    Simulation.restart,
)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_partition_behaves_like_the_plain_model(seed: int) -> None:
    simulation = Simulation(seed)
    for number in range(COMMANDS_PER_SEED):
        simulation.step()
        if number % 100 == 0:
            simulation.driver.check()
    simulation.driver.check()
    assert simulation.sent > COMMANDS_PER_SEED / 8
