"""Planning the batches of a query on a dead-letter queue, in the modes `browse` and `drain`.

A dead letter keeps the number that its message had, so one may come below others that were read. A look therefore lists
the numbers that are there, and an offset holds those that were read (`SeenOffset`); a batch is a set of numbers, not a
range. Knows what Spark's calls mean [spark 1]. Does not know Spark's classes (`stream`) and how messages are deleted
(`drain`). A `SubQueueFollower` lives in the driver process of a query, on one thread.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from typing import Any, Final

from pyspark.sql.datasource import InputPartition

from ..codec import head
from ..options import SourceOptions
from ..position import Earliest, Latest
from ..timing import monotonic_s
from .browse import pages
from .drain import ExactSettler
from .follow import Follower, began_late
from .identity import is_other, other_generation, tell_loss
from .offsets import (
    Offset,
    Run,
    SeenOffset,
    base_of,
    first_of,
    parse_seen_offset,
    partition_of,
    runs_of,
    size_of,
    together,
    within,
    without,
)
from .peeks import PatientPeeks
from .plan import NumbersTask, split_runs
from .polling import Json, Polling
from .positions import Extents, starts_at
from .retries import management_node, with_retries

log = logging.getLogger("emubus.spark")

RUNS_MAX: Final = 10_000
"""Runs of read messages in an offset, and of messages in a batch: together about 150 KB of JSON."""

SURE_S: Final = 10.0
"""How long an unchanged count of messages passes for an unchanged queue: one may have gone while another one came."""

PEEK_COUNT: Final = 500
NUMBERS_COUNT: Final = 2_000
"""Messages and numbers of one request."""


@dataclass(frozen=True)
class Listing:
    """The numbers that are there; of `unavailable` partitions they are not known.

    `times` has when the latest message was enqueued (Unix ms), by number, where the service tells no generation.
    """

    extents: Extents
    present: tuple[Run, ...]
    at_ms: Mapping[int, int] = field(default_factory=dict[int, int])


@dataclass(frozen=True)
class Look:
    """What a look has found: what counts as read (`start`), what is there, and what is still to read."""

    start_json: Json
    start: SeenOffset
    listing: Listing
    unread: tuple[Run, ...]
    must_store: bool
    """Whether an offset has to be stored though there may be nothing to read."""


@dataclass(frozen=True)
class Ending:
    """Reads `there`, what was there when the ends were taken; the partitions in `out` could not be reached then."""

    there: tuple[Run, ...]
    out: frozenset[int]

    def reached(self, listing: Listing) -> Ending:
        """The state after a look: of a partition that was out, what is there when it comes back."""
        back = self.out - listing.extents.unavailable
        there = tuple(run for run in listing.present if partition_of(run[0]) in back)
        return Ending(together(self.there, there), self.out - back) if back else self


class SubQueueFollower(Polling[ExactSettler]):
    """Answers Spark's questions about one sub-queue. Errors are ConnectorError."""

    def __init__(self, options: SourceOptions) -> None:
        super().__init__(options, ExactSettler(options) if options.mode == "drain" else None)
        self._ending: Ending | None = None
        self._listing: Listing | None = None
        self._listed_at_s = 0.0
        self._last: Look | None = None  # what is read of it is no longer among its unread
        self._request_count = 0
        self._has_starts = False  # Spark 4.2 and later passes the start
        self._told_floor = False

    # ---- Spark's calls, in their order

    def stop_at_present_ends(self) -> None:
        """Read nothing that comes later: the query will end."""
        listing = self._list(anew=True)
        self._ending = Ending(listing.present, listing.extents.unavailable)

    def initial(self) -> Json:
        """Where the query begins; the same answer at every call."""
        return self._initial.to_json()

    def latest(self, start_json: Json | None, count_max: int | None, *, all_available: bool) -> Json:
        """The end of the next batch; `start_json` itself if there are no messages within `pollInterval`.

        Spark 4.0 passes no start: then the end names all that is there, and the batch is what its start has not seen.
        """
        if start_json is None:
            return self._all_there()
        end_json = self._poll(lambda: self.look(start_json), count_max, all_available=all_available)
        return start_json if end_json is None else end_json

    # ---- calls of a planner of several entities, in the place of `latest`

    def look(self, start_json: Json) -> int:
        """Look at the sub-queue from this offset on; how many messages wait."""
        self._has_starts = True
        raw = parse_seen_offset(start_json, self._options.entity)
        listing = self._list()
        start, is_replaced = self._start(raw, listing)
        known = without(listing.present, _runs_below(listing.present, start.floors))
        unread = without(known, start.seen)
        if self._ending is not None:
            unread = within(unread, self._ending.there)
        must_store = isinstance(raw, Offset) or (start.is_initial and start.is_late) or is_replaced
        self._last = Look(start_json, start, listing, unread, must_store)
        if not is_replaced:
            self._settle(start, listing)
        return size_of(unread)

    def unmoved(self) -> Json:
        assert self._last is not None
        return self._last.start_json

    @property
    def request_count(self) -> int:
        return self._request_count

    # ---- the rest of Spark's calls

    def report(self) -> Json | None:
        """How many messages are still to read in each partition; `out` names partitions that can't be reached."""
        if self._listing is None:
            return None
        unread = dict.fromkeys((str(each) for each in sorted(self._listing.extents.following)), 0)
        for partition, runs in groupby(
            () if self._last is None else self._last.unread, lambda run: partition_of(run[0])
        ):
            unread[str(partition)] = size_of(runs)
        out = {"out": sorted(self._outage.out)} if self._outage.out else {}
        return SeenOffset(self._options.entity).to_json() | {"unread": unread} | out

    def plan(self, start_json: Json, end_json: Json) -> list[InputPartition]:
        """The tasks of a batch, possibly one that an earlier run of the query has begun."""
        options = self._options
        end = parse_seen_offset(end_json, options.entity)
        if isinstance(end, Offset):  # an older connector has begun it
            return Follower(options).plan(start_json, end_json)
        batch = end.batch
        if batch is None:
            start = parse_seen_offset(start_json, options.entity)
            seen = () if isinstance(start, Offset) else start.seen
            below = start.following if isinstance(start, Offset) else start.floors
            batch = without(without(end.seen, seen), _runs_below(end.seen, below))
        if self._listing is None:
            self._check(end, self._list())
        assert self._listing is not None
        self._outage.wait_for({partition_of(first) for first, _ in batch}, self._list)
        is_alone = self._listing.extents.exact
        groups = split_runs(batch, options.min_partitions, options.max_messages_per_task)
        return [NumbersTask(options.entity, runs, is_alone, end.generation) for runs in groups]

    def committed(self, end_json: Json) -> None:
        """Spark has committed this batch; from 4.2 on `latest` has got it as its start before."""
        if self._settler is not None and not self._has_starts:
            end = parse_seen_offset(end_json, self._options.entity)
            listing = self._list()
            if isinstance(end, SeenOffset) and not self._check(end, listing):
                self._settle(end, listing)

    @property
    def _is_ending(self) -> bool:
        return self._ending is not None

    # ---- what is there

    def _list(self, *, anew: bool = False) -> Listing:
        """List the sub-queue; while its counts do not change, the last list counts for `SURE_S`, unless `anew`."""
        options = self._options

        def look(connection: Any) -> Listing:
            extents = self._extents.look(connection, {})
            self._request_count = self._extents.request_count
            last = self._listing
            is_recent = not anew and monotonic_s() - self._listed_at_s < SURE_S
            if last is not None and is_recent and _counts_agree(last.extents, extents):
                return replace(last, extents=extents)
            self._listed_at_s = monotonic_s()
            return self._list_messages(connection, extents)

        listing = with_retries(options.connection, f"listing the messages of {options.entity}", look)
        self._outage.note(listing.extents.unavailable)
        if self._ending is not None:
            self._ending = self._ending.reached(listing)
        self._listing = listing
        return listing

    def _list_messages(self, connection: Any, extents: Extents) -> Listing:
        if extents.exact:
            listed = self._listed_by_number(connection, extents)
            if listed is not None:
                return listed
        management = PatientPeeks(connection.management(self._options.entity))
        numbers: list[int] = []
        at_ms: dict[int, int] = {}
        for partition, following in sorted(extents.following.items()):
            alone = partition if extents.exact else None
            low, high = base_of(partition), following
            if extents.exact:
                low = max(low, extents.first.get(partition, low))
            for page in pages(management, low, high, PEEK_COUNT, alone):
                for found in map(head, page.messages):
                    if found.sequence_number < high:
                        numbers.append(found.sequence_number)
                        if extents.generation is None:
                            at_ms[found.sequence_number] = found.enqueued_at_ms
        self._request_count += management.request_count
        return Listing(extents, runs_of(numbers), at_ms)

    def _listed_by_number(self, connection: Any, extents: Extents) -> Listing | None:
        """The list by an operation that only emubus has, which sends no messages; None if it does not know it."""
        management = management_node(connection, self._options.entity, extents.generation)
        numbers: list[int] = []
        for partition, following in sorted(extents.following.items()):
            first = max(base_of(partition), extents.first.get(partition, base_of(partition)))
            while first < following:
                found = management.numbers(partition, first, NUMBERS_COUNT)
                if found is None:
                    return None
                self._request_count += 1
                numbers += (number for number in found if number < following)
                first = found[-1] + 1 if len(found) == NUMBERS_COUNT else following
        return Listing(extents, runs_of(numbers))

    # ---- where the query is

    @cached_property
    def _initial(self) -> SeenOffset:
        options, position = self._options, self._options.starting
        offset = SeenOffset(options.entity, is_initial=True, is_late=not isinstance(position, Earliest))
        if isinstance(position, Earliest):
            return offset
        listing = self._list()
        offset = replace(offset, generation=listing.extents.generation)
        if isinstance(position, Latest):
            listing.extents.demand_all(options.entity, "startingPosition=latest")
            return replace(offset, seen=listing.present, times=_latest_enqueued_at(listing, listing.present))

        def find(connection: Any) -> dict[int, int]:
            return starts_at(position, listing.extents, connection.management(options.entity), options.entity)

        floors = with_retries(options.connection, f"finding where to begin in {options.entity}", find)
        return replace(offset, floors={each: number for each, number in floors.items() if number > base_of(each)})

    def _start(self, raw: SeenOffset | Offset, listing: Listing) -> tuple[SeenOffset, bool]:
        """The offset as a `SeenOffset`, and whether the entity was replaced, so that it is read from its beginning."""
        is_replaced = self._check(raw, listing)
        if is_replaced:
            return SeenOffset(self._options.entity, generation=listing.extents.generation), True
        if isinstance(raw, SeenOffset):
            return raw, False
        # Of an older connector, which read by ranges: what is below its numbers was read, or is skipped this once.
        seen = _runs_below(listing.present, raw.following)
        converted = SeenOffset(
            raw.entity, seen, floors={}, left=seen, is_late=raw.start is not None, generation=raw.generation
        )
        if seen and self._settler is not None:
            log.warning(
                "%s: the checkpoint is of an older release: %d messages below its position stay in the sub-queue, "
                "because it does not tell which of them were read",
                raw.entity,
                size_of(seen),
            )
        return converted, False

    def _check(self, offset: SeenOffset | Offset, listing: Listing) -> bool:
        """Whether the entity was replaced since the offset; ConnectorError(DATA_LOSS) with `failOnDataLoss`."""
        options, extents = self._options, listing.extents
        if self._settler is not None and (
            offset.is_late if isinstance(offset, SeenOffset) else offset.start is not None
        ):
            raise began_late(options.entity)
        if is_other(offset.generation, extents.generation):
            text = other_generation(options.entity, offset.generation, extents.generation)
        elif extents.exact or isinstance(offset, Offset):
            return False
        else:
            seen = within(listing.present, offset.seen)
            younger = _number_enqueued_later(offset.times, listing.at_ms, seen)
            if younger is None:
                return False
            text = (
                f"{options.entity}: message {younger} was read, but was enqueued after all that were read: the entity "
                "was deleted and created again"
            )
        tell_loss(text, fails=options.fail_on_data_loss)
        return True

    # ---- the end of the next batch

    def _all_there(self) -> Json:
        listing = self._list()
        listing.extents.demand_all(self._options.entity, "a query on Spark 4.0")
        seen = listing.present if self._ending is None else within(listing.present, self._ending.there)
        generation, times = listing.extents.generation, _latest_enqueued_at(listing, seen)
        offset = SeenOffset(
            self._options.entity, seen, None, is_late=self._initial.is_late, generation=generation, times=times
        )
        self._last = None
        return offset.to_json()

    def _next_batch(self, count_max: int | None, *, all_available: bool) -> tuple[Json, int] | None:
        look = self._last
        assert look is not None
        unread, start = look.unread, look.start
        may_go = all_available or self._is_ending or self._polls.gate.may_go(size_of(unread), monotonic_s())
        batch = _equal_shares(unread, None if all_available else count_max) if may_go else ()
        if not (batch or look.must_store):
            return None
        listing = look.listing
        out = tuple(run for run in start.seen if partition_of(run[0]) in listing.extents.unavailable)
        there = together(within(listing.present, start.seen), out)
        seen, floors = self._bounded(together(there, batch), start.floors, without(unread, batch))
        end = SeenOffset(
            start.entity,
            seen,
            batch,
            floors,
            within(start.left, there),
            start.is_late,
            generation=listing.extents.generation or start.generation,
            times={**start.times, **_latest_enqueued_at(listing, seen)},
        )
        self._last = replace(look, unread=without(unread, batch))
        assert not within(batch, start.seen)  # each message is read once
        return end.to_json(), size_of(batch)

    def _bounded(
        self, seen: tuple[Run, ...], floors: Mapping[int, int], unread: Sequence[Run]
    ) -> tuple[tuple[Run, ...], dict[int, int]]:
        """At most `RUNS_MAX` runs of read messages: below a higher floor, everything counts as read.

        No floor goes above what is still to be read.
        """
        raised = dict(floors)
        if len(seen) <= RUNS_MAX:
            return seen, raised
        lowest = {partition: next(runs)[0] for partition, runs in groupby(unread, lambda run: partition_of(run[0]))}
        kept: list[Run] = []
        of_partition = [[*runs] for _, runs in groupby(seen, lambda run: partition_of(run[0]))]
        share = RUNS_MAX // (2 * len(of_partition))
        for runs in of_partition:
            partition = partition_of(runs[0][0])
            floor = min(runs[max(0, len(runs) - share)][0], lowest.get(partition, runs[-1][0]))
            raised[partition] = max(floor, raised.get(partition, floor))
            kept += [run for run in runs if run[0] >= floor]
        if not self._told_floor:
            self._told_floor = True
            log.warning(
                "%s: more than %d stretches of read messages are in the sub-queue: messages that are dead-lettered "
                "later with numbers below %s are not read; delete what was read, or use mode=drain",
                self._options.entity,
                RUNS_MAX,
                raised,
            )
        return tuple(kept), raised

    def _settle(self, offset: SeenOffset, listing: Listing) -> None:
        """Delete what was read up to this offset, and is there."""
        if self._settler is not None:
            finished = without(within(listing.present, offset.seen), offset.left)
            generation = offset.generation or listing.extents.generation
            by_number = listing.extents.exact
            self._settler.settle_runs(finished, by_number=by_number, generation=generation, times=offset.times)


