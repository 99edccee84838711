"""The delivery path over Proton's low-level functions: events, deliveries in, deliveries out, outcomes.

Why not the wrapper classes: through them a minimal broker did 28 000 messages/s in and 40 000 out, through these calls
several times as many. Everything per message is in this file, and nothing else is. Knows Proton's pointers and its
traps; knows nothing of the broker: subclasses do (`incoming`, `outgoing`, `requests`).

The traps, each of which cost somebody a day:

* `advance` before `settle`: the other order frees the delivery while its event is at the head of the collector, the
  next delivery reuses the address, its event is merged away, and every second transfer is lost.
* Tags are bytes here (lock tokens are no UTF-8).
* A pointer to a delivery is valid until we settle it or free its link. `_open` holds exactly the deliveries that are
  unsettled, with the pointer of those that wait for an outcome or are part of a transaction; settling takes a delivery
  out, and a link that is gone empties it. An outcome that comes later finds nothing and is dropped.
* Proton merges dispositions into ranges only when they are updated in order of their ids: outcomes are gathered over
  one turn of the event loop and sorted by the order in which their deliveries came.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from ...broker.errors import BrokerError, Condition
from ...broker.partition.step import Delivery
from ...broker.service_errors import too_large
from ..links.transaction_states import TRANSACTIONAL, set_state_data, transaction_of, transactional_state
from ..nodes.claims import Need
from ..tracking import Tracker
from .engine import Engine, Pointer, ffi, lib, set_condition

PN_DELIVERY: Final = int(lib.PN_DELIVERY)
PN_LINK_FLOW: Final = int(lib.PN_LINK_FLOW)
ACCEPTED: Final = int(lib.PN_ACCEPTED)
REJECTED: Final = int(lib.PN_REJECTED)
RELEASED: Final = int(lib.PN_RELEASED)
MODIFIED: Final = int(lib.PN_MODIFIED)
RECEIVED: Final = int(lib.PN_RECEIVED)

TAG_BYTES_MAX: Final = 255
KEEPING_BYTES: Final = 512
"""About what Proton and we need to keep one delivery besides its bytes: many small ones count, too."""
_NOT_OPEN: Final = object()
_SCRATCH_BYTES: Final = 1024 * 1024
_COUNT_MASK: Final = 0xFFFF_FFFF

_peek, _pop, _type = lib.pn_collector_peek, lib.pn_collector_pop, lib.pn_event_type
_event_delivery, _event_link, _delivery_link = lib.pn_event_delivery, lib.pn_event_link, lib.pn_delivery_link
_readable, _partial, _pending = lib.pn_delivery_readable, lib.pn_delivery_partial, lib.pn_delivery_pending
_recv, _advance, _settle, _update = (
    lib.pn_link_recv,
    lib.pn_link_advance,
    lib.pn_delivery_settle,
    lib.pn_delivery_update,
)
_settled, _remote_state, _tag = lib.pn_delivery_settled, lib.pn_delivery_remote_state, lib.pn_delivery_tag
_new_delivery, _send = lib.pn_delivery, lib.pn_link_send
_credit, _flow = lib.pn_link_credit, lib.pn_link_flow
_buffer = ffi.buffer

# One event loop, one thread: buffers that every connection uses for the length of one call.
_scratch: Any = ffi.new("char[]", _SCRATCH_BYTES)
_scratch_view: Any = ffi.buffer(_scratch)
_tag_chars: Any = ffi.new("char[]", TAG_BYTES_MAX)
_tag_view: Any = ffi.buffer(_tag_chars)
_tag_struct: Any = ffi.new("pn_bytes_t *")
_tag_struct.start = _tag_chars

Done = Callable[[BrokerError | None], None]


class Host(Protocol):
    """What a link needs of its connection."""

    serial: int
    """Counts whatever will get an outcome, in order of arrival."""
    outcomes: list[tuple[int, Finisher, Hashable, BrokerError | None]]
    """Outcomes of this turn of the event loop: serial, link, the link's key for the delivery, error."""
    tracker: Tracker
    """Gives errors their tails."""
    pending_bytes: int
    partial_bytes: int
    drained: list[Outflow]
    """Links whose drain found no credit: the connection writes their answers."""
    echoed: set[Link]
    """Links whose state the client asks for: the connection writes it."""
    log: Any
    """The connection's logger."""

    def detach(self, pointer: Pointer, error: BrokerError) -> None:
        """Close a link from our side."""
        ...

    def schedule_flush(self) -> None:
        """Have `outcomes` applied and Proton's output written at the end of this turn."""
        ...


