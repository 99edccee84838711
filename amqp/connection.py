"""One client connection: bytes between the socket and the AMQP layer, and the order in which things happen.

SASL comes first, then input in this connection's turns; once per turn of the event loop the outcomes that gathered go
to Proton, then Proton's output to the socket. Knows opening, heartbeats and closing. Does not know frames, links and
entities (`links`). Owns its AMQP layer and claims; ends them in `connection_lost`. No exception leaves this module: it
closes this connection.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Awaitable, Iterator, Mapping
from typing import Final, cast

from ..broker.clock import Timer
from ..broker.errors import BrokerError, Condition, decode_refusal
from ..broker.ledger import MemoryAccount, Use
from ..broker.turns import Account
from ..codec.errors import DecodeError
from ..codec.frames import EMPTY_FRAME
from .heartbeat import Heartbeat
from .injection.path import Path
from .limits import KIB
from .link_context import LinkContext
from .links.amqp_layer import AmqpLayer
from .server_state import ServerState
from .watch import Watch
from .wire.clients import wants_padding, wants_pause
from .wire.engine import AttachRequest, Pointer, lib
from .wire.frames import FRAMES_MAX
from .wire.sasl import SaslServer, Stage

MEASURED_BYTES: Final = 8 * KIB
CHORES_MAX: Final = 2
"""One that is under way, and one behind it that sees what has changed since."""


class Connection(LinkContext, asyncio.Protocol):
    """See the module. `number` identifies it in the log."""

    def __init__(self, server: ServerState, number: int, account: MemoryAccount) -> None:
        shared = server.broker, server.access, server.clock, server.limits, server.conditions, server.aside
        super().__init__(*shared, number, account)
        self._server = server
        self._loop = asyncio.get_running_loop()
        # from the socket on
        self._transport: asyncio.Transport | None = None
        self._path: Path | None = None  # while conditions are on
        self._sasl: SaslServer | None = SaslServer(
            self.claims.show_key,
            verifies=server.access.verify,
            frame_bytes_max=server.limits.sasl_frame_bytes_max,
        )
        self._unread = b""
        self._open_timer: Timer | None = None
        # from the AMQP header on
        self._layer: AmqpLayer | None = None
        self._flush_scheduled = False
        self._work: set[asyncio.Task[None]] = set()
        self.account = Account()
        """What the work for this connection costs the loop."""
        self._portion = self.limits.portion_frames  # of the next go
        self._chores: deque[Iterator[None]] = deque()  # what goes over all links, and comes before input
        # from the client's open on
        self._opened = False
        self._heartbeat: Heartbeat | None = None
        # the end
        self._failed = False
        self._closing = False
        self._lost = False
        self._ignored_bytes = 0
        self._last_timer: Timer | None = None

    # ---- the socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client is here; it has a limited time to open."""
        self._transport = cast("asyncio.Transport", transport)
        if self.conditions.are_on and not self.conditions.accepts(self.number):
            self._transport.abort()
        self._transport.set_write_buffer_limits(high=self.limits.write_buffer_bytes_max)
        sock = self._transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # we advertise no idle time-out [wire 1.3]
        self.flow.connect(self._transport)
        self._server.admit(self)
        account = self.memory
        account.enter(Use.INPUT, lambda: len(self._unread))
        account.enter(Use.OUTPUT, self._unwritten_bytes)
        account.move_to(self)
        if not self.is_stranger:
            account.identify(account.host)
        self._open_timer = self.clock.call_after(self.limits.open_wait_ms, self._on_open_overdue)

    def data_received(self, data: bytes) -> None:
        """Handle input in this connection's turns, and write the answers."""
        if self.watch is not None:
            self.watch.heard()
        if self._path is None:
            self._take(data)
        else:
            self._path.carry(data, inward=True)

    def _take(self, data: bytes) -> None:
        if self._failed or self._closing:
            self._ignore(len(data))
            return
        if self._unread:  # a turn will come
            self._unread += data
            self.memory.grew(len(data))
            return
        if self._opened and self._layer is not None and self._layer.ignores(data):
            return
        self._unread = data
        if self._server.turns.take(self):
            self.flow.update_reading(has_unread=bool(self._unread) or self._has_left)
        self.memory.grew(len(data))

    def _ignore(self, size_bytes: int) -> None:
        """Input behind our close is not read for long: a flood would cost as much as before."""
        self._ignored_bytes += size_bytes
        if self._ignored_bytes > self.limits.ignored_bytes_max:
            self.flow.stop_reading(self._transport)

    def work_off(self, until_us: int) -> bool:
        """Do chores and handle input until that instant of the stopwatch, at least a step; whether there is more."""
        # Not what was computed, which costs 3.4 us to read: with 16 messages in a read that was 5 % of a message.
        stopwatch_us = self.clock.stopwatch_us
        if self._chores and not self._do_chores(until_us):
            return True
        if self._lost:
            return False
        data, at = self._unread, 0
        try:
            is_measured = len(data) > MEASURED_BYTES  # small input is not cut
            while (at < len(data) or self._has_left) and not self._failed and not self._closing:
                size = self._chunk_bytes()
                chunk = data[at : at + size] if at or len(data) > size else data
                at += len(chunk)
                began_us = stopwatch_us() if is_measured else 0
                if self._sasl is not None:
                    chunk = self._handshake(self._sasl, chunk)
                if chunk or self._has_left:
                    at -= len(self._input(chunk, until_us))
                if at < len(data) or self._has_left:
                    now_us = stopwatch_us()
                    if is_measured:
                        self._fit_portion(now_us - began_us)
                    if now_us >= until_us:
                        break
            self._flush()
        except Exception as error:
            self.crash(error)
        self._unread = b"" if self._failed or self._closing else data[at:]
        if self.flow.is_reading_stopped:
            self.flow.update_reading(has_unread=bool(self._unread) or self._has_left)
        if self._chores:
            self._do_chores(until_us)
        return bool(self._unread or self._chores or self._has_left)

    @property
    def _has_left(self) -> bool:
        """Whether frames are under way that have been taken out of `_unread`."""
        return self._layer is not None and self._layer.has_left and not self._failed and not self._closing

    def _chunk_bytes(self) -> int:
        """How much input is handled in one go."""
        limits = self.limits
        if self.is_stranger:
            return limits.stranger_chunk_bytes_max
        return min(limits.chunk_bytes_max, self._portion * KIB)

    def _fit_portion(self, took_us: int) -> None:
        """A go took that long, and there is more input: let the next one take neither much longer nor much less.

        On a busy machine a go seems to take longer, and the next ones are smaller than they could be: a message then
        costs a twentieth more.
        """
        if took_us < self.limits.short_go_us:
            self._portion = min(FRAMES_MAX, self._portion * 2)
        elif took_us > self.limits.long_go_us:
            self._portion = max(1, self._portion // 4)

    def _do_chores(self, until_us: int) -> bool:
        """Do what goes over all links; whether all of it is done."""
        chores, stopwatch_us = self._chores, self.clock.stopwatch_us
        while chores:
            try:
                for _ in chores[0]:
                    if stopwatch_us() >= until_us:
                        return False
            except Exception as error:
                self.crash(error)
            chores.popleft()
        return True

    def eof_received(self) -> bool | None:
        """The client writes no more: neither do we, once what is written is gone."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone: free what was kept, in turns, since it may be thousands of links."""
        del exc
        if self._lost:
            return
        self._closing = self._lost = True
        self._transport = None
        self._unread = b""
        self.flow.disconnect()
        self._server.lost(self)
        self.claims.close()
        if self._path is not None:
            self._path.close()
        for timer in (self._open_timer, self._last_timer):
            if timer is not None:
                timer.cancel()
        self._stop_heartbeat()
        self._do_soon(self._free())

    def _free(self) -> Iterator[None]:
        """Report the end to the broker, free Proton's memory."""
        layer = self._layer
        if layer is not None:
            yield from layer.endpoints.lose()
            self._layer = None
            self.memory.close()  # its gauges ask Proton
            layer.free()
        self.memory.close()
        self.answered.clear()
        self.log.debug("connection closed")
        self._server.freed(self)

    def _do_soon(self, chore: Iterator[None]) -> None:
        """Do something that goes over all links, in this connection's turns."""
        self._chores.append(chore)
        self._server.turns.take(self)

    def pause_writing(self) -> None:
        """The socket takes no more: leave output in Proton and take no more messages from the broker."""
        self.flow.block()
        self._hold_links()

    def _hold_links(self) -> None:
        for link in self.links.values():
            link.hold()

    def resume_writing(self) -> None:
        """The socket takes more again."""
        self.flow.unblock()
        self.schedule_flush()

    def _unwritten_bytes(self) -> int:
        """Output that the socket has not taken, or that is late on purpose."""
        late_bytes = 0 if self._path is None else self._path.held_bytes
        return late_bytes if self._transport is None else late_bytes + self._transport.get_write_buffer_size()

    # ---- what the ledger asks for

    @property
    def is_idle(self) -> bool:
        """Whether no input waits for its turn."""
        return not self._unread

    def hold(self) -> None:
        """Read nothing more from the client, and take no more messages for it from the broker."""
        self.flow.hold_all(has_unread=bool(self._unread))
        self._hold_links()

    def go_on(self) -> None:
        """Read and take messages again."""
        self.flow.go_on(has_unread=bool(self._unread))
        self.schedule_flush()

    def expel(self, error: BrokerError) -> None:
        """Close because of what is held for the client."""
        self.close(error)

    def cut(self) -> None:
        """Close at once."""
        self.abort()

    def _write(self, data: bytes) -> None:
        if self._path is None:
            self._put(data)
        elif data:
            self._path.carry(data, inward=False)

    def _put(self, data: bytes) -> None:
        if self._transport is not None and data:
            if self._heartbeat is not None:
                self._heartbeat.wrote()
            self._transport.write(data)

    # ---- conditions

    @property
    def is_websocket(self) -> bool:
        """Whether the connection goes over a WebSocket."""
        return self._transport is not None and bool(self._transport.get_extra_info("websocket"))

    def observe(self, watch: Watch | None) -> None:
        """While uses are noted, conditions see the bytes, too."""
        super().observe(watch)
        self.release_bytes()
        ways = self._take, self._put, self._held, self.abort
        self._path = None if watch is None else Path(self.conditions, self.clock, self.number, *ways)

    def release_bytes(self) -> None:
        """Let bytes that are held on purpose pass at once."""
        if self._path is not None:
            self._path.release()

    def _held(self, is_full: bool, inward: bool) -> None:
        if inward:
            self.flow.update_reading(has_unread=is_full or bool(self._unread))
        else:
            (self.pause_writing if is_full else self.resume_writing)()

    # ---- input

    def _handshake(self, sasl: SaslServer, data: bytes) -> bytes:
        """The SASL layer; returns the bytes behind the AMQP header."""
        self._write(sasl.feed(data))
        if sasl.stage is Stage.REFUSED:
            self._close_socket()
        if sasl.stage is not Stage.DONE:
            return b""
        self._sasl = None
        self._layer = AmqpLayer(
            self,
            self._server.faults,
            {
                int(lib.PN_CONNECTION_REMOTE_OPEN): self._on_open,
                int(lib.PN_CONNECTION_REMOTE_CLOSE): self._on_close,
                int(lib.PN_TRANSPORT_TAIL_CLOSED): self._on_input_end,
            },
        )
        header, rest = sasl.rest[:8], sasl.rest[8:]
        self._layer.feed_header(header)
        return rest

    def _input(self, data: bytes, until_us: int) -> bytes:
        """Handle frames; return the end of `data` if that is to be handled in another go."""
        if self._layer is None:
            return b""
        if self._flush_scheduled:  # write pending transfers first: a flow in `data` may lower the credit that they had
            self._flush()
        return self._layer.feed(data, self._portion, until_us)

    # ---- from outcomes to bytes

    def schedule_flush(self) -> None:
        """Flush once at the end of this turn of the event loop, however often it is asked for."""
        if not self._flush_scheduled and self._layer is not None:
            self._flush_scheduled = True
            self._loop.call_soon(self._scheduled_flush)

    def _scheduled_flush(self) -> None:
        if self._flush_scheduled and not self._closing:
            is_counted = self._server.turns.is_contended
            began_us = self.clock.computed_us() if is_counted else 0
            try:
                self._flush()
            except Exception as error:
                self.crash(error)
            if is_counted:
                self._server.turns.charge(self, self.clock.computed_us() - began_us)

    def _flush(self) -> None:
        """Apply outcomes, write output, let the links that were held go on."""
        self._flush_scheduled = False
        layer = self._layer
        if layer is None:
            return
        if self.answered:
            self.finish_runs()
        if self.memory.is_held:
            self.memory.read()
        if self.flow.is_full:
            return
        self._write_output(layer)
        self._write(layer.output_of_freed())
        if layer.engine.ended and not self._failed:
            self._close_socket()
        self.flow.resume_held()

    def _write_output(self, layer: AmqpLayer) -> None:
        for chunk in layer.output():
            self._write(chunk)

    def confirm(self) -> None:
        """Write the outcomes that have gathered before whatever is sent from now on."""
        if self._layer is not None and not self._failed:
            if self.answered:
                self.finish_runs()
            self._layer.engine.process()

    # ---- opening

    def _on_open_overdue(self) -> None:
        if not self._opened:
            self.log.debug("connection was not opened in time")
            self._close_socket()

    def _on_open(self, event: Pointer) -> None:
        del event
        layer, server, limits = self._layer, self._server, self.limits
        if layer is None or self._opened:
            return
        self._opened = True
        engine = layer.engine
        properties = engine.peer_properties()
        is_padded = wants_padding(properties)
        if is_padded:
            layer.pad()
        layer.endpoints.opened(refusal_pause_ms=limits.refusal_pause_ms if wants_pause(properties) else 0)
        self.opened_by(engine.peer_container(), properties)
        refusal = server.jms_refusal if self.is_jms_library else None
        engine.open(server.container, server.capabilities, refused=refusal is not None)
        if refusal is not None:
            self.broker.lines.write(self.log.warning, "connection refused: JMS 2.0 client", reason=str(refusal))
            raise refusal
        server.open(self)
        if engine.idle_timeout_ms:
            interval_ms_min = limits.heartbeat_interval_ms_min
            self._heartbeat = Heartbeat(self.clock, engine.idle_timeout_ms, interval_ms_min, self._beat)
        self._introduce(engine.peer_container(), properties)
        self.log.debug("connection opened", client=engine.peer_container(), padded=is_padded)

    def _introduce(self, container: str | None, properties: Mapping[str, object]) -> None:
        peer = None if self._transport is None else self._transport.get_extra_info("peername")
        self.client["peer"] = f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) and len(peer) > 1 else ""
        self.client["container"] = container or ""
        for name in ("product", "version"):
            value = properties.get(name)
            self.client[name] = str.__str__(value) if isinstance(value, str) else ""

    def _beat(self) -> None:
        """Write an empty frame: nothing else was written for a while."""
        if not self.flow.is_full:
            self._write(EMPTY_FRAME)

    def _stop_heartbeat(self) -> None:
        if self._heartbeat is not None:
            self._heartbeat.stop()

    # ---- closing

    def _on_close(self, event: Pointer) -> None:
        del event
        if self._layer is not None:
            self._layer.engine.close()

    def _on_input_end(self, event: Pointer) -> None:
        """Proton takes no more input: it found an error, or a frame that it doesn't know."""
        del event
        engine = None if self._layer is None else self._layer.engine
        if engine is not None and not self._failed and not engine.is_peer_closed():
            problem = engine.transport_error() or "The frame is not one that is expected here."
            self.log.debug("input refused by Proton", problem=problem)
            self._fail(BrokerError(Condition.DECODE_ERROR, problem))

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

    def close(self, error: BrokerError) -> None:
        """Close in good order: `close` with `error`, then the socket."""
        if self._layer is None or not self._opened:
            self._close_socket()
        elif not self._failed:
            self._fail(error)

    def _fail(self, error: BrokerError) -> None:
        """Write a close with `error`; the client has a moment to read it."""
        if self._failed:
            self._close_socket()
            return
        self._failed = True
        self._stop_heartbeat()
        self.broker.lines.write(self.log.info, "connection closed by us", reason=str(error))
        layer = self._layer
        if layer is None or self._transport is None:
            self._close_socket()
            return
        try:
            layer.fail(self.tracker.closed(error))
            self._write_output(layer)
        except Exception as again:
            self.log.error("closing failed", exc_info=again)
        self._last_timer = self.clock.call_after(self.limits.close_wait_ms, self._close_socket)
        self._do_soon(layer.endpoints.lose())

    def _close_socket(self) -> None:
        """Close once what was written is gone, or in a while if the client doesn't read."""
        if not self._closing and self._transport is not None:
            if self._path is not None:
                self._path.release_output()
            self._closing = True
            self._stop_heartbeat()
            self.flow.disconnect()
            self._transport.close()
            if self._last_timer is not None:
                self._last_timer.cancel()
            self._last_timer = self.clock.call_after(self.limits.close_wait_ms, self.abort)

    def abort(self) -> None:
        """Close at once."""
        self._closing = True
        self._stop_heartbeat()
        self.flow.disconnect()
        if self._transport is not None:
            self._transport.abort()

    # ---- what links ask for

    def detach(self, pointer: Pointer, error: BrokerError) -> None:
        """Close a link from our side; the client's answer frees it."""
        if self._layer is not None:
            self._layer.endpoints.detach(pointer, error)

    def accepted_late(self, pointer: Pointer, request: AttachRequest) -> None:
        """An attach that was held has been answered."""
        if self._layer is not None:
            self._layer.endpoints.accepted_late(pointer, request)

    def claims_expired(self) -> None:
        """Close the links that the claims that are left don't cover."""
        if self._layer is not None and len(self._chores) < CHORES_MAX:
            self._do_soon(self._layer.endpoints.check_claims())

    def run(self, work: Awaitable[None]) -> None:
        """Run work to its end; whatever it raises closes the connection."""
        task = self._loop.create_task(self._server.turns.run(self, work))
        self._work.add(task)
        task.add_done_callback(self._worked)

    def _worked(self, task: asyncio.Task[None]) -> None:
        self._work.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not self._closing:
            self.crash(error)
