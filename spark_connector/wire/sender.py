"""A link that sends messages and batches, with many deliveries in flight.

Knows credit, outcomes and a window of unconfirmed deliveries. Does not know the content of a message. A `Sender`
belongs to its connection; `key` is returned to the caller with the outcome.
"""

from __future__ import annotations

from collections import deque
from copy import copy
from typing import TYPE_CHECKING, Final

from ..conditions import unavailable, wire_error
from ..errors import Code, ConnectorError
from ..timing import monotonic_s
from .engine import ACCEPTED, REJECTED, TRANSACTIONAL, Engine, Pointer, condition_error, set_delivery_state
from .envelopes import MARK, MARKED_TAG_BYTES
from .links import BaseLink, make_sender
from .values import described_fields, ffi, lib, outcome_code, value_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .transactions import Transaction

MESSAGE_BYTES_MAX_DEFAULT: Final = 1024 * 1024
BATCH_BYTES_MAX_DEFAULT: Final = 256 * 1024
"""What clients assume for a service that doesn't say [wire 4.1]."""

BATCH_BYTES_MAX: Final = 1024 * 1024
"""Of a service that allows larger messages but doesn't say how large a batch may be: so much does every tier take."""

TURN_BYTES: Final = 128 * 1024
"""So much is given to Proton before the socket gets its turn."""

SIZE_EXCEEDED: Final = "amqp:link:message-size-exceeded"

Outcome = tuple[object, ConnectorError | None]


