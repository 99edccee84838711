"""Web pages of others: what browsers send for them does nothing, and programs and our own page go on as ever."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import aiohttp
import pytest
from aiohttp.test_utils import make_mocked_request

from emubus.broker.hosts import is_local_name
from emubus.broker.model.descriptions import QueueDescription
from emubus.server import Server
from emubus.web.transport.origins import problem_of

from .administering import entry, running

WEBSOCKET = "/$servicebus/websocket"
BROWSER = {"Accept-Language": "en"}


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with running(tmp_path) as server:
        yield server


async def status_of(server: Server, method: str, path: str, headers: Mapping[str, str], body: str = "") -> int:
    given = {name: value.replace("PORT", str(server.http_port)) for name, value in headers.items()}
    async with (
        aiohttp.ClientSession() as client,
        client.request(method, f"http://127.0.0.1:{server.http_port}{path}", headers=given, data=body) as answer,
    ):
        await answer.read()
        return answer.status


FOREIGN = [
    {"Origin": "https://evil.example", **BROWSER},
    {"Origin": "null", **BROWSER},
    {"Origin": "http://[", **BROWSER},
    {"Origin": "http://localhost:3000", "Host": "localhost:PORT", **BROWSER},
    {"Sec-Fetch-Site": "cross-site", **BROWSER},
    {"Sec-Fetch-Site": "same-site", "Origin": "http://localhost:PORT", "Host": "localhost:PORT", **BROWSER},
    {"Origin": "http://evil.example:PORT", "Host": "evil.example:PORT", **BROWSER},  # DNS rebinding
    {"Sec-Fetch-Site": "same-origin", "Host": "evil.example.:PORT", **BROWSER},
]


@pytest.mark.parametrize("headers", FOREIGN)
async def test_a_page_of_others_changes_nothing(server: Server, headers: dict[str, str]) -> None:
    server.broker.administration.create(QueueDescription("mine"))
    body = entry("<QueueDescription/>")
    assert [
        await status_of(server, "POST", "/emubus/v1/reset", headers, '{"to":"config"}'),
        await status_of(server, "POST", "/emubus/v1/entities/mine/purge", headers),
        await status_of(server, "PUT", "/theirs", headers, body),
        await status_of(server, "DELETE", "/mine", headers),
    ] == [403] * 4
    assert server.broker.namespace.entity("mine") is not None
    assert server.broker.namespace.entity("theirs") is None
    server.broker.administration.delete("mine")


OWN = [
    {},  # a program
    {"Host": "emubus.example.com"},  # a program, by any name
    {"Host": "emubus.example.com", "User-Agent": "Mozilla/5.0 (Windows NT) WindowsPowerShell/5.1"},
    {"Host": "localhost:PORT", "Origin": "http://localhost:PORT", **BROWSER},
    {"Host": "emubus:5300", "Origin": "http://EMUBUS:5300", **BROWSER},
    {"Host": "10.0.0.7:32768", "Sec-Fetch-Site": "same-origin", "Origin": "http://10.0.0.7:32768", **BROWSER},
    {"Host": "[::1]:5300", "Origin": "http://[::1]:5300", **BROWSER},
    {"Host": "emubus:5300", "Sec-Fetch-Site": "same-origin", "Origin": "https://proxy.example.com", **BROWSER},
    {"Host": "localhost:PORT", "Sec-Fetch-Site": "none", **BROWSER},  # typed by the user
]


@pytest.mark.parametrize("headers", OWN)
async def test_programs_and_the_servers_own_page_change_what_they_like(server: Server, headers: dict[str, str]) -> None:
    assert await status_of(server, "PUT", "/made", headers, entry("<QueueDescription/>")) == 201
    assert await status_of(server, "POST", "/emubus/v1/entities/made/purge", headers) == 200
    assert await status_of(server, "DELETE", "/made", headers) == 200


@pytest.mark.parametrize("path", ["/", "/emubus/v1/entities", "/emubus/page/namespace", "/queue.1", "/health"])
async def test_a_page_by_a_name_that_anybody_can_point_here_reads_nothing(server: Server, path: str) -> None:
    rebound = {"Host": "evil.example", "Accept": "text/html", **BROWSER}
    assert await status_of(server, "GET", path, rebound) == 403
    opened = {"Host": "evil.example", "Accept": "text/html", "Upgrade-Insecure-Requests": "1"}
    assert await status_of(server, "GET", path, opened) == 403
    assert await status_of(server, "GET", path, {**rebound, "Host": "localhost"}) == 200


async def test_no_page_of_others_gets_leave_to_read(server: Server) -> None:
    url = f"http://localhost:{server.http_port}/emubus/v1/entities"
    asked = {"Origin": "https://evil.example", "Access-Control-Request-Method": "GET"}
    async with aiohttp.ClientSession() as client:
        for method in ("GET", "OPTIONS"):
            async with client.request(method, url, headers=asked) as answer:
                assert [name for name in answer.headers if name.lower().startswith("access-control")] == []
        async with client.options(url, headers=asked) as answer:
            assert answer.status == 405


WEBSOCKETS = [
    (None, "localhost:PORT", "none", 101),
    (None, "emubus.example.com", "none", 101),
    ("http://localhost:PORT", "localhost:PORT", "none", 101),
    ("http://localhost:3000", "localhost:PORT", "none", 101),
    ("http://127.0.0.1:3000", "localhost:PORT", "none", 101),
    ("http://app.localhost", "localhost:PORT", "none", 101),
    ("http://emubus:8080", "emubus:PORT", "none", 101),
    ("https://evil.example", "localhost:PORT", "none", 403),
    ("null", "localhost:PORT", "none", 403),
    ("http://evil.example:PORT", "evil.example:PORT", "none", 403),
    ("https://evil.example", "localhost:PORT", "sas", 101),
]


@pytest.mark.parametrize(("origin", "host", "auth", "status"), WEBSOCKETS)
async def test_amqp_is_spoken_by_pages_of_this_machine_and_by_others_with_a_key(
    tmp_path: Path, origin: str | None, host: str, auth: str, status: int
) -> None:
    async with running(tmp_path, auth=auth) as server:
        given = {"Host": host, **({} if origin is None else {"Origin": origin, **BROWSER})}
        headers = {name: value.replace("PORT", str(server.http_port)) for name, value in given.items()}
        async with aiohttp.ClientSession() as client:
            url = f"http://127.0.0.1:{server.http_port}{WEBSOCKET}"
            try:
                async with client.ws_connect(url, protocols=("AMQPWSB10",), headers=headers):
                    found = 101
            except aiohttp.WSServerHandshakeError as refused:
                found = refused.status
    assert found == status


@pytest.mark.parametrize(
    ("host", "is_local"),
    [
        ("localhost", True),
        ("emubus", True),
        ("", True),
        ("127.0.0.1", True),
        ("fe80::1", True),
        ("192.168.0.7", True),
        ("host.docker.internal", True),
        ("emubus.default.svc", True),
        ("emubus.default.svc.cluster.local", True),
        ("myspace.servicebus.windows.net", True),
        ("evil.example", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.nip.io", False),
        ("evil-servicebus.windows.net", False),
    ],
)
def test_a_name_is_local_if_nobody_else_can_point_it_here(host: str, is_local: bool) -> None:
    assert is_local_name(host) is is_local


async def test_a_name_that_is_allowed_is_one_of_the_servers_own() -> None:
    async def problem(host: str) -> str | None:
        return problem_of(
            make_mocked_request("GET", "/", headers={"Host": host, "Sec-Fetch-Site": "none", "Origin": "http://x"}),
            {"emubus.dev.example.com"},
            verifies_keys=False,
        )

    assert await problem("emubus.dev.example.com:5300") is None
    assert await problem("EMUBUS.dev.example.com.") is None
    assert "--allowed-host" in (await problem("evil.example.com") or "")


async def asked(
    server: Server, method: str, path: str, headers: Mapping[str, str], body: str = ""
) -> tuple[int, dict[str, str]]:
    """The status of an answer, and its headers for browsers."""
    given = {name: value.replace("PORT", str(server.http_port)) for name, value in headers.items()}
    async with (
        aiohttp.ClientSession() as client,
        client.request(method, f"http://127.0.0.1:{server.http_port}{path}", headers=given, data=body) as answer,
    ):
        await answer.read()
        of_browsers = {name: value for name, value in answer.headers.items() if name.startswith("Access-Control")}
        return answer.status, of_browsers


PAGE_OF_DEVELOPER = {
    "Origin": "http://localhost:3000",
    "Host": "localhost:PORT",
    "Sec-Fetch-Site": "same-site",
    **BROWSER,
}
PREFLIGHT = {"Access-Control-Request-Method": "PUT", "Access-Control-Request-Headers": "authorization,content-type"}
TOKEN = {"Authorization": "SharedAccessSignature sr=x&sig=y&se=1&skn=z"}
READABLE = {"Access-Control-Allow-Origin": "http://localhost:3000", "Access-Control-Expose-Headers": "*"}
OF_SERVICE = [
    ("PUT", "/q?api-version=2021-05", entry("<QueueDescription/>"), 201),
    ("GET", "/q?api-version=2021-05", "", 200),
    ("GET", "/$Resources/queues", "", 200),
    ("PUT", "/t", entry("<TopicDescription/>"), 201),
    ("PUT", "/t/subscriptions/s", entry("<SubscriptionDescription/>"), 201),
    ("GET", "/t/subscriptions/s", "", 200),
    ("POST", "/q/messages", "hello", 201),
    ("POST", "/q/messages/head?timeout=0", "", 201),
    ("DELETE", "/q/messages/head?timeout=0", "", 204),
    ("DELETE", "/t/subscriptions/none", "", 404),
]


async def test_a_page_that_may_speak_amqp_may_be_a_client_of_rest_and_of_management(server: Server) -> None:
    for method, path, body, status in OF_SERVICE:
        found, headers = await asked(server, "OPTIONS", path, PAGE_OF_DEVELOPER | PREFLIGHT)
        assert (found, headers["Access-Control-Allow-Origin"]) == (204, "http://localhost:3000")
        assert method in headers["Access-Control-Allow-Methods"]
        assert headers["Access-Control-Allow-Headers"] == "authorization,content-type"
        assert await asked(server, method, path, PAGE_OF_DEVELOPER | TOKEN, body) == (status, READABLE)


async def test_without_a_token_that_page_changes_nothing(server: Server) -> None:
    for method, path, body, _ in OF_SERVICE:
        if method != "GET":
            assert await status_of(server, method, path, PAGE_OF_DEVELOPER, body) == 403
    assert [entity.path for entity in server.broker.namespace.entities()] == ["queue.1"]


OTHERS = [
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Origin": "http://localhost:3000, https://evil.example"},
    {"Origin": "http://localhost@evil.example"},
    {"Origin": "http://localhost.evil.example"},
    {"Origin": "http://evil.example:PORT", "Host": "evil.example:PORT"},  # DNS rebinding
    {"Origin": "http://localhost:3000", "Host": "evil.example:PORT"},
    {"Origin": "chrome-extension://localhost"},
]


@pytest.mark.parametrize("headers", OTHERS)
async def test_other_pages_get_no_leave_and_change_nothing_with_a_token(
    server: Server, headers: dict[str, str]
) -> None:
    for path in ("/q", "/q/messages", "/t/subscriptions/s"):
        status, of_browsers = await asked(server, "OPTIONS", path, headers | BROWSER | PREFLIGHT)
        assert (status in (400, 403), of_browsers) == (True, {})
        status, of_browsers = await asked(server, "PUT", path, headers | BROWSER | TOKEN, entry("<QueueDescription/>"))
        assert (status, of_browsers) == (403, {})


@pytest.mark.parametrize(
    "path", ["/emubus/v1/entities", "/EMUBUS/v1/entities", "/emubus/page/namespace", "/emubus", "/health", "/metrics"]
)
async def test_our_own_paths_are_closed_to_all_other_pages(server: Server, path: str) -> None:
    status, of_browsers = await asked(server, "OPTIONS", path, PAGE_OF_DEVELOPER | PREFLIGHT)
    assert (status in (400, 403, 404, 405), of_browsers) == (True, {})
    assert await asked(server, "POST", path, PAGE_OF_DEVELOPER | TOKEN) == (403, {})
    assert (await asked(server, "GET", path, PAGE_OF_DEVELOPER | TOKEN))[1] == {}


async def test_with_keys_a_page_of_any_origin_is_a_client_and_its_token_decides(tmp_path: Path) -> None:
    page = {"Origin": "https://app.example", "Host": "emubus.example:PORT", "Sec-Fetch-Site": "cross-site", **BROWSER}
    async with running(tmp_path, auth="sas") as server:
        status, headers = await asked(server, "OPTIONS", "/q", page | PREFLIGHT)
        assert (status, headers["Access-Control-Allow-Origin"]) == (204, "https://app.example")
        status, headers = await asked(server, "PUT", "/q", page | TOKEN, entry("<QueueDescription/>"))
        assert (status, headers["Access-Control-Allow-Origin"]) == (401, "https://app.example")
        assert await status_of(server, "PUT", "/q", page, entry("<QueueDescription/>")) == 403
