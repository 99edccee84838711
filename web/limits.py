"""Limits of the HTTP adapter: bodies, headers, pages and waiting times.

Knows numbers, with their reasons. Does not know the limits of entities and messages (`broker/model/profiles.py`).
"""

from __future__ import annotations

from typing import Final

XML_BYTES_MAX: Final = 256 << 10
"""Largest description: a dozen keys, a kilobyte of user metadata and one rule."""

PAGE_ENTITIES: Final = 100
"""Default page size of a list; clients rely on it."""

PAGE_ENTITIES_MAX: Final = 1_000
"""Largest page of a list: each entity needs the counters of all its partitions. A `next` link leads to the rest."""

ARCHIVE_BYTES_MAX: Final = 64 << 30
"""Largest uploaded snapshot."""

REQUEST_LINE_BYTES_MAX: Final = 32 << 10
"""Longest request line: several names of hundreds of characters, each up to twelve bytes when percent-encoded."""

HEAD_BYTES_MAX: Final = 256 << 10
"""Request line and headers together."""

IDLE_MS: Final = 120_000
"""How long a connection may have no request, or a partial one: longer than clients keep idle connections (.NET 60 s,
Go 90 s), so that the server does not close one that a client is about to use."""

SLICE_US: Final = 2_000
"""Longest time that one connection handles input before the others get their turn."""

TURN_US: Final = 4_000
"""Longest time per turn of the event loop for all connections of known clients."""

STRANGERS_TURN_US: Final = 2_000
"""Longest time per turn of the event loop for all connections whose clients have yet to show a required token."""

KNOWN_CHUNK_BYTES: Final = 64 << 10
"""Input that is handled in one piece."""

STRANGER_CHUNK_BYTES: Final = 4 << 10
"""As above, for a client that has yet to show a required token."""

UNHANDLED_BYTES_MAX: Final = 128 << 10
"""Most input that waits for its turn; the socket is not read while there is more."""

HEADER_BYTES_MAX: Final = 64 << 10
"""Longest header: BrokerProperties and custom properties are headers, 64 KiB in all."""

BATCH_JSON_FACTOR: Final = 4
"""How much larger the JSON of a batch may be than the batch: base64, escapes, property names."""

RECEIVE_S: Final = 60
"""Default time that a request waits for a message."""

RECEIVE_S_MAX: Final = 3_600
"""Longest time that a request may wait for a message."""

LOOK_MS_MAX: Final = 10_000
"""Time limit for asking all partitions once, for a request that does not wait."""

RETRY_AFTER_S: Final = 10
"""Retry-After of a busy server; the service recommends ten seconds."""
