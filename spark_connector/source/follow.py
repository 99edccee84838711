"""Planning the batches of a query in the modes `browse` and `drain`, but for sub-queues (`sub_queue`).

Knows what Spark's calls mean [spark 1]: everything below the offset `start` is in its checkpoint, offsets are compared
as text, and Spark asks a hundred times a second unless the call waits. Does not know Spark's classes (`stream`) and how
messages are deleted (`drain`). A `Follower` lives in the driver process of a query, on one thread.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql.datasource import InputPartition

from ..codec import Head
from ..errors import Code, ConnectorError
from ..options import SourceOptions
from ..position import Earliest
from ..timing import monotonic_s, sleep
from .admission import TriggerGate, admitted, backlogs
from .browse import firsts_from
from .drain import Settler
from .identity import gone_unread, is_other, other_generation, tell_loss, younger_than_read
from .offsets import Offset, base_of, parse_offset, partition_of
from .outage import OutageWatch
from .pace import Pace
from .plan import Span, grouped, range_tasks
from .positions import Extents, ExtentTracker, starts_at
from .retries import with_retries

log = logging.getLogger("emubus.spark")

Json = dict[str, Any]


def check_start(options: SourceOptions) -> None:
    """ConnectorError(MODE_UNSUPPORTED) if messages would be deleted that the query has not read."""
    if options.mode == "drain" and not isinstance(options.starting, Earliest):
        raise ConnectorError(
            Code.MODE_UNSUPPORTED,
            f"{options.entity}: mode=drain deletes everything before its position, so it must read from the first "
            "message: remove option startingPosition, or use mode=browse",
        )


def began_late(entity: str) -> ConnectorError:
    """The error for a checkpoint that `mode=drain` can't go on with."""
    return ConnectorError(
        Code.CHECKPOINT_MISMATCH,
        f"{entity}: the query of this checkpoint did not begin at the first message, and mode=drain would delete "
        "messages that it never read: continue with mode=browse, or start with a new checkpointLocation",
    )


@dataclass(frozen=True)
class Backlog:
    """What a look has found: where reading goes on (`begin`) and how far it may go (`ends`), by partition."""

    start: Offset
    extents: Extents
    lost: frozenset[int]
    begin: dict[int, int]
    ends: dict[int, int]


