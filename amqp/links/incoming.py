"""Links on which clients send messages to an entity: deliveries to the broker, the broker's outcomes to the client.

Knows the sender handle of the broker, and the three ways of a delivery: into the entity, into a transaction, or through
the entity to another one [wire 8]. Does not know what is in a message. A link owns its handle and closes it.
"""

from __future__ import annotations

from functools import partial

from ...broker.api import Sender, TransactionRef, alone
from ...broker.errors import BrokerError, Condition, EmptyBatchError
from ...broker.service_errors import batch_empty
from ..link_context import LinkContext
from ..wire.engine import Pointer, link_name
from ..wire.incoming_deliveries import IncomingDeliveries
from ..wire.link import Done
from ..wire.run import Run
from .hooks import SendingTap


class IncomingLink(IncomingDeliveries):
    """A client's sender link, open for deliveries of up to the entity's size; with a `destination` they go on there."""

    __slots__ = ("_broker", "_context", "_destination", "_sender", "_tracker", "tap")

    def __init__(
        self, context: LinkContext, pointer: Pointer, sender: Sender, credit: int, destination: str | None = None
    ) -> None:
        self._context = context
        self._broker = context.broker
        self._tracker = context.tracker
        self._sender = sender
        self.tap: SendingTap | None = None
        """Where faults stand between the link and the broker."""
        self._destination = destination
        bytes_max = max(sender.message_bytes_max, sender.batch_bytes_max)
        super().__init__(context.wire, pointer, bytes_max=bytes_max, credit=credit)
        self.takes_runs = destination is None

    def receive(self, run: Run) -> None:
        """Store deliveries, add one to a transaction, or transfer them to the link's destination."""
        if run.transaction is not None:
            self._receive_in(TransactionRef(self._context, run.transaction), run)
        elif self.tap is None and self._destination is None and not run.whole:
            self._sender.send(run.items, run.done)
        else:
            for position, data in enumerate(run.items):
                self._receive_one(data, partial(run.done, (position,)), batch=run.whole)

    def _receive_one(self, data: bytes, done: Done, *, batch: bool) -> None:
        """As `receive`, for a batch, for a destination and under faults."""
        if batch:
            if len(data) > self._sender.batch_bytes_max:
                self._detach_for_batch()
                return
            done = partial(self._batch_done, done)
        if self._destination is not None:
            self._transfer(None, self._destination, data, batch, done)
        elif self.tap is not None:
            self.tap(data, partial(self._store, data, batch), done, batch)
        else:
            self._store(data, batch, done)

    def _store(self, data: bytes, batch: bool, done: Done) -> None:
        self._sender.send((data,), alone(done), whole=batch)

    def _receive_in(self, ref: TransactionRef, run: Run) -> None:
        """Add a delivery to a transaction: the client is answered at once."""
        (data,), batch, done = run.items, run.whole, run.done_one
        if batch:
            if len(data) > self._sender.batch_bytes_max:
                self._detach_for_batch()
                return
            done = partial(self._batch_done, done)
        done = partial(self._work_done, done)
        if self._destination is not None:
            self._transfer(ref, self._destination, data, batch, done)
            return
        try:
            self._broker.work.send(ref, self._sender, data, batch=batch)
        except BrokerError as error:
            done(error)
        else:
            done(None)

    def _transfer(self, ref: TransactionRef | None, destination: str, data: bytes, batch: bool, done: Done) -> None:
        sender = self._sender
        error = sender.size_refusal(data, batch=batch)
        if error is not None:
            done(error)
        else:
            self._broker.transactions.transfer(ref, sender.entity, data, destination, done, batch=batch)

    def _batch_done(self, done: Done, error: BrokerError | None) -> None:
        """A batch has its outcome, or holds nothing."""
        if isinstance(error, EmptyBatchError):
            self._detach_for_batch()
        else:
            done(error)

    def _detach_for_batch(self) -> None:
        """Close the link as the service does for a batch without messages, or larger than a batch may be [wire 4.4]."""
        link = self._tracker.name_of_link(link_name(self.pointer))
        self.state.detach(self.pointer, batch_empty(link))

    def _work_done(self, done: Done, error: BrokerError | None) -> None:
        """Work of a transaction has its outcome; the service closes the link of a transaction that it does not know."""
        if error is not None and error.condition is Condition.TRANSACTION_UNKNOWN_ID:
            self.state.detach(self.pointer, error)
        else:
            done(error)

    def gone(self) -> None:
        """Outcomes that are still to come are ignored from now on."""
        super().gone()
        self._sender.close()
