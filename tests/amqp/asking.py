"""A client of a `$management` node: asks, and takes the answers apart with all their AMQP types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from emubus.codec.decode import decode
from emubus.codec.encode import encode, encode_described
from emubus.codec.types import Described, Int, Symbol, Ulong

from .wire import TRANSFER, Frame, Wire

REPLIES, REQUESTS = 21, 20  # handles
FRAME_BYTES = 60_000


def sections(payload: bytes) -> dict[int, Any]:
    found: dict[int, Any] = {}
    position = 0
    while position < len(payload):
        section, position = decode(payload, position)
        assert isinstance(section, Described)
        assert isinstance(section.descriptor, int)
        found[section.descriptor] = section.value
    return found


def request(properties: dict[str, object], body: object, message_id: object = "id-1") -> bytes:
    return b"".join(
        (
            encode_described(Ulong(0x73), encode([message_id])),
            encode_described(Ulong(0x74), encode(properties)),
            encode_described(Ulong(0x77), encode(body)),
        )
    )


@dataclass
class Answer:
    """What came back: the status, the condition (None without one), the body's value."""

    status: int
    condition: str | None
    description: str
    body: Any
    dispositions: list[Frame]


def read_answer(frames: list[Frame]) -> Answer:
    answer = sections(b"".join(each.payload for each in frames if each.code == TRANSFER))
    properties = answer[0x74]
    assert answer[0x70][4] == 0  # the delivery-count
    assert answer[0x73][5] == "id-1"
    assert type(properties["statusCode"]) is Int
    assert type(properties["status-code"]) is Int
    assert type(properties["statusDescription"]) is str
    for name in ("errorCondition", "error-condition"):
        assert type(properties.get(name, Symbol("none"))) is Symbol
    assert properties.get("errorCondition") == properties.get("error-condition")
    return Answer(
        properties["statusCode"],
        properties.get("errorCondition"),
        properties["statusDescription"],
        answer[0x77],
        [each for each in frames if each.code != TRANSFER],
    )


class Asker:
    """A requester and a replier on the node of one entity."""

    def __init__(self, wire: Wire, entity: str = "q") -> None:
        self.wire = wire
        address = f"{entity}/$management"
        self.frames = wire.attach_receiver(address, REPLIES, target=address, credit=100)
        self.frames += wire.attach_sender(address, REQUESTS)

    async def __call__(self, operation: str, body: object, state: object = None, **properties: object) -> Answer:
        name = operation if ":" in operation else f"com.microsoft:{operation}"
        data = request({"operation": name, **properties}, body)
        parts = [data[start : start + FRAME_BYTES] for start in range(0, len(data), FRAME_BYTES)]
        for part in parts:
            more = part is not parts[-1]
            self.wire.write(self.wire.transfer(part, handle=REQUESTS, state=state, more=more))
        frames = await self.wire.turn(8)
        while not frames:  # a large request is read beside the loop
            frames = await self.wire.turn(8)
        return read_answer(frames)
