"""Message sessions that are locked non-exclusively, on bad days: the token goes on through what strikes its holder."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator

import pytest

from emubus.broker.api import Outage, OutageKind
from emubus.codec.types import Uint
from emubus.conditions.behaviour import Value
from emubus.conditions.faults import FaultKind, FaultOperation

from ..amqp.test_over_the_broker import body
from ..amqp.test_shared_sessions import Client, Place, open_place
from ..amqp.wire import CLOSE, DETACH, Frame
from ..broker.namespace import _brokers_stop, brokers_stop

__all__ = ["_brokers_stop", "brokers_stop"]


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    async with open_place() as opened:
        yield opened


def detaches(frames: list[Frame]) -> list[str]:
    return [str(each.get(2).value[0]) for each in frames if each.code == DETACH]


async def gets_again(client: Client, before: Frame) -> None:
    """What its last holder left open comes to the new one, and can be settled by its new lock only."""
    assert (await client.settle(before)).condition == "com.microsoft:message-lock-lost"
    (transfer,) = await client.receive()
    assert body(transfer) == body(before)
    assert (await client.settle(transfer)).status == 200


@pytest.mark.parametrize("kind", [FaultKind.DROPPED_LINK, FaultKind.DROPPED_CONNECTION])
async def test_who_has_the_token_goes_on_when_the_link_or_connection_of_the_holder_is_cut(
    place: Place, kind: FaultKind
) -> None:
    await place.send("m")
    first, second = place.client(), place.client()
    token = await first.lock()
    (transfer,) = await first.receive()
    first.wire.state.conditions.set_fault(kind, operations=[FaultOperation.RECEIVE], count=1)
    first.wire.flow(0, 1, count=1)
    frames = await first.wire.turn(8)
    if kind is FaultKind.DROPPED_CONNECTION:
        assert (frames, first.wire.socket.closed) == ([], True)
        first.wire.lose()
    else:
        assert detaches(frames) == ["amqp:link:detach-forced"]
    assert await second.lock("a", token) == token
    await gets_again(second, transfer)


async def test_a_token_goes_on_after_its_session_has_moved(place: Place) -> None:
    await place.send("m")
    first, second = place.client(), place.client()
    token = await first.lock()
    (transfer,) = await first.receive()
    first.wire.state.conditions.start("session-moved", entity="s")
    assert detaches(await first.wire.turn(8)) == ["com.microsoft:session-lock-lost"]
    assert (await first.ask("renew-session-lock")).condition == "com.microsoft:session-lock-lost"
    assert await second.lock("a", token) == token
    await gets_again(second, transfer)


async def test_after_a_renewal_that_a_fault_refused_another_client_goes_on_with_what_was_delivered(
    place: Place,
) -> None:
    await place.send("m")
    first, second = place.client(), place.client()
    token = await first.lock()
    (transfer,) = await first.receive()
    first.wire.state.conditions.set_fault(FaultKind.LOST_LOCK, operations=[FaultOperation.RENEW], count=1)
    assert (await first.ask("renew-session-lock")).condition == "com.microsoft:session-lock-lost"
    assert await second.lock("a", token) == token
    assert (await second.settle(transfer)).status == 200
    assert await second.receive() == []


async def test_a_take_over_that_is_refused_as_busy_leaves_the_holder_alone(place: Place) -> None:
    first, second = place.client(), place.client()
    token = await first.lock()
    second.wire.state.conditions.set_fault(FaultKind.SERVER_BUSY, operations=[FaultOperation.ATTACH], count=1)
    assert detaches(await second.attach("a", token)) == ["com.microsoft:server-busy"]
    assert (await first.ask("renew-session-lock")).status == 200
    assert detaches(await first.wire.turn(8)) == []
    await tries_again(second, token)
    assert detaches(await first.wire.turn(8)) == ["com.microsoft:session-lock-lost"]


async def tries_again(client: Client, token: uuid.UUID) -> None:
    """After a refused attach at handle 0, as an SDK does."""
    client.wire.send(0, DETACH, [Uint(0), True])
    assert await client.lock("a", token) == token


async def test_while_its_store_is_out_a_session_stays_with_its_holder_and_is_taken_over_afterwards(
    place: Place,
) -> None:
    await place.send("m")
    first, second = place.client(), place.client()
    token = await first.lock()
    (transfer,) = await first.receive()
    entity = place.broker.namespace.entity("s")
    assert entity is not None
    store = entity.partitions[0].worker.index
    place.broker.outages.begin(store, Outage(OutageKind.DOWN))
    assert detaches(await second.attach("a", token)) == ["com.microsoft:server-busy"]
    assert detaches(await first.wire.turn(8)) == []
    assert (await first.settle(transfer)).status == 503
    place.broker.outages.end(store)
    await tries_again(second, token)
    assert (await second.settle(transfer)).status == 200
    assert await place.broker.messages.peek("s", 0, 10, 1 << 20) == []


@pytest.mark.parametrize(
    ("condition", "parameters"),
    [
        ("entity-changed", {"locks": "kept"}),
        ("entity-changed", {"locks": "forgotten"}),
        ("broker-move", {"locks": "kept", "away_min_ms": 1_000, "away_max_ms": 1_000}),
        ("broker-move", {"locks": "forgotten", "away_min_ms": 1_000, "away_max_ms": 1_000}),
        ("gateway-restart", {"how": "reset"}),
        ("gateway-restart", {"how": "close"}),
        ("region-failover", {"away_ms": 1_000}),
    ],
    ids=str,
)
async def test_a_token_goes_on_after_its_entity_or_its_connection_was_struck(
    place: Place, condition: str, parameters: dict[str, Value]
) -> None:
    await place.send("m")
    first = place.client()
    token = await first.lock()
    (transfer,) = await first.receive()
    conditions = first.wire.state.conditions
    started = conditions.start(condition, values=parameters)
    frames = await first.wire.turn(8)
    assert detaches(frames) or first.wire.socket.closed or any(each.code == CLOSE for each in frames), frames
    place.clock.advance(2_000)
    await first.wire.turn(8)
    conditions.end(started.number)
    second = place.client()
    assert await second.lock("a", token) == token
    (again,) = [transfer] if (await second.settle(transfer)).status == 200 else await second.receive()
    assert body(again) == "m"
