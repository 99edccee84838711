"""Links on which clients receive messages of an entity: credit and drain in, messages out, settlements back.

Knows the receiver handle of the broker, the client's credit and how much of it the broker may use at a time: the
credit is passed on in slices, and not at all while the socket or the AMQP session's window is full (R6). Does not know
which message comes next and what an outcome does. A link owns its handle and closes it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, assert_never

from ...broker.api import Delivery, TransactionRef
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
from .credit import Credit, Step
from .hooks import ReceiverHandle, ReceivingTap

_credit_of: Final[Callable[[Pointer], int]] = lib.pn_link_credit


class OutgoingLink(OutgoingDeliveries):
    """A client's receiver link. `start` gives it its broker receiver, right after the attach was accepted."""

    __slots__ = ("_context", "_credit", "_leaving", "_lingering", "_released", "receiver", "tap")

    TAKES_RUNS = True

    def __init__(
        self, context: LinkContext, pointer: Pointer, *, presettled: bool, released: Callable[[], None] | None = None
    ) -> None:
        super().__init__(context.wire, pointer, presettled=presettled)
        self._context = context
        self._released = released
        """Called when the link has given its receiver up."""
        self.receiver: ReceiverHandle | None = None
        """The broker's, while messages may come."""
        self._lingering: ReceiverHandle | None = None
        """The closed receiver of a link that has gone, or whose entity has."""
        self._leaving: Timer | None = None
        """Until the link of a deleted entity is closed."""
        limits = context.limits
        self._credit = Credit(limits.outgoing_slice_max, limits.outgoing_bytes_max)
        self.tap: ReceivingTap | None = None
        """Where faults stand between the link and the broker."""

    @property
    def entity(self) -> str | None:
        """The address of what it receives from; None without a receiver."""
        return None if self.receiver is None else self.receiver.address

    def start(self, receiver: ReceiverHandle) -> None:
        """From now on messages may come."""
        self.receiver = receiver
        if self.credit:
            self._grant()

    # ---- the entity lets go

    def detached(self, error: BrokerError) -> None:
        """The entity wants the link closed because of `error`."""
        self._close_in_time(error, partial(self._context.requests.detach, self.pointer, error))

    def _close_in_time(self, error: BrokerError, close: Callable[[], None]) -> None:
        """Close the link now, or if its entity was deleted a little later; until then nothing comes, and drains are
        answered."""
        pause_ms = self._context.limits.deleted_pause_ms
        if error.condition is not Condition.NOT_FOUND or not pause_ms:
            close()
            return
        self._lingering, is_drained = self._release(), self._credit.close()
        if is_drained:
            self.give_back()
        self._leaving = self._context.clock.call_after(pause_ms, close)

    # ---- credit

    def on_flow(self) -> None:
        """A flow of the client, or Proton telling that it has sent something."""
        asks, self._wants_reply = self._wants_reply, False
        given = max(0, _credit_of(self.pointer))
        is_new = given != self.credit
        if is_new or asks:
            self.credit = given
            drains = asks and self.wants_drain()
            can_drain = drains and self._can_drain()
            step = self._credit.flow(is_new=is_new, asks=asks, drains=drains, can_drain=can_drain)
            if step is Step.GRANT:  # as nearly always
                self._grant()
            else:
                self._do(step)

    def resume(self) -> None:
        """There may be room again, or what stands between the link and the broker is not what it was."""
        if self.receiver is not None:
            self._do(self._credit.resume(drains=self.wants_drain(), can_drain=self._can_drain()))

    def hold(self) -> None:
        """The socket takes no more: neither do we."""
        if self.receiver is not None:
            self._do(self._credit.hold())

    def _drained(self) -> None:
        """The receiver has given all it has; its credit is 0 now."""
        if self.receiver is not None:
            self.credit = link_credit(self.pointer)
            self._do(self._credit.drained(self.credit, drains=self.wants_drain()))

    def _can_drain(self) -> bool:
        return self.receiver is not None and self.credit > 0

    def _do(self, step: Step) -> None:
        """Do what a row of the table says (`credit`)."""
        match step:
            case Step.SAME | Step.NOTED | Step.BUSY | Step.NOTHING_GRANTED | Step.ENOUGH:
                pass
            case Step.GRANT | Step.TAKEN_BACK | Step.GRANT_ANEW | Step.TOP_UP:
                self._grant()
            case Step.SHOW:
                self._grant()
                self.show_state()
            case Step.DRAIN:
                self._grant()
                self._credit.begin_drain()
                if self.receiver is not None:
                    self.receiver.drain(self._drained)
            case Step.GIVE_BACK:
                self._grant()
                self.give_back()
            case Step.DRAINED:
                self.give_back()
            case Step.NEXT_SLICE:
                self.state.flow.hold(self.resume)
                self.state.schedule_flush()
            case Step.TAKE_BACK | Step.STOP_DRAIN:
                self.state.flow.hold(self.resume)
                self._take_back()
            case _:
                assert_never(step)

    def _grant(self) -> None:
        """Let the receiver have the next slice of the credit."""
        receiver = self.receiver
        if receiver is None:
            return
        flow, bytes_max = self.state.flow, self._context.limits.outgoing_bytes_max
        is_stuck = self.credit > 0 and (flow.is_blocked or lib.pn_session_outgoing_bytes(self.session) > bytes_max)
        if is_stuck:
            flow.hold(self.resume)
        count = self._credit.grant(self.credit, has_room=not is_stuck)
        if self.tap is None:
            receiver.set_credit(count)
        else:
            self.tap.before_credit(count)

    def _take_back(self) -> None:
        """Let the receiver have nothing."""
        if self.tap is not None:
            self.tap.before_credit(0)
        elif self.receiver is not None:
            self.receiver.set_credit(0)

    # ---- messages

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        """The broker's messages; what exceeds the credit that the client has left meanwhile goes back."""
        try:
            if self.receiver is None:
                return  # the broker knows that we closed; what it had under way is its to return
            step = self.hand_out(deliveries) if self.tap is None else self.tap.before_deliver(deliveries)
            if step is Step.TOP_UP:
                self._grant()
        except Exception as error:
            self._context.requests.crash(error)

    def hand_out(self, deliveries: Sequence[Delivery]) -> Step:
        """Send messages as far as the client has credit for them; return what is to be done about the credit."""
        over = len(deliveries) - self.credit
        if over > 0 and not self.presettled and self.receiver is not None:
            deliveries = self._return_excess(self.receiver, deliveries, over)
        if not deliveries:
            return Step.ENOUGH
        self.transfer(deliveries)
        self.state.schedule_flush()
        return self._credit.sent(len(deliveries), self.credit, len(deliveries[-1].payload))

    def _return_excess(
        self, receiver: ReceiverHandle, deliveries: Sequence[Delivery], count: int
    ) -> Sequence[Delivery]:
        """Return the last `count` deliveries to the broker: the client withdrew credit."""
        keep = max(0, len(deliveries) - count)
        receiver.settle([each.token for each in deliveries[keep:]], RELEASE, None)
        return deliveries[:keep]

    # ---- settlements

    def disposed(self, run: Run) -> None:
        """The client settles: through the table of outcomes to the broker."""
        receiver = self.receiver or self._lingering
        if receiver is None:
            return
        if run.outcome == TRANSACTIONAL:
            self._settle_in_transaction(receiver.address, run)
            return
        outcome = COMPLETE if run.outcome == ACCEPTED else outcome_of(run.outcome, run.deliveries[0])
        if outcome is not None:
            done = None if run.is_settled else run.done
            if self.tap is not None:
                self.tap.before_settle(receiver, run.items, outcome, done)
            else:
                receiver.settle(run.items, outcome, done)
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
        ref = TransactionRef(self._context, transaction)
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
        self._lingering = self._release()
        return self._lingering is not None

    def gone(self) -> None:
        """No more messages and no more confirmations; locks stay until they expire [wire 5.8]."""
        super().gone()
        self._release()
        self._lingering = None
        if self._leaving is not None:
            self._leaving.cancel()

    def _release(self) -> ReceiverHandle | None:
        """Give the receiver up, and return it."""
        self.state.flow.release(self.resume)
        receiver, self.receiver = self.receiver, None
        if receiver is not None:
            if self.tap is not None:
                self.tap.before_close()
            receiver.close()
            if self._released is not None:
                self._released()
        return receiver


def address_of(context: LinkContext, pointer: Pointer) -> str:
    """What a link is for: a JMS consumer on a topic is for its subscription, all else for the address of its attach."""
    link = context.wire.links.get(pointer)
    entity = link.entity if isinstance(link, OutgoingLink) else None
    return entity or read_attach(pointer).address
