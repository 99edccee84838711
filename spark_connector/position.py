"""Where reading starts or ends, as the options `startingPosition` and `endingPosition` give it.

Knows the spellings. Does not know how a position becomes sequence numbers of an entity (`source.positions`). The
objects are values: compared, pickled and shared freely.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime

# A sequence number's topmost 16 bits are its partition, the others count within it.
# https://learn.microsoft.com/azure/service-bus-messaging/message-sequencing
PARTITION_SHIFT = 48
SEQUENCE_NUMBER_MAX = (1 << 63) - 1
PARTITION_ID_MAX = (1 << 16) - 1
SEQUENCE_NUMBER_MIN = -(1 << 63)  # sequence numbers are signed: from partition 32768 on they are negative


@dataclass(frozen=True)
class Earliest:
    """The first message."""


@dataclass(frozen=True)
class Latest:
    """After the last message of now."""


@dataclass(frozen=True)
class AtNumber:
    """At a sequence number: inclusive as a start, exclusive as an end."""

    sequence_number: int


@dataclass(frozen=True)
class AtNumbers:
    """At a sequence number of each partition, whole (as the column `sequenceNumber` shows it), sorted by partition."""

    sequence_numbers: tuple[tuple[int, int], ...]

    def by_partition(self) -> dict[int, int]:
        """Partition id to sequence number."""
        return dict(self.sequence_numbers)


@dataclass(frozen=True)
class AtTime:
    """At the first message enqueued at this time or later; milliseconds since 1970 in UTC."""

    at_ms: int


Position = Earliest | Latest | AtNumber | AtNumbers | AtTime
_NAMED: dict[str, Position] = {"earliest": Earliest(), "latest": Latest()}


def first_number(partition: int) -> int:
    """The lowest sequence number that a partition could have."""
    return ((partition << PARTITION_SHIFT) + SEQUENCE_NUMBER_MIN) % (1 << 64) + SEQUENCE_NUMBER_MIN


def parse_position(text: str) -> Position:
    """A position from the text of an option; ValueError with the problem, without the text."""
    stripped = text.strip()
    if stripped.lower() in _NAMED:
        return _NAMED[stripped.lower()]
    if re.fullmatch(r"-?[0-9]+", stripped):
        return AtNumber(_sequence_number(int(stripped)))
    if stripped.startswith("{"):
        return _numbers(stripped)
    return _time(stripped)


def _numbers(text: str) -> AtNumbers:
    try:
        # As pairs, so that a partition named twice is seen.
        pairs = json.loads(text, object_pairs_hook=tuple)
    except json.JSONDecodeError as error:
        raise ValueError(f"the JSON is broken at character {error.pos}") from None
    numbers: dict[int, int] = {}
    for key, value in pairs:
        if not (key.isascii() and key.isdigit()) or int(key) > PARTITION_ID_MAX:
            raise ValueError(f"{key!r} is no partition id: 0 to {PARTITION_ID_MAX}")
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError(f"the value of partition {key} is no whole number")
        if int(key) in numbers:
            raise ValueError(f"partition {int(key)} is named twice")
        numbers[int(key)] = _number_in(int(key), _sequence_number(value))
    if not numbers:
        raise ValueError("it names no partition")
    return AtNumbers(tuple(sorted(numbers.items())))


def _number_in(partition: int, number: int) -> int:
    """A sequence number of the partition; one without its partition's bits (as offsets show it) gets them."""
    of = number >> PARTITION_SHIFT & PARTITION_ID_MAX
    if of not in (0, partition):
        raise ValueError(f"sequence number {number} is of partition {of}, not {partition}")
    return number | first_number(partition)


def _sequence_number(number: int) -> int:
    if not SEQUENCE_NUMBER_MIN <= number <= SEQUENCE_NUMBER_MAX:
        raise ValueError(f"a sequence number is from {SEQUENCE_NUMBER_MIN} to {SEQUENCE_NUMBER_MAX}")
    return number


def _time(text: str) -> AtTime:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            'it is neither "earliest" nor "latest", a sequence number, {"0": number, …} nor an ISO time'
        ) from None
    if at.tzinfo is None:  # a worker doesn't know Spark's time zone
        at = at.replace(tzinfo=UTC)
    return AtTime(int(at.timestamp() * 1000))
