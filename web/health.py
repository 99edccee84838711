"""`GET /health`, with the answers of Microsoft's emulator.

Knows the path, the two bodies and the two statuses [emulators 1.9]. A callable says whether the server is ready.
"""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

HEALTHY = {"status": "healthy", "message": "Service is healthy."}
UNHEALTHY = {"status": "unhealthy", "message": "Service not available. Please try after some time."}


def add_health(app: web.Application, is_ready: Callable[[], bool]) -> None:
    """Answer `GET /health` with 200 once `is_ready()`, with 503 before."""

    async def health(_request: web.Request) -> web.Response:
        if is_ready():
            return web.json_response(HEALTHY)
        return web.json_response(UNHEALTHY, status=503)

    app.router.add_get("/health", health)
