"""Whether a messaging store takes requests: an outage on purpose, a failure of its disk, or no room.

Each of the three changes seldom and is asked for with every request and batch: `available` is set where one of them
changes. Logs the beginning and the end of each, and not the requests that are refused meanwhile. Does not know requests
and batches. Owned by the store's worker.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from ...storage import Store, StoreError, StoreFull
from ..clock import Clock
from .outage import HEALTHY, Outage, OutageKind
from .recovery import Failure, Recovery

log = structlog.get_logger(__name__)


class StoreHealth:
    """The health of messaging store `index`.

    `failed()` is called when the store begins to fail, `recovered()` when it works again; it is tried until it does.
    """

    def __init__(
        self,
        index: int,
        store: Store,
        clock: Clock,
        failed: Callable[[], None],
        recovered: Callable[[], None],
    ) -> None:
        self._index = index
        self._store = store
        self._failed = failed
        self._on_recovered = recovered
        self._recovery = Recovery(
            clock, "messaging store", store.recover, self._recovered, waits=store.blocking, store=index
        )
        self.outage: Outage | None = None
        self.is_full = False
        """It refuses what adds, and takes what deletes."""
        self.is_failing = False
        """Without an outage: it has a `failure`."""
        self.available = True
        """It takes requests."""

    @property
    def failure(self) -> Failure | None:
        """Why the store fails without an outage."""
        return self._recovery.failure

    @property
    def word(self) -> str:
        """HEALTHY, the kind of the outage, or that of one that its disk makes."""
        if self.outage is not None:
            return self.outage.kind.value
        if self.is_failing:
            return OutageKind.FAILING.value
        return OutageKind.FULL.value if self.is_full else HEALTHY

    @property
    def trouble(self) -> str | None:
        """Why requests may be refused, as the end of a sentence: an outage of any kind, or a failure."""
        if self.outage is not None:
            return f"it is {self.outage.kind.value}"
        return None if self._recovery.failure is None else self._recovery.failure.cause

    def begin_outage(self, outage: Outage | None) -> None:
        """From now on this outage, or none."""
        self.outage = outage
        self._set_available()

    def fail(self, cause: str) -> None:
        """The store fails, and is tried again until it works."""
        self._recovery.fail(cause)
        self._set_available()
        self._failed()

    def is_known(self, error: StoreError) -> bool:
        """Whether `error` means that the store fails or is full, which is noted, and logged once."""
        if self._store.failure is not None:
            self.fail(self._store.failure)
        if isinstance(error, StoreFull) and self.outage is None and not self.is_full:
            self.is_full = True
            log.error("messaging store is full", store=self._index, cause=str(error), effect="sends are refused")
        return self.is_full or self.is_failing

    def has_room(self) -> None:
        """A full store has stored something new."""
        self.is_full = False
        log.info("messaging store has room again", store=self._index)

    async def stop(self) -> None:
        """Try no more to recover."""
        await self._recovery.stop()

    def _recovered(self) -> None:
        self._set_available()
        self._on_recovered()

    def _set_available(self) -> None:
        self.is_failing = self._recovery.failure is not None
        self.available = not self.is_failing and (self.outage is None or not self.outage.is_down)
