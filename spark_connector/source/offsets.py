"""What Spark keeps of a stream's progress: offsets, as JSON that is the same text for the same progress.

Spark compares offsets as text, so nothing in them may change without progress: no times, no counts, keys in one order.
Knows the three kinds, numbers per partition (`browse`, `drain`), what was read of a sub-queue (`source.sub_queue`) and
sets of claimed messages (`claim`), and refuses a checkpoint of another entity. Does not know where the numbers come
from. Offsets are values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from ..errors import Code, ConnectorError
from ..position import PARTITION_ID_MAX, PARTITION_SHIFT, first_number

VERSION: Final = 1
_COUNTER_MASK: Final = (1 << PARTITION_SHIFT) - 1


def partition_of(number: int) -> int:
    return number >> PARTITION_SHIFT & PARTITION_ID_MAX


def base_of(partition: int) -> int:
    """The lowest sequence number that a partition could have."""
    return first_number(partition)


def limit_of(partition: int) -> int:
    """The number after the highest one that a partition could have."""
    return base_of(partition) + (1 << PARTITION_SHIFT)


@dataclass(frozen=True)
class Offset:
    """The next whole sequence number to read in each partition; a partition that is not named begins at its base.

    `start` is where the query began if that was not the earliest message; `is_initial` marks the offset before the
    first batch. `lost` names the partitions that are read from their base again because the entity was replaced.
    `generation` tells which entity of that path the numbers belong to; None where the service doesn't say. `times` are
    known there instead, for some partitions: no message below `following` was enqueued later (Unix ms).
    """

    entity: str
    following: Mapping[int, int]
    start: Mapping[int, int] | None = None
    is_initial: bool = False
    lost: frozenset[int] = frozenset()
    generation: str | None = None
    times: Mapping[int, int] = field(default_factory=dict[int, int])

    def to_json(self) -> dict[str, Any]:
        """The JSON for Spark's checkpoint: numbers within their partitions, keys sorted."""
        found: dict[str, Any] = {"v": VERSION, "e": self.entity, "p": _counters_of(self.following)}
        if self.start is not None:
            found["start"] = _counters_of(self.start)
        if self.is_initial:
            found["initial"] = True
        if self.lost:
            found["lost"] = sorted(self.lost)
        if self.generation is not None:
            found["g"] = self.generation
        if self.times:
            found["t"] = {str(partition): self.times[partition] for partition in sorted(self.times)}
        return found


Run = tuple[int, int]
"""First whole sequence number, and how many consecutive numbers begin with it."""


@dataclass(frozen=True)
class ClaimOffset:
    """The messages that were claimed for this batch, and older ones that are not deleted yet.

    `generation` as in `Offset`.
    """

    entity: str
    claim_id: str
    claimed: tuple[Run, ...] = ()
    deletable: tuple[Run, ...] = field(default=())
    generation: str | None = None

    def to_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "v": VERSION,
            "e": self.entity,
            "claim": self.claim_id,
            "runs": [list(run) for run in self.claimed],
        }
        if self.deletable:
            found["delete"] = [list(run) for run in self.deletable]
        if self.generation is not None:
            found["g"] = self.generation
        return found


