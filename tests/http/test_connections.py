"""What clients do to connections beneath requests: dawdle, vanish, send what is no request, or outlive the server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from xml.etree.ElementTree import fromstring

import aiohttp
import pytest

from emubus.broker.clock import Clock
from emubus.broker.ledger import Ledger
from emubus.listener import ACCEPT_PAUSE_MS, SPEAK_WAIT_MS, Listener
from emubus.server import Server
from emubus.tls import ca_file
from emubus.web.limits import IDLE_MS, STRANGER_CHUNK_BYTES
from emubus.web.transport.connection import STALL_MS
from emubus.web.transport.masking import MaskGuard

from ..broker.namespace import loop_turns
from .administering import entry, running

WAIT_S = 60.0
SASL_HEADER = b"AMQP\x03\x01\x00\x00"
WEBSOCKET = "/$servicebus/websocket"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with running(tmp_path) as server:
        yield server


class Line:
    """One connection to the HTTP port, byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def say(self, text: str | bytes) -> None:
        self.writer.write(text if isinstance(text, bytes) else text.encode())

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        """The next answer: status, headers in lower case, body."""
        async with asyncio.timeout(WAIT_S):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
            return int(head[0].split()[1]), headers, await self.reader.readexactly(int(headers["content-length"]))

    async def rest(self) -> bytes:
        """Everything until the server ends the connection; it must."""
        async with asyncio.timeout(WAIT_S):
            with contextlib.suppress(ConnectionError):  # a reset is as good as an orderly end
                return await self.reader.read()
            return b""


