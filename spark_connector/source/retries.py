"""Connections for the source, and retries after transient failures.

Knows how long to retry (`retryTimeout`). Does not know what is asked. Connections belong to the pool of `wire.pool`; a
connection is valid only inside the block or call that gets it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from ..errors import Code, ConnectorError
from ..options import ConnectionOptions
from ..timing import backoff_s, monotonic_s, sleep
from ..wire.pool import pooled
from .peeks import BUSY_FIRST_S, BUSY_MAX_S

log = logging.getLogger("emubus.spark")
T = TypeVar("T")


class RetryPolicy:
    """Retry for `timeout_s` since the last progress, with growing pauses; longer ones if the service is busy.

    What the service itself has answered is retried for `patience_s` if that is longer: it may be a store that is out.
    """

    def __init__(self, timeout_s: float, patience_s: float = 0.0) -> None:
        self._timeout_s = timeout_s
        self._patience_s = max(timeout_s, patience_s)
        self.progressed()

    def progressed(self) -> None:
        """Restart the time: an attempt made progress."""
        self._attempt = 0
        self._since_s = monotonic_s()

    def wait(self, error: ConnectorError, what: str) -> None:
        """Wait before the next attempt; raise `error` if it is not retriable or the time is over."""
        timeout_s = self._timeout_s if error.condition is None else self._patience_s
        left_s = self._since_s + timeout_s - monotonic_s()
        if not error.retriable or left_s <= 0:
            raise error
        log.warning("%s failed; retrying for up to %.0f s: %s", what, left_s, error)
        busy = error.code is Code.THROTTLED
        pause_s = backoff_s(self._attempt, BUSY_FIRST_S, BUSY_MAX_S) if busy else backoff_s(self._attempt)
        sleep(min(pause_s, left_s))
        self._attempt += 1


@contextmanager
def connected(options: ConnectionOptions) -> Iterator[Any]:
    """A pooled connection for the block; it must stay in this thread."""
    with pooled(options.endpoint, options.credential) as connection:
        yield connection


def management_node(connection: Any, entity: str, generation: str | None) -> Any:
    """The management node of an entity; its requests fail with DATA_LOSS if the entity has another generation."""
    management = connection.management(entity)
    return management if generation is None else management.of_generation(generation)


def with_retries(options: ConnectionOptions, what: str, work: Callable[[Any], T], patience_s: float = 0.0) -> T:
    """The result of `work` with a connection; transient failures are retried for up to `retryTimeout`.

    `patience_s` as in `RetryPolicy`.
    """
    retries = RetryPolicy(options.endpoint.retry_timeout_s, patience_s)
    while True:
        try:
            with connected(options) as connection:
                return work(connection)
        except ConnectorError as error:
            retries.wait(error, what)
