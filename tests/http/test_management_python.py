"""Administration through the Python SDK, over https with the development CA."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from azure.core.exceptions import HttpResponseError
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.management import (
    AccessRights,
    AuthorizationRule,
    CorrelationRuleFilter,
    ServiceBusAdministrationClient,
    SqlRuleAction,
    SqlRuleFilter,
)
from proton import timestamp

from emubus.broker.api import DeadLetter, Defer, Outage, OutageKind
from emubus.broker.clock import Clock
from emubus.broker.model.descriptions import QueueDescription
from emubus.server import Server

from ..broker.driving import encoded
from ..broker.namespace import Receiver, per_partition, send
from .administering import Sdk, raw, running, sdk

Client = ServiceBusAdministrationClient
PARTITION_COUNT = 16


@asynccontextmanager
async def served(folder: Path, clock: Clock | None = None, **options: str) -> AsyncIterator[tuple[Server, Sdk]]:
    async with running(folder, clock, tls="dev", **options) as server, sdk(server, folder) as admin:
        yield server, admin


async def refusal(admin: Sdk, work: Callable[[Client], object], status: int) -> str:
    with pytest.raises(HttpResponseError) as refused:
        await admin(work)
    assert refused.value.status_code == status
    return refused.value.message


# ---------------------------------------------------------------- entities


async def test_values_of_every_type_in_filters_and_actions_are_kept(tmp_path: Path) -> None:
    values: dict[str, str | int | float | bool | datetime | timedelta] = {
        "text": "x",
        "int": 2,
        "long": 2**31 + 2,
        "double": 2.5,
        "bool": False,
        "at": datetime(2020, 7, 5, 11, 12, 13),
        "span": timedelta(days=1, hours=2, minutes=3),
    }

    def work(client: Client) -> None:
        client.create_topic("t")
        client.create_subscription("t", "s")
        client.create_rule(
            "t",
            "s",
            "typed",
            filter=CorrelationRuleFilter(correlation_id="c", properties=dict(values)),
            action=SqlRuleAction("SET a = @p", parameters={"@p": values["at"]}),
        )
        rule = client.get_rule("t", "s", "typed")
        assert isinstance(rule.filter, CorrelationRuleFilter)
        assert (rule.filter.correlation_id, rule.filter.properties) == ("c", values)
        assert isinstance(rule.action, SqlRuleAction)
        assert (rule.action.sql_expression, rule.action.parameters) == ("SET a = @p", {"@p": values["at"]})
        rule.filter, rule.action = SqlRuleFilter("a = @x", parameters={"@x": 1}), None
        client.update_rule("t", "s", rule)
        changed = client.get_rule("t", "s", "typed")
        assert isinstance(changed.filter, SqlRuleFilter)
        assert (changed.filter.sql_expression, changed.filter.parameters, changed.action) == ("a = @x", {"@x": 1}, None)
        runtime = client.get_topic_runtime_properties("t")
        assert (runtime.subscription_count, runtime.sql_filter_count, runtime.correlation_filter_count) == (1, 2, 0)

    async with served(tmp_path) as (_, admin):
        await admin(work)


async def test_instants_tell_when_an_entity_was_made_changed_and_used(tmp_path: Path) -> None:
    clock = Clock(start_at=1_800_000_000_000, frozen=True)
    made = datetime(2027, 1, 15, 8, tzinfo=UTC)

    def instants(client: Client) -> tuple[object, object, object]:
        shown = client.get_queue_runtime_properties("q")
        return shown.created_at_utc, shown.updated_at_utc, shown.accessed_at_utc

    def change(client: Client) -> None:
        queue = client.get_queue("q")
        queue.max_delivery_count = 2
        client.update_queue(queue)

    async with served(tmp_path, clock, durability="process") as (server, admin):
        await admin(lambda client: client.create_queue("q"))
        assert await admin(instants) == (made, made, datetime(1, 1, 1, tzinfo=UTC))
        clock.advance(1_000)
        await admin(change)
        clock.advance(1_000)
        await send(server.broker, "q", encoded())
        expected = (made, made + timedelta(seconds=1), made + timedelta(seconds=2))
        assert await admin(instants) == expected
    later = Clock(start_at=1_900_000_000_000, frozen=True)
    async with served(tmp_path, later, durability="process") as (_, admin):
        assert await admin(instants) == expected


async def test_a_key_of_a_queue_that_was_made_here_opens_it_over_amqp(tmp_path: Path) -> None:
    key = AuthorizationRule(rights=[AccessRights.SEND], key_name="k", primary_key="p", secondary_key="s")

    def send_one(port: int) -> None:
        text = f"Endpoint=sb://localhost:{port};SharedAccessKeyName=k;SharedAccessKey=p;UseDevelopmentEmulator=true"
        with (
            ServiceBusClient.from_connection_string(text, retry_total=0) as client,
            client.get_queue_sender("q") as sender,
        ):
            sender.send_messages(ServiceBusMessage("x"))

    async with served(tmp_path, auth="sas") as (server, admin):
        await admin(lambda client: client.create_queue("q", authorization_rules=[key]))
        await asyncio.to_thread(send_one, server.amqp_port)
        counted = await admin(lambda client: client.get_queue_runtime_properties("q").active_message_count)
        assert counted == 1


# ---------------------------------------------------------------- counts


async def fill(server: Server, name: str) -> None:
    """Forty messages without a key; of these 3 dead-lettered, 2 deferred; and 5 scheduled ones."""
    for number in range(40):
        await send(server.broker, name, encoded(str(number)))
    receiver = Receiver(server.broker, name)
    deliveries = await receiver.receive(5)
    for delivery in deliveries[:3]:
        await receiver.settle(delivery, DeadLetter("r", "d"))
    for delivery in deliveries[3:]:
        await receiver.settle(delivery, Defer())
    receiver.consumer.close()
    at = server.clock.now_ms() + 3_600_000
    for _ in range(5):
        await server.broker.messages.schedule(
            name, [encoded(annotations={"x-opt-scheduled-enqueue-time": timestamp(at)})]
        )


def counts(client: Client, name: str = "q") -> tuple[object, ...]:
    shown = client.get_queue_runtime_properties(name)
    return (
        shown.active_message_count,
        shown.dead_letter_message_count,
        shown.scheduled_message_count,
        shown.transfer_message_count,
        shown.transfer_dead_letter_message_count,
        shown.total_message_count,
    )


@pytest.mark.parametrize("partitioned", [False, True])
async def test_counts_are_those_of_all_partitions_also_after_a_restart(tmp_path: Path, partitioned: bool) -> None:
    async with served(tmp_path, durability="process") as (server, admin):
        await admin(lambda client: client.create_queue("q", enable_partitioning=partitioned))
        await fill(server, "q")
        size = await admin(lambda client: client.get_queue_runtime_properties("q").size_in_bytes)
        assert await admin(counts) == (37, 3, 5, 0, 0, 45)
        assert size is not None
        assert size > 45 * 20
    async with served(tmp_path, durability="process") as (server, admin):
        entity = server.broker.namespace.entity("q")
        assert entity is not None
        assert {place.worker.partition(entity.queue_id) for place in entity.partitions} == {None}
        assert await admin(counts) == (37, 3, 5, 0, 0, 45)
        assert await admin(lambda client: client.get_queue_runtime_properties("q").size_in_bytes) == size
        (listed,) = await admin(lambda client: [q for q in client.list_queues_runtime_properties() if q.name == "q"])
        assert listed.total_message_count == 45


# ---------------------------------------------------------------- partitions


@pytest.mark.parametrize("count", ["1", "2", "4"])
async def test_p03_every_entity_of_a_partitioned_premium_namespace_is_partitioned(tmp_path: Path, count: str) -> None:
    async with served(tmp_path, profile="premium", premium_partitions=count) as (server, admin):
        await admin(lambda client: client.create_queue("said", enable_partitioning=True))
        await admin(lambda client: client.create_queue("unsaid"))
        for name in ("said", "unsaid"):
            entity = server.broker.namespace.entity(name)
            assert entity is not None
            assert len(entity.partitions) == int(count)
        error = await refusal(admin, lambda client: client.create_queue("not", enable_partitioning=False), 400)
        assert "EnablePartitioning is false; allowed is true: the namespace is partitioned" in error
        assert server.broker.namespace.entity("not") is None


async def test_p03_no_entity_of_an_unpartitioned_premium_namespace_is_partitioned(tmp_path: Path) -> None:
    async with served(tmp_path, profile="premium") as (server, admin):
        await admin(lambda client: client.create_topic("unsaid"))
        error = await refusal(admin, lambda client: client.create_topic("not", enable_partitioning=True), 400)
        assert "EnablePartitioning is true; allowed is false: the namespace is not partitioned" in error
        assert (await admin(lambda client: client.get_topic("unsaid"))).enable_partitioning is False
        assert server.broker.namespace.entity("not") is None


async def test_p03_partitioned_entities_that_were_migrated_to_premium_keep_their_partitions(tmp_path: Path) -> None:
    async with running(tmp_path, durability="process") as server:
        server.broker.administration.create(QueueDescription("old", enable_partitioning=True, max_size_mb=2048))
        for number in range(32):
            await send(server.broker, "old", encoded(str(number)))
    async with served(tmp_path, profile="premium", durability="process") as (server, admin):
        broker = server.broker
        assert per_partition(await Receiver(broker, "old").receive(32)) == dict.fromkeys(range(PARTITION_COUNT), 2)
        shown = await admin(lambda client: client.get_queue("old"))
        assert (shown.enable_partitioning, shown.max_size_in_megabytes) == (True, PARTITION_COUNT * 2048)
        shown.max_delivery_count = 3
        await admin(lambda client: client.update_queue(shown))
        entity = broker.namespace.find_target("old")
        expected = QueueDescription("old", enable_partitioning=True, max_size_mb=2048, max_delivery_count=3)
        assert entity.description == replace(expected, max_message_bytes=1 << 20)
        assert {place.size_bytes_max for place in entity.partitions} == {2048 << 20}
        error = await refusal(admin, lambda client: client.create_queue("new", enable_partitioning=True), 400)
        assert "EnablePartitioning is true; allowed is false: the namespace is not partitioned" in error
        await admin(lambda client: client.create_queue("new"))
        assert len(broker.namespace.find_target("new").partitions) == 1
        await send(broker, "new", encoded("x"))
        assert len(await Receiver(broker, "new").receive(1)) == 1


async def test_p04_premium_sizes_are_those_of_the_entity(tmp_path: Path) -> None:
    allowed = (1, 2, 3, 4, 5, 10, 20, 40, 80)

    def sizes(client: Client) -> list[int | None]:
        for gigabytes in allowed:
            client.create_queue(f"q{gigabytes:02}", max_size_in_megabytes=gigabytes * 1024)
        return [each.max_size_in_megabytes for each in client.list_queues()][: len(allowed)]

    async with served(tmp_path, profile="premium", premium_partitions="2") as (_, admin):
        assert await admin(sizes) == [gigabytes * 1024 for gigabytes in allowed]
        assert "The specified value 6144 is invalid. The property 'MaxSizeInMegabytes', must be" in await refusal(
            admin, lambda client: client.create_queue("six", max_size_in_megabytes=6144), 400
        )


async def test_p05_a_standard_namespace_has_at_most_100_partitioned_entities(tmp_path: Path) -> None:
    def hundred(client: Client) -> None:
        for number in range(50):
            client.create_queue(f"q{number}", enable_partitioning=True)
            client.create_topic(f"t{number}", enable_partitioning=True)

    async with served(tmp_path) as (server, admin):
        await admin(hundred)
        error = await refusal(admin, lambda client: client.create_queue("more", enable_partitioning=True), 403)
        assert "'EnablePartioning == true' has been reached or exceeded: there are 100; allowed is at most 100" in error
        assert server.broker.namespace.entity("more") is None
        await admin(lambda client: client.create_queue("plain"))
        assert (await admin(lambda client: client.get_queue("plain"))).max_message_size_in_kilobytes == 256
    async with served(tmp_path / "relaxed", profile="relaxed") as (_, admin):
        await admin(hundred)
        await admin(lambda client: client.create_queue("more", enable_partitioning=True))


async def test_p05_a_namespace_has_a_number_of_entities_that_is_the_most(tmp_path: Path) -> None:
    async with served(tmp_path) as (server, admin):
        assert server.broker.limits.entities_max == 10_000
        server.broker.namespace.limits = replace(server.broker.limits, entities_max=2)
        await admin(lambda client: client.create_topic("second"))
        error = await refusal(admin, lambda client: client.create_queue("third"), 403)
        assert (
            "'Queue or Topic' has been reached or exceeded: there are 2; allowed is at most 2 (profile standard)."
            in error
        )


@pytest.mark.parametrize("version", ["2013-10", "2015-01", "2017-04", "2021-05", "2024-05"])
async def test_p06_partitioned_entities_are_made_with_every_api_version(tmp_path: Path, version: str) -> None:
    async with running(tmp_path) as server, raw(server) as http:
        parts = "<EnablePartitioning>true</EnablePartitioning>"
        for kind in ("Queue", "Topic"):
            made = await http.put(f"/{kind}", f"<{kind}Description>{parts}</{kind}Description>", version=version)
            assert (made.status, made.elements["EnablePartitioning"]) == (201, "true")
            entity = server.broker.namespace.entity(kind)
            assert entity is not None
            assert len(entity.partitions) == PARTITION_COUNT


@pytest.mark.parametrize("kind", [OutageKind.DOWN, OutageKind.FAILING, OutageKind.FULL])
async def test_p17_changes_reach_all_partitions_or_none(tmp_path: Path, kind: OutageKind) -> None:
    def update(client: Client) -> None:
        queue = client.get_queue("parts")
        queue.max_delivery_count = 99
        client.update_queue(queue)

    async with served(tmp_path) as (server, admin):
        await admin(lambda client: client.create_queue("parts", enable_partitioning=True))
        await admin(lambda client: client.create_topic("topic", enable_partitioning=True))
        server.broker.outages.begin(5, Outage(kind))
        changes: list[Callable[[Client], object]] = [
            lambda client: client.create_queue("new", enable_partitioning=True),
            lambda client: client.create_topic("other"),
            lambda client: client.create_subscription("topic", "new"),
            update,
            lambda client: client.delete_queue("parts"),
        ]
        for change in changes:
            assert "Messaging store 5 could not complete the operation" in await refusal(admin, change, 503)
        assert await admin(lambda client: [each.name for each in client.list_queues()]) == ["parts", "queue.1"]
        assert await admin(lambda client: [each.name for each in client.list_topics()]) == ["topic"]
        assert await admin(lambda client: list(client.list_subscriptions("topic"))) == []
        assert (await admin(lambda client: client.get_queue("parts"))).max_delivery_count == 10
        server.broker.outages.end(5)
        for change in changes:
            await admin(change)
        assert server.broker.namespace.entity("parts") is None
