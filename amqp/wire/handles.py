"""What becomes of each frame of a client before Proton sees it, by the handles that it has attached [AMQP 2.6, 2.7].

Most frames pass. Some must be pushed alone, because Proton does not show what marks them: the message-format of a
transfer, the only difference between a batch and a message [wire 4.4]; `drain` and `echo` of a flow, both of which want
an answer [wire 1.4, 5.6]. Some are malformed, and Proton would take them.

Proton closes the whole connection for a frame on a handle that is not attached and for a link name that is attached
already, and accepts a second attach on a handle. So this is decided before Proton sees the frame:

* a handle that was never attached ends the AMQP session with `amqp:session:unattached-handle`;
* frames behind the client's own detach are dropped, as the service does: they were on their way, or detach again;
* an attach with a name that the client has attached in the same role steals the link [AMQP 2.6.1];
* an attach on a handle in use, or without its mandatory fields, ends the AMQP session.

Knows the client's channels, handles and names. Does not know Proton's links and AMQP sessions: the frame reader asks
what becomes of a frame, the connection's exchange of frames does it. Owned by a `FrameReader`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import field
from enum import Enum, IntEnum, auto
from struct import error as StructError  # noqa: N812  (the standard name is a bare `error`)
from typing import Final

from ...broker.errors import BrokerError, Condition
from ...broker.lazy_dataclass import dataclass
from ...codec.decode import decode
from ...codec.encode import encode_list
from ...codec.errors import DecodeError
from ...codec.frames import ATTACH, BEGIN, CLOSE, DETACH, END, FLOW, OPEN, TRANSFER, write_frame
from ...codec.types import Uint
from .performatives import FIELDS, fault, is_batch, open_list, performative

_HANDLE_OF_FLOW, _DRAIN, _ECHO = 4, 8, 9

LATE_HANDLES_MAX: Final = 256
"""Detached handles of one AMQP session that are remembered; on those before them a frame ends the session."""

ChannelHandle = tuple[bytes, int]
"""The client's channel, as its two bytes in a frame, and a handle on it."""


class Kind(IntEnum):
    """What a piece of input needs besides being given to Proton. A piece of any kind but PLAIN is one frame."""

    PLAIN = 0
    BATCH = 1
    """A transfer whose message-format is the batch format."""
    FLOW_WANTS_REPLY = 2
    """A flow that wants an answer (drain or echo)."""
    OPEN = 3
    """The peer's `open`."""
    BEGIN = 4
    """A `begin`, which Proton must have answered before it takes transfers."""
    MALFORMED = 5
    """A performative that is no AMQP (`performatives.fault_in`). Proton must not see it: it crashes when it echoes
    broken arrays, and takes zero for a field that is missing."""
    REFUSED = 6
    """Proton must not see it: the AMQP session is to be ended with the next of the refusals."""
    EXPELS = 7
    """Made here: a detach in the client's name for a link that is closed with the next refusal."""
    SUSPENDS = 8
    """A detach that was changed to `closed`; the answer must have closed=false."""
    ATTACH = 9
    """An `attach`, whose size counts."""
    LEFT_OUT = 10
    """A transfer that Proton does not get, though it expects its delivery-id: the reader counts it and drops it."""


Piece = tuple[bytes, Kind]


_KIND_BY_CODE: Final = {OPEN: Kind.OPEN, BEGIN: Kind.BEGIN}


class Ruling(Enum):
    """What is to be done with a frame."""

    PASS = auto()
    """Proton may have it."""
    IGNORE = auto()
    """It came behind the detach of its link: drop it."""
    SUSPEND = auto()
    """A detach of the link at `victim` that does not close: the answer must not close either."""
    STEAL = auto()
    """An attach that takes the name of the link at `victim`, which is to be closed before."""
    EXPEL = auto()
    """The link at `victim` is to be closed because of the frame, which Proton must not have."""
    REFUSE = auto()
    """The AMQP session is to be ended."""


@dataclass(slots=True)
class _Channel:
    """An AMQP session's handles: the attached with name and role (true: the client receives)."""

    attached: dict[int, tuple[str, bool]] = field(default_factory=dict[int, tuple[str, bool]])
    late: dict[int, bool] = field(default_factory=dict[int, bool])
    """The detached, oldest first, and whether we were first, so that the client's own detach is still to come."""
    refused: bool = False


