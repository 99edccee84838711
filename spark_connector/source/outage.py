"""Partitions that can't be reached: said once per change, and how long a query goes on without them.

Knows the options `onOutage` and `outageTimeout`. Does not know how partitions are found out to be unavailable, nor how
reading goes on around them. An `OutageWatch` belongs to the driver's reader, on one thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Set
from typing import Final, Literal

from ...codec.durations import format_time
from ..errors import Code, ConnectorError
from ..timing import monotonic_s, sleep

log = logging.getLogger("emubus.spark")
LOOK_S: Final = 1.0  # how often to look whether a partition that is waited for can be reached
OnOutage = Literal["wait", "skip", "fail"]


class OutageWatch:
    """Which partitions of one entity are out, and since when."""

    def __init__(self, entity: str, on_outage: OnOutage, timeout_s: float) -> None:
        self._entity = entity
        self._on_outage = on_outage
        self._timeout_s = timeout_s
        self._since_s: dict[int, float] = {}

    @property
    def out(self) -> frozenset[int]:
        """Ids of the partitions that were out at the last look."""
        return frozenset(self._since_s)

    @property
    def waits(self) -> bool:
        """Whether the query waits for partitions that are out before it ends."""
        return bool(self._since_s) and self._on_outage == "wait"

    def note(self, unavailable: Set[int]) -> None:
        """Take note of a look; logs a change.

        ConnectorError(UNAVAILABLE) with onOutage=fail, and with onOutage=wait if one is out for `outageTimeout`.
        """
        now_s = monotonic_s()
        begun, over = unavailable - self._since_s.keys(), self._since_s.keys() - unavailable
        self._since_s = {each: self._since_s.get(each, now_s) for each in unavailable}
        if begun:
            log.warning("%s: partitions %s can't be reached; onOutage=%s", self._entity, listed(begun), self._on_outage)
        if over:
            log.warning("%s: partitions %s can be reached again", self._entity, listed(over))
        if unavailable and self._on_outage == "fail":
            raise self._error(unavailable, "", "set onOutage=wait or skip to read the others meanwhile")
        late = {each for each, since_s in self._since_s.items() if now_s - since_s >= self._timeout_s}
        if late and self._on_outage == "wait":
            remedy = "start the query again when they can, raise outageTimeout, or set onOutage=skip"
            raise self._error(late, f" for {format_time(1000 * self._timeout_s)} (outageTimeout)", remedy)

    def wait_for(self, partitions: Set[int], look: Callable[[], object]) -> None:
        """Wait until these partitions, which a logged batch needs, can be reached; `look` calls `note`.

        ConnectorError(UNAVAILABLE) after `outageTimeout`, also with onOutage=skip: Spark has logged the batch, so
        nothing may be left out of it.
        """
        since_s = monotonic_s()
        while missing := self.out & partitions:
            if monotonic_s() - since_s >= self._timeout_s:
                what = ", and a batch that is in the checkpoint needs them"
                raise self._error(missing, what, "start the query again when they can, or raise outageTimeout")
            sleep(LOOK_S)
            look()

    def tell_left(self) -> None:
        """Say what a query leaves that ends now."""
        if self._since_s:
            left = listed(self._since_s)
            log.warning("%s: the query ends without reading partitions %s (onOutage=skip)", self._entity, left)

    def _error(self, partitions: Set[int], what: str, remedy: str) -> ConnectorError:
        return ConnectorError(
            Code.UNAVAILABLE, f"{self._entity}: partitions {listed(partitions)} can't be reached{what}: {remedy}"
        )


def listed(partitions: Iterable[int]) -> str:
    """Ids in order, for a text."""
    return ", ".join(str(each) for each in sorted(partitions))
