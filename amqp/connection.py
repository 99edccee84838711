"""One client connection: bytes between the socket and Proton, and everything that isn't a delivery.

Knows the order of things: SASL first, then input (frame reader → Proton → events), then once per turn of the event
loop the outcomes that gathered, then Proton's output (→ padder) to the socket. Knows opening, closing, heartbeats and
back-pressure. Refuses to know messages and entities. Owns its engine, links, nodes and claims; ends them all in
`connection_lost`. Nothing that happens in here gets out as an exception: it closes this connection.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Final, cast

import structlog

from ..broker import sentences
from ..broker.access import Access
from ..broker.address import parse_address
from ..broker.clock import Clock, Timer
from ..broker.errors import BrokerError, Condition
from . import engine as proton
from .attach import attach
from .claims import Claims
from .drains import Drains
from .engine import AttachRequest, Engine, Pointer, lib
from .fastpath import PN_DELIVERY, PN_LINK_FLOW, Link, Outflow, link_of_next, run_events
from .faults import Faults
from .frames import (
    EMPTY_FRAME,
    PADDED_PRODUCT,
    PADDING_BYTES_MAX,
    FramePadder,
    FrameReader,
    Kind,
    wants_padding,
    with_lower_frame_size,
    without_dispositions,
)
from .limits import Limits
from .outgoing import OutgoingLink
from .ports import BrokerPort
from .requests import Node
from .sasl import SaslServer, Stage
from .transactions import Scope


@dataclass(slots=True)
class Shared:
    """What all connections of a face share."""

    broker: BrokerPort
    access: Access
    clock: Clock
    limits: Limits
    container: str
    connections: set[Connection]
    emptied: Callable[[], None] = lambda: None
    """Called when the last connection has gone."""
    faults: Faults | None = None
    """What is done to the connections on purpose."""
    connections_max: int | None = None
    """How many may be open at a time; None is any number."""
    opened: set[Connection] = field(default_factory=set["Connection"])
    """Those that have said their `open`: a socket alone is none of the quota's business."""


