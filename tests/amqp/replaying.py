"""Plays the client's half of a recorded conversation against the broker, and keeps what the server answers.

What the old server chose is replaced in the client's bytes by what the new one chose: transaction ids, lock tokens,
sequence numbers, delivery-ids. The client's next bytes wait until the server has said as much as the old one had; if
that takes time, the clock is moved. Everything runs in memory.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from emubus.broker.broker import Broker
from emubus.broker.clock import Clock
from emubus.codec.decode import decode
from emubus.codec.encode import encode
from emubus.codec.types import Array, Described, Uint

from .dotnet import Channels, DotnetPeer
from .fakes import FakeBroker
from .wire import ATTACH, DETACH, DISPOSITION, FLOW, TRANSFER, Frame, Wire, frame, read_frames

RECORDINGS = Path(__file__).parent / "recordings"
DECLARED = 0x33
TURNS = 12
STEP_MS = 500
STEPS_MAX = 140


@dataclass(frozen=True)
class Line:
    """One read of the proxy."""

    connection: int
    of_client: bool
    data: bytes


def lines_of(name: str) -> list[Line]:
    """The lines of a recording."""
    rows = [json.loads(line) for line in (RECORDINGS / f"{name}.jsonl").read_text().splitlines()]
    return [Line(row.get("conn", 1), row["from"] == "client", bytes.fromhex(row["hex"])) for row in rows]


def raw_frames(data: bytes) -> tuple[list[bytes], bytes]:
    """Whole frames and protocol headers, and what is left over."""
    found: list[bytes] = []
    while len(data) >= 8:
        size = 8 if data.startswith(b"AMQP") else int.from_bytes(data[:4], "big")
        if len(data) < size:
            break
        found.append(data[:size])
        data = data[size:]
    return found, data


def begun_at(lines: Iterable[Line]) -> int:
    """The first instant that the old server wrote (Unix ms)."""
    for each in lines:
        for answer in read_frames(each.data)[0] if not each.of_client else ():
            for _, value in leaves(list(values_of(answer.payload))):
                if value.__class__.__name__ == "Timestamp":
                    return int(cast("int", value))
    return 1_795_330_200_000


def values_of(payload: bytes) -> Iterator[object]:
    """The sections of a message."""
    position = 0
    while position < len(payload):
        value, position = decode(payload, position)
        yield value


def leaves(value: object, path: tuple[object, ...] = ()) -> Iterator[tuple[tuple[object, ...], object]]:
    """The values within a value, each with the keys and positions that lead to it."""
    if isinstance(value, Described):
        yield from leaves(value.value, (*path, value.descriptor))
    elif isinstance(value, dict):
        for key, entry in value.items():
            yield from leaves(entry, (*path, key))
    elif isinstance(value, list | Array):
        for index, entry in enumerate(value.values if isinstance(value, Array) else value):
            yield from leaves(entry, (*path, index))
    else:
        yield path, value


def keys_of(answer: Frame) -> list[Hashable]:
    """What of a server's frame the client waits for; nothing of flows, but for the answer to a drain."""
    where = (answer.code, answer.channel)
    match answer.code:
        case 0:
            return []
        case code if code == FLOW:
            return [(*where, answer.get(4))] if answer.get(8) else []
        case code if code == DISPOSITION:
            last = answer.get(1) if answer.get(2) is None else answer.get(2)
            return [(*where, answer.get(0), number) for number in range(answer.get(1), last + 1)]
        case code if code == ATTACH:
            return [(*where, answer.get(0), answer.get(2))]
        case code if code in (DETACH, TRANSFER):
            return [(*where, answer.get(0))]
    return [where]


@dataclass
class Conversation:
    """One connection: what the old server said, what the new one says, and what stands for what."""

    wire: Wire
    peer: DotnetPeer = field(default_factory=DotnetPeer)
    recorded: list[Frame] = field(default_factory=list)
    answered: list[Frame] = field(default_factory=list)
    rest: dict[bool, bytes] = field(default_factory=lambda: {True: b"", False: b""})
    _channels: tuple[Channels, Channels] = field(default_factory=lambda: (Channels(), Channels()))
    delivery_ids: dict[tuple[int, int], int] = field(default_factory=dict)
    _learned: Counter[Hashable] = field(default_factory=Counter)

    def lacking(self) -> Counter[Hashable]:
        """What the old server had said by now and the new one has not."""
        wanted = Counter(key for each in self.recorded for key in keys_of(self._renumbered(each)))
        return wanted - Counter(key for each in self.answered for key in keys_of(each))

    def _renumbered(self, answer: Frame) -> Frame:
        """A disposition of the old server with the delivery-ids of the new one."""
        if answer.code != DISPOSITION or answer.get(0) is not False:
            return answer
        fields = list(answer.fields)
        for index in (1, 2):
            if len(fields) > index and fields[index] is not None:
                fields[index] = self.delivery_ids.get((answer.channel, fields[index]), fields[index])
        return Frame(answer.channel, answer.code, fields)

    def read(self) -> int:
        """Take what the server has written; how many frames it were."""
        frames = self.wire.read()
        for each in frames:
            self.peer.heard(each)
        self.answered += map(self._channels[1].of_client, frames)
        return len(frames)

    def record(self, frames: Iterable[Frame]) -> None:
        """Take what the old server wrote."""
        self.recorded += map(self._channels[0].of_client, frames)

    def pairs(self) -> list[tuple[Frame, Frame]]:
        """Deliveries and declarations of the old server and the new one that are new and stand for each other."""
        both: list[dict[Hashable, list[Frame]]] = [defaultdict(list), defaultdict(list)]
        for side, frames in zip(both, (self.recorded, self.answered), strict=True):
            for each in frames:
                if each.code == TRANSFER:
                    side[TRANSFER, each.channel, each.get(0)].append(each)
                elif (
                    each.code == DISPOSITION
                    and isinstance(each.get(4), Described)
                    and each.get(4).descriptor == DECLARED
                ):
                    side[DISPOSITION, each.channel].append(each)
        found: list[tuple[Frame, Frame]] = []
        for key, olds in both[0].items():
            matched = list(zip(olds, both[1][key], strict=False))
            found += matched[self._learned[key] :]
            self._learned[key] = len(matched)
        return found