class Sender(BaseLink):
    """Made by `Connection.sender`; attached."""

    def __init__(self, engine: Engine, entity: str, *, window: int, authorize: Callable[[str], None]) -> None:
        if window < 1:
            raise ValueError(f"window is {window}, it must be at least 1")
        super().__init__(engine, entity, make_sender(engine, entity))
        self._window = window
        self._authorize = authorize
        self._timeout_s = engine.endpoint.operation_timeout_s
        self._number = 0
        self._keys: dict[int, object] = {}
        self._known: deque[Outcome] = deque()
        self._unturned_bytes = 0
        self._tag = ffi.new("char[]", MARKED_TAG_BYTES)
        self._tag_view = ffi.buffer(self._tag)
        self._tag_view[0 : len(MARK)] = MARK
        self._marked = ffi.new("pn_bytes_t *", {"size": MARKED_TAG_BYTES, "start": self._tag})
        self._plain = ffi.new("pn_bytes_t *", {"size": 8, "start": self._tag + len(MARK)})
        self.attach(self._timeout_s)
        said = int(lib.pn_link_remote_max_message_size(self.pointer))
        self.message_bytes_max, self.batch_bytes_max = limits_of(said, self.properties())

    def send(
        self, data: bytes | memoryview, *, envelope: bool, key: object, transaction: Transaction | None = None
    ) -> None:
        """Queue one encoded message, or a batch of them with `envelope`; blocks while the window is full.

        ConnectorError if link or connection are lost: then this message was not sent. It is sent at the latest by the
        next call of `outcomes`, `flush` or `close`. A delivery above the limit of the link is not sent, because the
        service would close the link with everything in flight. Its outcome is MESSAGE_TOO_LARGE.
        """
        self.check()
        bytes_max = self.batch_bytes_max if envelope else self.message_bytes_max
        if len(data) > bytes_max:
            what = "batch" if envelope else "message"
            text = f"a {what} of {len(data)} bytes exceeds the limit of {bytes_max} bytes"
            self._known.append((key, wire_error(SIZE_EXCEEDED, text, entity=self.entity)))
            return
        self._authorize(self.entity)
        if len(self._keys) >= self._window or lib.pn_link_credit(self.pointer) <= 0:
            self._wait(
                lambda: len(self._keys) < self._window and lib.pn_link_credit(self.pointer) > 0,
                f"the outcome of a message to {self.entity}" if self._keys else f"credit to send to {self.entity}",
            )
        pointer = self.pointer
        self._number = number = self._number + 1
        self._tag_view[len(MARK) : MARKED_TAG_BYTES] = number.to_bytes(8, "big")
        delivery = lib.pn_delivery(pointer, self._marked[0] if envelope else self._plain[0])
        if transaction is not None:
            set_delivery_state(delivery, TRANSACTIONAL, [transaction.id, None])
        size = len(data)
        lib.pn_link_send(pointer, data if isinstance(data, bytes) else ffi.from_buffer(data), size)
        lib.pn_link_advance(pointer)
        self._keys[number] = key
        self._unturned_bytes += size
        if self._unturned_bytes >= TURN_BYTES:
            self._unturned_bytes = 0
            self.engine.turn(0)

    def outcomes(self, *, wait: bool = False) -> list[Outcome]:
        """The outcomes that are known and were not returned before, in order of arrival: key, and None or the refusal.

        With `wait`, blocks until there is one (unless nothing is unconfirmed), and raises ConnectorError if link or
        connection are lost. Without, it never raises: keys that are never returned have no known outcome.
        """
        if wait:
            self._wait(lambda: self._known or not self._keys, f"the outcome of a message to {self.entity}")
        elif self.engine.error is None and not self.engine.closed and self._keys:
            try:
                self.engine.turn(0)
            except ConnectorError:
                pass  # it is raised by the next call that has something to do
        known = list(self._known)
        self._known.clear()
        return known

    def flush(self) -> list[Outcome]:
        """Wait until nothing is unconfirmed; returns as `outcomes`. After ConnectorError `outcomes()` returns what is
        known.
        """
        self._wait(lambda: not self._keys, f"the outcomes of messages to {self.entity}")
        return self.outcomes()

    def _wait(self, is_done: Callable[[], object], what: str) -> None:
        """Wait while outcomes arrive: each one moves the deadline."""
        if is_done():
            return
        self.check()
        while not is_done():
            count = len(self._keys)
            deadline_s = monotonic_s() + self._timeout_s
            self.engine.run_until(lambda: is_done() or self.lost or len(self._keys) < count, deadline_s, what)  # noqa: B023
            if self.lost is not None and not is_done():
                raise copy(self.lost)

    def on_delivery(self, delivery: Pointer) -> None:
        state = lib.pn_delivery_remote_state(delivery)
        settled = lib.pn_delivery_settled(delivery)
        if not settled and (not state or state == lib.PN_RECEIVED):
            return
        tag = lib.pn_delivery_tag(delivery)
        number = int.from_bytes(ffi.buffer(tag.start, tag.size)[:][-8:], "big")
        error = None if state == ACCEPTED else self._error(state, delivery)
        lib.pn_delivery_settle(delivery)
        if error is not None and self.lost is not None:
            return  # rejected because the link was closed, which says nothing of this delivery
        if number in self._keys:
            self._known.append((self._keys.pop(number), error))

    def on_closed(self, error: ConnectorError | None) -> None:
        """The service closes the link at a delivery that it finds too large, without naming the delivery.

        A single unconfirmed delivery must be that one. Of several, none has a known outcome: each may be sent again.
        """
        super().on_closed(error)
        if error is None or error.code is not Code.MESSAGE_TOO_LARGE:
            return
        if len(self._keys) == 1:
            self._known.append((self._keys.popitem()[1], error))
        self.lost = ConnectorError(error.code, error.text, condition=error.condition, retriable=True)

    def _error(self, state: int, delivery: Pointer) -> ConnectorError | None:
        remote = lib.pn_delivery_remote(delivery)
        if state == REJECTED:
            return condition_error(lib.pn_disposition_condition(remote), self.entity) or wire_error(
                None, None, entity=self.entity
            )
        if state == TRANSACTIONAL:
            return transactional_error(value_of(lib.pn_disposition_data(remote)), self.entity)
        return unavailable(f"{self.engine.where} has neither taken nor refused a message to {self.entity}")


def limits_of(message_bytes_max: int, properties: Mapping[str, object]) -> tuple[int, int]:
    """The greatest message and batch, from the attach's max-message-size (0: not stated) and properties."""
    batch_bytes_max = properties.get("com.microsoft:max-message-batch-size")
    if not isinstance(batch_bytes_max, int) or batch_bytes_max <= 0:
        batch_bytes_max = min(message_bytes_max, BATCH_BYTES_MAX) or BATCH_BYTES_MAX_DEFAULT
    message_bytes_max = message_bytes_max or MESSAGE_BYTES_MAX_DEFAULT
    return message_bytes_max, min(message_bytes_max, batch_bytes_max)


def transactional_error(value: object, entity: str) -> ConnectorError | None:
    """The error in the fields of a transactional state: None if its outcome is accepted."""
    outcome = value[1] if isinstance(value, list) and len(value) > 1 else None
    if outcome_code(outcome) in (ACCEPTED, None):
        return None
    fields = described_fields(next(iter(described_fields(outcome)), None))
    condition, description = [*fields, None, None][:2]
    return wire_error(condition, description, entity=entity)
