"""Statements of Microsoft's pages that no other test holds the broker to; docs/reference/statements.md lists all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from proton import symbol, timestamp

from emubus.broker.api import Abandon, DeadLetter, Defer, Home, Outage, OutageKind, ReceiveMode
from emubus.broker.broker import Broker
from emubus.broker.clock import Clock
from emubus.broker.errors import BrokerError, Condition
from emubus.broker.model.descriptions import (
    EntityStatus,
    QueueDescription,
    RuleDescription,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
)
from emubus.broker.model.profiles import LIMITS, Profile, Range
from emubus.broker.rules.sql.action import compile_action

from .driving import decoded, encoded
from .namespace import Receiver, loop_turns, open_broker, send
from .rules.messages import context, truth

START = 1_800_000_000_000
DAY_MS = 86_400_000


@pytest.fixture
def clock() -> Clock:
    return Clock(start_at=START, frozen=True)


def topic(clock: Clock, *subscriptions: SubscriptionDescription, **properties: Any) -> Broker:
    """A broker with the topic t."""
    broker = open_broker(clock=clock)
    broker.administration.create(TopicDescription("t", **properties))
    for each in subscriptions:
        broker.administration.create(each)
    return broker


def subscription(name: str, *rules: RuleDescription, **properties: Any) -> SubscriptionDescription:
    return SubscriptionDescription("t", name, rules=rules, **properties)


def rule(name: str, expression: str, action: str | None = None) -> RuleDescription:
    return RuleDescription(name, SqlFilter(expression), action)


async def received(broker: Broker, name: str) -> list[Any]:
    return decoded(await Receiver(broker, f"t/Subscriptions/{name}").drain())


def bodies(messages: Sequence[Any]) -> list[bytes]:
    return [bytes(message.body) for message in messages]


async def settled_down() -> None:
    await loop_turns(200)


# ---- filters and actions [SB: topic-filters]


async def test_the_default_rule_annotates_nothing(clock: Clock) -> None:
    broker = topic(clock, SubscriptionDescription("t", "s"))
    await send(broker, "t", encoded("a", properties={"n": 1}, subject="b"))
    (message,) = await received(broker, "s")
    assert (message.properties, message.subject) == ({"n": 1}, "b")


async def test_what_an_action_changes_is_changed_in_its_copy_alone(clock: Clock) -> None:
    broker = topic(
        clock, subscription("s", rule("r", "1 = 1", "SET n = 2; SET sys.Label = 'x'")), subscription("other")
    )
    broker.administration.add_rule("t/Subscriptions/other", RuleDescription("all"))
    await send(broker, "t", encoded(properties={"n": 1}, subject="b"))
    assert [(each.properties["n"], each.subject) for each in await received(broker, "s")] == [(2, "x")]
    assert [(each.properties["n"], each.subject) for each in await received(broker, "other")] == [(1, "b")]


async def test_a_message_id_that_an_action_sets_is_no_duplicate_in_the_subscription(clock: Clock) -> None:
    to_one = rule("r", "1 = 1", "SET sys.MessageId = 'one'")
    broker = topic(clock, subscription("s", to_one), requires_duplicate_detection=True)
    for number in range(3):
        await send(broker, "t", encoded(id=f"m{number}"))
    assert [message.id for message in await received(broker, "s")] == ["one"] * 3


async def test_a_message_whose_filter_fails_is_dead_lettered_where_the_subscription_says_so(clock: Clock) -> None:
    fails = rule("r", "1 / n = 1")
    kept = subscription("kept", fails, dead_letter_on_filter_exceptions=True)
    broker = topic(clock, kept, subscription("dropped", fails, dead_letter_on_filter_exceptions=False))
    await send(broker, "t", encoded("a", properties={"n": 0}))
    assert [len(await received(broker, f"{name}/$DeadLetterQueue")) for name in ("kept", "dropped")] == [1, 0]
    assert [len(await received(broker, name)) for name in ("kept", "dropped")] == [0, 0]


@pytest.mark.parametrize("name", ["body", "sys.Body"])
def test_no_filter_sees_the_body(name: str) -> None:
    if name == "body":
        assert truth(f"{name} = 'text'", {}, body=b"text") is None
        return
    with pytest.raises(Exception, match="there is no system property"):
        truth(f"{name} = 'text'", {}, body=b"text")


@pytest.mark.parametrize("expression", ["missing = 1", "NOT missing = 1", "missing <> 1", "missing LIKE '%'"])
async def test_what_is_unknown_selects_nothing(clock: Clock, expression: str) -> None:
    broker = topic(clock, subscription("s", rule("r", expression)))
    await send(broker, "t", encoded(properties={"n": 1}))
    assert await received(broker, "s") == []


async def test_what_an_action_has_changed_counts_where_the_message_is_forwarded_to(clock: Clock) -> None:
    """A message id that makes no duplicate in the subscription makes one in the target [SB: topic-filters]."""
    broker = topic(clock)
    broker.administration.create(QueueDescription("target", requires_duplicate_detection=True))
    to_one = rule("r", "1 = 1", "SET sys.MessageId = 'one'")
    broker.administration.create(subscription("s", to_one, forward_to="target"))
    for number in range(3):
        await send(broker, "t", encoded(id=f"m{number}"))
    await settled_down()
    assert [message.id for message in decoded(await Receiver(broker, "target").drain())] == ["one"]


@pytest.mark.parametrize("text", ["SET a = 1; SET b = 2;", "SET a = 1; SET b = 2", "SET a = 1 SET b = 2"])
def test_the_semicolons_of_an_action_may_be_left_out(text: str) -> None:
    assert compile_action(text).apply(context({})).application_properties() == {"a": 1, "b": 2}


def test_an_action_may_ask_for_properties_that_are_not_there() -> None:
    changed = compile_action("SET b = missing; REMOVE gone; SET c = 1").apply(context({"a": 1}))
    assert changed.application_properties()["c"] == 1
    assert changed.application_properties()["a"] == 1


# ---- expiry [SB: message-expiration], dead letters [SB: service-bus-dead-letter-queues]


async def test_a_message_without_a_time_to_live_has_that_of_its_entity(clock: Clock) -> None:
    broker = open_broker(QueueDescription("q", default_ttl_ms=60_000), clock=clock)
    await send(broker, "q", encoded())
    receiver = Receiver(broker, "q")
    (delivery,) = await receiver.receive(1)
    assert decoded([delivery])[0].ttl == 60
    await receiver.settle(delivery, Abandon())
    clock.advance(60_000)
    assert await receiver.drain() == []


async def test_no_dead_letter_expires(clock: Clock) -> None:
    broker = open_broker(QueueDescription("q", default_ttl_ms=60_000, dead_letter_on_expiration=True), clock=clock)
    await send(broker, "q", encoded("a", ttl=10))
    await send(broker, "q", encoded("b", ttl=50))
    receiver = Receiver(broker, "q")
    first, second = await receiver.receive(2)
    await receiver.settle(first, Abandon())
    await receiver.settle(second, DeadLetter("bad"))
    clock.advance(10_000)
    await settled_down()
    clock.advance(365 * DAY_MS)
    await settled_down()
    dead = decoded(await Receiver(broker, "q/$DeadLetterQueue").drain())
    assert sorted(message.properties["DeadLetterReason"] for message in dead) == ["TTLExpiredException", "bad"]


@pytest.mark.parametrize("dead_letters", [True, False])
@pytest.mark.parametrize("mode", ReceiveMode)
async def test_a_deferred_message_expires_when_a_client_asks_for_it(
    clock: Clock, dead_letters: bool, mode: ReceiveMode
) -> None:
    """[SB: message-deferral]; azure-sdk-for-net 30252: a client that asks for it gets not-found."""
    broker = open_broker(QueueDescription("q", dead_letter_on_expiration=dead_letters), clock=clock)
    await send(broker, "q", encoded("a", ttl=10))
    await send(broker, "q", encoded("b"))
    receiver = Receiver(broker, "q")
    deliveries = await receiver.receive(2)
    for each in deliveries:
        await receiver.settle(each, Defer())
    clock.advance(DAY_MS)
    await settled_down()
    assert await Receiver(broker, "q/$DeadLetterQueue").drain() == []
    numbers = [each.sequence_number for each in deliveries]
    assert len(await broker.messages.peek("q", 0, 10, 100_000)) == 2
    with pytest.raises(BrokerError, match="Failed to lock one or more specified messages"):
        await broker.messages.receive_by_sequence_number("q", numbers, mode, bounded=True)
    assert len(await broker.messages.peek("q", 0, 10, 100_000)) == 1
    dead = decoded(await Receiver(broker, "q/$DeadLetterQueue").drain())
    assert [message.properties["DeadLetterReason"] for message in dead] == ["TTLExpiredException"] * dead_letters
    (left,) = await broker.messages.receive_by_sequence_number("q", numbers[1:], mode, bounded=True)
    assert bodies(decoded([left])) == [b"b"]


async def test_a_deferred_message_that_has_expired_is_there_for_who_is_no_client(clock: Clock) -> None:
    """Spark's source deletes by number what it has read, and the control API shows all stored messages."""
    broker = open_broker(QueueDescription("q", dead_letter_on_expiration=True), clock=clock)
    await send(broker, "q", encoded("a", ttl=10))
    receiver = Receiver(broker, "q")
    (delivery,) = await receiver.receive(1)
    await receiver.settle(delivery, Defer())
    clock.advance(DAY_MS)
    numbers = [delivery.sequence_number]
    (again,) = await broker.messages.receive_by_sequence_number("q", numbers, ReceiveMode.PEEK_LOCK)
    assert bodies(decoded([again])) == [b"a"]


