"""Messages that come late and locks that end early, in a broker whose clock stands still."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from proton import timestamp
from structlog.testing import capture_logs

from emubus.broker.api import Abandon, Complete, DeadLetter, Delivery, Home, ReceiveMode
from emubus.broker.broker import Broker
from emubus.broker.clock import Clock
from emubus.broker.model.descriptions import (
    QueueDescription,
    RuleDescription,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
)
from emubus.broker.stores.outage import Outage, OutageKind
from emubus.codec.types import Symbol
from emubus.conditions.behaviour import Value
from emubus.conditions.condition import StartedCondition
from emubus.conditions.engine import Conditions
from emubus.conditions.network import Network

from ..amqp.asking import sections
from ..amqp.wire import DISPOSITION, TRANSFER, Wire, accepted
from ..broker.driving import encoded
from ..broker.namespace import Receiver, _brokers_stop, brokers_stop, loop_turns, open_broker, send
from .wires import START_AT, error_of, wire_to

__all__ = ["_brokers_stop", "brokers_stop"]

LOCK_MS = 60_000
QUEUES = (
    QueueDescription("q", lock_duration_ms=LOCK_MS),
    QueueDescription("parts", enable_partitioning=True),
    QueueDescription("s", requires_session=True),
)


NO_CLIENTS = Network("emubus", connections=tuple)


class Setting:
    """A broker and its conditions."""

    def __init__(self) -> None:
        self.clock = Clock(start_at=START_AT, manual=True)
        self.broker: Broker = open_broker(*QUEUES, clock=self.clock)
        self.on = Conditions(self.clock, self.broker, NO_CLIENTS)

    def start(self, name: str, entity: str = "q", **values: Value) -> StartedCondition:
        return self.on.start(name, seed=7, entity=entity, values=values)

    async def advance(self, ms: int) -> None:
        self.clock.advance(ms)
        await loop_turns(20)

    def home_count(self, home: Home, entity: str = "q") -> int:
        found = self.broker.namespace.entity(entity)
        assert found is not None
        return found.message_counts()[home]


@pytest.fixture
async def setting() -> Setting:
    return Setting()


def bodies(deliveries: Sequence[Delivery]) -> list[str]:
    return [bytes(sections(each.payload)[0x75]).decode() for each in deliveries]


def annotation(delivery: Delivery, name: str) -> Any:
    return sections(delivery.payload)[0x72][Symbol(name)]


@pytest.mark.parametrize("mode", list(ReceiveMode))
async def test_a_message_is_accepted_and_comes_later_with_its_enqueued_time(
    setting: Setting, mode: ReceiveMode
) -> None:
    await send(setting.broker, "q", encoded("before"))
    await setting.advance(1)
    condition = setting.start("accepted-not-visible", ms=30_000)
    await send(setting.broker, "q", encoded("late"))
    receiver = Receiver(setting.broker, "q", mode)
    assert bodies(await receiver.receive(1)) == ["before"]
    receiver.consumer.set_credit(5)
    await setting.advance(29_999)
    assert receiver.got == []
    assert len(await setting.broker.messages.peek("q", 0, 5, 10_000)) == (2 if mode is ReceiveMode.PEEK_LOCK else 1)
    await setting.advance(1)
    assert bodies(receiver.got) == ["late"]
    assert annotation(receiver.got[0], "x-opt-enqueued-time") == START_AT + 1
    assert [each.what for each in condition.struck] == ["message 2 late"]


async def test_what_is_behind_a_late_message_waits_and_other_partitions_do_not(setting: Setting) -> None:
    setting.start("accepted-not-visible", "parts", share=0.3, ms=1_000)
    for number in range(64):
        await send(setting.broker, "parts", encoded(str(number)))
    receiver = Receiver(setting.broker, "parts")
    early = await receiver.drain()
    assert 0 < len(early) < 64
    receiver.consumer.set_credit(1_000)
    await setting.advance(1_000)
    found = early + receiver.got
    assert sorted(map(int, bodies(found))) == list(range(64))
    for partition in range(16):
        numbers = [each.sequence_number for each in found if each.sequence_number >> 48 == partition]
        assert numbers == sorted(numbers)


async def test_late_messages_come_at_once_when_the_condition_ends(setting: Setting) -> None:
    condition = setting.start("accepted-not-visible")
    await send(setting.broker, "q", encoded("x"))
    receiver = Receiver(setting.broker, "q")
    assert await receiver.drain() == []
    receiver.consumer.set_credit(1)
    setting.on.end(condition.number)
    await loop_turns(20)
    assert bodies(receiver.got) == ["x"]


async def test_a_message_session_has_its_messages_late_and_in_order(setting: Setting) -> None:
    setting.start("accepted-not-visible", "s", ms=5_000)
    for text in "ab":
        await send(setting.broker, "s", encoded(text, group_id="s"))
    got: list[Delivery] = []
    granted: list[Any] = []
    setting.broker.accept_session(
        "s", "s", mode=ReceiveMode.PEEK_LOCK, timeout_ms=1, granted=granted.append, refused=print, detached=print
    )
    await loop_turns(20)
    granted[0].deliver = got.extend
    granted[0].set_credit(5)
    await loop_turns(20)
    assert got == []
    await setting.advance(5_000)
    assert bodies(got) == ["a", "b"]


async def test_a_subscription_has_a_message_later_than_its_topic(setting: Setting) -> None:
    setting.broker.administration.create(TopicDescription("t"))
    setting.broker.administration.create(SubscriptionDescription("t", "s"))
    setting.on.start("subscription-lag", values={"ms": 2_000})
    await send(setting.broker, "t", encoded("x"))
    await send(setting.broker, "q", encoded("at once"))
    receiver = Receiver(setting.broker, "t/Subscriptions/s")
    assert await receiver.drain() == []
    receiver.consumer.set_credit(1)
    await setting.advance(2_000)
    assert bodies(receiver.got) == ["x"]
    assert bodies(await Receiver(setting.broker, "q").drain()) == ["at once"]


async def test_a_dead_letter_leaves_its_queue_at_once_and_comes_late(setting: Setting) -> None:
    await send(setting.broker, "q", encoded("x"))
    setting.start("dead-letter-late", ms=5_000)
    receiver = Receiver(setting.broker, "q")
    (message,) = await receiver.receive(1)
    assert await receiver.settle(message, DeadLetter()) is None
    dead = Receiver(setting.broker, "q/$DeadLetterQueue")
    assert await dead.drain() == []
    dead.consumer.set_credit(1)
    await setting.advance(5_000)
    assert bodies(dead.got) == ["x"]


async def test_a_scheduled_message_becomes_active_late(setting: Setting) -> None:
    due_at = START_AT + 10_000
    data = encoded("x", annotations={"x-opt-scheduled-enqueue-time": timestamp(due_at)})
    await setting.broker.messages.schedule("q", [data])
    setting.start("scheduled-late", ms=15_000)
    await setting.advance(24_999)
    assert setting.home_count(Home.SCHEDULED) == 1
    await setting.advance(1)
    (message,) = await Receiver(setting.broker, "q").drain()
    assert annotation(message, "x-opt-enqueued-time") == due_at + 15_000


async def test_late_activations_come_when_the_condition_ends(setting: Setting) -> None:
    data = encoded("x", annotations={"x-opt-scheduled-enqueue-time": timestamp(START_AT + 10)})
    await setting.broker.messages.schedule("q", [data])
    condition = setting.start("scheduled-late", ms=15_000)
    await setting.advance(100)
    assert setting.home_count(Home.SCHEDULED) == 1
    setting.on.end(condition.number)
    await loop_turns(20)
    assert bodies(await Receiver(setting.broker, "q").drain()) == ["x"]


@pytest.mark.parametrize("asks", [False, True])
async def test_an_expired_message_is_counted_until_it_is_swept_or_a_receiver_asks(setting: Setting, asks: bool) -> None:
    await send(setting.broker, "q", encoded("x", ttl=1))
    setting.start("expiry-late", ms=120_000)
    await setting.advance(100_000)
    assert setting.home_count(Home.ACTIVE) == 1
    if asks:
        assert await Receiver(setting.broker, "q").drain() == []
    else:
        await setting.advance(21_000)
    await loop_turns(20)
    assert setting.home_count(Home.ACTIVE) == 0


async def test_a_lock_is_older_than_its_delivery(setting: Setting) -> None:
    await send(setting.broker, "q", encoded("x"))
    setting.start("aged-lock", age_ms=45_000)
    receiver = Receiver(setting.broker, "q")
    (message,) = await receiver.receive(1)
    assert annotation(message, "x-opt-locked-until") == START_AT + 15_000
    receiver.consumer.set_credit(1)
    await setting.advance(14_999)
    assert receiver.got == []
    await setting.advance(1)
    assert sections(receiver.got[0].payload)[0x70][4] == 1  # the delivery count


async def test_a_lock_may_end_before_the_client_believes_and_a_renewed_one_does_not(setting: Setting) -> None:
    for text in "ab":
        await send(setting.broker, "q", encoded(text))
    condition = setting.start("short-lock", cut_ms=10_000, lie_ms=20_000)
    receiver = Receiver(setting.broker, "q")
    short, renewed = await receiver.receive(2)
    assert annotation(short, "x-opt-locked-until") == START_AT + 50_000
    setting.on.end(condition.number)
    assert await setting.broker.messages.renew_locks("q", [renewed.token]) == [START_AT + LOCK_MS]
    await setting.advance(30_000)
    lost = await receiver.settle(short, Complete())
    assert lost is not None
    assert lost.condition.value == "com.microsoft:message-lock-lost"
    assert await receiver.settle(renewed, Abandon({})) is None


async def test_short_locks_and_full_ones_end_in_their_order(setting: Setting) -> None:
    for text in "ab":
        await send(setting.broker, "q", encoded(text))
    receiver = Receiver(setting.broker, "q")
    await receiver.receive(1)
    setting.start("short-lock", cut_ms=50_000)
    await receiver.receive(1)
    setting.on.end_all()
    receiver.consumer.set_credit(5)
    await setting.advance(10_000)
    assert bodies(receiver.got) == ["b"]
    await setting.advance(50_000)
    assert sorted(bodies(receiver.got)) == ["a", "b"]


async def parted(count: int) -> tuple[Wire, Broker]:
    """A connection, and messages in the partitions of `q` in turn."""
    wire, broker = wire_to(QueueDescription("q", enable_partitioning=True, lock_duration_ms=LOCK_MS))
    for number in range(count):
        await send(broker, "q", encoded(str(number)))
    return wire, broker


async def test_a_front_end_keeps_messages_and_its_client_gets_them_with_its_next_credit() -> None:
    wire, broker = await parted(4)
    wire.state.conditions.start("foreign-cache", entity="q")
    wire.attach_receiver(credit=1)
    assert len(await wire.frames(TRANSFER)) == 1
    other = Receiver(broker, "q")
    assert await other.drain() == []
    entity = broker.namespace.entity("q")
    assert entity is not None
    assert entity.message_counts()[Home.ACTIVE] == 4
    wire.clock.advance(100)
    await send(broker, "q", encoded("later"))
    assert len(await other.drain()) == 1
    wire.flow(0, 2, count=1)
    await wire.frames(TRANSFER, TRANSFER)
    wire.lose()
    wire.clock.advance(LOCK_MS - 101)
    assert await other.drain() == []
    wire.clock.advance(1)
    await loop_turns(50)
    assert {sections(each.payload)[0x70][4] for each in await other.receive(4)} == {1}


async def test_what_front_ends_keep_is_free_when_the_condition_ends() -> None:
    wire, broker = await parted(4)
    condition = wire.state.conditions.start("foreign-cache")
    wire.attach_receiver(credit=1)
    await wire.frames(TRANSFER)
    wire.state.conditions.end(condition.number)
    await loop_turns(20)
    assert len(await Receiver(broker, "q").drain()) == 3
    wire.lose()


def with_rule(expression: str) -> SubscriptionDescription:
    return SubscriptionDescription("t", "s", rules=(RuleDescription("r", SqlFilter(expression)),))


async def test_messages_meet_the_old_rules_for_a_while_after_a_change(setting: Setting) -> None:
    administration = setting.broker.administration
    administration.create(TopicDescription("t"))
    administration.create(with_rule("1=1"))
    condition = setting.start("rule-late", "t/Subscriptions/s", ms=5_000)
    administration.update(with_rule("1=0"))
    await setting.advance(3_000)
    administration.update(with_rule("1=1"))
    await send(setting.broker, "t", encoded("the first rule"))
    await setting.advance(2_000)
    await send(setting.broker, "t", encoded("the second"))
    assert [each.name for each in administration.rules("t/Subscriptions/s")] == ["r"]
    await setting.advance(3_000)
    await send(setting.broker, "t", encoded("the third"))
    assert bodies(await Receiver(setting.broker, "t/Subscriptions/s").drain()) == ["the first rule", "the third"]
    assert condition.struck_count == 2


async def test_rules_that_are_late_are_used_at_once_when_the_condition_ends(setting: Setting) -> None:
    administration = setting.broker.administration
    administration.create(TopicDescription("t"))
    administration.create(with_rule("1=1"))
    condition = setting.start("rule-late", "t/Subscriptions/s", ms=5_000)
    administration.update(with_rule("1=0"))
    setting.on.end(condition.number)
    administration.update(with_rule("1=1"))
    await setting.advance(5_000)  # what was late does not come back
    await send(setting.broker, "t", encoded("x"))
    assert bodies(await Receiver(setting.broker, "t/Subscriptions/s").drain()) == ["x"]


async def test_a_change_that_is_late_ends_with_its_subscription(setting: Setting) -> None:
    administration = setting.broker.administration
    administration.create(TopicDescription("t"))
    administration.create(with_rule("1=1"))
    setting.start("rule-late", "t/Subscriptions/s", ms=5_000)
    administration.update(with_rule("1=0"))
    administration.delete("t/Subscriptions/s")
    administration.create(with_rule("1=1"))
    await setting.advance(5_000)
    await send(setting.broker, "t", encoded("x"))
    assert bodies(await Receiver(setting.broker, "t/Subscriptions/s").drain()) == ["x"]


@pytest.mark.parametrize(("minutes", "condition"), [(19, None), (20, "com.microsoft:message-lock-lost")])
async def test_twenty_minutes_with_renewals_only_cost_a_lock_of_a_partitioned_entity(
    minutes: int, condition: str | None
) -> None:
    wire, broker = await parted(1)
    struck = wire.state.conditions.start("partitioned-20-minutes", entity="q").struck
    wire.attach_receiver(credit=1)
    (transfer,) = await wire.frames(TRANSFER)
    for _ in range(2 * minutes):
        wire.clock.advance(LOCK_MS // 2)
        await broker.messages.renew_locks("q", [bytes(transfer.get(2))])
    wire.dispose(accepted, 0)
    (outcome,) = await wire.frames(DISPOSITION)
    assert (None if outcome.get(4) == accepted else error_of(outcome)[0]) == condition
    assert len(struck) == (condition is not None)
    wire.lose()


async def test_a_forced_failover_loses_what_was_accepted_last(setting: Setting) -> None:
    await send(setting.broker, "q", encoded("old"))
    await setting.advance(1_000)
    await send(setting.broker, "q", encoded("new"))
    for number in range(8):
        await send(setting.broker, "parts", encoded(str(number)))
    await setting.advance(499)
    setting.on.start("region-failover", values={"lost_ms": 500})
    await loop_turns(200)
    assert bodies(await Receiver(setting.broker, "q").drain()) == ["old"]
    assert await Receiver(setting.broker, "parts").drain() == []


async def test_a_failover_that_finds_a_store_failing_says_so(setting: Setting) -> None:
    await send(setting.broker, "q", encoded("new"))
    for worker in setting.broker.namespace.workers:
        worker.begin_outage(Outage(OutageKind.FAILING))
    with capture_logs() as lines:
        setting.on.start("region-failover", values={"lost_ms": 500})
        await loop_turns(200)
    assert [line["log_level"] for line in lines if line["event"] == "failover lost too little"] == ["warning"]
