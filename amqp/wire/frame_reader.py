"""Cuts what a client sends into pieces of whole frames, in front of Proton.

Knows the frame header [AMQP 2.3]. Does not know performatives: `loops.passthrough_end` finds the frames that need
nothing but Proton, `handles` says what becomes of the others. A connection's exchange of frames owns one.
"""

from __future__ import annotations

from typing import Final

from ...broker.errors import BrokerError
from .clients import PYTHON_PRODUCT
from .handles import Handles, Kind, Piece
from .loops import passthrough_end
from .performatives import size_at
from .proton_repairs.delivery_ids import DeliveryIds

PIECES_MAX: Final = 64
"""Of one `feed`: attaches and the like cost a hundred times what other frames cost."""
FRAMES_MAX: Final = 256
"""Of one `feed`, those between the pieces included: as many as a run of deliveries has."""


class FrameReader:
    """Cuts arriving bytes into pieces of whole frames, so that Proton never sees half of one.

    Frames that need attention come as pieces of their own; everything between them stays together. A frame that can't
    be one (too large, too short) goes through as it is, with all that follows: Proton's answer to it is the right one.
    What becomes of a frame `handles` says.
    """

    __slots__ = ("_broken", "_frame_bytes_max", "_handles", "_rest", "ids", "left")

    def __init__(self, frame_bytes_max: int) -> None:
        self.ids: DeliveryIds | None = None  # of a client that mixes them up
        self._frame_bytes_max = frame_bytes_max
        self._rest = bytearray()
        self.left = b""
        """The end of the input of the last `feed`, to be fed again: there were too many frames."""
        self._broken = False
        self._handles = Handles()

    def feed(self, data: bytes, frames_max: int = FRAMES_MAX) -> list[Piece]:
        """The pieces that `data` completes, in order: those of its first `frames_max` frames; sets `left`."""
        self.left = b""
        if self._broken:
            return [(data, Kind.PLAIN)]
        rest = self._rest
        if rest:
            length = len(rest) + len(data)
            if length < 4 or (length < size_at(rest[:4] + data[:4])[0] <= self._frame_bytes_max):
                rest += data
                return []
            data = b"".join((rest, data))
            rest.clear()
        elif not self._handles.ended and data and self.ids is None:
            handles = self._handles
            end, _ = passthrough_end(data, 0, self._frame_bytes_max, handles.sending, handles.attached, frames_max)
            if end == len(data):  # as nearly always: whole frames that need nothing but Proton
                return [(data, Kind.PLAIN)]
        pieces = self._cut(data, frames_max)
        return pieces if self.ids is None else self._renumbered(self.ids, pieces)

    @property
    def is_between_frames(self) -> bool:
        return not (self._rest or self._broken)

    def next_refusal(self) -> BrokerError:
        """Why the piece that has just been reached is refused, or expels a link."""
        return self._handles.refusals.popleft()

    def _renumbered(self, ids: DeliveryIds, pieces: list[Piece]) -> list[Piece]:
        """The pieces with the delivery-ids that Proton expects, without the transfers that are left out."""
        given: list[Piece] = []
        for piece, kind in pieces:
            if kind is Kind.LEFT_OUT:
                ids.transfer_ignored(piece)
            else:
                given.append((ids.incoming(piece), kind))
        return given

    def _cut(self, data: bytes, frames_max: int) -> list[Piece]:
        size_max, length = self._frame_bytes_max, len(data)
        pieces: list[Piece] = []
        start = pos = 0
        while True:
            if pos < length and (len(pieces) >= PIECES_MAX or frames_max <= 0):
                self.left = data[pos:]
                data = data[:pos]
                break
            if not self._handles.ended:
                pos, count = passthrough_end(
                    data, pos, size_max, self._handles.sending, self._handles.attached, frames_max
                )
                frames_max -= count
            if pos + 4 > length:
                break
            if frames_max <= 0:
                continue
            stop = pos + size_at(data, pos)[0]
            self._broken = not 8 <= stop - pos <= size_max
            if self._broken or stop > length:
                break
            frames_max -= 1
            judged = self._handles.judge(data, pos, stop) if stop - pos > 10 else None
            if judged is not None:
                if pos > start:
                    pieces.append((data[start:pos], Kind.PLAIN))
                pieces += judged
                start = stop
                if self.ids is None and any(map(_mixes_ids_up, judged)):
                    self.ids = DeliveryIds()
            pos = stop
        if self._broken:
            data += bytes(max(0, 8 - (length - pos)))  # Proton looks at a frame once it has eight bytes
            pos = len(data)
        if pos > start:
            pieces.append((data[start:pos] if start or pos < len(data) else data, Kind.PLAIN))
        if pos < len(data):
            self._rest += data[pos:]
        return pieces


def _mixes_ids_up(piece: Piece) -> bool:
    """Whether Proton will know deliveries by other ids than the client: Python's threads, and transfers left out."""
    frame, kind = piece
    return kind is Kind.LEFT_OUT or (kind is Kind.OPEN and PYTHON_PRODUCT.encode() in frame)
