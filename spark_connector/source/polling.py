"""Looks until there is a batch: common to the planners that read by numbers (`follow`, `sub_queue`), and to `several`.

Knows how long Spark's question for the next batch may take, how often to look meanwhile, and when a query that is to
end does so. Does not know what a look finds. These objects live in the driver process of a query, on one thread.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import StrEnum
from typing import Any, Generic, TypeVar

from ..options import SourceOptions
from ..timing import monotonic_s, sleep
from .admission import TriggerGate
from .drain import Settler
from .outage import OutageWatch
from .pace import Pace
from .positions import ExtentTracker

log = logging.getLogger("emubus.spark")
Json = dict[str, Any]
S = TypeVar("S", bound=Settler)


class Pause(StrEnum):
    """What comes after a look without a batch."""

    OUTAGE = "@outage"  # look again: the query ends when all partitions are read
    END = "@end"  # answer with the start, which ends the query
    OVER = "@over"  # answer with the start: Spark asks again
    AGAIN = "@again"  # look again


def pause_of(*, is_ending: bool, waits: bool, left_s: float) -> Pause:
    """`waits`: for partitions that are out. `left_s` of `pollInterval`."""
    match is_ending, waits, left_s > 0:
        case True, True, _:
            return Pause.OUTAGE
        case True, False, _:
            return Pause.END
        case False, _, False:
            return Pause.OVER
        case _:
            return Pause.AGAIN


class Polls:
    """The looks of a query, with pauses between those that find nothing."""

    def __init__(self, options: SourceOptions) -> None:
        self._entity = options.entity
        self._interval_s = options.poll_interval_s
        self._pace = Pace(options.poll_interval_s, options.requests_per_s)
        self.gate = TriggerGate(options.min_messages_per_trigger, options.max_trigger_delay_s)

    def until_batch(
        self, look: Callable[[], Json | None], pause: Callable[[float], Pause], request_count: Callable[[], int]
    ) -> Json | None:
        """The first end of a batch that a look finds; None if there is none within `pollInterval`.

        `pause` gets the seconds that are left of it, `request_count` is what the last look took.
        """
        deadline_s = monotonic_s() + self._interval_s
        while True:
            sleep(self._pace.wait_s(monotonic_s()))
            end = look()
            if end is not None:
                self.gate.went(monotonic_s())
                self._pace.found()
                return end
            self._pace.nothing(request_count(), monotonic_s())
            left_s = deadline_s - monotonic_s()
            step = pause(left_s)
            log.debug("%s: %s", self._entity, step)
            match step:
                case Pause.OUTAGE:
                    continue
                case Pause.END | Pause.OVER:
                    return None
                case Pause.AGAIN:
                    sleep(min(left_s, self._pace.wait_s(monotonic_s())))
                    if deadline_s <= monotonic_s():
                        return None


class Polling(ABC, Generic[S]):
    """Looks at an entity, and what it takes to do so: extents, outages, pauses, deletion."""

    def __init__(self, options: SourceOptions, settler: S | None) -> None:
        self._options = options
        self._extents = ExtentTracker(options)
        self._outage = OutageWatch(options.entity, options.on_outage, options.outage_timeout_s)
        self._polls = Polls(options)
        self._settler = settler

    @property
    @abstractmethod
    def _is_ending(self) -> bool:
        """Whether the query reads what was there at `stop_at_present_ends`, and ends."""

    @property
    @abstractmethod
    def request_count(self) -> int:
        """Requests of the last look."""

    @abstractmethod
    def _next_batch(self, count_max: int | None, *, all_available: bool) -> tuple[Json, int] | None:
        """The end of the next batch after a look, and how many numbers it has; None if there is no batch yet."""

    def take(self, count_max: int | None) -> tuple[Json, int] | None:
        """The end of the next batch after `look`, and how many numbers it has; None if there is nothing."""
        return self._next_batch(count_max, all_available=count_max is None)

    def _poll(self, look: Callable[[], object], count_max: int | None, *, all_available: bool) -> Json | None:
        """The end of the next batch; None if there are no messages within `pollInterval`."""

        def find() -> Json | None:
            look()
            taken = self._next_batch(count_max, all_available=all_available)
            return None if taken is None else taken[0]

        def pause(left_s: float) -> Pause:
            return pause_of(is_ending=self._is_ending, waits=self._outage.waits, left_s=left_s)

        end = self._polls.until_batch(find, pause, lambda: self.request_count)
        if end is None:
            self.rest()
        return end

    def rest(self) -> None:
        """There is nothing to read now: wait until what is finished is deleted."""
        if self._is_ending:
            self._outage.tell_left()
        if self._settler is not None:
            self._settler.wait(insist=self._is_ending)

    @property
    def waits(self) -> bool:
        """Whether a query that is to end waits for partitions that are out."""
        return self._outage.waits

    def stop(self) -> None:
        if self._settler is not None:
            self._settler.stop()
