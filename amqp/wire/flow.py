"""Flow control of one connection: when to read, when links may send, and which flows the client waits for.

Has the bytes of deliveries that wait for their outcome, or whose last frame has not come. Reading from the socket
stops while input is unhandled, while the ledger holds the connection, and while more deliveries wait than may
(`DeliveryBuffers`); links that find the socket or the AMQP session's window full, or the connection held, wait until
output has gone (R6). Does not know what a link is: links pass their callables. Owned by a connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container
from typing import Final, NamedTuple

from .engine import Pointer

Resume = Callable[[], None]
"""Called once output has gone; a link's bound method, which is equal for the same link."""


CONNECTION_BUFFERS_BYTES_MAX: Final = 16 << 20
"""How many bytes of deliveries of one connection may wait. With less, the batches of a partitioned entity are small:
4 MiB cost 35 % more processor time for bodies of 64 KiB, this 9 % more than no limit
(`bench/compare.py REF --cells send-part-64k`)."""
BUFFERS_BYTES_MAX: Final = 32 << 20
"""All connections' together; with more, one that has little of it gets FEW_BUFFERS_BYTES and reuses that."""
FEW_BUFFERS_BYTES: Final = 256 << 10
"""As much as is read from a socket at a time."""


class DeliveryBuffers:
    """The buffers of deliveries of all connections of a server, which Proton keeps until their connection is gone.

    Proton reuses a delivery that is settled, and the buffer in it, for the next one of the same connection, but never
    gives it back. So a connection keeps the most bytes that ever waited at a time: 60 senders of 50 KB that took turns
    kept 420 MiB, while 20 waited (`pytest tests/attack/test_holding.py`).
    """

    __slots__ = ("bytes",)

    def __init__(self) -> None:
        self.bytes = 0
        """The sum of what the connections keep."""


