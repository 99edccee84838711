"""One AMQP connection of a client: Proton's low-level functions on a stream.

Knows the order of calls to Proton, and nothing about the purpose of links: a `Link` registers itself and is called for
deliveries, credit and its end. Everything on the path of a delivery uses low-level functions, because the wrapper
classes cost about 25 µs per message.

An `Engine` owns its stream, transport, connection, collector and AMQP session. One thread at a time may use it, only in
the process that made it. Only `close()` frees it: an engine that is dropped without it leaks memory and does not crash.

Two traps: a link is advanced before its delivery is settled (the other order loses every second transfer), and bytes
that were marked as a batch (`envelopes`) must not be requested from Proton again, so they are taken from it at once.
"""

from __future__ import annotations

import contextlib
import select
from collections.abc import Callable
from copy import copy
from typing import Any, Final, Protocol

import cproton  # noqa: F401  (importing it initialises the library behind cproton_ffi)

from ..conditions import CONDITIONS, unavailable, wire_error
from ..dialing.dial import dial
from ..dialing.endpoint import Endpoint
from ..dialing.stream import Stream
from ..errors import ConnectorError
from ..timing import monotonic_s, new_id
from .envelopes import EnvelopeMarker
from .values import ffi, lib, put_value

Pointer = Any
"""A cffi pointer to one of Proton's objects; equal and equally hashed when it points to the same object."""

FRAME_BYTES_MAX: Final = 256 * 1024
"""What we let the peer send in one frame: large ones make replies of a megabyte cheaper."""

INPUT_BYTES: Final = 256 * 1024
OUTPUT_BYTES: Final = 256 * 1024
INCOMING_BYTES_MAX: Final = 256 * 1024 * 1024
"""The AMQP session's window: wide enough never to be what a reply waits for; credit is the limit."""

READS_PER_TURN_MAX: Final = 8
TICK_INTERVAL_S: Final = 1.0
CLOSE_WAIT_S: Final = 1.0

PN_DELIVERY: Final = int(lib.PN_DELIVERY)
PN_LINK_FLOW: Final = int(lib.PN_LINK_FLOW)
ACCEPTED: Final = int(lib.PN_ACCEPTED)
REJECTED: Final = int(lib.PN_REJECTED)
RELEASED: Final = int(lib.PN_RELEASED)
MODIFIED: Final = int(lib.PN_MODIFIED)
DECLARED: Final = 0x33
TRANSACTIONAL: Final = 0x34
NULL: Final = ffi.NULL


class Link(Protocol):
    """The calls of the engine to a link."""

    def on_open(self) -> None:
        """The peer has attached."""
        ...

    def on_delivery(self, delivery: Pointer) -> None:
        """Bytes or a disposition came for a delivery."""
        ...

    def on_closed(self, error: ConnectorError | None) -> None:
        """The peer has detached, because of `error` if it gave one."""
        ...


