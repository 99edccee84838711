"""Links on which clients receive messages of an entity: credit and drain in, messages out, settlements back.

Knows the receiver handle of the broker, the client's credit and how much of it the broker may use at a time: the
credit is passed on in slices, and not at all while the socket or the AMQP session's window is full (R6). Does not know
which message comes next and what an outcome does. A link owns its handle and closes it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from ...broker.api import Delivery, Outcome, RunDone, TransactionRef
from ...broker.clock import Timer
from ...broker.errors import BrokerError, Condition
from ..link_context import LinkContext
from ..wire.engine import Pointer, lib, read_attach
from ..wire.link import link_credit
from ..wire.loops import ACCEPTED
from ..wire.outcomes import COMPLETE, RELEASE, outcome_of, outcome_of_value
from ..wire.outgoing_deliveries import OutgoingDeliveries
from ..wire.run import Run
from ..wire.transaction_states import TRANSACTIONAL, read_transactional, transactional_state

_FIRST_GUESS_BYTES = 16 * 1024  # size of a message before any was seen
_MESSAGE_BYTES_MIN = 256  # counted for a small message


Sieve = Callable[[Sequence[Delivery]], Sequence[Delivery]]
"""The deliveries, of those that the broker hands over, that the client gets now."""


class ReceiverHandle(Protocol):
    """A way out of an entity: the broker's `Receiver` or `SessionReceiver`, or one that may fail on purpose."""

    address: str

    def set_credit(self, count: int) -> None:
        """How many more deliveries may be handed over from now on (absolute)."""
        ...

    def drain(self, drained: Callable[[], None]) -> None:
        """Hand over what is available within the credit, then call `drained()`; the credit is 0 then."""
        ...

    def settle(self, run: Sequence[bytes], outcome: Outcome, done: RunDone | None) -> None:
        """Settle deliveries, each on its own."""
        ...

    def close(self) -> None:
        """The link is gone; locks stay until they expire."""
        ...


