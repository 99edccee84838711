"""One log line per request, at debug: method, path, status, duration.

Does not know what requests mean.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import structlog
from aiohttp import web

from ...broker.clock import Clock

log = structlog.get_logger(__name__)


@web.middleware
async def log_requests(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Log the request once it is answered or has failed."""
    began_us = Clock.stopwatch_us()
    status = 500
    try:
        response = await handler(request)
        status = response.status
        return response
    except web.HTTPException as refused:
        status = refused.status
        raise
    finally:
        duration_ms = round((Clock.stopwatch_us() - began_us) / 1000, 1)
        log.debug("request", method=request.method, path=request.path, status=status, duration_ms=duration_ms)