class Engine:
    """A connection with one AMQP session; `open()` before anything else."""

    def __init__(self, endpoint: Endpoint) -> None:
        deadline_s = monotonic_s() + endpoint.connect_timeout_s
        self.endpoint = endpoint
        self.where = endpoint.where
        self.links: dict[Pointer, Link] = {}
        self.names: dict[Pointer, str] = {}
        """What each link is to the user: the entity in errors."""
        self.error: ConnectorError | None = None
        self.closed = False
        self._remote_open = False
        self._stream: Stream = dial(endpoint, deadline_s)
        self._unsent = memoryview(b"")
        self._marker = EnvelopeMarker()
        self._tick_at_s = 0.0
        self._input = ffi.new("char[]", INPUT_BYTES)
        self._input_view = memoryview(ffi.buffer(self._input)).cast("B")
        self._output = ffi.new("char[]", OUTPUT_BYTES)
        self._output_view = memoryview(ffi.buffer(self._output)).cast("B")
        self._poll = select.poll()
        self._poll_events = select.POLLIN
        self._poll.register(self._stream.fileno(), select.POLLIN)
        self._make(endpoint)
        try:
            self.run_until(lambda: self._remote_open, deadline_s, "the connection's open")
        except BaseException:
            self.close()
            raise

    def _make(self, endpoint: Endpoint) -> None:
        self._transport: Pointer = lib.pn_transport()
        self._connection: Pointer = lib.pn_connection()
        self._collector: Pointer = lib.pn_collector()
        lib.pn_transport_trace(self._transport, lib.PN_TRACE_OFF)
        lib.pn_transport_set_max_frame(self._transport, FRAME_BYTES_MAX)
        lib.pn_sasl_allowed_mechs(lib.pn_sasl(self._transport), b"ANONYMOUS")
        lib.pn_connection_set_container(self._connection, f"spark-{new_id()}".encode())
        lib.pn_connection_set_hostname(self._connection, endpoint.address_host.encode())
        lib.pn_connection_collect(self._connection, self._collector)
        lib.pn_transport_bind(self._transport, self._connection)
        lib.pn_connection_open(self._connection)
        self.session: Pointer = lib.pn_session(self._connection)
        lib.pn_session_set_incoming_capacity(self.session, INCOMING_BYTES_MAX)
        lib.pn_session_open(self.session)

    # ---- going on

    def check(self) -> None:
        """Raise the error that ended the connection, if any."""
        if self.error is not None:
            raise copy(self.error)  # raised many times, one object would gather all their tracebacks
        if self.closed:
            raise unavailable(f"the connection to {self.where} is closed")

    def run_until(self, is_done: Callable[[], object], deadline_s: float, what: str) -> None:
        """Run until `is_done()`; ConnectorError at the deadline (the connection is then lost) or if it ends."""
        while not is_done():
            self.check()
            left_s = deadline_s - monotonic_s()
            if left_s <= 0:
                raise self.fail(unavailable(f"{self.where} has not answered in time: waited for {what}"))
            self.turn(min(left_s, TICK_INTERVAL_S))

    def turn(self, timeout_s: float) -> None:
        """Write pending output, wait up to `timeout_s` for input or output, handle input; ConnectorError on loss."""
        self.check()
        try:
            self.write()
            self._tick()
            if self._stream.has_kept() or self._wait(timeout_s):
                self._read()
            self.dispatch()
            self.write()
        except BaseException as error:  # also an interrupt: the state of Proton is unknown
            self.fail(unavailable(f"the connection to {self.where} was given up ({type(error).__name__})"))
            raise
        self.check()

    def _wait(self, timeout_s: float) -> bool:
        blocked = bool(self._unsent) or self._stream.has_unsent()
        events = select.POLLIN | (select.POLLOUT if blocked else 0)
        if events != self._poll_events:
            self._poll.modify(self._stream.fileno(), events)
            self._poll_events = events
        return bool(self._poll.poll(timeout_s * 1000))

    def write(self) -> None:
        """Write Proton's output, as much as the stream takes."""
        stream = self._stream
        try:
            stream.flush()
            while self._unsent or self._fill():
                self._unsent = self._unsent[stream.send(self._unsent) :]
        except BlockingIOError:
            return
        except OSError as problem:
            raise self._lost(problem) from problem

    def _fill(self) -> bool:
        """Take the next output from Proton into the buffer, which must be empty; False if there is none."""
        transport = self._transport
        pending = lib.pn_transport_pending(transport)
        if pending <= 0:
            return False
        size = lib.pn_transport_peek(transport, self._output, min(pending, OUTPUT_BYTES))
        size = self._marker.mark(self._output_view[:size])
        lib.pn_transport_pop(transport, size)
        self._unsent = self._output_view[:size]
        return size > 0

    def _read(self) -> None:
        recv_into, view = self._stream.recv_into, self._input_view
        try:
            for _ in range(READS_PER_TURN_MAX):
                size = recv_into(view)
                if size == 0:
                    self._end_of_input()
                    return
                self._push(size)
                if size < INPUT_BYTES and not self._stream.has_kept():
                    return
                self.dispatch()
        except BlockingIOError:
            return
        except OSError as problem:
            raise self._lost(problem) from problem

    def _push(self, size: int) -> None:
        transport, rest, push = self._transport, self._input, lib.pn_transport_push
        while size > 0:
            taken = push(transport, rest, size)
            if taken <= 0:
                return  # the transport is closed; its events say why
            rest, size = rest + taken, size - taken

    def _end_of_input(self) -> None:
        self.dispatch()  # the peer may have said why
        if self.error is None:
            self.fail(unavailable(f"{self.where} has closed the connection"))

    def dispatch(self) -> None:
        """Handle every event that Proton has collected."""
        collector, peek, pop, kind_of = (
            self._collector,
            lib.pn_collector_peek,
            lib.pn_collector_pop,
            lib.pn_event_type,
        )
        while event := peek(collector):
            kind = kind_of(event)
            if kind == PN_DELIVERY:
                delivery = lib.pn_event_delivery(event)
                link = self.links.get(lib.pn_delivery_link(delivery))
                if link is not None:
                    link.on_delivery(delivery)
                else:
                    _drop(delivery)
            elif kind != PN_LINK_FLOW:
                self._control(kind, event)
            pop(collector)

    def _control(self, kind: int, event: Pointer) -> None:
        if kind == lib.PN_CONNECTION_REMOTE_OPEN:
            self._remote_open = True
        elif kind == lib.PN_LINK_REMOTE_OPEN:
            link = self.links.get(lib.pn_event_link(event))
            if link is not None:
                link.on_open()
        elif kind in (lib.PN_LINK_REMOTE_CLOSE, lib.PN_LINK_REMOTE_DETACH):
            self._link_ended(lib.pn_event_link(event))
        elif kind == lib.PN_SESSION_REMOTE_CLOSE:
            self._ended_by(lib.pn_session_remote_condition(lib.pn_event_session(event)), "the AMQP session")
        elif kind == lib.PN_CONNECTION_REMOTE_CLOSE:
            self._ended_by(lib.pn_connection_remote_condition(self._connection), "the connection")
        elif kind == lib.PN_TRANSPORT_ERROR:
            self._ended_by(lib.pn_transport_condition(self._transport), "the connection")

    def _link_ended(self, pointer: Pointer) -> None:
        link = self.links.get(pointer)
        error = condition_error(lib.pn_link_remote_condition(pointer), self.names.get(pointer, self.where))
        if lib.pn_link_state(pointer) & lib.PN_LOCAL_ACTIVE:
            lib.pn_link_close(pointer)
        if link is not None:
            link.on_closed(error)

    def _ended_by(self, condition: Pointer, what: str) -> None:
        """The peer has ended `what`: with a condition, or by breaking the protocol."""
        if self.error is not None:
            return
        name, description = condition_texts(condition)
        if name is None:
            self.fail(unavailable(f"{self.where} has ended {what}"))
        elif name == "amqp:connection:framing-error" and not self._remote_open:
            text = f"{self.where} does not speak AMQP 1.0 here ({description}): check host, port, tls and transport"
            self.fail(unavailable(text, retriable=False))
        elif name in CONDITIONS:
            self.fail(wire_error(name, description, entity=self.where))
        else:
            self.fail(unavailable(f"{self.where} has ended {what}: {description} ({name})"))

    def _tick(self) -> None:
        now_s = monotonic_s()
        if now_s >= self._tick_at_s:
            self._tick_at_s = now_s + TICK_INTERVAL_S
            lib.pn_transport_tick(self._transport, int(now_s * 1000) or 1)

    # ---- the end

    def fail(self, error: ConnectorError) -> ConnectorError:
        """Mark the connection as lost because of `error`, unless it already is; returns the error to raise."""
        if self.error is None:
            self.error = error
        return copy(self.error)

    def _lost(self, problem: OSError) -> ConnectorError:
        return self.fail(unavailable(f"the connection to {self.where} is lost: {problem}"))

    def close(self) -> None:
        """Close the connection, in good order if it still works; free everything."""
        if self.closed:
            return
        if self.error is None:
            self._say_goodbye()
        self.closed = True
        self.links.clear()
        self.names.clear()
        self._stream.close()
        lib.pn_transport_unbind(self._transport)
        lib.pn_collector_release(self._collector)
        lib.pn_connection_release(self._connection)
        lib.pn_decref(self._connection)
        lib.pn_decref(self._transport)
        lib.pn_collector_free(self._collector)

    def abandon(self) -> None:
        """In a forked process: close the copy of the socket and touch nothing else."""
        self.closed = True
        self._stream.close()

    def _say_goodbye(self) -> None:
        lib.pn_connection_close(self._connection)
        deadline_s = monotonic_s() + min(CLOSE_WAIT_S, self.endpoint.operation_timeout_s)
        with contextlib.suppress(ConnectorError):
            self.write()
            while self._unsent and monotonic_s() < deadline_s:
                self._wait(max(0.0, deadline_s - monotonic_s()))
                self.write()

    def forget(self, pointer: Pointer) -> None:
        """The link has no user any more; it is freed when nothing on it is unsettled."""
        self.links.pop(pointer, None)
        self.names.pop(pointer, None)
        both_closed = lib.PN_LOCAL_CLOSED | lib.PN_REMOTE_CLOSED
        if lib.pn_link_state(pointer) & both_closed == both_closed and not lib.pn_link_unsettled(pointer):
            lib.pn_link_free(pointer)


