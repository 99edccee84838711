"""Every limit of the table is enforced: lowering it makes something refuse. The page of limits agrees with it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from docs.generate.limits import PAGE, page
from emubus.broker.api import TABLES, ReceiveMode
from emubus.broker.broker import Broker
from emubus.broker.clock import Clock
from emubus.broker.errors import BrokerError, Condition
from emubus.broker.keys import Right
from emubus.broker.message.builder import envelope
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
from emubus.broker.model.profiles import LIMITS, Limits, Profile, Range
from emubus.broker.model.validation import queue_violations
from emubus.config_file.cursor import ConfigFileError
from emubus.config_file.reading import parse_config
from emubus.config_file.writing import config_json
from emubus.storage.memory_store import MemoryStore

from .driving import decoded, encoded
from .namespace import WAIT_S, CheckedBroker, Receiver, loop_turns, send

ROOT = Path(__file__).parent.parent.parent
Work = Callable[[Broker], Awaitable[None]]
NOT_LIMITS = {
    "profile",
    "defaults",
    "partitioning",
    "partition_count",
    "size_is_per_partition",
    "jms",
    "shared_sessions",
}
ELSEWHERE = {
    "connections_max": "tests/amqp/test_server.py",
    "file_duplicate_window_ms": "tests/emubus/test_config_schema.py",
}
RULE = RuleDescription("r", SqlFilter("a = 1"), "SET a = 1; SET b = 2")
BY_PROPERTY = CorrelationFilter(properties={"name": "value"})
KEY = AuthorizationRule("name", (Right.LISTEN,), "primary")
QUEUE = QueueDescription("q", user_metadata="text", auto_delete_on_idle_ms=600_000, authorization_rules=(KEY,))


def creating(*descriptions: Any) -> Work:
    async def create(broker: Broker) -> None:
        for description in descriptions:
            broker.administration.create(description)

    return create


def sending(data: bytes, *, batch: bool = False, **queue: Any) -> Work:
    async def work(broker: Broker) -> None:
        broker.administration.create(QueueDescription("sent", **queue))
        await send(broker, "sent", data, batch=batch)

    return work


def subscribing(*rules: RuleDescription) -> Work:
    return creating(TopicDescription("t"), SubscriptionDescription("t", "subscription", rules=rules))


async def in_a_transaction(broker: Broker) -> None:
    broker.administration.create(QUEUE)
    sender = broker.open_sender("q", detached=lambda _: None)
    transaction = broker.transactions.declare(broker)
    for _ in range(2):
        broker.work.send(transaction, sender, encoded(), batch=False)


NARROW = Range(1, 2)
LARGE = encoded("x" * 500)
CASES: dict[str, tuple[dict[str, Any], Work]] = {
    "max_size_mb": ({"max_size_mb": NARROW, "max_size_mb_choices": None}, creating(QUEUE)),
    "max_size_mb_choices": ({"max_size_mb_choices": (1,)}, creating(QUEUE)),
    "message_bytes_max": ({"message_bytes_max": 100}, sending(LARGE)),
    "message_bytes_settable": (
        {"message_bytes_settable": Range(1, 1024)},
        creating(replace(QUEUE, max_message_bytes=2048)),
    ),
    "partitioned_message_bytes_max": (
        {"partitioned_message_bytes_max": 100},
        sending(LARGE, enable_partitioning=True),
    ),
    "batch_bytes_max": (
        {"message_bytes_max": 100, "batch_bytes_max": 400},
        sending(envelope([encoded(), LARGE]), batch=True),
    ),
    "properties_bytes_max": ({"properties_bytes_max": 20}, sending(encoded(properties={"a": "x" * 50}))),
    "property_bytes_max": ({"property_bytes_max": 20}, sending(encoded(properties={"a": "x" * 50}))),
    "key_length_max": ({"key_length_max": 5}, sending(encoded(id="123456"))),
    "lock_duration_ms": ({"lock_duration_ms": NARROW}, creating(QUEUE)),
    "max_delivery_count": ({"max_delivery_count": NARROW}, creating(QUEUE)),
    "ttl_ms": ({"ttl_ms": NARROW}, creating(QUEUE)),
    "duplicate_window_ms": (
        {"duplicate_window_ms": NARROW, "file_duplicate_window_ms": NARROW},
        creating(QUEUE),
    ),
    "auto_delete_on_idle_ms": ({"auto_delete_on_idle_ms": NARROW}, creating(QUEUE)),
    "user_metadata_length_max": ({"user_metadata_length_max": 1}, creating(QUEUE)),
    "entities_max": ({"entities_max": 0}, creating(QUEUE)),
    "partitioned_entities_max": (
        {"partitioned_entities_max": 0},
        creating(replace(QUEUE, enable_partitioning=True)),
    ),
    "subscriptions_per_topic_max": ({"subscriptions_per_topic_max": 0}, subscribing()),
    "sql_filters_per_topic_max": ({"sql_filters_per_topic_max": 0}, subscribing(RULE)),
    "correlation_filters_per_topic_max": (
        {"correlation_filters_per_topic_max": 0},
        subscribing(replace(RULE, filter=CorrelationFilter(message_id="m"), action=None)),
    ),
    "authorization_rules_max": ({"authorization_rules_max": 0}, creating(QUEUE)),
    "key_name_length_max": ({"key_name_length_max": 3}, creating(QUEUE)),
    "shared_key_length_max": ({"shared_key_length_max": 3}, creating(QUEUE)),
    "entity_path_length_max": ({"entity_path_length_max": 0}, creating(QUEUE)),
    "sub_entity_name_length_max": ({"sub_entity_name_length_max": 3}, subscribing()),
    "rule_tokens_max": ({"rule_tokens_max": 2}, subscribing(RULE)),
    "rule_properties_max": ({"rule_properties_max": 0}, subscribing(replace(RULE, filter=BY_PROPERTY, action=None))),
    "rule_bytes_per_topic_max": ({"rule_bytes_per_topic_max": 3}, subscribing(RULE)),
    "rule_bytes_max": ({"rule_bytes_max": 3}, subscribing(replace(RULE, filter=BY_PROPERTY, action=None))),
    "messages_per_transaction_max": ({"messages_per_transaction_max": 1}, in_a_transaction),
    "action_statements_max": ({"action_statements_max": 1}, subscribing(RULE)),
}


async def too_long_rule(broker: Broker) -> None:
    await subscribing()(broker)
    broker.administration.add_rule("t/Subscriptions/subscription", RULE)


CASES["rule_text_length_max"] = ({"rule_text_length_max": 3}, too_long_rule)
OF_MESSAGES = {
    "message_bytes_max",
    "partitioned_message_bytes_max",
    "batch_bytes_max",
    "properties_bytes_max",
    "property_bytes_max",
    "key_length_max",
    "messages_per_transaction_max",
}
PASSED_OVER = {"message_bytes_settable", "auto_delete_on_idle_ms", "user_metadata_length_max"}
"""Limits of properties that Microsoft's schema of Config.json does not name: a file with such a value starts there."""
COUNTED = {"receives_per_entity_max", "messages_per_delete_max", "messages_per_range_delete_max", "forward_hops_max"}


