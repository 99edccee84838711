"""Flow control of one connection: when to read, when links may send, and which flows the client waits for.

Has the bytes of deliveries that wait for their outcome, or whose last frame has not come. Reading from the socket
stops while input is unhandled, and while the ledger holds the connection; links that find the socket or the AMQP
session's window full, or the connection held, wait until output has gone (R6). Does not know what a link is: links pass
their callables. Owned by a connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container
from typing import NamedTuple

from .engine import Pointer

Resume = Callable[[], None]
"""Called once output has gone; a link's bound method, which is equal for the same link."""


class FlowControl:
    """Back-pressure of one connection, in both directions."""

    def __init__(self) -> None:
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
        """Read only while all that was read is handled, and the connection is not held."""
        stop = self._is_held or has_unread
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
