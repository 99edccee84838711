"""Requests that wait for a message: how long, and what becomes of a message whose client has gone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import pytest
from azure.servicebus import ServiceBusClient

from emubus.broker.api import Delivery, Outage, OutageKind
from emubus.broker.broker import Broker
from emubus.broker.clock import Clock
from emubus.broker.errors import BrokerError, Condition
from emubus.broker.model.descriptions import QueueDescription
from emubus.testing import EmubusServer
from emubus.web.rest.receiving import PendingReceive
from emubus.web.transport.connection import HttpConnection

from ..broker.namespace import Receiver, loop_turns, open_broker, send
from .rest import WAIT_S, Rest, Waiting, until, waiting_count

MESSAGE = b"\x00\x53\x75\xa0\x01x"
METHODS = ("POST", "DELETE")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("entity", ["plain", "parts", "topic/subscriptions/one"])
def test_a_request_that_waits_gets_the_message_that_comes(
    bus: EmubusServer, rest: Rest, method: str, entity: str
) -> None:
    waiting = Waiting(bus, method, entity)
    rest.send(entity.partition("/")[0], b"x")
    assert waiting.answer().content == b"x"


@pytest.mark.parametrize("method", METHODS)
def test_a_request_waits_for_as_long_as_it_says(bus: EmubusServer, rest: Rest, method: str) -> None:
    bus.freeze()
    waiting = Waiting(bus, method, "parts", timeout=30)
    bus.advance(29_999)
    assert waiting_count(bus, "parts") == 1
    bus.advance(1)
    assert (waiting.answer().status, waiting_count(bus, "parts")) == (204, 0)
    assert rest.send("parts").status == 201
    assert rest.receive("parts").status == 200


@pytest.mark.parametrize(("query", "wait_ms"), [("", 60_000), ("?timeout=", 60_000), ("?timeout=999999", 3_600_000)])
def test_a_request_waits_a_minute_unless_it_says_more_and_an_hour_at_most(
    bus: EmubusServer, query: str, wait_ms: int
) -> None:
    bus.freeze()
    waiting = Waiting(bus, "POST", "plain", query=query)
    bus.advance(wait_ms - 1)
    assert waiting_count(bus, "plain") == 1
    bus.advance(1)
    assert waiting.answer().status == 204


def test_requests_are_served_in_the_order_in_which_they_came(bus: EmubusServer, rest: Rest) -> None:
    waiting = [Waiting(bus, METHODS[number % 2], "plain") for number in range(5)]
    for number in range(5):
        rest.send("plain", b"%d" % number)
    assert [each.answer().content for each in waiting] == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("entity", ["plain", "parts"])
def test_a_client_that_goes_away_while_it_waits_takes_nothing(
    bus: EmubusServer, rest: Rest, method: str, entity: str
) -> None:
    gone = [Waiting(bus, method, entity) for _ in range(3)]
    for each in gone:
        each.close()
    until(lambda: waiting_count(bus, entity) == 0)
    rest.send(entity, b"x")
    got = rest.receive(entity)
    assert (got.content, got.broker["DeliveryCount"]) == (b"x", 1)


def test_a_request_that_waits_hears_that_its_entity_is_deleted(bus: EmubusServer) -> None:
    waiting = Waiting(bus, "POST", "plain")
    bus.delete("plain")
    assert waiting.answer().status == 410


def test_a_message_that_is_locked_elsewhere_comes_when_its_lock_is_over(bus: EmubusServer, rest: Rest) -> None:
    rest.send("parts", b"x")
    assert rest.peek_lock("parts").status == 201
    waiting = Waiting(bus, "DELETE", "parts", timeout=600)
    bus.advance(60_000)
    got = waiting.answer()
    assert (got.content, got.broker["DeliveryCount"]) == (b"x", 2)


def test_a_server_that_stops_does_not_wait_for_those_who_wait(bus: EmubusServer, sdk: ServiceBusClient) -> None:
    waiting = Waiting(bus, "POST", "plain", timeout=3600)
    sdk.close()
    bus.close()
    waiting.close()


# ---- the last moment


class Line:
    """A connection that the test cuts."""

    def __init__(self) -> None:
        self.is_lost = False
        self.watchers: set[Callable[[], None]] = set()

    def cut(self) -> None:
        self.is_lost = True
        for gone in list(self.watchers):
            gone()


async def is_handed_over(cut: Callable[[Line, asyncio.Task[Delivery | None]], object], turns: int) -> bool:
    """Whether a wait that is cut `turns` turns after a message was sent ends with it; if not, it must come again."""
    broker = open_broker(QueueDescription("q"))
    line, wait = Line(), PendingReceive(broker, broker.clock, "q")
    task = asyncio.create_task(wait.message(60_000, cast("HttpConnection", line)))
    await loop_turns(5)
    sending = asyncio.create_task(send(broker, "q", MESSAGE))
    await loop_turns(turns)
    was_over = task.done()
    cut(line, task)
    (found,) = await asyncio.gather(task, return_exceptions=True)
    await sending
    assert isinstance(found, Delivery) == was_over
    if not was_over:
        (again,) = await Receiver(broker, "q").receive(1)
        assert delivery_count(again) == 0
    await stop(broker)
    return was_over


def delivery_count(delivery: Delivery) -> int:
    """The delivery count in its header; the last field, of five bytes with its code."""
    assert delivery.payload[:3] == b"\x00\x53\x70"
    end = 5 + delivery.payload[4]
    return int.from_bytes(delivery.payload[end - 4 : end], "big")


async def stop(broker: Broker) -> None:
    await broker.stop()
    broker.clock.close()


@pytest.mark.parametrize("cut", [lambda line, _: line.cut(), lambda _, task: task.cancel()], ids=["lost", "cancelled"])
async def test_a_message_under_way_to_a_request_that_ends_goes_back_uncounted(
    cut: Callable[[Line, asyncio.Task[Delivery | None]], object],
) -> None:
    handed_over = [await is_handed_over(cut, turns) for turns in range(12)]
    assert handed_over == sorted(handed_over)
    assert {*handed_over} == {False, True}


async def test_a_request_whose_client_has_gone_before_does_not_wait() -> None:
    broker = open_broker(QueueDescription("q"))
    line = Line()
    line.cut()
    await send(broker, "q", MESSAGE)
    assert (
        await asyncio.wait_for(
            PendingReceive(broker, broker.clock, "q").message(60_000, cast("HttpConnection", line)), WAIT_S
        )
        is None
    )
    (left,) = await Receiver(broker, "q").receive(1)
    assert delivery_count(left) == 0
    await stop(broker)


async def test_a_message_whose_completion_fails_comes_again() -> None:
    broker = open_broker(QueueDescription("q"))
    await send(broker, "q", MESSAGE)
    wait = PendingReceive(broker, broker.clock, "q")
    delivery = await wait.message(0, cast("HttpConnection", Line()))
    assert delivery is not None
    entity = broker.namespace.entity("q")
    assert entity is not None
    home = entity.partitions[0].worker.index
    broker.outages.begin(home, Outage(OutageKind.FAILING))
    with pytest.raises(BrokerError) as caught:
        await wait.complete(delivery)
    assert caught.value.condition is Condition.SERVER_BUSY
    wait.release()
    broker.outages.end(home)
    (again,) = await Receiver(broker, "q").receive(1)
    assert again.sequence_number == delivery.sequence_number
    await stop(broker)


async def test_a_message_whose_lock_ends_before_it_is_completed_is_not_handed_over() -> None:
    clock = Clock(frozen=True)
    broker = open_broker(QueueDescription("q"), clock=clock)
    await send(broker, "q", MESSAGE)
    wait = PendingReceive(broker, clock, "q")
    delivery = await wait.message(0, cast("HttpConnection", Line()))
    assert delivery is not None
    clock.advance(60_000)
    assert not await wait.complete(delivery)
    (again,) = await Receiver(broker, "q").receive(1)
    assert delivery_count(again) == 1
    await stop(broker)
