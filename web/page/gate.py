"""Access to the page: browsers that ask for HTML, from this origin, with a Manage key under `--auth sas`.

Knows the request headers for that, and the security headers of every answer. Does not know the views.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler
from aiohttp.web_urldispatcher import PlainResource, UrlMappingMatchInfo

from ...broker.access import Access
from ...broker.keys import Right
from ..transport.authorization import basic_credentials

HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
CHALLENGE: Final = 'Basic realm="emubus: key name and key", charset="UTF-8"'


class BrowserRoot(PlainResource):
    """The path `/` for requests that accept HTML; for others, such as SDKs, it does not exist."""

    def __init__(self, handler: Handler) -> None:
        super().__init__("/")
        self.add_route(hdrs.METH_GET, handler)

    async def resolve(self, request: web.Request) -> tuple[UrlMappingMatchInfo | None, set[str]]:
        """The handler, if this is a browser's request."""
        if request.method != hdrs.METH_GET or not wants_html(request):
            return None, set()
        return await super().resolve(request)


def wants_html(request: web.Request) -> bool:
    """Whether Accept names HTML, as browsers do and SDKs don't."""
    accepted = ",".join(request.headers.getall(hdrs.ACCEPT, ()))
    return any(each.partition(";")[0].strip().lower() == "text/html" for each in accepted.split(","))


def is_same_origin(request: web.Request) -> bool:
    """Whether a changing request comes from a page of this server, by the browser's headers.

    Browsers send Sec-Fetch-Site where they trust the address, and Origin with every POST; a request with neither is
    refused.
    """
    site = request.headers.get("Sec-Fetch-Site")
    if site is not None:
        return site == "same-origin"
    origin = request.headers.get(hdrs.ORIGIN)
    return origin is not None and urlsplit(origin).netloc == request.headers.get(hdrs.HOST)


def require_key(request: web.Request, access: Access, now: int) -> None:
    """BrokerError (unauthorized-access) unless the Basic credentials are a key with Manage on the namespace."""
    if not access.verify:
        return
    name, key = basic_credentials(request.headers.get(hdrs.AUTHORIZATION, ""))
    access.require([access.claim_of_key(name, key)], "", Right.MANAGE, now)
