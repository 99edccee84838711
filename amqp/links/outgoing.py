"""Links on which clients receive messages of an entity: credit and drain in, messages out, settlements back.

Knows the consumer handle of the broker, the client's credit and how much of it the broker may use at a time: the
credit is passed on in slices, and not at all while the socket or the AMQP session's window is full (R6). Refuses to
know which message comes next and what an outcome does. A link owns its handle and closes it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from ...broker.entities.transaction import TransactionRef
from ...broker.errors import BrokerError, Condition
from ...broker.partition.step import Delivery
from ..limits import Limits
from ..wire.deliveries import Done, Enrolled, Host, Outflow, link_credit
from ..wire.engine import Pointer, lib, session_of
from .outcomes import RELEASE, outcome_of, outcome_of_value
from .ports import BrokerPort, ConsumerPort
from .transaction_states import TRANSACTIONAL, read_transactional, transactional_state

_FIRST_GUESS_BYTES = 16 * 1024  # size of a message before any was seen


class OutgoingHost(Host, Protocol):
    """What an outgoing link needs of its connection besides."""

    broker: BrokerPort
    limits: Limits
    held: set[Outflow]
    """Links whose consumers get no credit until output has gone."""
    blocked: bool
    """The socket takes no more."""

    def crash(self, error: BaseException) -> None:
        """Something went wrong that must not reach the broker: close the connection, log it once."""
        ...


class OutgoingLink(Outflow):
    """A client's receiver link. `start` gives it its consumer, right after the attach was accepted."""

    __slots__ = ("_consumer", "_draining", "_granted", "_host", "_lingering", "_message_bytes", "_session")

    def __init__(self, host: OutgoingHost, pointer: Pointer, *, presettled: bool) -> None:
        super().__init__(host, pointer, presettled=presettled)
        self._host = host
        self._session = session_of(pointer)
        self._consumer: ConsumerPort | None = None
        self._lingering: ConsumerPort | None = None
        """The closed consumer of a link that has gone."""
        self._granted = 0
        """How much of the credit the consumer has at the moment."""
        self._message_bytes = _FIRST_GUESS_BYTES
        self._draining = False

    def start(self, consumer: ConsumerPort) -> None:
        """From now on messages may come."""
        self._consumer = consumer
        if self.credit:
            self._grant()

    def interpose(self, wrap: Callable[[ConsumerPort], ConsumerPort]) -> None:
        """Let something stand between the link and the broker (`faults`)."""
        if self._consumer is not None:
            self._consumer = wrap(self._consumer)

    # ---- credit

    def on_flow(self) -> None:
        """A flow of the client, or Proton telling that it has sent something."""
        asked, self.asked = self.asked, False
        credit = link_credit(self.pointer)
        if credit == self.credit and not asked:
            return
        self.credit = credit
        if self._draining:
            return  # looked at again when the drain is over
        self._grant()
        if asked:
            self._answer()

    def _answer(self) -> None:
        """Drain, or answer a flow that wants nothing but an answer."""
        consumer = self._consumer
        if not self.wants_drain():
            self.show_state()
        elif consumer is not None and self.credit:
            self._draining = True
            consumer.drain(self._drained)
        else:
            self.give_back()

    def _grant(self) -> None:
        """Let the consumer have the next slice of the credit."""
        consumer, host = self._consumer, self._host
        if consumer is None:
            return
        limits = host.limits
        if self.credit and (host.blocked or lib.pn_session_outgoing_bytes(self._session) > limits.outgoing_bytes_max):
            host.held.add(self)
            granted = 0
        else:
            slice_count = limits.outgoing_bytes_max // self._message_bytes
            granted = min(self.credit, limits.outgoing_slice_max, max(1, slice_count))
        self._granted = granted
        consumer.set_credit(granted)

    def hold(self) -> None:
        """The socket takes no more: neither do we."""
        if self._consumer is not None and self._granted > 0:
            self._host.held.add(self)
            self._granted = 0
            self._consumer.set_credit(0)

    def resume(self) -> None:
        """Output has gone: there may be room again."""
        if self._consumer is None:
            return
        if self._draining:
            self._draining = False
            self._grant()
            self._answer()
        else:
            self._grant()

    def _drained(self) -> None:
        """The consumer has given all it has; its credit is 0 now."""
        if self._consumer is None:
            return
        used_up = self._granted <= 0
        self._granted = 0
        self.credit = link_credit(self.pointer)
        if not self.wants_drain():  # taken back meanwhile
            self._draining = False
            self._grant()
        elif used_up and self.credit:  # only the slice is at its end
            self._host.held.add(self)
            self._host.schedule_flush()
        else:
            self._draining = False
            self.give_back()

    # ---- messages

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        """The broker's messages; what exceeds the credit that the client has left meanwhile goes back."""
        try:
            if self._consumer is None:
                return  # the broker knows that we closed; what it had under way is its to return
            over = len(deliveries) - self.credit
            if over > 0 and not self.presettled:
                deliveries = self._without_last(deliveries, over)
            if deliveries:
                self.transfer(deliveries)
                self._after(deliveries)
        except Exception as error:
            self._host.crash(error)

    def _after(self, deliveries: Sequence[Delivery]) -> None:
        """Account for what was sent and top the consumer up at half of its slice."""
        host = self._host
        size = len(deliveries[-1].payload)
        self._message_bytes = max(256, size, (self._message_bytes + size) // 2)
        self._granted -= len(deliveries)
        host.schedule_flush()
        if not self._draining and self.credit > self._granted and self._granted * 2 < self._slice():
            self._grant()

    def _slice(self) -> int:
        limits = self._host.limits
        return min(limits.outgoing_slice_max, max(1, limits.outgoing_bytes_max // self._message_bytes))

    def _without_last(self, deliveries: Sequence[Delivery], count: int) -> Sequence[Delivery]:
        """Give the last `count` deliveries back: credit was withdrawn while they were on their way to us."""
        consumer = self._consumer
        keep = max(0, len(deliveries) - count)
        if consumer is not None:
            for each in deliveries[keep:]:
                consumer.settle(each.token, RELEASE, None)
        return deliveries[:keep]

    def disposed(self, token: bytes, state: int, delivery: Pointer, done: Done | None) -> None:
        """The client settles: through the table of outcomes to the broker."""
        consumer = self._consumer or self._lingering
        if consumer is None:
            return
        if state == TRANSACTIONAL:
            self._settle_in_transaction(consumer.address, token, delivery, done or _ignore)
            return
        outcome = outcome_of(state, delivery) if state else None
        if outcome is not None:
            consumer.settle(token, outcome, done)
        elif done is not None:
            done(BrokerError(Condition.NOT_IMPLEMENTED, f"Delivery state 0x{state:02x} is not supported here."))

    def _settle_in_transaction(self, address: str, token: bytes, delivery: Pointer, done: Done) -> None:
        """Add a settlement to a transaction; it is confirmed with the same state around the same outcome [wire 8].

        The delivery is settled with the commit and not before. JMS clients settle it at once: they have let go of it
        whatever becomes of the transaction.
        """
        transaction, value = read_transactional(delivery)
        found = outcome_of_value(value)
        if found is None:
            done(BrokerError(Condition.INVALID_FIELD, "A transactional-state of a receiver must have an outcome."))
            return
        code, outcome = found
        settle = partial(
            self._host.broker.transactional_settle, TransactionRef(self._host, transaction), address, token, outcome
        )
        try:
            if done is _ignore:  # the delivery is settled
                settle(settled=True)
            else:
                enrolled = Enrolled(self, token, delivery, transactional_state(transaction, code))
                settle(on_commit=enrolled.committed)
                self.enroll(enrolled)
        except BrokerError as error:
            done(error)

    def linger(self) -> bool:
        """No more messages; what was delivered can be settled as long as its lock holds [AMQP 2.7.6]."""
        consumer = self._consumer
        self._release()
        self._lingering = consumer
        return consumer is not None

    def gone(self) -> None:
        """No more messages and no more confirmations; locks stay until they expire [wire 5.8]."""
        super().gone()
        self._release()
        self._lingering = None

    def _release(self) -> None:
        """Give the consumer up."""
        self._host.held.discard(self)
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()


def _ignore(error: BrokerError | None) -> None:
    """The outcome of what the client has settled already."""
