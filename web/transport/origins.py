"""Cross-origin protection: only the server's own web pages may use it from a browser. Other programs are not limited.

A browser lets any page on the Internet send simple requests to a developer's machine, and a page whose host name is
made to point there (DNS rebinding) can also read the answers. Knows the headers that name a page's origin, and the host
names that an attacker can't make point to this machine. With `--auth sas` a page without a key can do nothing, so only
cross-origin writes are refused.

The origins that may speak AMQP over a WebSocket may use the service's own paths, too, as its browser clients do
(azure-sdk-for-js 23325, 35548): preflights are answered, answers may be read, and a write passes if it has an
Authorization header, which a page can only send after its preflight was answered. Our own paths, the control API and
the web page, stay closed.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Collection
from typing import Final

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware

from ...broker.hosts import host_of, ip_address_of, is_local_name, split_url
from .connection import Refuse

SAFE_METHODS: Final = frozenset({hdrs.METH_GET, hdrs.METH_HEAD, hdrs.METH_OPTIONS})
BROWSERS_OWN: Final = (hdrs.ORIGIN, hdrs.ACCEPT_LANGUAGE, "Sec-Fetch-Mode", "Upgrade-Insecure-Requests")
HOST_HEADER: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|[A-Za-z0-9._~!$&'()*+,;=-]*)(?::([0-9]{0,5}))?", re.ASCII)
"""A name or address with an optional port; empty where the address has none [RFC 9112 3.2, RFC 3986 3.2]. Clients write
names of other scripts in Punycode, and percent signs only where somebody tries something."""
PORT_MAX: Final = 65_535
ORIGIN: Final = re.compile(r"https?://(?:\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::[0-9]{1,5})?", re.IGNORECASE)
"""An origin as browsers send it [RFC 6454 7]; not `null`."""
HEADER_NAMES: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~, -]+", re.ASCII)
PREFLIGHT_S: Final = 600
"""How long a browser may go without asking again."""
FOREIGN: Final = "Cross-origin request refused; it came from {}."
REBOUND: Final = (
    "Web pages may not use this server by the name '{}', which an attacker could point here. "
    "Use localhost, an IP address or a name without dots, or run it with --allowed-host NAME or --auth sas."
)


def only_known_hosts(refuse: Refuse) -> Middleware:
    """A middleware that answers 400, made by `refuse`, to a request whose Host is no host: answers repeat it."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        hosts = request.headers.getall(hdrs.HOST, ())
        if len(hosts) > 1:
            return refuse(request.path, 400, f"The request has {len(hosts)} Host headers; it must have one.")
        if hosts and not is_host(hosts[0]):
            problem = f"The Host header is '{ascii(hosts[0])[1:-1][:80]}'; it must be a name or an address, and a port."
            return refuse(request.path, 400, problem)
        return await handler(request)

    return check


def is_host(text: str) -> bool:
    """Whether a text is the value of a Host header."""
    found = HOST_HEADER.fullmatch(text)
    if found is None or int(found[2] or 0) > PORT_MAX:
        return False
    return found[1] is None or isinstance(ip_address_of(found[1]), ipaddress.IPv6Address)


def only_own_pages(
    refuse: Refuse,
    verifies_keys: Callable[[], bool],
    allowed_hosts: Collection[str] = (),
    is_of_service: Callable[[str], bool] = lambda _: False,
) -> Middleware:
    """A middleware that answers 403, made by `refuse`, to pages of other origins; `allowed_hosts` are its own names.

    `is_of_service` says which paths are those of the service, which some other origins may use.
    """

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        verifies = verifies_keys()
        reader = origin_of_reader(request, verifies_keys=verifies) if is_of_service(request.path) else None
        is_client = reader is not None and hdrs.AUTHORIZATION in request.headers
        problem = problem_of(request, allowed_hosts, verifies_keys=verifies, is_client=is_client)
        if problem is not None:
            return refuse(request.path, 403, problem)
        if reader is not None:
            request[READER] = reader
            if request.method == hdrs.METH_OPTIONS and hdrs.ACCESS_CONTROL_REQUEST_METHOD in request.headers:
                return _preflight(request)
        return await handler(request)

    return check


