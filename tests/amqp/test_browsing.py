"""Clients that only look: links with distribution-mode copy, over the real broker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from emubus.amqp.injection.faults import Faults
from emubus.amqp.limits import Limits
from emubus.amqp.links.browsing import STEP_COUNT
from emubus.broker.broker import Broker
from emubus.broker.clock import Clock
from emubus.broker.errors import BrokerError, Condition
from emubus.broker.model.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from emubus.codec.encode import encode, encode_described
from emubus.codec.types import Described, Symbol, Timestamp, Ubyte, Uint, Ulong
from emubus.conditions.faults import FaultKind, FaultOperation

from ..broker.namespace import open_broker
from .asking import sections
from .fakes import FakeBroker
from .wire import ATTACH, DETACH, DISPOSITION, FLOW, SOURCE, TARGET, TRANSFER, Frame, Wire, accepted

START = 1_767_225_600_000
COPY = Symbol("copy")
NAMES = ("one", "two", "three")


def message(text: str, scheduled_at: int | None = None) -> bytes:
    notes = {} if scheduled_at is None else {Symbol("x-opt-scheduled-enqueue-time"): Timestamp(scheduled_at)}
    return encode_described(Ulong(0x72), encode(notes)) + encode_described(Ulong(0x77), encode(text))


def bodies(frames: list[Frame]) -> list[str]:
    return [sections(each.payload)[0x77] for each in frames if each.code == TRANSFER]


class Looking:
    """A client's wire to the adapter over a real broker with a queue, a partitioned one and a subscription."""

    def __init__(self, broker: Broker, limits: Limits | None = None) -> None:
        self.broker = broker
        self.wire = Wire(broker=cast("FakeBroker", broker), clock=broker.clock, limits=limits or Limits())
        self.wire.open()

    async def frames(self, *codes: int) -> list[Frame]:
        """The next frames, whose codes must be these."""
        return await self.wire.frames(*codes)

    async def nothing(self) -> None:
        assert await self.wire.turn(30) == []

    async def send(self, *texts: str, address: str = "q", scheduled_at: int | None = None) -> None:
        self.wire.attach_sender(address, handle=30)
        for text in texts:
            self.wire.write(self.wire.transfer(message(text, scheduled_at), handle=30))
            await self.frames(DISPOSITION)
        self.wire.send(0, DETACH, [Uint(30), True])
        await self.frames(DETACH)

    def browse(self, address: str = "q", handle: int = 0, *, snd: Ubyte | None = None, **source: Any) -> list[Frame]:
        """Attach with a source of distribution-mode copy; the server's frames."""
        terminus = [address, source.get("durable"), None, None, source.get("dynamic"), None, source.get("mode", COPY)]
        fields = [
            f"b{handle}", Uint(handle), True, snd, Ubyte(0), Described(Ulong(SOURCE), terminus),
            Described(Ulong(TARGET), ["client"]),
        ]  # fmt: skip
        self.wire.send(0, ATTACH, fields)
        return self.wire.read()


@pytest.fixture
async def looking() -> AsyncIterator[Looking]:
    with capture_logs() as logs:
        clock = Clock(start_at=START, manual=True)
        broker = open_broker(
            QueueDescription("q"),
            QueueDescription("p", enable_partitioning=True),
            QueueDescription("s", requires_session=True),
            clock=clock,
        )
        broker.administration.create(TopicDescription("t"))
        broker.administration.create(SubscriptionDescription("t", "sub"))
        client = Looking(broker)
        yield client
        client.wire.lose()
        await broker.stop()
        clock.close()
    assert [entry for entry in logs if entry["log_level"] in ("error", "critical")] == []


