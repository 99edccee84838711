"""Outages of messaging stores, on request or on purpose (P18)."""

from __future__ import annotations

from collections.abc import Collection

from .amounts import Period, Span
from .entities.namespace import Namespace
from .errors import BrokerError, Condition
from .stores.outage import Outage
from .stores.worker import Worker


class Outages:
    """Begins and ends outages of the stores of a namespace, counted from 0."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace

    def begin(self, store_index: int, outage: Outage, duration_ms: int | None = None) -> None:
        """Begin an outage of a messaging store, for `duration_ms` or until `end`.

        Raises BrokerError: not-found, argument-out-of-range.
        """
        worker, clock = self._worker(store_index), self._namespace.clock
        Span(outage.delay_ms, "delay_ms")
        if duration_ms is not None:
            duration_ms = Period(duration_ms, "duration_ms")
        worker.begin_outage(outage)
        if duration_ms is not None:
            clock.call_at(
                clock.now_ms() + duration_ms, lambda: self.end(store_index) if worker.outage is outage else None
            )

    def end(self, store_index: int) -> None:
        """End the outage of a store and announce the messages in it. Raises BrokerError (not-found)."""
        self._worker(store_index).end_outage()

    def check_stores(self, indexes: Collection[int]) -> None:
        """Raise BrokerError (not-found) unless there are messaging stores of all these numbers."""
        for index in indexes:
            self._worker(index)

    def _worker(self, store_index: int) -> Worker:
        workers = self._namespace.workers
        if not 0 <= store_index < len(workers):
            raise BrokerError(
                Condition.NOT_FOUND,
                f"There is no messaging store {store_index}: there are {len(workers)}, counted from 0.",
            )
        return workers[store_index]
