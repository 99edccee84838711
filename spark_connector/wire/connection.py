"""A connection to the service, and the links on it.

Knows the parts of a connection and when it may be used again. Does not know frames (`engine`) and operations
(`management`). A `Connection` owns its engine, claims and management nodes; senders and receivers are closed by those
who opened them, at the latest with the connection.

It belongs to one thread at a time and to the process that made it. Every method blocks until its deadline at most. A
failure of the connection itself (its loss, a missing answer) makes it unusable; a refusal of one link or request does
not.
"""

from __future__ import annotations

import os

from ..dialing.credentials import Credential
from ..dialing.endpoint import Endpoint
from ..errors import ConnectorError
from .cbs import Claims
from .engine import Engine
from .links import BaseLink
from .management import Management
from .receiver import NO_SESSION, NoSession, Receiver
from .sender import Sender
from .transactions import Coordinator, Transaction


class Connection:
    """Connects in its constructor; ConnectorError(UNAVAILABLE) if that fails. It is also a context manager."""

    def __init__(self, endpoint: Endpoint, credential: Credential) -> None:
        self.endpoint = endpoint
        self._pid = os.getpid()
        self._engine = Engine(endpoint)
        self._claims = Claims(self._engine, credential)
        self._managements: dict[str, Management] = {}
        self._coordinator: Coordinator | None = None
        self._links: list[BaseLink] = []
        self._transactions: list[Transaction] = []

    @property
    def usable(self) -> bool:
        """Whether it works, as far as is known, and belongs to this process."""
        return self._engine.error is None and not self._engine.closed and self._pid == os.getpid()

    def is_idle(self) -> bool:
        """Whether it is usable, and no link, request or delivery of a user is open on it."""
        self._links = [link for link in self._links if not link.closed]
        return (
            self.usable
            and not self._links
            and not any(transaction.is_open for transaction in self._transactions)
            and not any(management.open_count for management in self._managements.values())
        )

    def refresh(self) -> bool:
        """Handle input that has arrived meanwhile; returns whether it is still usable. Never blocks or raises."""
        if not self.usable:
            return False
        try:
            self._engine.turn(0)
        except ConnectorError:
            return False
        return self.usable

    def management(self, entity: str) -> Management:
        """The management node of an entity; it is kept for later calls."""
        self._check()
        self._claims.ensure(entity)
        found = self._managements.get(entity)
        if found is not None and found.lost is not None:
            found.discard()
            found = None
        if found is None:
            found = Management(self._engine, entity, self._claims.ensure)
            self._managements[entity] = found
        return found

    def sender(self, entity: str, *, window: int) -> Sender:
        """A new link to send on, with at most `window` unconfirmed deliveries."""
        self._check()
        self._claims.ensure(entity)
        sender = Sender(self._engine, entity, window=window, authorize=self._claims.ensure)
        self._links.append(sender)
        return sender

    def receiver(
        self, entity: str, *, session_id: str | NoSession | None = NO_SESSION, accept_wait_s: float | None = None
    ) -> Receiver:
        """A new link to receive on: without a message session, of a named one, or (None) of the next available.

        `accept_wait_s`: how long the service may take to find a session, by default the operation time-out minus a
        tenth. After that ConnectorError(UNAVAILABLE) with the condition `com.microsoft:timeout`; the connection stays
        usable.
        """
        self._check()
        self._claims.ensure(entity)
        wait_s = self.endpoint.operation_timeout_s * 0.9 if accept_wait_s is None else accept_wait_s
        receiver = Receiver(
            self._engine, entity, session_id=session_id, accept_wait_s=wait_s, authorize=self._claims.ensure
        )
        self._links.append(receiver)
        return receiver

    def transaction(self) -> Transaction:
        self._check()
        if self._coordinator is None or self._coordinator.lost is not None:
            self._coordinator = Coordinator(self._engine)
        transaction = Transaction(self._coordinator)
        self._transactions = [each for each in self._transactions if each.is_open]
        self._transactions.append(transaction)
        return transaction

    def close(self) -> None:
        """Close everything; in another process than its own only the copy of the socket."""
        if self._pid == os.getpid():
            self._engine.close()
        else:
            self._engine.abandon()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check(self) -> None:
        if self._pid != os.getpid():
            raise RuntimeError("a connection is of the process that made it")
        self._engine.check()
