"""Layers of rows in memory over stored ones: what a batch has written, what is committed but not yet in the file.

Knows that a newer layer hides an older one, and that None deletes a row. Does not know who stores the rows below, nor
when a layer is complete (`journaled_store.py`). A layer belongs to the thread that owns the store; once its batch is
being committed, it does not change any more.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

Row = tuple[bytes, bytes]
Rows = Mapping[str, Mapping[bytes, bytes | None]]
"""Table -> key -> value; None deletes the row."""

ROW_BYTES: Final = 160
"""Memory that a row takes besides its key and value."""


class RowLayer:
    """Changed rows by table. `byte_count` is about the memory that they take, once it is known."""

    __slots__ = ("_sorted", "byte_count", "tables")

    def __init__(self) -> None:
        self.tables: dict[str, dict[bytes, bytes | None]] = {}
        self.byte_count = 0
        self._sorted: dict[str, list[bytes]] = {}  # the keys that tables had when they were scanned last

    def table(self, name: str) -> dict[bytes, bytes | None]:
        """Return the changes of a table, to be added to; none may be taken away."""
        rows = self.tables.get(name)
        if rows is None:
            rows = self.tables[name] = {}
        return rows

    def complete(self, byte_count: int) -> None:
        """Nothing is added any more."""
        self.byte_count = byte_count
        self._sorted.clear()

    def merge(self, newer: RowLayer) -> None:
        """Take over the changes of a newer layer."""
        for name, changes in newer.tables.items():
            if name in self.tables:
                self.tables[name].update(changes)
            else:
                self.tables[name] = dict(changes)
        self.byte_count += newer.byte_count

    def keys(self, table: str, start: bytes, stop: bytes) -> Sequence[bytes]:
        """Return the changed keys with start <= key < stop, ascending."""
        rows = self.tables.get(table)
        if not rows:
            return ()
        keys = self._sorted.get(table)
        if keys is None:
            keys = self._sorted[table] = sorted(rows)
        elif len(keys) < len(rows):
            keys += islice(reversed(rows), len(rows) - len(keys))  # those that came later
            keys.sort()
        return keys[bisect_left(keys, start) : bisect_left(keys, stop)]


def value_of(
    layers: Sequence[RowLayer], stored: Callable[[str, bytes], bytes | None], table: str, key: bytes
) -> bytes | None:
    """Return the value at `key` in the newest of `layers` that has it, or in what is `stored`; newest layer last."""
    for layer in reversed(layers):
        rows = layer.tables.get(table)
        if rows is not None and key in rows:
            return rows[key]
    return stored(table, key)


def rows_between(
    layers: Sequence[RowLayer],
    stored: Callable[[str, bytes, bytes, int], list[Row]],
    table: str,
    start: bytes,
    stop: bytes,
    limit: int,
) -> list[Row]:
    """Return up to `limit` rows with start <= key < stop of `layers` over what is `stored`; newest layer last."""
    changed: dict[bytes, bytes | None] = {}
    for layer in layers:
        keys = layer.keys(table, start, stop)
        if keys:
            rows = layer.tables[table]
            changed.update([(key, rows[key]) for key in keys])
    if not changed or limit <= 0:
        return stored(table, start, stop, limit)
    deleted_count = list(changed.values()).count(None)
    below = iter(stored(table, start, stop, limit + deleted_count))
    return list(islice(merged(below, changed, iter(sorted(changed))), limit))


def merged(rows: Iterator[Row], changes: Mapping[bytes, bytes | None], changed_keys: Iterator[bytes]) -> Iterator[Row]:
    """Merge ascending rows and the ascending keys of changes; a change hides the row at its key, None deletes it."""
    row = next(rows, None)
    for changed_key in changed_keys:
        while row is not None and row[0] < changed_key:
            yield row
            row = next(rows, None)
        if row is not None and row[0] == changed_key:
            row = next(rows, None)
        value = changes[changed_key]
        if value is not None:
            yield changed_key, value
    if row is not None:
        yield row
        yield from rows
