"""Whether the server says that it is ready, before and after the HTTP server is loaded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from jinja2 import Environment

from emubus.broker.clock import Clock
from emubus.config import load_config
from emubus.server import Server
from emubus.web.page import site

from . import administering

HEALTHY = {"status": "healthy", "message": "Service is healthy."}
UNHEALTHY = {"status": "unhealthy", "message": "Service not available. Please try after some time."}
PLAIN = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
WAIT_S = 60.0  # ends a hang


@asynccontextmanager
async def running() -> AsyncIterator[Server]:
    server = Server(load_config({"durability": "none", "amqp_port": "0", "http_port": "0"}, {}), Clock())
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


class Client:
    """A connection that sends bytes as they are."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def ask(self, request: bytes) -> tuple[bytes, bytes]:
        """The head and the body of the answer."""
        self.writer.write(request)
        async with asyncio.timeout(WAIT_S):
            head = await self.reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            return head, await self.reader.readexactly(length)

    async def is_ended(self) -> bool:
        try:
            async with asyncio.timeout(WAIT_S):
                return await self.reader.read() == b""
        except ConnectionError:  # cut, not closed
            return True


@asynccontextmanager
async def connected(server: Server) -> AsyncIterator[Client]:
    client = Client(*await asyncio.open_connection("127.0.0.1", server.http_port))
    try:
        yield client
    finally:
        client.writer.close()


def is_from_aiohttp(head: bytes) -> bool:
    return b"Server: " in head


@pytest.mark.parametrize("loads", [False, True])
@pytest.mark.parametrize("path", ["/health/", "/Health", "/HEALTH/", "/healthz/", "/Readyz", "/LiveZ/"])
async def test_case_and_a_slash_at_the_end_do_not_matter(path: str, loads: bool) -> None:
    async with running() as server, aiohttp.ClientSession() as client:
        server.ready = True
        headers = {"Accept-Language": "en"} if loads else {}
        for method in ("GET", "HEAD"):
            async with client.request(method, f"http://127.0.0.1:{server.http_port}{path}", headers=headers) as answer:
                assert (answer.status, answer.content_type) == (200, "application/json")
        server.ready = False
        async with client.get(f"http://127.0.0.1:{server.http_port}{path}", headers=headers) as answer:
            assert answer.status == (200 if "live" in path.lower() else 503)


async def test_the_root_answers_those_who_ask_it_in_place_of_health() -> None:
    async with running() as server, aiohttp.ClientSession() as client:
        server.ready = True
        for method in ("GET", "HEAD"):  # curl -f and wget --spider
            async with client.request(method, f"http://127.0.0.1:{server.http_port}/") as answer:
                assert answer.status == 200


@pytest.mark.parametrize("loads", [False, True])
async def test_health_is_no_while_the_server_is_not_ready(loads: bool) -> None:
    async with running() as server, aiohttp.ClientSession() as client:
        url = f"http://127.0.0.1:{server.http_port}/health"
        headers = {"Accept-Language": "en"} if loads else {}  # a browser's header, for which the server has rules
        for ready, status, body in ((False, 503, UNHEALTHY), (True, 200, HEALTHY)):
            server.ready = ready
            async with client.get(url, headers=headers) as answer:
                assert (answer.status, await answer.json()) == (status, body)
                assert answer.content_type == "application/json"
                assert ("Server" in answer.headers) is loads


@pytest.mark.parametrize("loads", [False, True])
async def test_probes_have_names_of_their_own_which_are_never_those_of_entities(loads: bool) -> None:
    headers = {"Accept-Language": "en"} if loads else {}
    async with running() as server, aiohttp.ClientSession(f"http://127.0.0.1:{server.http_port}") as client:
        for ready, status in ((False, 503), (True, 200)):
            server.ready = ready
            for path, expected in (("/readyz", status), ("/healthz", status), ("/livez", 200)):
                async with client.get(path, headers=headers) as answer:
                    assert (answer.status, answer.content_type) == (expected, "application/json"), path
                    assert ("Server" in answer.headers) is loads
                    assert (await answer.json())["status"] == ("healthy" if expected == 200 else "unhealthy")


