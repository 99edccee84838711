"""One AMQP 1.0 connection for measuring: a Proton engine on a socket, without Proton's Python objects.

Knows the low-level functions of the Proton wheel, one socket and the order in which Proton must be called.
The path of a delivery is three to six calls of C functions, because the readable wrappers cost some 25 µs a
message and would make the client the slowest part of every measurement.

Knows neither what is measured nor the broker. An `Engine` owns its socket, transport,
connection and collector; links and deliveries are bare Proton pointers (`Pointer`), owned by Proton and
valid until settled or closed.

Two traps are handled by callers of `Engine`: a link is advanced before its delivery is settled (the other
order loses every second transfer), and a delivery tag is bytes, never text.
"""

from __future__ import annotations

import re
import select
import socket
import time
from collections.abc import Callable
from typing import Any, Final

import cproton  # noqa: F401  (importing it initialises the library behind cproton_ffi)
from cproton_ffi import ffi, lib

type_of_event: Final = lib.pn_event_type

Pointer = Any
"""A Proton pointer of cffi, which has no type of its own."""

OUTPUT_BYTES_MAX: Final = 1 << 18
INPUT_BYTES_MAX: Final = 1 << 18
READS_PER_TURN_MAX: Final = 4
"""Most bytes read before output gets its turn, so that a sender does not starve while outcomes come in."""

TICK_INTERVAL_S: Final = 1.0
NOTHING: Final = ffi.NULL
BATCH_FORMAT: Final = b"\x70\x80\x01\x37\x00"
"""The message format of a batch of Service Bus, 0x80013700, as an encoded uint."""

_BATCH_MARK: Final = b"\xffBAT"
_BATCH_TRANSFER: Final = re.compile(rb"\xa0\x08(....)" + re.escape(_BATCH_MARK) + rb"\x43", re.DOTALL)
"""A marked delivery tag of eight bytes, and Proton's message format, 0."""

SESSION_FILTER: Final = b"com.microsoft:session-filter"
TRANSACTIONS: Final = b"amqp:local-transactions"

_INPUT: Final = ffi.new("char[]", INPUT_BYTES_MAX)
_INPUT_VIEW: Final = memoryview(ffi.buffer(_INPUT))
_OUTPUT: Final = ffi.new("char[]", OUTPUT_BYTES_MAX)
_OUTPUT_VIEW: Final = memoryview(ffi.buffer(_OUTPUT))
# Scratch space for all engines of the process: nothing stays in it from one call to the next.


class EngineError(Exception):
    """The peer or the transport ended the connection or a link. The text is the peer's condition."""