def condition_texts(condition: Pointer) -> tuple[str | None, str]:
    """Name and description of a condition; the name is None if it isn't set."""
    if not condition or not lib.pn_condition_is_set(condition):
        return None, ""
    name, description = lib.pn_condition_get_name(condition), lib.pn_condition_get_description(condition)
    return _text_from_c(name), _text_from_c(description)


def condition_error(condition: Pointer, entity: str) -> ConnectorError | None:
    """The error for a condition of Proton's; None if it isn't set."""
    name, description = condition_texts(condition)
    return None if name is None else wire_error(name, description, entity=entity)


def set_delivery_state(delivery: Pointer, state: int, fields: list[object]) -> None:
    """Give a delivery a state that Proton has no structure for, such as those of transactions."""
    put_value(lib.pn_disposition_data(lib.pn_delivery_local(delivery)), fields)
    lib.pn_delivery_update(delivery, state)


def _text_from_c(chars: Pointer) -> str:
    return "" if chars == NULL else str(ffi.string(chars).decode(errors="replace"))


def _drop(delivery: Pointer) -> None:
    """Discard a delivery on a link that we have left."""
    if lib.pn_delivery_readable(delivery) and not lib.pn_delivery_partial(delivery):
        lib.pn_link_advance(lib.pn_delivery_link(delivery))
    if lib.pn_delivery_settled(delivery):
        lib.pn_delivery_settle(delivery)
