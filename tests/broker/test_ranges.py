"""What a reader by ranges needs of the broker: where partitions begin and end, and deletion below a number."""

from __future__ import annotations

import pytest

from emubus.broker.api import Claimed, DeadLetter, Defer, Extent, Outage, OutageKind, ReceiveMode
from emubus.broker.clock import Clock
from emubus.broker.errors import BrokerError, Condition
from emubus.broker.model.descriptions import QueueDescription, TopicDescription

from .driving import encoded, read
from .namespace import Receiver, open_broker, send
from .test_arrivals import bodies, later

ID_0, ID_3 = 0, 3 << 48


async def test_an_empty_partition_begins_where_it_ends() -> None:
    broker = open_broker(QueueDescription("q"))
    assert await broker.messages.extents("q") == [Extent(0, 1, 1, 0)]
    await send(broker, "q", encoded("x"))
    assert await broker.messages.extents("q") == [Extent(0, 1, 2, 1)]
    await Receiver(broker, "q").drain()


async def test_every_partition_tells_its_own_extent() -> None:
    broker = open_broker(QueueDescription("q", enable_partitioning=True))
    for number in range(20):
        await send(broker, "q", encoded(str(number)))
    extents = await broker.messages.extents("q")
    assert [each.partition_id for each in extents if each is not None] == list(range(16))
    assert sum(each.message_count for each in extents if each is not None) == 20
    for index, each in enumerate(extents):
        assert each is not None
        assert each.first_sequence_number == (index << 48) + 1
        assert each.next_sequence_number == each.first_sequence_number + each.message_count


async def test_locked_and_deferred_messages_count_and_scheduled_ones_do_not() -> None:
    clock = Clock(start_at=1_800_000_000_000, frozen=True)
    broker = open_broker(QueueDescription("q"), clock=clock)
    for number in range(3):
        await send(broker, "q", encoded(str(number)))
    receiver = Receiver(broker, "q")
    first, _ = await receiver.receive(2)
    await receiver.settle(first, Defer())
    await broker.messages.schedule("q", [later(clock, 60_000)])
    assert await broker.messages.extents("q") == [Extent(0, 1, 5, 3)]


async def test_dead_letters_have_an_extent_of_their_own_in_the_order_of_their_numbers() -> None:
    broker = open_broker(QueueDescription("q"))
    for number in range(3):
        await send(broker, "q", encoded(str(number)))
    receiver = Receiver(broker, "q")
    deliveries = await receiver.receive(3)
    for delivery in reversed(deliveries):
        await receiver.settle(delivery, DeadLetter(None, None, {}))
    assert await broker.messages.extents("q/$DeadLetterQueue") == [Extent(0, 1, 4, 3)]
    assert bodies(await Receiver(broker, "q/$deadletterqueue").drain()) == ["0", "1", "2"]


async def test_a_partition_that_cannot_be_reached_has_no_extent() -> None:
    broker = open_broker(QueueDescription("q", enable_partitioning=True))
    broker.outages.begin(3, Outage(OutageKind.DOWN))
    extents = await broker.messages.extents("q")
    assert [index for index, each in enumerate(extents) if each is None] == [3]


async def test_messages_below_a_number_are_deleted_and_no_others() -> None:
    broker = open_broker(QueueDescription("q", enable_partitioning=True))
    for number in range(64):
        await send(broker, "q", encoded(str(number)))
    assert await broker.messages.delete_before("q", 3, ID_3 + 3, 100) == 2
    assert await broker.messages.delete_before("q", 3, ID_3 + 3, 100) == 0
    assert await broker.messages.delete_before("q", 0, ID_0 + 100, 1) == 1
    extents = await broker.messages.extents("q")
    assert extents[3] == Extent(3, ID_3 + 3, ID_3 + 5, 2)
    assert extents[0] == Extent(0, 2, 5, 3)
    assert sum(each.message_count for each in extents if each is not None) == 61