@contextlib.asynccontextmanager
async def line(server: Server) -> AsyncIterator[Line]:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.http_port)
    try:
        yield Line(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def is_healthy(server: Server) -> bool:
    async with aiohttp.ClientSession() as client, client.get(f"http://127.0.0.1:{server.http_port}/health") as answer:
        return answer.status == 200


# ---------------------------------------------------------------- clients that dawdle


async def ended(server: Server, client: Line, limit_ms: int) -> bytes:
    """What the server still says on a connection that it ends once a limit has passed, perhaps more than once."""
    rest = asyncio.ensure_future(client.rest())
    while not rest.done():
        await loop_turns(5)
        server.clock.advance(limit_ms)
    return await rest


@pytest.mark.parametrize("said", ["GET /hea", "GET /health HTTP/1.1\r\nHost: x\r\nX: ", "\r\n\r\n"])
async def test_half_a_request_is_waited_for_only_so_long(server: Server, said: str) -> None:
    async with line(server) as slow:
        slow.say(said)
        assert await ended(server, slow, IDLE_MS) == b""
    assert await is_healthy(server)


async def test_headers_that_trickle_are_not_waited_for_longer(server: Server) -> None:
    async with line(server) as slow:
        slow.say("GET /health HTTP/1.1\r\nHost: x\r\nX: ")
        async with asyncio.timeout(WAIT_S):
            while not slow.reader.at_eof():
                with contextlib.suppress(ConnectionError):
                    slow.say("a")
                    await slow.writer.drain()
                    assert await is_healthy(server)
                    server.clock.advance(IDLE_MS // 10)
                    await loop_turns(5)


async def test_a_connection_is_kept_between_requests_for_a_while(server: Server) -> None:
    async with line(server) as client:
        for _ in range(3):
            client.say("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert (await client.answer())[0] == 200
            server.clock.advance(IDLE_MS * 9 // 10)
            await loop_turns(5)
        assert await ended(server, client, IDLE_MS // 5) == b""


@pytest.mark.parametrize("head", ["Content-Length: 1000\r\n\r\n<en", "Transfer-Encoding: chunked\r\n\r\n5\r\n<en"])
async def test_a_body_that_never_ends_is_waited_for_only_so_long(server: Server, head: str) -> None:
    async with line(server) as slow:
        slow.say(f"PUT /never HTTP/1.1\r\nHost: localhost\r\n{head}")
        assert await ended(server, slow, STALL_MS) == b""
    assert server.broker.namespace.entity("never") is None
    assert await is_healthy(server)


async def test_a_body_that_comes_slowly_is_taken(server: Server) -> None:
    body = entry("<QueueDescription/>").encode()
    pieces = 10
    async with line(server) as slow:
        slow.say(f"PUT /slow HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body) + pieces}\r\n\r\n")
        for _ in range(pieces):
            slow.say(b" ")
            assert await is_healthy(server)
            server.clock.advance(STALL_MS * 9 // 10)
        slow.say(body)
        assert (await slow.answer())[0] == 201


async def test_a_client_that_does_not_read_its_answers_is_cut(server: Server) -> None:
    async with line(server) as deaf:
        deaf.reader._transport.pause_reading()  # type: ignore[attr-defined]
        request = b"GET /emubus/v1/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
        async with asyncio.timeout(WAIT_S):
            while not deaf.writer.transport.is_closing():
                if not deaf.writer.transport.get_write_buffer_size():
                    deaf.say(request * 20)
                assert await is_healthy(server)
                server.clock.advance(STALL_MS)


async def test_half_a_tls_hello_is_waited_for_only_so_long(tmp_path: Path) -> None:
    async with running(tmp_path, tls="dev") as server, line(server) as slow:
        slow.say(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
        assert await ended(server, slow, SPEAK_WAIT_MS) == b""
        assert await is_healthy(server)


async def test_hundreds_of_idle_connections_leave_room_for_others(server: Server) -> None:
    beginnings = (
        b"",
        b"G",
        b"AM",
        b"GET / HT",
        SASL_HEADER,
        b"PUT /q HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n",
    )
    async with contextlib.AsyncExitStack() as stack:
        for number in range(300):
            idle = await stack.enter_async_context(line(server))
            idle.say(beginnings[number % len(beginnings)])
        assert await is_healthy(server)


async def test_without_room_for_a_connection_those_who_wait_are_taken_later(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(frozen=True)
    calls = 0

    def refuse(_: socket.socket) -> tuple[socket.socket, object]:
        nonlocal calls
        calls += 1
        raise OSError(24, "Too many open files")

    taken = asyncio.Event()

    class Taken(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            taken.set()
            transport.close()

    listener = Listener(lambda *_: Taken(), lambda *_: Taken(), clock, Ledger(clock))
    port = listener.listen("127.0.0.1", 0)
    with monkeypatch.context() as full:
        full.setattr(socket.socket, "accept", refuse)
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /")
        async with asyncio.timeout(WAIT_S):
            while not calls:
                await loop_turns(1)
        await loop_turns(50)
        assert calls == 1
    clock.advance(ACCEPT_PAUSE_MS)
    await asyncio.wait_for(taken.wait(), WAIT_S)
    writer.close()
    await listener.stop()


# ---------------------------------------------------------------- clients that outlive the server


def idle_tls_client(port: int, folder: Path) -> socket.socket:
    """A TLS connection on which a request was answered, and whose client does nothing from now on."""
    context = ssl.create_default_context(cafile=ca_file(folder))
    plain = socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)
    client = context.wrap_socket(plain, server_hostname="localhost")
    client.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert client.recv(4096).startswith(b"HTTP/1.1 200")
    return socket.socket(fileno=client.detach())


def is_ended(client: socket.socket) -> bool:
    with client, contextlib.suppress(ConnectionError):
        client.settimeout(WAIT_S)
        while client.recv(4096):
            pass
    return True


async def test_a_stop_ends_tls_connections_whose_clients_take_no_part(tmp_path: Path) -> None:
    async with running(tmp_path, tls="dev") as server:
        idle = await asyncio.to_thread(idle_tls_client, server.http_port, tmp_path)
        async with line(server) as silent, line(server) as undecided, line(server) as greeting:
            undecided.say(b"AM")
            greeting.say(b"\x16\x03\x01\x02\x00\x01")
            assert await is_healthy(server)
            await asyncio.wait_for(server.stop(), WAIT_S)
            assert [await each.rest() for each in (silent, undecided, greeting)] == [b"", b"", b""]
    assert await asyncio.to_thread(is_ended, idle)


async def test_a_stop_ends_websockets_in_good_order(server: Server) -> None:
    url = f"http://localhost:{server.http_port}{WEBSOCKET}"
    async with aiohttp.ClientSession() as client, client.ws_connect(url, protocols=("AMQPWSB10",)) as tunnel:
        await tunnel.send_bytes(SASL_HEADER)
        assert (await tunnel.receive_bytes(timeout=WAIT_S))[:8] == SASL_HEADER
        stop = asyncio.create_task(server.stop())
        kinds = [message.type async for message in tunnel]
        assert set(kinds) <= {aiohttp.WSMsgType.BINARY}
        assert tunnel.close_code == aiohttp.WSCloseCode.OK
        await asyncio.wait_for(stop, WAIT_S)


async def test_what_comes_right_behind_a_stranger_s_upgrade_is_handled_in_chunks_and_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chunks: list[int] = []
    feed_data = MaskGuard.feed_data

    def noted(guard: MaskGuard, data: bytes) -> tuple[bool, bytes]:
        chunks.append(len(data))
        return feed_data(guard, data)

    monkeypatch.setattr(MaskGuard, "feed_data", noted)
    pings = [b"%05d" % number for number in range(4_000)]
    behind = b"".join(b"\x89\x85" + bytes(4) + ping for ping in pings)
    async with running(tmp_path, auth="sas") as server, line(server) as client:
        client.say(
            f"GET {WEBSOCKET} HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
            "Sec-WebSocket-Protocol: AMQPWSB10\r\n\r\n".encode()
            + behind
        )
        async with asyncio.timeout(WAIT_S):
            await client.reader.readuntil(b"\r\n\r\n")
            assert [(await client.reader.readexactly(7))[2:] for _ in pings] == pings
    assert max(chunks) <= STRANGER_CHUNK_BYTES
    assert sum(chunks) == len(behind)


# ---------------------------------------------------------------- what is no request


LONG = "x" * 40_000


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (f"GET /emubus/v1/entities?x={LONG} HTTP/1.1\r\n\r\n", "json"),
        (f"GET /emubus/v1/entities HTTP/1.1\r\nX: {LONG}\r\n\r\n", "json"),
        ("GET /emubus/v1/entities HTTP/1.1\r\nContent-Length: a\r\n\r\n", "json"),
        (f"PUT /q?x={LONG} HTTP/1.1\r\n\r\n", "xml"),
        (f"PUT /q HTTP/1.1\r\nX: {LONG}\r\n\r\n", "xml"),
        ("PUT /q HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", "xml"),
        ("PUT /q HTTP/1.1\r\nbad header\x00\r\n\r\n", "xml"),
        ("\x01\x02 <&\x03>\r\n\r\n", "xml"),
        ("PUT /q\x00r HTTP/1.1\r\n\r\n", "xml"),
        (f"GET / HTTP/1.1\r\nX: {LONG}\r\n\r\n", "text"),
    ],
)
async def test_what_is_no_request_is_refused_in_the_form_of_its_part(server: Server, said: str, kind: str) -> None:
    async with line(server) as broken:
        broken.say(said)
        status, headers, body = await broken.answer()
        assert await broken.rest() == b""
    assert status == 400
    if kind == "json":
        assert headers["content-type"] == "application/problem+json"
        error = json.loads(body)["error"]
        assert (error["code"], error["message"][:25]) == ("bad-request", "This is no HTTP request: ")
    elif kind == "xml":
        assert headers["content-type"] == "application/xml; charset=utf-8"
        assert fromstring(body.decode()).findtext("Code") == "400"
    else:
        assert headers["content-type"].startswith("text/plain")
    assert len(body) < 1000
    assert server.broker.namespace.entity("q") is None


@pytest.mark.parametrize("said", ["CONNECT a:1 HTTP/1.1", "OPTIONS * HTTP/1.1"])
async def test_what_is_meant_for_proxies_is_refused(server: Server, said: str) -> None:
    async with line(server) as client:
        client.say(f"{said}\r\nHost: localhost\r\n\r\n")
        status, headers, body = await client.answer()
    assert (status, headers["content-type"]) == (404, "application/xml; charset=utf-8")
    assert f"There is nothing for {said.split()[0]} here." in (fromstring(body.decode()).findtext("Detail") or "")


async def test_an_expectation_that_nobody_knows_is_refused(server: Server) -> None:
    async with line(server) as client:
        client.say("POST /emubus/v1/reset HTTP/1.1\r\nHost: localhost\r\nExpect: miracles\r\nContent-Length: 0\r\n\r\n")
        status, _, body = await client.answer()
    assert (status, json.loads(body)["error"]["message"]) == (417, "'Expect: miracles' is unknown.")


async def test_a_client_that_expects_100_continue_gets_it(server: Server) -> None:
    body = entry("<QueueDescription/>").encode()
    async with line(server) as client:
        client.say(
            f"PUT /told HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        async with asyncio.timeout(WAIT_S):
            assert await client.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.say(body)
        assert (await client.answer())[0] == 201


async def test_requests_that_come_together_are_answered_in_their_order(server: Server) -> None:
    body = entry("<QueueDescription/>")
    async with line(server) as client:
        client.say(
            "GET /first HTTP/1.1\r\nHost: localhost\r\n\r\n"
            f"PUT /first HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n{body}"
            "GET /first HTTP/1.1\r\nHost: localhost\r\n\r\n"
            "DELETE /first HTTP/1.1\r\nHost: localhost\r\n\r\n"
            "GET /emubus/v1/nothing HTTP/1.1\r\nHost: localhost\r\n\r\n"
        )
        answers = [await client.answer() for _ in range(5)]
        client.say("nonsense\r\n\r\n")
        answers.append(await client.answer())
        assert await client.rest() == b""
    assert [status for status, _, _ in answers] == [200, 201, 200, 200, 404, 400]
    assert [b"<entry" in body for _, _, body in answers[:3]] == [False, True, True]
