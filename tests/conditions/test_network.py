"""What the network does to bytes: late, slowly, cut in a transfer, or not at all."""

from __future__ import annotations

import pytest

from emubus.amqp.injection.path import Frames
from emubus.codec.frames import AMQP_HEADER, EMPTY_FRAME
from emubus.conditions.strikes import Passing

from ..amqp.conftest import _brokers_stop, bare, wire
from ..amqp.fakes import FakeTransport
from ..amqp.wire import DISPOSITION, TRANSFER, Wire, accepted, frame

__all__ = ["_brokers_stop", "bare", "wire"]


async def test_bytes_travel_half_a_round_trip_each_way_in_their_order(wire: Wire) -> None:
    wire.attach_sender()
    condition = wire.state.conditions.start("latency", values={"median_ms": 70})
    wire.write(wire.transfer(b"1") + wire.transfer(b"2"))
    await wire.turn()
    wire.clock.advance(34)
    assert (await wire.turn(), wire.broker.q.sent) == ([], [])
    wire.clock.advance(1)
    assert (await wire.turn(), [data for data, _ in wire.broker.q.sent]) == ([], [b"1", b"2"])
    wire.clock.advance(35)
    assert [each.get(4) for each in await wire.turn()] == [accepted]
    assert [each.what for each in condition.struck] == ["far away"]


def delays(wire: Wire, seed: int) -> list[int]:
    condition = wire.state.conditions.start("latency", seed=seed, values={"median_ms": 140, "p99_ms": 900})
    (behaviour,) = condition.behaviours
    found = [behaviour.delay_ms(Passing(1, True, 100)) for _ in range(400)]
    wire.state.conditions.end(condition.number)
    return found


async def test_round_trips_are_spread_by_the_seed(wire: Wire) -> None:
    found = delays(wire, 7)
    assert found == delays(wire, 7) != delays(wire, 8)
    ordered = sorted(found)
    assert 60 < ordered[200] < 80
    assert 300 < ordered[395] < 800


async def test_a_narrow_way_takes_its_time_for_each_byte(wire: Wire) -> None:
    wire.attach_sender()
    wire.state.conditions.start("bandwidth", values={"bytes_per_s": 1_000})
    data = wire.transfer(b"x" * 2_000)
    wire.write(data)
    wire.clock.advance(len(data) - 1)
    assert wire.broker.q.sent == []
    wire.clock.advance(1)
    await wire.turn()
    assert len(wire.broker.q.sent) == 1


async def test_nothing_passes_a_connection_that_is_half_open_and_then_everything(wire: Wire) -> None:
    wire.attach_sender()
    wire.state.conditions.start("half-open", values={"ms": 90_000, "connections": "one"})
    wire.write(wire.transfer(b"x"))
    wire.clock.advance(89_999)
    assert (await wire.turn(), wire.broker.q.sent, wire.socket.closed) == ([], [], False)
    wire.clock.advance(1)
    assert [each.code for each in await wire.turn()] == [DISPOSITION]


async def test_what_was_held_passes_when_the_condition_ends(wire: Wire) -> None:
    wire.attach_sender()
    condition = wire.state.conditions.start("half-open")
    wire.write(wire.transfer(b"x"))
    wire.state.conditions.end(condition.number)
    assert [each.code for each in await wire.turn()] == [DISPOSITION]


async def test_a_transfer_that_is_cut_on_its_way_in_is_not_stored(wire: Wire) -> None:
    wire.attach_sender()
    wire.state.conditions.start("cut-in-transfer", count=1, values={"at_byte": 20})
    wire.write(wire.transfer(b"x" * 100))
    await wire.turn()
    assert (wire.broker.q.sent, wire.socket.closed) == ([], True)


async def test_a_message_that_is_cut_on_its_way_out_stays_locked(wire: Wire) -> None:
    wire.attach_receiver(credit=5)
    wire.state.conditions.start("cut-in-transfer", values={"direction": "out", "at_byte": 30})
    wire.broker.q.put(b"m")
    await wire.turns(2)
    assert len(wire.socket.take()) == 30
    assert (list(wire.broker.q.locked.values()), wire.socket.closed) == ([b"m"], True)


@pytest.mark.parametrize("chunk", [1, 3, 11, 1_000])
def test_transfer_frames_are_found_in_any_chunks(chunk: int) -> None:
    transfer = frame(0, TRANSFER, [1, 2, b"t"], b"payload")
    data = AMQP_HEADER + EMPTY_FRAME + frame(0, 0x10, ["c"]) + transfer + EMPTY_FRAME + transfer
    frames, found = Frames(), []
    for start in range(0, len(data), chunk):
        found += [(start + at, size) for at, size in frames.transfers(data[start : start + chunk])]
    first = data.index(transfer)
    assert found == [(first, len(transfer)), (len(data) - len(transfer), len(transfer))]


async def test_a_new_connection_is_reset_while_nobody_listens(wire: Wire) -> None:
    wire.state.conditions.start("refuse", count=1)
    closed = []
    for number in (2, 3):
        connection, socket = wire.connection(number), FakeTransport()
        connection.connection_made(socket)
        closed.append(socket.closed)
        connection.connection_lost(None)
    assert closed == [True, False]


async def test_another_region_answers_after_a_while_and_no_lock_is_left(wire: Wire) -> None:
    wire.attach_receiver(credit=1)
    wire.broker.q.put(b"m")
    await wire.turn()
    condition = wire.state.conditions.start("region-failover", values={"away_ms": 5_000})
    await wire.turn()
    assert (wire.socket.closed, list(wire.broker.q.locked)) == (True, [])
    assert [type(outcome).__name__ for _, outcome in wire.broker.q.settled] == ["Release"]
    closed = []
    for number, advance_ms in ((2, 4_999), (3, 1)):
        connection, socket = wire.connection(number), FakeTransport()
        connection.connection_made(socket)
        closed.append(socket.closed)
        connection.connection_lost(None)
        wire.clock.advance(advance_ms)
    connection, socket = wire.connection(4), FakeTransport()
    connection.connection_made(socket)
    assert (closed, socket.closed) == ([True, True], False)
    connection.connection_lost(None)
    assert [each.what for each in condition.plan] == ["the other region answers"]


async def test_a_proxy_cuts_connections_over_websockets_only(wire: Wire) -> None:
    wire.attach_sender()
    wire.state.conditions.start("websocket-cut", values={"ms": 100_000})
    wire.clock.advance(100_000)
    assert not wire.socket.closed
    wire.state.conditions.end_all()
    wire.socket.get_extra_info = {"websocket": True}.get  # type: ignore[assignment]
    wire.state.conditions.start("websocket-cut", values={"ms": 100_000, "idle_only": "yes"})
    wire.clock.advance(60_000)
    wire.write(wire.transfer(b"x"))
    wire.clock.advance(99_999)
    assert not wire.socket.closed
    wire.clock.advance(1)
    assert wire.socket.closed
