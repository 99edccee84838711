"""First and last sequence numbers of partitions, and what "latest" or a time mean in sequence numbers.

Knows two ways: emubus's own operation, which returns all extents in one answer, and, for every other service, a search
with peeks of one message. Does not know what the numbers are used for. An `ExtentTracker` belongs to the driver's
reader; it remembers the ends, so the next search costs one peek per partition.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from ..codec import Head
from ..errors import Code, ConnectorError
from ..options import SourceOptions
from ..position import PARTITION_ID_MAX, AtNumber, AtNumbers, AtTime, Earliest, Latest, Position
from ..timing import monotonic_s
from .browse import discover_partitions, end_of, number_at
from .offsets import base_of, partition_of
from .outage import listed
from .peeks import PatientPeeks

IDS_ALWAYS: Final = 16
"""Partitions of an entity on the Standard tier; these ids are looked for at every discovery."""

IDS_AT_FIRST: Final = 256
IDS_LATER: Final = 64
"""Further ids that one discovery looks for; the next one goes on with the following ids, of all that could be."""

T = TypeVar("T")
log = logging.getLogger("emubus.spark")
_OUT: Final = "com.microsoft:server-busy"  # what the service answers for a partition whose store is out
_PERHAPS_UNKNOWN: Final = frozenset({Code.REFUSED, Code.UNAVAILABLE, Code.THROTTLED})


@dataclass(frozen=True)
class Extents:
    """The extent of each partition: whole sequence numbers by partition id.

    `following` is the number after the last message; if `exact`, the number that the next message gets. `first` is not
    above the first message. `unavailable` partitions have no reliable `following`. `generation` is another text once
    the numbers have begun again. Where the service doesn't say, it is None, and two are known of some partitions: when
    the last message was enqueued (Unix ms), and the first message at the last discovery. `whole` partitions have a
    message with each number from the first to the last. `counts` is how many messages there are, if `exact`.
    """

    first: Mapping[int, int]
    following: Mapping[int, int]
    unavailable: frozenset[int]
    exact: bool
    generation: str | None = None
    last_at_ms: Mapping[int, int] = field(default_factory=dict[int, int])
    found: Mapping[int, Head] = field(default_factory=dict[int, Head])
    whole: frozenset[int] = frozenset()
    counts: Mapping[int, int] = field(default_factory=dict[int, int])

    def demand_all(self, entity: str, what: str) -> None:
        """ConnectorError(UNAVAILABLE, retriable) if a partition can't be reached."""
        if self.unavailable:
            raise ConnectorError(
                Code.UNAVAILABLE,
                f"{entity}: {what} needs all partitions, and {listed(self.unavailable)} can't be reached now; try "
                "again",
                condition=_OUT,
                retriable=True,
            )


class ExtentTracker:
    """Finds the extents of an entity repeatedly. Used by one thread at a time."""

    def __init__(self, options: SourceOptions) -> None:
        self._entity = options.entity
        self._discovery_interval_s = options.partition_discovery_interval_s
        self._asked_for = frozenset(options.partition_ids)
        self._has_operation: bool | None = None  # whether the service reports extents; None: not known yet
        self._insists = False
        self._first: dict[int, int] = {}
        self._ends: dict[int, int] = {}
        self._found: dict[int, Head] = {}
        self._last_at_ms: dict[int, int] = {}
        self._discovered_at_s: float | None = None
        self._out: set[int] = set()  # ids that could not be looked for
        self._window = 0  # the first id of the next window to search
        self.request_count = 0
        """Requests of the last look."""

    def expect_reports(self) -> None:
        """The service has reported before (a checkpoint has a generation): a refusal is one, and not unknown to it,
        unless it says so outright."""
        if not self._insists:
            self._insists = self._has_operation = True

    def look(self, connection: Any, floors: Mapping[int, int]) -> Extents:
        """The extents now; no partition ends below its number in `floors`, up to which it was read before."""
        self.request_count = 1
        if self._has_operation is not False:
            management = connection.management(self._entity)
            reported = self._reported(connection, management)
            if reported is not None:
                return Extents(
                    {each.partition_id: each.first_sequence_number for each in reported},
                    {each.partition_id: each.next_sequence_number for each in reported},
                    frozenset(management.unavailable_partitions),
                    exact=True,
                    generation=management.generation,
                    whole=frozenset(each.partition_id for each in reported if each.is_whole),
                    counts={each.partition_id: each.message_count for each in reported},
                )
        return self._searched(connection, floors)

    def _reported(self, connection: Any, management: Any) -> Any:
        """The extents that the service reports, None if it has no such operation.

        It is not known how a service refuses an unknown operation. So until it has reported once, every refusal counts
        as "no such operation"; a retriable one only this time.
        """
        try:
            reported = management.partitions(is_known=True) if self._has_operation else management.partitions()
        except ConnectorError as error:
            if self._has_operation or not connection.usable or error.code not in _PERHAPS_UNKNOWN:
                raise
            log.info("%s: the service does not report its partitions now: %s", self._entity, error)
            if not error.retriable:
                self._has_operation = False
            return None
        if self._has_operation is None:
            way = "searched for" if reported is None else "reported by the service"
            log.info("%s: ends of partitions are %s", self._entity, way)
        self._has_operation = reported is not None
        return reported

    def _searched(self, connection: Any, floors: Mapping[int, int]) -> Extents:
        out = self._discover(connection, floors.keys())
        for partition in sorted((self._first.keys() | floors.keys()) - out.keys()):
            base = base_of(partition)
            known = max(self._ends.get(partition, base), floors.get(partition, base))

            def find(
                management: PatientPeeks, partition: int = partition, known: int = known
            ) -> tuple[int, int | None]:
                return end_of(management, partition, known)

            try:
                self._ends[partition], at_ms = self._patiently(connection, find)
                if at_ms is not None:
                    self._last_at_ms[partition] = max(at_ms, self._last_at_ms.get(partition, at_ms))
            except ConnectorError as error:
                if not error.retriable or not connection.usable:
                    raise
                out[partition] = error
        following = {each: end for each, end in self._ends.items() if each not in out}
        if out and not following:
            raise min(out.items())[1]
        first = {each: self._first.get(each, base_of(each)) for each in following}
        return Extents(
            first, following, frozenset(out), exact=False, last_at_ms=dict(self._last_at_ms), found=dict(self._found)
        )

    def forget(self) -> None:
        """The entity was replaced: search it from its start."""
        self._first.clear()
        self._ends.clear()
        self._last_at_ms.clear()
        self._found.clear()
        self._discovered_at_s, self._window = None, 0

    def _discover(self, connection: Any, known: Set[int]) -> dict[int, ConnectorError]:
        """Look for new partitions if the interval is over, and for those that were out; returns those that are out."""
        now_s = monotonic_s()
        is_due = self._discovered_at_s is None or now_s - self._discovered_at_s >= self._discovery_interval_s
        ids = sorted(self._out | self._next_ids(known) if is_due else self._out)
        if not ids:
            return {}
        found, out = self._patiently(connection, lambda management: discover_partitions(management, ids))
        if out and not connection.usable:
            raise min(out.items())[1]
        if is_due:
            self._discovered_at_s = now_s
        self._out = set(out)
        new = found.keys() - self._first.keys()
        if new:
            log.info("%s: partitions %s were found", self._entity, listed(new))
        self._first = {each: head.sequence_number for each, head in found.items()} | self._first
        self._first.setdefault(0, base_of(0))
        self._found |= found
        return out

    def _next_ids(self, known: Set[int]) -> set[int]:
        """The ids to look for now: those that are known or usual, and the next ones of all that could be."""
        width = IDS_AT_FIRST if self._discovered_at_s is None else IDS_LATER
        window = range(self._window, min(self._window + width, PARTITION_ID_MAX + 1))
        self._window = window.stop % (PARTITION_ID_MAX + 1)
        return {*range(IDS_ALWAYS), *window, *known, *self._first, *self._asked_for}

    def _patiently(self, connection: Any, work: Callable[[PatientPeeks], T]) -> T:
        """The result of `work` with the node of the entity; the requests are counted."""
        management = PatientPeeks(connection.management(self._entity))
        try:
            return work(management)
        finally:
            self.request_count += management.request_count


