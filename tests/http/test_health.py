"""Whether the server says that it is ready."""

from __future__ import annotations

import asyncio

import aiohttp

from emubus.broker.clock import Clock
from emubus.web import HttpServer


async def test_health_says_no_before_the_emulator_is_ready() -> None:
    ready = False
    face = HttpServer(lambda: ready, Clock())
    await face.start()
    server = await asyncio.get_running_loop().create_server(face.protocol, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/health"
    async with aiohttp.ClientSession() as client:
        async with client.get(url) as answer:
            assert answer.status == 503
            assert await answer.json() == {
                "status": "unhealthy",
                "message": "Service not available. Please try after some time.",
            }
        ready = True
        async with client.get(url) as answer:
            assert answer.status == 200
            assert await answer.json() == {"status": "healthy", "message": "Service is healthy."}
    server.close()
    await face.stop()
