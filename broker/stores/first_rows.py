"""What a worker reads of its store before it starts: when the first row is due, and who has messages to forward."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, TypeVar

from ...storage import Store
from ..lazy_dataclass import dataclass
from ..model.catalog import UnreadableRowError
from ..partition.records import DUE, DUE_KEY, FORWARDED_FROM, STATE, STATE_KEY, Counters
from .timers import FIRST_DUE, LAST_DUE

STATES_MAX: Final = 1 << 24  # more than a store has
T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class FirstRows:
    """When the first row is due (Unix ms), None without any; the queue ids with messages that may be forwarded."""

    due_at: int | None
    with_outboxes: list[int]


def first_rows(index: int, store: Store) -> FirstRows:
    """Read them from the store of this number. Raises UnreadableRowError and StoreError."""

    def parsed(table: str, row: tuple[bytes, bytes], parse: Callable[[bytes, bytes], T]) -> T:
        try:
            return parse(*row)
        except (struct.error, ValueError, IndexError) as error:
            raise UnreadableRowError(f"store-{index:02}", table, row[0], error) from error

    with store.view() as view:
        first = view.scan(DUE, FIRST_DUE, LAST_DUE, 1)
        states = view.scan(STATE, b"", b"\xff" * (STATE_KEY.size + 1), STATES_MAX)
    due_at = parsed(DUE, first[0], lambda key, _: int(DUE_KEY.unpack(key)[0])) if first else None
    read = [parsed(STATE, row, lambda key, row: (STATE_KEY.unpack(key)[0], Counters.unpack(row))) for row in states]
    return FirstRows(
        due_at, [queue_id for queue_id, counters in read if any(counters.messages[home] for home in FORWARDED_FROM)]
    )
