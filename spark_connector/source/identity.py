"""Whether the entity is still the one whose sequence numbers a checkpoint has.

Knows two signs: generations, as emubus reports them, and, for other services, times: a message whose number was read,
but which was enqueued after all that was read. Knows what to say when data is lost. Nothing here has an owner.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from ..codec import Head
from ..conditions import REMEDIES
from ..errors import Code, ConnectorError
from .offsets import Offset

TIMES_MARGIN_MS: Final = 5_000
"""How far enqueued times may be out of the order of the numbers."""

SCHEDULED: Final = 2
log = logging.getLogger("emubus.spark")


def is_other(known: str | None, found: str | None) -> bool:
    """Whether two generations differ; one that is not known (an older checkpoint, the service) differs from none."""
    return known is not None and found is not None and known != found


def other_generation(entity: str, known: str | None, found: str | None) -> str:
    """What to say of an entity that was replaced."""
    return (
        f"{entity}: the checkpoint is of generation {known} of the entity, which now has generation {found}: it was "
        "deleted and created again, or restored"
    )


def younger_than_read(offset: Offset, first: Mapping[int, Head]) -> str | None:
    """What to say if a first message of a partition has a number that was read, and a later time; None if none has.

    Scheduled messages have no time of their own.
    """
    for partition, each in sorted(first.items()):
        read_ms = offset.times.get(partition)
        if (
            read_ms is not None
            and each.state != SCHEDULED
            and each.sequence_number < offset.following.get(partition, each.sequence_number)
            and each.enqueued_at_ms > read_ms + TIMES_MARGIN_MS
        ):
            return (
                f"{offset.entity}: the checkpoint is at sequence number {offset.following[partition]} in partition "
                f"{partition}, read from messages enqueued up to {_iso(read_ms)}, but message {each.sequence_number} "
                f"was enqueued at {_iso(each.enqueued_at_ms)}: the entity was deleted and created again"
            )
    return None


def data_loss_text(offset: Offset, first: Mapping[int, int]) -> str | None:
    """What to say if messages from the offset on are gone before they were read; None if there are all.

    An exclusive reader (`drain`) leaves none of these gaps itself, unless a later checkpoint of it exists.
    """
    gaps = {
        partition: number - offset.following[partition]
        for partition, number in first.items()
        if number > offset.following.get(partition, number)
    }
    if not gaps:
        return None
    return (
        f"{offset.entity}: {sum(gaps.values())} sequence numbers after the checkpoint's position are gone (partitions "
        f"{', '.join(str(each) for each in sorted(gaps))}): they expired, others took them, or a run with a later "
        "checkpoint has read and deleted them; if this is an older copy of a checkpoint, its output lacks them"
    )


def _iso(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")


def tell_loss(text: str, *, fails: bool) -> None:
    """Say that data is lost: ConnectorError(DATA_LOSS) if the query fails then, else a warning in the log."""
    if fails:
        raise ConnectorError(Code.DATA_LOSS, f"{text}; {REMEDIES[Code.DATA_LOSS]}")
    log.warning("%s; it is read from its first message because of failOnDataLoss=false", text)