class Replay:
    """A recording, played against `broker`. `insert` gives frames to be written before a frame of the client."""

    def __init__(
        self, name: str, broker: Broker, clock: Clock, insert: Callable[[Frame], list[bytes]] = lambda _: []
    ) -> None:
        self.lines = lines_of(name)
        self.conversations: dict[int, Conversation] = {}
        self.broker = broker
        self._clock = clock
        self._insert = insert
        self._ids: dict[bytes, bytes] = {}
        self._numbers: dict[int, int] = {}

    async def play(self) -> None:
        """Play all of it; AssertionError if the server does not say what the client waits for."""
        for line in self.lines:
            if line.connection not in self.conversations:
                self.conversations[line.connection] = Conversation(self._connect())
            conversation = self.conversations[line.connection]
            data = conversation.rest[line.of_client] + line.data
            frames, conversation.rest[line.of_client] = raw_frames(data)
            if not line.of_client:
                conversation.record(read_frames(b"".join(frames))[0])
                continue
            await self._catch_up()
            for each in frames:
                await self._write(conversation, each)
        await self._catch_up()
        for done in self.conversations.values():
            done.peer.check_answered()

    def close(self) -> None:
        """The sockets are gone."""
        for each in self.conversations.values():
            each.wire.lose()

    def _connect(self) -> Wire:
        return Wire(broker=cast("FakeBroker", self.broker), clock=self._clock)

    async def _write(self, conversation: Conversation, raw: bytes) -> None:
        parsed = read_frames(raw)[0]
        if parsed and parsed[0].code < 0x40:
            for extra in self._insert(parsed[0]):
                conversation.peer.said(read_frames(extra)[0][0])
                conversation.wire.write(extra)
                await self._turn()
        translated = self._translated(conversation, raw)
        for each in read_frames(translated)[0]:
            conversation.peer.said(each)
        conversation.wire.write(translated)

    async def _turn(self) -> None:
        while True:
            for each in self.conversations.values():
                await each.wire.turns(TURNS)
            if not sum([each.read() for each in self.conversations.values()]):
                break
        for each in self.conversations.values():
            for old, new in each.pairs():
                self._learn(each, old, new)

    async def _catch_up(self) -> None:
        for _ in range(STEPS_MAX):
            await self._turn()
            if not any(each.lacking() for each in self.conversations.values()):
                return
            self._clock.advance(STEP_MS)
        lacking = {number: each.lacking() for number, each in self.conversations.items()}
        raise AssertionError(f"the server has not said {lacking}")

    # ---- what stands for what

    def _learn(self, conversation: Conversation, old: Frame, new: Frame) -> None:
        if old.code == DISPOSITION:
            self._ids[old.get(4).value[0]] = new.get(4).value[0]
            return
        conversation.delivery_ids[old.channel, old.get(1)] = new.get(1)
        if len(old.get(2)) == len(new.get(2)) == 16:
            self._ids[uuid.UUID(bytes_le=old.get(2)).bytes] = uuid.UUID(bytes_le=new.get(2)).bytes
        # By the descriptors of the sections, not by their positions: the new server may write more sections.
        news = dict(found for section in values_of(new.payload) for found in leaves(section))
        for path, value in (found for section in values_of(old.payload) for found in leaves(section)):
            other = news.get(path)
            if isinstance(value, uuid.UUID) and isinstance(other, uuid.UUID):
                self._ids[value.bytes] = other.bytes
            elif {"sequence-numbers", "x-opt-sequence-number"} & set(path) and isinstance(value, int):
                assert isinstance(other, int)
                self._numbers[value] = other

    def _translated(self, conversation: Conversation, raw: bytes) -> bytes:
        """The client's bytes with what the new server chose; untouched if it chose what the old one did."""
        for old, new in self._ids.items():
            raw = raw.replace(old, new)
        parsed = read_frames(raw)[0]
        if not parsed or parsed[0].code not in (DISPOSITION, TRANSFER):
            return raw
        each = parsed[0]
        if each.code == DISPOSITION:
            ids = [each.get(1), each.get(2)]
            news = [
                None if number is None else conversation.delivery_ids.get((each.channel, number), number)
                for number in ids
            ]
            if news == ids or each.get(0) is not True:
                return raw
            fields = [True, *[None if number is None else Uint(number) for number in news], *each.fields[3:]]
            return frame(each.channel, DISPOSITION, fields)
        payload = b"".join(map(encode, self._renumbered(list(values_of(each.payload)))))
        if payload == b"".join(map(encode, values_of(each.payload))):
            return raw
        return frame(each.channel, TRANSFER, each.fields, payload)

    def _renumbered(self, sections: list[object]) -> list[object]:
        """The sections of a request with the sequence numbers of the new server."""
        for each in sections:
            body: Any = each.value if isinstance(each, Described) else None
            named = body.get("sequence-numbers") if isinstance(body, dict) else None
            if isinstance(named, Array):
                values = tuple(
                    type(number)(self._numbers.get(number, number)) for number in cast("tuple[int, ...]", named.values)
                )
                body["sequence-numbers"] = Array(named.type_code, values)
        return sections