class Engine:
    """A connection with one AMQP session.

    Set `on_delivery` and `on_flow` (called with a delivery or link pointer, inside `turn`) before links are
    opened.
    `accepts` is set by a serving engine only: it is called with each link that the peer opened.
    """

    def __init__(
        self,
        sock: socket.socket,
        *,
        container: str,
        hostname: str = "localhost",
        user: str | None = None,
        password: str | None = None,
        frame_bytes_max: int = 65_536,
        idle_timeout_ms: int = 0,
        serving: bool = False,
    ) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = sock
        self.on_delivery: Callable[[Pointer], None] = _ignore
        self.on_flow: Callable[[Pointer], None] = _ignore
        self.accepts: Callable[[Pointer], None] | None = None
        self.remote_open = False
        self.closed = False
        self._write_blocked = False
        self._tick_at_s = 0.0
        self._ended_links: set[Pointer] = set()
        self._has_batches = False
        self._rewritten = b""
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        self._transport: Pointer = lib.pn_transport()
        self._connection: Pointer = lib.pn_connection()
        self._collector: Pointer = lib.pn_collector()
        self._prepare(serving, frame_bytes_max, idle_timeout_ms)
        lib.pn_connection_set_container(self._connection, container.encode())
        lib.pn_connection_set_hostname(self._connection, hostname.encode())
        self._authenticate(user, password)
        lib.pn_connection_collect(self._connection, self._collector)
        lib.pn_transport_bind(self._transport, self._connection)
        self.session: Pointer = NOTHING
        if not serving:
            lib.pn_connection_open(self._connection)
            self.session = self.open_session()

    def _prepare(self, serving: bool, frame_bytes_max: int, idle_timeout_ms: int) -> None:
        if serving:
            lib.pn_transport_set_server(self._transport)
        lib.pn_transport_set_max_frame(self._transport, frame_bytes_max)
        if idle_timeout_ms:
            lib.pn_transport_set_idle_timeout(self._transport, idle_timeout_ms)

    def _authenticate(self, user: str | None, password: str | None) -> None:
        """Offer PLAIN with a user, otherwise ANONYMOUS; a serving engine allows only the latter."""
        sasl = lib.pn_sasl(self._transport)
        if user is None:
            lib.pn_sasl_allowed_mechs(sasl, b"ANONYMOUS")
            return
        lib.pn_sasl_set_allow_insecure_mechs(sasl, True)
        lib.pn_sasl_allowed_mechs(sasl, b"PLAIN")
        lib.pn_connection_set_user(self._connection, user.encode())
        lib.pn_connection_set_password(self._connection, (password or "").encode())

    def open_session(self) -> Pointer:
        """Open an AMQP session."""
        session = lib.pn_session(self._connection)
        lib.pn_session_open(session)
        return session

    def open_sender(self, address: str, name: str, *, batches: bool = False) -> Pointer:
        """Open an unsettled sending link to `address`.

        `batches`: deliveries whose tags were written by a `TagWriter` for batches get the message format of batches.
        """
        self._has_batches |= batches
        link = lib.pn_sender(self.session, name.encode())
        lib.pn_terminus_set_address(lib.pn_link_target(link), address.encode())
        lib.pn_terminus_set_address(lib.pn_link_source(link), name.encode())
        lib.pn_link_set_snd_settle_mode(link, lib.PN_SND_UNSETTLED)
        lib.pn_link_set_rcv_settle_mode(link, lib.PN_RCV_FIRST)
        lib.pn_link_open(link)
        return link

    def open_receiver(
        self, address: str, name: str, *, confirmed: bool = False, session_id: str | None = None
    ) -> Pointer:
        """Open a receiving link from `address`, without credit; with a `session_id`, from a session of the entity.

        `confirmed` asks for settle mode `second`, in which the broker confirms each of our outcomes.
        """
        link = lib.pn_receiver(self.session, name.encode())
        source = lib.pn_link_source(link)
        lib.pn_terminus_set_address(source, address.encode())
        lib.pn_terminus_set_address(lib.pn_link_target(link), name.encode())
        if session_id is not None:
            chosen = lib.pn_terminus_filter(source)
            lib.pn_data_put_map(chosen)
            lib.pn_data_enter(chosen)
            put_bytes(lib.pn_data_put_symbol, chosen, SESSION_FILTER)
            put_bytes(lib.pn_data_put_string, chosen, session_id.encode())
            lib.pn_data_exit(chosen)
        lib.pn_link_set_snd_settle_mode(link, lib.PN_SND_UNSETTLED)
        lib.pn_link_set_rcv_settle_mode(link, lib.PN_RCV_SECOND if confirmed else lib.PN_RCV_FIRST)
        lib.pn_link_open(link)
        return link

    def open_coordinator(self, name: str) -> Pointer:
        """Open a link by which transactions are declared and discharged."""
        link = lib.pn_sender(self.session, name.encode())
        target = lib.pn_link_target(link)
        lib.pn_terminus_set_type(target, lib.PN_COORDINATOR)
        put_bytes(lib.pn_data_put_symbol, lib.pn_terminus_capabilities(target), TRANSACTIONS)
        lib.pn_terminus_set_address(lib.pn_link_source(link), name.encode())
        lib.pn_link_open(link)
        return link

    def fileno(self) -> int:
        """File descriptor of the socket, for selectors."""
        return self.sock.fileno()

    @property
    def write_blocked(self) -> bool:
        """True while bytes wait for the socket to take them."""
        return self._write_blocked

    def turn(self, timeout_s: float) -> None:
        """Write pending output, wait up to `timeout_s`, read, handle events. Raises EngineError."""
        self.flush()
        if self._poll.poll(timeout_s * 1000):
            self.read()
        self.dispatch()
        self.flush()

    def flush(self) -> None:
        """Write as much as the socket takes."""
        if self._has_batches:
            self._set_blocked(self._flush_rewritten())
            return
        transport, output, view = self._transport, _OUTPUT, _OUTPUT_VIEW
        blocked = False
        while (pending := lib.pn_transport_pending(transport)) > 0:
            size = lib.pn_transport_peek(transport, output, min(pending, OUTPUT_BYTES_MAX))
            try:
                sent = self.sock.send(view[:size])
            except BlockingIOError:
                blocked = True
                break
            except OSError as error:
                raise EngineError(f"the peer broke the connection off: {error}") from error
            lib.pn_transport_pop(transport, sent)
        self._set_blocked(blocked)

    def _flush_rewritten(self) -> bool:
        """Write what is pending with the format of batches; returns whether some of it is left.

        Proton has no way to set a transfer's message format. The tags of batches are as much longer than they need to
        be as the format is longer than Proton's, so that no size of a frame or list changes.
        """
        transport, pieces = self._transport, list[bytes]()
        while (pending := lib.pn_transport_pending(transport)) > 0:
            size = lib.pn_transport_peek(transport, _OUTPUT, min(pending, OUTPUT_BYTES_MAX))
            pieces.append(bytes(_OUTPUT_VIEW[:size]))
            lib.pn_transport_pop(transport, size)
        if pieces:  # now it ends with a whole frame
            self._rewritten += _BATCH_TRANSFER.sub(_in_batch_format, b"".join(pieces))
        while self._rewritten:
            try:
                sent = self.sock.send(self._rewritten)
            except BlockingIOError:
                return True
            except OSError as error:
                raise EngineError(f"the peer broke the connection off: {error}") from error
            self._rewritten = self._rewritten[sent:]
        return False

    def _set_blocked(self, blocked: bool) -> None:
        if blocked != self._write_blocked:
            self._write_blocked = blocked
            self._poll.modify(self.sock, select.POLLIN | (select.POLLOUT if blocked else 0))

    def read(self) -> None:
        """Feed the engine from the socket, up to a limit."""
        for _ in range(READS_PER_TURN_MAX):
            try:
                size = self.sock.recv_into(_INPUT_VIEW)
            except BlockingIOError:
                return
            except OSError as error:
                raise EngineError(f"the peer broke the connection off: {error}") from error
            if size == 0:
                lib.pn_transport_close_tail(self._transport)
                self.closed = True
                return
            self._push(size)
            if size < INPUT_BYTES_MAX:
                return

    def _push(self, size: int) -> None:
        """Feed the engine `size` bytes of the input; it takes as many at a time as its own buffer holds."""
        transport, rest, push = self._transport, _INPUT, lib.pn_transport_push
        while size > 0:
            taken = push(transport, rest, size)
            if taken <= 0:
                return  # the transport is closed; its events say why
            rest, size = rest + taken, size - taken

    def dispatch(self) -> None:
        """Handle every event that the engine collected."""
        collector, peek, pop = self._collector, lib.pn_collector_peek, lib.pn_collector_pop
        delivery_of, delivery_kind = lib.pn_event_delivery, lib.PN_DELIVERY
        on_delivery = self.on_delivery
        while event := peek(collector):
            kind = type_of_event(event)
            if kind == delivery_kind:
                on_delivery(delivery_of(event))
            else:
                self._control(kind, event)
            pop(collector)
        now_s = time.monotonic()
        if now_s >= self._tick_at_s:
            self._tick_at_s = now_s + TICK_INTERVAL_S
            lib.pn_transport_tick(self._transport, int(now_s * 1000) or 1)

    def _control(self, kind: int, event: Pointer) -> None:
        if kind == lib.PN_LINK_FLOW:
            self.on_flow(lib.pn_event_link(event))
        elif kind == lib.PN_CONNECTION_REMOTE_OPEN:
            self.remote_open = True
            if self.accepts is not None:
                lib.pn_connection_open(self._connection)
        elif kind == lib.PN_SESSION_REMOTE_OPEN and self.accepts is not None:
            lib.pn_session_open(lib.pn_event_session(event))
        elif kind == lib.PN_LINK_REMOTE_OPEN and self.accepts is not None:
            self.accepts(lib.pn_event_link(event))
        elif kind in (lib.PN_LINK_REMOTE_CLOSE, lib.PN_LINK_REMOTE_DETACH):
            link = lib.pn_event_link(event)
            _check(lib.pn_link_remote_condition(link), "link")
            self._ended_links.add(link)
            if lib.pn_link_state(link) & lib.PN_LOCAL_ACTIVE:
                lib.pn_link_close(link)
        elif kind == lib.PN_SESSION_REMOTE_CLOSE:
            session = lib.pn_event_session(event)
            _check(lib.pn_session_remote_condition(session), "AMQP session")
            lib.pn_session_close(session)
        elif kind == lib.PN_CONNECTION_REMOTE_CLOSE:
            _check(lib.pn_connection_remote_condition(self._connection), "connection")
            lib.pn_connection_close(self._connection)
            self.closed = True
        elif kind == lib.PN_TRANSPORT_ERROR:
            _check(lib.pn_transport_condition(self._transport), "transport")
        elif kind == lib.PN_TRANSPORT_CLOSED:
            self.closed = True

    def close_link(self, link: Pointer, timeout_s: float = 10.0) -> None:
        """Close `link` and wait for the peer's answer, which RabbitMQ gives as a mere detach."""
        lib.pn_link_close(link)
        self.run_until(lambda: link in self._ended_links, timeout_s, "the link's close")

    def run_until(self, is_done: Callable[[], bool], timeout_s: float, what: str) -> None:
        """Turn until `is_done()`. Raises EngineError when `timeout_s` have passed or the peer goes away."""
        until_s = time.monotonic() + timeout_s
        while not is_done():
            if self.closed:
                raise EngineError(f"the peer closed the connection during {what}")
            if time.monotonic() > until_s:
                raise EngineError(f"{timeout_s:.0f} s have passed without {what}")
            self.turn(0.25)

    def close(self) -> None:
        """Close the connection in good order if it is open; free everything."""
        try:
            if not self.closed:
                lib.pn_connection_close(self._connection)
                self.run_until(lambda: self.closed, 5.0, "the connection's close")
                self.flush()
        except EngineError:
            pass  # it is going away anyway
        finally:
            self.sock.close()
            lib.pn_transport_unbind(self._transport)
            lib.pn_collector_free(self._collector)
            lib.pn_decref(self._connection)
            lib.pn_decref(self._transport)