def broker_within(**changes: Any) -> Broker:
    limits = replace(LIMITS[Profile.STANDARD], **changes)
    stores = [MemoryStore(TABLES) for _ in range(16)]
    broker = CheckedBroker(Catalog(MemoryStore(CATALOG_TABLES)), stores, Clock(), limits)
    broker.start(Topology())
    return broker


def test_every_limit_has_a_case() -> None:
    names = {each.name for each in fields(Limits)} - NOT_LIMITS
    assert names == set(CASES) | COUNTED | set(ELSEWHERE)
    assert {name for name, path in ELSEWHERE.items() if name not in (ROOT / path).read_text()} == set()


@pytest.mark.parametrize("name", CASES)
async def test_what_exceeds_a_limit_is_refused_and_passes_without(name: str) -> None:
    changes, work = CASES[name]
    broker = broker_within(**changes)
    with pytest.raises(BrokerError):
        await work(broker)
    if name not in {"message_bytes_settable", "batch_bytes_max"}:
        broker = broker_within()
        await work(broker)


@pytest.mark.parametrize("name", sorted(CASES.keys() - OF_MESSAGES))
async def test_what_an_administration_client_may_not_create_a_configuration_file_may_not_have(name: str) -> None:
    changes, work = CASES[name]
    settable = {"message_bytes_settable": Range(1, 4096)} if name == "message_bytes_settable" else {}
    broker = broker_within(**settable)
    await work(broker)
    text = json.dumps(config_json("ns", [entity.description for entity in broker.namespace.entities()]))
    parse_config(text, broker.limits)
    limits = replace(LIMITS[Profile.STANDARD], **changes)
    if name in PASSED_OVER:
        (queue,) = parse_config(text, limits).topology.queues
        assert [each.text for each in parse_config(text, limits).warnings if "passed over" in each.text]
        assert queue_violations(queue, limits) == []
        return
    with pytest.raises(ConfigFileError):
        parse_config(text, limits)


async def test_more_receivers_than_may_wait_are_detached_as_busy_and_others_go_on() -> None:
    broker = broker_within(receives_per_entity_max=2)
    broker.administration.create(TopicDescription("t"))
    for name in "abc":
        broker.administration.create(SubscriptionDescription("t", name))
    heard: list[tuple[str, Condition]] = []
    consumers = {
        name: broker.open_receiver(
            f"t/Subscriptions/{name}",
            mode=ReceiveMode.PEEK_LOCK,
            deliver=lambda _: None,
            detached=lambda error, name=name: heard.append((name, error.condition)),  # type: ignore[misc]
        )
        for name in "abc"
    }
    for consumer in consumers.values():
        consumer.set_credit(1)
    await loop_turns(3)
    assert heard == [("c", Condition.SERVER_BUSY)]
    await send(broker, "t", encoded())  # those that wait get one each, and wait no more
    await loop_turns(50)
    consumers["c"].set_credit(1)
    await loop_turns(3)
    assert len(heard) == 1


async def test_a_request_deletes_no_more_messages_than_the_limit() -> None:
    broker = broker_within(messages_per_delete_max=2, messages_per_range_delete_max=1)
    broker.administration.create(QueueDescription("q"))
    for _ in range(5):
        await send(broker, "q", encoded())
    assert await broker.messages.delete_messages("q", 5, Clock().now_ms() + 1_000_000) == 2
    assert await broker.messages.delete_before("q", 0, 1 << 40, 5) == 1


async def test_a_message_that_was_forwarded_as_often_as_the_limit_is_dead_lettered() -> None:
    broker = broker_within(forward_hops_max=1)
    for description in (
        QueueDescription("c"),
        QueueDescription("b", forward_to="c"),
        QueueDescription("a", forward_to="b"),
    ):
        broker.administration.create(description)
    await send(broker, "a", encoded())
    async with asyncio.timeout(WAIT_S):
        (dead,) = decoded(await Receiver(broker, "b/$DeadLetterQueue").receive(1))
    assert dead.properties["DeadLetterReason"] == "MaxTransferHopCountExceeded"


def test_the_page_of_limits_agrees_with_the_table() -> None:
    assert PAGE.read_text() == page()
