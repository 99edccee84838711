"""Claiming by requests that only emubus knows: one defers many messages of a partition.

A message claimed by a link travels twice and is settled by its lock; here only its number travels. Knows how the limit
of a batch is shared by the partitions. Does not know when to claim.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..errors import ConnectorError
from ..position import SEQUENCE_NUMBER_MAX
from .offsets import base_of
from .rows import CLAIM_PROPERTY

log = logging.getLogger("emubus.spark")
CLAIM_COUNT: Final = 1_000
"""Messages of one request: the broker defers them in one step, in which it does nothing else."""


def claim_by_request(
    management: Any,
    partitions: Sequence[int],
    claim_id: str,
    claimed: list[int],
    count_max: int | None,
    frozen: Mapping[int, int] | None,
) -> bool:
    """Append the numbers of up to `count_max` messages in all to `claimed`; False if the service has no such request.

    With `frozen`, only messages below these numbers are claimed. ConnectorError if a partition refuses, after the
    answers of the others; what was claimed is in `claimed`.
    """
    asked = list(partitions)
    while asked and (count_max is None or len(claimed) < count_max):
        counts = _shares(len(asked), None if count_max is None else count_max - len(claimed))
        pairs = list(zip(asked, counts, strict=True))
        pending = [
            (partition, count, management.begin_claim(partition, _end(partition, frozen), count, _mark(claim_id)))
            for partition, count in pairs
            if count
        ]
        asked, failure = [partition for partition, count in pairs if not count], None
        for partition, count, each in pending:
            try:
                numbers = management.end_claim(each)
            except ConnectorError as error:
                failure = error
                continue
            if numbers is None:
                return False
            claimed += numbers
            if len(numbers) == count:
                asked.append(partition)
        if failure is not None:
            raise failure
    return True


def _shares(partition_count: int, count_max: int | None) -> list[int]:
    """How many to claim of each partition now: equal shares, as far as one request goes."""
    if count_max is None:
        return [CLAIM_COUNT] * partition_count
    share, rest = divmod(count_max, partition_count)
    return [min(CLAIM_COUNT, share + (index < rest)) for index in range(partition_count)]


def _end(partition: int, frozen: Mapping[int, int] | None) -> int:
    return SEQUENCE_NUMBER_MAX if frozen is None else frozen.get(partition, base_of(partition))


def _mark(claim_id: str) -> dict[str, str]:
    return {CLAIM_PROPERTY: claim_id}