async def test_who_browses_sees_messages_and_leaves_them(looking: Looking) -> None:
    await looking.send(*NAMES)
    (attach,) = looking.browse()
    assert attach.fields[5].value[6] == "copy"
    looking.wire.flow(0, 10)
    shown = await looking.frames(TRANSFER, TRANSFER, TRANSFER)
    assert bodies(shown) == list(NAMES)
    assert [sections(each.payload)[0x70][4] for each in shown] == [0, 0, 0]
    assert len({bytes(each.fields[2]) for each in shown}) == 3
    looking.wire.dispose(accepted, 0, 2)
    (answer,) = await looking.frames(DISPOSITION)
    assert (answer.get(1), answer.get(2), answer.get(3), answer.get(4)) == (0, 2, True, accepted)
    looking.wire.attach_receiver("q", 1, credit=10)
    taken = await looking.frames(TRANSFER, TRANSFER, TRANSFER)
    assert bodies(taken) == list(NAMES)
    assert [sections(each.payload)[0x70][4] for each in taken] == [0, 0, 0]  # it was no delivery attempt


async def test_a_drain_tells_that_there_is_no_more_to_see(looking: Looking) -> None:
    await looking.send(*NAMES)
    looking.browse()
    looking.wire.flow(0, 2)
    assert bodies(await looking.frames(TRANSFER, TRANSFER)) == ["one", "two"]
    looking.wire.flow(0, 5, count=2, drain=True)
    transfer, flow = await looking.frames(TRANSFER, FLOW)
    assert bodies([transfer]) == ["three"]
    assert [flow.get(index) for index in (4, 5, 6, 8)] == [0, 7, 0, True]
    looking.wire.flow(0, 3, count=7, drain=True)
    (flow,) = await looking.frames(FLOW)
    assert [flow.get(index) for index in (4, 5, 6, 8)] == [0, 10, 0, True]
    await looking.send("four")
    looking.wire.flow(0, 1, count=10)
    assert bodies(await looking.frames(TRANSFER)) == ["four"]


async def test_messages_that_are_not_active_are_not_shown(looking: Looking) -> None:
    await looking.send("later", scheduled_at=START + 60_000)
    await looking.send("now")
    looking.browse()
    looking.wire.flow(0, 10, drain=True)
    transfer, _ = await looking.frames(TRANSFER, FLOW)
    assert bodies([transfer]) == ["now"]


async def test_a_browser_goes_through_all_partitions_and_its_settled_copies_are_settled(looking: Looking) -> None:
    await looking.send(*[str(number) for number in range(40)], address="p")
    looking.browse("p", snd=Ubyte(1))
    looking.wire.flow(0, 100, drain=True)
    *shown, _ = await looking.frames(*[TRANSFER] * 40, FLOW)
    assert sorted(map(int, bodies(shown))) == list(range(40))
    assert {each.get(4) for each in shown} == {True}


async def test_a_long_look_is_many_steps_of_the_loop(looking: Looking) -> None:
    """In one step, hundreds of copies for each of hundreds of browsers held a send of somebody else up for 0.45 s."""
    texts = [str(number) for number in range(6 * STEP_COUNT)]
    await looking.send(*texts)
    looking.browse()
    looking.wire.flow(0, len(texts))
    turns = [bodies(await looking.wire.turn(1)) for _ in range(30)]
    assert [text for turn in turns for text in turn] == texts
    assert max(map(len, turns)) <= 2 * STEP_COUNT  # what two steps have sent may be written together


async def test_a_look_goes_on_where_credit_ended_in_its_midst(looking: Looking) -> None:
    texts = [str(number) for number in range(3 * STEP_COUNT)]
    await looking.send(*texts)
    looking.browse()
    looking.wire.flow(0, len(texts))
    shown: list[str] = []
    while len(shown) < STEP_COUNT:
        shown += bodies(await looking.wire.turn(1))
    looking.wire.flow(0, 0, count=len(shown))
    shown += bodies(await looking.wire.turn(30))
    assert len(shown) < len(texts)
    looking.wire.flow(0, 1_000, count=len(shown))
    shown += bodies(await looking.wire.turn(30))
    assert shown == texts


