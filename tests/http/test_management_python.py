"""Administration through the Python SDK, over https with the development CA."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.management import (
    AccessRights,
    AuthorizationRule,
    CorrelationRuleFilter,
    EntityAvailabilityStatus,
    EntityStatus,
    FalseRuleFilter,
    ServiceBusAdministrationClient,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
)
from proton import timestamp

from emubus.broker.clock import Clock
from emubus.broker.outage import Outage, OutageKind
from emubus.broker.outcomes import DeadLetter, Defer
from emubus.server import Server

from ..broker.driving import encoded
from ..broker.namespace import Receiver, send
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


# ---------------------------------------------------------------- every kind of entity


LISTENER = AuthorizationRule(
    type="SharedAccessAuthorizationRule",
    claim_type="SharedAccessKey",
    claim_value="None",
    rights=[AccessRights.LISTEN, AccessRights.SEND],
    key_name="k",
    primary_key="p",
    secondary_key="s",
)


async def test_queues_are_made_read_changed_listed_and_deleted(tmp_path: Path) -> None:
    def work(client: Client) -> None:
        client.create_queue("target")
        client.create_queue(
            "a/Q",
            lock_duration="PT45S",
            max_size_in_megabytes=2048,
            requires_duplicate_detection=True,
            duplicate_detection_history_time_window=timedelta(minutes=2),
            default_message_time_to_live=timedelta(hours=1),
            dead_lettering_on_message_expiration=True,
            max_delivery_count=8,
            enable_batched_operations=False,
            enable_express=True,
            auto_delete_on_idle=timedelta(hours=2),
            forward_dead_lettered_messages_to="target",
            user_metadata="<&>",
            authorization_rules=[LISTENER],
        )
        queue = client.get_queue("A/q")
        assert (queue.lock_duration, queue.max_size_in_megabytes, queue.max_delivery_count) == (
            timedelta(seconds=45),
            2048,
            8,
        )
        assert (queue.requires_duplicate_detection, queue.enable_express, queue.enable_batched_operations) == (
            True,
            True,
            False,
        )
        assert (queue.default_message_time_to_live, queue.auto_delete_on_idle) == (
            timedelta(hours=1),
            timedelta(hours=2),
        )
        assert (queue.user_metadata, queue.status, queue.availability_status) == ("<&>", "Active", "Available")
        assert str(queue.forward_dead_lettered_messages_to).endswith("/target")
        (rule,) = queue.authorization_rules or []
        assert (rule.key_name, rule.rights, rule.primary_key) == ("k", [AccessRights.LISTEN, AccessRights.SEND], "p")
        queue.max_delivery_count = 2
        queue.forward_dead_lettered_messages_to = None
        queue.status = EntityStatus.SEND_DISABLED
        client.update_queue(queue)
        changed = client.get_queue("a/Q")
        assert (changed.max_delivery_count, changed.forward_dead_lettered_messages_to, changed.status) == (
            2,
            None,
            EntityStatus.SEND_DISABLED,
        )
        assert [each.name for each in client.list_queues()] == ["a/Q", "queue.1", "target"]
        client.delete_queue("a/Q")
        for missing in (client.get_queue, client.delete_queue, client.get_queue_runtime_properties):
            with pytest.raises(ResourceNotFoundError):
                missing("a/Q")
        with pytest.raises(ResourceExistsError):
            client.create_queue("TARGET")

    async with served(tmp_path) as (_, admin):
        await admin(work)


async def test_topics_subscriptions_and_rules_are_made_read_changed_listed_and_deleted(tmp_path: Path) -> None:
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
        client.create_topic("t", support_ordering=False)
        assert client.get_topic("t").support_ordering is False
        client.create_subscription("t", "S", requires_session=True, lock_duration="PT30S")
        subscription = client.get_subscription("t", "s")
        assert (subscription.requires_session, subscription.lock_duration) == (True, timedelta(seconds=30))
        subscription.max_delivery_count = 3
        client.update_subscription("t", subscription)
        assert client.get_subscription("t", "s").max_delivery_count == 3
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
        client.create_rule("t", "s", "none", filter=FalseRuleFilter())
        kinds = [(each.name, type(each.filter)) for each in client.list_rules("t", "s")]
        assert kinds == [("$Default", TrueRuleFilter), ("typed", SqlRuleFilter), ("none", FalseRuleFilter)]
        runtime = client.get_topic_runtime_properties("t")
        assert (runtime.subscription_count, runtime.sql_filter_count, runtime.correlation_filter_count) == (1, 3, 0)
        client.delete_rule("t", "s", "typed")
        with pytest.raises(ResourceNotFoundError):
            client.get_rule("t", "s", "typed")
        client.delete_subscription("t", "s")
        assert list(client.list_subscriptions("t")) == []
        client.delete_topic("t")
        with pytest.raises(ResourceNotFoundError):
            client.get_topic("t")

    async with served(tmp_path) as (_, admin):
        await admin(work)


async def test_lists_longer_than_a_page_are_complete(tmp_path: Path) -> None:
    def work(client: Client) -> None:
        names = [f"q{number:03}" for number in range(205)]
        for name in names:
            client.create_queue(name)
        assert [each.name for each in client.list_queues()] == [*names, "queue.1"]
        assert [each.name for each in client.list_queues_runtime_properties()] == [*names, "queue.1"]

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


async def test_keys_are_checked_where_tokens_are(tmp_path: Path) -> None:
    async with served(tmp_path, auth="sas") as (server, admin):
        await admin(lambda client: client.create_queue("q"))
        async with sdk(server, tmp_path, credentials=("invalid", "invalid")) as stranger:
            await refusal(stranger, lambda client: list(client.list_queues()), 401)
        assert await admin(lambda client: [each.name for each in client.list_queues()]) == ["q", "queue.1"]


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
        await server.broker.schedule(name, [encoded(annotations={"x-opt-scheduled-enqueue-time": timestamp(at)})])


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
        entity = server.broker.entity("q")
        assert entity is not None
        assert {place.worker.partition(entity.queue_id) for place in entity.partitions} == {None}
        assert await admin(counts) == (37, 3, 5, 0, 0, 45)
        assert await admin(lambda client: client.get_queue_runtime_properties("q").size_in_bytes) == size
        (listed,) = await admin(lambda client: [q for q in client.list_queues_runtime_properties() if q.name == "q"])
        assert listed.total_message_count == 45


async def test_the_copies_of_subscriptions_are_counted_there_and_in_the_size_of_the_topic(tmp_path: Path) -> None:
    def made(client: Client) -> None:
        client.create_topic("t", enable_partitioning=True)
        for name in ("a", "b"):
            client.create_subscription("t", name)

    async with served(tmp_path) as (server, admin):
        await admin(made)
        for number in range(20):
            await send(server.broker, "t", encoded(str(number)))
        for name in ("a", "b"):
            shown = await admin(lambda client, name=name: client.get_subscription_runtime_properties("t", name))  # type: ignore[misc]
            assert (shown.active_message_count, shown.total_message_count) == (20, 20)
        topic = await admin(lambda client: client.get_topic_runtime_properties("t"))
        assert topic.subscription_count == 2
        assert topic.size_in_bytes is not None
        assert topic.size_in_bytes > 40 * 20


# ---------------------------------------------------------------- partitions


async def test_p01_partitioning_is_chosen_at_creation_and_a_flip_changes_nothing(tmp_path: Path) -> None:
    def flip(client: Client, name: str) -> None:
        queue = client.get_queue(name)
        queue.enable_partitioning = not queue.enable_partitioning
        queue.max_delivery_count = 99
        client.update_queue(queue)

    async with served(tmp_path) as (_, admin):
        await admin(lambda client: client.create_queue("parts", enable_partitioning=True))
        await admin(lambda client: client.create_queue("plain"))
        await admin(lambda client: client.create_topic("topic", enable_partitioning=True))
        for name in ("parts", "plain"):
            before = await admin(lambda client, name=name: dict(client.get_queue(name)))  # type: ignore[misc]
            told = await refusal(admin, lambda client, name=name: flip(client, name), 400)  # type: ignore[misc]
            assert "Partitioning cannot be changed for Queue." in told
            assert await admin(lambda client, name=name: dict(client.get_queue(name))) == before  # type: ignore[misc]

        def flip_topic(client: Client) -> None:
            topic = client.get_topic("topic")
            topic.enable_partitioning = False
            client.update_topic(topic)

        assert "Partitioning cannot be changed for Topic." in await refusal(admin, flip_topic, 400)


async def test_p02_partitioned_and_unpartitioned_entities_live_side_by_side(tmp_path: Path) -> None:
    async with served(tmp_path) as (server, admin):
        for kind in ("queue", "topic"):
            for name, partitioned in (("parts", True), ("plain", False)):
                create = getattr(admin.client, f"create_{kind}")
                await asyncio.to_thread(create, f"{kind}-{name}", enable_partitioning=partitioned)
                entity = server.broker.entity(f"{kind}-{name}")
                assert entity is not None
                assert len(entity.partitions) == (PARTITION_COUNT if partitioned else 1)
        shown = await admin(lambda client: {each.name: each.enable_partitioning for each in client.list_queues()})
        assert shown == {"queue-parts": True, "queue-plain": False, "queue.1": False}


@pytest.mark.parametrize("count", ["1", "2", "4"])
async def test_p03_every_entity_of_a_partitioned_premium_namespace_is_partitioned(tmp_path: Path, count: str) -> None:
    async with served(tmp_path, profile="premium", premium_partitions=count) as (server, admin):
        await admin(lambda client: client.create_queue("said", enable_partitioning=True))
        await admin(lambda client: client.create_queue("unsaid"))
        for name in ("said", "unsaid"):
            entity = server.broker.entity(name)
            assert entity is not None
            assert len(entity.partitions) == int(count)
        told = await refusal(admin, lambda client: client.create_queue("not", enable_partitioning=False), 400)
        assert "EnablePartitioning is false; allowed is true: the namespace is partitioned" in told
        assert server.broker.entity("not") is None


async def test_p03_no_entity_of_an_unpartitioned_premium_namespace_is_partitioned(tmp_path: Path) -> None:
    async with served(tmp_path, profile="premium") as (server, admin):
        await admin(lambda client: client.create_topic("unsaid"))
        told = await refusal(admin, lambda client: client.create_topic("not", enable_partitioning=True), 400)
        assert "EnablePartitioning is true; allowed is false: the namespace is not partitioned" in told
        assert (await admin(lambda client: client.get_topic("unsaid"))).enable_partitioning is False
        assert server.broker.entity("not") is None


async def test_p04_the_size_of_a_partitioned_entity_is_shown_as_that_of_all_partitions(tmp_path: Path) -> None:
    def sizes(client: Client) -> list[int | None]:
        client.create_queue("default", enable_partitioning=True)
        client.create_queue("largest", enable_partitioning=True, max_size_in_megabytes=5120)
        client.create_queue("plain", max_size_in_megabytes=5120)
        queue = client.get_queue("largest")
        queue.max_delivery_count = 3
        client.update_queue(queue)  # which sends the size back that was shown
        return [client.get_queue(name).max_size_in_megabytes for name in ("default", "largest", "plain")]

    async with served(tmp_path) as (server, admin):
        assert await admin(sizes) == [16 * 1024, 16 * 5120, 5120]
        entity = server.broker.entity("largest")
        assert entity is not None
        assert {place.size_bytes_max for place in entity.partitions} == {5120 << 20}
        told = await refusal(admin, lambda client: client.create_queue("odd", max_size_in_megabytes=6144), 400)
        assert "MaxSizeInMegabytes is 6144; allowed is one of 1024, 2048, 3072, 4096, 5120" in told


async def test_p04_premium_sizes_are_those_of_the_entity(tmp_path: Path) -> None:
    allowed = (1, 2, 3, 4, 5, 10, 20, 40, 80)

    def sizes(client: Client) -> list[int | None]:
        for gigabytes in allowed:
            client.create_queue(f"q{gigabytes:02}", max_size_in_megabytes=gigabytes * 1024)
        return [each.max_size_in_megabytes for each in client.list_queues()][: len(allowed)]

    async with served(tmp_path, profile="premium", premium_partitions="2") as (_, admin):
        assert await admin(sizes) == [gigabytes * 1024 for gigabytes in allowed]
        assert "MaxSizeInMegabytes is 6144" in await refusal(
            admin, lambda client: client.create_queue("six", max_size_in_megabytes=6144), 400
        )


async def test_p05_a_standard_namespace_has_at_most_100_partitioned_entities(tmp_path: Path) -> None:
    def hundred(client: Client) -> None:
        for number in range(50):
            client.create_queue(f"q{number}", enable_partitioning=True)
            client.create_topic(f"t{number}", enable_partitioning=True)

    async with served(tmp_path) as (server, admin):
        await admin(hundred)
        told = await refusal(admin, lambda client: client.create_queue("more", enable_partitioning=True), 403)
        assert "The namespace has 100 partitioned queues and topics; allowed is at most 100" in told
        assert server.broker.entity("more") is None
        await admin(lambda client: client.create_queue("plain"))
        assert (await admin(lambda client: client.get_queue("plain"))).max_message_size_in_kilobytes == 256
    async with served(tmp_path / "relaxed", profile="relaxed") as (_, admin):
        await admin(hundred)
        await admin(lambda client: client.create_queue("more", enable_partitioning=True))


async def test_p05_a_namespace_has_a_number_of_entities_that_is_the_most(tmp_path: Path) -> None:
    async with served(tmp_path) as (server, admin):
        assert server.broker.limits.entities_max == 10_000
        server.broker.limits = replace(server.broker.limits, entities_max=2)
        await admin(lambda client: client.create_topic("second"))
        told = await refusal(admin, lambda client: client.create_queue("third"), 403)
        assert "The namespace has 2 queues and topics; allowed is at most 2 (profile standard)." in told


@pytest.mark.parametrize("version", ["2013-10", "2015-01", "2017-04", "2021-05", "2024-05"])
async def test_p06_partitioned_entities_are_made_with_every_api_version(tmp_path: Path, version: str) -> None:
    async with running(tmp_path) as server, raw(server) as http:
        parts = "<EnablePartitioning>true</EnablePartitioning>"
        for kind in ("Queue", "Topic"):
            made = await http.put(f"/{kind}", f"<{kind}Description>{parts}</{kind}Description>", version=version)
            assert (made.status, made.elements["EnablePartitioning"]) == (201, "true")
            entity = server.broker.entity(kind)
            assert entity is not None
            assert len(entity.partitions) == PARTITION_COUNT


async def test_p06_messages_fill_the_partitions_of_a_queue_that_the_sdk_made(tmp_path: Path) -> None:
    async with served(tmp_path) as (server, admin):
        await admin(lambda client: client.create_queue("q", enable_partitioning=True))
        for number in range(2 * PARTITION_COUNT):
            await send(server.broker, "q", encoded(str(number)))
        numbers = [delivery.sequence_number for delivery in await Receiver(server.broker, "q").drain()]
        assert sorted(number >> 48 for number in numbers) == sorted([*range(PARTITION_COUNT)] * 2)


@pytest.mark.parametrize("kind", [OutageKind.DOWN, OutageKind.FAILING, OutageKind.FULL])
async def test_p17_changes_reach_all_partitions_or_none(tmp_path: Path, kind: OutageKind) -> None:
    def update(client: Client) -> None:
        queue = client.get_queue("parts")
        queue.max_delivery_count = 99
        client.update_queue(queue)

    async with served(tmp_path) as (server, admin):
        await admin(lambda client: client.create_queue("parts", enable_partitioning=True))
        await admin(lambda client: client.create_topic("topic", enable_partitioning=True))
        server.broker.begin_outage(5, Outage(kind))
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
        server.broker.end_outage(5)
        for change in changes:
            await admin(change)
        assert server.broker.entity("parts") is None


async def test_p17_reading_counts_what_can_be_reached_and_says_that_it_is_limited(tmp_path: Path) -> None:
    def shown(client: Client) -> tuple[object, object]:
        return client.get_queue("q").availability_status, counts(client)[0]

    async with served(tmp_path) as (server, admin):
        await admin(lambda client: client.create_queue("q", enable_partitioning=True))
        await admin(lambda client: client.create_queue("elsewhere"))
        for number in range(3 * PARTITION_COUNT):
            await send(server.broker, "q", encoded(str(number)))
        assert await admin(shown) == (EntityAvailabilityStatus.AVAILABLE, 48)
        entity = server.broker.entity("elsewhere")
        assert entity is not None
        (home,) = [place.worker.index for place in entity.partitions]
        for index in [each for each in range(PARTITION_COUNT) if each != home][:2]:
            server.broker.begin_outage(index, Outage(OutageKind.DOWN))
        assert await admin(shown) == (EntityAvailabilityStatus.LIMITED, 42)
        listed = await admin(lambda client: {each.name: each.availability_status for each in client.list_queues()})
        assert (listed["q"], listed["elsewhere"]) == (
            EntityAvailabilityStatus.LIMITED,
            EntityAvailabilityStatus.AVAILABLE,
        )
        for index in range(PARTITION_COUNT):
            server.broker.end_outage(index)
        assert await admin(shown) == (EntityAvailabilityStatus.AVAILABLE, 48)