class Finisher(Protocol):
    """What answers a delivery at the end of the turn: its link, or what stands for the delivery in a transaction."""

    def finish(self, key: Any, error: BrokerError | None) -> None:
        """Give the delivery `key` its outcome, if it is still there."""
        ...


class LinkState(NamedTuple):
    """The fields of a flow that are a link's [AMQP 2.7.4]."""

    delivery_count: int
    credit: int
    available: int | None = None
    drain: bool = False


class Link:
    """One attached link: its pointer, and what happens on it."""

    __slots__ = ("_open", "asked", "batch", "host", "needs", "peer_count", "pointer", "when_settled")

    def __init__(self, host: Host, pointer: Pointer) -> None:
        self.host = host
        self.pointer = pointer
        self.asked = False
        """The flow that comes next wants an answer."""
        self.peer_count = 0
        """The delivery-count in that flow."""
        self.batch = False
        """The delivery that is arriving is a batch."""
        self.needs: Sequence[Need] = ()
        """What the client must be allowed as long as the link is there."""
        self.when_settled: Callable[[], None] | None = None
        """Called each time that the last delivery of a link that lingers is settled."""
        self._open: dict[Any, Any] = {}

    def on_delivery(self, delivery: Pointer) -> None:
        """Something arrived for a delivery: bytes, a disposition, or both."""
        raise AssertionError(delivery)

    def on_flow(self) -> None:
        """Credit may have changed."""
        if self.asked:
            self.asked = False
            self.show_state()

    def show_state(self) -> None:
        """Have a flow written with the link's state [AMQP 2.6.7]."""
        self.host.echoed.add(self)
        self.host.schedule_flush()

    def state(self) -> LinkState:
        """The link's state, as it is once Proton's output is written."""
        raise AssertionError

    def finish(self, key: Any, error: BrokerError | None) -> None:
        """Give the delivery `key` its outcome, if it is still there."""
        raise AssertionError(key, error)

    def has_unsettled(self) -> bool:
        """Whether deliveries of it are unsettled."""
        return bool(self._open)

    def linger(self) -> bool:
        """The link is closed: do nothing but settle from now on, until `gone`; False if there is nothing to settle."""
        return False

    def gone(self) -> None:
        """The link is closed or lost: no pointer of it may be used any more."""
        self._open.clear()


def run_events(
    engine: Engine,
    links: dict[Pointer, Link],
    control: Callable[[int, Pointer], None],
    late: Callable[[Pointer], None],
) -> None:
    """Handle all events that Proton has: deliveries and flows here, deliveries of links that have gone through
    `late(delivery)`, everything else through `control(type, event)`."""
    collector = engine.collector
    peek, pop, kind_of, find = _peek, _pop, _type, links.get
    while True:
        event = peek(collector)
        if not event:
            return
        kind = kind_of(event)
        if kind == PN_DELIVERY:
            delivery = _event_delivery(event)
            link = find(_delivery_link(delivery))
            if link is not None:
                link.on_delivery(delivery)
            else:
                late(delivery)
        elif kind == PN_LINK_FLOW:
            link = find(_event_link(event))
            if link is not None:
                link.on_flow()
        else:
            control(kind, event)
        pop(collector)


