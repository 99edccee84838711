"""The HTTP server, loaded when it is first needed.

aiohttp and the parts over it take longer to import than all the rest of emubus, and many servers are only asked over
AMQP. So the first request that is not a plain health check loads them, on another thread while the event loop goes on,
and waits. If that fails, it and those that follow are refused until a later try succeeds. Knows connections until they
have their protocol, and owns the server.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Final, cast

from ..broker.clock import Timer
from ..broker.ledger import MemoryAccount, Newcomer, Use
from .health import held, may_be_plain, plain_answer, unavailable
from .limits import IDLE_MS
from .loading import Loader, LoadError
from .services import Services

if TYPE_CHECKING:
    from .server import HttpServer

IMPORT_DESCRIPTORS: Final = 8
"""Must be free for the import: it holds a source, its compiled file, a library and a folder at a time."""


class LazyHttpServer:
    """Makes the protocol of each connection until `stop`."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._loader = Loader("the HTTP server", self._load, services.clock)
        self._waiting: set[FirstRequest] = set()

    def protocol(self, account: MemoryAccount) -> asyncio.Protocol:
        server = self._loader.value
        if server is not None:
            return server.protocol(account)
        return FirstRequest(self._services, self._loader, self._waiting, account)

    async def _load(self) -> HttpServer:
        server_class = await asyncio.to_thread(_import_server)
        server = server_class(self._services)
        await server.start()
        return server

    def forget(self, services: Services) -> None:
        """Free the application of a namespace that is deleted."""
        if self._loader.value is not None:
            self._loader.value.forget(services)

    async def stop(self) -> None:
        """Close the connections that wait, then stop the server."""
        for waiting in list(self._waiting):
            waiting.abort()
        await self._loader.stop()
        if self._loader.value is not None:
            await self._loader.value.stop()


def _import_server() -> type[HttpServer]:
    """The class of the server. OSError if descriptors are short.

    Then nothing is imported: a library may take its own file that can't be opened for one that is not there, and go on
    without its functions in C for ever.
    """
    spare: list[int] = []
    try:
        spare += (os.open(os.devnull, os.O_RDONLY) for _ in range(IMPORT_DESCRIPTORS))
    finally:
        for each in spare:
            os.close(each)
    from .server import HttpServer

    return HttpServer


class FirstRequest(asyncio.Protocol):
    """A connection without its HTTP protocol: answers health checks, hands over to the server at any other request.

    It is in `waiting` while it is open and not handed over.
    """

    def __init__(
        self, services: Services, loader: Loader[HttpServer], waiting: set[FirstRequest], account: MemoryAccount
    ) -> None:
        self._services = services
        self._loader = loader
        self._waiting = waiting
        self._account = account
        self._transport: asyncio.Transport | None = None
        self._received = b""
        self._idle: Timer | None = None
        self._handing_over: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._waiting.add(self)
        self._account.enter(Use.INPUT, lambda: len(self._received))
        self._account.move_to(Newcomer(self.abort))
        self._await_request()

    def data_received(self, data: bytes) -> None:
        """Answer a health check; the bytes of anything else wait for the server."""
        self._received += data
        self._account.grew(len(data))
        if self._transport is None or self._handing_over is not None or may_be_plain(self._received):
            return
        answer = plain_answer(
            self._received,
            ready=self._services.is_ready(),
            uptime_s=self._services.uptime_s,
            held_bytes=held(self._services.ledger),
            problem=self._loader.problem,
        )
        reads = self._transport.get_write_buffer_size() == 0  # the server limits clients that do not read
        if answer is None or not reads:
            self._transport.pause_reading()
            self._stop_idling()  # the client has asked: what it waits for now is the server
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
        self._end()
        self._account.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
        self._end()

    async def _hand_over(self) -> None:
        try:
            server = await self._loader.loaded()
        except LoadError as error:
            if self._transport is not None:
                self._transport.write(unavailable(str(error)))
                self._transport.close()
            return
        transport = self._transport
        self._end()
        if transport is None or transport.is_closing():
            return
        protocol = server.protocol(self._account)
        transport.set_protocol(protocol)
        transport.resume_reading()  # before the protocol may have a reason not to
        protocol.connection_made(transport)
        received, self._received = self._received, b""
        protocol.data_received(received)

    def _await_request(self) -> None:
        self._stop_idling()
        self._idle = self._services.clock.call_after(IDLE_MS, self.abort)

    def _end(self) -> None:
        self._waiting.discard(self)
        self._transport = None
        self._stop_idling()

    def _stop_idling(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
