"""Verbs that reach messages in several partitions at once, while one messaging store is out, refuses or tears.

Each verb is asked, its error is held against what is there then, and a client asks again: nothing is lost, nothing is
done twice, and an error that says that nothing is stored is true.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from emubus.broker.api import Complete, DeadLetter, Defer, Delivery, Outage, OutageKind, ReceiveMode
from emubus.broker.broker import Broker
from emubus.broker.clock import Clock
from emubus.broker.errors import BrokerError, Condition, UnknownOutcomeError
from emubus.storage import Store

from .driving import decoded, encoded, read
from .namespace import Receiver, loop_turns, open_broker, send
from .test_several_partitions import FIRST, QUEUE, SECOND, Unconfirmed, key_for

PLACES = (FIRST, SECOND)
LOCK_MS = 60_000
OUTAGES = (OutageKind.DOWN, OutageKind.FAILING, OutageKind.FULL)
TEARS = [(commits, keeps) for commits in range(3) for keeps in (True, False)]


@pytest.fixture
def clock() -> Clock:
    return Clock(start_at=1_800_000_000_000, frozen=True)


@dataclass
class World:
    """A partitioned queue with the messages "a" and "b" in two partitions, and what its client got."""

    broker: Broker
    clock: Clock
    stores: list[Unconfirmed]
    taken: list[Delivery] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)

    async def go_on(self) -> None:
        for _ in range(3):
            self.clock.advance(300)
            await loop_turns(30)

    async def stored(self) -> list[tuple[str, int]]:
        """Bodies and delivery counts of what the queue holds."""
        payloads = await self.broker.messages.peek("p", 0, 100, 1 << 20)
        messages = [read(payload) for payload in payloads]
        return [(bytes(message.body).decode(), message.delivery_count) for message in messages]


Verb = Callable[[World], Awaitable[object]]


async def settle(world: World) -> None:
    await world.broker.messages.settle("p", [each.token for each in world.taken], Complete())


async def dead_letter(world: World) -> None:
    await world.broker.messages.settle("p", [each.token for each in world.taken], DeadLetter("no", "no", {}))


async def renew(world: World) -> None:
    assert len(await world.broker.messages.renew_locks("p", [each.token for each in world.taken])) == len(PLACES)


async def receive(world: World) -> list[Delivery]:
    return await world.broker.messages.receive_by_sequence_number("p", world.numbers, ReceiveMode.PEEK_LOCK)


async def receive_and_delete(world: World) -> list[Delivery]:
    return await world.broker.messages.receive_by_sequence_number("p", world.numbers, ReceiveMode.RECEIVE_AND_DELETE)


DEFERRED: tuple[Verb, ...] = (receive, receive_and_delete)
REMOVING: tuple[Verb, ...] = (settle, receive_and_delete)
VERBS: tuple[Verb, ...] = (settle, dead_letter, renew, receive, receive_and_delete)


async def world_for(verb: Verb, clock: Clock) -> World:
    stores: list[Unconfirmed] = []

    def wrap(store: Store) -> Store:
        stores.append(Unconfirmed(store))
        return stores[-1]

    broker = open_broker(QUEUE, clock=clock, wrap=wrap)
    for body, place in zip("ab", PLACES, strict=True):
        await send(broker, "p", encoded(body, annotations={"x-opt-partition-key": key_for(place)}))
    receiver = Receiver(broker, "p")
    taken = await receiver.receive(2)
    world = World(broker, clock, stores, sorted(taken, key=lambda each: each.sequence_number))
    if verb in DEFERRED:
        for each in world.taken:
            assert await receiver.settle(each, Defer({})) is None
    world.numbers = [each.sequence_number for each in world.taken]
    receiver.consumer.close()
    return world


async def attempt(world: World, verb: Verb) -> tuple[Any, BrokerError | None]:
    asked = asyncio.ensure_future(verb(world))
    for _ in range(20):
        await loop_turns(20)
        if asked.done():
            break
    assert asked.done(), "no answer"
    error = asked.exception()
    assert error is None or isinstance(error, BrokerError), error
    return (None, error) if error is not None else (asked.result(), None)


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.__name__)
@pytest.mark.parametrize("kind", OUTAGES)
@pytest.mark.parametrize("out", PLACES)
async def test_while_one_store_is_out_nothing_is_done_and_afterwards_the_same_request_does_all(
    clock: Clock, verb: Verb, kind: OutageKind, out: int
) -> None:
    world = await world_for(verb, clock)
    before = await world.stored()
    world.broker.outages.begin(out, Outage(kind))
    result, error = await attempt(world, verb)
    writes_nothing = verb in (renew, receive)
    assert (error is None) == (writes_nothing and kind is not OutageKind.DOWN)
    world.broker.outages.end(out)
    await world.go_on()
    assert await world.stored() == before
    if error is not None:
        assert (error.condition, type(error)) == (Condition.SERVER_BUSY, BrokerError)
        assert "Nothing of it was stored; please retry." in error.description
        result, error = await attempt(world, verb)
        assert error is None
    if verb in DEFERRED:
        assert [bytes(each.body).decode() for each in decoded(result)] == ["a", "b"]
    assert await world.stored() == ([] if verb in (*REMOVING, dead_letter) else before)


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.__name__)
@pytest.mark.parametrize(("commits", "keeps"), TEARS)
@pytest.mark.parametrize("place", PLACES)
async def test_a_store_that_tears_loses_nothing_and_its_error_is_true(
    clock: Clock, verb: Verb, commits: int, keeps: bool, place: int
) -> None:
    world = await world_for(verb, clock)
    before = await world.stored()
    world.stores[place].keeps = keeps
    world.stores[place].commits_left = commits
    result, error = await attempt(world, verb)
    world.stores[place].commits_left = None
    await world.go_on()
    left = [body for body, _ in await world.stored()]
    if error is None:
        if verb in DEFERRED:
            assert [bytes(each.body).decode() for each in decoded(result)] == ["a", "b"]
        assert left == ([] if verb in (*REMOVING, dead_letter) else ["a", "b"])
        return
    assert error.condition is Condition.SERVER_BUSY
    if not isinstance(error, UnknownOutcomeError):
        assert await world.stored() == before
    if verb is settle and "settled for certain" in error.description:
        assert int(error.description.split()[0]) <= 2 - len(left)
    result, error = await attempt(world, verb)
    if error is not None:
        assert error.condition in (Condition.MESSAGE_LOCK_LOST, Condition.MESSAGE_NOT_FOUND)
        clock.advance(LOCK_MS)
        await world.go_on()
        assert [body for body, _ in await world.stored()] == left
    elif verb in DEFERRED:
        assert [bytes(each.body).decode() for each in decoded(result)] == ["a", "b"]


async def test_a_request_with_a_lost_lock_settles_none_of_its_messages(clock: Clock) -> None:
    world = await world_for(settle, clock)
    (lost, kept) = world.taken
    await world.broker.messages.settle("p", [lost.token], Complete())
    with pytest.raises(BrokerError) as refused:
        await settle(world)
    assert refused.value.condition is Condition.MESSAGE_LOCK_LOST
    assert [body for body, _ in await world.stored()] == ["b"]
    await world.broker.messages.settle("p", [kept.token, kept.token], Complete())
    assert await world.stored() == []