def link_of_next(engine: Engine, kind: int, links: dict[Pointer, Link]) -> Link | None:
    """The link of the next event if that is of `kind`: told apart because its frame was pushed alone."""
    event = _peek(engine.collector)
    if not event or _type(event) != kind:
        return None
    return links.get(_delivery_link(_event_delivery(event)) if kind == PN_DELIVERY else _event_link(event))


def drop(delivery: Pointer, error: BrokerError) -> None:
    """A delivery on a link that we refused or closed: its bytes go; an unsettled one is rejected with `error`."""
    if _readable(delivery) and not _partial(delivery):
        _advance(_delivery_link(delivery))
        if not _settled(delivery):
            reject(delivery, error)
        _settle(delivery)
    elif _readable(delivery):
        _recv(_delivery_link(delivery), _scratch, _SCRATCH_BYTES)


class Inflow(Link):
    """A link on which the client sends. Subclasses say what happens to a whole delivery in `receive`."""

    __slots__ = (
        "_credit_half",
        "_given",
        "_initial_count",
        "_owed",
        "_partial_bytes",
        "answers",
        "bytes_max",
        "receive",
    )

    def __init__(
        self,
        host: Host,
        pointer: Pointer,
        receive: Callable[[bytes, bool, Done], None],
        *,
        bytes_max: int,
        credit: int,
    ) -> None:
        super().__init__(host, pointer)
        self.receive = receive
        """Called with a delivery's bytes, whether it is a batch, and how to tell its outcome (once)."""
        self.answers: dict[int, tuple[int, bytes]] = {}
        """For deliveries (by serial) whose success is not plainly accepted: the state and its encoded fields."""
        self.bytes_max = bytes_max
        self._credit_half = credit // 2
        self._owed = 0
        self._partial_bytes = 0
        self._given = credit
        self._initial_count = 0
        _flow(pointer, credit)

    def on_delivery(self, delivery: Pointer) -> None:
        """Take a whole delivery; drop what exceeds the limit while it arrives."""
        if not _readable(delivery):
            return  # settled by the client before our outcome: Proton then writes none
        size = _pending(delivery)
        if _partial(delivery):
            self._part(size)
            return
        pointer, host = self.pointer, self.host
        if self._partial_bytes:
            self.host.partial_bytes -= self._partial_bytes
            self._partial_bytes = 0
        if size > self.bytes_max:
            self._exceed(size)
            drop(delivery, self.host.tracker.refused(too_large(size, self.bytes_max), self.pointer))
            return
        if size > _SCRATCH_BYTES:
            data = _large(pointer, size)
        else:
            taken = _recv(pointer, _scratch, size)
            data = _scratch_view[:taken] if taken > 0 else b""
            if taken < 0 < size:  # aborted
                self._forget(delivery)
                return
        batch, self.batch = self.batch, False
        presettled = _settled(delivery)
        cost = size + KEEPING_BYTES
        transaction = transaction_of(delivery) if _remote_state(delivery) == TRANSACTIONAL else None
        _advance(pointer)
        host.serial = serial = host.serial + 1
        if presettled:
            _settle(delivery)
            self._open[serial] = (None, cost)
        else:
            self._open[serial] = (delivery, cost)
        host.pending_bytes += cost
        done: Done = partial(self._done, serial)
        if transaction is None:
            self.receive(data, batch, done)
        else:
            self.answers[serial] = (TRANSACTIONAL, transactional_state(transaction, ACCEPTED))
            self.receive_in(transaction, data, batch, done)

    def on_flow(self) -> None:
        """The client's delivery-count shows where it began to count."""
        if self.asked:
            self._initial_count = self.peer_count + link_credit(self.pointer) - self._given
        super().on_flow()

    def state(self) -> LinkState:
        """The delivery-count is what the client began with and what has come since: the credit that was used up."""
        credit = link_credit(self.pointer)
        return LinkState((self._initial_count + self._given - credit) & _COUNT_MASK, credit)

    def receive_in(self, transaction: bytes, data: bytes, batch: bool, done: Done) -> None:
        """As `receive`, for a delivery that is part of a transaction."""
        del transaction, data, batch
        done(BrokerError(Condition.NOT_ALLOWED, "What comes over this link can't be part of a transaction."))

    def _done(self, serial: int, error: BrokerError | None) -> None:
        host = self.host
        host.outcomes.append((serial, self, serial, error))
        host.schedule_flush()

    def finish(self, key: int, error: BrokerError | None) -> None:
        """Answer with accepted or rejected, and give the credit back.

        Who has settled beforehand hears of a refusal by a detach: the delivery must not vanish without a word.
        """
        entry = self._open.pop(key, None)
        if entry is None:
            if error is not None:
                self.host.log.info("delivery refused after its link", reason=str(error))
            return
        delivery, cost = entry
        self.host.pending_bytes -= cost
        answer = self.answers.pop(key, None) if self.answers else None
        if delivery is not None:
            if error is not None:
                reject(delivery, self.host.tracker.refused(error, self.pointer))
            elif answer is None:
                _update(delivery, ACCEPTED)
            else:
                state, encoded = answer
                set_state_data(delivery, encoded)
                _update(delivery, state)
            _settle(delivery)
        elif error is not None:
            self.host.log.warning("settled delivery refused", reason=str(error))
            self.host.detach(self.pointer, error)
            return
        self._owed += 1
        if self._owed > self._credit_half:
            self._pay()

    def _pay(self) -> None:
        """Give the credit back that is owed."""
        _flow(self.pointer, self._owed)
        self._given += self._owed
        self._owed = 0

    def gone(self) -> None:
        """As in `Link`; what the link kept of the connection's allowance is free again."""
        self.host.pending_bytes -= sum(cost for _, cost in self._open.values())
        self.host.partial_bytes -= self._partial_bytes
        self._partial_bytes = 0
        self.answers.clear()
        super().gone()

    def _part(self, size: int) -> None:
        """Some frames of a delivery are here; `size` bytes are kept by Proton."""
        if size > self.bytes_max:
            self._exceed(size)
            _recv(self.pointer, _scratch, _SCRATCH_BYTES)
        else:
            self.host.partial_bytes += size - self._partial_bytes
            self._partial_bytes = size

    def _exceed(self, size: int) -> None:
        """A delivery is too large, as far as it has come: like the service, close the link at its first excess byte."""
        self.host.log.warning("delivery too large", size_bytes=size, bytes_max=self.bytes_max)
        self.host.detach(self.pointer, too_large(size, self.bytes_max))

    def _forget(self, delivery: Pointer) -> None:
        """An aborted delivery never was; its credit comes back."""
        self.batch = False
        _advance(self.pointer)
        _settle(delivery)
        self._owed += 1
        if self._owed > self._credit_half:
            self._pay()


