"""What the namespace keeps of its entities beside what they do: instants, keys, parameters; and what it counts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from emubus.broker.api import DeadLetter, Home, Outage, OutageKind
from emubus.broker.broker import Broker
from emubus.broker.clock import Clock
from emubus.broker.errors import BrokerError, Condition
from emubus.broker.keys import ALL_RIGHTS, Right, SharedKey
from emubus.broker.model.catalog import CATALOG_TABLES, CATALOG_UPGRADES, ENTITIES, NAMESPACE, Catalog
from emubus.broker.model.descriptions import (
    AuthorizationRule,
    CorrelationFilter,
    QueueDescription,
    RuleDescription,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
    TrueFilter,
    TypedText,
)
from emubus.broker.rules import FilterError
from emubus.storage import Durability, open_store
from emubus.storage.contract import upgrade_rows
from emubus.storage.memory_store import MemoryStore

from .driving import encoded, read
from .namespace import Receiver, forwarding_count, loop_turns, open_broker, send

NOW = 1_800_000_000_000
KEY = AuthorizationRule("k", (Right.MANAGE, Right.SEND, Right.LISTEN), "p", "s")


@pytest.fixture
def clock() -> Clock:
    return Clock(start_at=NOW, frozen=True)


def instants(broker: Broker, path: str) -> tuple[int | None, int | None, int | None]:
    entry, entity = broker.namespace.catalog.entry(path), broker.namespace.entity(path)
    assert entry is not None
    assert entity is not None
    return entry.created_at, entry.updated_at, broker.administration.accessed_at(entity)


async def test_an_entity_knows_when_it_was_made_changed_and_used_also_after_a_restart(
    tmp_path: Path, clock: Clock
) -> None:
    broker = open_broker(folder=tmp_path, clock=clock)
    queue = QueueDescription("q", enable_partitioning=True)
    broker.administration.create(queue)
    assert instants(broker, "q") == (NOW, NOW, None)
    clock.advance(10)
    broker.administration.update(QueueDescription("q", enable_partitioning=True, max_delivery_count=3))
    clock.advance(10)
    await send(broker, "q", encoded())
    assert instants(broker, "q") == (NOW, NOW + 10, NOW + 20)
    await broker.stop()
    broker = open_broker(folder=tmp_path, clock=clock)
    assert instants(broker, "q") == (NOW, NOW + 10, NOW + 20)
    assert broker.namespace.catalog.created_at == NOW


async def test_a_data_folder_of_an_older_version_opens(tmp_path: Path) -> None:
    store = open_store(tmp_path / "namespace", CATALOG_TABLES, Durability.PROCESS)
    with store.begin(1 << 16) as batch:
        batch.put(ENTITIES, b"qold", json.dumps({"id": 1, "description": {"name": "old"}}).encode())
        rule = {"name": "r", "filter": {"kind": "true"}, "action": "SET a = 1"}
        rows = {"topic_name": "t", "name": "s", "rules": [rule]}
        batch.put(ENTITIES, b"tt", json.dumps({"id": 2, "description": {"name": "t"}}).encode())
        batch.put(ENTITIES, b"ut/subscriptions/s", json.dumps({"id": 3, "description": rows}).encode())
        batch.put(NAMESPACE, b"next_queue_id", b"4")
        batch.put(NAMESPACE, b"store_count", b"16")
        upgrade_rows(batch, 3, CATALOG_UPGRADES)
        batch.commit()
    store.close()
    broker = open_broker(folder=tmp_path)
    assert instants(broker, "old") == (None, None, None)
    assert broker.namespace.catalog.created_at is None
    assert broker.administration.rules("t/Subscriptions/s") == (RuleDescription("r", TrueFilter(), "SET a = 1"),)
    await send(broker, "old", encoded())


@pytest.mark.parametrize(
    "description",
    [
        QueueDescription("q", enable_express=True, authorization_rules=(KEY,)),
        TopicDescription("t", enable_express=True, authorization_rules=(KEY, AuthorizationRule("l", (), "x"))),
        SubscriptionDescription(
            "t",
            "s",
            rules=(
                RuleDescription(
                    "r",
                    CorrelationFilter(properties={"l": TypedText("long", "3"), "i": 3, "d": 3.0}),
                    "SET a = @p",
                    action_parameters={"@p": TypedText("dateTime", "2020-07-05T11:12:13"), "@q": 1},
                ),
            ),
        ),
    ],
)
def test_a_description_comes_back_from_the_catalog_as_it_was(
    description: QueueDescription | TopicDescription | SubscriptionDescription,
) -> None:
    store = MemoryStore(CATALOG_TABLES)
    Catalog(store).update(description, NOW)
    (entry,) = Catalog(store).entries()
    assert entry.description == description
    if isinstance(entry.description, SubscriptionDescription):
        (rule,) = entry.description.rules
        assert isinstance(rule.filter, CorrelationFilter)
        assert {name: type(value) for name, value in rule.filter.properties.items()} == {
            "l": TypedText,
            "i": int,
            "d": float,
        }


async def test_the_keys_of_entities_are_those_that_their_rules_have_now() -> None:
    broker = open_broker(QueueDescription("A/q", authorization_rules=(KEY,)))
    broker.administration.create(TopicDescription("A", authorization_rules=(KEY,)))
    broker.administration.create(SubscriptionDescription("A", "s"))
    of_topic = SharedKey("k", "p", ALL_RIGHTS, "A", "s")
    of_queue = SharedKey("k", "p", ALL_RIGHTS, "A/q", "s")
    assert list(broker.namespace.entity_keys("a/Q")) == [of_topic, of_queue]
    assert list(broker.namespace.entity_keys("a/subscriptions/S/rules/r")) == [of_topic]
    assert list(broker.namespace.entity_keys("b")) == []
    assert set(broker.namespace.entity_keys(None)) == {of_topic, of_queue}
    broker.administration.update(QueueDescription("a/q"))
    broker.administration.delete("a")
    assert list(broker.namespace.entity_keys(None)) == []


# ---------------------------------------------------------------- rules


async def test_a_replaced_rule_keeps_its_place_and_decides_at_once(clock: Clock) -> None:
    broker = open_broker(clock=clock)
    administration = broker.administration
    administration.create(TopicDescription("t"))
    rules = (RuleDescription("One", SqlFilter("n = 1")), RuleDescription("two", SqlFilter("n = 2")))
    administration.create(SubscriptionDescription("t", "s", rules=rules))
    clock.advance(5)
    changed = RuleDescription("ONE", SqlFilter("n = @n", {"@n": 3}), "SET seen = @by", action_parameters={"by": "me"})
    administration.replace_rule("t/Subscriptions/s", changed)
    found = administration.rules("t/Subscriptions/s")
    assert [(rule.name, rule.created_at) for rule in found] == [("One", NOW + 5), ("two", NOW)]
    for number in (1, 2, 3):
        await send(broker, "t", encoded(properties={"n": number}))
    held = await broker.messages.peek("t/Subscriptions/s", 0, 10, 1 << 20)
    assert [dict(read(each).properties) for each in held] == [
        {"n": 2},
        {"n": 3, "seen": "me", "RuleName": "One"},
    ]


@pytest.mark.parametrize(("before", "after"), [(1, True), (1, 1.0), (True, 1), (0.0, -0.0)])
@pytest.mark.parametrize("how", ["filter", "action", "correlation"])
async def test_a_rule_is_replaced_by_one_whose_value_differs_in_its_type_alone(
    clock: Clock, how: str, before: float, after: float
) -> None:
    def rule(value: float) -> RuleDescription:
        match how:
            case "filter":
                return RuleDescription("r", SqlFilter("n = @n", {"@n": value}))
            case "action":
                return RuleDescription("r", SqlFilter("1 = 1"), "SET n = @n", action_parameters={"@n": value})
        return RuleDescription("r", CorrelationFilter(properties={"n": value}))

    broker = open_broker(clock=clock)
    administration = broker.administration
    administration.create(TopicDescription("t"))
    administration.create(SubscriptionDescription("t", "s", rules=(rule(before),)))
    clock.advance(5)
    administration.replace_rule("t/Subscriptions/s", rule(after))
    (found,) = administration.rules("t/Subscriptions/s")
    assert (json.dumps(found.to_json()), found.created_at) == (
        json.dumps(replace(rule(after), created_at=NOW + 5).to_json()),
        NOW + 5,
    )


async def test_a_rule_that_is_not_there_or_cannot_be_used_replaces_nothing() -> None:
    broker = open_broker()
    broker.administration.create(TopicDescription("t"))
    broker.administration.create(SubscriptionDescription("t", "s"))
    with pytest.raises(BrokerError) as missing:
        broker.administration.replace_rule("t/Subscriptions/s", RuleDescription("x"))
    assert missing.value.condition is Condition.NOT_FOUND
    for bad in (
        RuleDescription("$Default", SqlFilter("n =")),
        RuleDescription("$Default", action="SET a = @p"),
        RuleDescription("$Default", CorrelationFilter(properties={"n": TypedText("long", "9" * 30)})),
    ):
        with pytest.raises(FilterError):
            broker.administration.replace_rule("t/Subscriptions/s", bad)
    assert broker.administration.rules("t/Subscriptions/s") == (RuleDescription("$Default"),)


# ---------------------------------------------------------------- counts


async def test_what_all_partitions_hold_is_known_without_opening_them(tmp_path: Path) -> None:
    queue = QueueDescription("q", enable_partitioning=True)
    broker = open_broker(queue, folder=tmp_path)
    for number in range(40):
        await send(broker, "q", encoded(str(number)))
    entity = broker.namespace.entity("q")
    assert entity is not None
    before = entity.totals_now()
    assert (before.messages[Home.ACTIVE], sum(before.messages), before.is_limited) == (40, 40, False)
    await broker.stop()
    broker = open_broker(queue, folder=tmp_path)
    entity = broker.namespace.entity("q")
    assert entity is not None
    assert entity.totals_now() == before
    assert {place.worker.partition(entity.queue_id) for place in entity.partitions} == {None}
    broker.outages.begin(0, Outage(OutageKind.DOWN))
    limited = entity.totals_now()
    assert (limited.messages[Home.ACTIVE], limited.is_limited) == (37, True)
    assert limited.bytes_used < before.bytes_used


async def test_the_size_of_a_topic_is_that_of_all_copies() -> None:
    broker = open_broker()
    broker.administration.create(TopicDescription("t"))
    topic = broker.namespace.entity("t")
    assert topic is not None
    for name in ("a", "b"):
        broker.administration.create(SubscriptionDescription("t", name))
    await send(broker, "t", encoded("x" * 1000))
    parts = [each.totals_now().bytes_used for each in broker.namespace.subscriptions_of("t").entities()]
    assert min(parts) > 1000
    total = broker.namespace.totals_of_topic(topic)
    assert (total.bytes_used, sum(total.messages)) == (sum(parts), 0)


# ---------------------------------------------------------------- forwarding in circles


async def test_what_two_queues_dead_letter_to_each_other_comes_to_rest() -> None:
    there = QueueDescription("there", forward_dead_letters_to="back")
    back = QueueDescription("back", forward_dead_letters_to="there")
    clock = Clock(start_at=1_800_000_000_000, frozen=True)
    broker = open_broker(there, back, clock=clock)
    await send(broker, "there", encoded())
    for path in ("there", "back", "there", "back", "there"):
        receiver = Receiver(broker, path)
        (delivery,) = await receiver.receive(1)
        await receiver.settle(delivery, DeadLetter("r", None, {}))
        await loop_turns(50)
    (resting,) = await broker.messages.peek("there/$DeadLetterQueue", 0, 10, 1 << 20)
    assert read(resting).properties["DeadLetterReason"] == "r"
    assert forwarding_count(broker) == 0  # nobody tries it again and again


async def test_a_queue_that_forwards_to_itself_dead_letters_after_four_hops() -> None:
    broker = open_broker()
    broker.administration.create(QueueDescription("q", forward_to="q"))
    dead = Receiver(broker, "q/$DeadLetterQueue")
    await send(broker, "q", encoded())
    (delivery,) = await dead.receive(1)
    assert read(delivery.payload).properties["DeadLetterReason"] == "MaxTransferHopCountExceeded"
