"""The bounds of the HTTP face in one place: bodies, headers, pages and waiting.

Knows numbers, with their reasons. Does not know the limits of entities and messages (`broker/model/profiles.py`).
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

HEAD_BYTES_MAX: Final = 256 << 10
"""All headers of a request with its first line."""

SLICE_US: Final = 5_000
"""How long a connection handles input before the others get their turn."""

STRANGERS_TURN_US: Final = 2_000
"""How long all connections whose client must show a token and has not, handle input in one turn of the event loop."""

KNOWN_CHUNK_BYTES: Final = 64 << 10
"""Input that is handled in one go."""

STRANGER_CHUNK_BYTES: Final = 4 << 10
"""As above, of a client that must show a token and has not."""

UNHANDLED_BYTES_MAX: Final = 128 << 10
"""Input that waits for its turn; with more the socket is not read."""

HEADER_BYTES_MAX: Final = 64 << 10
"""One header: BrokerProperties and custom properties of a message are headers, and may have 64 KiB in all."""

BATCH_JSON_FACTOR: Final = 4
"""How much larger the JSON of a batch may be than the batch: base64, escapes, and the names of the properties."""

RECEIVE_S: Final = 60
"""How long a request waits for a message that does not say how long."""

RECEIVE_S_MAX: Final = 3_600
"""And at most, whatever it says."""

LOOK_MS_MAX: Final = 1_000
"""How long all partitions may take to say that they have nothing, for a request that does not want to wait."""

RETRY_AFTER_S: Final = 10
"""When to try again what was refused for now; the service recommends ten seconds to clients that it finds too busy."""
