"""Frames outside Proton: a reader in front of it and a padder behind it.

Knows the frame header and the outer shape of performatives [AMQP 2.3, 2.7]. Does not know links, deliveries and
what any field means, except for the few fields below that Proton doesn't show or doesn't write:

* the message-format of a transfer, the only difference between a batch and a message [wire 4.4];
* `drain` and `echo` of a flow, both of which want an answer [wire 1.4, 5.6];
* trailing nulls, which Proton leaves out and old Python clients can't do without [wire 0, rule 1];
* the product of an `open`, for those two and for delivery-ids that Python's threads mix up (`delivery_ids`);
* names and handles, of which Proton takes some badly (`handles`).

A connection owns one reader and perhaps one padder.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from struct import Struct
from struct import error as StructError  # noqa: N812  (the standard name is a bare `error`)
from typing import Final

from ...broker.errors import BrokerError, Condition
from ...codec.decode import decode
from ...codec.encode import encode_list, list_from_items
from ...codec.errors import DecodeError
from ...codec.frames import (
    AMQP_HEADER,
    ATTACH,
    BEGIN,
    CLOSE,
    DETACH,
    DISPOSITION,
    END,
    FLOW,
    OPEN,
    TRANSFER,
    frame_ends,
    write_frame,
)
from ...codec.skip import skip
from ...codec.types import Described, Symbol, Uint
from .clients import PYTHON_PRODUCT
from .delivery_ids import DeliveryIds
from .handles import Handles, Ruling
from .loops import BATCH_FIELD, passthrough_end

PIECES_MAX: Final = 64
"""Of one `feed`: attaches and the like cost a hundred times what other frames cost."""
FRAMES_MAX: Final = 256
"""Of one `feed`, those between the pieces included: as many as a run of deliveries has."""
"""Of one `feed`, about: attaches and the like cost a hundred times what other frames cost."""
_REJECTED, _ERROR = 0x25, 0x1D
_CLOSE_HEAD: Final = bytes((0, 0x53, CLOSE))
_DISPOSITION_HEAD: Final = bytes((0, 0x53, DISPOSITION))
_MANDATORY: Final = {
    OPEN: {0: "container-id"},
    BEGIN: {1: "next-outgoing-id", 2: "incoming-window", 3: "outgoing-window"},
    FLOW: {1: "incoming-window", 2: "next-outgoing-id", 3: "outgoing-window"},
    DISPOSITION: {0: "role", 1: "first"},
}
"""Mandatory fields that Proton does not ask for [AMQP 2.7]; `handles` asks for those of an attach."""
_NAMES: Final = {OPEN: "open", BEGIN: "begin", FLOW: "flow", DISPOSITION: "disposition"}
_FRAME_SIZE_OF_OPEN, FRAME_BYTES_MIN = 2, 512
_HANDLE_OF_FLOW, _DELIVERY_COUNT, _DRAIN, _ECHO = 4, 5, 8, 9
_size_at: Callable[..., tuple[int]] = Struct(">I").unpack_from


class Kind(IntEnum):
    """What a piece of input needs besides being given to Proton."""

    PLAIN = 0
    BATCH = 1
    """One frame: a transfer whose message-format is the batch format."""
    FLOW_WANTS_REPLY = 2
    """One frame: a flow that wants an answer (drain or echo)."""
    OPEN = 3
    """One frame: the peer's `open`."""
    BEGIN = 4
    """One frame: a `begin`, which Proton must have answered before it takes transfers."""
    MALFORMED = 5
    """One frame: a performative that is no AMQP (`fault_in`). Proton must not see it: it crashes when it echoes broken
    arrays, and takes zero for a field that is missing."""
    IGNORED = 6
    """Never returned: a frame on a channel that the client has ended, or on a handle that it has detached."""
    IGNORED_TRANSFER = 7
    """Never returned: a transfer that Proton does not get, though it expects its delivery-id."""
    REFUSED = 8
    """One frame that Proton must not see: the AMQP session is to be ended with the next of the refusals."""
    STEALS = 9
    """Never returned: an attach with the name of another link."""
    EXPELS = 10
    """One frame, made here: a detach in the client's name for a link that is closed with the next refusal."""
    ATTACH = 12
    """One frame: an `attach`, whose size counts."""
    SUSPENDS = 11
    """One frame: a detach that was changed to `closed`; the answer must have closed=false."""