async def test_the_numbers_of_a_sub_queue_are_listed_in_order_whatever_their_state() -> None:
    broker = open_broker(QueueDescription("q"))
    for number in range(6):
        await send(broker, "q", encoded(str(number)))
    receiver = Receiver(broker, "q")
    deliveries = await receiver.receive(6)
    for place in (4, 1, 5, 2):
        await receiver.settle(deliveries[place], DeadLetter(None, None, {}))
    dead = Receiver(broker, "q/$DeadLetterQueue")
    await dead.settle((await dead.receive(1))[0], Defer({}))
    assert await broker.messages.list_numbers("q/$DeadLetterQueue", 0, 0, 9) == [2, 3, 5, 6]
    assert await broker.messages.list_numbers("q/$DeadLetterQueue", 0, 3, 2) == [3, 5]
    assert await broker.messages.list_numbers("q", 0, 0, 9) == [1, 4]
    with pytest.raises(BrokerError):
        await broker.messages.list_numbers("q", 1, 0, 9)


async def test_messages_are_deleted_by_their_numbers_and_no_others() -> None:
    broker = open_broker(QueueDescription("q", enable_partitioning=True))
    for number in range(48):
        await send(broker, "q", encoded(str(number)))
    numbers = [ID_3 + 2, ID_3 + 2, ID_0 + 1, ID_3 + 99, -1, 99 << 48]
    assert await broker.messages.delete_by_number("q", numbers) == 2
    assert await broker.messages.delete_by_number("q", numbers) == 0
    found = [each.sequence_number for each in await Receiver(broker, "q").drain()]
    assert len(found) == 46
    assert not {ID_3 + 2, ID_0 + 1} & set(found)


async def test_what_a_receiver_holds_is_not_deleted() -> None:
    broker = open_broker(QueueDescription("q"))
    for number in range(3):
        await send(broker, "q", encoded(str(number)))
    receiver = Receiver(broker, "q")
    held = await receiver.receive(1)
    assert bodies(held) == ["0"]
    assert await broker.messages.delete_before("q", 0, 3, 100) == 1
    assert await broker.messages.delete_by_number("q", [1, 2, 3]) == 1
    assert await broker.messages.extents("q") == [Extent(0, 1, 4, 1)]


async def test_available_messages_of_a_partition_are_claimed_and_no_others() -> None:
    broker = open_broker(QueueDescription("q"))
    for number in range(5):
        await send(broker, "q", encoded(str(number)))
    receiver = Receiver(broker, "q")
    held = await receiver.receive(1)
    assert await broker.messages.claim("q", 0, 4, 10, {"mark": "mine"}) == Claimed([2, 3])
    assert await broker.messages.claim("q", 0, 4, 10, {}) == Claimed([])
    shown = await broker.messages.peek("q", 0, 10, 1 << 20, partition_id=0, deferred_only=True)
    assert [read(payload).annotations["x-opt-sequence-number"] for payload in shown] == [2, 3]
    taken = await broker.messages.receive_by_sequence_number("q", [2, 3], ReceiveMode.RECEIVE_AND_DELETE)
    assert bodies(taken) == ["1", "2"]
    assert all(b"mark" in each.payload for each in taken)
    assert bodies(held) == ["0"]
    assert bodies(await Receiver(broker, "q").receive(2)) == ["3", "4"]


async def test_a_claim_keeps_a_message_at_its_last_delivery() -> None:
    broker = open_broker(QueueDescription("q", max_delivery_count=1))
    await send(broker, "q", encoded("a"))
    assert await broker.messages.claim("q", 0, 1 << 62, 1, {}) == Claimed([1])
    (claimed,) = await broker.messages.receive_by_sequence_number("q", [1], ReceiveMode.PEEK_LOCK)
    await broker.messages.settle("q", [claimed.token], Defer())
    (dead,) = await broker.messages.peek("q/$DeadLetterQueue", 0, 10, 1 << 20)
    assert read(dead).properties["DeadLetterReason"] == "MaxDeliveryCountExceeded"


async def test_a_claim_is_limited_and_refused_where_messages_belong_to_sessions() -> None:
    broker = open_broker(QueueDescription("q"), QueueDescription("s", requires_session=True))
    for number in range(3):
        await send(broker, "q", encoded(str(number)))
    assert await broker.messages.claim("q", 0, 1 << 62, 2, {}) == Claimed([1, 2], more=True)
    with pytest.raises(BrokerError) as refused:
        await broker.messages.claim("s", 0, 1 << 62, 2, {})
    assert refused.value.condition is Condition.NOT_ALLOWED


