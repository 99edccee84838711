"""What Spark keeps of a stream's progress: offsets, as JSON that is the same text for the same progress.

Spark compares offsets as text, so nothing in them may change without progress: no times, no counts, keys in one order.
Knows the two kinds, numbers per partition (`browse`, `drain`) and sets of claimed messages (`claim`), and refuses a
checkpoint of another entity. Does not know where the numbers come from. Offsets are values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from ..errors import Code, ConnectorError
from ..position import PARTITION_ID_MAX, PARTITION_SHIFT, first_number

VERSION: Final = 1
_WITHIN: Final = (1 << PARTITION_SHIFT) - 1


def partition_of(number: int) -> int:
    """The partition of a whole sequence number."""
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
        found: dict[str, Any] = {"v": VERSION, "e": self.entity, "p": _within(self.following)}
        if self.start is not None:
            found["start"] = _within(self.start)
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
        """The JSON for Spark's checkpoint."""
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


def parse_offset(raw: Mapping[str, Any], entity: str) -> Offset:
    """An offset of `browse` or `drain` from a checkpoint; ConnectorError(CHECKPOINT_MISMATCH) if it is another's."""
    _check(raw, entity)
    if "claim" in raw:
        raise _mismatch(f"the checkpoint was written with mode=claim (claimId {raw['claim']!r})", entity)
    try:
        start = raw.get("start")
        return Offset(
            raw["e"],
            _whole(raw["p"]),
            None if start is None else _whole(start),
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


def _within(numbers: Mapping[int, int]) -> dict[str, int]:
    return {str(partition): numbers[partition] & _WITHIN for partition in sorted(numbers)}


def _whole(numbers: Mapping[str, int]) -> dict[int, int]:
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