class FrameReader:
    """Cuts arriving bytes into pieces of whole frames, so that Proton never sees half of one.

    Frames that need attention come as pieces of their own; everything between them stays together. A frame that can't
    be one (too large, too short) goes through as it is, with all that follows: Proton's answer to it is the right one.
    Frames on a channel that the client itself has ended are left out: Python sends detaches and dispositions there,
    and Proton would close the connection for it. What is left out or refused for its handle, `handles` says.
    """

    __slots__ = ("_broken", "_ended", "_frame_bytes_max", "_handles", "_rest", "ids", "left")

    def __init__(self, frame_bytes_max: int) -> None:
        self.ids: DeliveryIds | None = None  # of a client that mixes them up
        self._frame_bytes_max = frame_bytes_max
        self._rest = bytearray()
        self.left = b""
        """The end of the input of the last `feed`, to be fed again: there were too many frames."""
        self._broken = False
        self._ended: set[bytes] = set()
        self._handles = Handles()

    def feed(self, data: bytes, frames_max: int = FRAMES_MAX) -> list[tuple[bytes, Kind]]:
        """The pieces that `data` completes, in order: those of its first `frames_max` frames; sets `left`."""
        self.left = b""
        if self._broken:
            return [(data, Kind.PLAIN)]
        rest = self._rest
        if rest:
            length = len(rest) + len(data)
            if length < 4 or (length < _size_at(rest[:4] + data[:4])[0] <= self._frame_bytes_max):
                rest += data
                return []
            data = b"".join((rest, data))
            rest.clear()
        elif not self._ended and data and self.ids is None:
            handles = self._handles
            end, _ = passthrough_end(data, 0, self._frame_bytes_max, handles.sending, handles.attached, frames_max)
            if end == len(data):  # as nearly always: whole frames that need nothing but Proton
                return [(data, Kind.PLAIN)]
        pieces = self._cut(data, frames_max)
        return pieces if self.ids is None else self._renumbered(self.ids, pieces)

    @property
    def is_between_frames(self) -> bool:
        """Whether the next byte starts a frame."""
        return not (self._rest or self._broken)

    def next_refusal(self) -> BrokerError:
        """Why the piece that has just been reached is refused, or expels a link."""
        return self._handles.refusals.popleft()

    def _renumbered(self, ids: DeliveryIds, pieces: list[tuple[bytes, Kind]]) -> list[tuple[bytes, Kind]]:
        """The pieces with the delivery-ids that Proton expects, without the transfers that are left out."""
        given: list[tuple[bytes, Kind]] = []
        for piece, kind in pieces:
            if kind is Kind.IGNORED_TRANSFER:
                ids.transfer_ignored(piece)
            else:
                given.append((ids.incoming(piece), kind))
        return given

    def _cut(self, data: bytes, frames_max: int) -> list[tuple[bytes, Kind]]:
        size_max, length = self._frame_bytes_max, len(data)
        pieces: list[tuple[bytes, Kind]] = []
        start = pos = 0
        while True:
            if pos < length and (len(pieces) >= PIECES_MAX or frames_max <= 0):
                self.left = data[pos:]
                data = data[:pos]
                break
            if not self._ended:
                pos, count = passthrough_end(
                    data, pos, size_max, self._handles.sending, self._handles.attached, frames_max
                )
                frames_max -= count
            if pos + 4 > length:
                break
            if frames_max <= 0:
                continue
            stop = pos + _size_at(data, pos)[0]
            self._broken = not 8 <= stop - pos <= size_max
            if self._broken or stop > length:
                break
            frames_max -= 1
            kind = self._classify(data, pos, stop) if stop - pos > 10 else Kind.PLAIN
            if kind:
                if pos > start:
                    pieces.append((data[start:pos], Kind.PLAIN))
                pieces += self._pieces(data[pos:stop], kind)
                start = stop
            pos = stop
        if self._broken:
            data += bytes(max(0, 8 - (length - pos)))  # Proton looks at a frame once it has eight bytes
            pos = len(data)
        if pos > start:
            pieces.append((data[start:pos] if start or pos < len(data) else data, Kind.PLAIN))
        if pos < len(data):
            self._rest += data[pos:]
        return pieces

    def _classify(self, data: bytes, pos: int, stop: int) -> Kind:
        """The kind of one frame; records which channels and handles the client opens and closes."""
        code, at = _performative(data, pos, stop)
        channel = data[pos + 6 : pos + 8]
        if code == BEGIN:
            self._ended.discard(channel)
            self._handles.begin(channel)
        elif code not in (OPEN, CLOSE) and (
            channel in self._ended or (code != END and self._handles.is_refused(channel))
        ):
            return Kind.IGNORED
        if code == TRANSFER:
            return self._classify_transfer(data, at, stop, channel)
        if code not in _FIELDS:
            return Kind.PLAIN
        try:
            fields = decode(data[at:stop])[0]
        except DecodeError:
            return Kind.MALFORMED
        if not isinstance(fields, list):
            return Kind.PLAIN  # Proton says what is wrong
        kind = self._classify_fields(data, pos, stop, code, fields)
        return Kind.MALFORMED if kind in _CHECKED and _fault(code, channel, fields) else kind

    def _classify_fields(self, data: bytes, pos: int, stop: int, code: int, fields: list[object]) -> Kind:
        channel = data[pos + 6 : pos + 8]
        if code == END:
            self._ended.add(channel)
            self._handles.end(channel)
        elif code == OPEN and PYTHON_PRODUCT.encode() in data[pos:stop]:
            self.ids = DeliveryIds()
        elif code == ATTACH:
            return _KIND_BY_RULING[self._handles.attach(channel, fields)] or Kind.ATTACH
        elif code == DETACH:
            return _KIND_BY_RULING[self._handles.detach(channel, fields)]
        elif code == FLOW:
            return self._classify_flow(channel, fields)
        return _KIND_BY_CODE.get(code, Kind.PLAIN)

    def _classify_flow(self, channel: bytes, fields: list[object]) -> Kind:
        if len(fields) > _HANDLE_OF_FLOW and fields[_HANDLE_OF_FLOW] is not None:
            kind = _KIND_BY_RULING[self._handles.flow(channel, fields[_HANDLE_OF_FLOW])]
            if kind:
                return kind
        return Kind.FLOW_WANTS_REPLY if True in fields[_DRAIN : _ECHO + 1] else Kind.PLAIN

    def _classify_transfer(self, data: bytes, at: int, stop: int, channel: bytes) -> Kind:
        try:
            count, pos, _ = _open_list(data, at)
            handle = decode(data[:stop], pos)[0] if count else None
        except (DecodeError, IndexError, StructError):
            return Kind.MALFORMED
        kind = _KIND_BY_RULING[self._handles.transfer(channel, handle)]
        if kind in (Kind.IGNORED, Kind.EXPELS):
            self.ids = self.ids or DeliveryIds()
            return Kind.IGNORED_TRANSFER if kind is Kind.IGNORED else Kind.EXPELS
        return kind or (Kind.BATCH if _is_batch(data, at, stop) else Kind.PLAIN)

    def _pieces(self, frame: bytes, kind: Kind) -> list[tuple[bytes, Kind]]:
        """What becomes of a frame that is not plain."""
        if kind is Kind.IGNORED:
            return []
        if kind in (Kind.STEALS, Kind.EXPELS):
            channel, handle = self._handles.victim
            closing = (_closing_detach(channel, handle), Kind.EXPELS)
            return [closing, (frame, Kind.ATTACH)] if kind is Kind.STEALS else [(frame, Kind.IGNORED_TRANSFER), closing]
        if kind is Kind.SUSPENDS:
            # To Proton a link that is detached and attached again is one link with two lives; here it is two links.
            return [(_closing_detach(frame[6:8], self._handles.victim[1]), kind)]
        return [(frame, kind)]


