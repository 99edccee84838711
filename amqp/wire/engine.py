"""Proton's engine for one connection, behind readable names: everything except the delivery path.

Knows which low-level calls make a connection, its sessions and its links, and how their termini, properties and
conditions are read and written. Values cross as encoded bytes, so that their AMQP types stay exact. Does not know
how an attach is answered and what a delivery means (`links`).

Links and sessions are Proton's pointers here; a pointer is valid until `free_link`, `free_session` or `free`. Only the
connection that owns the engine calls these, when nobody else keeps the pointer. The low-level functions of the wheel
are used throughout because its wrapper classes cost several times more and raise on bytes that are no text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, cast

import cproton  # importing it initialises the library behind cproton_ffi
from cproton_ffi import ffi as _ffi
from cproton_ffi import lib as _lib

from ...broker.errors import BrokerError, decode_refusal
from ...broker.lazy_dataclass import dataclass
from ...codec.decode import decode
from ...codec.encode import encode_array, encode_map
from ...codec.errors import DecodeError
from ...codec.types import Array, Symbol
from .buffers import OUTPUT_BYTES, buffers

ffi: Any = _ffi
lib: Any = _lib

Pointer = Any
"""A cffi pointer to one of Proton's objects; equal and equally hashed when it points to the same object."""

_engines: dict[Pointer, Engine] = {}
_traced_by_wrapper: Any = cproton.pn_pytracer


@ffi.def_extern(name="pn_pytracer")  # type: ignore[untyped-decorator]
def _on_trace(transport: Pointer, message: Pointer) -> None:
    """Proton's trace output. Ignored, but 'process error' means that the transport has failed."""
    engine = _engines.get(transport)
    if engine is None:
        _traced_by_wrapper(transport, message)
    elif b"process error" in ffi.string(message):
        engine.ended = True


_EMPTY_MAP: Final = encode_map({})
_SYMBOL_CODE: Final = 0xB3
COORDINATOR: Final = int(lib.PN_COORDINATOR)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class AttachRequest:
    """What matters here of a client's attach. `sends`: the client is the sender. Addresses are None when null.

    `capabilities` are those of the terminus on our side. `is_durable`: the source outlives the link. `is_dynamic`: the
    client wants a node to be made. `copies`: what it receives is to stay where it is (a durable source is a JMS
    subscription, of which each has copies of its own to take).
    """

    name: str
    sends: bool
    source: str | None
    target: str | None
    is_coordinator: bool
    is_dynamic: bool
    copies: bool
    is_durable: bool
    capabilities: frozenset[str]
    settled_by_sender: bool
    filter: dict[str, object]
    properties: dict[str, object]
    message_bytes_max: int

    @property
    def address(self) -> str:
        """The node's address: that of the terminus on our side."""
        return (self.target if self.sends else self.source) or ""


