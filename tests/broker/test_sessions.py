"""Message sessions: accept, order, locks, state, listing. No wire."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from emubus.broker.api import (
    Abandon,
    Complete,
    DeadLetter,
    Defer,
    Delivery,
    Outcome,
    ReceiveMode,
    SessionAccept,
    SessionReceiver,
    alone,
)
from emubus.broker.broker import Broker
from emubus.broker.clock import Clock
from emubus.broker.entities.links import IDLE_LOSS_MS
from emubus.broker.errors import BrokerError, Condition
from emubus.broker.model.descriptions import QueueDescription
from emubus.broker.partition.receive import GREATEST_MS

from .driving import decoded, encoded, read
from .namespace import WAIT_S, Receiver, loop_turns, open_broker, send

START = 1_800_000_000_000
LOCK_MS = 30_000


@pytest.fixture
def clock() -> Clock:
    return Clock(start_at=START, frozen=True)


@pytest.fixture(params=[False, True], ids=["plain", "partitioned"])
def queue(request: pytest.FixtureRequest) -> QueueDescription:
    return QueueDescription(
        "s", requires_session=True, lock_duration_ms=LOCK_MS, enable_partitioning=request.param, max_delivery_count=3
    )


class Holder:
    """A receiver that waits for a session and then receives from it."""

    def __init__(
        self,
        broker: Broker,
        session_id: str | None,
        timeout_ms: int = 60_000,
        mode: ReceiveMode = ReceiveMode.PEEK_LOCK,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.answer: asyncio.Future[SessionReceiver] = loop.create_future()
        self.lost: list[BrokerError] = []
        self.got: list[Delivery] = []
        self.more = asyncio.Event()
        self.wait: SessionAccept = broker.accept_session(
            "s",
            session_id,
            mode=mode,
            timeout_ms=timeout_ms,
            granted=self._granted,
            refused=self.answer.set_exception,
            detached=self.lost.append,
        )

    def _granted(self, consumer: SessionReceiver) -> None:
        consumer.deliver = self._deliver
        self.answer.set_result(consumer)

    def _deliver(self, deliveries: Sequence[Delivery]) -> None:
        self.got.extend(deliveries)
        self.more.set()

    async def accepted(self) -> SessionReceiver:
        return await asyncio.wait_for(asyncio.shield(self.answer), WAIT_S)

    async def receive(self, count: int) -> list[Delivery]:
        (await self.accepted()).set_credit(count)
        async with asyncio.timeout(WAIT_S):
            while len(self.got) < count:
                self.more.clear()
                await self.more.wait()
        taken, self.got = self.got, []
        return taken

    async def drain(self) -> list[Delivery]:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        consumer = await self.accepted()
        consumer.set_credit(1000)
        consumer.drain(lambda: done.set_result(None))
        await asyncio.wait_for(done, WAIT_S)
        taken, self.got = self.got, []
        return taken

    async def settle(self, delivery: Delivery, outcome: Outcome) -> BrokerError | None:
        answer: asyncio.Future[BrokerError | None] = asyncio.get_running_loop().create_future()
        (await self.accepted()).settle([delivery.token], outcome, alone(answer.set_result))
        return await asyncio.wait_for(answer, WAIT_S)


def bodies(deliveries: Sequence[Delivery]) -> list[str]:
    return [bytes(message.body).decode() for message in decoded(deliveries)]


async def fill(broker: Broker, *names: str, each: int = 3) -> None:
    for number in range(each):
        for name in names:
            await send(broker, "s", encoded(f"{name}{number}", group_id=name))


async def test_a_session_gives_its_messages_in_order_and_no_others(clock: Clock, queue: QueueDescription) -> None:
    broker = open_broker(queue, clock=clock)
    await fill(broker, "a", "b")
    assert bodies(await Holder(broker, "a").drain()) == ["a0", "a1", "a2"]
    assert bodies(await Holder(broker, "b").drain()) == ["b0", "b1", "b2"]


async def test_new_messages_of_a_held_session_go_to_its_holder(clock: Clock, queue: QueueDescription) -> None:
    broker = open_broker(queue, clock=clock)
    holder = Holder(broker, "a")
    await holder.accepted()
    waiting = asyncio.create_task(holder.receive(3))
    await loop_turns()
    await fill(broker, "a", "b")
    assert bodies(await waiting) == ["a0", "a1", "a2"]


async def test_a_session_has_one_holder(clock: Clock, queue: QueueDescription) -> None:
    broker = open_broker(queue, clock=clock)
    first = Holder(broker, "a")
    await first.accepted()
    with pytest.raises(BrokerError) as refused:
        await Holder(broker, "a").accepted()
    assert refused.value.condition is Condition.SESSION_CANNOT_BE_LOCKED
    (await first.accepted()).close()
    assert (await Holder(broker, "a").accepted()).session_id == "a"


async def test_the_next_session_is_the_idle_one_with_the_oldest_message(clock: Clock) -> None:
    broker = open_broker(QueueDescription("s", requires_session=True), clock=clock)
    await fill(broker, "a", "b", "c", each=1)
    named = Holder(broker, "a")
    await named.accepted()
    assert [(await Holder(broker, None).accepted()).session_id for _ in range(2)] == ["b", "c"]
    (await named.accepted()).close()
    assert (await Holder(broker, None).accepted()).session_id == "a"


async def test_every_session_of_a_partitioned_queue_is_accepted_once(clock: Clock, queue: QueueDescription) -> None:
    broker = open_broker(queue, clock=clock)
    names = [f"session-{number}" for number in range(40)]
    await fill(broker, *names, each=2)
    holders = [Holder(broker, None) for _ in range(40)]
    assert sorted([(await holder.accepted()).session_id for holder in holders]) == sorted(names)


async def test_waiting_for_a_session_ends_exactly_at_its_timeout(clock: Clock, queue: QueueDescription) -> None:
    broker = open_broker(queue, clock=clock)
    holder = Holder(broker, None, timeout_ms=5_000)
    clock.advance(4_999)
    await loop_turns()
    assert not holder.answer.done()
    clock.advance(1)
    with pytest.raises(BrokerError) as refused:
        await holder.accepted()
    assert refused.value.condition is Condition.TIMEOUT


async def test_who_waits_gets_the_session_of_the_next_message(clock: Clock, queue: QueueDescription) -> None:
    broker = open_broker(queue, clock=clock)
    holders = [Holder(broker, None) for _ in range(3)]
    await loop_turns(50)
    await fill(broker, "a", "b", each=1)
    assert [(await holder.accepted()).session_id for holder in holders[:2]] == ["a", "b"]
    assert not holders[2].answer.done()
    holders[2].wait.cancel()
    await fill(broker, "c", each=1)
    assert (await Holder(broker, None).accepted()).session_id == "c"


async def test_closing_gives_back_what_was_not_settled_uncounted(clock: Clock, queue: QueueDescription) -> None:
    broker = open_broker(queue, clock=clock)
    await fill(broker, "a")
    holder = Holder(broker, "a")
    first, *_ = await holder.receive(3)
    assert await holder.settle(first, Complete()) is None
    (await holder.accepted()).close()
    found = await Holder(broker, "a").drain()
    assert bodies(found) == ["a1", "a2"]
    assert [message.delivery_count for message in decoded(found)] == [0, 0]


async def test_a_lost_session_counts_what_its_holder_had(clock: Clock, queue: QueueDescription) -> None:
    broker = open_broker(queue, clock=clock)
    await fill(broker, "a")
    holder = Holder(broker, "a")
    deliveries = await holder.receive(2)
    clock.advance(LOCK_MS)
    found = await Holder(broker, None).drain()
    assert bodies(found) == ["a0", "a1", "a2"]
    assert [message.delivery_count for message in decoded(found)] == [1, 1, 0]
    assert [error.condition for error in holder.lost] == [Condition.SESSION_LOCK_LOST]
    error = await holder.settle(deliveries[0], Complete())
    assert error is not None
    assert error.condition is Condition.SESSION_LOCK_LOST


@pytest.mark.parametrize("mode", ReceiveMode)
async def test_a_holder_of_either_mode_keeps_its_session_until_the_lock_ends(
    clock: Clock, queue: QueueDescription, mode: ReceiveMode
) -> None:
    broker = open_broker(queue, clock=clock)
    await fill(broker, "a")
    holder = Holder(broker, "a", mode=mode)
    await holder.receive(3)
    clock.advance(LOCK_MS - 1)
    await loop_turns(50)
    assert holder.lost == []
    assert await broker.sessions.renew("s", "a") == clock.now_ms() + LOCK_MS
    clock.advance(LOCK_MS)
    await loop_turns(50)
    if mode is ReceiveMode.RECEIVE_AND_DELETE:  # nothing was locked
        assert holder.lost == []
        clock.advance(IDLE_LOSS_MS)
        await loop_turns(50)
    assert [error.condition for error in holder.lost] == [Condition.SESSION_LOCK_LOST]


async def test_a_holder_with_nothing_to_settle_is_told_a_while_after_the_lock_s_end(
    clock: Clock, queue: QueueDescription
) -> None:
    broker = open_broker(queue, clock=clock)
    holder = Holder(broker, "a")
    consumer = await holder.accepted()
    consumer.set_credit(5)
    clock.advance(LOCK_MS)
    await loop_turns(50)
    assert (holder.lost, consumer.holds_session) == ([], False)
    with pytest.raises(BrokerError, match="session lock has expired"):
        await broker.sessions.renew("s", "a")
    await fill(broker, "a", each=1)
    assert await holder.drain() == []  # answered, and the messages are not its any more
    clock.advance(IDLE_LOSS_MS - 1)
    next_holder = Holder(broker, "a")
    assert bodies(await next_holder.drain()) == ["a0"]
    assert holder.lost == []
    clock.advance(1)
    await loop_turns(50)
    assert [error.condition for error in holder.lost] == [Condition.SESSION_LOCK_LOST]
    clock.advance(LOCK_MS - 2 * IDLE_LOSS_MS)
    await loop_turns(50)
    assert next_holder.lost == []


async def test_a_holder_that_is_closed_after_its_lock_s_end_is_told_nothing(clock: Clock) -> None:
    broker = open_broker(QueueDescription("s", requires_session=True, lock_duration_ms=LOCK_MS), clock=clock)
    holder = Holder(broker, "a")
    consumer = await holder.accepted()
    clock.advance(LOCK_MS)
    await loop_turns(50)
    consumer.close()
    clock.advance(IDLE_LOSS_MS)
    await loop_turns(50)
    assert holder.lost == []


async def test_messages_of_a_session_have_no_end_of_their_own(clock: Clock, queue: QueueDescription) -> None:
    broker = open_broker(queue, clock=clock)
    await fill(broker, "a", each=2)
    holder = Holder(broker, "a")
    (first,) = await holder.receive(1)
    assert decoded([first])[0].annotations["x-opt-locked-until"] == GREATEST_MS
    await holder.settle(first, Defer())
    numbers = [first.sequence_number]
    (deferred,) = await broker.messages.receive_by_sequence_number("s", numbers, ReceiveMode.PEEK_LOCK, "a")
    peeked = [read(each).annotations for each in await broker.messages.peek("s", 0, 10, 1 << 20)]
    assert decoded([deferred])[0].annotations["x-opt-locked-until"] == GREATEST_MS
    assert [each.get("x-opt-locked-until") for each in peeked] == [GREATEST_MS, None]


async def test_renewing_a_session_keeps_it_and_its_messages(clock: Clock, queue: QueueDescription) -> None:
    broker = open_broker(queue, clock=clock)
    await fill(broker, "a", each=1)
    holder = Holder(broker, "a")
    (delivery,) = await holder.receive(1)
    clock.advance(LOCK_MS - 1)
    assert await broker.sessions.renew("s", "a") == clock.now_ms() + LOCK_MS
    clock.advance(LOCK_MS - 1)
    assert await holder.settle(delivery, Complete()) is None
    with pytest.raises(BrokerError):
        await broker.sessions.renew("s", "nobody")


async def test_an_abandoned_message_is_next_in_its_session(clock: Clock, queue: QueueDescription) -> None:
    broker = open_broker(queue, clock=clock)
    await fill(broker, "a")
    holder = Holder(broker, "a")
    (first,) = await holder.receive(1)
    await holder.settle(first, Abandon())
    assert bodies(await holder.drain()) == ["a0", "a1", "a2"]


async def test_the_dead_letters_of_sessions_are_a_plain_queue(clock: Clock, queue: QueueDescription) -> None:
    broker = open_broker(queue, clock=clock)
    await fill(broker, "a", each=1)
    holder = Holder(broker, "a")
    (first,) = await holder.receive(1)
    await holder.settle(first, DeadLetter("bad"))
    (dead,) = decoded(await Receiver(broker, "s/$DeadLetterQueue").receive(1))
    assert (dead.group_id, dead.properties) == ("a", {"DeadLetterReason": "bad"})


async def test_a_deferred_message_needs_its_session(clock: Clock, queue: QueueDescription) -> None:
    broker = open_broker(queue, clock=clock)
    await fill(broker, "a", each=1)
    holder = Holder(broker, "a")
    (first,) = await holder.receive(1)
    await holder.settle(first, Defer())
    numbers = [first.sequence_number]
    with pytest.raises(BrokerError):
        await broker.messages.receive_by_sequence_number("s", numbers, ReceiveMode.PEEK_LOCK, "b")
    (again,) = await broker.messages.receive_by_sequence_number("s", numbers, ReceiveMode.PEEK_LOCK, "a")
    assert await holder.settle(again, Complete()) is None


async def test_session_state_is_kept_without_messages_and_over_a_restart(
    clock: Clock, queue: QueueDescription, tmp_path: Path
) -> None:
    broker = open_broker(queue, clock=clock, folder=tmp_path)
    holder = Holder(broker, "a")
    await holder.accepted()
    assert await broker.sessions.state("s", "a") is None
    await broker.sessions.set_state("s", "a", b"\x00state")
    await broker.stop()
    broker = open_broker(queue, clock=clock, folder=tmp_path)
    await Holder(broker, "a").accepted()
    assert await broker.sessions.state("s", "a") == b"\x00state"
    await broker.sessions.set_state("s", "a", None)
    assert await broker.sessions.state("s", "a") is None
    with pytest.raises(BrokerError) as refused:
        await broker.sessions.state("s", "b")
    assert refused.value.condition is Condition.SESSION_LOCK_LOST


async def test_sessions_with_messages_or_state_are_listed(clock: Clock, queue: QueueDescription) -> None:
    broker = open_broker(queue, clock=clock)
    await fill(broker, "full", each=1)
    for name in ("state", "empty"):
        holder = Holder(broker, name)
        await holder.accepted()
        if name == "state":
            await broker.sessions.set_state("s", name, b"x")
        (await holder.accepted()).close()
    assert await broker.sessions.names("s", None) == ["full", "state"]
    clock.advance(10)
    assert await broker.sessions.names("s", START - 1) == ["full", "state"][1:]
    assert await broker.sessions.names("s", START + 5) == []


async def test_sessions_are_accepted_after_a_restart(clock: Clock, queue: QueueDescription, tmp_path: Path) -> None:
    broker = open_broker(queue, clock=clock, folder=tmp_path)
    await fill(broker, "a", "b")
    holder = Holder(broker, "a")
    (first,) = await holder.receive(1)
    await holder.settle(first, Complete())
    await broker.stop()
    broker = open_broker(queue, clock=clock, folder=tmp_path)
    found = {}
    for _ in range(2):
        holder = Holder(broker, None)
        found[(await holder.accepted()).session_id] = bodies(await holder.drain())
    assert found == {"a": ["a1", "a2"], "b": ["b0", "b1", "b2"]}


async def test_plain_and_session_receivers_are_not_mixed_up(clock: Clock, queue: QueueDescription) -> None:
    broker = open_broker(queue, QueueDescription("plain"), clock=clock)
    with pytest.raises(BrokerError, match="non-sessionful message receiver") as refused:
        Receiver(broker, "s")
    assert refused.value.condition is Condition.NOT_ALLOWED
    with pytest.raises(BrokerError, match="RequiresSession is set to true") as refused:
        broker.accept_session(
            "plain", "a", mode=ReceiveMode.PEEK_LOCK, timeout_ms=1, granted=print, refused=print, detached=print
        )
    assert refused.value.condition is Condition.NOT_ALLOWED
    with pytest.raises(BrokerError, match="SessionId was not set"):
        await send(broker, "s", encoded("x"))
    with pytest.raises(BrokerError, match="renew the lock of the session"):
        await broker.messages.renew_locks("s", [b"\0" * 16])


async def test_peek_can_look_at_one_session(clock: Clock, queue: QueueDescription) -> None:
    broker = open_broker(queue, clock=clock)
    await fill(broker, "a", "b")
    page = await broker.messages.peek("s", 0, 10, 1 << 20, "b")
    assert len(page) == 3


async def test_expired_messages_of_a_session_are_dropped(clock: Clock, queue: QueueDescription) -> None:
    broker = open_broker(queue, clock=clock)
    await send(broker, "s", encoded("old", group_id="a", ttl=1))
    await send(broker, "s", encoded("new", group_id="a"))
    clock.advance(1_000)
    holder = Holder(broker, None)
    assert bodies(await holder.drain()) == ["new"]


async def test_a_holder_locks_messages_of_its_session_by_number(clock: Clock, queue: QueueDescription) -> None:
    broker = open_broker(queue, clock=clock)
    await fill(broker, "a", "b")
    holder = Holder(broker, "a")
    one, two, three = await holder.receive(3)
    numbers = [each.sequence_number for each in (one, two, three)]
    assert await holder.settle(one, Defer()) is None
    assert await holder.settle(two, Abandon()) is None
    held, other = await holder.accepted(), (await Holder(broker, "b").receive(1))[0].sequence_number
    assert [each.sequence_number for each in await held.lock([*numbers, other, 99])] == [numbers[1], numbers[0]]
    assert await held.lock(numbers) == []
    held.close()
    again = Holder(broker, "a")
    locked = await (await again.accepted()).lock([numbers[2]])
    assert [each.sequence_number for each in await again.drain()] == [numbers[1]]
    assert await again.settle(locked[0], Complete()) is None
    clock.advance(LOCK_MS)
    await loop_turns(20)
    with pytest.raises(BrokerError) as lost:
        await (await again.accepted()).lock([numbers[1]])
    assert lost.value.condition is Condition.SESSION_LOCK_LOST
    (last,) = await Holder(broker, "a").drain()
    assert (last.sequence_number, decoded([last])[0].delivery_count) == (numbers[1], 2)
