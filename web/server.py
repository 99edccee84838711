"""The HTTP server: one aiohttp application of several parts, without a socket of its own.

Knows the parts, the order in which their routes are tried, and the error format of each. Does not know what they
answer, or where connections come from: the listener asks for a `protocol()` for each.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable

from aiohttp import hdrs, web, web_app

from ..broker.aside import Aside
from ..broker.errors import BrokerError, Condition
from ..broker.ledger import MemoryAccount
from ..broker.turns import Turns
from .arm import arm_first, is_arm_path, is_for_arm, refusal
from .atom.management import ERROR_TYPE, add_management
from .control import ROOT as CONTROL
from .control import add_control, errors_as_json
from .control.endpoints import error_answer
from .errors import HttpRefusal, error_body
from .health import HELD, ROUTE, UPTIME, held, is_check, is_live, report
from .identity import add_identity, is_of_identity
from .limits import REQUEST_LINE_BYTES_MAX, SLICE_US, STRANGERS_TURN_US, TURN_US
from .long_work import ASIDE
from .messages.jobs import add_jobs
from .messages.templates import TEMPLATES, Templates
from .metrics import PATH as METRICS
from .metrics import add_metrics
from .page import add_page
from .page.site import ROOT as PAGE
from .resources import RESERVED
from .rest import add_rest
from .rest.broker_properties import HEADER as MESSAGE
from .services import Services
from .transport.connection import HttpConnection, by_its_connection, note_answers
from .transport.origins import is_browser, let_read, only_known_hosts, only_own_pages
from .transport.request_log import log_requests
from .transport.websocket import PATHS as WEBSOCKET_PATHS
from .transport.websocket import add_websocket

REQUEST_BYTES_MAX = 1 << 20
STOP_TIMEOUT_S = 0.5
"""How long a request may go on after the server stops; its cancelled handler has as long again."""
NOSNIFF = "nosniff"
NO_PAGE = "sandbox; default-src 'none'"
LINGER_MS = 200
"""How long a connection may take to close: many clients don't answer the end of TLS."""


