"""Changes of what entities there are: quotas, what a change reaches, and a catalog whose store fails. No wire."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from emubus.broker.api import TABLES
from emubus.broker.broker import Broker
from emubus.broker.clock import Clock
from emubus.broker.errors import BrokerError, Condition
from emubus.broker.keys import Right
from emubus.broker.model.catalog import CATALOG_TABLES, Catalog
from emubus.broker.model.descriptions import (
    AuthorizationRule,
    CorrelationFilter,
    QueueDescription,
    RuleDescription,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
    Topology,
)
from emubus.broker.model.profiles import LIMITS, Limits, Profile
from emubus.broker.rules import compile_filter, rule_to_amqp
from emubus.broker.service_errors import resources_exceeded
from emubus.codec.types import Described, Int, Timestamp, Ulong
from emubus.storage import Durability, StoreFailed, open_store
from emubus.storage.memory_store import MemoryStore

from .counting import calls_of
from .driving import encoded
from .namespace import CheckedBroker, Receiver, loop_turns, open_broker, send
from .test_torn_commits import Disk

TOPIC = TopicDescription("t")
NOW = 1_800_000_000_000


@pytest.fixture
def clock() -> Clock:
    return Clock(start_at=NOW, frozen=True)


def paths(broker: Broker) -> list[str]:
    return [entity.path for entity in broker.namespace.entities()]


def small(**limits: Any) -> Limits:
    return replace(LIMITS[Profile.STANDARD], **limits)


def broker_within(limits: Limits, clock: Clock) -> Broker:
    stores = [MemoryStore(TABLES) for _ in range(16)]
    broker = CheckedBroker(Catalog(MemoryStore(CATALOG_TABLES)), stores, clock, limits)
    broker.start(Topology())
    return broker


def refusal(change: Any, *arguments: Any) -> str:
    with pytest.raises(BrokerError) as refused:
        change(*arguments)
    assert refused.value.condition is Condition.RESOURCE_LIMIT_EXCEEDED
    return refused.value.description


@pytest.mark.parametrize(
    "target", ["missing", "sb://localhost:5672/missing", "t/subscriptions/all", "q/$deadletterqueue"]
)
@pytest.mark.parametrize("name", ["forward_to", "forward_dead_letters_to"])
async def test_a_client_forwards_to_a_queue_or_topic_that_is_there(clock: Clock, target: str, name: str) -> None:
    broker = open_broker(clock=clock)
    administration = broker.administration
    for each in (QueueDescription("q"), TOPIC, SubscriptionDescription("t", "all")):
        administration.create(each)
    before = paths(broker)

    def to(path: str) -> dict[str, Any]:
        return {name: path}

    for made in (QueueDescription("new", **to(target)), SubscriptionDescription("t", "new", **to(target))):
        with pytest.raises(BrokerError, match=f"destination entity '{re.escape(target)}' does not exist") as refused:
            administration.create(made, targets_exist=True)
        assert refused.value.condition is Condition.ARGUMENT_ERROR
    assert paths(broker) == before
    for path in ("Q", "sb://localhost:5672/t"):
        administration.create(SubscriptionDescription("t", f"to-{path[-1]}", **to(path)), targets_exist=True)


# ---- quotas (P5)


def exceeded(what: str, count: int) -> str:
    """The refusal of one more of what there are `count`, and no more allowed."""
    return resources_exceeded(what, count, count, "standard").description


async def test_a_subscription_of_a_missing_topic_is_named_by_its_address_and_of_another_topic_by_its_name(
    clock: Clock,
) -> None:
    broker = open_broker(QueueDescription("q"), clock=clock)
    broker.administration.create(TopicDescription("Topic"))
    address = "sb://sbemulatorns.servicebus.windows.net"
    for path, shown in (
        ("none/Subscriptions/s", f"{address}/none/Subscriptions/s"),
        ("q/subscriptions/s/$DeadLetterQueue", f"{address}/q/subscriptions/s/$DeadLetterQueue"),
        ("none", f"{address}/none"),
        ("topic/Subscriptions/s", "sbemulatorns:Topic:topic|s"),
    ):
        with pytest.raises(
            BrokerError, match=f"^amqp:not-found: The messaging entity '{re.escape(shown)}' could not be"
        ):
            broker.namespace.find(path)


async def test_p05_a_namespace_has_so_many_entities_and_so_many_partitioned_ones(clock: Clock) -> None:
    broker = broker_within(small(entities_max=3, partitioned_entities_max=1), clock)
    create = broker.administration.create
    create(QueueDescription("a", enable_partitioning=True))
    assert refusal(create, TopicDescription("b", enable_partitioning=True)) == (exceeded("EnablePartioning == true", 1))
    create(TOPIC)
    create(QueueDescription("c"))
    assert refusal(create, QueueDescription("d")) == (exceeded("Queue or Topic", 3))
    create(SubscriptionDescription("t", "s"))
    with pytest.raises(BrokerError) as refused:
        create(QueueDescription("a", enable_partitioning=True))
    assert refused.value.condition is Condition.ENTITY_ALREADY_EXISTS
    broker.administration.delete("c")
    create(QueueDescription("d"))


async def test_a_topic_has_so_many_subscriptions_and_filters(clock: Clock) -> None:
    limits = small(subscriptions_per_topic_max=2, sql_filters_per_topic_max=2, correlation_filters_per_topic_max=1)
    broker = broker_within(limits, clock)
    administration = broker.administration
    administration.create(TOPIC)
    sql = tuple(RuleDescription(name, SqlFilter("a = 1")) for name in "123")
    label = RuleDescription("4", CorrelationFilter(label="l"))
    administration.create(SubscriptionDescription("t", "a", rules=sql[:1]))
    assert refusal(administration.create, SubscriptionDescription("t", "b", rules=sql[1:])) == (
        exceeded("SqlFilter", 2)
    )
    administration.create(SubscriptionDescription("t", "b", rules=(sql[1], label)))
    assert refusal(administration.create, SubscriptionDescription("t", "c")) == (exceeded("Subscription", 2))
    add = administration.add_rule
    assert refusal(add, "t/Subscriptions/a", sql[2]) == exceeded("SqlFilter", 2)
    assert refusal(add, "t/Subscriptions/a", label) == exceeded("CorrelationFilter", 1)
    changed = SubscriptionDescription("t", "a", rules=sql[1:])
    assert refusal(administration.update, changed) == exceeded("SqlFilter", 2)
    administration.update(SubscriptionDescription("t", "a", rules=sql[1:2]))
    administration.remove_rule("t/Subscriptions/b", "4")
    add("t/Subscriptions/a", label)


async def test_a_rule_that_is_added_is_compiled_and_encoded_alone(clock: Clock) -> None:
    broker = open_broker(clock=clock)
    add = broker.administration.add_rule
    broker.administration.create(TOPIC)
    rules = tuple(RuleDescription(f"r{number}", SqlFilter(f"a = {number}")) for number in range(300))
    broker.administration.create(SubscriptionDescription("t", "s", rules=rules))
    new, newer = (RuleDescription(name, SqlFilter("b = 1")) for name in ("new", "newer"))
    checked_and_indexed = 2
    assert calls_of(compile_filter, lambda: add("t/Subscriptions/s", new)) == checked_and_indexed
    assert calls_of(RuleDescription.to_json, lambda: add("t/Subscriptions/s", newer)) == 1
    await send(broker, "t", encoded("1", properties={"b": 1}))
    assert await broker.messages.peek("t/Subscriptions/s", 0, 10, 1 << 20) != []


async def test_a_rule_above_the_limits_is_a_bad_argument(clock: Clock) -> None:
    broker = open_broker(clock=clock)
    broker.administration.create(TOPIC)
    broker.administration.create(SubscriptionDescription("t", "s"))
    large = RuleDescription("large", CorrelationFilter(properties={str(number): 1 for number in range(1_001)}))
    for change in (
        lambda: broker.administration.add_rule("t/Subscriptions/s", large),
        lambda: broker.administration.replace_rule("t/Subscriptions/s", replace(large, name="$Default")),
        lambda: broker.administration.create(SubscriptionDescription("t", "x", rules=(large,))),
    ):
        with pytest.raises(BrokerError, match="Properties is 1001 entries long; allowed is at most 1000") as refused:
            change()
        assert refused.value.condition is Condition.ARGUMENT_ERROR
    assert [rule.name for rule in broker.administration.rules("t/Subscriptions/s")] == ["$Default"]


# ---- what a change reaches


async def test_a_size_that_is_changed_holds_at_once(clock: Clock) -> None:
    broker = open_broker(QueueDescription("q"), clock=clock)
    broker.administration.create(TOPIC)
    broker.administration.create(SubscriptionDescription("t", "s"))
    broker.administration.update(QueueDescription("q", max_size_mb=2048))
    broker.administration.update(TopicDescription("t", max_size_mb=3072))
    sizes = {entity.path: entity.partitions[0].size_bytes_max >> 20 for entity in broker.namespace.entities()}
    assert sizes == {"q": 2048, "t": 3072, "t/Subscriptions/s": 3072}


async def test_a_queue_is_not_updated_to_a_topic(clock: Clock) -> None:
    broker = open_broker(QueueDescription("q"), clock=clock)
    with pytest.raises(BrokerError, match="'q' is a queue, not a topic"):
        broker.administration.update(TopicDescription("q"))


async def test_the_full_size_of_a_topic_counts_every_copy_at_once(clock: Clock) -> None:
    broker = open_broker(clock=clock)
    broker.administration.create(TOPIC)
    for name in ("a", "b", "c"):
        broker.administration.create(SubscriptionDescription("t", name))
    topic = broker.namespace.entity("t")
    assert topic is not None
    topic.partitions[0].size_bytes_max = 100_000
    answers = await asyncio.gather(
        *(send(broker, "t", encoded("x" * 1_000)) for _ in range(100)), return_exceptions=True
    )
    refused = [answer for answer in answers if isinstance(answer, BrokerError)]
    stored = sum(
        place.worker.counters(place.queue_id).bytes_used for e in broker.namespace.entities() for place in e.partitions
    )
    assert 100_000 - 1_000 <= stored <= 100_000 + 3 * 1_100
    assert len(refused) > 60
    assert refused[0].description.startswith(
        "The maximum entity size has been reached or exceeded for Topic: 'sbemulatorns:Topic:t'."
    )
    broker.administration.delete("t/Subscriptions/c")
    await send(broker, "t", encoded())
    assert len(await Receiver(broker, "t/Subscriptions/a").drain()) == 100 - len(refused) + 1
    await loop_turns(20)


# ---- idle entities


async def test_an_entity_in_use_outlives_a_failure_of_its_store(clock: Clock) -> None:
    disk = Disk()
    broker = open_broker(QueueDescription("q", auto_delete_on_idle_ms=600_000), clock=clock, failpoint=disk)
    for _ in range(3):
        clock.advance(300_000)
        await send(broker, "q", encoded())
    disk.fail("commit-started")
    with pytest.raises(BrokerError):
        await send(broker, "q", encoded())
    clock.advance(300_000)
    await loop_turns(5)
    assert paths(broker) == ["q"]
    clock.advance(300_000)
    assert paths(broker) == []


async def test_an_entity_with_a_scheduled_message_is_not_idle_after_a_restart(clock: Clock, tmp_path: Path) -> None:
    from proton import timestamp

    queue = QueueDescription("q", auto_delete_on_idle_ms=300_000)
    broker = open_broker(queue, clock=clock, folder=tmp_path)
    at = timestamp(clock.now_ms() + 3_600_000)
    await send(broker, "q", encoded("later", annotations={"x-opt-scheduled-enqueue-time": at}))
    await broker.stop()
    broker = open_broker(queue, clock=clock, folder=tmp_path)
    for _ in range(11):
        clock.advance(300_000)
        await loop_turns(3)
    assert paths(broker) == ["q"]
    clock.advance(300_000)
    await loop_turns(3)
    assert len(await Receiver(broker, "q").drain()) == 1


# ---- rules


async def test_a_rule_tells_when_it_was_created_and_keeps_that(clock: Clock, tmp_path: Path) -> None:
    broker = open_broker(clock=clock, folder=tmp_path)
    administration = broker.administration
    administration.create(TOPIC)
    administration.create(SubscriptionDescription("t", "s"))
    clock.advance(1_000)
    administration.add_rule("t/Subscriptions/s", RuleDescription("later", SqlFilter("a = 1")))
    clock.advance(1_000)
    administration.update(
        SubscriptionDescription(
            "t",
            "s",
            max_delivery_count=3,
            rules=(RuleDescription("$Default"), RuleDescription("later", SqlFilter("a = 2"))),
        )
    )
    await broker.stop()
    broker = open_broker(clock=clock, folder=tmp_path)
    rules = broker.administration.rules("t/Subscriptions/s")
    assert [(rule.name, rule.created_at) for rule in rules] == [("$Default", NOW), ("later", NOW + 2_000)]
    assert [rule_to_amqp(rule).value for rule in rules] == [
        [Described(Ulong(0x1370000007), []), Described(Ulong(0x13700000005), []), "$Default", Timestamp(NOW)],
        [
            Described(Ulong(0x1370000006), ["a = 2", Int(20)]),
            Described(Ulong(0x13700000005), []),
            "later",
            Timestamp(NOW + 2_000),
        ],
    ]


async def test_rules_are_listed_by_name_without_case(clock: Clock) -> None:
    broker = open_broker(clock=clock)
    administration = broker.administration
    administration.create(TOPIC)
    administration.create(SubscriptionDescription("t", "s"))
    for name in ("b", "C", "_z", "a10", "A2", "0"):
        administration.add_rule("t/Subscriptions/s", RuleDescription(name))
    listed = [rule.name for rule in administration.rules("t/Subscriptions/s")]
    assert listed == ["$Default", "0", "_z", "a10", "A2", "b", "C"]
    administration.replace_rule("t/Subscriptions/s", RuleDescription("a2", SqlFilter("a = 1")))
    assert [rule.name for rule in administration.rules("t/Subscriptions/s")] == listed


async def test_the_rules_of_the_configuration_are_as_old_as_their_first_start(clock: Clock, tmp_path: Path) -> None:
    topology = Topology(topics=(TOPIC,), subscriptions=(SubscriptionDescription("t", "s"),))
    for _ in range(2):
        catalog = Catalog(open_store(tmp_path, CATALOG_TABLES, Durability.PROCESS))
        broker = CheckedBroker(catalog, [MemoryStore(TABLES) for _ in range(16)], clock, LIMITS[Profile.STANDARD])
        broker.start(topology)
        assert [rule.created_at for rule in broker.administration.rules("t/Subscriptions/s")] == [NOW]
        await broker.stop()
        clock.advance(1_000)


# ---- a catalog whose store fails


class Namespace:
    """A catalog in memory whose commits fail while `step` is set."""

    def __init__(self) -> None:
        self.step = ""
        self.store = MemoryStore(CATALOG_TABLES, self._failpoint)
        self.catalog = Catalog(self.store)

    def _failpoint(self, name: str) -> None:
        if name == self.step:
            raise StoreFailed(None, "commit failed: I/O error")

    def stored(self) -> tuple[list[str], dict[int, list[int]]]:
        """What a restart would find."""
        again = Catalog(self.store)
        return [entry.description.name for entry in again.entries()], again.deleted


@pytest.mark.parametrize("step", ["commit-started", "committed"])
def test_a_change_that_failed_is_found_by_no_restart(step: str) -> None:
    namespace = Namespace()
    catalog = namespace.catalog
    catalog.create(QueueDescription("kept"), NOW)
    changes = (
        lambda: catalog.create(QueueDescription("new"), NOW),
        lambda: catalog.update(QueueDescription("kept", max_delivery_count=3), NOW),
        lambda: catalog.delete(["kept"], {1: [0]}),
    )
    for change in changes:
        namespace.step = step
        with pytest.raises(BrokerError, match="The store of the namespace could not keep the change") as refused:
            change()
        assert refused.value.condition is Condition.SERVER_BUSY
        namespace.step = ""
        catalog.create(QueueDescription("next"), NOW)
        assert namespace.stored() == (["kept", "next"], {})
        catalog.delete(["next"], {})
    again = Catalog(namespace.store)
    assert list(again.entries()) == list(catalog.entries())
    assert (
        catalog.create(QueueDescription("last"), NOW).queue_id == again.create(QueueDescription("last"), NOW).queue_id
    )


@pytest.mark.parametrize("step", ["commit-started", "committed"])
def test_a_change_that_failed_is_undone_at_once_if_the_store_lets_it(step: str) -> None:
    namespace = Namespace()
    namespace.catalog.create(QueueDescription("kept"), NOW)
    disk = Disk()
    namespace.store._failpoint = disk
    disk.fail(step)
    with pytest.raises(BrokerError):
        namespace.catalog.delete(["kept"], {1: [0]})
    assert namespace.stored() == (["kept"], {})


async def test_a_rule_that_can_not_be_kept_is_refused_and_matches_nothing(clock: Clock) -> None:
    namespace = Namespace()
    broker = CheckedBroker(namespace.catalog, [MemoryStore(TABLES) for _ in range(16)], clock, LIMITS[Profile.STANDARD])
    broker.start(Topology(topics=(TOPIC,), subscriptions=(SubscriptionDescription("t", "s", rules=()),)))
    namespace.step = "commit-started"
    with pytest.raises(BrokerError) as refused:
        broker.administration.add_rule("t/Subscriptions/s", RuleDescription("all"))
    assert refused.value.condition is Condition.SERVER_BUSY
    assert broker.administration.rules("t/Subscriptions/s") == ()
    await send(broker, "t", encoded())
    assert await Receiver(broker, "t/Subscriptions/s").drain() == []
    namespace.step = ""


def test_names_that_are_longer_than_a_key_are_kept() -> None:
    namespace = Namespace()
    names = ["日" * 250, "日" * 249 + "本"]
    for name in names:
        namespace.catalog.create(QueueDescription(name), NOW)
    assert namespace.stored() == (sorted(names), {})
    namespace.catalog.delete(names[:1], {})
    assert namespace.stored() == (names[1:], {})


async def test_a_change_of_the_keys_of_an_entity_is_told_and_no_other_change(clock: Clock) -> None:
    broker = open_broker(QueueDescription("q"), clock=clock)
    seen: list[list[str]] = []
    broker.namespace.on_keys_changed(lambda: seen.append([key.key for key in broker.namespace.entity_keys("q")]))
    own = AuthorizationRule("k", (Right.SEND,), "1")
    for changed in (
        QueueDescription("q", authorization_rules=(own,)),
        QueueDescription("q", authorization_rules=(own,), max_delivery_count=3),
        QueueDescription("q", authorization_rules=(replace(own, primary_key="2"),)),
        QueueDescription("q"),
    ):
        broker.administration.update(changed)
    assert seen == [["1"], ["2"], []]


async def test_the_bytes_of_a_topics_rules_are_counted_over_its_subscriptions_and_come_back(clock: Clock) -> None:
    admin = broker_within(small(rule_bytes_per_topic_max=1_100), clock).administration
    admin.create(TOPIC)
    for name in ("one", "two"):
        admin.create(SubscriptionDescription("t", name))

    def rule(name: str) -> RuleDescription:
        return RuleDescription(name, CorrelationFilter(properties={"a": "v" * 500}))

    admin.add_rule("t/Subscriptions/one", rule("r1"))
    admin.add_rule("t/Subscriptions/two", rule("r1"))
    for path in ("t/Subscriptions/one", "t/Subscriptions/two"):
        with pytest.raises(BrokerError, match="at most 1100 are allowed") as caught:
            admin.add_rule(path, rule("r2"))
        assert caught.value.condition is Condition.RESOURCE_LIMIT_EXCEEDED
    admin.remove_rule("t/Subscriptions/one", "r1")
    admin.add_rule("t/Subscriptions/two", rule("r2"))
    admin.delete("t/Subscriptions/two")
    admin.add_rule("t/Subscriptions/one", rule("r3"))
    admin.add_rule("t/Subscriptions/one", rule("r4"))


async def test_an_update_keeps_what_a_file_has_given_and_refuses_it_anew(clock: Clock) -> None:
    """Clients send all properties back to change one."""
    broker = broker_within(LIMITS[Profile.STANDARD], clock)
    given = QueueDescription("q", duplicate_window_ms=5_000)
    with pytest.raises(BrokerError):
        broker.administration.create(given)
    broker.administration.create(given, of_file=True)
    broker.administration.update(replace(given, user_metadata="mine"))
    with pytest.raises(BrokerError):
        broker.administration.update(replace(given, duplicate_window_ms=6_000))
    broker.administration.update(replace(given, duplicate_window_ms=20_000))