async def test_an_update_counts_as_use(clock: Clock) -> None:
    idle = QueueDescription("q", auto_delete_on_idle_ms=300_000)
    broker = open_broker(idle, clock=clock)
    clock.advance(200_000)
    broker.administration.update(QueueDescription("q", auto_delete_on_idle_ms=300_000, max_delivery_count=5))
    clock.advance(200_000)
    assert broker.namespace.entity("q") is not None
    clock.advance(100_000)
    assert broker.namespace.entity("q") is None


async def test_a_new_rule_counts_as_use_of_its_subscription(clock: Clock) -> None:
    broker = topic(clock, SubscriptionDescription("t", "s", auto_delete_on_idle_ms=300_000))
    clock.advance(200_000)
    broker.administration.add_rule("t/Subscriptions/s", rule("r", "1 = 0"))
    clock.advance(200_000)
    assert broker.namespace.entity("t/Subscriptions/s") is not None
    clock.advance(100_000)
    assert broker.namespace.entity("t/Subscriptions/s") is None


async def test_use_of_a_subscription_keeps_its_topic(clock: Clock) -> None:
    broker = topic(clock, SubscriptionDescription("t", "s"), auto_delete_on_idle_ms=300_000)
    receiver = Receiver(broker, "t/Subscriptions/s")
    for _ in range(3):
        clock.advance(200_000)
        assert await receiver.drain() == []
    receiver.consumer.close()
    clock.advance(200_000)
    broker.administration.add_rule("t/Subscriptions/s", rule("r", "1 = 0"))
    clock.advance(200_000)
    assert broker.namespace.entity("t") is not None
    clock.advance(100_000)
    assert broker.namespace.entity("t") is None