def starts_at(position: Position, extents: Extents, management: Any, entity: str) -> dict[int, int]:
    """The first number to read in each partition; a partition without a position is read from its base.

    ConnectorError: OPTION_INVALID for numbers that the entity can't have, UNAVAILABLE (retriable) while a partition
    whose end is needed can't be reached.
    """
    name = "startingPosition"
    if isinstance(position, Earliest):
        return {partition: base_of(partition) for partition in extents.following}
    found = _starts_at_position(position, extents, management, entity, name)
    for partition, number in found.items():
        following = extents.following.get(partition)
        if extents.exact and following is not None and number > following:
            raise ConnectorError(
                Code.OPTION_INVALID,
                f"{entity}: option {name} is {number} in partition {partition}, but the next message there gets "
                f"{following}: use a number up to that, or latest",
            )
    return {partition: base_of(partition) for partition in extents.following} | found


def ends_at(position: Position, extents: Extents, management: Any, entity: str) -> dict[int, int]:
    """The number after the last one to read in each partition, at most that after the last message.

    Errors as `starts_at`.
    """
    following = dict(extents.following)
    if isinstance(position, Latest):
        return following
    found = _starts_at_position(position, extents, management, entity, "endingPosition")
    return following | {each: min(number, following[each]) for each, number in found.items() if each in following}


def _starts_at_position(
    position: Position, extents: Extents, management: Any, entity: str, option: str
) -> dict[int, int]:
    match position:
        case Earliest():
            return {partition: base_of(partition) for partition in extents.following}
        case Latest():
            extents.demand_all(entity, f"{option}=latest")
            return dict(extents.following)
        case AtTime(at_ms):
            return _at_time(at_ms, extents, management, entity, option)
        case AtNumber(number):
            if len(extents.following.keys() | extents.unavailable) > 1:
                raise ConnectorError(
                    Code.OPTION_INVALID,
                    f"{entity}: option {option} is one sequence number, {number}, but the entity has partitions "
                    f'{listed(extents.following)}: give one for each, like {{"{partition_of(number)}": {number}}}',
                )
            numbers = {partition_of(number): number}
        case AtNumbers():
            numbers = position.by_partition()
    unknown = numbers.keys() - extents.following.keys() - extents.unavailable
    if extents.exact and unknown:
        raise ConnectorError(
            Code.OPTION_INVALID,
            f"{entity}: option {option} names partition {listed(unknown)}; there are {listed(extents.following)}",
        )
    return numbers


def _at_time(at_ms: int, extents: Extents, management: Any, entity: str, option: str) -> dict[int, int]:
    if is_sub_queue(entity):
        raise ConnectorError(
            Code.OPTION_INVALID,
            f"{entity}: option {option} can't be a time here, because dead letters are not ordered by their enqueued "
            "times: read from earliest and filter on enqueuedTime",
        )
    extents.demand_all(entity, f"{option} as a time")
    return {
        partition: number_at(management, partition, extents.first[partition], end, at_ms, alone=extents.exact)
        for partition, end in extents.following.items()
    }


def is_sub_queue(entity: str) -> bool:
    return "/$" in entity