class Engine:
    """One transport, one connection and its events; used on the thread that makes it."""

    def __init__(self, frame_bytes_max: int, channel_max: int) -> None:
        self.transport: Pointer = lib.pn_transport()
        self.connection: Pointer = lib.pn_connection()
        self.collector: Pointer = lib.pn_collector()
        self.trouble: Pointer = lib.pn_transport_condition(self.transport)
        """Set once Proton closes the connection by itself, for what it found wrong with the input."""
        self.ended = False
        self._output, self._output_view = buffers.output, buffers.output_view
        _engines[self.transport] = self
        lib.pn_transport_trace(self.transport, lib.PN_TRACE_OFF)
        lib.pn_transport_set_tracer(self.transport, lib.pn_pytracer)
        lib.pn_transport_set_server(self.transport)
        lib.pn_transport_set_max_frame(self.transport, frame_bytes_max)
        lib.pn_transport_set_channel_max(self.transport, channel_max)
        lib.pn_connection_collect(self.connection, self.collector)
        lib.pn_transport_bind(self.transport, self.connection)

    # ---- bytes

    def push(self, data: bytes) -> bool:
        """Give bytes to Proton; False once it takes no more."""
        base, size, offset = ffi.from_buffer(data), len(data), 0
        while offset < size:
            taken = lib.pn_transport_push(self.transport, base + offset, size - offset)
            if taken <= 0:
                return False
            offset += taken
        return True

    def process(self) -> None:
        """Have Proton do what it has put off until it is asked for output."""
        lib.pn_transport_pending(self.transport)

    def output(self) -> list[bytes]:
        """All bytes that Proton has to write now, whole frames; sets `ended` behind its last."""
        transport, output = self.transport, self._output
        chunks: list[bytes] = []
        while True:
            size = lib.pn_transport_peek(transport, output, OUTPUT_BYTES)
            if size <= 0:
                self.ended = self.ended or size < 0
                return chunks
            chunks.append(self._output_view[:size])
            lib.pn_transport_pop(transport, size)

    def close_input(self) -> None:
        lib.pn_transport_close_tail(self.transport)

    # ---- the connection

    def open(self, container: str, capabilities: Sequence[str] = (), *, refused: bool = False) -> None:
        """Answer the peer's open; `refused` says in it that a close follows: Qpid JMS then does no work before that."""
        lib.pn_connection_set_container(self.connection, _c_text(container))
        properties: dict[str, object] = {Symbol("product"): "emubus"}
        if refused:
            properties[Symbol("amqp:connection-establishment-failed")] = True
        put_value(lib.pn_connection_properties(self.connection), encode_map(properties))
        if capabilities:
            symbols = encode_array(_SYMBOL_CODE, map(Symbol, capabilities))
            put_value(lib.pn_connection_offered_capabilities(self.connection), symbols)
        lib.pn_connection_open(self.connection)

    def close(self, error: BrokerError | None = None) -> None:
        """Close the connection, because of `error` or because the peer does."""
        if error is not None:
            set_condition(lib.pn_connection_condition(self.connection), error)
            if not self.is_peer_open():  # Proton waits for an open before it closes, except in trouble of its own
                set_condition(self.trouble, error)
                self.close_input()
        if lib.pn_connection_state(self.connection) & lib.PN_LOCAL_UNINIT:
            lib.pn_connection_open(self.connection)
        lib.pn_connection_close(self.connection)

    @property
    def idle_timeout_ms(self) -> int:
        """The peer's idle time-out; 0 is none."""
        return int(lib.pn_transport_get_remote_idle_timeout(self.transport))

    def peer_properties(self) -> dict[str, object]:
        return _map_or_empty(lib.pn_connection_remote_properties(self.connection))

    def peer_container(self) -> str:
        return _text_from_c(lib.pn_connection_remote_container(self.connection)) or ""

    def is_peer_open(self) -> bool:
        return not lib.pn_connection_state(self.connection) & lib.PN_REMOTE_UNINIT

    def is_peer_closed(self) -> bool:
        return bool(lib.pn_connection_state(self.connection) & lib.PN_REMOTE_CLOSED)

    def transport_error(self) -> str | None:
        """What Proton found wrong with the input."""
        condition = self.trouble
        if not lib.pn_condition_is_set(condition):
            return None
        name = _text_from_c(lib.pn_condition_get_name(condition))
        return f"{name}: {_text_from_c(lib.pn_condition_get_description(condition))}"

    def free(self) -> None:
        """Give everything back; no pointer is valid afterwards."""
        del _engines[self.transport]
        lib.pn_transport_unbind(self.transport)
        lib.pn_collector_release(self.collector)
        lib.pn_connection_release(self.connection)
        lib.pn_decref(self.connection)
        lib.pn_decref(self.transport)
        lib.pn_collector_free(self.collector)


# ---- sessions


def open_session(session: Pointer) -> None:
    """Answer a begin."""
    lib.pn_session_open(session)


def session_of_next(engine: Engine) -> Pointer | None:
    """The session of the next event if that is a begin of the peer; to be called when its frame was pushed alone."""
    event = lib.pn_collector_peek(engine.collector)
    while event and lib.pn_event_type(event) == lib.PN_SESSION_INIT:
        lib.pn_collector_pop(engine.collector)
        event = lib.pn_collector_peek(engine.collector)
    if not event or lib.pn_event_type(event) != lib.PN_SESSION_REMOTE_OPEN:
        return None
    return lib.pn_event_session(event)


def close_session(session: Pointer, error: BrokerError | None = None) -> None:
    """Answer an end, or end because of `error`."""
    if error is not None:
        set_condition(lib.pn_session_condition(session), error)
    lib.pn_session_close(session)


def unsent_bytes(session: Pointer) -> int:
    """The bytes of deliveries that Proton has yet to write, most often for want of the client's window."""
    return int(lib.pn_session_outgoing_bytes(session))


def send_session_flow(session: Pointer) -> None:
    """Let Proton write a flow for the session: it does whenever the capacity is set, here to what it was."""
    lib.pn_session_set_incoming_capacity(session, lib.pn_session_get_incoming_capacity(session))


def free_session(session: Pointer) -> None:
    """Forget a session that both sides have ended, with all its links."""
    lib.pn_session_free(session)


# ---- links