class HttpServer:
    """Answers requests between `start` and `stop`: those of each namespace by its `Site`, which its first one makes.

    `services` are those of the first namespace. A connection may have requests for several: a proxy's has.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._clock = clock = services.clock
        self._connections: set[HttpConnection] = set()
        self._turns = Turns(SLICE_US, TURN_US, STRANGERS_TURN_US, clock.stopwatch_us, clock.computed_us)
        self.first = Site(services)
        self._others: dict[str, Site] = {}  # by the name of their namespace
        self._front: web.ServerRunner | None = None

    async def start(self) -> None:
        await self.first.start()
        server = web.Server(self._answer, request_factory=self.first.server.request_factory)
        self._front = web.ServerRunner(server, shutdown_timeout=STOP_TIMEOUT_S)
        await self._front.setup()

    def protocol(self, memory: MemoryAccount) -> asyncio.Protocol:
        assert self._front is not None
        assert self._front.server is not None
        return HttpConnection(
            self._front.server,
            self._connections,
            self.first.refuse,
            clock=self._clock,
            lines=self._services.broker.lines,
            turns=self._turns,
            memory=memory,
            is_stranger=lambda: self._services.access.verify,
            line_bytes_max=REQUEST_LINE_BYTES_MAX,
        )

    def _answer(self, request: web.BaseRequest) -> Awaitable[web.StreamResponse]:
        """The answer of the namespace that a request means."""
        if not self._services.namespaces.are_several or is_for_arm(request):  # Resource Manager is one for all
            return self.first.server.request_handler(request)
        return self._answer_of_one(request)

    async def _answer_of_one(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            services = await self._services.namespaces.find(request.headers.get(hdrs.HOST, ""), _reached_port(request))
            site = await self._site(services)
        except BrokerError as error:
            status = 404 if error.condition is Condition.NOT_FOUND else 503
            return self.first.refuse(request.path, status, error.description)
        return await site.server.request_handler(request)

    async def _site(self, services: Services) -> Site:
        name = services.broker.name
        if services is self._services:
            return self.first
        site = self._others.get(name)
        if site is None:
            site = self._others[name] = Site(services)
        await site.start()
        return site

    def forget(self, services: Services) -> None:
        """Free the application of a namespace that is deleted; its broker refuses its requests."""
        site = self._others.pop(services.broker.name, None)
        if site is not None:
            site.stop_soon()

    async def stop(self) -> None:
        """Give requests a moment to end; then close, and at last abort, the connections."""
        if self._front is not None:
            await self._front.cleanup()
        for site in (self.first, *self._others.values()):
            await site.stop()
        for cut in (False, True):
            for connection in list(self._connections) if cut else ():
                connection.abort()
            with contextlib.suppress(TimeoutError):
                async with self._clock.time_limit(LINGER_MS):
                    await asyncio.gather(*(each.lost() for each in self._connections))


def _reached_port(request: web.BaseRequest) -> int:
    """The port that the client has reached, 0 if it has left."""
    address = None if request.transport is None else request.transport.get_extra_info("sockname")
    return address[1] if isinstance(address, tuple) and len(address) > 1 else 0


class Site:
    """The parts of one namespace, as an application without connections of its own."""

    def __init__(self, services: Services) -> None:
        self._services = services
        clock = services.clock
        self._starting: asyncio.Task[None] | None = None
        self._stopping: asyncio.Task[None] | None = None
        hosts = only_known_hosts(self.refuse)
        guard = only_own_pages(self.refuse, lambda: services.access.verify, services.allowed_hosts, _is_of_service)
        middlewares = [log_requests, by_its_connection, hosts, guard, errors_as_json, arm_first(services)]
        app = web.Application(client_max_size=REQUEST_BYTES_MAX, middlewares=middlewares)
        app.on_response_prepare.append(note_answers)
        app.on_response_prepare.append(_keep_types)
        app.on_response_prepare.append(let_read)
        app.router.add_get(ROUTE, self._health)
        add_websocket(app, services.amqp)
        add_metrics(app, services)
        self._aside = app[ASIDE] = Aside()
        add_jobs(app, services.broker, clock)
        app[TEMPLATES] = Templates(services.files, self._aside)
        add_control(app, services)
        add_page(app, services)
        add_identity(app, services)
        add_rest(app, services)
        add_management(app, services)  # last: it takes every path that is left
        self._runner = web.AppRunner(app, shutdown_timeout=STOP_TIMEOUT_S)

    @property
    def server(self) -> web.Server:
        """What answers requests, once it is started."""
        assert self._runner.server is not None
        return self._runner.server

    @property
    def app(self) -> web.Application:
        return self._runner.app

    async def start(self) -> None:
        """Be ready for requests, however many begin it."""
        if self._starting is None:
            self._starting = asyncio.get_running_loop().create_task(self._runner.setup())
        await asyncio.shield(self._starting)

    async def stop(self) -> None:
        await self._runner.cleanup()
        self._aside.stop()
        # aiohttp keeps the last 1,024 handlers of the process with their applications, and those keep the broker: a
        # process that starts a server for each of its tests would keep them all.
        if (cached := getattr(web_app, "_cached_build_middleware", None)) is not None:
            cached.cache_clear()

    def stop_soon(self) -> None:
        self._stopping = asyncio.get_running_loop().create_task(self.stop())

    async def _health(self, request: web.Request) -> web.Response:
        status, body = report(ready=is_live(request.path) or self._services.is_ready())
        headers = {UPTIME: str(self._services.uptime_s), HELD: held(self._services.ledger)}
        return web.json_response(body, status=status, headers=headers)

    def refuse(self, path: str, status: int, problem: str) -> web.Response:
        """An error answer in the format of the part at that path; it may go out before there is a request."""
        response = self._refusal(path, status, problem)
        response.headers[hdrs.X_CONTENT_TYPE_OPTIONS] = NOSNIFF
        return response

    def _refusal(self, path: str, status: int, problem: str) -> web.Response:
        if _is_under(path, CONTROL):
            return error_answer(status, problem)
        if is_arm_path(path):
            return refusal(status, "BadRequest" if status == 400 else "Forbidden", problem)
        if path == "/" or _is_under(path, PAGE):
            return web.Response(status=status, text=problem)
        services = self._services
        body = error_body(HttpRefusal(status, problem), services.broker.name, services.clock.now_ms())
        return web.Response(status=status, body=body.encode(), headers={hdrs.CONTENT_TYPE: ERROR_TYPE})


async def _keep_types(request: web.Request, response: web.StreamResponse) -> None:
    """No browser takes an answer for something else than it says, nor a message for a page of this server.

    The content type of a message is its sender's. Only browsers get these headers with it: old clients of REST take
    each header that they don't know for a property of the message.
    """
    if MESSAGE in response.headers:
        if not is_browser(request):
            return
        response.headers[hdrs.CONTENT_SECURITY_POLICY] = NO_PAGE
    response.headers[hdrs.X_CONTENT_TYPE_OPTIONS] = NOSNIFF


def _is_of_service(path: str) -> bool:
    """Whether a path is one of the service: of its messages or entities."""
    if is_check(path) or path in (METRICS, *WEBSOCKET_PATHS) or is_arm_path(path) or is_of_identity(path):
        return False
    return not _is_under(path.lower(), f"/{RESERVED}")


def _is_under(path: str, root: str) -> bool:
    return path == root or path.startswith(f"{root}/")
