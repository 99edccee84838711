"""The page's table of routes: address, method, view. All are below `/emubus/page`, except `/`."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from typing import Final

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler

from ..long_work import ASIDE
from ..messages.jobs import JOBS
from ..messages.templates import TEMPLATES
from ..services import Services
from . import (
    charts,
    comparing,
    creating,
    editing,
    entity,
    failures,
    flow,
    importing,
    kept_templates,
    keys,
    message_actions,
    messages,
    namespace,
    now,
    overview,
    roles,
    rules,
    sending,
    sessions,
    story,
)
from .forms import quoted
from .gate import HEADERS, BrowserRoot
from .site import ROOT, Site, View, handler

VIEWS: Final[Mapping[tuple[str, str], View]] = {
    ("GET", "create"): creating.show,
    ("POST", "create"): creating.create,
    ("GET", "entity"): entity.show,
    ("GET", "edit"): editing.show,
    ("POST", "edit"): editing.save,
    ("POST", "delete"): entity.delete,
    ("POST", "purge"): entity.purge,
    ("POST", "outage"): entity.outage,
    ("GET", "messages"): messages.show,
    ("GET", "body"): messages.body,
    ("GET", "compare"): comparing.show,
    ("POST", "act"): message_actions.act,
    ("POST", "stop"): message_actions.stop,
    ("GET", "keys"): keys.show,
    ("GET", "send"): sending.show,
    ("POST", "send"): sending.send,
    ("POST", "where"): sending.where,
    ("POST", "import"): importing.load_messages,
    ("POST", "import-config"): importing.load_config,
    ("POST", "keep-template"): kept_templates.keep,
    ("POST", "delete-template"): kept_templates.forget,
    ("GET", "rules"): rules.show,
    ("POST", "add-rule"): rules.add,
    ("POST", "delete-rule"): rules.delete,
    ("POST", "try-rules"): rules.try_message,
    ("GET", "namespace"): namespace.show,
    ("POST", "clock"): namespace.move_clock,
    ("POST", "reset"): namespace.reset,
    ("GET", "now"): now.show,
    ("GET", "story"): story.show,
    ("POST", "story"): story.switch,
    ("GET", "flow"): flow.show,
    ("GET", "forwarding"): flow.moved,
    ("GET", "clients"): flow.moved,
    ("GET", "charts"): charts.show,
    ("GET", "failures"): failures.show,
    ("POST", "begin-failure"): failures.begin,
    ("POST", "end-failure"): failures.end,
    ("POST", "snapshot"): failures.snapshot,
    ("POST", "drop-connection"): flow.drop,
    ("GET", "roles"): roles.show,
    ("POST", "assign-role"): roles.assign,
    ("POST", "remove-role"): roles.remove,
    ("GET", "sessions"): sessions.show,
    ("GET", "session-state"): sessions.download_state,
    ("POST", "session-state"): sessions.set_state,
    ("POST", "release-session"): sessions.release,
}
ASSETS: Final[Mapping[str, str]] = {
    "style.css": "text/css",
    "script.js": "text/javascript",
    "icon.svg": "image/svg+xml",
    "charts.js": "text/javascript",
    "uplot.js": "text/javascript",  # uPlot 1.6.32, its uPlot.iife.min.js; uplot-LICENSE.txt
    "uplot.css": "text/css",
}


def add_page(app: web.Application, services: Services) -> None:
    """Answer browsers at `/` and everything below `/emubus/page`."""
    site = Site(services, app[JOBS], app[TEMPLATES], app[ASIDE])
    app.router.register_resource(BrowserRoot(handler(site, overview.show)))
    for (method, name), view in VIEWS.items():
        app.router.add_route(method, f"{ROOT}/{name}", handler(site, view))
    for name, media_type in ASSETS.items():
        app.router.add_route(hdrs.METH_GET, f"{ROOT}/assets/{name}", _asset(name, media_type))

    app.router.add_route("*", f"{ROOT}{{tail:(?:/.*)?}}", handler(site, _missing))


async def _missing(site: Site, request: web.Request) -> web.Response:
    return site.refusal(request, 404, f"There is no page for {quoted(request.method)} at {quoted(request.path)}.")


def _asset(name: str, media_type: str) -> Handler:
    body = files(__name__.rpartition(".")[0]).joinpath("assets", name).read_bytes()

    async def asset(_: web.Request) -> web.StreamResponse:
        headers = {**HEADERS, hdrs.CACHE_CONTROL: "no-cache"}
        return web.Response(body=body, content_type=media_type, charset="utf-8", headers=headers)

    return asset