def read_attach(link: Pointer) -> AttachRequest:
    """The client's side of a link; UnicodeDecodeError for texts that are none."""
    source, target = lib.pn_link_remote_source(link), lib.pn_link_remote_target(link)
    target_type = lib.pn_terminus_get_type(target)
    sends = bool(lib.pn_link_is_receiver(link))
    return AttachRequest(
        name=link_name(link),
        sends=sends,
        source=_text_from_c(lib.pn_terminus_get_address(source)),
        target=_text_from_c(lib.pn_terminus_get_address(target)),
        is_coordinator=target_type == COORDINATOR,
        is_dynamic=bool(lib.pn_terminus_is_dynamic(target if sends else source)),
        copies=lib.pn_terminus_get_distribution_mode(source) == lib.PN_DIST_MODE_COPY
        and lib.pn_terminus_get_durability(source) == lib.PN_NONDURABLE,
        is_durable=lib.pn_terminus_get_durability(source) != lib.PN_NONDURABLE,
        capabilities=frozenset()
        if target_type == COORDINATOR  # those are echoed as they came: Proton encodes anew what was read
        else _symbols(lib.pn_terminus_capabilities(target if sends else source)),
        settled_by_sender=lib.pn_link_remote_snd_settle_mode(link) == lib.PN_SND_SETTLED,
        filter=_map_or_empty(lib.pn_terminus_filter(source)),
        properties=_map_or_empty(lib.pn_link_remote_properties(link)),
        message_bytes_max=int(lib.pn_link_remote_max_message_size(link)),
    )


def accept_link(
    link: Pointer, message_bytes_max: int, properties: bytes = _EMPTY_MAP, source_filter: bytes | None = None
) -> None:
    """Answer an attach with all that the client asked for [wire 0, rule 5]; 0 leaves out the maximal size.

    `properties` and `source_filter` are encoded maps. The filter that comes back is the one that is in force
    [AMQP 3.5.3]: without `source_filter` none.
    """
    for local, remote, kind in (
        (lib.pn_link_source(link), lib.pn_link_remote_source(link), lib.PN_SOURCE),
        (lib.pn_link_target(link), lib.pn_link_remote_target(link), lib.PN_TARGET),
    ):
        lib.pn_terminus_copy(local, remote)
        if lib.pn_terminus_get_type(remote) != COORDINATOR:
            lib.pn_terminus_set_type(local, kind)  # a terminus without address counts as none in Proton: keep it
    in_force = lib.pn_terminus_filter(lib.pn_link_source(link))
    lib.pn_data_clear(in_force)
    if source_filter is not None:
        put_value(in_force, source_filter)
    lib.pn_link_set_snd_settle_mode(link, lib.pn_link_remote_snd_settle_mode(link))
    lib.pn_link_set_rcv_settle_mode(link, lib.pn_link_remote_rcv_settle_mode(link))
    lib.pn_link_set_max_message_size(link, message_bytes_max)
    put_value(lib.pn_link_properties(link), properties)
    lib.pn_link_open(link)


def accept_dynamic(link: Pointer, address: str) -> None:
    """Answer an attach of a client's sender whose target is to be made, with the address of what was made."""
    target = lib.pn_link_target(link)
    lib.pn_terminus_copy(lib.pn_link_source(link), lib.pn_link_remote_source(link))
    lib.pn_terminus_set_type(lib.pn_link_source(link), lib.PN_SOURCE)
    lib.pn_terminus_copy(target, lib.pn_link_remote_target(link))
    lib.pn_terminus_set_address(target, _c_text(address))
    lib.pn_link_set_snd_settle_mode(link, lib.pn_link_remote_snd_settle_mode(link))
    lib.pn_link_set_rcv_settle_mode(link, lib.pn_link_remote_rcv_settle_mode(link))
    put_value(lib.pn_link_properties(link), _EMPTY_MAP)
    lib.pn_link_open(link)


def accept_unsubscription(link: Pointer, topic: str) -> None:
    """Answer an attach with a null source, by which Qpid JMS unsubscribes, with the durable source that it is about."""
    lib.pn_terminus_set_type(lib.pn_link_source(link), lib.PN_SOURCE)
    lib.pn_terminus_set_address(lib.pn_link_source(link), _c_text(topic))
    lib.pn_terminus_set_durability(lib.pn_link_source(link), lib.PN_DELIVERIES)
    lib.pn_terminus_set_expiry_policy(lib.pn_link_source(link), lib.PN_EXPIRE_NEVER)
    lib.pn_terminus_copy(lib.pn_link_target(link), lib.pn_link_remote_target(link))
    lib.pn_terminus_set_type(lib.pn_link_target(link), lib.PN_TARGET)
    put_value(lib.pn_link_properties(link), _EMPTY_MAP)
    lib.pn_link_open(link)