# ---- duplicates [SB: duplicate-detection]


async def test_a_scheduled_message_behind_one_with_its_id_is_dropped(clock: Clock) -> None:
    broker = open_broker(QueueDescription("q", requires_duplicate_detection=True), clock=clock)
    await send(broker, "q", encoded("a", id="m"))
    due = {symbol("x-opt-scheduled-enqueue-time"): timestamp(START + 1_000)}
    await send(broker, "q", encoded("b", id="m", annotations=due))
    clock.advance(1_000)
    await settled_down()
    assert bodies(decoded(await Receiver(broker, "q").drain())) == [b"a"]


# ---- forwarding [SB: service-bus-auto-forwarding]


async def test_what_was_dead_lettered_for_its_target_stays_when_that_takes_messages_again(clock: Clock) -> None:
    target = QueueDescription("target", status=EntityStatus.DISABLED)
    broker = open_broker(QueueDescription("q", forward_to="target"), target, clock=clock)
    await send(broker, "q", encoded("a"))
    await settled_down()
    broker.administration.update(QueueDescription("target"))
    await send(broker, "q", encoded("b"))
    clock.advance(DAY_MS)
    await settled_down()
    assert bodies(decoded(await Receiver(broker, "target").drain())) == [b"b"]
    assert bodies(decoded(await Receiver(broker, "q/$DeadLetterQueue").drain())) == [b"a"]


