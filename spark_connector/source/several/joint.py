"""Planning the batches of a query over several entities: one planner for each, and one offset of all of theirs.

Knows which entities are read: those that are named, those that match the pattern now, and those of the checkpoint.
Shares the limit of a batch among them, smallest backlog first, so that an entity with few messages never waits behind
one with many. Does not know how an entity is read: its planner does (`source.follow`, `source.claim`). A `JointPlanner`
lives in the driver process of a query, on one thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol, TypeVar

from pyspark.sql.datasource import InputPartition

from ...errors import Code, ConnectorError
from ...options import SourceOptions
from ...position import Earliest
from ...timing import monotonic_s
from ..plan import RangeGroup, RangeTask, grouped
from ..polling import Pause, Polls, pause_of
from .members import is_chosen, is_named, options_of, paths_of
from .offsets import Json, joined, separated

T = TypeVar("T")
log = logging.getLogger("emubus.spark")


class EntityPlanner(Protocol):
    """Plans for one entity: `source.follow.Follower` or `source.claim.Claimer`."""

    def stop_at_present_ends(self) -> None:
        """Read no further than the present ends."""
        ...

    def initial(self) -> Json:
        """Where the entity begins."""
        ...

    def look(self, start_json: Json) -> int | None:
        """Look at the entity from this offset on; sequence numbers that wait, None if that can't be known."""
        ...

    def take(self, count_max: int | None) -> tuple[Json, int] | None:
        """The next offset after the last look, and how many numbers it is further; None if nothing is there."""
        ...

    def unmoved(self) -> Json:
        """The next offset if nothing is taken after the last look."""
        ...

    def rest(self) -> None:
        """There is nothing to read now."""
        ...

    @property
    def waits(self) -> bool:
        """Whether a query that is to end waits for partitions that are out."""
        ...

    @property
    def request_count(self) -> int:
        """Requests of the last look."""
        ...

    def report(self) -> Json | None:
        """Where the entity ends."""
        ...

    def plan(self, start_json: Json, end_json: Json) -> list[InputPartition]: ...

    def stop(self) -> None: ...


