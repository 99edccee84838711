"""A server with entities of each kind, and a client of each face: what each of them gets when it is refused."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import aiohttp

from emubus.amqp.limits import Limits
from emubus.broker.access import Access
from emubus.broker.clock import Clock
from emubus.broker.keys import Right, SharedKey
from emubus.broker.model.descriptions import AuthorizationRule
from emubus.broker.tokens import Issuer
from emubus.codec.encode import encode, encode_described
from emubus.codec.frames import AMQP_HEADER, SASL_HEADER
from emubus.codec.types import Described, Symbol, Timestamp, Uint, Ulong
from emubus.testing import QueueDescription, SubscriptionDescription, TopicDescription

from ..amqp.asking import Asker, sections
from ..amqp.transacting import command, coordinate
from ..amqp.wire import (
    BATCH,
    BEGIN,
    CLOSE,
    DETACH,
    DISPOSITION,
    END,
    OPEN,
    TRANSFER,
    Frame,
    Wire,
    frame,
    read_frames,
    sasl_init,
)
from ..http.administering import Raw, running
from ..tracking import untracked

if TYPE_CHECKING:
    from emubus.server import Server

    from ..amqp.fakes import FakeBroker

START = 1_800_000_000_123
LOCK_MS = 60_000
TURNS_MAX = 300
WAIT_S = 30
KEY = SharedKey("RootManageSharedAccessKey", "SAS_KEY_VALUE")
ENTITIES = (
    QueueDescription("q"),
    QueueDescription("other"),
    QueueDescription("parts", enable_partitioning=True),
    QueueDescription("once", enable_partitioning=True, requires_duplicate_detection=True),
    QueueDescription("s", requires_session=True),
    QueueDescription("forwarding", forward_to="other"),
    QueueDescription("dead", forward_dead_letters_to="other"),
    TopicDescription("t", authorization_rules=(AuthorizationRule("l", (Right.LISTEN,), "p"),)),
    SubscriptionDescription("t", "one"),
)


class Face(StrEnum):
    """Over what a client talks, and where it gets a refusal."""

    LINK = "AMQP"
    BATCH = "AMQP batch"
    NODE = "$management"
    CLAIMS = "$cbs"
    COORDINATOR = "coordinator"
    REST = "REST"
    ATOM = "administration"


@dataclass(frozen=True)
class Told:
    """What a client gets: condition (AMQP), status (HTTP and nodes), and the text without its tail."""

    condition: str | None
    status: int | None
    text: str


class World:
    """The server, and its clients."""

    def __init__(self, server: Server, clock: Clock, http: Raw) -> None:
        self.server = server
        self.clock = clock
        self.http = http
        self.broker = server.broker
        self.wires: list[Wire] = []
        self._claiming: list[Wire] = []
        self._sockets: list[asyncio.StreamWriter] = []
        self.wire = self.connect()

    def connect(
        self, *, verify: bool = False, limits: Limits | None = None, issuer: Issuer | None = None, **opening: Any
    ) -> Wire:
        """A connection of its own."""
        access = Access((KEY,), verify=verify, issuer=issuer)
        wire = Wire(broker=cast("FakeBroker", self.broker), clock=self.clock, access=access, limits=limits or Limits())
        wire.open(**opening)
        self.wires.append(wire)
        return wire

    async def frame_of(self, code: int, wire: Wire | None = None, got: list[Frame] | None = None) -> Frame:
        """The next frame of a kind; others before it are passed over."""
        frames = list(got or ())
        for _ in range(TURNS_MAX):
            for each in frames:
                if each.code == code:
                    return each
            frames = await (wire or self.wire).turn()
        raise AssertionError(f"no frame 0x{code:02x} came")

    # ---- AMQP

    async def detached(self, got: list[Frame] | None = None, wire: Wire | None = None) -> Told:
        """The next detach."""
        return _of_error((await self.frame_of(DETACH, wire, got)).get(2))

    async def ended(self, wire: Wire, got: list[Frame]) -> Told:
        """The end of an AMQP session."""
        return _of_error((await self.frame_of(END, wire, got)).get(0))

    async def rejected(self) -> Told:
        """The next disposition, which rejects a delivery."""
        answer = await self.frame_of(DISPOSITION)
        state = answer.get(4)
        assert state.descriptor == 0x25, state
        return _of_error(state.value[0])

    async def sender_refused(self, address: str, wire: Wire | None = None, **more: Any) -> Told:
        """An attach for sending."""
        return await self.detached((wire or self.wire).attach_sender(address, 50, **more), wire)

    async def receiver_refused(self, address: str, wire: Wire | None = None, **more: Any) -> Told:
        """An attach for receiving."""
        return await self.detached((wire or self.wire).attach_receiver(address, 51, **more), wire)

    async def send(self, address: str, data: bytes, *, state: object = None, batch: bool = False) -> None:
        """Send a delivery; what comes of it is not read."""
        self.wire.attach_sender(address, 60)
        self.wire.write(self.wire.transfer(data, handle=60, state=state, format=BATCH if batch else 0))

    async def send_refused(self, address: str, *messages: bytes, batch: bool = False, state: object = None) -> Told:
        """Send a message, or a batch of messages, that is rejected."""
        data = b"".join(encode_described(Ulong(0x75), encode(each)) for each in messages) if batch else messages[0]
        await self.send(address, data, state=state, batch=batch)
        return await self.rejected()

    async def put(self, address: str, *messages: bytes) -> None:
        """Send messages that are taken."""
        wire = self.connect()
        wire.attach_sender(address)
        for each in messages:
            wire.write(wire.transfer(each))
            assert (await self.frame_of(DISPOSITION, wire)).get(4).descriptor == 0x24

    async def receive(self, address: str, **more: Any) -> Frame:
        """A message, over the link 40."""
        return await self.frame_of(TRANSFER, got=self.wire.attach_receiver(address, 40, credit=1, **more))

    async def asked(self, entity: str, operation: str, body: object, state: object = None) -> Told:
        """A request to `entity/$management`."""
        asker = Asker(self.wire, entity)
        data = await asker(operation, body, state)
        assert data.status >= 400, data
        return Told(data.condition, data.status, untracked(data.description))

    async def claimed(self, wire: Wire, token: object, audience: str = "q", **more: object) -> Told:
        """A token that is put; its connection verifies tokens."""
        if wire not in self._claiming:
            self._claiming.append(wire)
            wire.attach_receiver("$cbs", 30, credit=100)
            wire.attach_sender("$cbs", 31)
        properties = {"operation": "put-token", "type": "servicebus.windows.net:sastoken", **more}
        data = (
            encode_described(Ulong(0x73), encode(["id"]))
            + encode_described(Ulong(0x74), encode({**properties, "name": f"sb://host/{audience}"}))
            + encode_described(Ulong(0x77), encode(token))
        )
        wire.write(wire.transfer(data, handle=31))
        said = sections((await self.frame_of(TRANSFER, wire)).payload)[0x74]
        return Told(None, said["status-code"], _bare(said["status-description"]))

    async def declared(self, wire: Wire | None = None) -> bytes:
        """A new transaction."""
        wire = wire or self.wire
        coordinate(wire)
        wire.write(wire.transfer(command(Ulong(0x31), [None]), handle=9))
        found: bytes = (await self.frame_of(DISPOSITION, wire)).get(4).value[0]
        return found

    async def discharged(self, transaction: bytes) -> Told:
        """A discharge that is rejected."""
        self.wire.write(self.wire.transfer(command(Ulong(0x32), [transaction, False]), handle=9))
        return await self.rejected()

    async def dial(self, properties: dict[Symbol, object] | None = None) -> list[Frame]:
        """Open a connection over a socket; the frames up to the answer to `open`, and the close behind it, if any."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.server.amqp_port)
        self._sockets.append(writer)
        fields = ["client", None, Uint(65536), *([None] * 6), properties or {}]
        writer.write(SASL_HEADER + sasl_init() + AMQP_HEADER + frame(0, OPEN, fields) + frame(0, BEGIN, _BEGIN))
        data = b""
        while not {CLOSE, BEGIN} & {each.code for each in read_frames(data)[0]}:
            more = await asyncio.wait_for(reader.read(4096), WAIT_S)
            assert more
            data += more
        return read_frames(data)[0]

    def hang_up(self) -> None:
        """Close all sockets."""
        for each in self._sockets:
            each.close()

    # ---- HTTP

    async def rest(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Told:
        """A request of REST messaging."""
        return _of_http(await self.http(method, path, body, version=None, **headers))

    async def atom(self, method: str, path: str, body: str | None = None, **headers: str) -> Told:
        """A request of administration."""
        return _of_administration(await self.http(method, path, body, **headers))

    async def create(self, path: str, description: str, *, update: bool = False) -> Told:
        """A description that is refused."""
        return _of_administration(await self.http.put(path, description, update=update))


_BEGIN = [None, Uint(0), Uint(1), Uint(1)]


def of_close(frames: list[Frame]) -> Told:
    """Why a connection was closed."""
    return _of_error(next(each for each in frames if each.code == CLOSE).get(0))


def _of_error(error: Any) -> Told:
    condition, text, *_ = error.value
    return Told(str(condition), None, _bare(text))


def _of_http(reply: Any) -> Told:
    assert reply.status >= 400, reply
    return Told(None, reply.status, _bare(reply.detail or reply.text))


def _of_administration(reply: Any) -> Told:
    """Without what administration writes around a text: the sub-code, its title, and the full stop behind a blank."""
    told = _of_http(reply)
    text = re.sub(r"^SubCode=\d{5}\. (?:Not Found\. |Conflict\. )?", "", told.text)
    return Told(None, told.status, re.sub(r"(?<= )\.$", "", text))


def _bare(text: str) -> str:
    """A text without its tail, if it has one."""
    return untracked(text) if "TrackingId:" in text else text


def message(
    body: str = "m",
    *,
    id: str | None = None,  # noqa: A002 - the name of the field
    session: str | None = None,
    key: str | None = None,
    at: int | None = None,
    properties: dict[str, object] | None = None,
) -> bytes:
    """An encoded message."""
    notes: dict[Symbol, object] = {}
    if key is not None:
        notes[Symbol("x-opt-partition-key")] = key
    if at is not None:
        notes[Symbol("x-opt-scheduled-enqueue-time")] = Timestamp(at)
    return b"".join(
        (
            encode_described(Ulong(0x72), encode(notes)),
            encode_described(Ulong(0x73), encode([id, *([None] * 9), session])),
            encode_described(Ulong(0x74), encode(properties or {})),
            encode_described(Ulong(0x77), encode(body)),
        )
    )


def session_filter(session_id: str | None) -> dict[Symbol, object]:
    """What a receiver of sessions asks for."""
    return {Symbol("com.microsoft:session-filter"): session_id}


def within(transaction: bytes, outcome: object = None) -> Described:
    """The state of work in a transaction."""
    return Described(Ulong(0x34), [transaction, outcome])


@asynccontextmanager
async def world(folder: Path, profile: str = "standard", **options: str) -> AsyncIterator[World]:
    """A server in memory whose clock stands still unless it is moved; with `ENTITIES` on the profile standard."""
    clock = Clock(start_at=START, manual=True)
    async with running(folder, clock, profile=profile, **options) as server, aiohttp.ClientSession() as client:
        for each in ENTITIES if profile == "standard" else ():
            server.broker.administration.create(each)
        found = World(server, clock, Raw(client, server.http_port))
        try:
            yield found
        finally:
            found.hang_up()
            for wire in found.wires:
                wire.lose()
    clock.close()


Provoke = Callable[[World], Any]