async def test_messages_on_their_way_are_counted(clock: Clock) -> None:
    """TransferMessageCount of [SB: message-counters]."""
    broker = open_broker(QueueDescription("q", forward_to="target"), QueueDescription("target"), clock=clock)
    source, target = broker.namespace.entity("q"), broker.namespace.entity("target")
    assert source is not None
    assert target is not None
    own, other = (entity.partitions[0].worker.index for entity in (source, target))
    assert own != other
    broker.outages.begin(other, Outage(OutageKind.DOWN))
    for _ in range(3):
        await send(broker, "q", encoded())
    await settled_down()
    assert source.message_counts()[Home.OUTBOX] == 3
    broker.outages.end(other)
    await settled_down()
    clock.advance(1_000)
    await settled_down()
    assert source.message_counts()[Home.OUTBOX] == 0


async def test_a_transfer_to_a_disabled_entity_is_dead_lettered_where_it_left_and_counted(clock: Clock) -> None:
    """[SB: service-bus-dead-letter-queues]; TransferDeadLetterMessageCount of [SB: message-counters]."""
    target = QueueDescription("target", status=EntityStatus.DISABLED)
    broker = open_broker(QueueDescription("via"), target, clock=clock)
    via = broker.namespace.entity("via")
    assert via is not None
    errors: list[BrokerError | None] = []
    broker.transactions.transfer(None, via, encoded("a"), "target", errors.append)
    await settled_down()
    assert errors == [None]
    assert via.message_counts()[Home.TRANSFER_DEAD_LETTER] == 1
    (dead,) = decoded(await Receiver(broker, "via/$Transfer/$DeadLetterQueue").drain())
    assert dead.properties["DeadLetterReason"] == "MessagingEntityDisabled"


# ---- statuses [SB: entity-suspend]


async def test_a_disabled_queue_keeps_its_messages(clock: Clock) -> None:
    broker = open_broker(QueueDescription("q"), clock=clock)
    await send(broker, "q", encoded("a"))
    broker.administration.update(QueueDescription("q", status=EntityStatus.DISABLED))
    for attempt in (lambda: Receiver(broker, "q"), lambda: broker.open_sender("q", detached=print)):
        with pytest.raises(BrokerError) as refused:
            attempt()
        assert refused.value.condition is Condition.ENTITY_DISABLED
    broker.administration.update(QueueDescription("q", status=EntityStatus.ACTIVE))
    assert bodies(decoded(await Receiver(broker, "q").drain())) == [b"a"]


@pytest.mark.parametrize("of_topic", [EntityStatus.ACTIVE, EntityStatus.DISABLED, EntityStatus.SEND_DISABLED])
@pytest.mark.parametrize("of_subscription", [EntityStatus.ACTIVE, EntityStatus.DISABLED, EntityStatus.RECEIVE_DISABLED])
async def test_statuses_of_topic_and_subscription_decide_as_the_table_says(
    clock: Clock, of_topic: EntityStatus, of_subscription: EntityStatus
) -> None:
    broker = topic(clock, SubscriptionDescription("t", "s"))
    await send(broker, "t", encoded("a"))
    broker.administration.update(TopicDescription("t", status=of_topic))
    broker.administration.update(SubscriptionDescription("t", "s", status=of_subscription))
    if of_topic is EntityStatus.ACTIVE:
        await send(broker, "t", encoded("b"))
    else:
        with pytest.raises(BrokerError) as refused:
            await send(broker, "t", encoded("b"))
        assert refused.value.condition is Condition.ENTITY_DISABLED
    if of_subscription is EntityStatus.ACTIVE:
        expected = [b"a", b"b"] if of_topic is EntityStatus.ACTIVE else [b"a"]
        assert bodies(await received(broker, "s")) == expected
    else:
        with pytest.raises(BrokerError) as refused:
            await received(broker, "s")
        assert refused.value.condition is Condition.ENTITY_DISABLED


