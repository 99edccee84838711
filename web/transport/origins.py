"""Whose web pages may use the server: those that it serves itself. Programs are not pages, and may do all.

A browser lets any page on the Internet send simple requests to a developer's machine, and a page whose name is made to
point there (DNS rebinding) may read the answers, too. Knows the headers by which a browser tells whose page it is, and
which names nobody on the Internet can give to a machine of his choice. Does not know what is asked for, and who the
user is: where keys are verified (`--auth sas`), a page without a key can do nothing, and only its writes are refused.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import Final
from urllib.parse import SplitResult, urlsplit

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware

from .connection import Refuse

SAFE_METHODS: Final = frozenset({hdrs.METH_GET, hdrs.METH_HEAD, hdrs.METH_OPTIONS})
LOCAL_ENDINGS: Final = (
    ".localhost",  # RFC 6761
    ".test",
    ".local",  # RFC 6762
    ".internal",  # reserved by ICANN; host.docker.internal, cloud machines
    ".home.arpa",  # RFC 8375
    ".lan",  # routers; no such top-level domain is delegated
    ".svc",  # Kubernetes
    ".servicebus.windows.net",  # a namespace's own name, made to point here by a hosts file
)
"""Ends of names that are given by the user's own machines, or by Azure."""
FOREIGN: Final = "A web page of another origin may not do this; the request came from {}."
REBOUND: Final = (
    "Web pages may not use this server by the name '{}', which anybody on the Internet could point here. "
    "Use localhost, an IP address or a name without dots, or run it with --auth sas."
)


def only_own_pages(refuse: Refuse, verifies_keys: Callable[[], bool]) -> Middleware:
    """A middleware that answers 403, made by `refuse`, to web pages of others."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        problem = problem_of(request, verifies_keys=verifies_keys())
        return await handler(request) if problem is None else refuse(request.path, 403, problem)

    return check


def problem_of(request: web.BaseRequest, *, verifies_keys: bool) -> str | None:
    """Why a request must not be answered; None if it may be."""
    host = _host(f"//{request.headers.get(hdrs.HOST, '')}")
    if not verifies_keys and _is_browser(request) and not is_local_name(host):
        return REBOUND.format(ascii(host)[1:-1])
    if request.headers.get(hdrs.UPGRADE, "").lower() == "websocket":
        # Clients in a page of the user's own may speak AMQP: it is what the path is for.
        origin = request.headers.get(hdrs.ORIGIN)
        if verifies_keys or origin is None or _host(origin) == host or _is_loopback(_host(origin)):
            return None
        return FOREIGN.format(ascii(origin)[1:-1])
    if request.method in SAFE_METHODS:
        return None  # they change nothing, and pages of others can't read the answer
    return _writer_problem(request)


def is_local_name(host: str) -> bool:
    """Whether nobody else can make this host's name, in lower case, point to a machine of his choice."""
    return "." not in host or host.endswith(LOCAL_ENDINGS) or _address(host) is not None


def _writer_problem(request: web.BaseRequest) -> str | None:
    site = request.headers.get("Sec-Fetch-Site")
    if site is not None:  # what the browser itself makes of it, also behind a proxy that changes Host
        return None if site in ("same-origin", "none") else FOREIGN.format(f"another site ({ascii(site)[1:-1]})")
    origin = request.headers.get(hdrs.ORIGIN)
    if origin is None or _split(origin).netloc.lower() == request.headers.get(hdrs.HOST, "").lower():
        return None
    return FOREIGN.format(ascii(origin)[1:-1])


def _is_browser(request: web.BaseRequest) -> bool:
    """Whether a page could have caused the request: browsers send these, also when a page wants to hide them."""
    return any(name in request.headers for name in (hdrs.ORIGIN, hdrs.ACCEPT_LANGUAGE, "Sec-Fetch-Mode"))


def _split(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError:
        return urlsplit("")


def _host(url: str) -> str:
    """The host of an address in lower case, without brackets and the dot at the end of a full name."""
    try:
        return (_split(url).hostname or "").removesuffix(".")
    except ValueError:
        return ""


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _is_loopback(host: str) -> bool:
    address = _address(host)
    return f".{host}".endswith(".localhost") if address is None else address.is_loopback
