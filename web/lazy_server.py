"""The HTTP server, loaded when it is first needed.

aiohttp and the parts over it take longer to import than all the rest of emubus, and many servers are only asked over
AMQP. So the first request that is not a plain health check loads them, on another thread while the event loop goes on,
and waits. Knows connections until they have their protocol, and owns the server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, cast

import structlog

from ..broker.clock import Timer
from .health import may_be_plain, plain_answer
from .limits import IDLE_MS
from .services import Services

if TYPE_CHECKING:
    from .server import HttpServer

log = structlog.get_logger(__name__)


class LazyHttpServer:
    """Makes the protocol of each connection until `stop`."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._server: HttpServer | None = None
        self._loading: asyncio.Task[HttpServer] | None = None
        self._waiting: set[FirstRequest] = set()

    def protocol(self) -> asyncio.Protocol:
        """The protocol of a new connection."""
        if self._server is not None:
            return self._server.protocol()
        return FirstRequest(self._services, self._loaded, self._waiting)

    async def _loaded(self) -> HttpServer:
        """The server, which the first call loads."""
        if self._loading is None:
            self._loading = asyncio.create_task(self._load())
        return await asyncio.shield(self._loading)  # one client that leaves does not stop it for the others

    async def _load(self) -> HttpServer:
        server_class = await asyncio.to_thread(_import_server)
        server = server_class(self._services)
        await server.start()
        self._server = server
        return server

    async def stop(self) -> None:
        """Close the connections that wait, then stop the server."""
        for waiting in list(self._waiting):
            waiting.abort()
        if self._loading is not None:
            self._loading.cancel()
            await asyncio.gather(self._loading, return_exceptions=True)
        if self._server is not None:
            await self._server.stop()


def _import_server() -> type[HttpServer]:
    from .server import HttpServer

    return HttpServer


class FirstRequest(asyncio.Protocol):
    """A connection without its HTTP protocol: answers health checks, hands over to `loaded()` at any other request.

    It is in `waiting` while it is open and not handed over.
    """

    def __init__(
        self, services: Services, loaded: Callable[[], Awaitable[HttpServer]], waiting: set[FirstRequest]
    ) -> None:
        self._services = services
        self._loaded = loaded
        self._waiting = waiting
        self._transport: asyncio.Transport | None = None
        self._received = b""
        self._idle: Timer | None = None
        self._handing_over: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        self._transport = cast("asyncio.Transport", transport)
        self._waiting.add(self)
        self._await_request()

    def data_received(self, data: bytes) -> None:
        """Answer a health check; the bytes of anything else wait for the server."""
        self._received += data
        if self._transport is None or self._handing_over is not None or may_be_plain(self._received):
            return
        answer = plain_answer(self._received, ready=self._services.is_ready(), uptime_s=self._services.uptime_s)
        reads = self._transport.get_write_buffer_size() == 0  # the server limits clients that do not read
        if answer is None or not reads:
            self._transport.pause_reading()
            self._handing_over = asyncio.create_task(self._hand_over())
            return
        self._received = b""
        content, stays = answer
        self._transport.write(content)
        if stays:
            self._await_request()
        else:
            self._transport.close()

    def connection_lost(self, exc: BaseException | None) -> None:
        """The client has disconnected."""
        del exc
        self._end()

    def abort(self) -> None:
        """Cut the connection."""
        if self._transport is not None:
            self._transport.abort()
        self._end()

    async def _hand_over(self) -> None:
        try:
            server = await self._loaded()
        except Exception:
            log.exception("the HTTP server can't be loaded")
            self.abort()
            return
        transport = self._transport
        self._end()
        if transport is None or transport.is_closing():
            return
        protocol = server.protocol()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        transport.resume_reading()
        protocol.data_received(self._received)

    def _await_request(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        self._idle = self._services.clock.call_after(IDLE_MS, self.abort)

    def _end(self) -> None:
        self._waiting.discard(self)
        self._transport = None
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