async def test_a_durable_source_is_a_subscription_to_receive_from_whatever_its_distribution_mode(
    looking: Looking,
) -> None:
    await looking.send("m", address="t")
    looking.browse("t/Subscriptions/sub", durable=Uint(2))
    looking.wire.flow(0, 5)
    await looking.frames(TRANSFER)
    looking.wire.dispose(accepted, 0, settled=True)
    await looking.nothing()
    looking.browse("t/Subscriptions/sub", 1)
    looking.wire.flow(1, 5)
    await looking.nothing()


@pytest.mark.parametrize(
    ("address", "condition"),
    [("nothing", "amqp:not-found"), ("t", "amqp:not-allowed"), ("s", "amqp:not-allowed")],
)
async def test_what_can_t_be_received_from_can_t_be_browsed(looking: Looking, address: str, condition: str) -> None:
    _, detach = looking.browse(address)
    assert detach.fields[2].value[0] == condition


async def test_a_browser_ends_with_its_entity(looking: Looking) -> None:
    looking.browse()
    looking.broker.administration.delete("q")
    (detach,) = await looking.frames(DETACH)
    assert detach.fields[2].value[0] == "amqp:not-found"


async def test_a_browser_that_can_t_look_is_detached(looking: Looking) -> None:
    async def refuse(*arguments: object) -> list[bytes]:
        raise BrokerError(Condition.SERVER_BUSY, "Not now.")

    looking.browse()
    looking.broker.messages.peek = refuse  # type: ignore[method-assign, assignment]
    looking.wire.flow(0, 1)
    (detach,) = await looking.frames(DETACH)
    assert detach.fields[2].value[0] == "com.microsoft:server-busy"


async def test_a_browser_whose_client_is_gone_looks_no_further(looking: Looking) -> None:
    await looking.send(*NAMES)
    looking.browse()
    looking.wire.flow(0, 10)
    looking.wire.send(0, DETACH, [Uint(0), True])
    await looking.frames(DETACH)
    await looking.nothing()


async def test_a_full_window_stops_the_look_until_it_opens(looking: Looking) -> None:
    slow = Looking(looking.broker, Limits(outgoing_bytes_max=1000))
    await slow.send(*[f"{number:0600}" for number in range(400)])
    slow.wire.begin(1, window=1)
    terminus = Described(Ulong(SOURCE), ["q", *[None] * 5, COPY])
    slow.wire.send(1, ATTACH, ["b", Uint(0), True, None, None, terminus, Described(Ulong(TARGET), ["client"])])
    slow.wire.flow(0, 1000, channel=1, window=1)
    frames = await slow.wire.turn(50)
    assert [each.code for each in frames if each.code != FLOW] == [ATTACH, TRANSFER]
    slow.wire.send(1, FLOW, [Uint(1), Uint(5000), Uint(0), Uint(5000)])
    await slow.frames(*[TRANSFER] * 399)
    slow.wire.lose()


@pytest.mark.parametrize(
    ("kind", "condition"),
    [(FaultKind.SERVER_BUSY, Condition.SERVER_BUSY), (FaultKind.DROPPED_LINK, Condition.DETACH_FORCED)],
)
async def test_faults_of_receiving_strike_who_browses_too(
    looking: Looking, kind: FaultKind, condition: Condition
) -> None:
    await looking.send(*NAMES)
    table = looking.wire.state.conditions
    Faults([looking.wire.server.context], table)
    looking.browse()
    table.set_fault(kind, operations=[FaultOperation.RECEIVE])
    looking.wire.flow(0, 10)
    (detach,) = await looking.frames(DETACH)
    assert detach.fields[2].value[0] == condition.value
    looking.browse(handle=1)
    table.clear_faults()
    looking.wire.flow(1, 10)
    assert bodies(await looking.frames(TRANSFER, TRANSFER, TRANSFER)) == list(NAMES)


async def test_a_fault_cuts_the_connection_of_who_browses(looking: Looking) -> None:
    table = looking.wire.state.conditions
    Faults([looking.wire.server.context], table)
    looking.browse()
    table.set_fault(FaultKind.DROPPED_CONNECTION, operations=[FaultOperation.RECEIVE], count=1)
    looking.wire.flow(0, 10)
    await looking.nothing()
    assert looking.wire.socket.closed
