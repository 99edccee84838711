"""Metrics at `/metrics`, as text for Prometheus or as OpenMetrics. The text is made on another thread."""

from __future__ import annotations

import asyncio
from typing import Final

from aiohttp import hdrs, web

from ..broker.errors import BrokerError
from ..telemetry.collecting import collect
from ..telemetry.prometheus import Exposition
from .services import Services
from .transport.authorization import require_manage

PATH: Final = "/metrics"


def add_metrics(app: web.Application, services: Services) -> None:
    """Answer `GET /metrics`; with `--auth sas` it needs the Manage right."""
    exposition = Exposition()
    one_at_a_time = asyncio.Lock()

    async def metrics(request: web.Request) -> web.Response:
        try:
            require_manage(request, services)
        except BrokerError as error:
            return web.Response(status=401, text=error.description)
        accept = ",".join(request.headers.getall(hdrs.ACCEPT, []))
        async with one_at_a_time:
            families = await collect(services.metric_sources)
            body, content_type = await asyncio.to_thread(exposition.text, families, accept)
        return web.Response(body=body, headers={hdrs.CONTENT_TYPE: content_type})

    app.router.add_get(PATH, metrics)
