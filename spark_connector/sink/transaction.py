"""All rows of a task or none: their parcels in one AMQP transaction, discharged at the end.

Knows what a transaction may hold (one entity, as many messages as the service allows, and on a partitioned entity one
key), and reports a task that holds more. Does not know rows. A transaction can't outlive its task, so the tasks of one
write succeed or fail independently. If the connection is lost during the discharge, the outcome is unknown: the task
sends the same again, and with the same message ids the service can drop duplicates.
"""

from __future__ import annotations

import contextlib
from typing import Final

from ..errors import Code, ConnectorError
from ..options import SinkOptions
from ..wire.transactions import Transaction
from .delivery import Courier, explained
from .targets import Limits, Parcel

TRANSACTION_BYTES_MAX: Final = 256 * 1024 * 1024  # held until the discharge; far above what services allow
ROLLBACK: Final = "amqp:transaction:rollback"
ROLLED_BACK: Final = frozenset({ROLLBACK, "amqp:transaction:timeout", "amqp:transaction:unknown-id"})
TOO_MANY: Final = "amqp:resource-limit-exceeded"
NOT_ALLOWED: Final = "amqp:not-allowed"
OVER: Final = "No active Transaction was found"
"""What the service says of work in a transaction that has timed out; the condition has other reasons, too."""
REMEDIES: Final = {
    TOO_MANY: "If the transaction holds too many messages (Azure takes 100), use more partitions (df.repartition) or "
    "transactional=false.",
    NOT_ALLOWED: "On a partitioned entity, all messages of a transaction need one sessionId or partitionKey: "
    "repartition by it so that a task has one, or use transactional=false.",
}


class TransactionalDelivery(Courier):
    """Holds a task's parcels, and delivers them in one transaction at the end."""

    def __init__(self, options: SinkOptions) -> None:
        super().__init__(options)
        self._target: str | None = None
        self._parcels: list[Parcel] = []
        self._size_bytes = 0

    def limits(self, target: str) -> Limits:
        """As always; ConnectorError for a second target."""
        if self._target is None:
            self._target = target
        elif self._target != target:
            text = (
                f"A transaction can't span the entities '{self._target}' and '{target}': repartition by the target "
                "so that a task has one, or use transactional=false."
            )
            raise ConnectorError(Code.OPTION_INVALID, text)
        return super().limits(target)

    def put(self, parcel: Parcel) -> None:
        self._parcels.append(parcel)
        self._size_bytes += parcel.size_bytes
        if self._size_bytes > TRANSACTION_BYTES_MAX:
            text = (
                f"The messages of a task with transactional=true take {self._size_bytes} bytes, more than the "
                f"{TRANSACTION_BYTES_MAX} that are held for a transaction: use more partitions (df.repartition)."
            )
            raise ConnectorError(Code.MESSAGE_TOO_LARGE, text)

    def finish(self) -> None:
        """Deliver everything in one transaction; repeats it after temporary failures that rolled it back."""
        while self._parcels:
            try:
                self._attempt()
            except ConnectorError as error:
                if error.code is Code.MESSAGE_TOO_LARGE:
                    raise  # the same messages would be too large again
                self._lost(error)
                self.tally.sent_again(len(self._parcels))
                continue
            for parcel in self._parcels:
                self.tally.delivered(parcel)
            self._parcels.clear()
        self._routes.close()

    def _attempt(self) -> None:
        target = self._parcels[0].target
        sender = self._routes.sender(target)
        transaction = self._routes.connection().transaction()
        transaction.declare()
        outcomes: list[tuple[object, ConnectorError | None]] = []
        for number, parcel in enumerate(self._parcels):
            data, is_envelope = parcel.encode()
            sender.send(data, envelope=is_envelope, key=number, transaction=transaction)
            outcomes += sender.outcomes()
            if any(error for _, error in outcomes):
                break
        outcomes += sender.flush()
        for key, error in outcomes:
            if error is not None:
                assert isinstance(key, int)
                with contextlib.suppress(ConnectorError):  # a lost connection rolls back, too
                    transaction.discharge(commit=False)
                raise self._refused(error, self._parcels[key])
        self._commit(transaction)

    def _commit(self, transaction: Transaction) -> None:
        try:
            transaction.discharge(commit=True)
        except ConnectorError as error:
            if error.condition in ROLLED_BACK:  # after each message was taken: for want of a store, or of time
                raise ConnectorError(error.code, error.text, condition=error.condition, retriable=True) from error
            raise

    def _refused(self, error: ConnectorError, parcel: Parcel) -> ConnectorError:
        if OVER in error.text:
            return ConnectorError(error.code, error.text, condition=error.condition, retriable=True)
        remedy = REMEDIES.get(error.condition or "")
        if remedy is None:
            return error if error.retriable else explained(error, parcel)
        rows = sum(len(each.rows) for each in self._parcels)
        text = f"A task with transactional=true has {rows} rows for '{parcel.target}': {error.text} {remedy}"
        return ConnectorError(error.code, text, condition=error.condition)
