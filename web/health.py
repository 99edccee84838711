"""`GET /health`, with the answers of Microsoft's emulator, and the names that orchestrators ask.

`/readyz` and `/healthz` are the same; `/livez` is healthy while the server answers at all. Their case and a slash at
their end do not matter, as to ASP.NET, which Microsoft's emulator is made with. None of them is ever the feed of an
entity. Knows the paths, the two bodies and the two statuses [emulators 1.9], and the plain form of the
request that containers and tests send: it is answered without aiohttp.
"""

from __future__ import annotations

import json
import re
from typing import Final

from ..broker.ledger import Ledger

PATH: Final = "/health"
LIVE: Final = "/livez"
PATHS: Final = (PATH, "/healthz", "/readyz", LIVE)
HEALTHY: Final = {"status": "healthy", "message": "Service is healthy."}
UNHEALTHY: Final = {"status": "unhealthy", "message": "Service not available. Please try after some time."}
UPTIME: Final = "Uptime"
"""The header with the seconds since the start, by which `emubus health --hold` knows when to ask seldom."""
HELD: Final = "Held-Bytes"
"""The header with the bytes that are held for peers at the last look, and how many may be (`broker/ledger.py`)."""
REQUEST_BYTES_MAX: Final = 2_048
"""Longest plain request."""

ROUTE: Final = f"/{{check:(?i:{'|'.join(path.removeprefix('/') for path in PATHS)})/?}}"
"""The route of all of them, as aiohttp writes it."""
_STARTS: Final = tuple(f"get {path}{end}http/1.".encode() for path in PATHS for end in (" ", "/ "))
# No header of a browser and none that announces a body or another protocol: the server has rules for those.
_PLAIN: Final = re.compile(
    rb"GET (/health|/healthz|/readyz|/livez)/? HTTP/1\.([01])\r\n"
    rb"((?:(?:host|user-agent|accept|accept-encoding|cache-control|pragma|connection):[ -~]*\r\n)*)\r\n",
    re.IGNORECASE,
)
_ENDS: Final = re.compile(rb"^connection:.*\bclose\b", re.IGNORECASE | re.MULTILINE)
_STAYS: Final = re.compile(rb"^connection:.*\bkeep-alive\b", re.IGNORECASE | re.MULTILINE)


def is_check(path: str) -> bool:
    """Whether it is the path of a health check."""
    return path.lower().removesuffix("/") in PATHS


def is_live(path: str) -> bool:
    """Whether that health check asks only if the server answers."""
    return path.lower().removesuffix("/") == LIVE


def report(*, ready: bool, problem: str | None = None) -> tuple[int, dict[str, str]]:
    """The status and the JSON body; a problem of the server's own stands in place of the emulator's text."""
    if problem is not None:
        return 503, {**UNHEALTHY, "message": problem}
    return (200, HEALTHY) if ready else (503, UNHEALTHY)


def may_be_plain(received: bytes) -> bool:
    """Whether this is the beginning of a plain request, as far as it goes."""
    own = received.lower()
    return (
        len(received) < REQUEST_BYTES_MAX
        and any(own.startswith(start) or start.startswith(own) for start in _STARTS)
        and b"\r\n\r\n" not in received
    )


def held(ledger: Ledger) -> str:
    """The value of that header."""
    return f"{ledger.everything.bytes}/{ledger.everything.cap}"


def plain_answer(
    request: bytes, *, ready: bool, uptime_s: int, held_bytes: str, problem: str | None = None
) -> tuple[bytes, bool] | None:
    """The whole answer, and whether the connection stays open; None if the request is not a plain health check."""
    found = _PLAIN.fullmatch(request)
    if found is None or len(request) > REQUEST_BYTES_MAX:
        return None
    path, version, headers = found.groups()
    stays = _ENDS.search(headers) is None if version == b"1" else _STAYS.search(headers) is not None
    asks_little = is_live(path.decode())
    status, values = report(ready=ready or asks_little, problem=None if asks_little else problem)
    body = json.dumps(values)
    head = (
        f"HTTP/1.1 {status} {'OK' if status == 200 else 'Service Unavailable'}\r\n"
        f"Content-Type: application/json; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
        f"{UPTIME}: {uptime_s}\r\n{HELD}: {held_bytes}\r\nX-Content-Type-Options: nosniff\r\n"
        f"Connection: {'keep-alive' if stays else 'close'}\r\n\r\n"
    )
    return (head + body).encode(), stays


def unavailable(problem: str) -> bytes:
    """The whole answer to any request while the HTTP server can't be loaded."""
    body = f"{problem}\n".encode()
    head = (
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nRetry-After: 1\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