@dataclass(frozen=True)
class SeenOffset:
    """What was read of a sub-queue, where a message may come below others that were read.

    `seen` are those of the read messages that were there at the last look. Below its number in `floors`, everything
    counts as read. `batch` are the messages of the batch that ends here; None on a Spark without starts, where it is
    what the start has not seen. `left` were seen and are never deleted. `is_late`: the query did not begin with all
    messages. `lost` partitions are read again, because the entity was replaced. `generation` as in `Offset`; where it
    is None, `times` has when the latest of the seen messages was enqueued (Unix ms), by partition.
    """

    entity: str
    seen: tuple[Run, ...] = ()
    batch: tuple[Run, ...] | None = ()
    floors: Mapping[int, int] = field(default_factory=dict[int, int])
    left: tuple[Run, ...] = ()
    is_late: bool = False
    is_initial: bool = False
    generation: str | None = None
    times: Mapping[int, int] = field(default_factory=dict[int, int])

    def to_json(self) -> dict[str, Any]:
        """The JSON for Spark's checkpoint: runs as a flat list of gaps and counts, keys sorted."""
        found: dict[str, Any] = {"v": VERSION, "e": self.entity, "seen": _flat(self.seen)}
        if self.batch is not None:
            found["batch"] = _flat(self.batch)
        if self.floors:
            found["floors"] = _counters_of(self.floors)
        if self.left:
            found["left"] = _flat(self.left)
        if self.is_late:
            found["late"] = True
        if self.is_initial:
            found["initial"] = True
        if self.generation is not None:
            found["g"] = self.generation
        if self.times:
            found["t"] = {str(partition): self.times[partition] for partition in sorted(self.times)}
        return found