_CHECKED: Final = frozenset((Kind.PLAIN, Kind.OPEN, Kind.BEGIN, Kind.FLOW_WANTS_REPLY))
_KIND_BY_CODE: Final = {OPEN: Kind.OPEN, BEGIN: Kind.BEGIN}
_KIND_BY_RULING: Final = {
    Ruling.PASS: Kind.PLAIN,
    Ruling.IGNORE: Kind.IGNORED,
    Ruling.SUSPEND: Kind.SUSPENDS,
    Ruling.STEAL: Kind.STEALS,
    Ruling.EXPEL: Kind.EXPELS,
    Ruling.REFUSE: Kind.REFUSED,
}


def _closing_detach(channel: bytes, handle: int) -> bytes:
    """A detach of a client's link that closes it."""
    return write_frame(int.from_bytes(channel, "big"), DETACH, encode_list([Uint(handle), True]))


def _performative(data: bytes, pos: int, stop: int) -> tuple[int, int]:
    """The code of the performative in a frame and where its list begins; -1 if it isn't one Proton would know."""
    at = pos + 4 * data[pos + 4]
    if data[at : at + 2] == b"\x00\x53" and at + 3 <= stop:
        return data[at + 2], at + 3
    if data[at : at + 2] == b"\x00\x80" and at + 10 <= stop:
        return int.from_bytes(data[at + 2 : at + 10], "big"), at + 10
    return -1, stop


