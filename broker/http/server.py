"""The HTTP face as a whole: one aiohttp application, made of parts, without a socket of its own.

Knows which parts there are and in which order their routes are tried. Refuses to know what they answer, and where the
connections come from: whoever listens asks for a `protocol()` for each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiohttp import web

from .control import add_control, errors_as_json
from .health import add_health
from .limits import REQUEST_LINE_BYTES_MAX
from .management import add_management
from .metrics import add_metrics
from .page import add_page
from .request_log import log_requests
from .services import Services
from .websocket import add_websocket

REQUEST_BYTES_MAX = 1 << 20
STOP_TIMEOUT_S = 1.0


class HttpFace:
    """Answers requests between `start` and `stop`; without `services` it is only asked for its health."""

    def __init__(self, is_ready: Callable[[], bool], services: Services | None = None) -> None:
        app = web.Application(client_max_size=REQUEST_BYTES_MAX, middlewares=[log_requests, errors_as_json])
        add_health(app, is_ready)
        if services is not None:
            add_websocket(app, services.amqp)
            add_metrics(app, services)
            add_control(app, services)
            add_page(app, services)
            add_management(app, services)  # the last: it takes every path that is left
        self._runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=STOP_TIMEOUT_S, max_line_size=REQUEST_LINE_BYTES_MAX
        )

    async def start(self) -> None:
        """Get ready for connections."""
        await self._runner.setup()

    def protocol(self) -> asyncio.Protocol:
        """What a new connection is given to."""
        assert self._runner.server is not None
        return self._runner.server()

    async def stop(self) -> None:
        """Let requests end, for a moment; then end what is connected."""
        await self._runner.cleanup()