class TagWriter:
    """Delivery tags 0, 1, 2, … as eight bytes each, without a Python object per tag.

    `batches` marks them as those of batches.
    """

    def __init__(self, *, batches: bool = False) -> None:
        self._number = ffi.new("uint64_t *")
        self._start = ffi.cast("char *", self._number)
        self._mark = int.from_bytes(_BATCH_MARK, "little") << 32 if batches else 0
        self.tag = ffi.new("pn_bytes_t *", {"size": 8, "start": self._start})[0]

    def write(self, number: int) -> None:
        """Write `number` into `tag`."""
        self._number[0] = number | self._mark


def put_bytes(put: Callable[[Pointer, Pointer], object], data: Pointer, value: bytes) -> None:
    """Call one of Proton's functions that copy a binary, string or symbol into `data`."""
    put(data, ffi.new("pn_bytes_t *", {"size": len(value), "start": ffi.from_buffer(value)})[0])


def connect(port: int, *, host: str = "127.0.0.1", container: str = "bench", **options: Any) -> Engine:
    """Connect to a broker; returns an engine whose connection is open. Raises EngineError or OSError."""
    engine = Engine(socket.create_connection((host, port), timeout=10), container=container, **options)
    engine.run_until(lambda: engine.remote_open, 10.0, "the broker's open")
    return engine


def _in_batch_format(transfer: re.Match[bytes]) -> bytes:
    return b"\xa0\x04" + transfer[1] + BATCH_FORMAT


def _ignore(pointer: Pointer) -> None:
    del pointer


def _check(condition: Pointer, what: str) -> None:
    if not lib.pn_condition_is_set(condition):
        return
    name, description = lib.pn_condition_get_name(condition), lib.pn_condition_get_description(condition)
    texts = [ffi.string(text).decode() if text else "" for text in (name, description)]
    raise EngineError(f"{what} closed by the peer: {': '.join(texts)}")