class Follower:
    """Answers Spark's questions about one entity. Errors are ConnectorError."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._extents = ExtentTracker(options)
        self._outage = OutageWatch(options.entity, options.on_outage, options.outage_timeout_s)
        self._pace = Pace(options.poll_interval_s, options.requests_per_s)
        self._gate = TriggerGate(options.min_messages_per_trigger, options.max_trigger_delay_s)
        self._settler = Settler(options) if options.mode == "drain" else None
        self._initial: Offset | None = None
        self._frozen: dict[int, int] | None = None
        self._knows_start = False
        self._frozen_out: set[int] = set()  # partitions without a frozen end: they were out
        self._seen: Offset | None = None
        self._given: Offset | None = None
        self._exact: bool | None = None
        self._generation: str | None = None
        self._has_starts = False  # Spark 4.2 and later passes the start
        self._lost_now: set[int] = set()
        self._knows_gaps = False  # said once for a run of the query
        self._backlog: Backlog | None = None

    # ---- Spark's calls, in their order

    def freeze(self) -> None:
        """Read no further than the present ends: the query will end there."""
        extents = self._look(None)
        self._frozen, self._frozen_out = dict(extents.following), set(extents.unavailable)
        self._knows_start = False

    def initial(self) -> Json:
        """Where the query begins; the same answer at every call."""
        return self._first_offset().to_json()

    def latest(self, start_json: Json | None, count_max: int | None, *, all_available: bool) -> Json:
        """The end of the next batch; `start_json` itself if there are no messages within `pollInterval`.

        Spark 4.0 passes no start: then the last answer is used for it.
        """
        start = self._parsed(start_json) if start_json is not None else self._given or self._without_start()
        self._has_starts = start_json is not None
        deadline_s = monotonic_s() + self._options.poll_interval_s
        while True:
            sleep(self._pace.wait_s(monotonic_s()))
            end = self._end_of(self._backlog_after(start), count_max, all_available=all_available)
            if end is not None:
                self._given = end
                self._gate.went(monotonic_s())
                self._pace.found()
                return end.to_json()
            self._pace.nothing(self._extents.request_count, monotonic_s())
            if self._frozen is not None and self._outage.waits:
                continue  # the query ends when all partitions are read
            left_s = deadline_s - monotonic_s()
            if self._frozen is not None or left_s <= 0:
                break
            sleep(min(left_s, self._pace.wait_s(monotonic_s())))
            if deadline_s <= monotonic_s():
                break
        self._given = start
        self.rest()
        return start.to_json() if start_json is None else start_json

    # ---- calls of a planner of several entities, in the place of `latest`

    def look(self, start_json: Json) -> int:
        """Look at the entity from this offset on; how many sequence numbers wait."""
        self._has_starts = True
        self._backlog = backlog = self._backlog_after(self._parsed(start_json))
        return sum(backlogs(self._effective(backlog.begin, backlog.extents), backlog.ends).values())

    def take(self, count_max: int | None) -> tuple[Json, int] | None:
        """The end of the next batch after `look`, and how many numbers it has; None if there is nothing."""
        backlog = self._backlog
        assert backlog is not None
        end = self._end_of(backlog, count_max, all_available=count_max is None)
        if end is None:
            return None
        starts = self._effective(backlog.begin, backlog.extents)
        return end.to_json(), sum(backlogs(starts, end.following).values())

    def unmoved(self) -> Json:
        """The offset of the last `look`."""
        assert self._backlog is not None
        return self._backlog.start.to_json()

    def rest(self) -> None:
        """There is nothing to read now: wait until what is finished is deleted."""
        if self._frozen is not None:
            self._outage.tell_left()
        if self._settler is not None:
            self._settler.wait(insist=self._frozen is not None)

    @property
    def waits(self) -> bool:
        """Whether a query that is to end waits for partitions that are out."""
        return self._outage.waits

    @property
    def request_count(self) -> int:
        """Requests of the last look."""
        return self._extents.request_count

    # ---- the rest of Spark's calls

    def report(self) -> Json | None:
        """The ends at the last look; `out` names partitions whose ends are not known now."""
        if self._seen is None:
            return None
        out = {"out": sorted(self._outage.out)} if self._outage.out else {}
        return self._seen.to_json() | out

    def plan(self, start_json: Json, end_json: Json) -> list[InputPartition]:
        """The tasks of a batch, possibly one that an earlier run of the query has begun."""
        start, end = self._parsed(start_json), self._parsed(end_json)
        if self._exact is None:
            self._check_end(end)
        begin: Mapping[int, int] = start.following
        if start.is_initial and end.start is not None:
            begin = end.start  # what "latest" meant when this batch was begun, possibly before a restart
        spans = []
        for partition, high in sorted(end.following.items()):
            low = base_of(partition) if partition in end.lost else begin.get(partition, base_of(partition))
            spans.append(Span(low, max(low, high)))
        tasks = range_tasks(spans, self._options, exact=self._exact is True, generation=end.generation)
        self._outage.wait_for({partition_of(task.low) for task in tasks}, lambda: self._look(None))
        if self._options.min_partitions is not None:
            return [*tasks]
        return [*grouped(tasks, self._options.max_messages_per_task)]

    def committed(self, end_json: Json) -> None:
        """Spark has committed everything below this offset; from 4.2 on `latest` has got it as its start before."""
        if self._settler is not None and not self._has_starts:
            end = self._parsed(end_json)
            self._lost(end, self._look(end))
            self._settle(end)

    def stop(self) -> None:
        """Stop the thread that deletes."""
        if self._settler is not None:
            self._settler.stop()

    # ---- offsets and extents

    def _parsed(self, raw: Json) -> Offset:
        offset = parse_offset(raw, self._options.entity)
        if self._settler is not None and offset.start is not None:
            raise began_late(offset.entity)
        return offset

    def _look(self, known: Offset | None) -> Extents:
        """The extents now; `known` is an offset that was reached before."""
        entity = self._options.entity
        floors = {} if known is None else known.following
        if known is not None and known.generation is not None:
            self._extents.insist()
        extents = with_retries(
            self._options.connection,
            f"looking for the ends of {entity}",
            lambda connection: self._extents.look(connection, floors),
        )
        self._outage.note(extents.unavailable)
        self._exact = extents.exact
        self._generation = extents.generation
        if self._frozen is not None:
            for partition in self._frozen_out & extents.following.keys():
                self._frozen[partition] = extents.following[partition]
            self._frozen_out -= extents.following.keys()
        if known is not None and is_other(known.generation, extents.generation):
            floors = {}
        self._seen = Offset(entity, {**floors, **extents.following}, generation=extents.generation)
        return extents

    def _first_offset(self) -> Offset:
        if self._initial is None:
            options = self._options

            def find(connection: Any) -> Offset:
                extents = self._extents.look(connection, {})
                management = connection.management(options.entity)
                numbers = starts_at(options.starting, extents, management, options.entity)
                return Offset(options.entity, numbers, is_initial=True, generation=extents.generation)

            self._initial = with_retries(options.connection, f"finding where to begin in {options.entity}", find)
        return self._initial

    def _without_start(self) -> Offset:
        """The start for Spark 4.0 in a process that has returned no offset yet.

        It is not known how far the query has read, so no partition may be missing.
        """
        if not isinstance(self._options.starting, Earliest):
            return self._first_offset()

        def look(connection: Any) -> None:
            self._extents.look(connection, {}).demand_all(
                self._options.entity, "the first look of a query on Spark 4.0"
            )

        with_retries(self._options.connection, f"looking for the ends of {self._options.entity}", look)
        return self._first_offset()

    # ---- the end of the next batch

    def _backlog_after(self, start: Offset) -> Backlog:
        """Look at the entity; what is below `start` is committed, so its deletion begins."""
        extents = self._look(start)
        lost = self._lost(start, extents)
        if lost and not extents.exact:
            self._extents.forget()
            extents = self._look(None)
            if self._settler is not None:
                self._settler.forget()
        if self._frozen is not None and not self._knows_start:  # the checkpoint may name partitions that were not found
            known = start.following.keys() & extents.following.keys()
            self._frozen = {each: extents.following[each] for each in known} | self._frozen
            self._frozen_out |= start.following.keys() & extents.unavailable
            self._knows_start = True
        begin = {each: number for each, number in start.following.items() if each not in lost}
        if self._settler is not None and not self._knows_gaps and extents.exact and not start.is_initial:
            self._knows_gaps = True
            if (gone := gone_unread(replace(start, following=begin), extents.first)) is not None:
                log.warning("%s", gone)
        if self._has_starts:
            self._settle(start)
        return Backlog(start, extents, frozenset(lost), begin, self._ends(begin, extents))

    def _end_of(self, backlog: Backlog, count_max: int | None, *, all_available: bool) -> Offset | None:
        """Where the next batch ends; None if there is no batch yet."""
        start, extents, lost, begin = backlog.start, backlog.extents, backlog.lost, backlog.begin
        following = begin | self._next_ends(backlog, count_max, all_available)
        query_start = self._query_start(start)
        # A start that can't be found again ("latest", a time) is stored by a batch of its own, possibly an empty one.
        stores_start = start.is_initial and query_start is not None
        if not (lost or stores_start or self._has_moved(begin, following, extents)):
            return None
        return Offset(
            self._options.entity,
            following,
            query_start,
            lost=lost & following.keys(),
            generation=extents.generation or start.generation,
            times={**({} if lost else start.times), **extents.last_at_ms},
        )

    def _ends(self, begin: Mapping[int, int], extents: Extents) -> dict[int, int]:
        """How far reading may go in each partition: to its end, or to its end at the time of `freeze`."""
        ends = {each: max(end, begin.get(each, end)) for each, end in extents.following.items()}
        frozen = self._frozen
        if frozen is None:
            return ends
        return {
            each: min(end, max(frozen.get(each, base_of(each)), begin.get(each, base_of(each))))
            for each, end in ends.items()
        }

    def _next_ends(self, backlog: Backlog, count_max: int | None, all_available: bool) -> dict[int, int]:
        """Where the next batch ends in each partition.

        That is at `begin` if `minMessagesPerTrigger` holds the batch back, and within `count_max` numbers in all.
        """
        begin, ends, extents = backlog.begin, backlog.ends, backlog.extents
        waiting = sum(backlogs(self._effective(begin, extents), ends).values())
        if not (all_available or self._frozen is not None or self._gate.may_go(waiting, monotonic_s())):
            return {each: begin.get(each, base_of(each)) for each in ends}
        if all_available or count_max is None or waiting <= count_max:
            return ends
        return admitted(self._present(begin, ends, extents), ends, count_max)

    def _query_start(self, start: Offset) -> Mapping[int, int] | None:
        """Where the query began, None if that was the earliest message."""
        is_chosen = start.is_initial and not isinstance(self._options.starting, Earliest)
        return start.following if is_chosen else start.start

    def _has_moved(self, begin: Mapping[int, int], following: Mapping[int, int], extents: Extents) -> bool:
        """Whether there is anything to read. On Spark 4.0 every number counts: the checkpoint may hold any."""
        known = self._effective(begin, extents) if self._has_starts else begin
        return any(
            number > max(known.get(each, base_of(each)), begin.get(each, base_of(each)))
            for each, number in following.items()
        )

    def _effective(self, begin: Mapping[int, int], extents: Extents) -> dict[int, int]:
        """Where reading begins in effect: not below the first message."""
        bases = {each: base_of(each) for each in extents.following}
        return {each: max(begin.get(each, base), extents.first.get(each, base)) for each, base in bases.items()}

    def _present(self, begin: Mapping[int, int], ends: Mapping[int, int], extents: Extents) -> dict[int, int]:
        """The first existing number in each partition with a backlog, so that gaps use up no share of the limit."""
        found = self._effective(begin, extents)
        asked = sorted(each for each, number in found.items() if number < ends[each] and each not in extents.whole)
        if not asked:
            return found
        options = self._options

        def look(connection: Any) -> None:
            numbers = [found[each] for each in asked]
            heads = firsts_from(connection.management(options.entity), numbers, alone=extents.exact)
            for partition, head in zip(asked, heads, strict=True):
                if head is None or (isinstance(head, Head) and partition_of(head.sequence_number) != partition):
                    found[partition] = ends[partition]
                elif isinstance(head, Head):
                    found[partition] = min(ends[partition], head.sequence_number)

        with_retries(options.connection, f"looking for the next messages of {options.entity}", look)
        return found

    # ---- lost partitions

    def _lost(self, start: Offset, extents: Extents) -> set[int]:
        """Partitions to read from their base: all if the entity has another generation, else those that end below the
        offset.

        ConnectorError(DATA_LOSS) with `failOnDataLoss`.
        """
        self._lost_now = set()
        if is_other(start.generation, extents.generation):
            self._lost_now = {*start.following, *extents.following}
            text = other_generation(start.entity, start.generation, extents.generation)
            tell_loss(text, fails=self._options.fail_on_data_loss)
            return self._lost_now
        if not extents.exact:  # the end of an empty partition is not known, so only messages tell
            younger = younger_than_read(start, extents.found)
            if younger is not None:
                self._lost_now = {*start.following, *extents.following}
                tell_loss(younger, fails=self._options.fail_on_data_loss)
            return self._lost_now
        self._lost_now = lost = {
            each
            for each, number in start.following.items()
            if each not in extents.unavailable and number > extents.following.get(each, base_of(each))
        }
        if lost:
            self._complain(start, extents, lost)
        return lost

    def _check_end(self, end: Offset) -> None:
        """Check that a batch of an earlier run can still be read."""
        self._lost(end, self._look(end))

    def _complain(self, offset: Offset, extents: Extents, lost: set[int]) -> None:
        partition = min(lost)
        ends_at = extents.following.get(partition)
        text = (
            f"{offset.entity}: the checkpoint is at sequence number {offset.following[partition]} in partition "
            f"{partition}, "
            + ("which no longer exists" if ends_at is None else f"where the next message gets {ends_at}")
            + ": the entity was deleted and created again"
        )
        tell_loss(text, fails=self._options.fail_on_data_loss)

    def _settle(self, offset: Offset) -> None:
        """Delete the messages below the offset, except in partitions that were replaced: those hold unread messages."""
        if self._settler is not None:
            finished = {each: number for each, number in offset.following.items() if each not in self._lost_now}
            generation = offset.generation or self._generation
            self._settler.settle(finished, by_range=self._exact is True, generation=generation, times=offset.times)