# ---- looks [SB: message-browsing], sessions [SB: message-sessions]


async def test_scheduled_messages_of_a_topic_are_not_seen_in_its_subscriptions(clock: Clock) -> None:
    broker = topic(clock, SubscriptionDescription("t", "s"))
    due = {symbol("x-opt-scheduled-enqueue-time"): timestamp(START + 1_000)}
    await broker.messages.schedule("t", [encoded("a", annotations=due)])
    assert await broker.messages.peek("t/Subscriptions/s", 0, 10, 1 << 20) == []
    clock.advance(1_000)
    await settled_down()
    assert len(await broker.messages.peek("t/Subscriptions/s", 0, 10, 1 << 20)) == 1


# ---- limits [SB: service-bus-quotas]


KB, SECOND_MS, MINUTE_MS = 1024, 1_000, 60_000
OF_ALL_TIERS: Mapping[str, object] = {
    "receives_per_entity_max": 5_000,
    "connections_max": 5_000,
    "entity_path_length_max": 260,
    "sub_entity_name_length_max": 50,
    "key_length_max": 128,
    "property_bytes_max": 32 * KB,
    "properties_bytes_max": 64 * KB,
    "sql_filters_per_topic_max": 2_000,
    "correlation_filters_per_topic_max": 100_000,
    "rule_text_length_max": 1_024,
    "action_statements_max": 32,
    "authorization_rules_max": 12,
    "messages_per_transaction_max": 100,
    "subscriptions_per_topic_max": 2_000,
    "forward_hops_max": 4,
    "lock_duration_ms": Range(5 * SECOND_MS, 5 * MINUTE_MS),
    "auto_delete_on_idle_ms": Range(5 * MINUTE_MS),
    "duplicate_window_ms": Range(20 * SECOND_MS, 7 * DAY_MS),
}
OF_STANDARD: Mapping[str, object] = {
    "message_bytes_max": 256 * KB,
    "entities_max": 10_000,
    "partitioned_entities_max": 100,
    "messages_per_delete_max": 500,
    "max_size_mb_choices": (1_024, 2_048, 3_072, 4_096, 5_120),
}
OF_PREMIUM: Mapping[str, object] = {
    "entities_max": 1_000,
    "messages_per_delete_max": 4_000,
    "message_bytes_settable": Range(KB * KB, 100 * KB * KB),
}
TIERS = [(Profile.STANDARD, OF_STANDARD), (Profile.PREMIUM, OF_PREMIUM)]


@pytest.mark.parametrize(("profile", "of_tier"), TIERS)
def test_limits_are_those_of_the_page_of_quotas(profile: Profile, of_tier: Mapping[str, object]) -> None:
    limits = LIMITS[profile]
    wanted = {**OF_ALL_TIERS, **of_tier}
    assert {name: getattr(limits, name) for name in wanted} == wanted
    standard = QueueDescription("q")
    assert (standard.max_delivery_count, standard.duplicate_window_ms) == (10, 10 * MINUTE_MS)


def test_limits_of_microsofts_emulator_are_those_of_its_page() -> None:
    """[SB: overview-emulator] All but the SQL filters of a topic: 20 in that version of the page, more here."""
    limits = LIMITS[Profile.MS_EMULATOR]
    wanted = {
        "entities_max": 50,
        "subscriptions_per_topic_max": 50,
        "correlation_filters_per_topic_max": 1_000,
        "rule_text_length_max": 1_024,
        "action_statements_max": 32,
        "connections_max": 10,
        "receives_per_entity_max": 200,
        "message_bytes_max": 256 * KB,
        "max_size_mb": Range(100, 5120),  # the page says 100; files that it starts with say 1024
    }
    assert {name: getattr(limits, name) for name in wanted} == wanted