async def test_a_claim_deletes_what_is_finished_but_what_is_locked() -> None:
    broker = open_broker(QueueDescription("q"))
    for number in range(7):
        await send(broker, "q", encoded(str(number)))
    assert await broker.messages.claim("q", 0, 1 << 62, 5, {}) == Claimed([1, 2, 3, 4, 5], more=True)
    await broker.messages.receive_by_sequence_number("q", [3], ReceiveMode.PEEK_LOCK)
    finished = [(1, 1), (3, 2), (6, 1), (9, 4)]  # 6 is active, and nothing has the others
    assert await broker.messages.claim("q", 0, 1 << 62, 1, {}, finished) == Claimed([6], more=True, kept=(3,))
    shown = await broker.messages.peek("q", 0, 10, 1 << 20)
    assert [read(payload).annotations["x-opt-sequence-number"] for payload in shown] == [2, 3, 5, 6, 7]
    assert await broker.messages.claim("q", 0, 1 << 62, 0, {}, [(2, 1), (5, 1)]) == Claimed([], more=True)
    assert await broker.messages.extents("q") == [Extent(0, 3, 8, 3)]


async def test_a_claim_leaves_messages_of_the_time_to_come_and_drops_those_of_the_past() -> None:
    clock = Clock(start_at=1_800_000_000_000, frozen=True)
    broker = open_broker(QueueDescription("q", default_ttl_ms=1_000), clock=clock)
    for number in range(2):
        await send(broker, "q", encoded(str(number)))
    assert await broker.messages.claim("q", 0, 1 << 62, 1, {}) == Claimed([1], more=True)
    clock.advance(2_000)
    assert await broker.messages.claim("q", 0, 1 << 62, 5, {}) == Claimed([])
    assert await broker.messages.extents("q") == [Extent(0, 1, 3, 1)]  # what is deferred does not expire


async def test_a_claim_with_too_large_properties_is_refused_as_a_settlement_is() -> None:
    broker = open_broker(QueueDescription("q"))
    await send(broker, "q", encoded("a"))
    with pytest.raises(BrokerError, match="application property"):
        await broker.messages.claim("q", 0, 1 << 62, 1, {"mark": "x" * 70_000})
    assert bodies(await Receiver(broker, "q").receive(1)) == ["a"]


async def test_a_partition_that_is_not_there_is_out_of_range() -> None:
    broker = open_broker(QueueDescription("q"))
    with pytest.raises(BrokerError, match="'q' has no partition 1: it has 1, counted from 0") as refused:
        await broker.messages.delete_before("q", 1, 5, 5)
    assert refused.value.condition is Condition.ARGUMENT_OUT_OF_RANGE


async def test_a_topic_itself_has_no_extents() -> None:
    broker = open_broker()
    broker.administration.create(TopicDescription("t"))
    with pytest.raises(BrokerError, match="Nothing can be received from the topic 't' itself"):
        await broker.messages.extents("t")


async def test_looking_at_one_partition_does_not_go_on_to_the_next() -> None:
    broker = open_broker(QueueDescription("q", enable_partitioning=True))
    for number in range(32):
        await send(broker, "q", encoded(str(number)))
    page = await broker.messages.peek("q", ID_3 + 2, 100, 1 << 20, partition_id=3)
    assert [read(payload).annotations["x-opt-sequence-number"] for payload in page] == [ID_3 + 2]
    assert await broker.messages.peek("q", ID_3 + 3, 100, 1 << 20, partition_id=3) == []
    with pytest.raises(BrokerError, match="'q' has no partition 16: it has 16, counted from 0"):
        await broker.messages.peek("q", 0, 100, 1 << 20, partition_id=16)


async def test_looking_at_one_partition_fails_while_its_store_is_out() -> None:
    broker = open_broker(QueueDescription("q", enable_partitioning=True))
    for number in range(16):
        await send(broker, "q", encoded(str(number)))
    broker.outages.begin(3, Outage(OutageKind.DOWN))
    with pytest.raises(BrokerError) as refused:
        await broker.messages.peek("q", ID_3, 100, 1 << 20, partition_id=3)
    assert refused.value.condition is Condition.SERVER_BUSY
    broker.outages.end(3)
    assert len(await broker.messages.peek("q", ID_3, 100, 1 << 20, partition_id=3)) == 1