def parse_seen_offset(raw: Mapping[str, Any], entity: str) -> SeenOffset | Offset:
    """An offset of a sub-queue from a checkpoint, an `Offset` from one of an older connector.

    ConnectorError(CHECKPOINT_MISMATCH) if it is another's.
    """
    if "seen" not in raw:
        return parse_offset(raw, entity)
    _check(raw, entity)
    try:
        batch = raw.get("batch")
        return SeenOffset(
            raw["e"],
            _runs_in(raw["seen"]),
            None if batch is None else _runs_in(batch),
            _by_whole_partition(raw.get("floors", {})),
            _runs_in(raw.get("left", ())),
            raw.get("late") is True,
            raw.get("initial") is True,
            raw.get("g"),
            {int(partition): int(at_ms) for partition, at_ms in raw.get("t", {}).items()},
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        raise _mismatch("the checkpoint holds an offset that can't be read", entity) from None


def parse_offset(raw: Mapping[str, Any], entity: str) -> Offset:
    """An offset of `browse` or `drain` from a checkpoint; ConnectorError(CHECKPOINT_MISMATCH) if it is another's."""
    _check(raw, entity)
    if "claim" in raw:
        raise _mismatch(f"the checkpoint was written with mode=claim (claimId {raw['claim']!r})", entity)
    try:
        start = raw.get("start")
        return Offset(
            raw["e"],
            _by_whole_partition(raw["p"]),
            None if start is None else _by_whole_partition(start),
            raw.get("initial") is True,
            frozenset(int(each) for each in raw.get("lost", ())),
            raw.get("g"),
            {int(partition): int(at_ms) for partition, at_ms in raw.get("t", {}).items()},
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        raise _mismatch("the checkpoint holds an offset that can't be read", entity) from None


def parse_claim_offset(raw: Mapping[str, Any], entity: str, claim_id: str) -> ClaimOffset:
    """An offset of `claim` from a checkpoint; ConnectorError(CHECKPOINT_MISMATCH) if it is another's."""
    _check(raw, entity)
    if "claim" not in raw:
        raise _mismatch("the checkpoint was written with mode=browse or mode=drain", entity)
    if raw["claim"] != claim_id:
        raise _mismatch(f"the checkpoint's claimId is {raw['claim']!r}, the query's is {claim_id!r}", entity)
    try:
        return ClaimOffset(raw["e"], claim_id, _runs(raw["runs"]), _runs(raw.get("delete", ())), raw.get("g"))
    except (KeyError, TypeError, ValueError):
        raise _mismatch("the checkpoint holds an offset that can't be read", entity) from None


def runs_of(numbers: Iterable[int]) -> tuple[Run, ...]:
    """Whole sequence numbers as runs, in ascending order."""
    ordered = sorted(set(numbers))
    if not ordered:
        return ()
    starts = [ordered[0], *(right for left, right in pairwise(ordered) if right != left + 1)]
    ends = [*(left for left, right in pairwise(ordered) if right != left + 1), ordered[-1]]
    return tuple((start, end - start + 1) for start, end in zip(starts, ends, strict=True))


def numbers_in(runs: Iterable[Run]) -> Iterator[int]:
    """The sequence numbers of runs, in their order."""
    for first, count in runs:
        yield from range(first, first + count)


def without(runs: Sequence[Run], others: Sequence[Run]) -> tuple[Run, ...]:
    """The numbers of `runs` that are not in `others`; both are in ascending order."""
    found: list[Run] = []
    at = 0
    for first, count in runs:
        end = first + count
        while at < len(others) and sum(others[at]) <= first:
            at += 1
        each = at
        while each < len(others) and others[each][0] < end and first < end:
            low, high = others[each][0], sum(others[each])
            if low > first:
                found.append((first, low - first))
            first = max(first, high)
            each += 1
        if first < end:
            found.append((first, end - first))
    return tuple(found)


def within(runs: Sequence[Run], others: Sequence[Run]) -> tuple[Run, ...]:
    """The numbers of `runs` that are in `others`, too; both are in ascending order."""
    return without(runs, without(runs, others))


def together(*several: Iterable[Run]) -> tuple[Run, ...]:
    """The numbers of all of these runs, in ascending order."""
    found: list[Run] = []
    for first, count in sorted(run for runs in several for run in runs):
        if found and first <= sum(found[-1]):
            found[-1] = (found[-1][0], max(sum(found[-1]), first + count) - found[-1][0])
        else:
            found.append((first, count))
    return tuple(found)


def first_of(runs: Sequence[Run], count_max: int | None, runs_max: int) -> tuple[Run, ...]:
    """The lowest numbers of runs: at most `count_max` of them, in at most `runs_max` runs."""
    found: list[Run] = []
    left = count_max
    for first, count in runs[:runs_max]:
        taken = count if left is None else min(count, left)
        if not taken:
            break
        found.append((first, taken))
        left = None if left is None else left - taken
    return tuple(found)


def size_of(runs: Iterable[Run]) -> int:
    return sum(count for _, count in runs)


def _flat(runs: Iterable[Run]) -> list[int]:
    """Runs as gap, count, gap, count…; the first gap is the first number, so that most are short."""
    found: list[int] = []
    end = 0
    for first, count in runs:
        found += first - end, count
        end = first + count
    return found


def _runs_in(raw: Sequence[int]) -> tuple[Run, ...]:
    """The inverse of `_flat`."""
    found: list[Run] = []
    end = 0
    for gap, count in zip(raw[::2], raw[1::2], strict=True):
        first = end + int(gap)
        found.append((first, int(count)))
        end = first + int(count)
    return tuple(found)


def _counters_of(numbers: Mapping[int, int]) -> dict[str, int]:
    return {str(partition): numbers[partition] & _COUNTER_MASK for partition in sorted(numbers)}


def _by_whole_partition(numbers: Mapping[str, int]) -> dict[int, int]:
    return {int(partition): base_of(int(partition)) + int(number) for partition, number in numbers.items()}


def _runs(raw: Iterable[Iterable[int]]) -> tuple[Run, ...]:
    return tuple((int(first), int(count)) for first, count in raw)


def _check(raw: Mapping[str, Any], entity: str) -> None:
    if raw.get("v") != VERSION:
        raise _mismatch(f"the checkpoint's offsets have version {raw.get('v')!r}, this connector's {VERSION}", entity)
    if str(raw.get("e")).casefold() != entity.casefold():
        raise _mismatch(f"the checkpoint belongs to '{raw.get('e')}'", entity)


def _mismatch(what: str, entity: str) -> ConnectorError:
    return ConnectorError(
        Code.CHECKPOINT_MISMATCH,
        f"{entity}: {what}; continue with the entity and mode of the checkpoint, or start with a new "
        "checkpointLocation",
    )
