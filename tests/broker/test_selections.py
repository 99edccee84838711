"""Receivers that take only messages that match: order, locks, and what is left for others."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from emubus.broker.api import Abandon, Complete, Delivery, ReceiveMode
from emubus.broker.broker import Broker
from emubus.broker.clock import Clock
from emubus.broker.message.message import Message
from emubus.broker.model.descriptions import QueueDescription
from emubus.broker.partition.ready_queue import SELECTION_TESTS_MAX
from emubus.codec.decode import decode
from emubus.codec.encode import encode, encode_described
from emubus.codec.types import Described, Uint, Ulong

from .namespace import Receiver, loop_turns, open_broker, send

START = 1_767_225_600_000


def message(color: str, number: int = 0, ttl_ms: int | None = None) -> bytes:
    header = b"" if ttl_ms is None else encode_described(Ulong(0x70), encode([None, None, Uint(ttl_ms)]))
    return header + b"".join(
        (
            encode_described(Ulong(0x74), encode({"color": color})),
            encode_described(Ulong(0x77), encode(number)),
        )
    )


def is_colored(color: str) -> Callable[[Message, int], bool]:
    return lambda message, _: message.application_properties().get("color") == color


def sections(delivery: Delivery) -> dict[object, object]:
    found: dict[object, object] = {}
    position = 0
    while position < len(delivery.payload):
        section, position = decode(delivery.payload, position)
        assert isinstance(section, Described)
        found[section.descriptor] = section.value
    return found


def numbers(deliveries: list[Delivery]) -> list[object]:
    return [sections(each)[0x77] for each in deliveries]


def delivery_counts(deliveries: list[Delivery]) -> list[object]:
    headers = [sections(each)[0x70] for each in deliveries]
    return [header[4] for header in headers if isinstance(header, list)]


@pytest.fixture
async def clock() -> Clock:
    return Clock(start_at=START, manual=True)


@pytest.fixture
async def broker(clock: Clock) -> Broker:
    return open_broker(QueueDescription("q"), QueueDescription("p", enable_partitioning=True), clock=clock)


async def send_colors(broker: Broker, *colors: str, address: str = "q") -> None:
    for number, color in enumerate(colors):
        await send(broker, address, message(color, number))


async def test_a_receiver_gets_the_messages_that_match_in_order_and_leaves_the_others(broker: Broker) -> None:
    await send_colors(broker, "red", "blue", "blue", "red", "blue")
    blue = Receiver(broker, "q", matches=is_colored("blue"))
    assert numbers(await blue.drain()) == [1, 2, 4]
    every = Receiver(broker, "q")
    left = await every.drain()
    assert (numbers(left), delivery_counts(left)) == ([0, 3], [0, 0])


async def test_messages_that_arrive_later_are_tested_too(broker: Broker) -> None:
    blue, red = Receiver(broker, "q", matches=is_colored("blue")), Receiver(broker, "q", matches=is_colored("red"))
    blue.consumer.set_credit(10)
    red.consumer.set_credit(10)
    await send_colors(broker, "red", "blue", "green", "blue", "red")
    assert numbers(await blue.receive(2)) == [1, 3]
    assert numbers(await red.receive(2)) == [0, 4]
    assert numbers(await Receiver(broker, "q").drain()) == [2]


async def test_an_abandoned_message_comes_again_before_later_ones_with_its_delivery_count(broker: Broker) -> None:
    await send_colors(broker, "red", "blue", "blue", "blue")
    blue = Receiver(broker, "q", matches=is_colored("blue"))
    first, second = await blue.receive(2)
    assert await blue.settle(first, Abandon()) is None
    again = await blue.drain()
    assert (numbers(again), delivery_counts(again)) == ([1, 3], [1, 0])
    assert await blue.settle(second, Complete()) is None


async def test_an_expired_lock_gives_the_message_to_whoever_it_matches(broker: Broker, clock: Clock) -> None:
    await send_colors(broker, "red", "blue")
    blue = Receiver(broker, "q", matches=is_colored("blue"))
    assert numbers(await blue.drain()) == [1]
    blue.consumer.close()
    another = Receiver(broker, "q", matches=is_colored("blue"))
    assert await another.drain() == []
    another.consumer.set_credit(1)
    clock.advance(61_000)
    again = await another.receive(1)
    assert (numbers(again), delivery_counts(again)) == ([1], [1])


async def test_what_others_have_locked_is_tested_when_it_comes_back(broker: Broker) -> None:
    await send_colors(broker, "blue", "blue")
    every = Receiver(broker, "q")
    (first,) = await every.receive(1)
    blue = Receiver(broker, "q", matches=is_colored("blue"))
    assert numbers(await blue.drain()) == [1]
    blue.consumer.set_credit(1)
    assert await every.settle(first, Abandon()) is None
    assert numbers(await blue.receive(1)) == [0]


async def test_receive_and_delete_removes_only_what_matches(broker: Broker) -> None:
    await send_colors(broker, "red", "blue", "red")
    blue = Receiver(broker, "q", ReceiveMode.RECEIVE_AND_DELETE, matches=is_colored("blue"))
    assert numbers(await blue.drain()) == [1]
    assert numbers(await Receiver(broker, "q").drain()) == [0, 2]


async def test_a_message_whose_time_to_live_is_over_is_not_delivered(broker: Broker, clock: Clock) -> None:
    await send(broker, "q", message("blue", 1, ttl_ms=1000))
    await send(broker, "q", message("blue", 2))
    clock.advance(2000)
    assert numbers(await Receiver(broker, "q", matches=is_colored("blue")).drain()) == [2]


async def test_a_match_far_behind_is_found_and_a_request_tests_a_limited_number(broker: Broker) -> None:
    tested: list[int] = []

    def matches(candidate: Message, _: int) -> bool:
        tested.append(1)
        return candidate.application_properties()["color"] == "blue"

    await send_colors(broker, *["red"] * (SELECTION_TESTS_MAX + 10), "blue")
    blue = Receiver(broker, "q", matches=matches)
    assert numbers(await blue.drain()) == [SELECTION_TESTS_MAX + 10]
    await send_colors(broker, "blue")
    assert numbers(await blue.drain()) == [0]
    assert len(tested) == SELECTION_TESTS_MAX + 12  # each message once


async def test_a_drain_without_a_match_is_answered_and_a_closed_receiver_takes_nothing(broker: Broker) -> None:
    await send_colors(broker, "red")
    blue = Receiver(broker, "q", matches=is_colored("blue"))
    assert await blue.drain() == []
    blue.consumer.set_credit(5)
    blue.consumer.close()
    await send_colors(broker, "blue")
    await loop_turns(20)
    assert blue.got == []
    assert numbers(await Receiver(broker, "q").drain()) == [0, 0]
    entity, _ = broker.namespace.find("q")
    assert not any(entity.selecting.values())


async def test_all_partitions_are_asked(broker: Broker) -> None:
    await send_colors(broker, *["red", "blue"] * 40, address="p")
    assert sorted(map(str, numbers(await Receiver(broker, "p", matches=is_colored("blue")).drain()))) == sorted(
        map(str, range(1, 80, 2))
    )


@pytest.mark.parametrize("seed", range(5))
async def test_receivers_with_and_without_a_selection_share_a_queue_and_lose_nothing(broker: Broker, seed: int) -> None:
    chance = random.Random(seed)
    receivers = [Receiver(broker, "q"), *(Receiver(broker, "q", matches=is_colored(each)) for each in ("red", "blue"))]
    sent, done = 0, []
    held: list[tuple[Receiver, Delivery]] = []
    for _ in range(120):
        match chance.randrange(4):
            case 0 | 1:
                await send(broker, "q", message(chance.choice(("red", "blue", "green")), sent))
                sent += 1
            case 2:
                receiver = chance.choice(receivers)
                held += [(receiver, each) for each in await receiver.drain(chance.randrange(1, 4))]
            case _ if held:
                receiver, delivery = held.pop(chance.randrange(len(held)))
                is_done = chance.random() < 0.6
                assert await receiver.settle(delivery, Complete() if is_done else Abandon()) is None
                done += numbers([delivery]) if is_done else []
    left = numbers([each for _, each in held]) + numbers(await receivers[0].drain())
    assert sorted(map(int, map(str, done + left))) == list(range(sent))
