"""Input of one connection after SASL: frames to Proton, and Proton's events to links and endpoints.

Knows which kinds of frames need more than Proton, and what each means for a link or an AMQP session: such a frame is
pushed alone, so that the next event of Proton is known to be its own. Does not know what the frames are about. Owned by
a connection; a BrokerError that it raises closes the connection.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from ...broker.errors import BrokerError, Condition
from ..link_context import LinkContext
from ..wire import engine as proton
from ..wire.clients import PYTHON_PRODUCT
from ..wire.delivery_ids import DeliveryIds
from ..wire.engine import Engine, Pointer
from ..wire.flow_rewriter import FlowRewriter
from ..wire.frames import PADDING_BYTES_MAX, FrameReader, Kind, delivery_count_of, fault_in, with_lower_frame_size
from ..wire.link import PN_DELIVERY, PN_LINK_FLOW, link_of_next, run_events
from ..wire.loops import handle_of
from .endpoints import ENDPOINT_EVENTS, Endpoints

Handler = Callable[[Pointer], None]
"""Handles an event of Proton."""


class FrameInput:
    """Feeds Proton; `handlers` take the events that are neither of links nor of AMQP sessions, by their types."""

    def __init__(
        self,
        context: LinkContext,
        engine: Engine,
        endpoints: Endpoints,
        flows: FlowRewriter,
        handlers: dict[int, Handler],
    ) -> None:
        self._engine = engine
        self._collector = handle_of(engine.collector)
        self._endpoints = endpoints
        self._flows = flows
        self._context = context
        self._links = context.links
        self._handlers = handlers
        self._reader = FrameReader(context.limits.frame_bytes_max)
        self._pieces: deque[tuple[bytes, Kind]] = deque()  # that wait for a go
        self._has_events = False
        self._until_us = 0

    @property
    def ids(self) -> DeliveryIds | None:
        """The delivery-ids of a client that mixes them up."""
        return self._reader.ids

    @property
    def renumbers(self) -> bool:
        """Whether dispositions that are written must go through `ids`."""
        return self._reader.renumbers

    @property
    def is_between_frames(self) -> bool:
        """Whether what comes next is the beginning of a frame."""
        return self._reader.is_between_frames

    def feed(self, data: bytes, frames_max: int, until_us: int) -> bytes:
        """Handle the first frames that `data` completes; return the end of `data` that is to be fed in another go.

        Behind `until_us` of the stopwatch what is under way waits for another go, too (`has_left`).
        """
        self._until_us = until_us
        self._run_events()  # output may have left some, which must not see what `data` changes
        if not self._push_pieces():
            return data
        self._pieces.extend(self._reader.feed(data, frames_max))
        left = self._reader.take_left()
        self._push_pieces()
        return left

    @property
    def has_left(self) -> bool:
        """Whether frames that were fed are not handled yet."""
        return self._has_events or bool(self._pieces)

    def _push_pieces(self) -> bool:
        """Handle what was fed; whether that was all of it."""
        while not self._has_events:
            if not self._pieces:
                return True
            piece, kind = self._pieces.popleft()
            taken = self._push_special(piece, kind) if kind else self._engine.push(piece)
            if kind:
                self._run_all_events()
            else:
                self._run_events()
            if kind is Kind.BEGIN:
                self._engine.process()
            if not taken:
                self._pieces.clear()
            elif self._pieces and self._is_late():
                return False
        return False

    def _is_late(self) -> bool:
        return self._context.clock.stopwatch_us() >= self._until_us

    def _run_events(self) -> None:
        """Handle Proton's events; those of many deliveries that one frame settles may wait."""
        self._has_events = not run_events(
            self._engine,
            self._collector,
            self._context,
            self._control,
            self._endpoints.settled_late,
            self._is_late,
        )

    def _run_all_events(self) -> None:
        self._run_events()
        while self._has_events:
            self._run_events()

    def _control(self, kind: int, event: Pointer) -> None:
        handler = self._handlers.get(kind)
        if handler is not None:
            handler(event)
        elif kind in ENDPOINT_EVENTS:
            ENDPOINT_EVENTS[kind](self._endpoints, event)

    # ---- frames that need more than Proton

    def _push_special(self, frame: bytes, kind: Kind) -> bool:
        """Push a frame alone; False once Proton takes no more."""
        self._run_all_events()
        channel = int.from_bytes(frame[6:8], "big")
        if kind is Kind.REFUSED:
            self._endpoints.refuse(self._flows.session_on(channel), self._reader.next_refusal())
            return True
        self._require_order(channel, kind, frame)
        if kind is Kind.OPEN and PYTHON_PRODUCT.encode() in frame:
            # Old Python clients get longer frames than Proton makes: have it leave room [wire 0, rule 1].
            frame = with_lower_frame_size(frame, PADDING_BYTES_MAX)
        elif kind is Kind.EXPELS:
            self._endpoints.expelling(self._reader.next_refusal())
        elif kind is Kind.SUSPENDS:
            self._endpoints.suspending()
        elif kind is Kind.ATTACH:
            self._endpoints.attaching(len(frame))
        taken = self._engine.push(frame)
        then = _THEN.get(kind)
        if then is not None:
            then(self, channel, frame)
        return taken

    def _require_order(self, channel: int, kind: Kind, frame: bytes) -> None:
        """Raise BrokerError for a frame that Proton would take, and must not."""
        if kind is Kind.MALFORMED:
            raise fault_in(frame)
        if kind is Kind.OPEN and self._endpoints.is_open:
            raise BrokerError(Condition.ILLEGAL_STATE, "The connection is open already.")
        if kind is Kind.BEGIN and self._flows.session_on(channel) is not None:
            raise BrokerError(Condition.NOT_ALLOWED, f"There is an AMQP session on channel {channel} already.")

    def _after_begin(self, channel: int, frame: bytes) -> None:
        del frame
        session = proton.session_of_next(self._engine)
        if session is not None:
            self._flows.session_began(channel, session)

    def _after_batch(self, channel: int, frame: bytes) -> None:
        del channel, frame
        link = link_of_next(self._engine, PN_DELIVERY, self._links)
        if link is not None:
            link.expect_batch()

    def _after_flow(self, channel: int, frame: bytes) -> None:
        link = link_of_next(self._engine, PN_LINK_FLOW, self._links)
        session = self._flows.session_on(channel)
        if link is not None:
            link.expect_reply(delivery_count_of(frame))
        elif session is not None:
            proton.send_session_flow(session)


_THEN: Final[dict[Kind, Callable[[FrameInput, int, bytes], None]]] = {
    Kind.BEGIN: FrameInput._after_begin,
    Kind.BATCH: FrameInput._after_batch,
    Kind.FLOW_WANTS_REPLY: FrameInput._after_flow,
}
"""What is done behind a frame of a kind, before Proton's event of it is handled: called with its channel and bytes."""
