"""Connections for the source, and retries after transient failures.

Knows how long to retry (`retryTimeout`). Does not know what is asked. Connections belong to the pool of `wire.pool`; a
connection is valid only inside the block or call that gets it.
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


class PeekClient(Protocol):
    """Peeking at an entity over its `$management` node, as `wire.management.Management` does."""

    def peek(self, from_sequence_number: int, count: int, *, partition_id: int | None = None) -> bytes | None:
        """The encoded response, None if there are no messages."""
        ...

    def begin_peek(self, from_sequence_number: int, count: int, *, partition_id: int | None = None) -> Any:
        """Send the request without waiting; pass the result to `end`."""
        ...

    def end(self, pending: Any) -> bytes | None:
        """The answer to `begin_peek`."""
        ...


class RetryPolicy:
    """Retry for `timeout_s` since the last progress, with growing pauses."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self.progressed()

    def progressed(self) -> None:
        """Restart the time: an attempt made progress."""
        self._attempt = 0
        self._deadline_s = monotonic_s() + self._timeout_s

    def wait(self, error: ConnectorError, what: str) -> None:
        """Wait before the next attempt; raise `error` if it is not retriable or the time is over."""
        left_s = self._deadline_s - monotonic_s()
        if not error.retriable or left_s <= 0:
            raise error
        log.warning("%s failed; retrying for up to %.0f s: %s", what, left_s, error)
        sleep(min(backoff_s(self._attempt), left_s))
        self._attempt += 1


@contextmanager
def connected(options: ConnectionOptions) -> Iterator[Any]:
    """A pooled connection for the block; it must stay in this thread."""
    with pooled(options.endpoint, options.credential) as connection:
        yield connection


def with_retries(options: ConnectionOptions, what: str, work: Callable[[Any], T]) -> T:
    """The result of `work` with a connection; transient failures are retried for up to `retryTimeout`."""
    retries = RetryPolicy(options.endpoint.retry_timeout_s)
    while True:
        try:
            with connected(options) as connection:
                return work(connection)
        except ConnectorError as error:
            retries.wait(error, what)