def refuse_link(link: Pointer) -> None:
    """Answer an attach with null termini: the link is closed next [wire 9.4]."""
    lib.pn_terminus_set_type(lib.pn_link_source(link), lib.PN_UNSPECIFIED)
    lib.pn_terminus_set_type(lib.pn_link_target(link), lib.PN_UNSPECIFIED)
    lib.pn_link_set_snd_settle_mode(link, lib.pn_link_remote_snd_settle_mode(link))
    lib.pn_link_set_rcv_settle_mode(link, lib.pn_link_remote_rcv_settle_mode(link))
    put_value(lib.pn_link_properties(link), _EMPTY_MAP)
    lib.pn_link_open(link)


def close_link(link: Pointer, error: BrokerError | None = None) -> None:
    """Detach with closed=true."""
    if error is not None:
        set_condition(lib.pn_link_condition(link), error)
    lib.pn_link_close(link)


def detach_link(link: Pointer) -> None:
    """Detach with closed=false: only ever the answer to the same."""
    lib.pn_link_detach(link)


def is_link_attached(link: Pointer) -> bool:
    """Whether we have answered the attach and not closed since."""
    return bool(lib.pn_link_state(link) & lib.PN_LOCAL_ACTIVE)


def is_link_held(link: Pointer) -> bool:
    """Whether the attach is still to be answered."""
    return bool(lib.pn_link_state(link) & lib.PN_LOCAL_UNINIT)


def free_link(link: Pointer) -> None:
    """Forget a link that both sides have closed. What is unsettled on it Proton settles, and says so in dispositions
    without a state: they are not for the client (`frames.without_dispositions`)."""
    lib.pn_link_free(link)


def link_load(link: Pointer) -> tuple[int, int]:
    """The credit of a link's receiver, and how many of its deliveries are unsettled."""
    return int(lib.pn_link_credit(link)), int(lib.pn_link_unsettled(link))


def link_name(link: Pointer) -> str:
    return _text_from_c(lib.pn_link_name(link)) or ""


def session_of(link: Pointer) -> Pointer:
    return lib.pn_link_session(link)


# ---- values


def set_condition(condition: Pointer, error: BrokerError) -> None:
    """Write an error, always with an info map: without one Proton leaves the field out and Python looks for it."""
    lib.pn_condition_clear(condition)
    lib.pn_condition_set_name(condition, _c_text(error.condition.value))
    lib.pn_condition_set_description(condition, _c_text(error.description))
    put_value(lib.pn_condition_info(condition), encode_map(error.info) if error.info else _EMPTY_MAP)


def encoded_value_of(data: Pointer) -> bytes:
    """The encoded value in one of Proton's data objects; b"" when it is empty or wasn't made."""
    if not data:
        return b""
    size = lib.pn_data_encoded_size(data)
    if size <= 0:
        return b""
    buffer = ffi.new("char[]", size)
    size = lib.pn_data_encode(data, buffer, size)
    return ffi.buffer(buffer, size)[:] if size > 0 else b""


def decoded(encoded: bytes) -> object:
    """The value of `encoded_value_of`; None for b"". Raises BrokerError(DECODE_ERROR)."""
    try:
        return decode(encoded)[0] if encoded else None
    except DecodeError as error:
        raise decode_refusal(error) from None


def value_of(data: Pointer) -> object:
    """The value in one of Proton's data objects; None when it is empty or wasn't made.

    Raises BrokerError(DECODE_ERROR).
    """
    return decoded(encoded_value_of(data))


def _map_or_empty(data: Pointer) -> dict[str, object]:
    value = value_of(data)
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


def _symbols(data: Pointer) -> frozenset[str]:
    """One symbol, or an array or list of them."""
    value = value_of(data)
    values = value.values if isinstance(value, Array) else value if isinstance(value, list) else (value,)
    return frozenset(str.__str__(each) for each in values if isinstance(each, str))


def put_value(data: Pointer, encoded: bytes) -> None:
    """Replace the value in one of Proton's data objects."""
    lib.pn_data_clear(data)
    lib.pn_data_decode(data, encoded, len(encoded))


def _text_from_c(chars: Pointer) -> str | None:
    return None if chars == ffi.NULL else ffi.string(chars).decode()


def _c_text(text: str) -> bytes:
    return text.encode(errors="replace")