def _fault(code: int, channel: bytes, fields: list[object]) -> BrokerError | None:
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
    code, at = _performative(frame, 0, len(frame))
    try:
        fields = decode(frame, at)[0]
    except DecodeError:
        fields = None
    fault = _fault(code, frame[6:8], fields) if isinstance(fields, list) else None
    return fault or BrokerError(Condition.DECODE_ERROR, "A performative is malformed.")


def _is_batch(data: bytes, at: int, stop: int) -> bool:
    """Whether a transfer has the batch format."""
    if data.find(BATCH_FIELD, at, stop) < 0:
        return False
    try:
        frame = data[at:stop]
        count, pos, _ = _open_list(frame)
        if count < 4:
            return False
        pos = skip(frame, pos, 3)
        return frame[pos : pos + 5] == BATCH_FIELD
    except (DecodeError, IndexError, StructError):
        return False  # Proton will say what is wrong


def delivery_count_of(flow: bytes) -> int:
    """The delivery-count in a flow frame; 0 where it has none."""
    _, at = _performative(flow, 0, len(flow))
    fields = decode(flow, at)[0]
    count = fields[_DELIVERY_COUNT] if isinstance(fields, list) and len(fields) > _DELIVERY_COUNT else None
    return int(count) if isinstance(count, int) else 0


def with_lower_frame_size(frame: bytes, by: int) -> bytes:
    """The client's `open` with a max-frame-size that leaves `by` bytes for padding; other frames unchanged."""
    try:
        count, pos, _ = _open_list(frame, 11)
        if count > 2:
            pos = skip(frame, pos, 2)
            if frame[pos] == 0x70:
                size = _size_at(frame, pos + 1)[0]
                lower = max(512, size - by).to_bytes(4, "big")
                return frame[: pos + 1] + lower + frame[pos + 5 :]
    except (DecodeError, IndexError, StructError):
        pass
    return frame


def _open_list(data: bytes, at: int = 0) -> tuple[int, int, int]:
    """Item count, offset of the first item and end of the list at `at`; IndexError if it is no list or cut off."""
    constructor = data[at]
    if constructor == 0x45:
        return 0, at + 1, at + 1
    if constructor == 0xC0:
        return data[at + 2], at + 3, at + 2 + data[at + 1]
    if constructor == 0xD0:
        return _size_at(data, at + 5)[0], at + 9, at + 5 + _size_at(data, at + 1)[0]
    raise IndexError


# ---- the other way