class Handles:
    """The handles of one connection. `refusals` has the errors of rulings that close something, in order."""

    __slots__ = ("_by_name", "_channels", "attached", "ended", "refusals", "sending", "victim")

    def __init__(self) -> None:
        self.attached: set[bytes] = set()
        """Channel and encoded handle of every link: what its flows may say."""
        self.sending: set[bytes] = set()
        """Channel and encoded handle of every link on which the client sends: how its transfers may begin."""
        self.refusals: deque[BrokerError] = deque()
        self.victim: ChannelHandle = (b"", 0)
        self.ended: set[bytes] = set()
        """Channels that the client has ended: Python sends detaches and dispositions there, and Proton would close the
        connection for it."""
        self._channels: dict[bytes, _Channel] = {}
        self._by_name: dict[tuple[str, bool], ChannelHandle] = {}

    # ---- frames

    def judge(self, data: bytes, pos: int, stop: int) -> list[Piece] | None:
        """What becomes of the frame at `pos`; None if it needs nothing but Proton.

        Records which channels and handles the client opens and closes.
        """
        code, at = performative(data, pos, stop)
        channel = data[pos + 6 : pos + 8]
        if code == BEGIN:
            self.ended.discard(channel)
            self.begin(channel)
        elif code not in (OPEN, CLOSE) and (channel in self.ended or (code != END and self.is_refused(channel))):
            return []
        frame = data[pos:stop]
        if code == TRANSFER:
            return self._judge_transfer(frame, at - pos, channel)
        if code not in FIELDS:
            return None
        try:
            fields = decode(data[at:stop])[0]
        except DecodeError:
            return [(frame, Kind.MALFORMED)]
        if not isinstance(fields, list):
            return None  # Proton says what is wrong
        if code == ATTACH:
            ruling, kind = self.attach(channel, fields), Kind.ATTACH
        elif code == DETACH:
            ruling, kind = self.detach(channel, fields), Kind.PLAIN
        else:
            ruling, kind = Ruling.PASS, _KIND_BY_CODE.get(code, Kind.PLAIN)
            if code == END:
                self.ended.add(channel)
                self.end(channel)
            elif code == FLOW:
                ruling = self._rule_flow(channel, fields)
                kind = Kind.FLOW_WANTS_REPLY if True in fields[_DRAIN : _ECHO + 1] else Kind.PLAIN
        if ruling is not Ruling.PASS:
            return self._pieces(frame, ruling)
        if kind is not Kind.ATTACH and fault(code, channel, fields):
            kind = Kind.MALFORMED
        return [(frame, kind)] if kind else None

    def _rule_flow(self, channel: bytes, fields: Sequence[object]) -> Ruling:
        if len(fields) > _HANDLE_OF_FLOW and fields[_HANDLE_OF_FLOW] is not None:
            return self._find(channel, fields[_HANDLE_OF_FLOW], "flow")
        return Ruling.PASS

    def _judge_transfer(self, frame: bytes, at: int, channel: bytes) -> list[Piece] | None:
        try:
            count, pos, _ = open_list(frame, at)
            handle = decode(frame, pos)[0] if count else None
        except (DecodeError, IndexError, StructError):
            return [(frame, Kind.MALFORMED)]
        ruling = self.transfer(channel, handle)
        if ruling is Ruling.IGNORE:
            return [(frame, Kind.LEFT_OUT)]
        if ruling is Ruling.PASS:
            return [(frame, Kind.BATCH)] if is_batch(frame, at, len(frame)) else None
        return self._pieces(frame, ruling)

    def _pieces(self, frame: bytes, ruling: Ruling) -> list[Piece]:
        """What becomes of a frame that does not simply pass."""
        channel, handle = self.victim
        match ruling:
            case Ruling.IGNORE:
                return []
            case Ruling.REFUSE:
                return [(frame, Kind.REFUSED)]
            case Ruling.STEAL:
                return [(_closing_detach(channel, handle), Kind.EXPELS), (frame, Kind.ATTACH)]
            case Ruling.EXPEL:
                return [(frame, Kind.LEFT_OUT), (_closing_detach(channel, handle), Kind.EXPELS)]
            case Ruling.SUSPEND:
                # To Proton a link that is detached and attached again is one link with two lives; here it is two links.
                return [(_closing_detach(channel, handle), Kind.SUSPENDS)]
            case _:
                raise AssertionError(ruling)

    # ---- AMQP sessions

    def begin(self, channel: bytes) -> None:
        """The client begins an AMQP session."""
        self.end(channel)
        self._channels[channel] = _Channel()

    def end(self, channel: bytes) -> None:
        """The client ends one, with all its links."""
        state = self._channels.pop(channel, None)
        if state is not None:
            for handle in list(state.attached):
                self._take(state, (channel, handle))

    def is_refused(self, channel: bytes) -> bool:
        """Whether we have ended the AMQP session: until the client's end nothing else counts [AMQP 2.5.4]."""
        state = self._channels.get(channel)
        return state is not None and state.refused

    # ---- links

    def attach(self, channel: bytes, fields: Sequence[object]) -> Ruling:
        state = self._channels.get(channel)
        if state is None:
            return Ruling.PASS
        name, handle, role = (*fields, None, None, None)[:3]
        if not (isinstance(name, str) and isinstance(handle, Uint) and isinstance(role, bool)):
            text = "An attach must have a name (string), a handle (uint) and a role (boolean)."
            return self._refuse(channel, Condition.INVALID_FIELD, text)
        if handle in state.attached or state.late.get(handle, False):
            text = f"An attach of link '{name}' came on handle {handle}, which is in use."
            return self._refuse(channel, Condition.HANDLE_IN_USE, text)
        victim = self._by_name.get((name, role))
        if victim is not None:
            self._close(victim, Condition.STOLEN, f"The link '{name}' was attached again, on handle {handle}.")
        state.late.pop(handle, None)
        state.attached[handle] = name, role
        self._by_name[name, role] = channel, handle
        heads = _heads(channel, handle)
        self.attached.update(heads)
        if not role:
            self.sending.update(heads)
        return Ruling.PASS if victim is None else Ruling.STEAL

    def detach(self, channel: bytes, fields: Sequence[object]) -> Ruling:
        state = self._channels.get(channel)
        if state is None:
            return Ruling.PASS
        handle, closed = (*fields, None, None)[:2]
        if isinstance(handle, Uint) and handle in state.late:
            state.late[handle] = False
            return Ruling.IGNORE
        ruling = self._find(channel, handle, "detach")
        if ruling is Ruling.PASS and isinstance(handle, Uint):
            self.victim = channel, handle
            self._take(state, self.victim)
            return Ruling.PASS if closed is True else Ruling.SUSPEND
        return ruling

    def transfer(self, channel: bytes, handle: object) -> Ruling:
        ruling = self._find(channel, handle, "transfer")
        state = self._channels.get(channel)
        if ruling is Ruling.PASS and state is not None and isinstance(handle, Uint):
            name, receives = state.attached[handle]
            if receives:
                text = f"A transfer came on the link '{name}', on which the client receives."
                self._close((channel, handle), Condition.NOT_ALLOWED, text)
                return Ruling.EXPEL
        return ruling

    def _find(self, channel: bytes, handle: object, what: str) -> Ruling:
        state = self._channels.get(channel)
        if state is None:
            return Ruling.PASS  # Proton says that there is no such AMQP session
        if isinstance(handle, Uint):
            if handle in state.attached:
                return Ruling.PASS
            if handle in state.late:
                return Ruling.IGNORE
            text = f"A {what} came on handle {handle}, which is not attached."
            return self._refuse(channel, Condition.UNATTACHED_HANDLE, text)
        return self._refuse(channel, Condition.INVALID_FIELD, f"A {what} must have a handle (uint).")

    def _refuse(self, channel: bytes, condition: Condition, text: str) -> Ruling:
        self.begin(channel)
        self._channels[channel].refused = True
        self.refusals.append(BrokerError(condition, text))
        return Ruling.REFUSE

    def _close(self, at: ChannelHandle, condition: Condition, text: str) -> None:
        self.victim = at
        self.refusals.append(BrokerError(condition, text))
        state = self._channels[at[0]]
        self._take(state, at)
        state.late[at[1]] = True

    def _take(self, state: _Channel, at: ChannelHandle) -> None:
        """The handle is not attached any more."""
        channel, handle = at
        name, receives = state.attached.pop(handle)
        del self._by_name[name, receives]
        heads = _heads(channel, handle)
        self.attached.difference_update(heads)
        if not receives:
            self.sending.difference_update(heads)
        state.late.pop(handle, None)
        state.late[handle] = False
        if len(state.late) > LATE_HANDLES_MAX:
            del state.late[next(iter(state.late))]


def _heads(channel: bytes, handle: int) -> tuple[bytes, ...]:
    """The channel and each encoding of the handle."""
    wide = channel + b"\x70" + handle.to_bytes(4, "big")
    if handle > 0xFF:
        return (wide,)
    small = channel + bytes((0x52, handle))
    return (wide, small) if handle else (wide, small, channel + b"\x43")


def _closing_detach(channel: bytes, handle: int) -> bytes:
    """A detach of a client's link that closes it."""
    return write_frame(int.from_bytes(channel, "big"), DETACH, encode_list([Uint(handle), True]))
