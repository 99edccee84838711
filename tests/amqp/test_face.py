"""The one place with a real socket: the face takes connections, and ends them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from emubus.amqp import AmqpFace, Limits
from emubus.amqp.frames import AMQP_HEADER, SASL_HEADER
from emubus.broker.access import Access
from emubus.broker.clock import Clock
from emubus.broker.encoding import Uint

from .fakes import FakeBroker
from .wire import CLOSE, OPEN, frame, read_frames, sasl_init

Listen = Callable[[AmqpFace], Awaitable[int]]


def face(**limits: float) -> AmqpFace:
    return AmqpFace(
        FakeBroker(),
        Access(verify=False),
        Clock(),
        limits=Limits(**limits),  # type: ignore[arg-type]
    )


@pytest.fixture
async def listen() -> AsyncIterator[Listen]:
    """Gives the connections on a port to a face."""
    servers: list[asyncio.Server] = []

    async def listen(amqp: AmqpFace) -> int:
        servers.append(await asyncio.get_running_loop().create_server(amqp.protocol, "127.0.0.1", 0))
        return int(servers[-1].sockets[0].getsockname()[1])

    yield listen
    for server in servers:
        server.close()


@pytest.mark.parametrize("polite", [True, False])
async def test_a_stopping_face_says_why_and_does_not_wait_for_those_who_stay(polite: bool, listen: Listen) -> None:
    amqp = face(stop_wait_s=60.0 if polite else 0.02)
    port = await listen(amqp)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(SASL_HEADER + sasl_init() + AMQP_HEADER + frame(0, OPEN, ["client", None, Uint(65536)]))
    data = b""
    while OPEN not in [each.code for each in read_frames(data)[0]]:
        data += await reader.read(1000)
    assert amqp.connection_count == 1
    stopping = asyncio.create_task(amqp.stop())
    data = b""
    while not data:
        data += await reader.read(1000)
    (close,) = read_frames(data)[0]
    assert close.code == CLOSE
    assert close.fields[0].value[:2] == ["amqp:connection:forced", "The server is shutting down."]
    if polite:
        writer.close()
    await stopping
    assert amqp.connection_count == 0
    writer.close()


async def test_a_connection_that_has_said_nothing_ends_with_the_face(listen: Listen) -> None:
    amqp = face()
    port = await listen(amqp)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HTTP/1.1\r\n\r\n")
    assert await reader.read() == SASL_HEADER
    silent_reader, silent_writer = await asyncio.open_connection("127.0.0.1", port)
    silent_writer.write(SASL_HEADER)
    assert (await silent_reader.readexactly(8)) == SASL_HEADER
    await amqp.stop()
    await silent_reader.read()
    assert await silent_reader.read() == b""
    writer.close()
    silent_writer.close()


async def test_a_face_without_connections_can_be_stopped() -> None:
    await face().stop()
