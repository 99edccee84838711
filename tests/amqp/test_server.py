"""The one place with a real socket: the server takes connections, and ends them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from emubus.amqp import AmqpServer, Limits
from emubus.amqp.connection import Connection
from emubus.broker.access import Access
from emubus.broker.clock import Clock
from emubus.broker.errors import BrokerError
from emubus.broker.ledger import Ledger, Newcomer
from emubus.broker.service_errors import jms_not_supported
from emubus.codec.frames import AMQP_HEADER, SASL_HEADER
from emubus.codec.types import Symbol, Uint

from ..tracking import untracked
from .fakes import FakeBroker, as_broker
from .wire import BEGIN, CLOSE, OPEN, Frame, frame, read_frames, sasl_init

Listen = Callable[[AmqpServer], Awaitable[int]]


def server(connections_max: int | None = None, jms_refusal: BrokerError | None = None) -> AmqpServer:
    return AmqpServer(
        as_broker(FakeBroker()),
        Access(verify=False),
        Clock(manual=True),
        connections_max=connections_max,
        jms_refusal=jms_refusal,
    )


def protocol(amqp: AmqpServer) -> Connection:
    """The protocol of a new connection."""
    return amqp.protocol(Ledger(Clock(manual=True)).open(Newcomer(lambda: None)))


async def stop(amqp: AmqpServer) -> None:
    """Stop a server whose clients stay: it waits for them in vain."""
    clock = protocol(amqp).context.clock
    asyncio.get_running_loop().call_soon(clock.advance, Limits().stop_wait_ms)
    await amqp.stop()


@pytest.fixture
async def listen() -> AsyncIterator[Listen]:
    """Gives the connections on a port to a server."""
    servers: list[asyncio.Server] = []

    async def listen(amqp: AmqpServer) -> int:
        servers.append(await asyncio.get_running_loop().create_server(lambda: protocol(amqp), "127.0.0.1", 0))
        return int(servers[-1].sockets[0].getsockname()[1])

    yield listen
    for server in servers:
        server.close()


@pytest.mark.parametrize("polite", [True, False])
async def test_a_stopping_server_says_why_and_does_not_wait_for_those_who_stay(polite: bool, listen: Listen) -> None:
    amqp = server()
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
    condition, text, _ = close.fields[0].value
    assert (condition, untracked(text)) == (
        "amqp:connection:forced",
        "The connection was closed by container 'emubus'.",
    )
    if polite:
        writer.close()
    else:
        protocol(amqp).context.clock.advance(Limits().stop_wait_ms)
    await stopping
    assert amqp.connection_count == 0
    writer.close()


async def test_a_connection_that_has_said_nothing_ends_with_the_server(listen: Listen) -> None:
    amqp = server()
    port = await listen(amqp)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HTTP/1.1\r\n\r\n")
    assert await reader.read() == SASL_HEADER
    silent_reader, silent_writer = await asyncio.open_connection("127.0.0.1", port)
    silent_writer.write(SASL_HEADER)
    assert (await silent_reader.readexactly(8)) == SASL_HEADER
    await stop(amqp)
    await silent_reader.read()
    assert await silent_reader.read() == b""
    writer.close()
    silent_writer.close()


async def test_a_server_without_connections_can_be_stopped() -> None:
    await server().stop()


async def opened(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A client that has said its open."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(SASL_HEADER + sasl_init() + AMQP_HEADER + frame(0, OPEN, ["client", None, Uint(65536)]))
    return reader, writer


async def until(reader: asyncio.StreamReader, code: int) -> list[Frame]:
    """The server's frames up to the first of a kind; without the SASL layer's."""
    data = b""
    while True:
        frames = [each for each in read_frames(data)[0] if each.code < 0x40]
        if code in [each.code for each in frames]:
            return frames
        more = await reader.read(1000)
        assert more
        data += more


@pytest.mark.parametrize(
    ("refuses", "properties", "refused"),
    [
        (True, {Symbol("com.microsoft:is-client-provider"): True, Symbol("product"): "QpidJMS"}, True),
        (True, {Symbol("com.microsoft:is-client-provider"): False}, False),
        (True, {Symbol("product"): "QpidJMS"}, False),
        (False, {Symbol("com.microsoft:is-client-provider"): True}, False),
    ],
    ids=["the library", "said not to be", "plain Qpid JMS", "on Premium"],
)
async def test_the_jms_library_is_refused_where_jms_2_is_not_offered(
    listen: Listen, refuses: bool, properties: dict[Symbol, object], refused: bool
) -> None:
    amqp = server(jms_refusal=jms_not_supported(partitioned=False) if refuses else None)
    port = await listen(amqp)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    fields = ["client", None, Uint(65536), *([None] * 6), properties]
    writer.write(SASL_HEADER + sasl_init() + AMQP_HEADER + frame(0, OPEN, fields))
    frames = await until(reader, CLOSE if refused else OPEN)
    failed = "amqp:connection-establishment-failed"
    assert frames[0].fields[9] == ({"product": "emubus", failed: True} if refused else {"product": "emubus"})
    if refused:
        condition, text, info = frames[1].fields[0].value
        assert (condition, untracked(text), info) == (
            "amqp:not-implemented",
            "Full JMS 2.0 parity over AMQP is a feature supported only by a Premium Messaging namespace.",
            {},
        )
    await stop(amqp)
    writer.close()


async def test_connections_beyond_the_quota_are_reported_so_and_closed(listen: Listen) -> None:
    amqp = server(connections_max=2)
    port = await listen(amqp)
    _, silent = await asyncio.open_connection("127.0.0.1", port)  # has no part in the quota
    clients = [await opened(port) for _ in range(2)]
    for reader, _ in clients:
        await until(reader, OPEN)
    reader, refused = await opened(port)
    refused.write(frame(0, BEGIN, [None, Uint(0), Uint(1), Uint(1)]))  # as Python does
    frames = await until(reader, CLOSE)
    assert [each.code for each in frames] == [OPEN, CLOSE]
    condition, text, info = frames[1].fields[0].value
    assert (condition, untracked(text), info) == (
        "amqp:resource-limit-exceeded",
        "ConnectionsQuotaExceeded for namespace ns.",
        {},
    )
    clients[0][1].write(frame(0, CLOSE, []))
    await clients[0][0].read()  # to the end: the server is done with it
    again, writer = await opened(port)
    assert [each.code for each in await until(again, OPEN)] == [OPEN]
    await stop(amqp)
    for each in (silent, refused, writer, *[writer for _, writer in clients]):
        each.close()
