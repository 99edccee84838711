"""Dead letters sent anew: each moves whole, in one commit, or stays where it is and says why."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from emubus.broker.address import SubQueue
from emubus.broker.admin.overview import Overview
from emubus.broker.api import Complete, DeadLetter, Defer, Home, Outage, OutageKind, ReceiveMode, alone
from emubus.broker.broker import Broker
from emubus.broker.errors import BrokerError, Condition
from emubus.broker.message.builder import NewMessage
from emubus.broker.message.message import parse_message
from emubus.broker.model.descriptions import EntityStatus, QueueDescription, SubscriptionDescription, TopicDescription

from .namespace import WAIT_S, Receiver, loop_turns, open_broker, send


async def bury(broker: Broker, path: str, count: int) -> list[int]:
    """Dead-letter `count` messages; their numbers in the dead-letter queue."""
    receiver = Receiver(broker, path)
    for delivery in await receiver.receive(count):
        assert await receiver.settle(delivery, DeadLetter("Bad", "as a test", {"mine": 1})) is None
    receiver.consumer.close()
    return await dead(broker, path)


async def dead(broker: Broker, path: str) -> list[int]:
    overview = Overview(broker.namespace)
    page = await overview.messages(overview.entity(path), SubQueue.DEAD_LETTER, first=0, count=100, bytes_max=1 << 20)
    return [each.sequence_number for each in page.messages]


async def resubmit(broker: Broker, path: str, numbers: Sequence[int], target: str = "") -> dict[int, str | None]:
    answer = await broker.namespace.find(path)[0].resubmit(numbers, broker.namespace.find(target or path)[0])
    return {number: None if error is None else error.condition.name for number, error in answer.items()}


def message(text: str, key: str | None = None, **properties: str) -> bytes:
    return NewMessage(text.encode(), properties, {"color": "red"}, partition_key=key).encoded()


@pytest.mark.parametrize("partitioned", [False, True])
async def test_a_dead_letter_becomes_an_active_message_of_its_partition_again(partitioned: bool) -> None:
    broker = open_broker(QueueDescription("q", enable_partitioning=partitioned))
    for text in ("a", "b", "c"):
        await send(broker, "q", message(text, "k"))
    numbers = await bury(broker, "q", 3)
    assert await resubmit(broker, "q", [numbers[2], numbers[0]]) == {numbers[2]: None, numbers[0]: None}
    assert await dead(broker, "q") == [numbers[1]]
    receiver = Receiver(broker, "q")
    got = await receiver.receive(2)
    assert [parse_message(each.payload).application_properties() for each in got] == [{"color": "red", "mine": 1}] * 2
    assert [each.payload[-1:] for each in got] == [b"c", b"a"]
    assert {each.sequence_number >> 48 for each in got} == {numbers[0] >> 48}
    for each in got:
        assert await receiver.settle(each, Complete()) is None
    assert broker.namespace.find("q")[0].message_counts()[Home.DEAD_LETTER] == 1
    assert sum(broker.namespace.find("q")[0].message_counts()) == 1


async def test_the_dead_letter_queue_goes_on_without_what_was_resubmitted() -> None:
    broker = open_broker(QueueDescription("q"))
    for text in ("a", "b", "c"):
        await send(broker, "q", message(text))
    numbers = await bury(broker, "q", 3)
    await resubmit(broker, "q", numbers[:2])
    left = await Receiver(broker, "q/$DeadLetterQueue").drain()
    assert [each.payload[-1:] for each in left] == [b"c"]


async def test_a_subscriptions_dead_letter_goes_to_the_topic_and_to_all_who_want_it() -> None:
    broker = open_broker()
    broker.administration.create(TopicDescription("t", enable_partitioning=True))
    for name in ("s1", "s2"):
        broker.administration.create(SubscriptionDescription("t", name))
    await send(broker, "t", message("a", "k"))
    numbers = await bury(broker, "t/Subscriptions/s1", 1)
    assert await resubmit(broker, "t/Subscriptions/s1", numbers, "t") == {numbers[0]: None}
    assert await dead(broker, "t/Subscriptions/s1") == []
    assert len(await Receiver(broker, "t/Subscriptions/s1").drain()) == 1
    assert len(await Receiver(broker, "t/Subscriptions/s2").drain()) == 2


async def test_what_is_not_there_or_locked_stays_and_says_why() -> None:
    broker = open_broker(QueueDescription("q"))
    await send(broker, "q", message("a"))
    await send(broker, "q", message("b"))
    numbers = await bury(broker, "q", 2)
    receiver = Receiver(broker, "q/$DeadLetterQueue")
    (held,) = await receiver.receive(1)
    assert held.sequence_number == numbers[0]
    assert await resubmit(broker, "q", [*numbers, 77, 1 << 60]) == {
        numbers[0]: "MESSAGE_LOCK_LOST",
        numbers[1]: None,
        77: "MESSAGE_NOT_FOUND",
        1 << 60: "MESSAGE_NOT_FOUND",
    }
    assert await receiver.settle(held, Complete()) is None


async def test_a_deferred_dead_letter_is_resubmitted_too() -> None:
    broker = open_broker(QueueDescription("q"))
    await send(broker, "q", message("a"))
    numbers = await bury(broker, "q", 1)
    receiver = Receiver(broker, "q/$DeadLetterQueue")
    (held,) = await receiver.receive(1)
    assert await receiver.settle(held, Defer({})) is None
    assert await resubmit(broker, "q", numbers) == {numbers[0]: None}
    assert [each.payload[-1:] for each in await Receiver(broker, "q").drain()] == [b"a"]


async def test_what_duplicate_detection_would_drop_stays() -> None:
    broker = open_broker(QueueDescription("q", requires_duplicate_detection=True))
    await send(broker, "q", message("a", **{"message-id": "m"}))
    numbers = await bury(broker, "q", 1)
    assert await resubmit(broker, "q", numbers) == {numbers[0]: "NOT_ALLOWED"}
    broker.clock.advance(600_001)
    await loop_turns(5)
    await send(broker, "q", message("b", **{"message-id": "n"}))
    assert await resubmit(broker, "q", numbers) == {numbers[0]: None}
    assert await dead(broker, "q") == []


async def test_two_dead_letters_of_one_message_id_do_not_swallow_each_other() -> None:
    broker = open_broker(QueueDescription("q", requires_duplicate_detection=True))
    for text in ("a", "b"):
        await send(broker, "q", message(text, **{"message-id": "m"}))
        await bury(broker, "q", 1)
        broker.clock.advance(600_001)
        await loop_turns(5)
    numbers = await dead(broker, "q")
    assert await resubmit(broker, "q", numbers) == {numbers[0]: None, numbers[1]: "NOT_ALLOWED"}
    assert await dead(broker, "q") == [numbers[1]]


async def test_a_queue_that_takes_nothing_keeps_its_dead_letters() -> None:
    broker = open_broker(QueueDescription("q"))
    await send(broker, "q", message("a"))
    numbers = await bury(broker, "q", 1)
    broker.administration.update(QueueDescription("q", status=EntityStatus.SEND_DISABLED))
    with pytest.raises(BrokerError) as refused:
        await resubmit(broker, "q", numbers)
    assert refused.value.condition is Condition.ENTITY_DISABLED
    assert await dead(broker, "q") == numbers


@pytest.mark.parametrize("kind", [OutageKind.DOWN, OutageKind.FAILING])
async def test_nothing_is_lost_when_the_store_is_out(kind: OutageKind) -> None:
    broker = open_broker(QueueDescription("q", enable_partitioning=True))
    await send(broker, "q", message("a", "k"))
    numbers = await bury(broker, "q", 1)
    index = numbers[0] >> 48
    broker.outages.begin(index, Outage(kind))
    assert await resubmit(broker, "q", numbers) == {numbers[0]: "SERVER_BUSY"}
    broker.outages.end(index)
    assert await dead(broker, "q") == numbers
    assert await resubmit(broker, "q", numbers) == {numbers[0]: None}


async def test_a_sender_can_ask_for_the_sequence_numbers() -> None:
    broker = open_broker(
        QueueDescription("q", enable_partitioning=True, requires_duplicate_detection=True), QueueDescription("p")
    )

    async def placed(path: str, data: bytes) -> list[int | None]:
        numbers: list[int | None] = []
        answer: asyncio.Future[BrokerError | None] = asyncio.get_running_loop().create_future()
        broker.namespace.find(path)[0].send([data], alone(answer.set_result), numbered=numbers.extend)
        assert await asyncio.wait_for(answer, WAIT_S) is None
        return numbers

    once = message("a", "k", **{"message-id": "m"})
    (number,) = await placed("q", once)
    assert number is not None
    (seen,) = await broker.namespace.find("q")[0].peek(SubQueue.ACTIVE, number, 1, 1 << 20, None)
    assert seen.endswith(b"a")
    assert await placed("q", once) == [None]
    later = NewMessage(b"later", scheduled_enqueue_at=broker.clock.now_ms() + 60_000).encoded()
    assert (await placed("p", message("x")), await placed("p", later)) == ([1], [2])
    assert [each.payload[-1:] for each in await Receiver(broker, "p", ReceiveMode.RECEIVE_AND_DELETE).drain()] == [b"x"]
