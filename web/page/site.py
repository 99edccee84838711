"""Shared by all views: templates, flashes, jobs, locks that the page took, and error handling.

Knows how HTML is rendered and how errors look. Does not know single views. One per server, made by `routes`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from difflib import get_close_matches
from itertools import islice
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

import structlog
from aiohttp import hdrs, web

from ...broker.admin import figures
from ...broker.admin.overview import Overview
from ...broker.api import Entity
from ...broker.aside import Aside
from ...broker.errors import BrokerError, Condition
from ..errors import ANSWERS
from ..loading import Loader, LoadError
from ..messages.jobs import Jobs
from ..messages.sessions import HeldSessions
from ..messages.survey import Surveys
from ..messages.templates import Templates
from ..services import Services
from ..transport.connection import BROKEN
from .alerts import alerts_of
from .flashes import Flash, Flashes
from .forms import Failed, FormError
from .gate import CHALLENGE, HEADERS, is_same_origin, require_key
from .taken_locks import TakenLocks

if TYPE_CHECKING:
    from jinja2 import Environment

ROOT: Final = "/emubus/page"
HOME: Final = "/"
REFRESH_MS: Final = 1_000
ANSWER_WAIT_MS: Final = 10_000
"""How long an answer may take: a slow store on a frozen clock would never answer."""
TOO_SLOW: Final = (
    f"A messaging store did not answer within {ANSWER_WAIT_MS // 1000} seconds; the request may still be carried out."
)
COMPARED_MAX: Final = 1_000
"""Paths that a mistyped one is compared with."""
BLANK: Final = Failed("")

log = structlog.get_logger(__name__)


def address(view: str, **query: object) -> str:
    """The address of a view; None and "" are left out of the query."""
    given = {name: str(value) for name, value in query.items() if value not in (None, "")}
    path = HOME if view == HOME else f"{ROOT}/{view}"
    return f"{path}?{urlencode(given)}" if given else path


def address_of(view: str, query: Mapping[str, Sequence[str]]) -> str:
    """The address of a view with a query whose names may have several values."""
    return f"{ROOT}/{view}?{urlencode(query, doseq=True)}"


def _templates() -> Environment:
    from .templating import page_templates

    return page_templates({"address": address, "root": ROOT, "blank": BLANK})


class Site:
    """The page of one server."""

    def __init__(self, services: Services, jobs: Jobs, templates: Templates, aside: Aside) -> None:
        self.services = services
        self.aside = aside
        self.broker = services.broker
        self.flashes = Flashes()
        self.jobs = jobs
        self.templates = templates
        self.surveys = Surveys(services.clock)
        self.taken = TakenLocks(services.clock)
        self.held = HeldSessions(services.broker, "the web page")
        # On another thread, because the event loop must go on; on one thread only, however many requests come first:
        # CPython's parser may fail on two at a time.
        self.environment = Loader("the page", lambda: asyncio.to_thread(_templates), services.clock)

    @property
    def overview(self) -> Overview:
        """Reports on the present namespace."""
        return Overview(self.broker.namespace)

    def entity(self, path: str) -> Entity:
        """The entity of a path. BrokerError (not-found), with the nearest path."""
        try:
            return self.overview.entity(path)
        except BrokerError as error:
            if error.condition is not Condition.NOT_FOUND:
                raise
            known = {each.path.lower(): each.path for each in islice(self.broker.namespace.entities(), COMPARED_MAX)}
            close = get_close_matches(path.lower(), known, n=1)
            hint = f" Did you mean '{known[close[0]]}'?" if close else ""
            raise BrokerError(error.condition, f"{error.description}{hint}") from None

    def entity_of(self, request: web.Request) -> Entity:
        """The entity that a request's query names. FormError, BrokerError (not-found)."""
        path = request.query.get("path", "")
        if not path:
            raise FormError("The address has no entity (path).")
        return self.entity(path)

    def _other_namespaces(self, request: web.Request) -> Sequence[tuple[str, str]]:
        """Name and address of the pages of the other namespaces."""
        port = host = ""
        try:
            host, port = request.url.host or "localhost", f":{request.url.port}"
        except ValueError:  # a Host header that is none
            pass
        return [
            (
                each.name,
                f"{request.scheme}://{host}:{each.port}/" if each.port else f"{request.scheme}://{each.host}{port}/",
            )
            for each in self.services.namespaces.list()
            if each.name != self.broker.name
        ]

    # ---- answers

    def render(
        self, request: web.Request, template: str, *, failed: Failed | None = None, **values: object
    ) -> web.Response:
        """A page from a template; `failed` is a form on it, refused or filled in again."""
        flash = self.flashes.get(request.query.get("flash", ""))
        clock, stores = self.services.clock, figures.stores(self.broker.namespace)
        forms = {} if failed is None else {failed.form: failed}
        if flash is not None and failed is None and flash.values:
            forms = {"send": Failed("send", flash.values)}
        context: Mapping[str, object] = {
            "forms": forms,
            "flash": flash,
            "namespace": self.broker.name,
            "other_namespaces": self._other_namespaces(request),
            "now": clock.now_ms(),
            "is_frozen": clock.is_frozen,
            "offset_ms": clock.offset_ms,
            "refresh_ms": REFRESH_MS,
            "view": "",
            "live_path": "",  # the address for live updates, if not the page's own
            "store_count": len(stores),
            "stores_out": [each for each in stores if each.is_out],
            "alerts": alerts_of(self.services.conditions, clock),
            **values,
        }
        assert self.environment.value is not None
        text = self.environment.value.get_template(template).render(context)
        return web.Response(text=text, content_type="text/html", status=200 if failed is None else failed.status)

    def redirect(self, where: str, flash: Flash) -> web.Response:
        """The answer to a successful action: a redirect to a page, with a flash."""
        separator = "&" if "?" in where else "?"
        location = f"{where}{separator}flash={self.flashes.put(flash)}"
        return web.Response(status=303, headers={hdrs.LOCATION: location})

    def refusal(self, request: web.Request, status: int, text: str) -> web.Response:
        """An error page."""
        response = self.render(request, "refused.html", text=text, status=status)
        response.set_status(status)
        return response


