"""Rows, and changes of rows over stored ones.

Knows that a change hides the row at its key, and that None deletes it. Does not know who stores rows and changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

Row = tuple[bytes, bytes]
Rows = Mapping[str, Mapping[bytes, bytes | None]]
"""Table -> key -> value; None deletes the row."""

ROW_BYTES: Final = 160
"""Memory that a row takes besides its key and value."""


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
