"""Paths and verbs of REST messaging, and its HTTP errors [http 5].

Maps requests to the broker's verbs, checks their rights, and makes the answers. Decides nothing about messages. Its
routes come before those of the management API, which takes all other paths.
"""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final
from urllib.parse import unquote

import structlog
from aiohttp import hdrs, web

from ...broker.errors import BrokerError
from ...broker.ids import token_from_uuid, token_to_uuid
from ...broker.keys import Right
from ...broker.outcomes import Abandon, Complete, Outcome
from ...broker.service_errors import lock_lost
from ..errors import HttpRefusal, error_body, excerpt, rest_refusal_of
from ..limits import RECEIVE_S, RECEIVE_S_MAX, RETRY_AFTER_S
from ..long_work import ASIDE
from ..services import Services
from ..transport.authorization import require
from ..transport.connection import BROKEN, HttpConnection
from .broker_properties import HEADER, as_header
from .received import answer
from .receiving import CLIENT, PendingReceive
from .sending import encoded_in
from .texts import http_date

# With a slash at their ends, too: browser SDKs write `/messages/head/?timeout=60` (ServiceBusJavaScriptSdk).
_MESSAGES: Final = "/{entity:.+}/{messages:(?i:messages)}"
ENTITY: Final = "/{entity:.+}/{messages:(?i:messages)/?}"
HEAD: Final = _MESSAGES + "/{head:(?i:head)/?}"
LOCKED: Final = _MESSAGES + "/{message:[^/]+}/{token:[^/]+/?}"
# These can also be names of entities: verbs of the management API go to it.
LOCKED_FOR_SURE: Final = _MESSAGES + "/{message:[^/]+}/{token:[0-9A-Fa-f]{8}-?(?:[0-9A-Fa-f]{4}-?){3}[0-9A-Fa-f]{12}/?}"
XML_TYPE: Final = "application/xml; charset=utf-8"
TIMEOUT: Final = re.compile(r"\d{1,9}(?:\.\d{1,9})?", re.ASCII)

log = structlog.get_logger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def add_rest(app: web.Application, services: Services) -> None:
    """Answer the paths of messages."""
    rest = Rest(services)
    for method, path, verb in (
        ("POST", ENTITY, rest.send),
        ("POST", HEAD, rest.peek_lock),
        ("DELETE", HEAD, rest.receive_and_delete),
        ("POST", LOCKED, rest.renew),
        ("PUT", LOCKED_FOR_SURE, rest.unlock),
        ("DELETE", LOCKED_FOR_SURE, rest.complete),
    ):
        app.router.add_route(method, path, rest.refusing(verb))


