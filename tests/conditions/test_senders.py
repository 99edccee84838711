"""What senders meet: keys whose store is out, an entity that is away, quotas, and no credit."""

from __future__ import annotations

from emubus.broker.api import Outage, OutageKind, partition_for_key
from emubus.broker.model.descriptions import QueueDescription
from emubus.broker.model.profiles import Profile

from ..amqp.conftest import _brokers_stop, bare, brokers_stop, wire
from ..amqp.wire import ATTACH, BATCH, DETACH, DISPOSITION, FLOW, TRANSFER, Wire, accepted
from ..broker.driving import encoded
from .wires import error_of, wire_to

__all__ = ["_brokers_stop", "bare", "brokers_stop", "wire"]

STORES, MIB = 16, 1 << 20
FRAME_BYTES = 60_000
TIMED_OUT = "The operation did not complete within the allotted timeout of 00:00:08."


def keyed(key: str) -> bytes:
    return encoded(annotations={"x-opt-partition-key": key})


async def test_while_a_store_is_out_messages_with_its_keys_are_refused_and_no_others() -> None:
    wire, broker = wire_to(QueueDescription("q", enable_partitioning=True))
    on = wire.state.conditions
    wire.attach_sender()
    out = partition_for_key("a", STORES)
    broker.outages.begin(out, Outage(OutageKind.DOWN, 0), None)
    other = next(key for key in "bcdefgh" if partition_for_key(key, STORES) != out)
    for error, condition in (("timeout", "com.microsoft:timeout"), ("internal", "amqp:internal-error")):
        running = on.start("keyed-refused", entity="q", values={"error": error})
        wire.write(wire.transfer(keyed("a")))
        (refused,) = await wire.frames(DISPOSITION)
        assert error_of(refused)[0] == condition
        for payload in (keyed(other), encoded()):
            wire.write(wire.transfer(payload))
            (taken,) = await wire.frames(DISPOSITION)
            assert taken.get(4) == accepted
        assert [each.what for each in running.struck] == ["message with a key refused"]
        on.end(running.number)
    wire.lose()


async def test_an_entity_that_is_away_answers_late_that_it_took_too_long(wire: Wire) -> None:
    wire.attach_sender()
    wire.attach_receiver(handle=1)
    wire.state.conditions.start("entity-away", entity="q", values={"ms": 20_000})
    wire.broker.q.put(b"m")
    wire.flow(1, 1)
    wire.write(wire.transfer(b"x"))
    assert await wire.turn() == []
    wire.clock.advance(8_000)
    (refused,) = await wire.turn()
    assert error_of(refused)[0] == "com.microsoft:timeout"
    assert error_of(refused)[1].startswith(TIMED_OUT)
    assert wire.broker.q.sent == []
    _, detach = wire.attach_sender(handle=2)
    assert error_of(detach)[0] == "com.microsoft:timeout"
    wire.clock.advance(12_000)
    assert [frame.code for frame in await wire.turn()] == [TRANSFER]
    wire.write(wire.transfer(b"y"))
    assert [frame.get(4) for frame in await wire.turn()] == [accepted]


async def test_an_entity_is_full_at_few_bytes() -> None:
    wire, _ = wire_to(QueueDescription("q"))
    wire.attach_sender()
    wire.state.conditions.start("entity-full", values={"max": 5_000})
    outcomes = []
    for _ in range(2):
        wire.write(wire.transfer(encoded("x" * 3_000)))
        outcomes += await wire.frames(DISPOSITION)
    assert outcomes[0].get(4) == accepted
    condition, text = error_of(outcomes[1])
    assert condition == "amqp:resource-limit-exceeded"
    assert "reached or exceeded for Queue: 'sbemulatorns:Queue:q'" in text
    assert "Max entity size in bytes: 5000." in text
    wire.lose()


async def test_a_batch_that_is_too_large_detaches_its_link(wire: Wire) -> None:
    wire.attach_sender()
    wire.state.conditions.start("batch-too-large", values={"max": 100})
    wire.write(wire.transfer(b"x" * 200))
    assert [frame.get(4) for frame in await wire.turn()] == [accepted]
    wire.write(wire.transfer(b"x" * 200, format=BATCH))
    (detach,) = await wire.turn(4)
    condition, text = error_of(detach)
    assert condition == "amqp:not-allowed"
    assert "publisher(link1) received a batch message with no data in it. Detach origin: Publisher." in text
    assert ":s0' is force detached by the broker" in text
    assert len(wire.broker.q.sent) == 1


async def test_a_new_sender_gets_its_credit_late_and_the_others_no_more(wire: Wire) -> None:
    wire.attach_sender()
    wire.state.conditions.start("no-credit", entity="q", values={"ms": 5_000})
    wire.write(wire.transfer(b"x"))
    assert [frame.code for frame in await wire.turn()] == [DISPOSITION]
    frames = wire.attach_sender(handle=1) + await wire.turn()
    assert [frame.code for frame in frames if frame.code != FLOW] == [ATTACH]
    assert [frame.get(6) for frame in frames if frame.code == FLOW] in ([], [0])
    wire.clock.advance(5_000)
    given = {frame.get(4): frame.get(6) for frame in await wire.turn() if frame.code == FLOW}
    assert given[1] == wire.limits.link_credit
    wire.write(wire.transfer(b"y", handle=1))
    assert [frame.get(4) for frame in await wire.turn()] == [accepted]


async def test_held_credit_comes_when_the_condition_ends(wire: Wire) -> None:
    condition = wire.state.conditions.start("no-credit")
    wire.attach_sender()
    await wire.turn()
    wire.state.conditions.end(condition.number)
    assert [frame.get(6) for frame in await wire.turn() if frame.code == FLOW] == [wire.limits.link_credit]


def write_large(wire: Wire, payload: bytes, handle: int) -> None:
    """A delivery of several frames."""
    for start in range(0, len(payload), FRAME_BYTES):
        more = start + FRAME_BYTES < len(payload)
        wire.write(wire.transfer(payload[start : start + FRAME_BYTES], handle=handle, more=more))


async def test_a_link_keeps_the_largest_size_that_it_was_told_until_it_is_attached_again() -> None:
    wire, broker = wire_to(QueueDescription("q", max_message_bytes=MIB), profile=Profile.PREMIUM)
    assert wire.attach_sender()[0].get(10) == MIB
    broker.administration.update(QueueDescription("q", max_message_bytes=2 * MIB))
    assert wire.attach_sender(handle=1)[0].get(10) == 2 * MIB
    payload = encoded("x" * (MIB + 1))
    write_large(wire, payload, 1)
    (taken,) = await wire.frames(DISPOSITION)
    assert taken.get(4) == accepted
    write_large(wire, payload, 0)
    refused, detach = await wire.frames(DISPOSITION, DETACH)
    assert error_of(refused)[0] == error_of(detach)[0] == "amqp:link:message-size-exceeded"
    wire.lose()