class Outflow(Link):
    """A link on which the client receives. `credit` is what the client's last flow left us."""

    __slots__ = ("count", "credit", "presettled")

    def __init__(self, host: Host, pointer: Pointer, *, presettled: bool) -> None:
        super().__init__(host, pointer)
        self.presettled = presettled
        self.credit = 0
        self.count = 0
        """Our delivery-count: deliveries given to Proton and credit given back."""

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
        self.count += len(deliveries)

    def give_back(self) -> None:
        """Answer a drain: what is left of the credit goes back [wire 5.6]."""
        unused = link_credit(self.pointer)
        self.credit = 0
        self.count += unused
        if unused:  # with negative credit (an old flow) Proton would count backwards
            lib.pn_link_drained(self.pointer)
        else:
            self.host.drained.append(self)
        self.host.schedule_flush()

    def state(self) -> LinkState:
        """What Proton has not written yet is still to come; nothing else is available as long as there is credit."""
        queued = int(lib.pn_link_queued(self.pointer))
        credit = link_credit(self.pointer) + queued
        return LinkState((self.count - queued) & _COUNT_MASK, credit, queued if credit else None, self.wants_drain())

    def has_queued(self) -> bool:
        """Whether Proton still has deliveries of this link to write."""
        return bool(lib.pn_link_queued(self.pointer))

    def resume(self) -> None:
        """Output has gone, for which the link waited: there may be room again."""

    def wants_drain(self) -> bool:
        """Whether the client's last flow said drain."""
        return bool(lib.pn_link_get_drain(self.pointer))

    def on_delivery(self, delivery: Pointer) -> None:
        """A disposition came: once per delivery it is told to `disposed`."""
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
            if self.when_settled is not None and not self._open:
                self.when_settled()
        elif not waits and state and state != RECEIVED:
            host = self.host
            host.serial = serial = host.serial + 1
            self._open[token] = (delivery, state)
            self.disposed(token, state, delivery, partial(self._done, serial, token))

    def disposed(self, token: bytes, state: int, delivery: Pointer, done: Done | None) -> None:
        """The client wants `state` for the delivery; without `done` it has settled and hears no more of it."""
        raise AssertionError(token, state, delivery, done)

    def _done(self, serial: int, token: bytes, error: BrokerError | None) -> None:
        host = self.host
        host.outcomes.append((serial, self, token, error))
        host.schedule_flush()

    def enroll(self, enrolled: Enrolled) -> None:
        """Confirm that the outcome of a delivery is part of a transaction; the delivery stays live."""
        host = self.host
        self._open[enrolled.token] = enrolled
        set_state_data(enrolled.delivery, enrolled.answer)
        host.outcomes.append((enrolled.serial, enrolled, enrolled.token, None))
        host.schedule_flush()

    def settle_enrolled(self, enrolled: Enrolled) -> None:
        """The transaction is committed: settle the delivery, unless the client has settled or disposed of it since."""
        token = enrolled.token
        if self._open.get(token) is enrolled:
            self._open[token] = (enrolled.delivery, TRANSACTIONAL)
            self._done(enrolled.serial, token, None)

    def is_enrolled(self, enrolled: Enrolled) -> bool:
        """Whether nothing has happened to the delivery since."""
        return self._open.get(enrolled.token) is enrolled

    def finish(self, key: bytes, error: BrokerError | None) -> None:
        """Confirm with an outcome of the client's kind, or reject with the error [wire 5.7]."""
        entry = self._open.pop(key, None)
        if entry is None:
            return
        delivery, state = entry
        if error is None:
            _update(delivery, state)
        else:
            reject(delivery, self.host.tracker.refused(error, self.pointer))
        _settle(delivery)
        if self.when_settled is not None and not self._open:
            self.when_settled()


class Enrolled:
    """A delivery whose outcome is part of a transaction [AMQP 4.4.2]: an entry of `_open` that takes dispositions.

    The client hears that the outcome is in the transaction, unsettled. A commit settles the delivery. After a rollback
    it is as it was before: the client settles it anew.
    """

    __slots__ = ("answer", "delivery", "link", "serial", "token")

    def __init__(self, link: Outflow, token: bytes, delivery: Pointer, answer: bytes) -> None:
        self.link = link
        self.token = token
        self.delivery = delivery
        self.serial = link.host.serial
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


def reject(delivery: Pointer, error: BrokerError) -> None:
    """Update a delivery with rejected(error)."""
    set_condition(lib.pn_disposition_condition(lib.pn_delivery_local(delivery)), error)
    _update(delivery, REJECTED)


def _large(pointer: Pointer, size: int) -> bytes:
    buffer = ffi.new("char[]", size)
    taken = _recv(pointer, buffer, size)
    return _buffer(buffer, taken)[:] if taken > 0 else b""


def link_credit(pointer: Pointer) -> int:
    """The credit that is left on a link, as Proton counts it."""
    return max(0, int(_credit(pointer)))
