"""The frames of one connection, from the AMQP header on: in and out, with Proton between them.

    bytes > reader > pieces of frames > Proton > events > links and AMQP sessions
    bytes < padder < flow rewriter < Proton < links and AMQP sessions

On the way in a frame that needs more than Proton is pushed alone, so that the next event of Proton is known to be its
own. On the way out Proton's frames are corrected: answers to drains and echoes, numbers of deliveries, padding, the
error of a close; most output needs nothing of that and stays as it is. Does not know the socket, time and what the
frames are about. Owned by a connection, which calls `free`; a BrokerError from `feed` closes the connection.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from ...broker.errors import BrokerError, Condition
from ...codec.frames import AMQP_HEADER, EMPTY_FRAME
from ..link_context import LinkContext
from ..wire import engine as proton
from ..wire.clients import PYTHON_PRODUCT
from ..wire.engine import Engine, Pointer, lib
from ..wire.flow import LinkState
from ..wire.frame_reader import FrameReader
from ..wire.handles import Kind
from ..wire.link import PN_DELIVERY, PN_LINK_FLOW, Handler, link_of_next, run_events
from ..wire.loops import handle_of, without_tokens
from ..wire.performatives import delivery_count_of, fault_in
from ..wire.proton_repairs.flow_rewriter import FlowRewriter
from ..wire.proton_repairs.last_words import with_whole_error, without_dispositions
from ..wire.proton_repairs.padding import PADDING_BYTES_MAX, FramePadder, with_lower_frame_size
from .endpoints import Endpoints
from .hooks import LinkHooks

_peek, _pop, _type, _pending = lib.pn_collector_peek, lib.pn_collector_pop, lib.pn_event_type, lib.pn_transport_pending
_is_set = lib.pn_condition_is_set
NOTHING_DONE: Final = (int(lib.PN_TRANSPORT), PN_LINK_FLOW)
"""Proton's events for output that it has, which every outcome brings, and for a transfer that it has written: its link
has counted the credit already."""


class FrameExchange:
    """`handlers` take the events of Proton that are neither of links nor of AMQP sessions, by their types."""

    def __init__(self, context: LinkContext, hooks: LinkHooks, handlers: dict[int, Handler]) -> None:
        limits = context.limits
        self.engine = Engine(limits.frame_bytes_max, limits.channel_max)
        self._context = context
        self._flows = FlowRewriter()
        self.endpoints = Endpoints(context, self.engine, self._flows, hooks)
        self._run = partial(
            run_events,
            self.engine.collector,
            handle_of(self.engine.collector),
            context.wire,
            handlers | self.endpoints.handlers(),
            self.endpoints.settled_late,
            self._is_late,
        )
        """Handles Proton's events; False if some are left: those of many deliveries that one frame settles may wait."""
        # in
        self._reader = FrameReader(limits.frame_bytes_max)
        self._pieces: deque[tuple[bytes, Kind]] = deque()  # that wait for a go
        self._has_events = False
        self._until_us = 0
        self.has_left = False
        """Whether frames that were fed are not handled yet."""
        # out
        self._padder: FramePadder | None = None
        self._has_failed = False

    # ---- in

    def ignores(self, data: bytes) -> bool:
        """Whether input is a client's heartbeat and nothing else: we ask for none, and need nothing done."""
        return data == EMPTY_FRAME and self._reader.is_between_frames

    def feed(self, data: bytes, frames_max: int, until_us: int) -> bytes:
        """Handle the first frames that `data` completes; return the end of `data` that is to be fed in another go.

        Behind `until_us` of the stopwatch what is under way waits for another go, too (`has_left`). BrokerError closes
        the connection.
        """
        self._until_us = until_us
        events = self.engine.collector
        event: Pointer | None = None
        if not self.has_left:  # then what has come is handled, and a flow tells of a transfer that was written
            while (event := _peek(events)) and _type(event) in NOTHING_DONE:
                _pop(events)
        if self.has_left or event:
            self._has_events = not self._run()  # output may have left some, which must not see what `data` changes
            if not self._push_pieces():
                return data
        reader = self._reader
        self._pieces.extend(reader.feed(data, frames_max))
        self._push_pieces()
        return reader.left

    def _push_pieces(self) -> bool:
        """Handle what was fed; whether that was all of it."""
        pieces = self._pieces
        while pieces and not self._has_events:
            piece, kind = pieces.popleft()
            if kind:
                taken = self._push_special(piece, kind)
                self._run_all_events()
                if kind is Kind.BEGIN:
                    self.engine.process()
            else:
                taken = self.engine.push(piece)
                self._has_events = not self._run()
            if not taken:
                pieces.clear()
            elif pieces and self._is_late():
                break
        self.has_left = self._has_events or bool(pieces)
        return not self.has_left

    def _is_late(self) -> bool:
        return self._context.clock.stopwatch_us() >= self._until_us

    def _run_all_events(self) -> None:
        while not self._run():
            pass
        self._has_events = False

    # ---- frames that need more than Proton

    def _push_special(self, frame: bytes, kind: Kind) -> bool:
        """Push a frame alone; False once Proton takes no more."""
        self._run_all_events()
        channel = int.from_bytes(frame[6:8], "big")
        if kind is Kind.REFUSED:
            self.endpoints.refuse(self._flows.session_on(channel), self._reader.next_refusal())
            return True
        self._require_order(channel, kind, frame)
        if kind is Kind.OPEN and PYTHON_PRODUCT.encode() in frame:
            # Old Python clients get longer frames than Proton makes: have it leave room [wire 0, rule 1].
            frame = with_lower_frame_size(frame, PADDING_BYTES_MAX)
        elif kind is Kind.EXPELS:
            self.endpoints.expelling(self._reader.next_refusal())
        elif kind is Kind.SUSPENDS:
            self.endpoints.suspending()
        elif kind is Kind.ATTACH:
            self.endpoints.attaching(len(frame))
        taken = self.engine.push(frame)
        then = _THEN.get(kind)
        if then is not None:
            then(self, channel, frame)
        return taken

    def _require_order(self, channel: int, kind: Kind, frame: bytes) -> None:
        """Raise BrokerError for a frame that Proton would take, and must not."""
        if kind is Kind.MALFORMED:
            raise fault_in(frame)
        if kind is Kind.OPEN and self.endpoints.is_open:
            raise BrokerError(Condition.ILLEGAL_STATE, "The connection is open already.")
        if kind is Kind.BEGIN and self._flows.session_on(channel) is not None:
            raise BrokerError(Condition.NOT_ALLOWED, f"There is an AMQP session on channel {channel} already.")

    def _after_begin(self, channel: int, frame: bytes) -> None:
        session = proton.session_of_next(self.engine)
        if session is not None:
            self._flows.session_began(channel, session)

    def _after_batch(self, channel: int, frame: bytes) -> None:
        link = link_of_next(self.engine, PN_DELIVERY, self._context.wire.links)
        if link is not None:
            link.expect_batch()

    def _after_flow(self, channel: int, frame: bytes) -> None:
        link = link_of_next(self.engine, PN_LINK_FLOW, self._context.wire.links)
        session = self._flows.session_on(channel)
        if link is not None:
            link.expect_reply(delivery_count_of(frame))
        elif session is not None:
            proton.send_session_flow(session)

    # ---- out

    def skip_header(self) -> None:
        """Leave out Proton's protocol header: it has been written already."""
        written = b"".join(self.engine.output())
        assert written == AMQP_HEADER, f"Proton begins with {written!r}"

    def pad(self) -> None:
        """From now on every frame gets all its fields."""
        self._padder = FramePadder()

    def output(self) -> list[bytes]:
        """All bytes that are to be written now, whole frames."""
        context, flows = self._context, self._flows
        replies, ids = context.wire.replies, self._reader.ids
        states = self._link_states() if replies.drained or replies.echoed else []
        if not (states or _pending(self.engine.transport)):
            return []
        chunks = self.engine.output()
        if not (chunks or states):
            return chunks
        if context.wire.sends_without_tokens:
            chunks = [without_tokens(b"".join(chunks))]
        if states or self._padder is not None or flows.awaits_numbers or (ids is not None and ids.is_renumbering):
            output = b"".join(chunks)
            flows.observe(output)
            chunks = [self._padded(flows.rewrite(output, states, ids))]
        if self._has_failed or _is_set(self.engine.trouble):
            chunks = [with_whole_error(b"".join(chunks))]
        return chunks

    def _link_states(self) -> list[tuple[Pointer, LinkState]]:
        """What is to be written of links in answer to drains and echoes; each gets a flow of its AMQP session."""
        self.engine.process()  # transfers come before the answer to a drain
        states = self._context.wire.replies.take(self._context.wire.links)
        for pointer, _ in states:
            proton.send_session_flow(proton.session_of(pointer))
        return states

    def output_of_freed(self) -> bytes:
        """Free what has ended on both sides, now that the frames that say so are written; what Proton says of it."""
        if not self.endpoints.free_ended():
            return b""
        return self._padded(without_dispositions(b"".join(self.engine.output())))

    def _padded(self, output: bytes) -> bytes:
        return output if self._padder is None else self._padder.feed(output)

    # ---- the end

    def fail(self, error: BrokerError) -> None:
        """Close the connection because of `error`; the close is in the next output."""
        self._has_failed = True
        self.engine.close(error)

    def free(self) -> None:
        """Free Proton's memory; the links have ended."""
        self.engine.free()


_THEN: Final[dict[Kind, Callable[[FrameExchange, int, bytes], None]]] = {
    Kind.BEGIN: FrameExchange._after_begin,
    Kind.BATCH: FrameExchange._after_batch,
    Kind.FLOW_WANTS_REPLY: FrameExchange._after_flow,
}
"""What is done behind a frame of a kind, before Proton's event of it is handled: called with its channel and bytes."""
