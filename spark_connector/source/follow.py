"""Planning the batches of a query in the modes `browse` and `drain`, but for sub-queues (`sub_queue`).

An offset is the next sequence number of each partition: a start is inclusive, an end exclusive. What Spark's calls
promise [spark 1]:

| call | may block | must give the same again | what is durable when it returns |
|---|---|---|---|
| `initial` | one look, with retries | yes, until Spark has stored it with the first batch | nothing |
| `stop_at_present_ends` (Trigger.AvailableNow) | one look | no; comes before all other calls of a run | nothing |
| `latest` | `pollInterval` (1) | no: Spark logs the answer before it uses it | the outputs of all below its start |
| `plan` | until the batch can be read (2) | yes, also in a later run (3) | the batch's start and end |
| `committed` | one look, before Spark 4.2 only | no | the outputs of all below its end |
| `report` | no | no | nothing |
| `stop` | some seconds | no | nothing |

(1) A query that is to end waits for partitions that are out, as long as `onOutage` and `outageTimeout` say. (2) As long
as `outageTimeout` says. (3) Sinks make message ids of the tasks' numbers. What is durable may be deleted.

Spark 4.2 and later passes `latest` the start; before, it is the last answer, or, in a new process, the query's first
offset. Spark compares offsets as text, and asks a hundred times a second unless the call waits. With several entities
(`several.joint`), `look` and `take` stand for `latest`.

A run of a query is in one of three states:

    New ── first look from a start ──> Running
     └──── stop_at_present_ends ─────> Ending     which reads no further than the ends at that call

`begun` and `reached` are the transitions that looks make. A look ends in one row of `reach_of` (how far the next batch
may go) and one of `batch_of` (whether there is one); what comes after a look without a batch is a row of
`polling.pause_of`. The rows have labels, which lines of the log at level DEBUG name; tests/spark/source/test_steps.py
has met each of them. All functions outside of the class are pure: a look goes in, numbers come out.

For the next editor: a partition that is out has no end, so it is in no dict of ends; a new rule has to leave it
as it is in the start, or its messages count as read. A partition in `lost` is read from its base again, so it has no
begin. Deletion follows the start of `latest` and nothing else: an end that is not committed must never reach `_settle`.

Does not know Spark's classes (`stream`) and how messages are deleted (`drain`). A `Follower` lives in the driver
process of a query, on one thread.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import Any

from pyspark.sql.datasource import InputPartition

from ..codec import Head
from ..errors import Code, ConnectorError
from ..options import SourceOptions
from ..position import Earliest
from ..timing import monotonic_s
from .admission import admitted, backlogs
from .browse import firsts_from
from .drain import Settler
from .identity import data_loss_text, is_other, other_generation, tell_loss, younger_than_read
from .offsets import Offset, base_of, parse_offset, partition_of
from .plan import Span, grouped, range_tasks
from .polling import Json, Polling
from .positions import Extents, starts_at
from .retries import with_retries

log = logging.getLogger("emubus.spark")


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


# ---- states


@dataclass(frozen=True)
class New:
    """There was no look from a start yet."""


@dataclass(frozen=True)
class Running:
    """Reads what comes."""


@dataclass(frozen=True)
class Ending:
    """Reads to `ends`, those of the partitions at `stop_at_present_ends`; those in `out` could not be reached then.

    `is_new`: there was no look from a start yet, which may name partitions that `stop_at_present_ends` did not find.
    """

    ends: Mapping[int, int]
    out: frozenset[int]
    is_new: bool = True


State = New | Running | Ending


def reached(state: State, extents: Extents) -> State:
    """The state after a look: a partition that was out when the ends were taken ends where it is when it comes back."""
    if not isinstance(state, Ending) or not (back := state.out & extents.following.keys()):
        return state
    ends = {**state.ends, **{each: extents.following[each] for each in back}}
    return replace(state, ends=ends, out=state.out - back)


def begun(state: State, start: Offset, extents: Extents) -> State:
    """The state after a look from a start: partitions that only the checkpoint knows end where they are now."""
    match state:
        case New():
            return Running()
        case Ending(is_new=True):
            known = {each: extents.following[each] for each in start.following.keys() & extents.following.keys()}
            out = state.out | (start.following.keys() & extents.unavailable)
            return Ending({**known, **state.ends}, out, is_new=False)
        case _:
            return state


# ---- what a look has found


@dataclass(frozen=True)
class Look:
    """The extents at a look, and the numbers up to which partitions were read before it."""

    extents: Extents
    floors: Mapping[int, int]


@dataclass(frozen=True)
class Backlog:
    """What a look from a start has found, by partition.

    Reading goes on at `begin`, which `lost` partitions do not have, and may go to `ends`. `effective` is where it goes
    on in effect: not below the first message.
    """

    start: Offset
    extents: Extents
    lost: frozenset[int]
    begin: Mapping[int, int]
    ends: Mapping[int, int]

    @property
    def effective(self) -> dict[int, int]:
        extents = self.extents
        return {
            each: max(self.begin.get(each, base_of(each)), extents.first.get(each, base_of(each)))
            for each in extents.following
        }

    @property
    def waiting(self) -> int:
        """Sequence numbers to read, which some messages no longer have."""
        return sum(backlogs(self.effective, self.ends).values())


def ends_of(state: State, begin: Mapping[int, int], extents: Extents) -> dict[int, int]:
    """How far reading may go in each partition: to its end, or to its end at the time of `stop_at_present_ends`."""
    ends = {each: max(end, begin.get(each, end)) for each, end in extents.following.items()}
    if not isinstance(state, Ending):
        return ends
    return {
        each: min(end, max(state.ends.get(each, base_of(each)), begin.get(each, base_of(each))))
        for each, end in ends.items()
    }


# ---- the next step


class Reach(StrEnum):
    """How far the next batch may go."""

    HELD = "@held"  # nowhere
    ALL = "@all"  # to the ends
    SHARE = "@share"  # to the limit, which the partitions share


def reach_of(*, is_held: bool, waiting: int, count_max: int | None) -> Reach:
    """`is_held`: `minMessagesPerTrigger` holds the batch back. `waiting` numbers, `count_max` of them in a batch."""
    match is_held, count_max is None or waiting <= count_max:
        case True, _:
            return Reach.HELD
        case False, True:
            return Reach.ALL
        case _:
            return Reach.SHARE


class Batch(StrEnum):
    """Whether there is a batch, and why."""

    LOST = "@lost"  # the offset has to say which partitions are read from their base again
    START = "@start"  # "latest" and times can't be found again, so they are stored, possibly without a row
    MOVED = "@moved"  # there is something to read
    NONE = "@none"


def batch_of(*, is_lost: bool, stores_start: bool, has_moved: bool) -> Batch:
    """The first of them that is true decides."""
    match is_lost, stores_start, has_moved:
        case True, _, _:
            return Batch.LOST
        case _, True, _:
            return Batch.START
        case _, _, True:
            return Batch.MOVED
        case _:
            return Batch.NONE


def next_ends(backlog: Backlog, reach: Reach, count_max: int | None, present: Mapping[int, int]) -> dict[int, int]:
    """Where the next batch ends in each partition.

    `present` is the first number in each partition that a message has, so that gaps use up no share of the limit.
    """
    match reach:
        case Reach.HELD:
            return {each: backlog.begin.get(each, base_of(each)) for each in backlog.ends}
        case Reach.ALL:
            return dict(backlog.ends)
        case Reach.SHARE:
            return admitted(present, backlog.ends, count_max)


def has_moved(backlog: Backlog, following: Mapping[int, int], *, from_first: bool) -> bool:
    """Whether a batch to `following` would read anything; gaps before the first message do not count `from_first`."""
    begin = backlog.begin
    known = backlog.effective if from_first else begin
    return any(
        number > max(known.get(each, base_of(each)), begin.get(each, base_of(each)))
        for each, number in following.items()
    )


def replaced_partitions(offset: Offset, extents: Extents) -> tuple[frozenset[int], str]:
    """The partitions to read from their base, and what to say of it; none, and nothing, if all go on.

    All of them if the entity has another generation, or its messages show that it is another one; else those that end
    below the offset. Without exact ends, the end of an empty partition is not known, so only messages tell.
    """
    everything = frozenset({*offset.following, *extents.following})
    if is_other(offset.generation, extents.generation):
        return everything, other_generation(offset.entity, offset.generation, extents.generation)
    if not extents.exact:
        younger = younger_than_read(offset, extents.found)
        return (frozenset(), "") if younger is None else (everything, younger)
    lost = frozenset(
        each
        for each, number in offset.following.items()
        if each not in extents.unavailable and number > extents.following.get(each, base_of(each))
    )
    return lost, _beyond_end_text(offset, extents, lost) if lost else ""


def _beyond_end_text(offset: Offset, extents: Extents, lost: Set[int]) -> str:
    partition = min(lost)
    ends_at = extents.following.get(partition)
    return (
        f"{offset.entity}: the checkpoint is at sequence number {offset.following[partition]} in partition "
        f"{partition}, "
        + ("which no longer exists" if ends_at is None else f"where the next message gets {ends_at}")
        + ": the entity was deleted and created again"
    )


class Follower(Polling[Settler]):
    """Answers Spark's questions about one entity. Errors are ConnectorError."""

    def __init__(self, options: SourceOptions) -> None:
        super().__init__(options, Settler(options) if options.mode == "drain" else None)
        self._state: State = New()
        self._last: Look | None = None  # of any kind: from a start, at `stop_at_present_ends`, for a plan
        self._backlog: Backlog | None = None  # of the last look from a start
        self._given: Offset | None = None  # the last answer, which is the next start on a Spark without starts
        self._has_starts = False  # Spark 4.2 and later passes the start

    # ---- Spark's calls, in their order

    def stop_at_present_ends(self) -> None:
        """Read no further than the present ends: the query will end there."""
        extents = self._look(None)
        self._state = Ending(dict(extents.following), extents.unavailable)

    def initial(self) -> Json:
        """Where the query begins; the same answer at every call."""
        return self._initial.to_json()

    def latest(self, start_json: Json | None, count_max: int | None, *, all_available: bool) -> Json:
        """The end of the next batch; the start itself if there are no messages within `pollInterval`."""
        self._has_starts = start_json is not None
        start = self._parsed(start_json) if start_json is not None else self._given or self._without_start()
        end_json = self._poll(lambda: self._look_from(start), count_max, all_available=all_available)
        if end_json is None:
            self._given = start
            return start.to_json() if start_json is None else start_json
        return end_json

    # ---- calls of a planner of several entities, in the place of `latest`

    def look(self, start_json: Json) -> int:
        """Look at the entity from this offset on; how many sequence numbers wait."""
        self._has_starts = True
        self._look_from(self._parsed(start_json))
        assert self._backlog is not None
        return self._backlog.waiting

    def unmoved(self) -> Json:
        assert self._backlog is not None
        return self._backlog.start.to_json()

    @property
    def request_count(self) -> int:
        return self._extents.request_count

    # ---- the rest of Spark's calls

    def report(self) -> Json | None:
        """The ends at the last look; `out` names partitions whose ends are not known now."""
        if self._last is None:
            return None
        extents = self._last.extents
        out = {"out": sorted(self._outage.out)} if self._outage.out else {}
        ends = {**self._last.floors, **extents.following}
        return Offset(self._options.entity, ends, generation=extents.generation).to_json() | out

    def plan(self, start_json: Json, end_json: Json) -> list[InputPartition]:
        """The tasks of a batch, possibly one that an earlier run of the query has begun."""
        start, end = self._parsed(start_json), self._parsed(end_json)
        if self._last is None:  # of an earlier run: it may no longer be there
            self._lost(end, self._look(end))
        assert self._last is not None
        begin: Mapping[int, int] = start.following
        if start.is_initial and end.start is not None:
            begin = end.start  # what "latest" meant when this batch was begun, possibly before a restart
        spans = []
        for partition, high in sorted(end.following.items()):
            low = base_of(partition) if partition in end.lost else begin.get(partition, base_of(partition))
            spans.append(Span(low, max(low, high)))
        tasks = range_tasks(spans, self._options, exact=self._last.extents.exact, generation=end.generation)
        self._outage.wait_for({partition_of(task.low) for task in tasks}, lambda: self._look(None))
        if self._options.min_partitions is not None:
            return [*tasks]
        return [*grouped(tasks, self._options.max_messages_per_task)]

    def committed(self, end_json: Json) -> None:
        """Spark has committed everything below this offset; from 4.2 on `latest` has got it as its start before."""
        if self._settler is not None and not self._has_starts:
            end = self._parsed(end_json)
            extents = self._look(end)
            self._settle(end, extents, self._lost(end, extents))

    # ---- looks

    @property
    def _is_ending(self) -> bool:
        return isinstance(self._state, Ending)

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
            self._extents.expect_reports()
        extents = with_retries(
            self._options.connection,
            f"looking for the ends of {entity}",
            lambda connection: self._extents.look(connection, floors),
        )
        self._outage.note(extents.unavailable)
        self._state = reached(self._state, extents)
        if known is not None and is_other(known.generation, extents.generation):
            floors = {}
        self._last = Look(extents, floors)
        return extents

    def _look_from(self, start: Offset) -> None:
        """Look at the entity; what is below `start` is committed, so its deletion begins."""
        extents = self._look(start)
        lost = self._lost(start, extents)
        if lost and not extents.exact:  # the search began at the ends of the old entity
            self._extents.forget()
            extents = self._look(None)
            if self._settler is not None:
                self._settler.forget()
        begin = {each: number for each, number in start.following.items() if each not in lost}
        if self._settler is not None and _is_first(self._state) and extents.exact and not start.is_initial:
            gone = data_loss_text(replace(start, following=begin), extents.first)
            if gone is not None:
                log.warning("%s", gone)
        self._state = begun(self._state, start, extents)
        if self._has_starts:
            self._settle(start, extents, lost)
        self._backlog = Backlog(start, extents, lost, begin, ends_of(self._state, begin, extents))
        assert not lost & begin.keys()

    @cached_property
    def _initial(self) -> Offset:
        options = self._options

        def find(connection: Any) -> Offset:
            extents = self._extents.look(connection, {})
            management = connection.management(options.entity)
            numbers = starts_at(options.starting, extents, management, options.entity)
            return Offset(options.entity, numbers, is_initial=True, generation=extents.generation)

        return with_retries(options.connection, f"finding where to begin in {options.entity}", find)

    def _without_start(self) -> Offset:
        """The start for Spark 4.0 in a process that has returned no offset yet.

        It is not known how far the query has read, so no partition may be missing.
        """
        if not isinstance(self._options.starting, Earliest):
            return self._initial

        def look(connection: Any) -> None:
            self._extents.look(connection, {}).demand_all(
                self._options.entity, "the first look of a query on Spark 4.0"
            )

        with_retries(self._options.connection, f"looking for the ends of {self._options.entity}", look)
        return self._initial

    # ---- the end of the next batch

    def _next_batch(self, count_max: int | None, *, all_available: bool) -> tuple[Json, int] | None:
        backlog = self._backlog
        assert backlog is not None
        start, extents, lost = backlog.start, backlog.extents, backlog.lost
        waiting = backlog.waiting
        is_held = not (all_available or self._is_ending or self._polls.gate.may_go(waiting, monotonic_s()))
        limit = None if all_available else count_max
        reach = reach_of(is_held=is_held, waiting=waiting, count_max=limit)
        present = self._first_present(backlog) if reach is Reach.SHARE else {}
        following = {**backlog.begin, **next_ends(backlog, reach, limit, present)}
        query_start = self._query_start(start)
        batch = batch_of(
            is_lost=bool(lost),
            stores_start=start.is_initial and query_start is not None,
            # On a Spark without starts every number counts: the checkpoint may hold any.
            has_moved=has_moved(backlog, following, from_first=self._has_starts),
        )
        log.debug("%s: %s %s", start.entity, reach, batch)
        if batch is Batch.NONE:
            return None
        assert all(number >= backlog.begin.get(each, number) for each, number in following.items())
        end = Offset(
            self._options.entity,
            following,
            query_start,
            lost=lost & following.keys(),
            generation=extents.generation or start.generation,
            times={**({} if lost else start.times), **extents.last_at_ms},
        )
        self._given = end
        return end.to_json(), sum(backlogs(backlog.effective, following).values())

    def _query_start(self, start: Offset) -> Mapping[int, int] | None:
        """Where the query began, None if that was the earliest message."""
        is_chosen = start.is_initial and not isinstance(self._options.starting, Earliest)
        return start.following if is_chosen else start.start

    def _first_present(self, backlog: Backlog) -> dict[int, int]:
        """The first existing number in each partition with a backlog."""
        found, ends, extents = backlog.effective, backlog.ends, backlog.extents
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

    # ---- what is lost, and what is finished

    def _lost(self, offset: Offset, extents: Extents) -> frozenset[int]:
        """As `replaced_partitions`; ConnectorError(DATA_LOSS) with `failOnDataLoss`."""
        lost, text = replaced_partitions(offset, extents)
        if text:
            tell_loss(text, fails=self._options.fail_on_data_loss)
        return lost

    def _settle(self, offset: Offset, extents: Extents, lost: Set[int]) -> None:
        """Delete the messages below the offset, except in partitions that were replaced: those hold unread messages."""
        if self._settler is not None:
            finished = {each: number for each, number in offset.following.items() if each not in lost}
            generation = offset.generation or extents.generation
            self._settler.settle(finished, by_range=extents.exact, generation=generation, times=offset.times)


def _is_first(state: State) -> bool:
    """Whether there was no look from a start yet."""
    return isinstance(state, New) or (isinstance(state, Ending) and state.is_new)