class Connection(asyncio.Protocol):
    """See the module. `number` tells connections apart in the log."""

    def __init__(self, shared: Shared, number: int) -> None:
        self.broker = shared.broker
        self.clock = shared.clock
        self.limits = shared.limits
        self.claims = Claims(shared.access, shared.clock, shared.limits.claims_max, self._claims_expired)
        self.nodes: dict[str, Node] = {}
        self.scopes: dict[Pointer, Scope] = {}
        self.links: dict[Pointer, Link] = {}
        self.held: set[Outflow] = set()
        self.serial = 0
        self.outcomes: list[tuple[int, Link, Hashable, BrokerError | None]] = []
        self.drained: list[Outflow] = []
        self.pending_bytes = 0
        self.partial_bytes = 0
        self.blocked = False
        self._shared = shared
        self._log = structlog.get_logger().bind(connection=number)
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._sasl: SaslServer | None = SaslServer(
            self.claims.show_key,
            required=shared.access.verify,
            frame_bytes_max=shared.limits.sasl_frame_bytes_max,
        )
        self._reader = FrameReader(shared.limits.frame_bytes_max)
        self._padder: FramePadder | None = None
        self._drains = Drains()
        self._engine: Engine | None = None
        self._opened = False
        self._failed = False
        self._closing = False
        self._flush_scheduled = False
        self._reading_paused = False
        self._wrote = False
        self._open_timer: Timer | None = None
        self._heartbeat: asyncio.TimerHandle | None = None
        self._last_timer: asyncio.TimerHandle | None = None
        self._half_closed: set[Pointer] = set()  # links that we have closed, and the client has not
        self._links_of: dict[Pointer, set[Pointer]] = {}  # of each AMQP session, those that are half closed, too
        self._to_free: list[tuple[Callable[[Pointer], object], Pointer]] = []
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
        self._open_timer = self.clock.call_at(self.clock.now_ms() + self.limits.open_wait_ms, self._too_slow)

    def data_received(self, data: bytes) -> None:
        """Handle everything that has come, and write everything there is to say to it."""
        if self._failed or self._closing:
            return
        try:
            if self._sasl is not None:
                data = self._handshake(data)
            if data:
                self._input(data)
            self._flush()
        except Exception as error:
            self.crash(error)

    def eof_received(self) -> bool | None:
        """The client writes no more: neither do we, once what is written is gone."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone: tell the broker, free Proton's memory."""
        del exc
        self._closing = True
        shared = self._shared
        shared.connections.discard(self)
        shared.opened.discard(self)
        self.claims.close()
        for timer in (self._open_timer, self._heartbeat, self._last_timer):
            if timer is not None:
                timer.cancel()
        for link in list(self.links.values()):
            self._gone(link)
        self.links.clear()
        self.nodes.clear()
        self.scopes.clear()
        self.outcomes.clear()
        self._to_free.clear()
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.free()
        self._log.debug("connection closed")
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
        header, rest = sasl.rest[:8], sasl.rest[8:]
        self._engine.push(header)
        return rest

    def _input(self, data: bytes) -> None:
        engine = self._engine
        if engine is None:
            return
        if self._flush_scheduled:  # a flow in `data` must not take back the credit of what is about to be written
            self._flush()
        run_events(engine, self.links, self._control)  # what is left from writing must not see what `data` changes
        for piece, kind in self._reader.feed(data):
            taken = self._push_alone(engine, piece, kind) if kind else engine.push(piece)
            run_events(engine, self.links, self._control)
            if kind is Kind.BEGIN:
                engine.process()
            if not taken:
                break
        if self.partial_bytes > self.limits.partial_bytes_max:
            self._fail(BrokerError(Condition.RESOURCE_LIMIT_EXCEEDED, "Too many bytes of unfinished deliveries."))

    def _push_alone(self, engine: Engine, piece: bytes, kind: Kind) -> bool:
        """Push a frame that needs more than Proton: what it causes is the next event."""
        run_events(engine, self.links, self._control)
        channel = int.from_bytes(piece[6:8], "big")
        if kind is Kind.MALFORMED:
            raise BrokerError(Condition.DECODE_ERROR, "A performative is malformed.")
        if kind is Kind.BEGIN and self._drains.session_on(channel) is not None:
            raise BrokerError(Condition.NOT_ALLOWED, f"There is an AMQP session on channel {channel} already.")
        if kind is Kind.OPEN and PADDED_PRODUCT.encode() in piece:
            # Old Python clients get longer frames than Proton makes: have it leave room [wire 0, rule 1].
            piece = with_lower_frame_size(piece, PADDING_BYTES_MAX)
        taken = engine.push(piece)
        if kind is Kind.BEGIN:
            session = proton.session_of_next(engine)
            if session is not None:
                self._drains.began(channel, session)
        elif kind is Kind.BATCH:
            link = link_of_next(engine, PN_DELIVERY, self.links)
            if link is not None:
                link.batch = True
        elif kind is Kind.ASKS:
            link = link_of_next(engine, PN_LINK_FLOW, self.links)
            session = self._drains.session_on(channel)
            if link is not None:
                link.asked = True
            elif session is not None:
                proton.send_session_flow(session)
        return taken

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
        if self._to_free:
            self._free_ended()
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
        drained: list[tuple[Pointer, int]] = []
        if self.drained:
            engine.process()  # transfers come before the answer to a drain
            links, self.drained = self.drained, []
            for link in links:
                if link.pointer not in self.links:
                    continue
                if link.has_queued():
                    self.drained.append(link)
                else:
                    drained.append((link.pointer, link.count))
                    proton.send_session_flow(proton.session_of(link.pointer))
        chunks = engine.output()
        if drained or self._padder is not None or self._drains.is_curious() or self._reader.renumbers:
            output = b"".join(chunks)
            self._drains.look(output)
            output = self._drains.answer(output, drained, self._reader.ids)
            chunks = [self._padder.feed(output) if self._padder is not None else output]
        for chunk in chunks:
            self._write(chunk)

    def _watch_pending(self) -> None:
        """Read from the socket only while not too much waits for its outcome."""
        transport, pending_max = self._transport, self.limits.pending_bytes_max
        if transport is None:
            return
        if self._reading_paused and self.pending_bytes * 2 <= pending_max:
            self._reading_paused = False
            transport.resume_reading()
        elif not self._reading_paused:
            self._reading_paused = True
            transport.pause_reading()

    def _free_ended(self) -> None:
        """Free what is closed on both sides: the frames that say so are written."""
        to_free, self._to_free = self._to_free, []
        for free, pointer in to_free:
            free(pointer)
        engine = self._engine
        if engine is not None:
            rest = without_dispositions(b"".join(engine.output()))
            self._write(self._padder.feed(rest) if self._padder is not None else rest)

    # ---- trouble

    def crash(self, error: BaseException) -> None:
        """Close because of an exception: bytes that are no AMQP are the client's fault, all else is ours."""
        if isinstance(error, BrokerError):
            self._fail(error)
        elif isinstance(error, UnicodeDecodeError):
            self._fail(BrokerError(Condition.DECODE_ERROR, "A text is not UTF-8."))
        else:
            self._log.error("connection failed", exc_info=error)
            self._fail(BrokerError(Condition.INTERNAL_ERROR, "The connection failed; the log knows why."))

    def _fail(self, error: BrokerError) -> None:
        """Say why, then close; the client has a moment to read it."""
        if self._failed:
            self._close_socket()
            return
        self._failed = True
        engine = self._engine
        if engine is None or self._transport is None:
            self._close_socket()
            return
        try:
            for link in list(self.links.values()):
                self._gone(link)
            self.links.clear()
            engine.close(error)
            self._write_output(engine)
        except Exception as again:
            self._log.error("closing failed", exc_info=again)
        self._last_timer = self._loop.call_later(self.limits.close_wait_s, self._close_socket)

    def _too_slow(self) -> None:
        if not self._opened:
            self._log.debug("connection was not opened in time")
            self._close_socket()

    def run(self, work: Awaitable[None]) -> None:
        """Run work to its end; whatever it raises closes the connection."""
        task = self._loop.create_task(_awaited(work))
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

    def _on_open(self, event: Pointer) -> None:
        del event
        engine = self._engine
        if engine is None or self._opened:
            return
        self._opened = True
        if wants_padding(engine.peer_properties()):
            self._padder = FramePadder()
        engine.open(self._shared.container)
        shared = self._shared
        if shared.connections_max is not None and len(shared.opened) >= shared.connections_max:
            self._log.warning("connection refused: the quota is reached", connections_max=shared.connections_max)
            raise sentences.connections_quota_exceeded(shared.container, shared.connections_max)
        shared.opened.add(self)
        if engine.idle_timeout_ms:
            interval_s = max(engine.idle_timeout_ms / 4000, self.limits.heartbeat_interval_s_min)
            self._heartbeat = self._loop.call_later(interval_s, self._beat, interval_s)
        self._log.debug("connection opened", client=engine.peer_container(), padded=self._padder is not None)

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

    def _on_begin(self, event: Pointer) -> None:
        self._require_open()
        self._end_first()
        proton.open_session(lib.pn_event_session(event))

    def _require_open(self) -> None:
        if not self._opened:
            raise BrokerError(Condition.NOT_ALLOWED, "The first frame of a connection must be its open.")

    def _end_first(self) -> None:
        """Let the ends of what has just ended come before what begins: a channel or a name may be used again."""
        if self._to_free and self._engine is not None:
            self._engine.process()

    def _on_end(self, event: Pointer) -> None:
        session = lib.pn_event_session(event)
        for pointer in self._links_of.pop(session, ()):
            self._half_closed.discard(pointer)
            self._drains.detached(pointer)
            link = self.links.pop(pointer, None)
            if link is not None:
                self._gone(link)
        self.scopes.pop(session, None)
        self._drains.ended(session)
        proton.close_session(session)
        self._to_free.append((proton.free_session, session))

    def _on_attach(self, event: Pointer) -> None:
        self._require_open()
        if len(self._half_closed) >= self.limits.links_max:
            raise BrokerError(Condition.RESOURCE_LIMIT_EXCEEDED, "Too many links that only we have closed.")
        self._end_first()
        pointer = lib.pn_event_link(event)
        request = proton.read_attach(pointer)
        self._links_of.setdefault(proton.session_of(pointer), set()).add(pointer)
        try:
            if len(self.links) >= self.limits.links_max:
                raise BrokerError(
                    Condition.RESOURCE_LIMIT_EXCEEDED, f"At most {self.limits.links_max} links per connection."
                )
            faults = self._shared.faults
            if faults is not None and faults.are_set:
                faults.attaching(self, request)
            kind, link = attach(self, pointer, request)
        except BrokerError as error:
            proton.refuse_link(pointer, error)
            self._half_closed.add(pointer)
            self._note("link refused", request, reason=str(error))
            return
        self.links[pointer] = link
        if faults is not None and faults.are_set:
            faults.attached(self)
        self._drains.attached(pointer, proton.session_of(pointer), request.name, sends=request.sends)
        self._note("link attached", request, kind=kind)

    def _note(self, event: str, request: AttachRequest, **more: Any) -> None:
        entity = parse_address(request.address).entity
        self._log.debug(event, link=request.name, entity=entity, address=request.address, sends=request.sends, **more)

    def _on_detach(self, event: Pointer) -> None:
        self._detached(lib.pn_event_link(event), proton.detach_link)

    def _on_link_close(self, event: Pointer) -> None:
        self._detached(lib.pn_event_link(event), proton.close_link)

    def _detached(self, pointer: Pointer, answer: Callable[[Pointer], None]) -> None:
        """The client detaches: the answer is of the same kind; nothing if we were first."""
        self._half_closed.discard(pointer)
        self._links_of.get(proton.session_of(pointer), set()).discard(pointer)
        link = self.links.pop(pointer, None)
        if link is not None:
            self._gone(link)
            self._drains.detached(pointer)
            self._log.debug("link detached", link=proton.link_name(pointer), entity=_entity_of(pointer))
        if proton.is_link_attached(pointer):
            answer(pointer)
        self._to_free.append((proton.free_link, pointer))

    def detach(self, pointer: Pointer, error: BrokerError) -> None:
        """Close a link from our side; the client's answer frees it."""
        link = self.links.pop(pointer, None)
        if link is not None and self._engine is not None:
            self._gone(link)
            self._drains.detached(pointer)
            self._half_closed.add(pointer)
            if proton.is_link_held(pointer):
                proton.refuse_link(pointer, error)
            elif proton.is_link_attached(pointer):  # else we have closed it before
                proton.close_link(pointer, error)
            name, entity = proton.link_name(pointer), _entity_of(pointer)
            self._log.debug("link detached by us", link=name, entity=entity, reason=str(error))
            self.schedule_flush()

    def _claims_expired(self) -> None:
        """Close every link that the claims that are left don't cover [wire 1.7]."""
        for pointer, link in list(self.links.items()):
            try:
                for need in link.needs:
                    self.claims.require(need)
            except BrokerError as error:
                # Like the service: SDKs come back from a forced detach with a new token, and not from unauthorized.
                text = f"The link '{proton.link_name(pointer)}' is force detached. Code: RenewToken. Details: "
                self.detach(pointer, BrokerError(Condition.DETACH_FORCED, text + error.description))

    def accepted_late(self, pointer: Pointer, request: AttachRequest) -> None:
        """An attach that was held has been answered; the answer is still to be written."""
        faults = self._shared.faults
        if faults is not None and faults.are_set:
            faults.attached(self)
        self._drains.attached(pointer, proton.session_of(pointer), request.name, sends=request.sends)
        self._note("message session granted", request)
        self.schedule_flush()

    def _gone(self, link: Link) -> None:
        try:
            link.gone()
        except Exception as error:
            self._log.error("ending a link failed", exc_info=error)

    def _on_input_end(self, event: Pointer) -> None:
        """Proton takes no more input: it found an error, or a frame that it doesn't know."""
        del event
        engine = self._engine
        if engine is not None and not self._failed and not engine.is_peer_closed():
            problem = engine.transport_error() or "The frame is not one that is expected here."
            self._log.debug("input ended", problem=problem)
            self._fail(BrokerError(Condition.DECODE_ERROR, problem))


def _entity_of(pointer: Pointer) -> str:
    return parse_address(proton.read_attach(pointer).address).entity


async def _awaited(work: Awaitable[None]) -> None:
    await work


_CONTROL: Final[dict[int, Callable[[Connection, Pointer], None]]] = {
    int(lib.PN_CONNECTION_REMOTE_OPEN): Connection._on_open,
    int(lib.PN_CONNECTION_REMOTE_CLOSE): Connection._on_close,
    int(lib.PN_SESSION_REMOTE_OPEN): Connection._on_begin,
    int(lib.PN_SESSION_REMOTE_CLOSE): Connection._on_end,
    int(lib.PN_LINK_REMOTE_OPEN): Connection._on_attach,
    int(lib.PN_LINK_REMOTE_CLOSE): Connection._on_link_close,
    int(lib.PN_LINK_REMOTE_DETACH): Connection._on_detach,
    int(lib.PN_TRANSPORT_TAIL_CLOSED): Connection._on_input_end,
}
