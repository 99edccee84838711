"""The HTTP listener: one aiohttp application on one port.

Knows how to start and stop it and which parts it is made of; refuses to know what the parts answer.
"""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

from .health import add_health

REQUEST_BYTES_MAX = 1 << 20
STOP_TIMEOUT_S = 1.0


class HttpServer:
    """Serves `host`:`port` (0 picks a free port); `is_ready` says whether the whole emulator is."""

    def __init__(self, host: str, port: int, is_ready: Callable[[], bool]) -> None:
        self._host = host
        self._port = port
        app = web.Application(client_max_size=REQUEST_BYTES_MAX)
        add_health(app, is_ready)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=STOP_TIMEOUT_S)

    async def start(self) -> int:
        """Listen; the port. OSError if the address can't be bound."""
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, self._port, reuse_address=True)
        await site.start()
        return int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        """Close the port and what is connected to it."""
        await self._runner.cleanup()
