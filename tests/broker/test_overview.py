"""What is shown of a namespace: overview and figures leave it untouched."""

from __future__ import annotations

import pytest
from proton import timestamp

from emubus.broker.address import SubQueue
from emubus.broker.admin import figures
from emubus.broker.admin.overview import Overview
from emubus.broker.api import Outage, OutageKind
from emubus.broker.broker import Broker
from emubus.broker.errors import BrokerError, Condition
from emubus.broker.model.descriptions import QueueDescription, SubscriptionDescription, TopicDescription

from .driving import encoded
from .namespace import Receiver, open_broker, send
from .test_broker import keyed

PARTS = QueueDescription("parts", enable_partitioning=True)


async def filled(count: int = 100, body: str = "x") -> Broker:
    broker = open_broker(PARTS)
    for number in range(count):
        await send(broker, "parts", keyed(f"{number}", body))
    return broker


@pytest.mark.parametrize("bytes_max", [1, 1_000, 5_000, 1 << 20])
@pytest.mark.parametrize("count", [1, 7, 250])
async def test_paging_shows_every_message_once_whatever_the_size_of_a_page(bytes_max: int, count: int) -> None:
    broker = await filled(60, "x" * 400)
    overview = Overview(broker.namespace)
    seen: list[int] = []
    first: int | None = 0
    while first is not None:
        page = await overview.messages(
            broker.namespace.find("parts")[0], SubQueue.ACTIVE, first=first, count=count, bytes_max=bytes_max
        )
        assert len(page.messages) <= count
        seen += [each.sequence_number for each in page.messages]
        first = page.next_sequence_number
    assert len(seen) == len(set(seen)) == 60
    assert seen == sorted(seen)


@pytest.mark.parametrize("bytes_max", [1, 2_000, 1 << 20])
@pytest.mark.parametrize("count", [1, 5, 250])
async def test_scheduled_messages_are_shown_among_the_active_ones_by_their_numbers(bytes_max: int, count: int) -> None:
    broker = open_broker(QueueDescription("q"))
    for number in range(12):
        later = {"x-opt-scheduled-enqueue-time": timestamp(1 << 42)} if number % 3 == 1 or number > 9 else {}
        await send(broker, "q", encoded(f"{number}" * 400, annotations=later))
    overview = Overview(broker.namespace)
    shown: list[tuple[int, bool]] = []
    first: int | None = 0
    while first is not None:
        entity = broker.namespace.find("q")[0]
        page = await overview.messages(entity, SubQueue.ACTIVE, first=first, count=count, bytes_max=bytes_max)
        shown += [(each.sequence_number, b"x-opt-scheduled" in each.encoded) for each in page.messages]
        first = page.next_sequence_number
    assert shown == [(number + 1, number % 3 == 1 or number > 9) for number in range(12)]


async def test_partitions_in_a_store_that_is_down_have_no_figures_and_the_others_have_them() -> None:
    broker = await filled()
    overview = Overview(broker.namespace)
    entity = broker.namespace.find("parts")[0]
    before = overview.partitions(entity)
    broker.outages.begin(5, Outage(OutageKind.DOWN))
    broker.outages.begin(6, Outage(OutageKind.FAILING))
    after = overview.partitions(entity)
    assert [each.health for each in after] == [
        "down" if n == 5 else "failing" if n == 6 else "available" for n in range(16)
    ]
    assert after[5].messages is None
    assert [each.messages for each in after if each.partition_id != 5] == [
        each.messages for each in before if each.partition_id != 5
    ]
    assert {each.partition_id for each in figures.used_partitions(broker.namespace)} == set(range(16)) - {5}
    page = await overview.messages(entity, SubQueue.ACTIVE, first=0, count=250, bytes_max=1 << 20)
    assert {each.partition_id for each in page.messages} == set(range(16)) - {5}


async def test_what_a_list_counts_is_what_partitions_count() -> None:
    broker = await filled(10)
    receiver = Receiver(broker, "parts")
    await receiver.receive(3)
    overview = Overview(broker.namespace)
    report = overview.report(broker.namespace.find("parts")[0])
    assert (report.locked_count, sum(report.messages.values()), report.partition_count) == (3, 10, 16)
    counted = {each.partition_id: sum(each.messages.values()) for each in figures.used_partitions(broker.namespace)}
    shown = {
        each.partition_id: sum((each.messages or {}).values()) for each in overview.partitions(overview.entity("PARTS"))
    }
    assert counted == {index: count for index, count in shown.items() if count}


async def test_nothing_is_sent_to_a_subscription_and_nothing_is_there_that_is_not() -> None:
    broker = open_broker(PARTS)
    broker.administration.create(TopicDescription("topic"))
    broker.administration.create(SubscriptionDescription("topic", "s"))
    overview = Overview(broker.namespace)
    with pytest.raises(BrokerError) as refused:
        overview.route(overview.entity("topic/Subscriptions/s"), session_id=None, partition_key=None)
    assert refused.value.condition is Condition.NOT_ALLOWED
    with pytest.raises(BrokerError) as missing:
        overview.entity("nothing")
    assert missing.value.condition is Condition.NOT_FOUND
    await send(broker, "parts", encoded())
