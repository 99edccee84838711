"""Delivery-ids of clients that send from several threads without a lock, put into the order that Proton insists on.

The Python SDK's threads, of which `AutoLockRenewer` has some, take the next delivery-id of an AMQP session and send
with it at the same moment: an id comes twice and the next one never, or two come in the wrong order. The service does
not mind; Proton closes the connection. So such transfers get the id that Proton expects, and dispositions about them
the id that the client knows. The same befalls what follows a transfer that Proton does not see (`handles`).

Needed by Proton 0.40.0 (`tests/amqp/test_delivery_ids.py`). Knows the numbers of transfers and dispositions on the
channels of one connection. Does not know links and what is sent. Owned by a `FrameReader`, which makes it when it is
needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field
from typing import Final

from ....broker.lazy_dataclass import dataclass
from ....codec.decode import decode
from ....codec.encode import list_from_items
from ....codec.errors import DecodeError
from ....codec.frames import BEGIN, DISPOSITION, TRANSFER, performatives
from ....codec.sections import open_items
from ....codec.skip import skip

_ID_MASK: Final = 0xFFFF_FFFF
_RECEIVER: Final = (0x41, 0x56)
"""How a disposition that says something about the client's deliveries begins: with the role `receiver`, true."""


@dataclass(slots=True)
class _Session:
    """Ids on one channel. `client_ids` maps Proton's id to the client's for each delivery whose ids differ."""

    expected: int | None = None
    client_ids: dict[int, int] = field(default_factory=dict[int, int])
    unfinished: dict[int, tuple[int, int]] = field(default_factory=dict[int, tuple[int, int]])
    """By handle: the client's id and Proton's of the delivery that is under way."""


class DeliveryIds:
    """Takes all that a client sends, and all that is written to it while `is_renumbering`."""

    __slots__ = ("_sessions",)

    def __init__(self) -> None:
        self._sessions: dict[int | None, _Session] = {}

    @property
    def is_renumbering(self) -> bool:
        """Whether Proton knows any delivery by another id than the client."""
        return any(session.client_ids for session in self._sessions.values())

    def incoming(self, piece: bytes) -> bytes:
        """Whole frames of the client, with consecutive delivery-ids."""
        out: list[bytes] = []
        done = 0
        for channel, code, start, stop in performatives(piece):
            if code == BEGIN:
                self._sessions[channel] = _Session()
            elif code == TRANSFER and channel in self._sessions:
                frame = _renumbered_transfer(self._sessions[channel], piece[start:stop])
                if frame is not None:
                    out += (piece[done:start], frame)
                    done = stop
        return b"".join((*out, piece[done:])) if out else piece

    def transfer_ignored(self, frame: bytes) -> None:
        """Count a transfer that Proton does not get: Proton expects its id in the next transfer."""
        try:
            fields, _ = decode(frame, 4 * frame[4] + 3)
        except DecodeError:
            return
        number = fields[1] if isinstance(fields, list) and len(fields) > 1 else None
        session = self._sessions.setdefault(int.from_bytes(frame[6:8], "big"), _Session())
        if session.expected is None and isinstance(number, int):
            session.expected = int(number)

    def outgoing(self, output: bytes, client_channel: Callable[[int], int | None]) -> bytes:
        """Proton's whole frames, with the ids that the client knows; it has the session of our channel on another."""
        out: list[bytes] = []
        done = 0
        for channel, code, start, stop in performatives(output):
            session = self._sessions.get(client_channel(channel)) if code == DISPOSITION else None
            if session is not None and session.client_ids and output[_role_at(output, start)] in _RECEIVER:
                out += (output[done:start], *_with_client_ids(session, output[start:stop]))
                done = stop
        return b"".join((*out, output[done:]))


def _role_at(data: bytes, start: int) -> int:
    return open_items(data, start + 11)[1]


def _renumbered_transfer(session: _Session, frame: bytes) -> bytes | None:
    """A transfer with the id that Proton expects; None if it may stay as it is, or is none."""
    try:
        fields, behind = decode(frame, 11)
        count, pos = open_items(frame, 11)
    except (DecodeError, IndexError):
        return None
    if not isinstance(fields, list):
        return None
    handle, number, _, _, settled, more = (*fields, *[None] * 6)[:6]
    if not isinstance(handle, int):
        return None
    going_on = session.unfinished.get(handle)
    if going_on is not None:
        known, ours = going_on
        if not more:
            del session.unfinished[handle]
        if number != known:  # mostly because it need not be said again
            return None
    elif isinstance(number, int):
        known, ours = int(number), int(number) if session.expected is None else session.expected
        session.expected = (ours + 1) & _ID_MASK
        if more:
            session.unfinished[handle] = known, ours
        if ours != known and not settled:
            session.client_ids[ours] = known
    else:
        return None
    if ours == known:
        return None
    start = skip(frame, pos)
    items = frame[pos:start] + _uint(ours) + frame[skip(frame, start) : behind]
    return _frame(frame, list_from_items(count, items) + frame[behind:])


def _with_client_ids(session: _Session, frame: bytes) -> Iterator[bytes]:
    """A disposition of ours in the client's ids, as many frames as that takes."""
    count, pos = open_items(frame, 11)
    fields, _ = decode(frame, 11)
    _, first, last, settled = (*fields, None, None)[:4] if isinstance(fields, list) else [None] * 4
    last = first if last is None else last
    assert isinstance(first, int)
    assert isinstance(last, int)
    rest = frame[skip(frame, pos, min(count, 3)) :]
    ids = [(first + offset) & _ID_MASK for offset in range(((last - first) & _ID_MASK) + 1)]
    known = [(session.client_ids.pop(each, each) if settled else session.client_ids.get(each, each)) for each in ids]
    start = 0
    for index in range(1, len(known) + 1):
        if index == len(known) or known[index] != (known[index - 1] + 1) & _ID_MASK:
            items = b"\x41" + _uint(known[start]) + _uint(known[index - 1]) + rest
            yield _frame(frame, list_from_items(max(count, 3), items))
            start = index


def _uint(value: int) -> bytes:
    return b"\x70" + value.to_bytes(4, "big")


def _frame(like: bytes, body: bytes) -> bytes:
    """A frame on the channel of another, with its performative's code."""
    return (len(body) + 11).to_bytes(4, "big") + like[4:11] + body