# Performatives and their number of fields [AMQP 2.7, 2.8.14]; position of a field that is (or holds) an error, if any.
_FIELDS: Final = {
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
_INNER_FIELDS: Final = {_REJECTED: (1, 0), _ERROR: (3, -1)}

PADDING_BYTES_MAX: Final = 16
"""By how much padding can make a transfer longer: ten nulls, and four-byte sizes in place of one-byte ones."""


class FramePadder:
    """Writes Proton's frames anew with every field present, as Python clients before 7.15 need them."""

    __slots__ = ("_rest", "_started")

    def __init__(self) -> None:
        self._rest = b""
        self._started = False

    def feed(self, data: bytes) -> bytes:
        """The padded form of the frames that `data` completes; the protocol header goes through as it is."""
        data = self._rest + data
        out: list[bytes] = []
        pos = 0
        if not self._started and len(data) >= 8:
            self._started = True
            if data.startswith(b"AMQP"):
                out.append(data[:8])
                pos = 8
        for stop in frame_ends(data, pos)[0] if self._started else ():
            out.append(_padded_frame(data[pos + 4 : pos + 8], data[pos + 8 : stop]))
            pos = stop
        self._rest = data[pos:]
        return b"".join(out)


def without_dispositions(output: bytes) -> bytes:
    """Proton's output without its dispositions; whole frames, and none of them the protocol header."""
    kept: list[bytes] = []
    pos = 0
    for stop in frame_ends(output)[0]:
        if output[pos + 8 : pos + 11] != _DISPOSITION_HEAD:
            kept.append(output[pos:stop])
        pos = stop
    return b"".join(kept)


_CONDITIONS_OF_PROTON: Final = {
    "amqp:not allowed": "amqp:not-allowed",
    "amqp:session:invalid-field": "amqp:invalid-field",
}
"""Conditions that Proton gives and no standard has."""


def with_whole_error(output: bytes) -> bytes:
    """Proton's last output: a `close` of its own gets a condition that exists and an error of three fields.

    Proton leaves the info out; Python clients of all versions look for it, and raise IndexError.
    """
    kept: list[bytes] = []
    pos = len(AMQP_HEADER) if output.startswith(AMQP_HEADER) else 0
    kept.append(output[:pos])
    for stop in frame_ends(output, pos)[0]:
        frame = output[pos:stop]
        if frame[8:11] == _CLOSE_HEAD:
            fields, _ = decode(frame, 11)
            error = fields[0] if isinstance(fields, list) and fields else None
            if isinstance(error, Described) and isinstance(error.value, list):
                condition, text, info = (*error.value, None, None, None)[:3]
                name = Symbol(_CONDITIONS_OF_PROTON.get(str(condition), str(condition)))
                whole = Described(error.descriptor, [name, text, {} if info is None else info])
                frame = write_frame(int.from_bytes(frame[6:8], "big"), CLOSE, encode_list([whole]))
        kept.append(frame)
        pos = stop
    return b"".join(kept)


def _padded_frame(header: bytes, body: bytes) -> bytes:
    """A frame with all fields of its performative; `header` is that of Proton's frame, without the size."""
    if len(body) > 3 and body[:2] == b"\x00\x53" and body[2] in _FIELDS:
        performative, behind = _with_all_fields(body, 0, _FIELDS)
        body = performative + body[behind:]
    return (8 + len(body)).to_bytes(4, "big") + header + body


def _with_all_fields(data: bytes, at: int, table: dict[int, tuple[int, int]]) -> tuple[bytes, int]:
    """The described list at `at` with all its fields, and the offset behind the original."""
    fields, error_at = table[data[at + 2]]
    count, pos, behind = _open_list(data, at + 3)
    items = data[pos:behind]
    if 0 <= error_at < count:
        start = skip(data, pos, error_at)
        if data[start : start + 2] == b"\x00\x53" and data[start + 2] in _INNER_FIELDS:
            inner, stop = _with_all_fields(data, start, _INNER_FIELDS)
            items = data[pos:start] + inner + data[stop:behind]
    missing = max(0, fields - count)
    return data[at : at + 3] + list_from_items(count + missing, items + b"\x40" * missing), behind
