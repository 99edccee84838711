"""Work of transactions by the address of its entity: sends, settlements, schedules and states that one commit stores.

Does not begin and end transactions (`entities/transactions.py`). Owned by the `Broker`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .entities.links import Sender
from .entities.namespace import Namespace
from .entities.transaction import TransactionRef
from .messages import parse_scheduled
from .outcomes import Outcome
from .sessions import check_state


class TransactionalWork:
    """Adds work to open transactions. Every verb raises BrokerError if the transaction can't contain it."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self._transactions = namespace.transactions

    def send(self, ref: TransactionRef, sender: Sender, data: bytes, *, batch: bool) -> None:
        """Add a delivery to a transaction. Raises BrokerError if the transaction can't contain it."""
        with self._transactions.working(ref):
            error = sender.size_refusal(data, batch=batch)
            if error is not None:
                raise error
        self._transactions.send(ref, sender.entity, data, batch=batch)

    async def schedule(self, ref: TransactionRef, address: str, encoded: Sequence[bytes]) -> list[int]:
        """Add scheduled messages to a transaction; return the sequence numbers reserved for them."""
        entity, messages = parse_scheduled(self._namespace, address, encoded)
        return await self._transactions.schedule(ref, entity, messages)

    async def cancel(self, ref: TransactionRef, address: str, numbers: Sequence[int]) -> None:
        """Add a cancellation of scheduled messages to a transaction. Raises BrokerError (message-not-found)."""
        await self._transactions.cancel(ref, self._namespace.find(address)[0], numbers)

    async def set_state(self, ref: TransactionRef, address: str, session_id: str, state: bytes | None) -> None:
        """Add a new state of a held session to a transaction. Raises BrokerError like `Sessions.set_state`."""
        with self._transactions.working(ref):
            check_state(self._namespace, address, state)
            self._namespace.find_session(address, session_id)  # refuses an entity without sessions
        entity, _ = self._namespace.find(address)
        await self._transactions.set_state(ref, entity, session_id, state)

    def settle(
        self,
        ref: TransactionRef,
        address: str,
        token: bytes,
        outcome: Outcome,
        *,
        settled: bool = False,
        on_commit: Callable[[], None] | None = None,
    ) -> None:
        """Add a settlement to a transaction. Raises BrokerError if the lock is lost or doesn't fit.

        `settled`: the receiver has settled the delivery, so a rollback abandons it. A commit calls `on_commit()`.
        """
        entity, parsed = self._namespace.find(address)
        of = parsed.sub_queue
        self._transactions.settle(ref, entity, of, token, outcome, settled=settled, on_commit=on_commit)
