"""One client connection: bytes between the socket and its frames, and the order in which things happen.

SASL comes first, then input in this connection's turns; once per turn of the event loop the outcomes that gathered go
to Proton, then Proton's output to the socket. Knows opening, heartbeats and closing. Does not know frames, links and
entities (`links`). Owns the context of its links and the exchange of frames; ends them in `connection_lost`. No
exception leaves this module: it closes this connection.

A lone message takes this way in, and its outcome the other way out:

    data_received > turns.take > work_off > frames.feed > the broker     (and back) schedule_flush > _flush > socket

What is rare has a guard where it begins, not where a message passes: `_small_bytes` follows from whether the client is
known, `frames.has_left`, `endpoints.has_ended` and `flow.waiting` are set by their causes.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Awaitable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Final, cast

from ..broker.clock import Timer
from ..broker.errors import BrokerError, Condition, decode_refusal
from ..broker.ledger import MemoryAccount, Use
from ..broker.turns import Account
from ..codec.errors import DecodeError
from ..codec.frames import AMQP_HEADER, EMPTY_FRAME
from .heartbeat import Heartbeat
from .injection.path import Path
from .limits import KIB
from .link_context import LinkContext
from .links.frame_exchange import FrameExchange
from .server_state import Choose, ServerState
from .watch import Watch
from .wire.clients import application_of, wants_padding, wants_pause
from .wire.engine import AttachRequest, Pointer, lib
from .wire.flow import FEW_BUFFERS_BYTES
from .wire.frame_reader import FRAMES_MAX
from .wire.opening import host_opened
from .wire.sasl import SaslServer, Stage

MEASURED_BYTES: Final = 8 * KIB
CHORES_MAX: Final = 2
"""One that is under way, and one behind it that sees what has changed since."""


class Connection(asyncio.Protocol):
    """See the module. `number` identifies it in the log; `context` is what its links know of it.

    It is a `Requests` for these, a `ledger.Holder` and a `turns.Worker`.
    """

    def __init__(self, server: ServerState, number: int, account: MemoryAccount, choose: Choose | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        # what everything has from here
        self._limits, self._clock, self._memory = server.limits, server.clock, account
        self._serve_for(server, number)
        # from the socket on
        self._transport: asyncio.Transport | None = None
        self._path: Path | None = None  # while conditions are on
        self._sasl: SaslServer | None = SaslServer(
            self._show_key,
            verifies=server.access.verify,
            frame_bytes_max=server.limits.sasl_frame_bytes_max,
        )
        self._keys_shown: list[tuple[str, str]] = []
        self._unread = b""
        self._open_timer: Timer | None = None
        # from the AMQP header on
        self._reached = choose  # where the client has come to another namespace, which isn't open yet
        self._choose: Choose | None = None  # while the client's open is awaited, which names a namespace
        self._front = b""  # what has come of the open, and behind it while the namespace is opened
        self._opening: asyncio.Future[ServerState] | None = None
        self._refusal: BrokerError | None = None  # of the namespace
        self._frames: FrameExchange | None = None
        self._flush_scheduled = False
        self._flush_follows = False  # in this turn of ours
        self._work: set[asyncio.Task[None]] = set()
        self.account = Account()
        """What the work for this connection costs the loop."""
        self._portion = self._limits.portion_frames  # of the next go
        self._chores: deque[Iterator[None]] = deque()  # what goes over all links, and comes before input
        # from the client's open on
        self._opened = False
        self._heartbeat: Heartbeat | None = None
        # the end
        self._failed = False
        self._closing = False  # input counts for nothing
        self._lost = False
        self._ignored_bytes = 0
        self._last_timer: Timer | None = None

    def _serve_for(self, server: ServerState, number: int) -> None:
        """Let the client have what is that server's."""
        self._server, self._conditions = server, server.conditions
        self._turn_end = server.broker.turn_end
        shared = server.broker, server.access, server.clock, server.limits, server.conditions, server.aside
        self.context = LinkContext(self, *shared, number, self._memory)
        self._flow, self._log = self.context.wire.flow, self.context.log
        self._flow.buffers = server.buffers
        self.is_stranger = server.access.verify
        """Whether the client has yet to show a valid token or key."""
        self._chunk_bytes_max = (
            self._limits.stranger_chunk_bytes_max if self.is_stranger else self._limits.chunk_bytes_max
        )
        self._small_bytes = min(self._chunk_bytes_max, MEASURED_BYTES)  # input that is not cut

    # ---- the socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client is here; it has a limited time to open."""
        self._transport = cast("asyncio.Transport", transport)
        if self._conditions.are_on and not self._conditions.accepts(self.context.number):
            self._transport.abort()
        self._transport.set_write_buffer_limits(high=self._limits.write_buffer_bytes_max)
        sock = self._transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # we advertise no idle time-out [wire 1.3]
        self._flow.connect(self._transport)
        self._server.admit(self.context)
        account = self._memory
        account.enter(Use.INPUT, lambda: len(self._unread) + len(self._front))
        account.enter(Use.OUTPUT, self._unwritten_bytes)
        account.move_to(self)
        if not self.is_stranger:
            account.identify(account.host)
        self._open_timer = self._clock.call_after(self._limits.open_wait_ms, self._on_open_overdue)

    def data_received(self, data: bytes, *, is_carried: bool = False) -> None:
        """Handle input in this connection's turns, and write the answers; `is_carried`: it has come over the path."""
        if self._path is not None and not is_carried:
            watch = self.context.watch
            if watch is not None:
                watch.heard()
            self._path.carry(data, inward=True)
            return
        if self._failed or self._closing:
            self._ignore(len(data))
            return
        if self._unread:  # a turn will come
            self._unread += data
            self._memory.grew(len(data))
            return
        frames = self._frames
        if len(data) == len(EMPTY_FRAME) and self._opened and frames is not None and frames.ignores(data):
            return
        self._unread = data
        if self._server.turns.take(self):
            self._update_reading()
        self._memory.grew(len(data))

    def _ignore(self, size_bytes: int) -> None:
        """Input behind our close is not read for long: a flood would cost as much as before."""
        self._ignored_bytes += size_bytes
        if self._ignored_bytes > self._limits.ignored_bytes_max:
            self._flow.stop_reading(self._transport)

    def work_off(self, until_us: int) -> bool:
        """Do chores and handle input until that instant of the stopwatch, at least a step; whether there is more."""
        if self._chores and not self._do_chores(until_us):
            return True
        if self._lost:
            return False
        data, at, frames, flow, goes_on = self._unread, 0, self._frames, self._flow, True
        turn_end = self._turn_end if self._server.turns.is_alone else None
        if turn_end is not None:
            turn_end.promise_run()
        try:
            if frames is not None and 0 < len(data) <= self._small_bytes and not (self._failed or self._closing):
                if self._flush_scheduled:
                    self._flush()  # pending transfers: a flow in `data` may lower the credit that they had
                self._flush_follows = True
                at = len(data) - len(frames.feed(data, self._portion, until_us))
                goes_on = (at < len(data) or frames.has_left) and self._clock.stopwatch_us() < until_us
            if goes_on:
                at = self._handle_in_goes(data, at, until_us)
            if turn_end is not None:
                turn_end.run()
            if flow.pending_bytes + flow.unwritten_bytes + flow.partial_bytes > flow.kept_bytes:
                flow.measure()
            self._flush()
        except Exception as error:
            if self._flush_follows and self._flush_scheduled:
                self._loop.call_soon(self._flush_in_time)
            self._flush_follows = False
            if turn_end is not None:
                turn_end.run()
            self.crash(error)
        self._unread = b"" if self._failed or self._closing else data[at:]
        if flow.is_stopped or flow.kept_bytes > FEW_BUFFERS_BYTES:
            self._update_reading()
        if self._chores:
            self._do_chores(until_us)
        frames = self._frames  # behind SASL there are new ones
        return bool(self._unread or self._chores) or (frames is not None and frames.has_left and self._has_left())

    def _handle_in_goes(self, data: bytes, at: int, until_us: int) -> int:
        """Handle input from `at` on in goes that take about the same time; return how much of `data` is handled."""
        # Not what was computed, which costs 3.4 us to read: with 16 messages in a read that was 5 % of a message.
        stopwatch_us, is_measured = self._clock.stopwatch_us, len(data) > MEASURED_BYTES
        while (at < len(data) or self._has_left()) and not (self._failed or self._closing):
            began_us = stopwatch_us() if is_measured else 0
            size = min(self._chunk_bytes_max, self._portion * KIB)
            chunk = data if not at and len(data) <= size else data[at : at + size]
            at += len(chunk)
            if self._sasl is not None:
                chunk = self._handshake(self._sasl, chunk)
            elif self._choose is not None:
                chunk = self._await_name(self._choose, chunk)
            frames = self._frames
            if frames is not None and (chunk or frames.has_left):
                if self._flush_scheduled:
                    self._flush()
                at -= len(frames.feed(chunk, self._portion, until_us))
            if at < len(data) or self._has_left():
                now_us = stopwatch_us()
                if is_measured:
                    self._fit_portion(now_us - began_us)
                if now_us >= until_us:
                    break
        return at

    def _has_left(self) -> bool:
        """Whether frames are under way that have been taken out of `_unread`."""
        return self._frames is not None and self._frames.has_left and not (self._failed or self._closing)

    def _update_reading(self) -> None:
        self._flow.update_reading(has_unread=bool(self._unread) or self._has_left())

    def _fit_portion(self, took_us: int) -> None:
        """A go took that long, and there is more input: let the next one take neither much longer nor much less.

        On a busy machine a go seems to take longer, and the next ones are smaller than they could be: a message then
        costs a twentieth more.
        """
        if took_us < self._limits.short_go_us:
            self._portion = min(FRAMES_MAX, self._portion * 2)
        elif took_us > self._limits.long_go_us:
            self._portion = max(1, self._portion // 4)

    def _do_chores(self, until_us: int) -> bool:
        """Do what goes over all links; whether all of it is done."""
        chores, stopwatch_us = self._chores, self._clock.stopwatch_us
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
        if self._lost:
            return
        self._closing = self._lost = True
        self._transport = None
        self._unread = b""
        self._flow.disconnect()
        self._server.lost(self.context)
        self.context.claims.close()
        if self._path is not None:
            self._path.close()
        for timer in (self._open_timer, self._last_timer):
            if timer is not None:
                timer.cancel()
        self._stop_heartbeat()
        self._do_soon(self._free())

    def _free(self) -> Iterator[None]:
        """Report the end to the broker, free Proton's memory."""
        frames = self._frames
        if frames is not None:
            yield from frames.endpoints.lose()
            self._frames = None
            self._memory.close()  # its gauges ask Proton
            frames.free()
            self._flow.drop_buffers()
        self._memory.close()
        self.context.wire.answered.clear()
        self._log.debug("connection closed")
        self._server.freed(self.context)

    def _do_soon(self, chore: Iterator[None]) -> None:
        """Do something that goes over all links, in this connection's turns."""
        self._chores.append(chore)
        self._server.turns.take(self)

    def pause_writing(self) -> None:
        """The socket takes no more: leave output in Proton and take no more messages from the broker."""
        self._flow.block()
        self._hold_links()

    def _hold_links(self) -> None:
        for link in self.context.wire.links.values():
            link.hold()

    def resume_writing(self) -> None:
        self._flow.unblock()
        self.schedule_flush()

    def _unwritten_bytes(self) -> int:
        """Output that the socket has not taken, or that is late on purpose."""
        late_bytes = 0 if self._path is None else self._path.held_bytes
        return late_bytes if self._transport is None else late_bytes + self._transport.get_write_buffer_size()

    # ---- what the ledger asks for

    @property
    def is_idle(self) -> bool:
        return not self._unread

    def hold(self) -> None:
        self._flow.hold_all(has_unread=bool(self._unread))
        self._hold_links()

    def go_on(self) -> None:
        self._flow.go_on(has_unread=bool(self._unread))
        self.schedule_flush()

    def expel(self, error: BrokerError) -> None:
        """Close because of what is held for the client."""
        self.close(error)

    def cut(self) -> None:
        self.abort()

    def _write(self, data: bytes) -> None:
        if self._path is not None:
            self._path.carry(data, inward=False)
        else:
            self._put(data)

    def _put(self, data: bytes) -> None:
        if self._transport is not None:
            if self._heartbeat is not None:
                self._heartbeat.wrote()
            self._transport.write(data)

    # ---- conditions

    @property
    def is_websocket(self) -> bool:
        return self._transport is not None and bool(self._transport.get_extra_info("websocket"))

    def observe(self, watch: Watch | None) -> None:
        """While uses are noted, conditions see the bytes, too."""
        self.context.note_uses(watch)
        self.release_bytes()
        ways = partial(self.data_received, is_carried=True), self._put, self._held, self.abort
        self._path = None if watch is None else Path(self._conditions, self._clock, self.context.number, *ways)

    def release_bytes(self) -> None:
        if self._path is not None:
            self._path.release()

    def _held(self, is_full: bool, inward: bool) -> None:
        if inward:
            self._flow.update_reading(has_unread=is_full or bool(self._unread))
        else:
            (self.pause_writing if is_full else self.resume_writing)()

    # ---- input

    def _handshake(self, sasl: SaslServer, data: bytes) -> bytes:
        """The SASL layer; returns the bytes behind the AMQP header."""
        answer = sasl.feed(data)
        if answer:
            self._write(answer)
        if sasl.stage is Stage.REFUSED:
            self._close_socket()
        if sasl.stage is not Stage.DONE:
            return b""
        self._sasl = None
        header, rest = sasl.rest[: len(AMQP_HEADER)], sasl.rest[len(AMQP_HEADER) :]
        self._choose = self._reached or self._server.chooser()
        if self._choose is not None:
            self._write(AMQP_HEADER)  # some clients wait for it before they say what they want
            return self._await_name(self._choose, rest)
        self._begin_frames(header)
        return rest

    def _show_key(self, name: str, key: str) -> None:
        """Keep the key of SASL PLAIN, which comes before the name of the namespace."""
        self._keys_shown.append((name, key))
        self.context.claims.show_key(name, key)

    def _await_name(self, choose: Choose, data: bytes) -> bytes:
        """Wait for the client's open, and go to the namespace that it names; all input once it is there."""
        self._front += data
        host = None if self._opening is not None else host_opened(self._front, self._limits.frame_bytes_max)
        if host is None:
            return b""
        try:
            server = choose(host)
        except BrokerError as error:
            return self._begin_in(error)
        if isinstance(server, asyncio.Future):  # its stores are being opened: the disk has time
            self._opening = server
            server.add_done_callback(self._go_on_in)
            return b""
        return self._begin_in(server)

    def _go_on_in(self, opened: asyncio.Future[ServerState]) -> None:
        """The namespace that the client has named is open, or can't be opened: handle what has come meanwhile."""
        error = None if opened.cancelled() else opened.exception()
        self._opening = None
        if opened.cancelled() or self._lost or self._failed or self._closing:
            self._front = b""
            return
        if error is not None and not isinstance(error, BrokerError):
            self.crash(error)
            return
        front = self._begin_in(opened.result() if error is None else error)
        is_waiting = bool(self._unread)  # a turn will come
        self._unread = front + self._unread
        if not is_waiting and self._server.turns.take(self):
            self._update_reading()

    def _begin_in(self, found: ServerState | BrokerError) -> bytes:
        """Begin the engine in the namespace that the client has named, or in the one it reached; all input so far."""
        front, self._front, self._choose = self._front, b"", None
        if isinstance(found, BrokerError):
            self._refusal = found  # it is said in the close behind our open
        elif found is not self._server:
            self._move_to(found)
        self._begin_frames(AMQP_HEADER).skip_header()
        return front

    def _move_to(self, server: ServerState) -> None:
        """Be a connection of that server, as if the client had come there: nothing but keys has been said yet."""
        left, old = self._server, self.context
        old.claims.close()
        old.wire.flow.disconnect()
        left.lost(old)
        left.freed(old)
        self._serve_for(server, server.next_number())
        if self._transport is not None:
            self._flow.connect(self._transport)
        server.admit(self.context)
        if self._conditions.are_on and not self._conditions.accepts(self.context.number):
            self.abort()
        for name, key in self._keys_shown:
            with suppress(BrokerError):  # a wrong key opens nothing: the client's links are refused
                self.context.claims.show_key(name, key)

    def _begin_frames(self, header: bytes) -> FrameExchange:
        """Begin the exchange of frames with the client's header."""
        frames = self._frames = FrameExchange(
            self.context,
            self._server.faults,
            {
                int(lib.PN_CONNECTION_REMOTE_OPEN): self._on_open,
                int(lib.PN_CONNECTION_REMOTE_CLOSE): self._on_close,
                int(lib.PN_TRANSPORT_TAIL_CLOSED): self._on_input_end,
            },
        )
        frames.engine.push(header)
        return frames

    # ---- from outcomes to bytes

    def schedule_flush(self) -> None:
        """Flush once at the end of this turn of the event loop, however often it is asked for."""
        if not self._flush_scheduled and self._frames is not None:
            self._flush_scheduled = True
            if not self._flush_follows:
                self._loop.call_soon(self._flush_in_time)

    def _flush_in_time(self) -> None:
        """The end of the turn: flush, and count what that took while others wait."""
        if self._flush_scheduled and not self._closing:
            is_counted = self._server.turns.is_contended
            began_us = self._clock.computed_us() if is_counted else 0
            try:
                self._flush()
            except Exception as error:
                self.crash(error)
            if is_counted:
                self._server.turns.charge(self, self._clock.computed_us() - began_us)

    def _flush(self) -> None:
        """Apply outcomes, write output, let the links that were held go on."""
        self._flush_scheduled = self._flush_follows = False
        frames, flow, context = self._frames, self._flow, self.context
        if frames is None:
            return
        if context.wire.answered:
            context.wire.finish_runs()
        if self._memory.is_held:
            self._memory.read()
        if flow.is_full:
            return
        write = self._put if self._path is None else self._write
        for chunk in frames.output():
            write(chunk)
        if frames.endpoints.has_ended:
            freed = frames.output_of_freed()
            if freed:
                self._write(freed)
        if frames.engine.ended and not self._failed:
            self._close_socket()
        flow.unwritten_bytes = 0
        if flow.is_stopped:
            self._update_reading()
        if flow.waiting or flow.replies:
            flow.resume_held()

    def write_outcomes(self) -> None:
        """Write the outcomes that have gathered before what is sent from now on."""
        if self._frames is not None and not self._failed:
            if self.context.wire.answered:
                self.context.wire.finish_runs()
            self._frames.engine.process()

    # ---- opening

    def _on_open_overdue(self) -> None:
        if not self._opened:
            self._log.debug("connection was not opened in time")
            self._close_socket()

    def _on_open(self, event: Pointer) -> None:
        frames, server, limits = self._frames, self._server, self._limits
        if frames is None or self._opened:
            return
        self._opened = True
        engine = frames.engine
        properties = engine.peer_properties()
        is_padded = wants_padding(properties)
        if is_padded:
            frames.pad()
        frames.endpoints.opened(refusal_pause_ms=limits.refusal_pause_ms if wants_pause(properties) else 0)
        self.context.opened_by(engine.peer_container(), properties)
        if self._refusal is not None:
            engine.open(server.container, server.capabilities, refused=True)
            raise self._refusal
        refusal = server.jms_refusal if self.context.is_jms_library else None
        engine.open(server.container, server.capabilities, refused=refusal is not None)
        if refusal is not None:
            self.context.broker.lines.write(
                self._log.warning, "connection refused: JMS 2.0 client", reason=str(refusal)
            )
            raise refusal
        server.open(self.context)
        if engine.idle_timeout_ms:
            interval_ms_min = limits.heartbeat_interval_ms_min
            self._heartbeat = Heartbeat(self._clock, engine.idle_timeout_ms, interval_ms_min, self._beat)
        self._introduce(engine.peer_container(), properties)
        self._log.debug("connection opened", client=engine.peer_container(), padded=is_padded)

    def _introduce(self, container: str | None, properties: Mapping[str, object]) -> None:
        peer = None if self._transport is None else self._transport.get_extra_info("peername")
        self.context.client["peer"] = f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) and len(peer) > 1 else ""
        self.context.client["container"] = container or ""
        for name in ("product", "version"):
            value = properties.get(name)
            self.context.client[name] = str.__str__(value) if isinstance(value, str) else ""
        self.context.client["application"] = application_of(properties)

    def _beat(self) -> None:
        """Write an empty frame: nothing else was written for a while."""
        if not self._flow.is_full:
            self._write(EMPTY_FRAME)

    def _stop_heartbeat(self) -> None:
        if self._heartbeat is not None:
            self._heartbeat.stop()

    # ---- closing

    def _on_close(self, event: Pointer) -> None:
        if self._frames is not None:
            self._frames.engine.close()

    def _on_input_end(self, event: Pointer) -> None:
        """Proton takes no more input: it found an error, or a frame that it doesn't know."""
        engine = None if self._frames is None else self._frames.engine
        if engine is not None and not self._failed and not engine.is_peer_closed():
            problem = engine.transport_error() or "The frame is not one that is expected here."
            self._log.debug("input refused by Proton", problem=problem)
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
            self._log.error("connection failed", exc_info=error)
            self._fail(BrokerError(Condition.INTERNAL_ERROR, "The connection failed; the log knows why."))

    def close(self, error: BrokerError) -> None:
        """Close in good order: `close` with `error`, then the socket."""
        if self._frames is None or not self._opened:
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
        self.context.broker.lines.write(self._log.info, "connection closed by us", reason=str(error))
        frames = self._frames
        if frames is None or self._transport is None:
            self._close_socket()
            return
        try:
            frames.fail(self.context.tracker.closed(error))
            for chunk in frames.output():
                self._write(chunk)
        except Exception as again:
            self._log.error("closing failed", exc_info=again)
        self._last_timer = self._clock.call_after(self._limits.close_wait_ms, self._close_socket)
        self._do_soon(frames.endpoints.lose())

    def _close_socket(self) -> None:
        """Close once what was written is gone, or in a while if the client doesn't read."""
        if not self._closing and self._transport is not None:
            if self._path is not None:
                self._path.release_output()
            self._closing = True
            self._stop_heartbeat()
            self._flow.disconnect()
            self._transport.close()
            if self._last_timer is not None:
                self._last_timer.cancel()
            self._last_timer = self._clock.call_after(self._limits.close_wait_ms, self.abort)

    def abort(self) -> None:
        self._closing = True
        self._stop_heartbeat()
        self._flow.disconnect()
        if self._transport is not None:
            self._transport.abort()

    # ---- what links ask for

    def detach(self, pointer: Pointer, error: BrokerError) -> None:
        if self._frames is not None:
            self._frames.endpoints.detach(pointer, error)

    def accepted_late(self, pointer: Pointer, request: AttachRequest) -> None:
        if self._frames is not None:
            self._frames.endpoints.accepted_late(pointer, request)

    def identified(self, identity: str) -> None:
        """The client has shown a valid token or key: it is no stranger any more."""
        self._memory.identify(identity)
        self.is_stranger = False
        self._chunk_bytes_max = self._limits.chunk_bytes_max
        self._small_bytes = min(self._chunk_bytes_max, MEASURED_BYTES)

    def claims_expired(self) -> None:
        """Close the links that the claims that are left don't cover."""
        if self._frames is not None and len(self._chores) < CHORES_MAX:
            self._do_soon(self._frames.endpoints.check_claims())

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
