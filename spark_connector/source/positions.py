"""First and last sequence numbers of partitions, and what "latest" or a time mean in sequence numbers.

Knows two ways: emubus's own operation, which returns all extents in one answer, and, for every other service, a search
with peeks of one message. Does not know what the numbers are used for. An `ExtentTracker` belongs to the driver's
reader; it remembers the ends, so the next search costs one peek per partition.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ..errors import Code, ConnectorError
from ..position import AtNumber, AtNumbers, AtTime, Earliest, Latest, Position
from ..timing import monotonic_s
from .browse import discover, end_of, number_at
from .offsets import base_of, partition_of

log = logging.getLogger("emubus.spark")
_PERHAPS_UNKNOWN: Final = frozenset({Code.REFUSED, Code.UNAVAILABLE, Code.THROTTLED})


@dataclass(frozen=True)
class Extents:
    """The extent of each partition: whole sequence numbers by partition id.

    `following` is the number after the last message; if `exact`, the number that the next message gets. `first` is not
    above the first message. `unavailable` partitions have no reliable `following`.
    """

    first: Mapping[int, int]
    following: Mapping[int, int]
    unavailable: frozenset[int]
    exact: bool

    def demand_all(self, entity: str, what: str) -> None:
        """ConnectorError(UNAVAILABLE, retriable) if a partition can't be reached."""
        if self.unavailable:
            raise ConnectorError(
                Code.UNAVAILABLE,
                f"{entity}: {what} needs all partitions, and {_listed(self.unavailable)} can't be reached now; try "
                "again",
                retriable=True,
            )


class ExtentTracker:
    """Finds the extents of an entity repeatedly. Used by one thread at a time."""

    def __init__(self, entity: str, discovery_interval_s: float) -> None:
        self._entity = entity
        self._discovery_interval_s = discovery_interval_s
        self._has_operation: bool | None = None  # whether the service reports extents; None: not known yet
        self._first: dict[int, int] = {}
        self._ends: dict[int, int] = {}
        self._discovered_at_s: float | None = None

    def look(self, connection: Any, floors: Mapping[int, int]) -> Extents:
        """The extents now; no partition ends below its number in `floors`, up to which it was read before."""
        if self._has_operation is not False:
            management = connection.management(self._entity)
            reported = self._reported(connection, management)
            if reported is not None:
                return Extents(
                    {each.partition_id: each.first_sequence_number for each in reported},
                    {each.partition_id: each.next_sequence_number for each in reported},
                    frozenset(management.unavailable_partitions),
                    exact=True,
                )
        return self._searched(connection, floors)

    def _reported(self, connection: Any, management: Any) -> Any:
        """The extents that the service reports, None if it has no such operation.

        It is not known how a service refuses an unknown operation. So until it has reported once, every refusal counts
        as "no such operation"; a retriable one only this time.
        """
        try:
            reported = management.partitions()
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
        out = self._discover(connection)
        for partition in sorted((self._first.keys() | floors.keys()) - out.keys()):
            known = max(self._ends.get(partition, base_of(partition)), floors.get(partition, 0))
            try:
                self._ends[partition] = end_of(connection.management(self._entity), partition, known)
            except ConnectorError as error:
                if not error.retriable or not connection.usable:
                    raise
                out[partition] = error
        following = {each: end for each, end in self._ends.items() if each not in out}
        if out:
            log.warning("%s: partitions %s can't be reached: %s", self._entity, _listed(out), min(out.items())[1])
            if not following:
                raise min(out.items())[1]
        first = {each: max(self._first.get(each, 0), base_of(each)) for each in following}
        return Extents(first, following, frozenset(out), exact=False)

    def _discover(self, connection: Any) -> dict[int, ConnectorError]:
        """Look for new partitions if the interval is over; returns those that can't be reached."""
        now_s = monotonic_s()
        if self._discovered_at_s is not None and now_s - self._discovered_at_s < self._discovery_interval_s:
            return {}
        found, out = discover(connection.management(self._entity))
        if out and not connection.usable:
            raise min(out.items())[1]
        self._first = found | self._first
        if not out:
            self._discovered_at_s = now_s
        return out


def starts_at(position: Position, extents: Extents, management: Any, entity: str) -> dict[int, int]:
    """The first number to read in each partition; a partition without a position is read from its base.

    ConnectorError: OPTION_INVALID for numbers that the entity can't have, UNAVAILABLE (retriable) while a partition
    whose end is needed can't be reached.
    """
    name = "startingPosition"
    if isinstance(position, Earliest):
        return {partition: base_of(partition) for partition in extents.following}
    found = _resolved(position, extents, management, entity, name)
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
    found = _resolved(position, extents, management, entity, "endingPosition")
    return following | {each: min(number, following[each]) for each, number in found.items() if each in following}


def _resolved(position: Position, extents: Extents, management: Any, entity: str, option: str) -> dict[int, int]:
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
                    f'{_listed(extents.following)}: give one for each, like {{"{partition_of(number)}": {number}}}',
                )
            numbers = {partition_of(number): number}
        case AtNumbers():
            numbers = position.by_partition()
    unknown = numbers.keys() - extents.following.keys() - extents.unavailable
    if extents.exact and unknown:
        raise ConnectorError(
            Code.OPTION_INVALID,
            f"{entity}: option {option} names partition {_listed(unknown)}; there are {_listed(extents.following)}",
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
    """Whether the path is a dead-letter queue."""
    return "/$" in entity


def _listed(partitions: Any) -> str:
    return ", ".join(str(each) for each in sorted(partitions))