class OutgoingLink(OutgoingDeliveries):
    """A client's receiver link. `start` gives it its broker receiver, right after the attach was accepted."""

    __slots__ = (
        "_context",
        "_draining",
        "_granted",
        "_leaving",
        "_lingering",
        "_message_bytes",
        "_observer",
        "_own_receiver",
        "_receiver",
        "_released",
        "_sieve",
        "_unwrapped",
    )

    TAKES_RUNS = True

    def __init__(
        self, context: LinkContext, pointer: Pointer, *, presettled: bool, released: Callable[[], None] | None = None
    ) -> None:
        super().__init__(context, pointer, presettled=presettled)
        self._context = context
        self._released = released
        """Called when the link has given its receiver up."""
        self._own_receiver: ReceiverHandle | None = None
        """The broker's."""
        self._receiver: ReceiverHandle | None = None
        """The broker's, or what is put around it."""
        self._lingering: ReceiverHandle | None = None
        """The closed receiver of a link that has gone, or whose entity has."""
        self._leaving: Timer | None = None
        """Until the link of a deleted entity is closed."""
        self._granted = 0
        """How much of the credit the receiver has at the moment."""
        self._message_bytes = _FIRST_GUESS_BYTES
        self._draining = False
        self._observer: Callable[[int], None] | None = None
        self._sieve: Sieve | None = None
        self._unwrapped: Callable[[], None] | None = None

    @property
    def entity(self) -> str | None:
        """The address of what it receives from; None without a receiver."""
        return None if self._own_receiver is None else self._own_receiver.address

    def start(self, receiver: ReceiverHandle) -> None:
        """From now on messages may come."""
        self._own_receiver = self._receiver = receiver
        if self.credit:
            self._grant()

    def wrap(self, around: Callable[[ReceiverHandle], ReceiverHandle]) -> bool:
        """Put something between the link and the broker (`faults`); False if it is there, or there is no broker."""
        if self._own_receiver is None or self._receiver is not self._own_receiver:
            return False
        self._receiver = around(self._own_receiver)
        return True

    def unwrap(self) -> None:
        """Put nothing between them."""
        self._observer = self._sieve = None
        self._receiver = self._own_receiver
        unwrapped, self._unwrapped = self._unwrapped, None
        if unwrapped is not None:
            unwrapped()

    def observe(self, delivered: Callable[[int], None], sieve: Sieve, unwrapped: Callable[[], None]) -> None:
        """Call `delivered(count)` for messages that the client gets, `sieve` before they are transferred, and
        `unwrapped()` at the end (`faults`)."""
        self._observer = delivered
        self._sieve = sieve
        self._unwrapped = unwrapped

    def grant_anew(self) -> None:
        """Pass the credit on once more: what stands between the link and the broker is not what it was."""
        if self._receiver is not None and not self._draining:
            self._grant()

    def forget_locks(self) -> None:
        """Let every message that is locked and not settled be available again; its delivery count stays."""
        receiver = self._own_receiver
        if receiver is not None and not self.presettled:
            receiver.settle(list(self._open), RELEASE, None)

    # ---- the entity lets go

    def detached(self, error: BrokerError) -> None:
        """The entity wants the link closed because of `error`."""
        self._close_in_time(error, partial(self._context.detach, self.pointer, error))

    def _close_in_time(self, error: BrokerError, close: Callable[[], None]) -> None:
        """Close the link now, or if its entity was deleted a little later; until then nothing comes, and drains are
        answered."""
        pause_ms = self._context.limits.deleted_pause_ms
        if error.condition is not Condition.NOT_FOUND or not pause_ms:
            close()
            return
        receiver, was_draining = self._receiver, self._draining
        self._draining = False
        self._release()
        self._lingering = receiver
        if was_draining:
            self.give_back()
        self._leaving = self._context.clock.call_after(pause_ms, close)

    # ---- credit

    def on_flow(self) -> None:
        """A flow of the client, or Proton telling that it has sent something."""
        wants_reply = self._takes_reply()
        credit = link_credit(self.pointer)
        if credit == self.credit and not wants_reply:
            return
        self.credit = credit
        if self._draining:
            return  # `resume` or `_drained` goes on when the drain is over
        self._grant()
        if wants_reply:
            self._answer()

    def _answer(self) -> None:
        """Drain, or answer a flow that wants nothing but an answer."""
        receiver = self._receiver
        if not self.wants_drain():
            self.show_state()
        elif receiver is not None and self.credit:
            self._draining = True
            receiver.drain(self._drained)
        else:
            self.give_back()

    def _grant(self) -> None:
        """Let the receiver have the next slice of the credit."""
        receiver, flow = self._receiver, self.state.flow
        if receiver is None:
            return
        bytes_max = self._context.limits.outgoing_bytes_max
        if self.credit and (flow.is_blocked or lib.pn_session_outgoing_bytes(self.session) > bytes_max):
            flow.hold(self.resume)
            granted = 0
        else:
            granted = min(self.credit, self._slice())
        self._granted = granted
        receiver.set_credit(granted)

    def _slice(self) -> int:
        """How many deliveries the broker may hand over at a time."""
        limits = self._context.limits
        return min(limits.outgoing_slice_max, max(1, limits.outgoing_bytes_max // self._message_bytes))

    def hold(self) -> None:
        """The socket takes no more: neither do we."""
        if self._receiver is not None and self._granted > 0:
            self.state.flow.hold(self.resume)
            self._granted = 0
            self._receiver.set_credit(0)

    def resume(self) -> None:
        """Output has gone: there may be room again."""
        if self._receiver is None:
            return
        if self._draining:
            self._draining = False
            self._grant()
            self._answer()
        else:
            self._grant()

    def _drained(self) -> None:
        """The receiver has given all it has; its credit is 0 now."""
        if self._receiver is None:
            return
        used_up = self._granted <= 0
        self._granted = 0
        self.credit = link_credit(self.pointer)
        if not self.wants_drain():  # taken back meanwhile
            self._draining = False
            self._grant()
        elif used_up and self.credit:  # only the slice is at its end
            self.state.flow.hold(self.resume)
            self.state.schedule_flush()
        else:
            self._draining = False
            self.give_back()

    # ---- messages

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        """The broker's messages; what exceeds the credit that the client has left meanwhile goes back."""
        try:
            if self._receiver is None:
                return  # the broker knows that we closed; what it had under way is its to return
            if self._sieve is not None:
                deliveries = self._sieve(deliveries)
            over = len(deliveries) - self.credit
            if over > 0 and not self.presettled:
                deliveries = self._without_last(deliveries, over)
            if deliveries:
                self.transfer(deliveries)
                self._after(deliveries)
        except Exception as error:
            self._context.requests.crash(error)

    def _after(self, deliveries: Sequence[Delivery]) -> None:
        """Account for what was sent and top the receiver up at half of its slice."""
        size = len(deliveries[-1].payload)
        self._message_bytes = max(_MESSAGE_BYTES_MIN, size, (self._message_bytes + size) // 2)
        self._granted -= len(deliveries)
        self.state.schedule_flush()
        if self._observer is not None:
            self._observer(len(deliveries))
        if not self._draining and self.credit > self._granted and self._granted * 2 < self._slice():
            self._grant()

    def _without_last(self, deliveries: Sequence[Delivery], count: int) -> Sequence[Delivery]:
        """Give the last `count` deliveries back: credit was withdrawn while they were on their way to us."""
        receiver = self._receiver
        keep = max(0, len(deliveries) - count)
        if receiver is not None:
            receiver.settle([each.token for each in deliveries[keep:]], RELEASE, None)
        return deliveries[:keep]

    # ---- settlements

    def disposed(self, run: Run) -> None:
        """The client settles: through the table of outcomes to the broker."""
        receiver = self._receiver or self._lingering
        if receiver is None:
            return
        if run.outcome == TRANSACTIONAL:
            self._settle_in_transaction(receiver.address, run)
            return
        outcome = COMPLETE if run.outcome == ACCEPTED else outcome_of(run.outcome, run.deliveries[0])
        if outcome is not None:
            receiver.settle(run.items, outcome, None if run.is_settled else run.done)
        elif run.outcome and not run.is_settled:
            text = f"Delivery state 0x{run.outcome:02x} is not supported here."
            run.done_all(BrokerError(Condition.NOT_IMPLEMENTED, text))

    def answered_late(self, token: bytes, state: int, delivery: Pointer) -> None:
        """The client may ask once more over `$management` [wire 5.8]."""
        outcome = outcome_of(state, delivery)
        if outcome is not None:
            self._context.past_links.settled(token, outcome)

    def _settle_in_transaction(self, address: str, run: Run) -> None:
        """Add a settlement to a transaction; it is confirmed with the same state around the same outcome [wire 8].

        The delivery is settled with the commit and not before. JMS clients settle it at once: they have let go of it
        whatever becomes of the transaction.
        """
        assert len(run.items) == 1
        transaction, value = read_transactional(run.deliveries[0])
        found = outcome_of_value(value)
        if found is None:
            if not run.is_settled:
                text = "A transactional-state of a receiver must have an outcome."
                run.done_one(BrokerError(Condition.INVALID_FIELD, text))
            return
        code, outcome = found
        ref = TransactionRef(self.state, transaction)
        settle = partial(self._context.broker.work.settle, ref, address, run.items[0], outcome)
        try:
            if run.is_settled:
                settle(settled=True)
            else:
                settle(on_commit=run.committed)
                self.enroll(run, transactional_state(transaction, code))
        except BrokerError as error:
            if error.condition is Condition.TRANSACTION_UNKNOWN_ID:  # as for a send: the service closes the link
                self.state.detach(self.pointer, error)
            elif not run.is_settled:
                run.done_one(error)

    # ---- the end

    def linger(self, when_settled: Callable[[], None]) -> bool:
        """No more messages; what was delivered can be settled as long as its lock holds [AMQP 2.7.6]."""
        super().linger(when_settled)
        receiver = self._receiver
        self._release()
        self._lingering = receiver
        return receiver is not None

    def gone(self) -> None:
        """No more messages and no more confirmations; locks stay until they expire [wire 5.8]."""
        super().gone()
        self._release()
        self._lingering = None
        if self._leaving is not None:
            self._leaving.cancel()

    def _release(self) -> None:
        """Give the receiver up."""
        self.state.flow.release(self.resume)
        receiver, self._receiver, self._own_receiver = self._receiver, None, None
        if receiver is not None:
            receiver.close()
            if self._released is not None:
                self._released()


def address_of(context: LinkContext, pointer: Pointer) -> str:
    """What a link is for: a JMS consumer on a topic is for its subscription, all else for the address of its attach."""
    link = context.links.get(pointer)
    entity = link.entity if isinstance(link, OutgoingLink) else None
    return entity or read_attach(pointer).address
