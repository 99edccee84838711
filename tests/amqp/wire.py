"""The client's side of the joint: one that writes performatives by hand, field by field.

It sees the server's frames as they are, so tests can count fields and compare whole frames.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any

from emubus.amqp.connection import Connection
from emubus.amqp.limits import Limits
from emubus.amqp.server_state import ServerState
from emubus.amqp.wire.engine import Engine
from emubus.broker.access import Access
from emubus.broker.clock import Clock
from emubus.broker.errors import BrokerError
from emubus.broker.ledger import Ledger, Newcomer
from emubus.codec.decode import decode
from emubus.codec.encode import encode, encode_described, encode_list
from emubus.codec.frames import AMQP_HEADER, SASL_HEADER
from emubus.codec.types import Described, Symbol, Ubyte, Uint, Ulong

from .fakes import FakeBroker, FakeTransport, as_broker

OPEN, BEGIN, ATTACH, FLOW, TRANSFER, DISPOSITION, DETACH, END, CLOSE = range(0x10, 0x19)
SOURCE, TARGET, COORDINATOR, ERROR = 0x28, 0x29, 0x30, 0x1D
ACCEPTED, REJECTED, RELEASED, MODIFIED = Ulong(0x24), Ulong(0x25), Ulong(0x26), Ulong(0x27)
BATCH = 0x80013700
UNPACED_US = 3_600_000_000
TURNS_MAX = 200  # until frames are there

accepted = Described(ACCEPTED, [])
released = Described(RELEASED, [])


def modified(failed: bool | None = None, undeliverable: bool | None = None, changes: object = None) -> Described:
    return Described(MODIFIED, [failed, undeliverable, changes])


def rejected(condition: str | None = None, description: str | None = None, info: object = None) -> Described:
    if condition is None:
        return Described(REJECTED, [])
    return Described(REJECTED, [Described(Ulong(ERROR), [Symbol(condition), description, info])])


def frame(channel: int, code: int, fields: list[Any], payload: bytes = b"", kind: int = 0) -> bytes:
    body = encode_described(Ulong(code), encode_list(fields)) + payload
    return (8 + len(body)).to_bytes(4, "big") + bytes((2, kind)) + channel.to_bytes(2, "big") + body


def sasl_init(mechanism: str = "ANONYMOUS", response: bytes | None = b"") -> bytes:
    return frame(0, 0x41, [Symbol(mechanism), response, "localhost"], kind=1)


@dataclass
class Frame:
    """A frame of the server; missing fields are not filled in."""

    channel: int
    code: int
    fields: list[Any]
    payload: bytes = b""

    def get(self, index: int) -> Any:
        return self.fields[index] if index < len(self.fields) else None


def read_frames(data: bytes) -> tuple[list[Frame], bytes]:
    """Whole frames and what is left over; empty frames have code 0."""
    frames: list[Frame] = []
    while len(data) >= 8:
        if data.startswith(b"AMQP"):
            data = data[8:]
            continue
        size = int.from_bytes(data[:4], "big")
        if len(data) < size:
            break
        body, channel = data[4 * data[4] : size], int.from_bytes(data[6:8], "big")
        if body:
            value, end = decode(body)
            assert isinstance(value, Described)
            assert isinstance(value.value, list)
            assert isinstance(value.descriptor, int)
            frames.append(Frame(channel, value.descriptor, value.value, body[end:]))
        else:
            frames.append(Frame(channel, 0, []))
        data = data[size:]
    return frames, data


@dataclass
class Wire:
    """A server connection and a client in one hand. `broker` is fake, the clock stands still."""

    broker: FakeBroker = field(default_factory=FakeBroker)
    access: Access = field(default_factory=lambda: Access(verify=False))
    limits: Limits = field(default_factory=Limits)
    clock: Clock = field(default_factory=lambda: Clock(start_at=1_700_000_000_000, manual=True))
    ledger: Ledger | None = None
    jms_refusal: BrokerError | None = None
    """Why clients of JMS 2.0 may not connect."""
    is_paced: bool = False
    """Whether input is handled in slices of time: otherwise whatever is written is handled at once."""
    answers_at_once: bool = False
    """Whether the broker's answers come before `write` returns, as with one client; otherwise they take a turn."""

    def __post_init__(self) -> None:
        limits = (
            self.limits
            if self.is_paced
            else replace(self.limits, slice_us=UNPACED_US, turn_us=UNPACED_US, strangers_turn_us=UNPACED_US)
        )
        limits = replace(limits, alone_us=0 if self.answers_at_once else UNPACED_US)
        self.state = ServerState(as_broker(self.broker), self.access, self.clock, limits, jms_refusal=self.jms_refusal)
        self.connections = self.state.connections
        self.ledger = self.ledger or Ledger(self.clock)
        self.server = self.connection(1)
        self.socket = FakeTransport()
        self.server.connection_made(self.socket)
        self._rest = b""
        self._delivery_ids: dict[int, int] = {}

    def connection(self, number: int) -> Connection:
        """A connection to the server, without a socket yet."""
        assert self.ledger is not None
        return Connection(self.state, number, self.ledger.open(Newcomer(lambda: None), "127.0.0.1", number))

    @property
    def engine(self) -> Engine:
        """The server's Proton, once the AMQP layer is there."""
        frames = self.server._frames
        assert frames is not None
        return frames.engine

    # ---- bytes

    def write(self, data: bytes, chunk: int = 0) -> None:
        """Send bytes, in chunks if that is asked for."""
        for start in range(0, len(data), chunk or max(1, len(data))):
            self.server.data_received(data[start : start + (chunk or len(data))])

    def send(self, channel: int, code: int, fields: list[Any], payload: bytes = b"") -> None:
        self.write(frame(channel, code, fields, payload))

    def read(self) -> list[Frame]:
        """The frames that the server has written since the last time."""
        frames, self._rest = read_frames(self._rest + self.socket.take())
        return frames

    async def turn(self, count: int = 2) -> list[Frame]:
        """Let the event loop turn, then read."""
        await self.turns(count)
        return self.read()

    async def frames(self, *codes: int) -> list[Frame]:
        """The next frames, whose codes must be these."""
        got: list[Frame] = []
        for _ in range(TURNS_MAX):
            got += await self.turn()
            if len(got) >= len(codes):
                break
        assert [each.code for each in got] == list(codes)
        return got

    async def turns(self, count: int) -> None:
        """Let the event loop turn."""
        for _ in range(count):
            turned = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_soon(turned.set_result, None)
            await turned

    def lose(self) -> None:
        """The socket is gone."""
        self.server.connection_lost(None)

    # ---- the usual beginnings

    def open(
        self,
        properties: dict[str, Any] | None = None,
        *,
        frame_size: int = 65536,
        idle_ms: int = 0,
        container: str = "client",
    ) -> Frame:
        """SASL, open and begin on channel 0; returns the server's open."""
        self.write(SASL_HEADER)
        self.write(sasl_init())
        self.write(AMQP_HEADER)
        symbols = {Symbol(key): value for key, value in (properties or {}).items()}
        idle = Uint(idle_ms) if idle_ms else None
        self.send(0, OPEN, [container, "localhost", Uint(frame_size), None, idle, None, None, None, None, symbols])
        frames, self._rest = read_frames(self.socket.take())
        self.begin(0)
        return next(each for each in frames if each.code == OPEN)

    def begin(self, channel: int, window: int = 5000) -> Frame:
        self.send(channel, BEGIN, [None, Uint(0), Uint(window), Uint(window), Uint(0xFFFFFFFF)])
        self._delivery_ids[channel] = 0
        return self.read()[-1]

    def attach_sender(self, address: str = "q", handle: int = 0, channel: int = 0, **more: Any) -> list[Frame]:
        """Attach for sending; returns the server's frames."""
        target = more.get("target", Described(Ulong(TARGET), [address]))
        fields = [
            more.get("name", _name("s", handle, channel)), Uint(handle), False, more.get("snd"), more.get("rcv"),
            Described(Ulong(SOURCE), ["client"]), target, None, None, Uint(0), None, None, None, more.get("properties"),
        ]  # fmt: skip
        self.send(channel, ATTACH, fields)
        return self.read()

    def attach_receiver(self, address: str = "q", handle: int = 0, channel: int = 0, **more: Any) -> list[Frame]:
        """Attach for receiving; `credit` is given at once."""
        source = Described(Ulong(SOURCE), [address, *([None] * 6), more.get("filter")])
        fields = [
            more.get("name", _name("r", handle, channel)), Uint(handle), True, more.get("snd"),
            more.get("rcv", Ubyte(1)), source, Described(Ulong(TARGET), [more.get("target", "client")]), None, None,
            None, more.get("size"), None, None, more.get("properties"),
        ]  # fmt: skip
        self.send(channel, ATTACH, fields)
        if more.get("credit"):
            self.flow(handle, more["credit"], channel=channel)
        return self.read()

    def flow(
        self,
        handle: int,
        credit: int,
        *,
        count: int = 0,
        drain: bool = False,
        echo: bool = False,
        channel: int = 0,
        window: int = 5000,
    ) -> None:
        fields = [
            Uint(0), Uint(window), Uint(0), Uint(5000), Uint(handle), Uint(count), Uint(credit), None, drain, echo,
        ]  # fmt: skip
        self.send(channel, FLOW, fields)

    def transfer(self, payload: bytes, handle: int = 0, channel: int = 0, **more: Any) -> bytes:
        """One transfer frame (not written yet)."""
        number = self._delivery_ids[channel]
        if not more.get("more", False):
            self._delivery_ids[channel] += 1
        fields = [
            Uint(handle), Uint(number), number.to_bytes(4, "big"), Uint(more.get("format", 0)),
            more.get("settled", False), more.get("more", False), None, more.get("state"), None, more.get("aborted"),
        ]  # fmt: skip
        return frame(channel, TRANSFER, fields, payload)

    def dispose(self, state: object, first: int, last: int | None = None, *, settled: bool = False) -> None:
        """A receiver's disposition."""
        last_id = None if last is None else Uint(last)
        self.send(0, DISPOSITION, [True, Uint(first), last_id, settled, state, None])


def _name(kind: str, handle: int, channel: int) -> str:
    return f"{kind}{handle}" if not channel else f"{kind}{handle} on {channel}"


def value(encoded: Any) -> Any:
    """Encode and decode: for comparing with what came over the wire."""
    return decode(encode(encoded))[0]
