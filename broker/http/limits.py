"""The bounds of the HTTP face in one place: bodies and pages.

Knows numbers, with their reasons. Refuses to know the limits of entities and messages (`broker/limits.py`).
"""

from __future__ import annotations

from typing import Final

XML_BYTES_MAX: Final = 256 << 10
"""A description: the largest has a dozen keys, a kilobyte of user metadata and one rule."""

PAGE_ENTITIES: Final = 100
"""Of a list for which the client names no number; also what clients count with."""

PAGE_ENTITIES_MAX: Final = 1_000
"""Of a list at most: each entity is counted over all its partitions. The link to the next page leads on."""

ARCHIVE_BYTES_MAX: Final = 64 << 30
"""Of an uploaded snapshot: as much as anybody keeps on a development machine."""

REQUEST_LINE_BYTES_MAX: Final = 32 << 10
"""A path and a query: some names of hundreds of characters, each up to twelve bytes when it is percent-encoded."""
