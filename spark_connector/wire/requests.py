"""Requests and responses over a pair of links to a node, such as `$cbs` and `$management` [wire 3].

Knows how a request is written and a response recognised. A response stays as bytes: only its head is read, because the
reply to a peek is a megabyte of messages that are read elsewhere. Does not know any operation.

A `Requests` owns its two links. Any number of requests may be in flight; the correlation-id assigns each response.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any, Final

from ...codec.decode import decode
from ...codec.encode import encode
from ...codec.types import Described
from ..conditions import unavailable
from ..errors import ConnectorError
from ..timing import monotonic_s, new_id
from .engine import Engine, Pointer
from .links import BaseLink, Inbox, make_receiver, make_sender
from .values import APPLICATION_PROPERTIES, BODY_CODES, PROPERTIES, VALUE, described, ffi, lib, plain

CREDIT: Final = 100
_CORRELATION_ID: Final = 5


@dataclass(frozen=True, slots=True)
class Pending:
    """A request that was sent; pass it to `end`."""

    message_id: str
    operation: str
    deadline_s: float


@dataclass(frozen=True, slots=True)
class Head:
    """The part before the body of a message: its application properties, and the offset of the body."""

    correlation_id: object
    properties: Mapping[str, Any]
    body_at: int


def read_head(data: bytes) -> Head:
    """Read a response up to its body; ValueError (a DecodeError is one) if it is no message."""
    at, size = 0, len(data)
    correlation_id: object = None
    properties: Mapping[str, Any] = {}
    while at < size:
        code = data[at + 2] if data[at : at + 2] == b"\x00\x53" else -1
        if code in BODY_CODES:
            break
        section, at = decode(data, at)
        value: Any = plain(section.value) if isinstance(section, Described) else None
        if code == PROPERTIES:
            correlation_id = value[_CORRELATION_ID] if len(value) > _CORRELATION_ID else None
        elif code == APPLICATION_PROPERTIES and isinstance(value, dict):
            properties = value
    return Head(correlation_id, properties, at)


def read_body(data: bytes, head: Head) -> Any:
    """The value in a response's body; None if it has none."""
    if head.body_at >= len(data) or data[head.body_at + 2] != VALUE:
        return None
    section, _ = decode(data, head.body_at)
    return plain(section.value) if isinstance(section, Described) else None


class _Requester(BaseLink):
    """The link for requests; they are sent settled, so nothing comes back on it."""

    def on_delivery(self, delivery: Pointer) -> None:
        lib.pn_delivery_settle(delivery)


class _Replier(BaseLink):
    """The link for responses."""

    def __init__(self, engine: Engine, entity: str, pointer: Pointer) -> None:
        super().__init__(engine, entity, pointer)
        self.replies: dict[str, bytes] = {}
        self.waiting: set[str] = set()
        self._inbox = Inbox()

    def on_delivery(self, delivery: Pointer) -> None:
        if not lib.pn_delivery_readable(delivery):
            return
        data = self._inbox.take(self.pointer, delivery)
        if data is None:
            return
        lib.pn_link_advance(self.pointer)
        if not lib.pn_delivery_settled(delivery):
            lib.pn_delivery_update(delivery, lib.PN_ACCEPTED)
        lib.pn_delivery_settle(delivery)
        lib.pn_link_flow(self.pointer, 1)
        try:
            message_id = str(read_head(data).correlation_id)
        except (ValueError, IndexError, TypeError, AttributeError) as problem:
            self.engine.fail(unavailable(f"{self.engine.where} sent a response that is no message: {problem}"))
            return
        if message_id in self.waiting:
            self.waiting.remove(message_id)
            self.replies[message_id] = data


class Requests:
    """Both links to the node at `address`; `entity` names it in errors."""

    def __init__(self, engine: Engine, address: str, entity: str) -> None:
        self._engine = engine
        self._timeout_s = engine.endpoint.operation_timeout_s
        self._reply_to = f"reply-{new_id()}"
        self._number = 0
        self._tag = ffi.new("char[]", 8)
        self._tag_struct = ffi.new("pn_bytes_t *", {"size": 8, "start": self._tag})
        self._replier = _Replier(engine, entity, make_receiver(engine, address, self._reply_to, settled=True))
        self._requester = _Requester(engine, entity, make_sender(engine, address, settled=True))
        lib.pn_link_open(self._replier.pointer)
        lib.pn_link_flow(self._replier.pointer, CREDIT)
        try:
            self._requester.attach(self._timeout_s)
            self._replier.wait_attached(self._timeout_s)
        except BaseException:
            self.discard()
            raise

    def discard(self) -> None:
        """Detach both links without waiting for an answer."""
        self._requester.discard()
        self._replier.discard()

    @property
    def open_count(self) -> int:
        return len(self._replier.waiting) + len(self._replier.replies)

    @property
    def lost(self) -> ConnectorError | None:
        """The error that ended one of the links."""
        return self._requester.lost or self._replier.lost

    def begin(
        self, operation: str, body: object, properties: Mapping[str, object], *, timeout_s: float | None = None
    ) -> Pending:
        """Send a request; returns once Proton has it, after waiting for credit if there was none."""
        engine, link = self._engine, self._requester
        link.check()
        deadline_s = monotonic_s() + (timeout_s or self._timeout_s)
        if lib.pn_link_credit(link.pointer) <= 0:
            engine.run_until(
                lambda: lib.pn_link_credit(link.pointer) > 0 or link.lost, deadline_s, f"credit for {operation}"
            )
            link.check()
        self._number += 1
        message_id = f"{self._number}"
        request = b"".join(
            (
                encode(described(PROPERTIES, [message_id, None, None, None, self._reply_to])),
                encode(described(APPLICATION_PROPERTIES, {"operation": operation, **properties})),
                encode(described(VALUE, body)),
            )
        )
        self._tag[0:8] = [bytes((byte,)) for byte in self._number.to_bytes(8, "big")]
        delivery = lib.pn_delivery(link.pointer, self._tag_struct[0])
        lib.pn_link_send(link.pointer, request, len(request))
        lib.pn_link_advance(link.pointer)
        lib.pn_delivery_settle(delivery)
        self._replier.waiting.add(message_id)
        engine.write()
        return Pending(message_id, operation, deadline_s)

    def end(self, pending: Pending) -> bytes:
        """Wait for a response: the encoded message. ConnectorError if it does not come in time."""
        message_id, replies = pending.message_id, self._replier.replies
        if message_id not in replies:
            if message_id not in self._replier.waiting:
                raise ValueError(f"no request {message_id} is in flight: its response was taken before")
            self._engine.run_until(
                lambda: message_id in replies or self.lost,
                pending.deadline_s,
                f"the response to {pending.operation} on {self._replier.entity}",
            )
            if message_id not in replies:
                raise copy(self.lost) if self.lost else AssertionError(message_id)
        return replies.pop(message_id)
