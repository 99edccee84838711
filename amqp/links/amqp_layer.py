"""The AMQP layer of one connection, from the AMQP header on: frames in, frames out, Proton between them.

Composes the engine, the endpoints and what corrects Proton's frames. Knows the order in which output is made: answers
to drains and echoes, numbers of deliveries, padding, the error of a close. Does not know the socket and time. Owned by
a connection, which calls `free`.
"""

from __future__ import annotations

from ...broker.errors import BrokerError
from ...codec.frames import EMPTY_FRAME
from ..link_context import LinkContext
from ..wire import engine as proton
from ..wire.engine import Engine, Pointer
from ..wire.flow import LinkState
from ..wire.flow_rewriter import FlowRewriter
from ..wire.frames import FramePadder, with_whole_error, without_dispositions
from ..wire.loops import without_tokens
from .endpoints import Endpoints
from .frame_input import FrameInput, Handler
from .hooks import LinkHooks


class AmqpLayer:
    """`handlers` take the events of Proton that are neither of links nor of AMQP sessions, by their types."""

    def __init__(self, context: LinkContext, hooks: LinkHooks, handlers: dict[int, Handler]) -> None:
        limits = context.limits
        self.engine = Engine(limits.frame_bytes_max, limits.channel_max)
        self._context = context
        self._flows = FlowRewriter()
        self.endpoints = Endpoints(context, self.engine, self._flows, hooks)
        self._input = FrameInput(context, self.engine, self.endpoints, self._flows, handlers)
        self._padder: FramePadder | None = None
        self._has_failed = False

    # ---- input

    def feed_header(self, header: bytes) -> None:
        """Take the AMQP header."""
        self.engine.push(header)

    def ignores(self, data: bytes) -> bool:
        """Whether input is a client's heartbeat and nothing else: we ask for none, and need nothing done."""
        return data == EMPTY_FRAME and self._input.is_between_frames

    def feed(self, data: bytes, frames_max: int, until_us: int) -> bytes:
        """Handle the first frames that `data` completes; return the end of `data` that is to be fed in another go.

        Behind `until_us` of the stopwatch what is under way waits for another go, too. BrokerError closes the
        connection.
        """
        return self._input.feed(data, frames_max, until_us)

    @property
    def has_left(self) -> bool:
        """Whether frames that were fed are not handled yet."""
        return self._input.has_left

    # ---- output

    def pad(self) -> None:
        """From now on every frame gets all its fields."""
        self._padder = FramePadder()

    def output(self) -> list[bytes]:
        """All bytes that are to be written now, whole frames."""
        states = self._link_states() if self._context.replies else []
        chunks = self.engine.output()
        if not (chunks or states):
            return chunks
        if self._context.sends_without_tokens:
            chunks = [without_tokens(b"".join(chunks))]
        if states or self._padder is not None or self._flows.awaits_numbers or self._input.renumbers:
            output = b"".join(chunks)
            self._flows.observe(output)
            output = self._flows.rewrite(output, states, self._input.ids)
            chunks = [self._padded(output)]
        if self._has_failed or self.engine.has_failed():
            chunks = [with_whole_error(b"".join(chunks))]
        return chunks

    def _link_states(self) -> list[tuple[Pointer, LinkState]]:
        """What is to be written of links in answer to drains and echoes; each gets a flow of its AMQP session."""
        self.engine.process()  # transfers come before the answer to a drain
        states = self._context.replies.take(self._context.links)
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
