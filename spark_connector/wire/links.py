"""Common to all links: attaching, losing and closing them, and reading whole deliveries.

Knows the fields of an attach that the service uses [wire 4.1, 5.2]. Does not know the purpose of a link. A `BaseLink`
is registered with its engine until it is closed; its pointer is valid as long as the engine is open.
"""

from __future__ import annotations

from copy import copy
from typing import Any, Final

from ..conditions import unavailable
from ..errors import ConnectorError
from ..timing import monotonic_s, new_id
from .engine import NULL, Engine, Pointer
from .values import ffi, lib, value_of

FIRST_BUFFER_BYTES: Final = 64 * 1024
COORDINATOR: Final = int(lib.PN_COORDINATOR)


class BaseLink:
    """One link; `entity` names it in errors."""

    def __init__(self, engine: Engine, entity: str, pointer: Pointer) -> None:
        self.engine = engine
        self.entity = entity
        self.pointer = pointer
        self.attached = False
        self.lost: ConnectorError | None = None
        self.closed = False
        engine.links[pointer] = self
        engine.names[pointer] = entity

    def attach(self, timeout_s: float) -> None:
        """Send the attach and wait for the peer's; ConnectorError with the peer's reason if it refuses."""
        lib.pn_link_open(self.pointer)
        self.wait_attached(timeout_s)

    def wait_attached(self, timeout_s: float) -> None:
        """The second half of `attach`."""
        self.engine.run_until(
            lambda: self.attached or self.lost, monotonic_s() + timeout_s, f"the attach of a link to {self.entity}"
        )
        if self.lost is not None:
            self.discard()
            raise copy(self.lost)

    def on_open(self) -> None:
        """A refusal is an attach without the terminus that was asked for; its reason follows [wire 9.4]."""
        sends = lib.pn_link_is_sender(self.pointer)
        terminus = lib.pn_link_remote_target(self.pointer) if sends else lib.pn_link_remote_source(self.pointer)
        has_address = lib.pn_terminus_get_address(terminus) != NULL
        self.attached = has_address or lib.pn_terminus_get_type(terminus) == COORDINATOR

    def on_delivery(self, delivery: Pointer) -> None:
        """Handle bytes or a disposition of a delivery."""
        raise AssertionError(delivery)

    def on_closed(self, error: ConnectorError | None) -> None:
        """The peer has detached; without a reason a retry may help."""
        self.lost = error or unavailable(f"{self.engine.where} has closed a link to {self.entity}")

    def check(self) -> None:
        """Raise the error that ended the link, if any."""
        self.engine.check()
        if self.closed:
            raise unavailable(f"the link to {self.entity} at {self.engine.where} is closed")
        if self.lost is not None:
            raise copy(self.lost)

    def properties(self) -> dict[str, Any]:
        value = value_of(lib.pn_link_remote_properties(self.pointer))
        return value if isinstance(value, dict) else {}

    def discard(self) -> None:
        """Detach without waiting for the peer's answer."""
        if self.closed:
            return
        self.closed = True
        if not self.engine.closed and self.engine.error is None:
            lib.pn_link_close(self.pointer)
            self.engine.forget(self.pointer)

    def close(self) -> None:
        """Detach; waits for the peer's detach unless link or connection are lost already."""
        if self.closed:
            return
        self.closed = True
        engine = self.engine
        if engine.closed or engine.error is not None:
            return
        if self.lost is None:
            lib.pn_link_close(self.pointer)
            timeout_s = engine.endpoint.operation_timeout_s
            engine.run_until(lambda: self.lost, monotonic_s() + timeout_s, f"the detach of a link to {self.entity}")
        engine.forget(self.pointer)


def make_sender(engine: Engine, address: str | None, *, settled: bool = False) -> Pointer:
    """A new sender link, not yet attached."""
    name = f"s-{new_id()}".encode()
    pointer = lib.pn_sender(engine.session, name)
    if address is not None:
        lib.pn_terminus_set_address(lib.pn_link_target(pointer), address.encode())
    lib.pn_terminus_set_address(lib.pn_link_source(pointer), name)
    lib.pn_link_set_snd_settle_mode(pointer, lib.PN_SND_SETTLED if settled else lib.PN_SND_UNSETTLED)
    lib.pn_link_set_rcv_settle_mode(pointer, lib.PN_RCV_FIRST)
    return pointer


def make_receiver(engine: Engine, address: str, target: str, *, settled: bool) -> Pointer:
    """A new receiver link, not yet attached; with unsettled transfers the peer confirms each outcome."""
    pointer = lib.pn_receiver(engine.session, f"r-{new_id()}".encode())
    lib.pn_terminus_set_address(lib.pn_link_source(pointer), address.encode())
    lib.pn_terminus_set_address(lib.pn_link_target(pointer), target.encode())
    lib.pn_link_set_snd_settle_mode(pointer, lib.PN_SND_SETTLED if settled else lib.PN_SND_UNSETTLED)
    lib.pn_link_set_rcv_settle_mode(pointer, lib.PN_RCV_FIRST if settled else lib.PN_RCV_SECOND)
    return pointer


class Inbox:
    """Collects a delivery of several frames, so that Proton keeps little of it."""

    __slots__ = ("_buffer", "_capacity", "_size")

    def __init__(self) -> None:
        self._capacity = FIRST_BUFFER_BYTES
        self._buffer = ffi.new("char[]", FIRST_BUFFER_BYTES)
        self._size = 0

    def take(self, link: Pointer, delivery: Pointer) -> bytes | None:
        """Read the next bytes of the current delivery; returns all its bytes once it is complete, else None.

        ConnectorError if the peer has aborted the delivery, which the service never does.
        """
        if lib.pn_delivery_aborted(delivery):
            raise unavailable("the peer has aborted a message that it was sending")
        pending = lib.pn_delivery_pending(delivery)
        if pending:
            if self._size + pending > self._capacity:
                self._grow(self._size + pending)
            taken = lib.pn_link_recv(link, self._buffer + self._size, pending)
            if taken > 0:
                self._size += taken
        if lib.pn_delivery_partial(delivery):
            return None
        data: bytes = ffi.buffer(self._buffer, self._size)[:]
        self._size = 0
        return data

    def _grow(self, size: int) -> None:
        while self._capacity < size:
            self._capacity *= 2
        buffer = ffi.new("char[]", self._capacity)
        ffi.memmove(buffer, self._buffer, self._size)
        self._buffer = buffer
