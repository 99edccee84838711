"""Links to the targets of a task, over one connection of the pool.

Knows when to take a connection and when to return it as broken. Does not know what is sent. A `Routes` belongs to one
task; it takes a connection when the first link is needed, so a task without rows takes none.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from ..options import ConnectionOptions
from ..wire.connection import Connection
from ..wire.pool import pooled
from ..wire.sender import Sender


class Routes:
    """Links by target, with at most `window` unconfirmed deliveries each."""

    def __init__(self, options: ConnectionOptions, window: int) -> None:
        self._options = options
        self._window = window
        self._lent: contextlib.ExitStack | None = None
        self._connection: Connection | None = None
        self._senders: dict[str, Sender] = {}

    def connection(self) -> Connection:
        """The connection, taken from the pool if need be; ConnectorError if none can be had."""
        if self._connection is None:
            lent = contextlib.ExitStack()
            self._connection = lent.enter_context(pooled(self._options.endpoint, self._options.credential))
            self._lent = lent
        return self._connection

    def sender(self, target: str) -> Sender:
        """The link to `target`; ConnectorError if it is refused or the connection fails."""
        sender = self._senders.get(target)
        if sender is None:
            sender = self._senders[target] = self.connection().sender(target, window=self._window)
        return sender

    def open_senders(self) -> Iterable[tuple[str, Sender]]:
        return list(self._senders.items())

    def abandon(self, error: BaseException) -> None:
        lent, self._lent = self._lent, None
        self._connection = None
        self._senders.clear()
        if lent is not None:
            lent.__exit__(type(error), error, error.__traceback__)

    def close(self) -> None:
        """Close the links and return the connection to the pool."""
        lent, self._lent = self._lent, None
        self._connection = None
        senders = list(self._senders.values())
        self._senders.clear()
        if lent is not None:
            with lent:
                for sender in senders:
                    sender.close()
