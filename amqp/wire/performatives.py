"""The outer shape of performatives [AMQP 2.7]: where their fields are, and what is wrong with those that Proton takes.

Does not know links, deliveries and what most fields mean.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from struct import error as StructError  # noqa: N812  (the standard name is a bare `error`)
from typing import Final

from ...broker.errors import BrokerError, Condition
from ...codec.decode import decode
from ...codec.errors import DecodeError
from ...codec.frames import ATTACH, BEGIN, CLOSE, DETACH, DISPOSITION, END, FLOW, OPEN, TRANSFER
from ...codec.skip import skip
from .loops import BATCH_FIELD

# Performatives and their number of fields [AMQP 2.7, 2.8.14]; position of a field that is (or holds) an error, if any.
FIELDS: Final = {
    OPEN: (10, -1),
    BEGIN: (8, -1),
    ATTACH: (14, -1),
    FLOW: (11, -1),
    TRANSFER: (11, -1),
    DISPOSITION: (6, 4),
    DETACH: (3, 2),
    END: (1, 0),
    CLOSE: (1, 0),
}
_MANDATORY: Final = {
    OPEN: {0: "container-id"},
    BEGIN: {1: "next-outgoing-id", 2: "incoming-window", 3: "outgoing-window"},
    FLOW: {1: "incoming-window", 2: "next-outgoing-id", 3: "outgoing-window"},
    DISPOSITION: {0: "role", 1: "first"},
}
"""Mandatory fields that Proton does not ask for [AMQP 2.7]; `handles` asks for those of an attach."""
_NAMES: Final = {OPEN: "open", BEGIN: "begin", FLOW: "flow", DISPOSITION: "disposition"}
_FRAME_SIZE_OF_OPEN, FRAME_BYTES_MIN = 2, 512
_DELIVERY_COUNT: Final = 5
size_at: Callable[..., tuple[int]] = Struct(">I").unpack_from


def performative(data: bytes, pos: int, stop: int) -> tuple[int, int]:
    """The code of the performative in a frame and where its list begins; -1 if it isn't one Proton would know."""
    at = pos + 4 * data[pos + 4]
    if data[at : at + 2] == b"\x00\x53" and at + 3 <= stop:
        return data[at + 2], at + 3
    if data[at : at + 2] == b"\x00\x80" and at + 10 <= stop:
        return int.from_bytes(data[at + 2 : at + 10], "big"), at + 10
    return -1, stop


def open_list(data: bytes, at: int = 0) -> tuple[int, int, int]:
    """Item count, offset of the first item and end of the list at `at`; IndexError if it is no list or cut off."""
    constructor = data[at]
    if constructor == 0x45:
        return 0, at + 1, at + 1
    if constructor == 0xC0:
        return data[at + 2], at + 3, at + 2 + data[at + 1]
    if constructor == 0xD0:
        return size_at(data, at + 5)[0], at + 9, at + 5 + size_at(data, at + 1)[0]
    raise IndexError


def fault(code: int, channel: bytes, fields: Sequence[object]) -> BrokerError | None:
    """What is wrong with the fields of a performative that Proton would take."""
    for position, name in _MANDATORY.get(code, {}).items():
        if len(fields) <= position or fields[position] is None:
            text = f"The field '{name}' of {_NAMES[code]} is missing: it is mandatory."
            return BrokerError(Condition.DECODE_ERROR, text)
    if code != OPEN:
        return None
    if any(channel):
        text = f"An open must be sent on channel 0, not on {int.from_bytes(channel, 'big')}."
        return BrokerError(Condition.FRAMING_ERROR, text)
    size = fields[_FRAME_SIZE_OF_OPEN] if len(fields) > _FRAME_SIZE_OF_OPEN else None
    if isinstance(size, int) and size < FRAME_BYTES_MIN:
        text = f"The field 'max-frame-size' of open is {int(size)}; it must be at least {FRAME_BYTES_MIN}."
        return BrokerError(Condition.INVALID_FIELD, text)
    return None


def fault_in(frame: bytes) -> BrokerError:
    """Why a frame is malformed."""
    code, at = performative(frame, 0, len(frame))
    try:
        fields = decode(frame, at)[0]
    except DecodeError:
        fields = None
    found = fault(code, frame[6:8], fields) if isinstance(fields, list) else None
    return found or BrokerError(Condition.DECODE_ERROR, "A performative is malformed.")


def is_batch(data: bytes, at: int, stop: int) -> bool:
    if data.find(BATCH_FIELD, at, stop) < 0:
        return False
    try:
        frame = data[at:stop]
        count, pos, _ = open_list(frame)
        if count < 4:
            return False
        pos = skip(frame, pos, 3)
        return frame[pos : pos + 5] == BATCH_FIELD
    except (DecodeError, IndexError, StructError):
        return False  # Proton will say what is wrong


def delivery_count_of(flow: bytes) -> int:
    """The delivery-count in a flow frame; 0 where it has none."""
    _, at = performative(flow, 0, len(flow))
    fields = decode(flow, at)[0]
    count = fields[_DELIVERY_COUNT] if isinstance(fields, list) and len(fields) > _DELIVERY_COUNT else None
    return int(count) if isinstance(count, int) else 0
