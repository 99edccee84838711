"""Links on which the client receives: deliveries out, dispositions in, and the credit that goes back.

Everything here happens once per message. Knows how deliveries are given to Proton and which of them are unsettled.
Does not know which message comes next and what an outcome does: subclasses do, in `disposed`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from ...broker.api import Delivery
from ...broker.errors import BrokerError
from .engine import Pointer, ffi, lib
from .flow import LinkState
from .link import COUNT_MASK, RECEIVED, ConnectionState, Done, Link, link_credit, reject
from .transaction_states import TRANSACTIONAL, set_state_data

TAG_BYTES_MAX: Final = 255
_NOT_OPEN: Final = object()

_new_delivery, _send, _advance = lib.pn_delivery, lib.pn_link_send, lib.pn_link_advance
_settled, _settle, _update = lib.pn_delivery_settled, lib.pn_delivery_settle, lib.pn_delivery_update
_remote_state, _tag = lib.pn_delivery_remote_state, lib.pn_delivery_tag
_buffer = ffi.buffer

# One event loop, one thread: buffers that every connection uses for the length of one call.
_tag_chars: Any = ffi.new("char[]", TAG_BYTES_MAX)
_tag_view: Any = ffi.buffer(_tag_chars)
_tag_struct: Any = ffi.new("pn_bytes_t *")
_tag_struct.start = _tag_chars


class OutgoingDeliveries(Link):
    """A link on which the client receives. `credit` is what the client's last flow left us."""

    __slots__ = ("_count", "credit", "presettled")

    def __init__(self, state: ConnectionState, pointer: Pointer, *, presettled: bool) -> None:
        super().__init__(state, pointer)
        self.presettled = presettled
        self.credit = 0
        self._count = 0  # our delivery-count: deliveries given to Proton and credit given back

    # ---- deliveries

    def transfer(self, deliveries: Sequence[Delivery]) -> None:
        """Give whole messages to Proton, each with its token as delivery-tag."""
        pointer, presettled = self.pointer, self.presettled
        tag, tag_view, new, send, advance = _tag_struct, _tag_view, _new_delivery, _send, _advance
        unsettled = self._open
        for each in deliveries:
            token, payload = each.token, each.payload
            size = len(token)
            tag_view[:size] = token
            tag.size = size
            delivery = new(pointer, tag[0])
            send(pointer, payload, len(payload))
            advance(pointer)
            if presettled:
                _settle(delivery)
            else:
                unsettled[token] = None
        self.credit -= len(deliveries)
        self._count += len(deliveries)

    # ---- credit

    def wants_drain(self) -> bool:
        """Whether the client's last flow said drain."""
        return bool(lib.pn_link_get_drain(self.pointer))

    def give_back(self) -> None:
        """Answer a drain: what is left of the credit goes back [wire 5.6]."""
        unused = link_credit(self.pointer)
        self.credit = 0
        self._count += unused
        if unused:  # with negative credit (an old flow) Proton would count backwards
            lib.pn_link_drained(self.pointer)
        else:
            self.state.replies.add_drained(self.pointer, self._drained_state)
        self.state.schedule_flush()

    def _drained_state(self) -> LinkState | None:
        """The answer to a drain; None while Proton has deliveries of this link to write."""
        return None if lib.pn_link_queued(self.pointer) else LinkState(self._count, 0, 0, drain=True)

    def link_state(self) -> LinkState:
        """Deliveries that Proton has not written are still available; without credit nothing is known to be."""
        queued = int(lib.pn_link_queued(self.pointer))
        credit = link_credit(self.pointer) + queued
        return LinkState((self._count - queued) & COUNT_MASK, credit, queued if credit else None, self.wants_drain())

    # ---- dispositions

    def disposed(self, token: bytes, state: int, delivery: Pointer, done: Done | None) -> None:
        """The client wants `state` for the delivery; `done` is None if it has settled: no answer follows."""
        raise AssertionError(token, state, delivery, done)

    def on_delivery(self, delivery: Pointer) -> None:
        """A disposition came: the first one of a delivery goes to `disposed`."""
        tag = _tag(delivery)
        token = _buffer(tag.start, tag.size)[:]
        entry = self._open.get(token, _NOT_OPEN)
        if entry is _NOT_OPEN:
            return
        state = _remote_state(delivery)
        waits = type(entry) is tuple  # for the outcome of an earlier disposition
        if _settled(delivery):
            del self._open[token]
            _settle(delivery)
            if not waits:
                self.disposed(token, state, delivery, None)
            if self._when_settled is not None and not self._open:
                self._when_settled()
        elif not waits and state and state != RECEIVED:
            outcomes = self.state.outcomes
            serial = outcomes.next_serial()
            self._open[token] = (delivery, state)
            self.disposed(token, state, delivery, partial(outcomes.add, serial, self, token))

    def finish(self, key: bytes, error: BrokerError | None) -> None:
        """Confirm with an outcome of the client's kind, or reject with the error [wire 5.7]."""
        entry = self._open.pop(key, None)
        if entry is None:
            return
        delivery, state = entry
        if error is None:
            _update(delivery, state)
        else:
            reject(delivery, self.state.tracked_refusal(error, self.pointer))
        _settle(delivery)
        if self._when_settled is not None and not self._open:
            self._when_settled()

    # ---- outcomes in transactions

    def enroll(self, enrolled: Enrolled) -> None:
        """Confirm that the outcome of a delivery is part of a transaction; the delivery stays live."""
        self._open[enrolled.token] = enrolled
        set_state_data(enrolled.delivery, enrolled.answer)
        self.state.outcomes.add(enrolled.serial, enrolled, enrolled.token, None)

    def settle_enrolled(self, enrolled: Enrolled) -> None:
        """The transaction is committed: settle the delivery, unless the client has settled or disposed of it since."""
        if self.is_enrolled(enrolled):
            self._open[enrolled.token] = (enrolled.delivery, TRANSACTIONAL)
            self.state.outcomes.add(enrolled.serial, self, enrolled.token, None)

    def is_enrolled(self, enrolled: Enrolled) -> bool:
        """Whether nothing has happened to the delivery since."""
        return self._open.get(enrolled.token) is enrolled


class Enrolled:
    """A delivery whose outcome is part of a transaction [AMQP 4.4.2]: an entry of `_open` that takes dispositions.

    An unsettled disposition says that the outcome is in the transaction. A commit settles the delivery. A rollback
    leaves it as it was before: the client settles it anew.
    """

    __slots__ = ("answer", "delivery", "link", "serial", "token")

    def __init__(self, link: OutgoingDeliveries, token: bytes, delivery: Pointer, answer: bytes) -> None:
        self.link = link
        self.token = token
        self.delivery = delivery
        self.serial = link.state.outcomes.last_serial
        self.answer = answer
        """The encoded fields of the transactional-state."""

    def finish(self, key: bytes, error: BrokerError | None) -> None:
        """Confirm without settling; nothing if the client has settled or disposed of the delivery since."""
        del key, error
        if self.link.is_enrolled(self):
            _update(self.delivery, TRANSACTIONAL)

    def committed(self) -> None:
        """The transaction is committed."""
        self.link.settle_enrolled(self)
