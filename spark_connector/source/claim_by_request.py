"""Claiming by requests that only emubus knows: one defers many messages of a partition, and deletes finished ones.

A message claimed by a link travels twice and is settled by its lock; here only its number travels, and runs of them as
two numbers. Knows how the limit of a batch is shared by the partitions. Does not know when to claim.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from ..errors import ConnectorError
from ..position import SEQUENCE_NUMBER_MAX
from .claim_round import Round
from .offsets import Run, base_of, first_of, partition_of, without
from .rows import CLAIM_PROPERTY

log = logging.getLogger("emubus.spark")
CLAIM_COUNT: Final = 1_000
"""Messages of one request: the broker defers them in one step, in which it does nothing else."""


def claim_by_request(
    management: Any,
    round_: Round,
    claim_id: str,
    filled: Sequence[int],
    reachable: Sequence[int],
    frozen: Mapping[int, int] | None,
) -> bool:
    """Do a round with `filled` partitions to claim of and `reachable` ones to delete in; False if it is not offered.

    With `frozen`, only messages below these numbers are claimed. ConnectorError if a partition refuses, after the
    answers of the others, which the round has.
    """
    rest = {each: tuple(runs) for each, runs in groupby(round_.finished, _partition) if each in reachable}
    asked = list(filled)
    while rest or (asked and not round_.is_full):
        counts = dict(zip(asked, _shares(len(asked), round_.missing), strict=True))
        pending: list[tuple[int, tuple[Run, ...], Any]] = []
        for partition in sorted({*rest, *(each for each, count in counts.items() if count)}):
            finished = first_of(rest.get(partition, ()), CLAIM_COUNT, CLAIM_COUNT)
            count, end = counts.get(partition, 0), _end_of_partition(partition, frozen)
            request = management.begin_claim(partition, end, count, {CLAIM_PROPERTY: claim_id}, finished)
            pending.append((partition, finished, request))
        asked, failure = [each for each, count in counts.items() if not count], None
        for partition, finished, request in pending:
            try:
                answer = management.end_claim(request)
            except ConnectorError as error:
                rest.pop(partition, None)
                failure = error
                continue
            if answer is None:
                return False
            round_.claim(answer.claimed)
            round_.delete(without(finished, answer.locked))
            if left := without(rest.pop(partition, ()), finished):
                rest[partition] = left
            if answer.has_more and counts.get(partition):
                asked.append(partition)
        if failure is not None:
            raise failure
    return True


def _partition(run: Run) -> int:
    return partition_of(run[0])


def _shares(partition_count: int, count_max: int | None) -> list[int]:
    """How many to claim of each partition now: equal shares, as far as one request goes."""
    if count_max is None or not partition_count:
        return [CLAIM_COUNT] * partition_count
    share, rest = divmod(count_max, partition_count)
    return [min(CLAIM_COUNT, share + (index < rest)) for index in range(partition_count)]


def _end_of_partition(partition: int, frozen: Mapping[int, int] | None) -> int:
    return SEQUENCE_NUMBER_MAX if frozen is None else frozen.get(partition, base_of(partition))
