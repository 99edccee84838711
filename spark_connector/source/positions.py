"""Where the partitions of an entity begin and end, and what "latest" or a time of day mean in sequence numbers.

Knows two ways to find out: emubus's own operation that tells all extents in one answer, and, for every other service,
searching with peeks of one message. Does not know what is done with the numbers. A `Survey` belongs to the driver's
reader; it remembers where ends were, so that looking again costs one peek per partition.
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
    """What is known of each partition; whole sequence numbers by partition id.

    `following` is the number behind the last message; when `exact`, the one that the next message gets. `first` is not
    above the first message. `unavailable` ones have no `following` that could be trusted.
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


class Survey:
    """Extents, looked up again and again; one thread at a time."""

    def __init__(self, entity: str, discovery_interval_s: float) -> None:
        self._entity = entity
        self._discovery_interval_s = discovery_interval_s
        self._tells: bool | None = None  # whether the service has the operation; None: not asked yet
        self._first: dict[int, int] = {}
        self._ends: dict[int, int] = {}
        self._discovered_at_s: float | None = None

    def look(self, connection: Any, floors: Mapping[int, int]) -> Extents:
        """The extents now; `floors` are numbers below which no partition ends, for those that were read before."""
        if self._tells is not False:
            management = connection.management(self._entity)
            told = self._ask(connection, management)
            if told is not None:
                return Extents(
                    {each.partition_id: each.first_sequence_number for each in told},
                    {each.partition_id: each.next_sequence_number for each in told},
                    frozenset(management.unavailable_partitions),
                    exact=True,
                )
        return self._searched(connection, floors)

    def _ask(self, connection: Any, management: Any) -> Any:
        """What the service tells of its partitions, None if it doesn't.

        How a service refuses an operation that it doesn't know can't be foreseen, so until it has told once, any
        refusal is taken for that; one that may pass is not taken for good.
        """
        try:
            told = management.partitions()
        except ConnectorError as error:
            if self._tells or not connection.usable or error.code not in _PERHAPS_UNKNOWN:
                raise
            log.info("%s: the service doesn't tell its partitions now: %s", self._entity, error)
            if not error.retriable:
                self._tells = False
            return None
        if self._tells is None:
            log.info("%s: ends of partitions are %s", self._entity, "searched for" if told is None else "told")
        self._tells = told is not None
        return told

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
        """Look for new partitions if it is time to; those that can't be reached now."""
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
    """The first number to read in each partition; a partition that is not named is read from its base.

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
                f"{following}: take a number up to that, or latest",
            )
    return {partition: base_of(partition) for partition in extents.following} | found


def ends_at(position: Position, extents: Extents, management: Any, entity: str) -> dict[int, int]:
    """The number behind the last one to read in each partition; not behind the last message. Errors as `starts_at`."""
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
            f"{entity}: option {option} can't be a time here, for dead letters are not in the order of their enqueued "
            "times: read from earliest and filter on enqueuedTime",
        )
    extents.demand_all(entity, f"{option} as a time")
    return {
        partition: number_at(management, partition, extents.first[partition], end, at_ms, alone=extents.exact)
        for partition, end in extents.following.items()
    }


def is_sub_queue(entity: str) -> bool:
    """Whether the path is that of dead letters."""
    return "/$" in entity


def _listed(partitions: Any) -> str:
    return ", ".join(str(each) for each in sorted(partitions))
