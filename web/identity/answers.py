"""What the endpoints of tokens share: making a token, and the answers that clients read.

Knows the JSON of OAuth's errors [RFC 6749 5.2] with what Entra ID adds to it, which MSAL reads. Owned by the
application.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Final

import structlog
from aiohttp import hdrs, web

from ...broker.directory import Directory, NoToken
from ...broker.errors import BrokerError
from ...broker.ids import new_tracking_id
from ...broker.names import excerpt
from ...broker.tokens import Identity
from ..services import Services
from ..transport.connection import BROKEN

NO_STORE: Final = {hdrs.CACHE_CONTROL: "no-store", hdrs.PRAGMA: "no-cache"}
RESOURCE_CHARS_MAX: Final = 2_048

log = structlog.get_logger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Tokens:
    """Makes tokens for the endpoints, and turns refusals into answers."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._issuer = services.issuer

    @property
    def directory(self) -> Directory:
        return self._services.directory

    @property
    def now_s(self) -> int:
        """The broker's time: a token ends by the clock that a test moves."""
        return self._services.clock.now_ms() // 1000

    async def token(self, identity: Identity, resource: str, life_s: int, method: str) -> str:
        """A token of an identity for a resource. BrokerError (server-busy) if its key can't be kept."""
        await asyncio.to_thread(self._issuer.prepare)
        return self._issuer.issue(identity, resource, self.now_s, life_s, method)

    async def keys(self) -> dict[str, object]:
        await asyncio.to_thread(self._issuer.prepare)
        return self._issuer.keys()

    def refusing(self, answer: Handler) -> Handler:
        """A handler that turns what `answer` refuses into an answer, and logs it."""

        async def handler(request: web.Request) -> web.StreamResponse:
            try:
                return await answer(request)
            except NoToken as refused:
                self._log(request, refused.text)
                return self._refused(refused)
            except BrokerError as error:
                self._log(request, error.description)
                return _error(503, "temporarily_unavailable", error.description)
            except (web.HTTPException, *BROKEN):
                raise
            except Exception:
                log.exception("request failed", method=request.method, path=request.path)
                return _error(500, "server_error", "Internal error; see the server's log.")

        return handler

    def _log(self, request: web.Request, text: str) -> None:
        client = f"identity at {request.remote}"
        self._services.broker.refusals.refused_because(client, request.path, "no token", text)

    def _refused(self, refused: NoToken) -> web.Response:
        """The answer to a refusal: codes of three digits are statuses of managed identities, others Entra ID's."""
        if refused.code < 1_000:
            return _error(refused.code, refused.error, refused.text)
        at = datetime.fromtimestamp(self.now_s, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
        trace, correlation = new_tracking_id(), new_tracking_id()
        text = f"AADSTS{refused.code}: {refused.text}"
        more = {
            "error_codes": [refused.code],
            "timestamp": at,
            "trace_id": trace,
            "correlation_id": correlation,
        }
        status = 401 if refused.error == "invalid_client" else 400
        return _error(
            status,
            refused.error,
            f"{text} Trace ID: {trace} Correlation ID: {correlation} Timestamp: {at}",
            more,
        )


def answered(body: Mapping[str, object], status: int = 200) -> web.Response:
    """JSON that nobody keeps."""
    data = json.dumps(body).encode()
    return web.Response(body=data, status=status, content_type="application/json", headers=NO_STORE)


def _error(status: int, error: str, text: str, more: Mapping[str, object] | None = None) -> web.Response:
    return answered({"error": error, "error_description": text, **(more or {})}, status)


def resource_in(text: str) -> str:
    """The resource that a token is asked for. NoToken."""
    if not 1 <= len(text) <= RESOURCE_CHARS_MAX or not text.isprintable():
        what = f"is {excerpt(text)}" if text else "is missing"
        raise NoToken(
            400, "invalid_resource", f"The resource {what}; ask for https://servicebus.azure.net, as the SDKs do."
        )
    return text