class FlowControl:
    """Back-pressure of one connection, in both directions."""

    def __init__(self) -> None:
        self.buffers = DeliveryBuffers()
        """Those of the server."""
        self.kept_bytes = 0
        """The most that deliveries have had at a time: Proton keeps it."""
        self.unwritten_bytes = 0
        """Deliveries whose outcomes Proton has not written: the socket is full. It keeps them until then."""
        self.pending_bytes = 0
        """Deliveries that wait for their outcome, with what it costs to keep one; their links count them."""
        self.partial_bytes = 0
        """Deliveries of which not all frames have come; their links count them."""
        self.is_full = False
        """The socket takes no more output."""
        self.is_blocked = False
        """No more output may be made: the socket is full, or the connection is held."""
        self.is_stopped = False
        """Nothing is read from the socket."""
        self._is_held = False
        self._transport: asyncio.Transport | None = None
        self.waiting: dict[Resume, None] = {}
        """Links that wait until output has gone."""
        self.replies: set[asyncio.Future[None]] = set()
        """Requests that wait for room for their responses."""
        self.is_over = False
        """The connection has closed, or closes."""

    # ---- buffers of deliveries

    @property
    def delivery_bytes(self) -> int:
        """What Proton holds of deliveries that wait, for their outcome, its output or their last frame."""
        return self.pending_bytes + self.unwritten_bytes + self.partial_bytes

    def measure(self) -> None:
        """Note what is held; to be called while it is most, before outcomes go."""
        more = self.delivery_bytes - self.kept_bytes
        if more > 0:
            self.kept_bytes += more
            self.buffers.bytes += more

    @property
    def has_room(self) -> bool:
        """Whether more deliveries may come. One that has begun to arrive may: others can't go before its end."""
        if self.buffers.bytes <= BUFFERS_BYTES_MAX:
            most = CONNECTION_BUFFERS_BYTES_MAX
        else:  # what comes with the next read must find buffers that are there, or they grow read by read
            most = max(FEW_BUFFERS_BYTES, self.kept_bytes - FEW_BUFFERS_BYTES)
        return self.pending_bytes + self.unwritten_bytes <= most

    def drop_buffers(self) -> None:
        """Proton has freed all."""
        self.buffers.bytes -= self.kept_bytes
        self.kept_bytes = 0

    # ---- reading

    def connect(self, transport: asyncio.Transport) -> None:
        """From now on this socket is read from."""
        self._transport = transport

    def disconnect(self) -> None:
        """The connection closes: the socket is left as it is, and what waits for room is cancelled."""
        self._transport = None
        self.is_over = True
        for wait in self.replies:
            wait.cancel()

    def stop_reading(self, transport: asyncio.Transport | None) -> None:
        """Read no more from a socket, for good."""
        self._transport = None
        if transport is not None and not self.is_stopped:
            transport.pause_reading()
        self.is_stopped = True

    def update_reading(self, *, has_unread: bool) -> None:
        """Read only while all that was read is handled, deliveries have room, and the connection is not held."""
        stop = self._is_held or has_unread or not self.has_room
        if self._transport is not None and stop is not self.is_stopped:
            self.is_stopped = stop
            if stop:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def hold_all(self, *, has_unread: bool) -> None:
        """The ledger holds the connection: nothing is read, no output is made."""
        self._is_held = self.is_blocked = True
        self.update_reading(has_unread=has_unread)

    def go_on(self, *, has_unread: bool) -> None:
        """The ledger does not hold the connection any more."""
        self._is_held, self.is_blocked = False, self.is_full
        self.update_reading(has_unread=has_unread)

    # ---- writing

    def block(self) -> None:
        """The socket takes no more."""
        self.is_full = self.is_blocked = True

    def unblock(self) -> None:
        """The socket takes more again."""
        self.is_full, self.is_blocked = False, self._is_held

    def hold(self, resume: Resume) -> None:
        """Call `resume` once output has gone."""
        self.waiting[resume] = None

    def release(self, resume: Resume) -> None:
        """A link that was held, or was not, is over."""
        self.waiting.pop(resume, None)

    def resume_held(self) -> None:
        """Output has gone: there may be room for those in `replies` and `waiting`; nothing to do if there are none."""
        if self.replies:
            self.resume_replies()
        if self.waiting and not self.is_blocked:
            waiting, self.waiting = self.waiting, {}
            for resume in waiting:
                resume()

    def room_for_replies(self) -> asyncio.Future[None]:
        """What to wait for until output has gone, also while the connection is held: requests that wait for room may
        be what it is held for. Cancelled once the connection closes."""
        wait: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.is_over:
            wait.cancel()
        self.replies.add(wait)
        wait.add_done_callback(self.replies.discard)
        return wait

    def resume_replies(self) -> None:
        """There may be room for responses."""
        for wait in self.replies:
            if not wait.done():
                wait.set_result(None)


class LinkState(NamedTuple):
    """The fields of a flow that are a link's [AMQP 2.7.4]."""

    delivery_count: int
    credit: int
    available: int | None = None
    drain: bool = False


class FlowReplies:
    """Links whose state goes out with the next output, in answer to a drain or an echo that Proton does not answer."""

    def __init__(self) -> None:
        self.drained: list[tuple[Pointer, Callable[[], LinkState | None]]] = []
        self.echoed: dict[Pointer, Callable[[], LinkState]] = {}

    def add_drained(self, link: Pointer, state: Callable[[], LinkState | None]) -> None:
        """A drain found no credit to give back; `state` is None while transfers wait for the session's window."""
        self.drained.append((link, state))

    def add_echo(self, link: Pointer, state: Callable[[], LinkState]) -> None:
        """The client asked for the link's state [AMQP 2.6.7]."""
        self.echoed[link] = state

    def take(self, attached: Container[Pointer]) -> list[tuple[Pointer, LinkState]]:
        """The states that are to be written now, of links that are still attached."""
        drained, self.drained, echoed, self.echoed = self.drained, [], self.echoed, {}
        states: list[tuple[Pointer, LinkState]] = []
        for link, drained_state in drained:
            state = drained_state() if link in attached else None
            if state is not None:
                states.append((link, state))
            elif link in attached:
                self.drained.append((link, drained_state))
        return states + [(link, echo_state()) for link, echo_state in echoed.items() if link in attached]