class Rest:
    """Answers the requests of clients that send and receive."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._broker = services.broker
        self._clock = services.clock

    # ---- verbs

    async def send(self, request: web.Request) -> web.Response:
        """Store a message or a batch; the answer follows the commit, whatever `timeout` the client sends."""
        address, _ = _path(request, 1)
        require(request, self._services, address, Right.SEND)
        sender = self._broker.open_sender(address, detached=_ignore, client=CLIENT)
        stored: asyncio.Future[BrokerError | None] = asyncio.get_running_loop().create_future()
        try:
            data, is_batch = await encoded_in(request, sender, self._services.clock.now_ms())

            def done(_: Sequence[int], error: BrokerError | None) -> None:
                if not stored.done():
                    stored.set_result(error)

            sender.send([data], done, whole=is_batch)
            error = await stored
            if error is not None:
                try:
                    raise error
                finally:
                    del error, stored  # it has this frame, which would have it: a circle, with all that was sent
        finally:
            sender.close()
        return web.Response(status=201, headers={hdrs.CONTENT_TYPE: XML_TYPE})

    async def peek_lock(self, request: web.Request) -> web.StreamResponse:
        return await self._receive(request, locked=True)

    async def receive_and_delete(self, request: web.Request) -> web.StreamResponse:
        return await self._receive(request, locked=False)

    async def complete(self, request: web.Request) -> web.Response:
        """Delete a locked message."""
        return await self._settle(request, Complete())

    async def unlock(self, request: web.Request) -> web.Response:
        """Unlock a message; that counts as a failed delivery."""
        return await self._settle(request, Abandon())

    async def renew(self, request: web.Request) -> web.Response:
        address, (_, message, token_text) = _path(request, 3)
        require(request, self._services, address, Right.LISTEN)
        token = _token(token_text)
        (until_at,) = await self._broker.messages.renew_locks(address, [token])
        lock = {"LockToken": str(token_to_uuid(token)), "LockedUntilUtc": http_date(until_at)}
        headers = {
            hdrs.CONTENT_TYPE: XML_TYPE,
            hdrs.LOCATION: _location(request, address, message, token),
            HEADER: as_header(lock),
        }
        return web.Response(status=200, headers=headers)

    async def _receive(self, request: web.Request, *, locked: bool) -> web.StreamResponse:
        address, _ = _path(request, 2)
        require(request, self._services, address, Right.LISTEN)
        timeout_ms = _timeout_ms(request)
        connection = request.protocol
        assert isinstance(connection, HttpConnection)
        wait = PendingReceive(self._broker, self._clock, address)
        delivery = await wait.message(timeout_ms, connection)
        if delivery is None:
            wait.check_reachable()
            return web.Response(status=204)
        try:
            if not locked and not await wait.complete(delivery):
                return web.Response(status=204)
            location = _location(request, address, str(delivery.sequence_number), delivery.token) if locked else None
            make = partial(answer, request, delivery, locked=locked, location=location)
            response = await request.app[ASIDE].run(make, len(delivery.payload))
            await response.prepare(request)
            await response.write_eof()
        except BaseException:  # the client has just disconnected, or the lock has expired
            wait.release()
            raise
        return response

    async def _settle(self, request: web.Request, outcome: Outcome) -> web.Response:
        address, (_, _, token_text) = _path(request, 3)
        require(request, self._services, address, Right.LISTEN)
        await self._broker.messages.settle(address, [_token(token_text)], outcome)
        return web.Response(status=200, headers={hdrs.CONTENT_TYPE: XML_TYPE})

    # ---- errors

    def refusing(self, verb: Handler) -> Handler:
        """A handler that turns errors of `verb` into answers."""

        async def handler(request: web.Request) -> web.StreamResponse:
            try:
                return await verb(request)
            except BrokerError as error:
                refusal = rest_refusal_of(error)
            except HttpRefusal as error:
                refusal = error.with_traceback(None)  # which has this frame, which has the error: a circle
            except (web.HTTPException, *BROKEN):
                raise
            except Exception:
                log.exception("request failed", method=request.method, path=request.path)
                refusal = HttpRefusal(500, "Internal error; see the server's log.")
            return self._refused(request, refusal)

        return handler

    def _refused(self, request: web.Request, refusal: HttpRefusal) -> web.Response:
        address, _, _ = unquote(request.rel_url.raw_path).strip("/").rpartition("/messages")
        system = self._broker.namespace.name_of(address)
        self._broker.refusals.refused_because(f"HTTP at {request.remote}", address, str(refusal.status), refusal.detail)
        headers = {hdrs.CONTENT_TYPE: XML_TYPE}
        if refusal.status == 503:
            headers[hdrs.RETRY_AFTER] = str(RETRY_AFTER_S)
        body = error_body(refusal, system, self._clock.now_ms())
        return web.Response(status=refusal.status, body=body.encode(errors="replace"), headers=headers)


def _path(request: web.Request, count: int) -> tuple[str, list[str]]:
    """The address of the entity, still percent-encoded, and the last `count` segments, decoded.

    The address begins with a slash: the path `/a://b/c` is no URL of another host.
    """
    parts = request.rel_url.raw_path.removesuffix("/").split("/")
    return "/".join(parts[:-count]), [unquote(part) for part in parts[-count:]]


def _token(text: str) -> bytes:
    """A lock token as clients write it; an invalid text becomes a token that was never issued."""
    try:
        return token_from_uuid(uuid.UUID(text))
    except ValueError:
        raise lock_lost() from None


def _location(request: web.Request, address: str, message: str, token: bytes) -> str:
    """The address for settling a locked message. The Python client looks for `/subscriptions/` in lower case."""
    parts = (part.lower() if part.lower() == "subscriptions" else part for part in address.split("/"))
    return f"{request.scheme}://{request.host}{'/'.join(parts)}/messages/{message}/{token_to_uuid(token)}"


def _timeout_ms(request: web.Request) -> int:
    """How long a request waits: `timeout` in seconds, up to an hour. HttpRefusal (400)."""
    text = request.query.get("timeout")
    if not text:
        return RECEIVE_S * 1000
    if not TIMEOUT.fullmatch(text):
        raise HttpRefusal(400, f"The timeout is '{excerpt(text)}'; it must be a number of seconds.")
    return int(min(float(text), RECEIVE_S_MAX) * 1000)


def _ignore(error: BrokerError) -> None:
    """For an entity deleted while its request is read: the send then fails."""
