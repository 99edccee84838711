"""What .NET clients need beyond their recorded conversations: names with a slash, links and channels that are gone.

Every frame of the server goes through the checks of `dotnet`, which know what the library can't take.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import cast

import pytest

from emubus.amqp.limits import Limits
from emubus.broker.broker import Broker
from emubus.broker.clock import Clock
from emubus.broker.model.descriptions import QueueDescription
from emubus.codec.encode import encode, encode_described
from emubus.codec.types import Described, Symbol, Uint, Ulong

from ..broker.namespace import open_broker
from .dotnet import DotnetPeer
from .fakes import FakeBroker
from .transacting import DECLARE, DECLARED, DISCHARGE, command, coordinate
from .wire import (
    ATTACH,
    BEGIN,
    DETACH,
    DISPOSITION,
    END,
    FLOW,
    SOURCE,
    TARGET,
    TRANSFER,
    Frame,
    Wire,
    accepted,
    frame,
    read_frames,
    rejected,
)

START = 1_767_225_600_000
FILTER, TIMEOUT = Symbol("com.microsoft:session-filter"), Symbol("com.microsoft:timeout")
TURNS = 30


@dataclass
class DotnetWire(Wire):
    """A client that checks whatever its server says."""

    peer: DotnetPeer = field(default_factory=DotnetPeer)

    def write(self, data: bytes, chunk: int = 0) -> None:
        for each in read_frames(data)[0]:
            self.peer.said(each)
        super().write(data, chunk)

    def read(self) -> list[Frame]:
        frames = super().read()
        for each in frames:
            self.peer.heard(each)
        return frames

    async def all(self) -> list[Frame]:
        """What the server says until it has nothing more to say."""
        return await self.turn(TURNS)


@dataclass
class Net:
    """A broker, its clock, and clients."""

    broker: Broker
    clock: Clock
    wires: list[DotnetWire] = field(default_factory=list)

    def connect(self) -> DotnetWire:
        wire = DotnetWire(broker=cast("FakeBroker", self.broker), clock=self.clock)
        wire.open()
        self.wires.append(wire)
        return wire

    async def send(self, body: str, address: str = "q", session_id: str | None = None) -> None:
        wire = self.connect()
        wire.attach_sender(address)
        wire.write(wire.transfer(message(body, session_id)))
        (answer,) = await wire.all()
        assert answer.get(4) == accepted


@pytest.fixture
async def net() -> AsyncIterator[Net]:
    clock = Clock(start_at=START, manual=True)
    queues = (QueueDescription("q"), QueueDescription("a/b c"), QueueDescription("s", requires_session=True))
    net = Net(open_broker(*queues, clock=clock), clock)
    yield net
    for each in net.wires:
        each.lose()


def message(body: str, session_id: str | None = None) -> bytes:
    properties = encode_described(Ulong(0x73), encode([None] * 10 + [session_id]))
    return properties + encode_described(Ulong(0x75), encode(body.encode()))


@pytest.mark.parametrize("address", ["/a/b%20c", "a/b c", "/A/B%20C", "amqps://host:5671/a/b%20c"])
async def test_an_entity_is_found_by_the_form_in_which_each_client_writes_its_address(net: Net, address: str) -> None:
    wire = net.connect()
    wire.attach_sender(address, handle=0)
    wire.write(wire.transfer(message("m")))
    wire.read()
    wire.attach_receiver(address, handle=1, credit=1)
    assert TRANSFER in [each.code for each in await wire.all()]


async def test_a_sender_that_leaves_its_initial_delivery_count_out_has_sent_nothing_yet(net: Net) -> None:
    wire = net.connect()
    source, target = Described(Ulong(SOURCE), ["client"]), Described(Ulong(TARGET), ["/q"])
    wire.send(0, ATTACH, ["name", Uint(0), False, None, None, source, target])
    attach, flow = wire.read()
    assert (attach.code, flow.code, flow.get(5), flow.get(6)) == (ATTACH, FLOW, 0, 1000)
    wire.write(wire.transfer(message("m")))
    assert [each.get(4) for each in await wire.all()] == [accepted]


async def test_a_wait_for_a_session_whose_channel_was_ended_is_never_answered(net: Net) -> None:
    wire = net.connect()
    wire.begin(1)
    wire.attach_receiver("/s", channel=1, filter={FILTER: None}, properties={TIMEOUT: Uint(59_000)})
    wire.send(1, END, [])
    assert [each.code for each in await wire.all()] == [END]
    await net.send("m", "s", "a")
    net.clock.advance(60_000)
    assert await wire.all() == []


async def test_many_waits_for_a_session_end_each_at_its_own_time(net: Net) -> None:
    wire = net.connect()
    for channel in (1, 2, 3):
        wire.begin(channel)
        properties = {TIMEOUT: Uint(channel * 1000)}
        wire.attach_receiver("/s", channel=channel, filter={FILTER: None}, properties=properties)
    for channel in (1, 2, 3):
        net.clock.advance(999)
        assert await wire.all() == []
        net.clock.advance(1)
        assert [(each.channel, each.code) for each in await wire.all()] == [(channel, ATTACH), (channel, DETACH)]
    assert wire.peer.refusals == ["com.microsoft:timeout"] * 3


@pytest.mark.parametrize("closing", [DETACH, END])
async def test_a_message_that_comes_after_its_receiver_has_gone_is_not_sent_to_it(net: Net, closing: int) -> None:
    wire = net.connect()
    wire.begin(1)
    wire.attach_receiver("/q", channel=1, credit=10)
    wire.send(1, closing, [Uint(0), True] if closing == DETACH else [])
    assert [each.code for each in await wire.all()] == [closing]
    await net.send("m")
    assert await wire.all() == []


async def test_a_commit_says_nothing_on_a_channel_that_was_ended_meanwhile(net: Net) -> None:
    await net.send("m")
    wire = net.connect()
    wire.begin(1)
    coordinate(wire)
    wire.write(wire.transfer(command(Ulong(DECLARE), [None]), handle=9))
    (answer,) = wire.read()
    assert answer.get(4).descriptor == DECLARED
    (transaction,) = answer.get(4).value
    wire.attach_receiver("/q", channel=1, credit=1)
    await wire.all()
    within = Described(Ulong(0x34), [transaction, accepted])
    wire.send(1, DISPOSITION, [True, Uint(0), None, False, within, None])
    await wire.all()
    wire.send(1, END, [])
    await wire.all()
    wire.write(wire.transfer(command(Ulong(DISCHARGE), [transaction, False]), handle=9))
    assert [(each.channel, each.get(4)) for each in await wire.all()] == [(0, accepted)]
    assert await net.broker.messages.peek("q", 0, 10, 1 << 20) == []


async def test_a_channel_that_was_ended_can_be_begun_anew(net: Net) -> None:
    wire = net.connect()
    for _ in range(3):
        assert wire.begin(1).code == BEGIN
        wire.attach_receiver("/q", channel=1, credit=5)
        wire.send(1, END, [])
        assert [each.code for each in await wire.all()] == [END]


async def test_a_link_of_a_deleted_entity_gets_its_detach_and_nothing_more(net: Net) -> None:
    wire = net.connect()
    wire.attach_receiver("/q", handle=0, credit=5)
    wire.attach_sender("/q", handle=1)
    net.broker.administration.delete("q")
    assert [each.code for each in await wire.all()] == [DETACH]
    net.clock.advance(Limits().deleted_pause_ms)
    assert [each.code for each in await wire.all()] == [DETACH]
    assert wire.peer.refusals == ["amqp:not-found"] * 2
    wire.flow(0, 5, count=0)
    wire.send(0, DETACH, [Uint(0), True])
    wire.send(0, DETACH, [Uint(1), True])
    assert DETACH not in [each.code for each in await wire.all()]


@pytest.mark.parametrize("state", [accepted, rejected()], ids=["complete", "dead-letter"])
async def test_a_lock_that_is_lost_is_never_called_not_found(net: Net, state: Described) -> None:
    """On `amqp:not-found` the SDK would try again over management without a word."""
    await net.send("m")
    wire = net.connect()
    wire.attach_receiver("/q", credit=1)
    await wire.all()
    net.clock.advance(60_000)
    wire.dispose(state, 0)
    await wire.all()
    assert wire.peer.refusals == ["com.microsoft:message-lock-lost"]


async def test_a_session_that_is_lost_is_called_so_by_settlements_and_by_the_detach(net: Net) -> None:
    await net.send("m", "s", "a")
    wire = net.connect()
    wire.attach_receiver("/s", filter={FILTER: "a"})
    await wire.all()
    wire.flow(0, 1)
    await wire.all()
    net.clock.advance(60_000)
    wire.dispose(accepted, 0)
    await wire.all()
    assert set(wire.peer.refusals) == {"com.microsoft:session-lock-lost"}


async def test_two_links_of_one_name_and_opposite_roles_live_side_by_side(net: Net) -> None:
    wire = net.connect()
    source = Described(Ulong(SOURCE), ["q/$management"])
    target = Described(Ulong(TARGET), ["q/$management"])
    client = Described(Ulong(TARGET), ["reply"])
    wire.send(0, ATTACH, ["duplex", Uint(0), False, None, None, Described(Ulong(SOURCE), []), target])
    wire.send(0, ATTACH, ["duplex", Uint(1), True, None, None, source, client])
    wire.flow(1, 50)
    request = b"".join(
        (
            encode_described(Ulong(0x73), encode(["id", None, None, None, "reply"])),
            encode_described(Ulong(0x74), encode({"operation": "com.microsoft:peek-message"})),
            encode_described(Ulong(0x77), encode({"from-sequence-number": 0, "message-count": 1})),
        )
    )
    wire.write(frame(0, TRANSFER, [Uint(0), Uint(0), b"", Uint(0), True, False], request))
    await wire.all()
    assert wire.peer.statuses == [("com.microsoft:peek-message", 204, None)]