async def test_a_health_check_does_not_load_the_http_server_and_another_request_on_its_connection_does() -> None:
    async with running() as server, connected(server) as client:
        for _ in range(2):
            head, _body = await client.ask(PLAIN)
            assert not is_from_aiohttp(head)
        head, _body = await client.ask(b"GET /emubus/v1/none HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert is_from_aiohttp(head)
        assert head.startswith(b"HTTP/1.1 404 ")
        head, _body = await client.ask(PLAIN)
        assert is_from_aiohttp(head)


async def test_requests_that_come_while_the_http_server_loads_are_all_answered() -> None:
    async with running() as server, aiohttp.ClientSession() as client:

        async def status_of(path: str) -> int:
            async with client.get(f"http://127.0.0.1:{server.http_port}{path}") as answer:
                return answer.status

        paths = ["/metrics", "/emubus/v1/openapi.json", "/emubus/page/create", "/health"] * 5
        assert await asyncio.gather(*map(status_of, paths)) == [200] * len(paths)


async def test_the_page_is_compiled_once_for_all_requests_that_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[Environment] = []
    compile_templates = site._templates

    def noted() -> Environment:
        compiled.append(compile_templates())
        return compiled[-1]

    monkeypatch.setattr(site, "_templates", noted)
    async with running() as server, aiohttp.ClientSession() as client:

        async def status() -> int:
            async with client.get(f"http://127.0.0.1:{server.http_port}/emubus/page/create") as answer:
                return answer.status

        assert await asyncio.gather(*(status() for _ in range(8))) == [200] * 8
    assert len(compiled) == 1


async def test_a_health_check_that_comes_byte_by_byte_is_answered() -> None:
    async with running() as server, connected(server) as client:
        for byte in PLAIN[:-1]:
            client.writer.write(bytes([byte]))
            await client.writer.drain()
        head, body = await client.ask(PLAIN[-1:])
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        assert body == b'{"status": "healthy", "message": "Service is healthy."}'


@pytest.mark.parametrize(
    ("request_bytes", "stays"),
    [
        (PLAIN, True),
        (b"GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", False),
        (b"GET /health HTTP/1.0\r\n\r\n", False),
        (b"GET /health HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", True),
    ],
)
async def test_a_health_check_keeps_its_connection_as_the_client_asks(request_bytes: bytes, stays: bool) -> None:
    async with running() as server, connected(server) as client:
        head, _body = await client.ask(request_bytes)
        assert not is_from_aiohttp(head)
        if stays:
            assert (await client.ask(PLAIN))[0].startswith(b"HTTP/1.1 200 ")
        else:
            assert await client.is_ended()


@pytest.mark.parametrize(
    "request_bytes",
    [
        PLAIN + PLAIN,
        b"GET /health HTTP/1.1\r\nHost: a\r\nOrigin: http://elsewhere\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: a\r\nUser-Agent: " + b"x" * 3_000 + b"\r\n\r\n",
    ],
)
async def test_a_health_check_that_is_not_plain_is_for_the_http_server(request_bytes: bytes) -> None:
    async with running() as server, connected(server) as client:
        head, _body = await client.ask(request_bytes)
        assert is_from_aiohttp(head)


async def test_a_stop_cuts_connections_that_have_asked_for_health_only() -> None:
    async with running() as server, connected(server) as client:
        await client.ask(PLAIN)
        await server.stop()
        assert await client.is_ended()


async def test_entities_of_the_names_of_other_endpoints_are_used_by_the_verbs_that_those_leave(tmp_path: Path) -> None:
    async with administering.running(tmp_path) as server, administering.raw(server) as http:
        for name, taken in (("health", "application/json"), ("metrics", "text/plain"), ("livez", "application/json")):
            assert (await http.put(f"/{name}", "<QueueDescription/>")).status == 201
            assert (await http.put(f"/{name}", "<QueueDescription/>", update=True)).status == 200
            assert (await http("POST", f"/{name}/messages", "x")).status == 201
            assert (await http("DELETE", f"/{name}/messages/head?timeout=0")).text == "x"
            url = f"http://127.0.0.1:{server.http_port}/{name}"
            async with aiohttp.ClientSession() as client, client.get(url) as answer:
                assert (answer.status, answer.content_type) == (200, taken)
            assert (await http("DELETE", f"/{name}")).status == 200
        for name in ("emubus", "emubus/v1", "emubus/orders"):
            assert (await http.put(f"/{name}", "<QueueDescription/>")).status == 404
            assert server.broker.namespace.entity(name) is None


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        (PLAIN, 200),
        (b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", 200),
        (b"GET /emubus/v1/clock HTTP/1.1\r\nHost: localhost\r\n\r\n", 200),
        (b"GET /emubus/v1/none HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
        (b"PATCH /q HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET /none HTTP/9.9\r\nHost: localhost\r\n\r\n", 400),
        (b"GET /emubus/v1/clock HTTP/9.9\r\nHost: localhost\r\n\r\n", 400),
        (b"no request\r\n\r\n", 400),
        (b"POST /emubus/v1/reset HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\n\r\n", 403),
    ],
)
async def test_no_browser_takes_an_answer_for_something_else_than_it_says(asked: bytes, status: int) -> None:
    async with running() as server, connected(server) as client:
        client.writer.write(asked)
        async with asyncio.timeout(WAIT_S):
            head = await client.reader.readuntil(b"\r\n\r\n")
        assert (head.split(b" ", 2)[1], b"X-Content-Type-Options: nosniff" in head) == (str(status).encode(), True)
