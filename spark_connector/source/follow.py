"""Following an entity batch after batch, for `browse` and `drain`: what the driver's reader thinks.

Knows what Spark's calls mean: that everything below the offset it calls `start` is safe in its checkpoint, that it
compares offsets as text, that it asks again a hundred times a second if it isn't made to wait. Does not know Spark's
classes (`stream`) and how messages are deleted (`drain`). A `Follower` lives in the one process that drives a query, on
one thread.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql.datasource import InputPartition

from ..codec import Head
from ..errors import Code, ConnectorError
from ..options import SourceOptions
from ..position import Earliest
from ..timing import monotonic_s, sleep
from .admission import Pace, admitted, backlogs
from .asking import persistently
from .batch import range_tasks
from .browse import firsts_from
from .drain import Settler
from .offsets import Offset, base_of, parse_offset, partition_of
from .plan import Span, grouped
from .positions import Extents, Survey, starts_at

log = logging.getLogger("emubus.spark")
WAITING_STEPS: Final = 4  # looks per `pollInterval` while nothing comes

Json = dict[str, Any]


def check_start(options: SourceOptions) -> None:
    """ConnectorError(MODE_UNSUPPORTED) where messages would be taken away that nobody has read."""
    if options.mode == "drain" and not isinstance(options.starting, Earliest):
        raise ConnectorError(
            Code.MODE_UNSUPPORTED,
            f"{options.entity}: mode=drain deletes all that it has read past, so it must read from the first "
            "message on: remove option startingPosition, or take mode=browse",
        )


class Follower:
    """Answers Spark's questions about one entity. Errors are ConnectorError."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._survey = Survey(options.entity, options.partition_discovery_interval_s)
        self._pace = Pace(options.min_messages_per_trigger, options.max_trigger_delay_s)
        self._settler = Settler(options) if options.mode == "drain" else None
        self._initial: Offset | None = None
        self._frozen: dict[int, int] | None = None
        self._seen: Offset | None = None
        self._given: Offset | None = None
        self._exact: bool | None = None
        self._is_told_starts = False
        self._lost_now: set[int] = set()

    # ---- Spark's questions, in the order of their coming

    def freeze(self) -> None:
        """Never go beyond what is there now: the query is to end."""
        self._frozen = dict(self._look({}).following)

    def initial(self) -> Json:
        """Where the query begins; the same answer however often it is asked."""
        return self._first_offset().to_json()

    def latest(self, start_json: Json | None, count_max: int | None, *, all_available: bool) -> Json:
        """The end of the next batch; `start_json` itself if there is nothing, after waiting for `pollInterval`.

        Spark 4.0 tells no start: then the last answer is taken for it.
        """
        start = self._parsed(start_json) if start_json is not None else self._given or self._without_start()
        self._is_told_starts = start_json is not None
        deadline_s = monotonic_s() + self._options.poll_interval_s
        while True:
            end = self._end(start, count_max, all_available)
            if self._is_told_starts:
                self._settle(start)
            if end is not None:
                self._given = end
                self._pace.went(monotonic_s())
                return end.to_json()
            left_s = deadline_s - monotonic_s()
            if self._frozen is not None or left_s <= 0:
                break
            sleep(min(left_s, self._options.poll_interval_s / WAITING_STEPS))
        self._given = start
        if self._settler is not None:
            self._settler.wait(insist=self._frozen is not None)
        return start.to_json() if start_json is None else start_json

    def report(self) -> Json | None:
        """The ends that the last look saw."""
        return None if self._seen is None else self._seen.to_json()

    def plan(self, start_json: Json, end_json: Json) -> list[InputPartition]:
        """The tasks of a batch, which may be one that a former run of the query has begun."""
        start, end = self._parsed(start_json), self._parsed(end_json)
        if self._exact is None:
            self._check_end(end)
        begin: Mapping[int, int] = start.following
        if start.is_initial and end.start is not None:
            begin = end.start  # what "latest" meant when this batch was begun, perhaps before a restart
        spans = []
        for partition, high in sorted(end.following.items()):
            low = base_of(partition) if partition in end.lost else begin.get(partition, base_of(partition))
            spans.append(Span(low, max(low, high)))
        tasks = range_tasks(spans, self._options, exact=self._exact is True)
        if self._options.min_partitions is not None:
            return [*tasks]
        return [*grouped(tasks, self._options.max_messages_per_task)]

    def committed(self, end_json: Json) -> None:
        """Spark has finished everything below this offset; from 4.2 on `latest` was told so before."""
        if self._settler is not None and not self._is_told_starts:
            end = self._parsed(end_json)
            self._lost(end, self._look(end.following))
            self._settle(end)

    def stop(self) -> None:
        """Let go of what runs besides."""
        if self._settler is not None:
            self._settler.stop()

    # ---- what is there

    def _parsed(self, raw: Json) -> Offset:
        offset = parse_offset(raw, self._options.entity)
        if self._settler is not None and offset.start is not None:
            raise ConnectorError(
                Code.CHECKPOINT_MISMATCH,
                f"{offset.entity}: the checkpoint is of a query that began elsewhere than at the first message, and "
                "mode=drain would delete what it never read: go on with mode=browse, or start with a new "
                "checkpointLocation",
            )
        return offset

    def _look(self, floors: Mapping[int, int]) -> Extents:
        entity = self._options.entity
        extents = persistently(
            self._options.connection,
            f"looking for the ends of {entity}",
            lambda connection: self._survey.look(connection, floors),
        )
        self._exact = extents.exact
        self._seen = Offset(entity, {**floors, **extents.following})
        return extents

    def _first_offset(self) -> Offset:
        if self._initial is None:
            options = self._options

            def find(connection: Any) -> Offset:
                extents = self._survey.look(connection, {})
                management = connection.management(options.entity)
                numbers = starts_at(options.starting, extents, management, options.entity)
                return Offset(options.entity, numbers, is_initial=True)

            self._initial = persistently(options.connection, f"finding where to begin in {options.entity}", find)
        return self._initial

    def _without_start(self) -> Offset:
        """Spark 4.0, in a process that has given no offset yet.

        What was read before is unknown, so miss no partition.
        """
        if not isinstance(self._options.starting, Earliest):
            return self._first_offset()

        def look(connection: Any) -> None:
            self._survey.look(connection, {}).demand_all(self._options.entity, "the first look of a query on Spark 4.0")

        persistently(self._options.connection, f"looking for the ends of {self._options.entity}", look)
        return self._first_offset()

    # ---- the end of the next batch

    def _end(self, start: Offset, count_max: int | None, all_available: bool) -> Offset | None:
        """Where the next batch ends; None if there is none yet."""
        options = self._options
        extents = self._look(start.following)
        lost = self._lost(start, extents)
        begin = {each: number for each, number in start.following.items() if each not in lost}
        ends = {each: max(end, begin.get(each, 0)) for each, end in extents.following.items()}
        if self._frozen is not None:
            ends = {
                each: min(end, max(self._frozen.get(each, base_of(each)), begin.get(each, 0)))
                for each, end in ends.items()
            }
        waiting = sum(backlogs(self._effective(begin, extents), ends).values())
        ready = all_available or self._frozen is not None or self._pace.may_go(waiting, monotonic_s())
        if not ready:
            ends = {each: begin.get(each, base_of(each)) for each in ends}
        elif not all_available and count_max is not None and waiting > count_max:
            ends = admitted(self._present(begin, ends, extents), ends, count_max)
        kept = {each: number for each, number in begin.items() if each not in ends}
        following = kept | ends
        began = start.following if start.is_initial and not isinstance(options.starting, Earliest) else start.start
        end = Offset(options.entity, following, began, lost=frozenset(lost & following.keys()))
        # Without a start (Spark 4.0) every number is told, for the checkpoint may hold any.
        known = self._effective(begin, extents) if self._is_told_starts else begin
        moved = any(
            number > max(known.get(each, 0), begin.get(each, base_of(each))) for each, number in following.items()
        )
        # A start that can't be found again is written down by a batch of its own, empty if need be.
        return end if moved or lost or (start.is_initial and began is not None) else None

    def _effective(self, begin: Mapping[int, int], extents: Extents) -> dict[int, int]:
        """Where reading could begin at best: not below the first message."""
        return {each: max(begin.get(each, base_of(each)), extents.first.get(each, 0)) for each in extents.following}

    def _present(self, begin: Mapping[int, int], ends: Mapping[int, int], extents: Extents) -> dict[int, int]:
        """The first number that is really there in each partition with a backlog, so that gaps use up no share."""
        found = self._effective(begin, extents)
        asked = sorted(each for each, number in found.items() if number < ends[each])
        options = self._options

        def look(connection: Any) -> None:
            numbers = [found[each] for each in asked]
            heads = firsts_from(connection.management(options.entity), numbers, alone=extents.exact)
            for partition, head in zip(asked, heads, strict=True):
                if head is None or (isinstance(head, Head) and partition_of(head.sequence_number) != partition):
                    found[partition] = ends[partition]
                elif isinstance(head, Head):
                    found[partition] = min(ends[partition], head.sequence_number)

        persistently(options.connection, f"looking for the next messages of {options.entity}", look)
        return found

    # ---- what can't be

    def _lost(self, start: Offset, extents: Extents) -> set[int]:
        """Partitions whose past is gone.

        The entity must have been made anew. ConnectorError(DATA_LOSS) if that matters.
        """
        self._lost_now = set()
        if not extents.exact:
            return set()  # the end of an empty partition can't be told, so neither can this
        self._lost_now = lost = {
            each
            for each, number in start.following.items()
            if each not in extents.unavailable and number > extents.following.get(each, base_of(each))
        }
        if lost:
            self._complain(start, extents, lost)
        return lost

    def _check_end(self, end: Offset) -> None:
        """Look whether a batch of a former run can still be read."""
        self._lost(end, self._look(end.following))

    def _complain(self, offset: Offset, extents: Extents, lost: set[int]) -> None:
        partition = min(lost)
        ends_at = extents.following.get(partition)
        text = (
            f"{offset.entity}: the checkpoint is at sequence number {offset.following[partition]} in partition "
            f"{partition}, "
            + ("which is not there any more" if ends_at is None else f"where the next message gets {ends_at}")
            + ": the entity was deleted and made again"
        )
        if self._options.fail_on_data_loss:
            raise ConnectorError(
                Code.DATA_LOSS,
                f"{text}; start with a new checkpointLocation, or set failOnDataLoss=false to read the new one from "
                "its start",
            )
        log.warning("%s; it is read from its start, for failOnDataLoss=false", text)

    def _settle(self, offset: Offset) -> None:
        """Have deleted what lies below; not in partitions where others than those that were read lie there."""
        if self._settler is not None:
            finished = {each: number for each, number in offset.following.items() if each not in self._lost_now}
            self._settler.settle(finished, by_range=self._exact is True)
