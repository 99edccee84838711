"""One client connection: bytes between the socket and Proton, and everything that isn't a delivery.

Knows the order of things: SASL first, then input (frame reader → Proton → events), then once per turn of the event
loop the outcomes that gathered, then Proton's output (→ padder) to the socket. Knows opening, closing, heartbeats and
back-pressure. Does not know messages and entities, and how AMQP sessions and links begin and end (`endpoints`). Owns
its engine, endpoints, nodes and claims; ends them all in `connection_lost`. Nothing that happens in here gets out as an
exception: it closes this connection.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Hashable
from operator import itemgetter
from typing import Final, cast

import structlog

from ..broker import service_errors
from ..broker.clock import Timer
from ..broker.errors import BrokerError, Condition, decode_refusal
from ..codec.errors import DecodeError
from .clients import PYTHON_PRODUCT, wants_padding, wants_pause
from .faults import Faults
from .links.coordinator import Scope
from .links.endpoints import ENDPOINT_EVENTS, Endpoints
from .links.outgoing import OutgoingLink
from .nodes.claims import Claims
from .nodes.requests import Node
from .quotas import Held, Kept
from .shared import Shared
from .tracking import Tracker
from .wire import engine as proton
from .wire.deliveries import PN_DELIVERY, PN_LINK_FLOW, Finisher, Link, LinkState, Outflow, link_of_next, run_events
from .wire.engine import AttachRequest, Engine, Pointer, lib
from .wire.flow_rewriter import FlowRewriter
from .wire.frames import (
    EMPTY_FRAME,
    PADDING_BYTES_MAX,
    FramePadder,
    FrameReader,
    Kind,
    delivery_count_of,
    with_lower_frame_size,
    with_whole_error,
    without_dispositions,
)
from .wire.sasl import SaslServer, Stage

JMS_PROPERTY: Final = "com.microsoft:is-client-provider"
"""True in the `open` of a client of JMS 2.0: the library azure-servicebus-jms sets it, plain Qpid JMS does not."""


class Connection(asyncio.Protocol):
    """See the module. `number` tells connections apart in the log."""

    def __init__(self, shared: Shared, number: int) -> None:
        self.broker = shared.broker
        self.clock = shared.clock
        self.limits = shared.limits
        self.tracker = Tracker(shared.broker, shared.clock, number)
        self.claims = Claims(shared.access, shared.clock, shared.limits.claims_max, self._claims_expired)
        self.kept = Held(shared.limits, shared.kept, lambda: self.is_stranger)
        self.nodes: dict[str, Node] = {}
        self.scopes: dict[Pointer, Scope] = {}
        self.links: dict[Pointer, Link] = {}
        self.held: set[Outflow] = set()
        self.serial = 0
        self.outcomes: list[tuple[int, Finisher, Hashable, BrokerError | None]] = []
        self.drained: list[Outflow] = []
        self.echoed: set[Link] = set()
        self.pending_bytes = 0
        self.partial_bytes = 0
        self.blocked = False
        self._shared = shared
        self.log = structlog.get_logger().bind(connection=number)
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._sasl: SaslServer | None = SaslServer(
            self.claims.show_key,
            required=shared.access.verify,
            frame_bytes_max=shared.limits.sasl_frame_bytes_max,
        )
        self._reader = FrameReader(shared.limits.frame_bytes_max)
        self._padder: FramePadder | None = None
        self._flows = FlowRewriter()
        self._engine: Engine | None = None
        self._endpoints: Endpoints | None = None
        self._opened = False
        self._failed = False
        self._closing = False
        self._lost = False
        self._flush_scheduled = False
        self._reading_paused = False  # for want of outcomes
        self._reading_stopped = False  # whatever the reason is
        self._ignored_bytes = 0  # since we have closed
        self._unread = b""
        self._wrote = False
        self._open_timer: Timer | None = None
        self._heartbeat: asyncio.TimerHandle | None = None
        self._last_timer: asyncio.TimerHandle | None = None
        self._work: set[asyncio.Task[None]] = set()

    # ---- the socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client is here; it has a limited time to open."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=self.limits.write_buffer_bytes_max)
        sock = self._transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # we advertise no idle time-out [wire 1.3]
        self._shared.connections.add(self)
        self._shared.admit(self)
        self._open_timer = self.clock.call_at(self.clock.now_ms() + self.limits.open_wait_ms, self._too_slow)

    def data_received(self, data: bytes) -> None:
        """Handle what has come, in this connection's turns, and write all that there is to say to it."""
        if self._failed or self._closing:
            self._ignore(len(data))
            return
        if self._unread:  # a turn will come
            self._unread += data
            return
        self._unread = data
        if self._shared.turns.take(self):
            self._update_reading()

    def _ignore(self, size_bytes: int) -> None:
        """What comes behind our close is not read for long: a flood would cost as much as before."""
        self._ignored_bytes += size_bytes
        if self._ignored_bytes > self.limits.ignored_bytes_max and self._transport is not None:
            if not self._reading_stopped:
                self._transport.pause_reading()
            self._reading_stopped = True

    @property
    def is_stranger(self) -> bool:
        """Whether the client has yet to show a valid token or key."""
        return not self.claims.were_shown

    def work_off(self, until_us: int) -> bool:
        """Handle input until that instant of the stopwatch, at least one chunk; whether there is more."""
        if self._lost:
            self._free()
            return False
        limits, data, at = self.limits, self._unread, 0
        try:
            while at < len(data) and not self._failed and not self._closing:
                size = limits.stranger_chunk_bytes_max if self.is_stranger else limits.chunk_bytes_max
                chunk = data[at : at + size] if at or len(data) > size else data
                at += len(chunk)
                if self._sasl is not None:
                    chunk = self._handshake(chunk)
                if chunk:
                    self._input(chunk)
                if at < len(data) and self.clock.stopwatch_us() >= until_us:
                    break
            self._flush()
        except Exception as error:
            self.crash(error)
        self._unread = b"" if self._failed or self._closing else data[at:]
        if self._reading_stopped:
            self._update_reading()
        return bool(self._unread)

    def eof_received(self) -> bool | None:
        """The client writes no more: neither do we, once what is written is gone."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone: free what was kept. What strangers had is freed in their turns: many may go at once."""
        del exc
        self._closing = self._lost = True
        self._transport = None
        self._shared.opened.discard(self)
        self._shared.strangers.pop(self, None)
        if not self.is_stranger:
            self._free()
        elif not self._unread:  # else a turn will come
            self._shared.turns.take(self)

    def _free(self) -> None:
        """Report the end to the broker, free Proton's memory; once."""
        shared = self._shared
        if self not in shared.connections:
            return
        shared.connections.remove(self)
        self._unread = b""
        self.claims.close()
        for timer in (self._open_timer, self._heartbeat, self._last_timer):
            if timer is not None:
                timer.cancel()
        endpoints, self._endpoints = self._endpoints, None
        if endpoints is not None:
            endpoints.lose()
        self.nodes.clear()
        self.scopes.clear()
        self.outcomes.clear()
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.free()
        self.kept.close()
        self.log.debug("connection closed")
        if not shared.connections:
            shared.emptied()

    def pause_writing(self) -> None:
        """The socket takes no more: leave output in Proton and take no more messages from the broker."""
        self.blocked = True
        for link in self.links.values():
            if isinstance(link, OutgoingLink):
                link.hold()

    def resume_writing(self) -> None:
        """The socket takes more again."""
        self.blocked = False
        self.schedule_flush()

    def close(self, error: BrokerError) -> None:
        """Close from our side, in good order: `close` with `error`, then the socket."""
        if self._engine is None or not self._opened:
            self._close_socket()
        elif not self._failed:
            self._fail(error)

    def _write(self, data: bytes) -> None:
        if self._transport is not None and data:
            self._wrote = True
            self._transport.write(data)

    def _close_socket(self) -> None:
        """Close once what was written is gone, or in a while if the client doesn't read."""
        if not self._closing and self._transport is not None:
            self._closing = True
            self._transport.close()
            self._last_timer = self._loop.call_later(self.limits.close_wait_s, self.abort)

    def abort(self) -> None:
        """Close at once."""
        self._closing = True
        if self._transport is not None:
            self._transport.abort()

    # ---- from bytes to events

    def _handshake(self, data: bytes) -> bytes:
        """The SASL layer; what it leaves over is the AMQP layer's."""
        sasl = self._sasl
        if sasl is None:
            return data
        self._write(sasl.feed(data))
        if sasl.stage is Stage.REFUSED:
            self._close_socket()
        if sasl.stage is not Stage.DONE:
            return b""
        self._sasl = None
        self._engine = Engine(self.limits.frame_bytes_max, self.limits.channel_max)
        self._endpoints = Endpoints(self, self._engine, self.links, self._flows)
        header, rest = sasl.rest[:8], sasl.rest[8:]
        self._engine.push(header)
        return rest

    def _input(self, data: bytes) -> None:
        engine, endpoints = self._engine, self._endpoints
        if engine is None or endpoints is None:
            return
        if self._flush_scheduled:  # a flow in `data` must not take back the credit of what is about to be written
            self._flush()
        late = endpoints.settled_late
        # What is left from writing must not see what `data` changes.
        run_events(engine, self.links, self._control, late)
        for piece, kind in self._reader.feed(data):
            taken = self._push_alone(engine, endpoints, piece, kind) if kind else engine.push(piece)
            run_events(engine, self.links, self._control, late)
            if kind is Kind.BEGIN:
                engine.process()
            if not taken:
                break
        self.kept.put(Kept.PARTIAL, self.partial_bytes)

    def _push_alone(self, engine: Engine, endpoints: Endpoints, piece: bytes, kind: Kind) -> bool:
        """Push a frame that needs more than Proton: what it causes is the next event."""
        run_events(engine, self.links, self._control, endpoints.settled_late)
        channel = int.from_bytes(piece[6:8], "big")
        if kind is Kind.REFUSED:
            endpoints.refuse(self._flows.session_on(channel), self._reader.next_refusal())
            return True
        self._require_order(channel, kind)
        if kind is Kind.OPEN and PYTHON_PRODUCT.encode() in piece:
            # Old Python clients get longer frames than Proton makes: have it leave room [wire 0, rule 1].
            piece = with_lower_frame_size(piece, PADDING_BYTES_MAX)
        elif kind is Kind.EXPELS:
            endpoints.expelling(self._reader.next_refusal())
        elif kind is Kind.SUSPENDS:
            endpoints.suspending()
        elif kind is Kind.ATTACH:
            endpoints.attach_bytes = len(piece)
        taken = engine.push(piece)
        if kind is Kind.BEGIN:
            session = proton.session_of_next(engine)
            if session is not None:
                self._flows.session_began(channel, session)
        elif kind is Kind.BATCH:
            link = link_of_next(engine, PN_DELIVERY, self.links)
            if link is not None:
                link.batch = True
        elif kind is Kind.FLOW_WANTS_REPLY:
            link = link_of_next(engine, PN_LINK_FLOW, self.links)
            session = self._flows.session_on(channel)
            if link is not None:
                link.asked = True
                link.peer_count = delivery_count_of(piece)
            elif session is not None:
                proton.send_session_flow(session)
        return taken

    def _require_order(self, channel: int, kind: Kind) -> None:
        """Raise BrokerError for a frame that Proton would take, and must not."""
        if kind is Kind.MALFORMED:
            raise BrokerError(Condition.DECODE_ERROR, "A performative is malformed.")
        if kind is Kind.OPEN and self._opened:
            raise BrokerError(Condition.ILLEGAL_STATE, "The connection is open already.")
        if kind is Kind.BEGIN and self._flows.session_on(channel) is not None:
            raise BrokerError(Condition.NOT_ALLOWED, f"There is an AMQP session on channel {channel} already.")

    # ---- from outcomes to bytes

    def schedule_flush(self) -> None:
        """Flush once at the end of this turn of the event loop, however often it is asked for."""
        if not self._flush_scheduled and self._engine is not None:
            self._flush_scheduled = True
            self._loop.call_soon(self._scheduled_flush)

    def _scheduled_flush(self) -> None:
        if self._flush_scheduled and not self._closing:
            try:
                self._flush()
            except Exception as error:
                self.crash(error)

    def _flush(self) -> None:
        self._flush_scheduled = False
        engine = self._engine
        if engine is None:
            return
        self._finish()
        if self._reading_paused or self.pending_bytes > self.limits.pending_bytes_max:
            self._watch_pending()
        if self.blocked:
            return
        self._write_output(engine)
        if self._endpoints is not None and self._endpoints.free_ended():
            self._write_freed(engine)
        if engine.ended and not self._failed:
            self._close_socket()
        if self.held and not self.blocked:
            held, self.held = self.held, set()
            for link in held:
                link.resume()

    def _finish(self) -> None:
        """Give Proton the outcomes that have gathered, in the order of their deliveries."""
        outcomes = self.outcomes
        if outcomes:
            self.outcomes = []
            outcomes.sort(key=itemgetter(0))
            for _, link, key, error in outcomes:
                link.finish(key, error)

    def confirm(self) -> None:
        """Have the outcomes that there are written before whatever is sent from now on."""
        if self._engine is not None and not self._failed:
            self._finish()
            self._engine.process()

    def _write_output(self, engine: Engine) -> None:
        states = self._link_states(engine) if self.drained or self.echoed else []
        chunks = engine.output()
        if states or self._padder is not None or self._flows.awaits_numbers or self._reader.renumbers:
            output = b"".join(chunks)
            self._flows.observe(output)
            output = self._flows.rewrite(output, states, self._reader.ids)
            chunks = [self._padder.feed(output) if self._padder is not None else output]
        if self._failed or engine.has_failed():
            chunks = [with_whole_error(b"".join(chunks))]
        for chunk in chunks:
            self._write(chunk)

    def _link_states(self, engine: Engine) -> list[tuple[Pointer, LinkState]]:
        """What is to be written of links in answer to drains and echoes; each gets a flow of its AMQP session."""
        engine.process()  # transfers come before the answer to a drain
        drained, self.drained, echoed, self.echoed = self.drained, [], self.echoed, set()
        states: list[tuple[Pointer, LinkState]] = []
        for link in drained:
            if link.pointer in self.links and link.has_queued():
                self.drained.append(link)
            elif link.pointer in self.links:
                states.append((link.pointer, LinkState(link.count, 0, 0, drain=True)))
        states += [(link.pointer, link.state()) for link in echoed if link.pointer in self.links]
        for pointer, _ in states:
            proton.send_session_flow(proton.session_of(pointer))
        return states

    def _watch_pending(self) -> None:
        """Read from the socket only while not too much waits for its outcome."""
        pending_max = self.limits.pending_bytes_max
        self._reading_paused = self.pending_bytes > (pending_max // 2 if self._reading_paused else pending_max)
        self._update_reading()

    def _update_reading(self) -> None:
        """Read from the socket only while all that was read has been handled, and what was handled has its outcome."""
        stop = self._reading_paused or bool(self._unread)
        if self._transport is not None and stop is not self._reading_stopped and not self._closing:
            self._reading_stopped = stop
            if stop:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def _write_freed(self, engine: Engine) -> None:
        """Write what Proton says of endpoints that were freed."""
        rest = without_dispositions(b"".join(engine.output()))
        self._write(self._padder.feed(rest) if self._padder is not None else rest)

    # ---- trouble

    def crash(self, error: BaseException) -> None:
        """Close because of an exception: bytes that are no AMQP are the client's fault, all else is ours."""
        if isinstance(error, BrokerError):
            self._fail(error)
        elif isinstance(error, DecodeError):
            self._fail(decode_refusal(error))
        elif isinstance(error, UnicodeDecodeError):
            self._fail(BrokerError(Condition.DECODE_ERROR, "A text is not UTF-8."))
        else:
            self.log.error("connection failed", exc_info=error)
            self._fail(BrokerError(Condition.INTERNAL_ERROR, "The connection failed; the log knows why."))

    def _fail(self, error: BrokerError) -> None:
        """Say why, then close; the client has a moment to read it."""
        if self._failed:
            self._close_socket()
            return
        self._failed = True
        self.log.info("connection closed by us", reason=str(error))
        engine = self._engine
        if engine is None or self._transport is None:
            self._close_socket()
            return
        try:
            if self._endpoints is not None:
                self._endpoints.lose()
            engine.close(self.tracker.closed(error))
            self._write_output(engine)
        except Exception as again:
            self.log.error("closing failed", exc_info=again)
        self._last_timer = self._loop.call_later(self.limits.close_wait_s, self._close_socket)

    def _too_slow(self) -> None:
        if not self._opened:
            self.log.debug("connection was not opened in time")
            self._close_socket()

    def run(self, work: Awaitable[None]) -> None:
        """Run work to its end; whatever it raises closes the connection."""
        task = self._loop.create_task(self._shared.turns.charged(work) if self.is_stranger else _awaited(work))
        self._work.add(task)
        task.add_done_callback(self._worked)

    def _worked(self, task: asyncio.Task[None]) -> None:
        self._work.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not self._closing:
            self.crash(error)

    # ---- events that aren't deliveries

    def _control(self, kind: int, event: Pointer) -> None:
        handler = _CONTROL.get(kind)
        if handler is not None:
            handler(self, event)
        elif self._endpoints is not None and kind in ENDPOINT_EVENTS:
            ENDPOINT_EVENTS[kind](self._endpoints, event)

    def _on_open(self, event: Pointer) -> None:
        del event
        engine = self._engine
        if engine is None or self._opened:
            return
        self._opened = True
        shared, properties = self._shared, engine.peer_properties()
        if wants_padding(properties):
            self._padder = FramePadder()
        if wants_pause(properties) and self._endpoints is not None:
            self._endpoints.pause_s = self.limits.refusal_pause_s
        refusal = shared.jms_refusal if properties.get(JMS_PROPERTY) is True else None
        engine.open(shared.container, refused=refusal is not None)
        if refusal is not None:
            self.log.warning("connection refused: it is of JMS 2.0", reason=str(refusal))
            raise refusal
        if shared.connections_max is not None and len(shared.opened) >= shared.connections_max:
            self.log.warning("connection refused: the quota is reached", connections_max=shared.connections_max)
            raise service_errors.connections_quota_exceeded(shared.broker.namespace)
        shared.opened.add(self)
        if engine.idle_timeout_ms:
            interval_s = max(engine.idle_timeout_ms / 4000, self.limits.heartbeat_interval_s_min)
            self._heartbeat = self._loop.call_later(interval_s, self._beat, interval_s)
        self.log.debug("connection opened", client=engine.peer_container(), padded=self._padder is not None)

    def _beat(self, interval_s: float) -> None:
        """Looked at every quarter of the client's idle time-out: it never waits for more than half."""
        if self._closing or self._failed:
            return
        if not self._wrote and not self.blocked:
            self._write(EMPTY_FRAME)
        self._wrote = False
        self._heartbeat = self._loop.call_later(interval_s, self._beat, interval_s)

    def _on_close(self, event: Pointer) -> None:
        del event
        if self._engine is not None:
            self._engine.close()

    # ---- what links ask for

    @property
    def faults(self) -> Faults | None:
        """What is done to the connections on purpose."""
        return self._shared.faults

    def require_open(self) -> None:
        """Raise BrokerError unless the client has sent its `open`."""
        if not self._opened:
            raise BrokerError(Condition.NOT_ALLOWED, "The first frame of a connection must be its open.")

    def detach(self, pointer: Pointer, error: BrokerError) -> None:
        """Close a link from our side; the client's answer frees it."""
        if self._endpoints is not None:
            self._endpoints.detach(pointer, error)

    def accepted_late(self, pointer: Pointer, request: AttachRequest) -> None:
        """An attach that was held has been answered."""
        if self._endpoints is not None:
            self._endpoints.accepted_late(pointer, request)

    def _claims_expired(self) -> None:
        if self._endpoints is not None:
            self._endpoints.check_claims()

    def _on_input_end(self, event: Pointer) -> None:
        """Proton takes no more input: it found an error, or a frame that it doesn't know."""
        del event
        engine = self._engine
        if engine is not None and not self._failed and not engine.is_peer_closed():
            problem = engine.transport_error() or "The frame is not one that is expected here."
            self.log.debug("input ended", problem=problem)
            self._fail(BrokerError(Condition.DECODE_ERROR, problem))


async def _awaited(work: Awaitable[None]) -> None:
    await work


_CONTROL: Final[dict[int, Callable[[Connection, Pointer], None]]] = {
    int(lib.PN_CONNECTION_REMOTE_OPEN): Connection._on_open,
    int(lib.PN_CONNECTION_REMOTE_CLOSE): Connection._on_close,
    int(lib.PN_TRANSPORT_TAIL_CLOSED): Connection._on_input_end,
}
