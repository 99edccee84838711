"""Asking the service, and asking again when it may help: the one door from the source to the wire.

Knows for how long a transient failure is put up with (`retryTimeout`). Does not know what is asked. Connections
belong to the pool of `wire.pool`; what is given out here is valid inside the block or call only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from ..errors import ConnectorError
from ..options import ConnectionOptions
from ..timing import backoff_s, monotonic_s, sleep
from ..wire.pool import pooled

log = logging.getLogger("emubus.spark")
T = TypeVar("T")


class Looking(Protocol):
    """What looking at an entity needs of its `$management` node; `wire.management.Management` has it."""

    def peek(self, from_sequence_number: int, count: int, *, partition_id: int | None = None) -> bytes | None:
        """The encoded response, None if there is nothing."""
        ...

    def begin_peek(self, from_sequence_number: int, count: int, *, partition_id: int | None = None) -> Any:
        """Ask without waiting; give the result to `end`."""
        ...

    def end(self, pending: Any) -> bytes | None:
        """The answer to `begin_peek`."""
        ...


class Patience:
    """How often and how long to try again: for `timeout_s` since the last progress, with growing pauses."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self.progressed()

    def progressed(self) -> None:
        """Something worked: the time begins anew."""
        self._attempt = 0
        self._deadline_s = monotonic_s() + self._timeout_s

    def wait(self, error: ConnectorError, what: str) -> None:
        """Wait before the next try, or raise `error` if another one is of no use or too late."""
        left_s = self._deadline_s - monotonic_s()
        if not error.retriable or left_s <= 0:
            raise error
        log.warning("%s failed and is tried again (for up to %.0f s more): %s", what, left_s, error)
        sleep(min(backoff_s(self._attempt), left_s))
        self._attempt += 1


@contextmanager
def connected(options: ConnectionOptions) -> Iterator[Any]:
    """A pooled connection for the block, which must not give it to another thread."""
    with pooled(options.endpoint, options.credential) as connection:
        yield connection


def persistently(options: ConnectionOptions, what: str, work: Callable[[Any], T]) -> T:
    """Result of `work` with a connection; transient failures are tried again up to `retryTimeout`."""
    patience = Patience(options.endpoint.retry_timeout_s)
    while True:
        try:
            with connected(options) as connection:
                return work(connection)
        except ConnectorError as error:
            patience.wait(error, what)