def _counts_agree(before: Extents, now: Extents) -> bool:
    """Whether nothing is known to have come or gone."""
    return now.exact and (before.first, before.counts, before.unavailable, before.generation) == (
        now.first,
        now.counts,
        now.unavailable,
        now.generation,
    )


def _runs_below(runs: Sequence[Run], marks: Mapping[int, int]) -> tuple[Run, ...]:
    """The numbers of runs that are below the mark of their partition."""
    found: list[Run] = []
    for first, count in runs:
        mark = marks.get(partition_of(first), first)
        if mark > first:
            found.append((first, min(count, mark - first)))
    return tuple(found)


def _equal_shares(unread: Sequence[Run], count_max: int | None) -> tuple[Run, ...]:
    """The lowest numbers of each partition, in equal shares; what a partition does not use goes to the next ones."""
    of_partition = [[*runs] for _, runs in groupby(unread, lambda run: partition_of(run[0]))]
    left, runs_left = count_max, RUNS_MAX
    found: list[Run] = []
    for index, runs in enumerate(sorted(of_partition, key=size_of)):
        share = len(of_partition) - index
        taken = first_of(runs, None if left is None else -(-left // share), -(-runs_left // share))
        left = None if left is None else left - size_of(taken)
        runs_left -= len(taken)
        found += taken
    return tuple(sorted(found))


def _latest_enqueued_at(listing: Listing, seen: Sequence[Run]) -> dict[int, int]:
    """When the latest of these messages was enqueued (Unix ms), by partition; empty where there are generations."""
    found: dict[int, int] = {}
    ends = iter(seen)
    run = next(ends, None)
    for number in sorted(listing.at_ms):
        while run is not None and sum(run) <= number:
            run = next(ends, None)
        if run is None:
            break
        if number >= run[0]:
            partition = partition_of(number)
            found[partition] = max(listing.at_ms[number], found.get(partition, 0))
    return found


def _number_enqueued_later(times: Mapping[int, int], at_ms: Mapping[int, int], seen: Sequence[Run]) -> int | None:
    """A number that was read, whose message was enqueued after all that were read; None if there is none."""
    for first, count in seen:
        for number in range(first, first + count):
            read_ms = times.get(partition_of(number))
            if read_ms is not None and at_ms[number] > read_ms:
                return number
    return None