View = Callable[[Site, web.Request], Awaitable[web.Response]]


def handler(site: Site, view: View) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """The handler of a view for aiohttp: checks access, renders errors as pages, sets the security headers."""

    async def handle(request: web.Request) -> web.StreamResponse:
        response = await _answer(site, view, request)
        response.headers.update(HEADERS)
        response.headers[hdrs.CACHE_CONTROL] = "no-store"
        return response

    return handle


async def _answer(site: Site, view: View, request: web.Request) -> web.Response:
    """The view's page, or an error page. The right comes first: an error page shows the namespace and its clock."""
    try:
        await site.environment.loaded()
    except LoadError as error:
        return web.Response(status=503, text=f"{error}\n", headers={hdrs.RETRY_AFTER: "1"})
    try:
        require_key(request, site.services.access, site.services.clock.now_ms())
        if request.method == hdrs.METH_POST and not is_same_origin(request):
            return site.refusal(request, 403, "This request does not come from a page of this server and was refused.")
        async with site.services.clock.time_limit(ANSWER_WAIT_MS):
            return await view(site, request)
    except TimeoutError:
        return site.refusal(request, 503, TOO_SLOW)
    except FormError as error:
        return site.refusal(request, error.status, error.text)
    except BrokerError as error:
        if error.condition is Condition.UNAUTHORIZED_ACCESS:
            text = f"{error.description}\n"
            return web.Response(text=text, status=401, headers={hdrs.WWW_AUTHENTICATE: CHALLENGE})
        return site.refusal(request, ANSWERS[error.condition].status, error.description)
    except web.HTTPRequestEntityTooLarge as error:
        return site.refusal(request, 413, f"The form is too large: {error.text}")
    except BROKEN:
        raise
    except Exception:
        log.exception("request failed", method=request.method, path=request.path)
        return site.refusal(request, 500, "Internal error; see the server's log.")
