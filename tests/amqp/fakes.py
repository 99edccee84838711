"""A broker of a few lines and a socket of none: what the adapter is tested against."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import cast

from emubus.broker.address import Address, parse_address
from emubus.broker.admin.refusal_log import RefusalLog
from emubus.broker.api import Abandon, Delivery, Outcome, ReceiveMode, Release, RunDone
from emubus.broker.broker import Broker
from emubus.broker.clock import Clock
from emubus.broker.errors import BrokerError, Condition
from emubus.broker.model.profiles import Profile, limits_for
from emubus.broker.repeated_lines import RepeatedLines
from emubus.broker.service_errors import lock_lost, name_of, not_found, too_large
from emubus.broker.turns import TurnEnd

from .fake_verbs import FakeVerbs

Done = Callable[[BrokerError | None], None]


def token(number: int) -> bytes:
    """A lock token; no UTF-8, as real ones are not."""
    return b"\xff\xfe" + number.to_bytes(14, "big")


class FakeQueue:
    """Messages in order. What senders and receivers do is kept for the tests to look at."""

    def __init__(self) -> None:
        self.message_bytes_max = 256 * 1024
        self.sent: list[tuple[bytes, bool]] = []
        self.ready: deque[bytes] = deque()
        self.locked: dict[bytes, bytes] = {}
        self.settled: list[tuple[bytes, Outcome]] = []
        self.consumers: list[FakeConsumer] = []
        self.deferred: dict[int, bytes] = {}
        self.error: BrokerError | None = None
        self.waiting: list[Done] | None = None
        """A list: outcomes wait in it until the test gives them. None: they are given at once."""
        self._numbers = 0

    def put(self, *payloads: bytes) -> None:
        """Messages arrive."""
        self.ready.extend(payloads)
        self.hand_out()

    def answer(self, done: Done | None) -> None:
        if done is None:
            return
        if self.waiting is not None:
            self.waiting.append(done)
        else:
            done(self.error)

    def answer_all(self, error: BrokerError | None = None) -> None:
        """Give every outcome that waits."""
        waiting, self.waiting = self.waiting or [], []
        for done in waiting:
            done(error)

    def hand_out(self) -> None:
        for consumer in self.consumers:
            count = min(consumer.credit, len(self.ready))
            if count:
                consumer.give([self.next_delivery(consumer.mode) for _ in range(count)])

    def next_delivery(self, mode: ReceiveMode) -> Delivery:
        self._numbers += 1
        delivery = Delivery(token(self._numbers), self.ready.popleft(), self._numbers)
        if mode is ReceiveMode.PEEK_LOCK:
            self.locked[delivery.token] = delivery.payload
        return delivery


class FakeSender:
    def __init__(self, queue: FakeQueue, detached: Callable[[BrokerError], None]) -> None:
        self.queue = queue
        self.entity = queue
        self.detached = detached
        self.message_bytes_max = queue.message_bytes_max
        self.batch_bytes_max = queue.message_bytes_max
        self.closed = False

    def send(self, run: Sequence[bytes], done: RunDone, *, whole: bool = False) -> None:
        for position, data in enumerate(run):
            if self.queue.error is None:
                self.queue.sent.append((data, whole))
            self.queue.answer(partial(done, (position,)))

    def size_refusal(self, data: bytes, *, batch: bool) -> BrokerError | None:
        limit = self.batch_bytes_max if batch else self.message_bytes_max
        return too_large(len(data), limit) if len(data) > limit else None

    def close(self) -> None:
        self.closed = True


class FakeConsumer:
    address = "q"

    def __init__(
        self,
        queue: FakeQueue,
        mode: ReceiveMode,
        deliver: Callable[[Sequence[Delivery]], None],
        detached: Callable[[BrokerError], None],
    ) -> None:
        self.queue = queue
        self.mode = mode
        self.deliver = deliver
        self.detached = detached
        self.credit = 0
        self.credits: list[int] = []
        self.drains = 0
        self.closed = False
        queue.consumers.append(self)

    def give(self, deliveries: Sequence[Delivery]) -> None:
        self.credit -= len(deliveries)
        self.deliver(deliveries)

    def set_credit(self, count: int) -> None:
        self.credit = count
        self.credits.append(count)
        self.queue.hand_out()

    def drain(self, drained: Callable[[], None]) -> None:
        self.drains += 1
        self.queue.hand_out()
        self.credit = 0
        drained()

    def settle(self, run: Sequence[bytes], outcome: Outcome, done: RunDone | None) -> None:
        for position, each in enumerate(run):
            self._settle(each, outcome, None if done is None else partial(done, (position,)))

    def _settle(self, token: bytes, outcome: Outcome, done: Done | None) -> None:
        payload = self.queue.locked.pop(token, None)
        if payload is None:
            if done is not None:
                done(lock_lost())
            return
        self.queue.settled.append((token, outcome))
        if isinstance(outcome, Abandon | Release):
            self.queue.ready.appendleft(payload)
        self.queue.answer(done)

    def close(self) -> None:
        self.closed = True
        self.queue.consumers.remove(self)


class FakeBroker(FakeVerbs):
    """Queues by name; `q` is always there."""

    name = "ns"
    limits = limits_for(Profile.STANDARD)
    strikes = SimpleNamespace(are_noted=False)

    def __init__(self) -> None:
        super().__init__()
        self.namespace = self.messages = self  # whose verbs these are, too
        self.queues = {"q": FakeQueue()}
        self.turn_end = TurnEnd()
        self.refusals = RefusalLog(lambda: self.queues)
        self.lines = RepeatedLines(Clock(manual=True))
        self.now_ms = 1_000_000
        self.senders: list[FakeSender] = []
        self.key_watchers: list[Callable[[], None]] = []
        self.lines = RepeatedLines(Clock(manual=True))

    def on_keys_changed(self, watcher: Callable[[], None]) -> None:
        self.key_watchers.append(watcher)

    @property
    def q(self) -> FakeQueue:
        return self.queues["q"]

    def name_of(self, address: str) -> str:
        return name_of(self.name, parse_address(address).entity)

    def find(self, address: str) -> tuple[FakeQueue, Address]:
        return self.queue_at(address), parse_address(address)

    def check_browsable(self, address: str) -> None:
        self.queue_at(address)

    def queue_at(self, address: str) -> FakeQueue:
        parsed = parse_address(address)
        queue = self.queues.get(parsed.path.lower())
        if queue is None:
            raise not_found(self.name, parsed.path)
        return queue

    def open_sender(self, address: str, *, detached: Callable[[BrokerError], None], client: str = "") -> FakeSender:
        sender = FakeSender(self.queue_at(address), detached)
        self.senders.append(sender)
        return sender

    def open_receiver(
        self,
        address: str,
        *,
        mode: ReceiveMode,
        deliver: Callable[[Sequence[Delivery]], None],
        detached: Callable[[BrokerError], None],
        matches: object = None,
        client: str = "",
    ) -> FakeConsumer:
        assert matches is None
        consumer = FakeConsumer(self.queue_at(address), mode, deliver, detached)
        consumer.address = address
        return consumer

    async def peek(
        self,
        address: str,
        from_sequence_number: int,
        count: int,
        bytes_max: int,
        session_id: str | None = None,
        partition_id: int | None = None,
        deferred_only: bool = False,
    ) -> list[bytes]:
        only = (*(() if partition_id is None else (partition_id,)), *("deferred",) * deferred_only)
        self.calls.append(("peek", address, from_sequence_number, count, session_id, *only))
        found: list[bytes] = []
        for payload in list(self.queue_at(address).ready)[max(0, from_sequence_number - 1) :][:count]:
            if found and bytes_max < len(payload):
                break
            bytes_max -= len(payload)
            found.append(payload)
        return found

    async def renew_locks(self, address: str, tokens: Sequence[bytes], *, bounded: bool = False) -> list[int]:
        del bounded
        if any(each not in self.queue_at(address).locked for each in tokens):
            raise lock_lost()
        return [self.now_ms + 60_000 + index for index in range(len(tokens))]

    async def settle(
        self,
        address: str,
        tokens: Sequence[bytes],
        outcome: Outcome,
        session_id: str | None = None,
        *,
        bounded: bool = False,
    ) -> None:
        del bounded
        queue = self.queue_at(address)
        for each in tokens:
            if queue.locked.pop(each, None) is None:
                raise lock_lost()
            queue.settled.append((each, outcome))

    async def receive_by_sequence_number(
        self,
        address: str,
        numbers: Sequence[int],
        mode: ReceiveMode,
        session_id: str | None = None,
        *,
        bounded: bool = False,
    ) -> list[Delivery]:
        del bounded
        self.calls.append(("deferred", address, list(numbers), mode, session_id))
        queue = self.queue_at(address)
        if any(number not in queue.deferred for number in numbers):
            raise BrokerError(Condition.MESSAGE_NOT_FOUND, "The message does not exist.")
        found = [Delivery(token(number), queue.deferred[number], number) for number in numbers]
        if mode is ReceiveMode.PEEK_LOCK:
            queue.locked.update({each.token: each.payload for each in found})
        return found


def as_broker(broker: FakeBroker) -> Broker:
    """A broker as the adapter takes it: the fake one has the verbs that the adapter calls."""
    return cast("Broker", broker)


class FakeTransport(asyncio.Transport):
    """The socket as the protocol sees it: what is written piles up in `output`."""

    def __init__(self) -> None:
        super().__init__()
        self.output = bytearray()
        self.writes = 0
        self.closed = False
        self.reading = True
        self.high = 64 * 1024

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.closed, "written after close"
        self.writes += 1
        self.output += data

    def take(self) -> bytes:
        taken = bytes(self.output)
        self.output.clear()
        return taken

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.high = high or self.high

    def get_write_buffer_size(self) -> int:
        return 0  # the client's side has it: only a test that pauses the writing knows better
