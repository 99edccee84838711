"""The connection string of this server, for the page.

Knows the form of a connection string [http 1]. Does not know who connects.
"""

from __future__ import annotations

from aiohttp import web

from ...broker.access import DEFAULT_SHARED_KEY
from ...broker.keys import Right
from ..services import Services


def connection_string(services: Services, request: web.Request) -> str:
    """The connection string: host as the browser used it, AMQP port, and a key with Manage."""
    host = request.url.host or "localhost"
    if ":" in host:
        host = f"[{host}]"
    keys = [each for each in services.access.keys if Right.MANAGE in each.rights] if services.access.verify else []
    key = keys[0] if keys else DEFAULT_SHARED_KEY
    return (
        f"Endpoint=sb://{host}:{services.ports()['amqp']};SharedAccessKeyName={key.name};"
        f"SharedAccessKey={key.key};UseDevelopmentEmulator=true;"
    )