READER: Final = web.RequestKey("reader", str)
"""The origin of the page that may read the answer."""


async def let_read(request: web.Request, response: web.StreamResponse) -> None:
    """Let the page that asked read the answer and its headers, where it may."""
    reader = request.get(READER)
    if reader is not None:
        response.headers[hdrs.ACCESS_CONTROL_ALLOW_ORIGIN] = reader
        response.headers[hdrs.ACCESS_CONTROL_EXPOSE_HEADERS] = "*"
        response.headers[hdrs.VARY] = hdrs.ORIGIN


def origin_of_reader(request: web.BaseRequest, *, verifies_keys: bool) -> str | None:
    """The Origin of a request if it may speak AMQP over a WebSocket here; None for another one, and without one."""
    origin = request.headers.get(hdrs.ORIGIN, "")
    if ORIGIN.fullmatch(origin) is None:
        return None
    return origin if verifies_keys or _is_near(origin, host_of(f"//{request.headers.get(hdrs.HOST, '')}")) else None


def _is_near(origin: str, host: str) -> bool:
    """Whether an origin is on the server's host, or on this machine."""
    return host_of(origin) == host or _is_loopback(host_of(origin))


def _preflight(request: web.Request) -> web.Response:
    """Leave to send any method and header; the write itself is judged when it comes."""
    asked = request.headers.get(hdrs.ACCESS_CONTROL_REQUEST_HEADERS, "")
    headers = {
        hdrs.ACCESS_CONTROL_ALLOW_METHODS: "GET, POST, PUT, DELETE",
        hdrs.ACCESS_CONTROL_MAX_AGE: str(PREFLIGHT_S),
    }
    if HEADER_NAMES.fullmatch(asked):
        headers[hdrs.ACCESS_CONTROL_ALLOW_HEADERS] = asked
    return web.Response(status=204, headers=headers)


def problem_of(
    request: web.BaseRequest, allowed_hosts: Collection[str] = (), *, verifies_keys: bool, is_client: bool = False
) -> str | None:
    """The reason for refusing a request, or None. `is_client`: a page that may use this path sent it as a client."""
    host = host_of(f"//{request.headers.get(hdrs.HOST, '')}")
    is_own = host in allowed_hosts or is_local_name(host)
    if not verifies_keys and is_browser(request) and not is_own:
        return REBOUND.format(ascii(host)[1:-1])
    if request.headers.get(hdrs.UPGRADE, "").lower() == "websocket":
        # AMQP clients in the user's own pages use this path.
        origin = request.headers.get(hdrs.ORIGIN)
        if verifies_keys or origin is None or _is_near(origin, host):
            return None
        return FOREIGN.format(ascii(origin)[1:-1])
    if is_client or request.method in SAFE_METHODS:
        return None  # they change nothing, and the browser keeps the answer from other origins
    return _writer_problem(request)


def _writer_problem(request: web.BaseRequest) -> str | None:
    site = request.headers.get("Sec-Fetch-Site")
    if site is not None:  # the browser's own verdict, which holds behind a proxy that changes Host
        return None if site in ("same-origin", "none") else FOREIGN.format(f"another site ({ascii(site)[1:-1]})")
    origin = request.headers.get(hdrs.ORIGIN)
    if origin is None or split_url(origin).netloc.lower() == request.headers.get(hdrs.HOST, "").lower():
        return None
    return FOREIGN.format(ascii(origin)[1:-1])


def is_browser(request: web.BaseRequest) -> bool:
    """Whether a browser sent the request: a page can't remove these headers.

    A window that a page opens may ask without a language (headless Chromium), but then as a navigation.
    """
    return any(name in request.headers for name in BROWSERS_OWN)


def _is_loopback(host: str) -> bool:
    address = ip_address_of(host)
    return f".{host}".endswith(".localhost") if address is None else address.is_loopback
