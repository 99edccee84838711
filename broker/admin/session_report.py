"""Reports on the message sessions of an entity: their messages, states and locks.

Reads committed rows and the locks in memory. Changes nothing and does not count as use.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ..entities.entity import Entity
from ..partition.records import (
    SESSION_MESSAGES,
    SESSION_STATE,
    session_message_key,
    session_number,
    session_number_key,
)

COUNTED_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class SessionReport:
    """A message session: its active messages (counted up to `COUNTED_MAX`), the size of its state (None: no state),
    and the end of its lock (Unix ms; None: no receiver holds it)."""

    session_id: str
    partition_id: int
    message_count: int
    state_bytes: int | None
    locked_until_at: int | None


async def sessions(entity: Entity) -> list[SessionReport]:
    """The sessions of an entity with active messages or a state, by name; unreachable partitions are left out.

    Raises StoreError.
    """
    found: list[SessionReport] = []
    for name in await entity.list_sessions(None):
        handle = entity.partitions[entity.partition_index_of_session(name)]
        if not handle.worker.available:
            continue
        partition = handle.worker.partition(handle.queue_id)
        number = session_number(name)
        start = session_message_key(handle.queue_id, number, 0)
        stop = session_message_key(handle.queue_id, number + 1, 0)
        with handle.worker.view() as view:
            count = sum(1 for _ in view.scan(SESSION_MESSAGES, start, stop, COUNTED_MAX))
            state = view.get(SESSION_STATE, session_number_key(handle.queue_id, number))
        found.append(
            SessionReport(
                name,
                handle.index,
                count,
                None if state is None else len(state),
                None if partition is None else partition.session_ends().get(name),
            )
        )
    return found
