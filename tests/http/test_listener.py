"""Every port answers AMQP, HTTP, and both inside TLS; a WebSocket carries AMQP."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from emubus.broker.clock import Clock
from emubus.broker.ledger import Ledger
from emubus.config import load_config
from emubus.listener import SPEAK_WAIT_MS, Listener
from emubus.server import NotReady, Server, StartError
from emubus.tls import ca_file

from ..broker.namespace import loop_turns

AMQP_HEADER = b"AMQP\x00\x01\x00\x00"
SASL_HEADER = b"AMQP\x03\x01\x00\x00"
WAIT_S = 60.0  # ends a hang


def config_texts(tmp_path: Path, **more: str) -> dict[str, str | None]:
    return {"data": str(tmp_path), "durability": "none", "amqp_port": "0", "http_port": "0", **more}


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    running = Server(load_config(config_texts(tmp_path, tls="dev", tls_port="0,0"), {}), Clock())
    await running.start()
    yield running
    await running.stop()


@pytest.fixture
def trusting(server: Server, tmp_path: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=ca_file(tmp_path))


async def greeted(port: int, context: ssl.SSLContext | None = None) -> bytes:
    reader, writer = await asyncio.open_connection("localhost", port, ssl=context)
    writer.write(SASL_HEADER)
    async with asyncio.timeout(WAIT_S):
        answer = await reader.readexactly(8)
    writer.close()
    return answer


async def test_every_port_answers_everything(server: Server, trusting: ssl.SSLContext) -> None:
    assert len(set(server.ports.values())) == 4
    async with aiohttp.ClientSession() as client:
        for port in server.ports.values():
            assert await greeted(port) == SASL_HEADER
            assert await greeted(port, trusting) == SASL_HEADER
            for url, context in ((f"http://localhost:{port}", None), (f"https://localhost:{port}", trusting)):
                async with client.get(f"{url}/health", ssl=context or True) as answer:
                    assert (answer.status, (await answer.json())["status"]) == (200, "healthy")


async def test_first_bytes_that_come_one_by_one_are_understood(server: Server) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.amqp_port)
    for number in range(len(SASL_HEADER)):
        writer.write(SASL_HEADER[number : number + 1])
        await writer.drain()
        await asyncio.wait_for(asyncio.get_running_loop().run_in_executor(None, socket.gethostname), WAIT_S)
    assert await asyncio.wait_for(reader.readexactly(8), WAIT_S) == SASL_HEADER
    writer.close()


async def test_a_client_that_does_not_trust_the_authority_gets_nothing(server: Server) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        await greeted(server.amqp_port, ssl.create_default_context())
    assert await greeted(server.amqp_port) == SASL_HEADER


async def test_the_authority_is_made_once_and_the_certificate_has_the_usual_names(tmp_path: Path) -> None:
    known: list[bytes] = []
    for _ in range(2):
        running = Server(load_config(config_texts(tmp_path, tls="dev"), {}), Clock())
        await running.start()
        known.append(ca_file(tmp_path).read_bytes())
        context = ssl.create_default_context(cafile=ca_file(tmp_path))
        for name in ("127.0.0.1", "emubus", "host.docker.internal", "any-namespace.servicebus.windows.net"):
            _, writer = await asyncio.open_connection("127.0.0.1", running.http_port, ssl=context, server_hostname=name)
            writer.close()
        await running.stop()
    assert known[0] == known[1]


async def test_without_tls_a_tls_client_is_cut_at_once(tmp_path: Path) -> None:
    running = Server(load_config(config_texts(tmp_path), {}), Clock())
    await running.start()
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await asyncio.wait_for(greeted(running.amqp_port, ssl.create_default_context()), WAIT_S)
    await running.stop()


async def test_certificates_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.pem"
    texts = config_texts(tmp_path, tls_cert=str(wrong), tls_key=str(wrong))
    with pytest.raises(StartError, match=r"there is no file .*wrong\.pem") as refused:
        await Server(load_config(texts, {}), Clock()).start()
    assert refused.value.exit_code == 2
    wrong.write_text("no certificate")
    with pytest.raises(StartError, match=r"wrong\.pem .* are not a certificate and its key"):
        await Server(load_config(texts, {}), Clock()).start()


async def test_a_connection_that_says_nothing_is_cut_after_a_while() -> None:
    clock = Clock()
    ledger = Ledger(clock)
    listener = Listener(lambda account, _: NotReady(account), lambda account, _: NotReady(account), clock, ledger)
    port = listener.listen("127.0.0.1", 0)
    for first in (b"", b"AM"):  # not enough to tell
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(first)
        ended = asyncio.ensure_future(reader.read())
        async with asyncio.timeout(WAIT_S):
            while not ended.done():
                await loop_turns(5)
                clock.advance(SPEAK_WAIT_MS)
        with contextlib.suppress(ConnectionError):  # a reset is as good as an orderly end
            assert await ended == b""
        writer.close()
    await listener.stop()
    assert ledger.socket_count == 0
    clock.close()


@pytest.mark.parametrize("protocol", ["AMQPWSB10", "amqp"])
@pytest.mark.parametrize("path", ["/$servicebus/websocket", "/$servicebus/websocket/"])
async def test_a_websocket_carries_amqp(server: Server, trusting: ssl.SSLContext, path: str, protocol: str) -> None:
    async with aiohttp.ClientSession() as client:
        for url, context in (("http://localhost", None), ("https://localhost", trusting)):
            async with client.ws_connect(
                f"{url}:{server.http_port}{path}", protocols=(protocol,), ssl=context or True
            ) as tunnel:
                assert tunnel.protocol == protocol
                await tunnel.send_bytes(AMQP_HEADER[:3])
                await tunnel.send_bytes(AMQP_HEADER[3:])
                assert (await tunnel.receive_bytes(timeout=WAIT_S))[:8] in {AMQP_HEADER, SASL_HEADER}


async def test_a_websocket_without_the_sub_protocol_is_refused(server: Server) -> None:
    url = f"http://localhost:{server.http_port}/$servicebus/websocket"
    async with aiohttp.ClientSession() as client:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await client.ws_connect(url, protocols=("chat",))
        assert refused.value.status == 400
        async with client.get(url) as answer:
            assert answer.status == 426


async def test_garbage_in_a_websocket_ends_it(server: Server) -> None:
    url = f"http://localhost:{server.http_port}/$servicebus/websocket"
    async with aiohttp.ClientSession() as client, client.ws_connect(url, protocols=("AMQPWSB10",)) as tunnel:
        await tunnel.send_bytes(b"GET / HTTP/1.1\r\n\r\n")
        kinds = [message.type async for message in tunnel]
        assert set(kinds) <= {aiohttp.WSMsgType.BINARY}
        assert tunnel.closed
    async with aiohttp.ClientSession() as client, client.ws_connect(url, protocols=("AMQPWSB10",)) as tunnel:
        await tunnel.send_str("text")
        assert [message async for message in tunnel] == []
        assert tunnel.closed