class JointPlanner:
    """Answers Spark's questions about several entities. Errors are ConnectorError, and name the entity."""

    def __init__(self, options: SourceOptions, plan_for: Callable[[SourceOptions], EntityPlanner]) -> None:
        self._options = options
        self._plan_for = plan_for
        self._planners: dict[str, EntityPlanner] = {}
        self._new: set[str] = set()  # appeared while the query ran
        self._missing: set[str] = set()
        self._left_out: set[str] = set()  # in the checkpoint, and no longer wanted
        self._initial: Json | None = None
        self._is_frozen = False
        self._listed_at_s: float | None = None
        self._listed: list[str] = []
        self._turn = 0  # who is asked first of those whose backlogs are not known
        self._polls = Polls(options)

    # ---- Spark's calls, in their order

    def stop_at_present_ends(self) -> None:
        """Read no further than the present ends of the present entities: the query will end there."""
        for path in self._find():
            self._try(path, partial(self._freeze, path), was_read=False)
        self._is_frozen = True

    def initial(self) -> Json:
        """Where the query begins; the same answer at every call."""
        if self._initial is None:
            found: dict[str, Json] = {}
            for path in self._find():
                offset = self._try(path, partial(self._initial_offset, path), was_read=False)
                if offset is not None:
                    found[path] = offset
            log.info("%s: the query begins with %d entities: %s", self._options.entity, len(found), ", ".join(found))
            self._initial = joined(found)
        return self._initial

    def latest(self, start_json: Json | None, count_max: int | None, *, all_available: bool) -> Json:
        """The end of the next batch; `start_json` itself if there are no messages within `pollInterval`."""
        if start_json is None:
            raise ConnectorError(
                Code.MODE_UNSUPPORTED,
                f"{self._options.entity}: a stream over several entities needs Spark 4.2 or later, which passes the "
                "source its start: read each entity by a query of its own",
            )
        starts = separated(start_json)

        def find() -> Json | None:
            ends = self._advance(starts, count_max, all_available)
            return None if ends is None else joined(ends)

        def pause(left_s: float) -> Pause:
            waits = any(each.waits for each in self._planners.values())
            return pause_of(is_ending=self._is_frozen, waits=waits, left_s=left_s)

        end = self._polls.until_batch(find, pause, lambda: sum(each.request_count for each in self._planners.values()))
        if end is not None:
            return end
        for planner in self._planners.values():
            planner.rest()
        return start_json

    def report(self) -> Json | None:
        """Where the entities end, as far as is known."""
        found = {path: each for path, planner in self._planners.items() if (each := planner.report()) is not None}
        return joined(found) if found else None

    def plan(self, start_json: Json, end_json: Json) -> list[InputPartition]:
        """The tasks of a batch, possibly one that an earlier run of the query has begun."""
        starts, ends = separated(start_json), separated(end_json)
        tasks: list[InputPartition] = []
        for path in sorted(ends):
            if ends[path] != starts.get(path):
                tasks += self._try(path, partial(self._plan, path, starts.get(path), ends[path]), was_read=True) or []
        return self._grouped(tasks)

    def committed(self, end_json: Json) -> None:
        """Nothing: the next `latest` gets it as its start."""

    def stop(self) -> None:
        for planner in self._planners.values():
            planner.stop()

    # ---- the next batch

    def _advance(
        self, starts: Mapping[str, Json], count_max: int | None, all_available: bool
    ) -> dict[str, Json] | None:
        """The offset of each entity after the next batch; None if there is no batch yet."""
        waiting = self._look_at_all(starts)
        known = sum(count for count in waiting.values() if count is not None)
        is_held = not (all_available or self._is_frozen) and None not in waiting.values()
        if is_held and not self._polls.gate.may_go(known, monotonic_s()):
            return None
        ends: dict[str, Json] = {}
        left = None if all_available else count_max
        order = self._order(waiting)
        for index, path in enumerate(order):
            share = None if left is None else -(-left // (len(order) - index))
            if share == 0:
                break
            taken = self._try(path, partial(self._planners[path].take, share), was_read=path in starts)
            if taken is None:
                continue
            ends[path], count = taken
            left = None if left is None else max(0, left - count)
        if not ends:
            return None
        stay = {path: self._planners[path].unmoved() for path in waiting if path in starts and path in self._planners}
        self._turn += 1
        return stay | ends

    def _look_at_all(self, starts: Mapping[str, Json]) -> dict[str, int | None]:
        """Look at every entity; sequence numbers that wait in each that answers."""
        found: dict[str, int | None] = {}
        for path in self._paths(starts):
            waiting = self._try(path, partial(self._look_at, path, starts.get(path)), was_read=path in starts)
            if waiting is not None:
                found[path] = waiting[0]
        return found

    def _paths(self, starts: Mapping[str, Json]) -> list[str]:
        """The entities to look at: those of the checkpoint, and, unless the query is to end, those there are now.

        A path keeps the case that it has in the checkpoint: another case is not another entity.
        """
        known = {path.lower() for path in starts}
        there = [path for path in (self._planners if self._is_frozen else self._find()) if path.lower() not in known]
        left_out = {path for path in starts if not is_chosen(self._options, path)}
        if left_out - self._left_out:
            log.warning(
                "%s: the checkpoint has %s, which the options no longer name", self._options.entity, sorted(left_out)
            )
        self._left_out = left_out
        return sorted({*starts, *there} - self._missing - left_out)

    def _look_at(self, path: str, start: Json | None) -> tuple[int | None]:
        planner = self._planner(path, is_new=start is None)
        return (planner.look(start or planner.initial()),)

    def _plan(self, path: str, start: Json | None, end: Json) -> list[InputPartition]:
        planner = self._planner(path, is_new=start is None)
        return planner.plan(start or planner.initial(), end)

    def _initial_offset(self, path: str) -> Json:
        return self._planner(path, is_new=False).initial()

    def _freeze(self, path: str) -> None:
        self._planner(path, is_new=False).stop_at_present_ends()

    def _order(self, waiting: Mapping[str, int | None]) -> Sequence[str]:
        """The smallest backlog first, so that what it leaves of its share is the others'; else in turn."""
        paths = sorted(waiting)
        if paths:
            first = self._turn % len(paths)
            paths = paths[first:] + paths[:first]
        return sorted(paths, key=lambda path: waiting[path] or 0)

    def _grouped(self, tasks: Sequence[InputPartition]) -> list[InputPartition]:
        """Small tasks of different entities combined, as those of one are."""
        ranges = [each for each in tasks if isinstance(each, RangeTask | RangeGroup)]
        if self._options.min_partitions is not None or len(ranges) < len(tasks):
            return [*tasks]
        parts = [part for each in ranges for part in each.parts]
        return [*grouped(parts, self._options.max_messages_per_task)]

    # ---- entities

    def _find(self) -> list[str]:
        """The entities to read besides those of the checkpoint; asks the service at each discovery interval."""
        options, now_s = self._options, monotonic_s()
        if self._listed_at_s is None or now_s - self._listed_at_s >= options.partition_discovery_interval_s:
            found = paths_of(options)
            if self._listed_at_s is not None and (new := sorted(set(found) - set(self._listed))):
                log.info("%s: new entities: %s", options.entity, ", ".join(new))
            self._listed, self._listed_at_s = found, now_s
            self._missing.clear()
        return self._listed

    def _planner(self, path: str, *, is_new: bool) -> EntityPlanner:
        """The planner of an entity; one that appears while the query runs is read from its first message."""
        found = self._planners.get(path)
        if found is not None and (path in self._new or not is_new):
            return found
        options = options_of(self._options, path)
        if is_new:
            options = replace(options, starting=Earliest())
            self._new.add(path)
        found = self._plan_for(options)
        if self._is_frozen:
            found.stop_at_present_ends()
        self._planners[path] = found
        return found

    def _try(self, path: str, work: Callable[[], T], *, was_read: bool) -> T | None:
        """The result of `work`; None if the entity is gone and the query goes on without it.

        ConnectorError(DATA_LOSS) if it was read and `failOnDataLoss`; ENTITY_NOT_FOUND if it is named and never was.
        """
        try:
            return work()
        except ConnectorError as error:
            if error.code is not Code.ENTITY_NOT_FOUND:
                raise
            self._lose(path, error, was_read=was_read)
        return None

    def _lose(self, path: str, error: ConnectorError, *, was_read: bool) -> None:
        fails, named = self._options.fail_on_data_loss, is_named(self._options, path)
        if was_read and fails:
            raise ConnectorError(
                Code.DATA_LOSS,
                f"{path}: the entity is gone, and the query has read of it: start with a new checkpointLocation, or "
                f"set failOnDataLoss=false to go on without it ({error.text})",
            ) from None
        if named and fails:
            raise error
        if was_read or named:
            log.warning("%s: the entity is not there; the query goes on without it (failOnDataLoss=false)", path)
        else:
            log.info("%s: the entity was deleted before it was read", path)
        self._missing.add(path)
        self._new.discard(path)
        planner = self._planners.pop(path, None)
        if planner is not None:
            planner.stop()
