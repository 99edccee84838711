"""The state of a message session on the page, over HTTP: shown, downloaded, set, cleared, and refused."""

from __future__ import annotations

import html
import re
from collections.abc import AsyncIterator

import aiohttp
import pytest

from emubus.broker.admin.overview import Overview
from emubus.broker.api import OutageKind
from emubus.broker.message.builder import NewMessage
from emubus.broker.model.descriptions import QueueDescription
from emubus.testing import EmubusServer

from .looking import PAGE
from .namespace import hold, holders, send, set_state

EVIL = "</textarea></pre><script>alert(1)</script>"


@pytest.fixture
async def client(server: EmubusServer) -> AsyncIterator[aiohttp.ClientSession]:
    base = f"http://127.0.0.1:{server.http_port}"
    async with aiohttp.ClientSession(base, headers={"Accept": "text/html", "Origin": base}) as session:
        yield session


@pytest.fixture
def queue(server: EmubusServer, name: str) -> str:
    server.create(QueueDescription(name, requires_session=True, enable_partitioning=True))
    return name


async def page_of(client: aiohttp.ClientSession, path: str, session: str) -> str:
    async with client.get(f"{PAGE}/sessions", params={"path": path, "session": session}) as answer:
        assert answer.status == 200
        return await answer.text()


def shown(text: str) -> tuple[str, str, str]:
    """The kind of the state on a page, its text, and what the form is filled in with."""
    found = re.search(r'<span class="badge">(\w+)</span></h2>\s*<pre[^>]*>(.*?)</pre>', text, re.DOTALL)
    area = re.search(r'<textarea id="f-state"[^>]*>\n(.*?)</textarea>', text, re.DOTALL)
    assert found is not None
    assert area is not None
    return html.unescape(found[1]), html.unescape(found[2]), html.unescape(area[1])


async def post(client: aiohttp.ClientSession, path: str, session: str, **fields: str) -> tuple[int, str]:
    data = {"path": path, "session": session, "do": "set", "state_form": "text", **fields}
    async with client.post(f"{PAGE}/session-state", data=data) as answer:
        return answer.status, html.unescape(await answer.text())


def state_of(server: EmubusServer, path: str, session: str) -> bytes | None:
    def look() -> bytes | None:
        overview = Overview(server.server.broker.namespace)
        return overview.session_state(overview.entity(path), session)

    return server.call(look)


async def test_json_is_indented_text_is_unchanged_and_other_bytes_are_hexadecimal(
    client: aiohttp.ClientSession, server: EmubusServer, queue: str
) -> None:
    states = {
        b'{"step":2.50}': ("JSON", '{\n  "step": 2.50\n}', '{"step":2.50}', "json"),
        "läuft".encode(): ("text", "läuft", "läuft", "txt"),
        b"\xff\x00": ("binary", f"000000  {'ff 00':<48} ..", "ff 00", "bin"),
        b"a\r\nb": ("text", "a\nb", "61 0d 0a 62", "txt"),
        b"\n\nx": ("text", "\n\nx", "\n\nx", "txt"),
        EVIL.encode(): ("text", EVIL, EVIL, "txt"),
    }
    for state, (kind, text, given, ending) in states.items():
        set_state(server, queue, EVIL, state)
        page = await page_of(client, queue, EVIL)
        assert (EVIL in page, "<script>alert" in page) == (False, False)
        assert shown(page) == (kind, text if kind != "text" or "\r" not in state.decode() else "a\r\nb", given)
        async with client.get(f"{PAGE}/session-state", params={"path": queue, "session": EVIL}) as answer:
            assert (await answer.read(), answer.content_type) == (state, "application/octet-stream")
            assert answer.headers["Content-Disposition"] == f'attachment; filename="session-state.{ending}"'
    assert holders(server, queue) == {EVIL: None}


async def test_a_long_state_is_cut_and_downloaded_whole(
    client: aiohttp.ClientSession, server: EmubusServer, queue: str
) -> None:
    for state, cut in ((b"x" * 70_000, "4464 more characters"), (b"\xff" * 5_000, "904 more bytes")):
        set_state(server, queue, "s", state)
        page = await page_of(client, queue, "s")
        assert cut in page
        assert "too long for this form" in page
        async with client.get(f"{PAGE}/session-state", params={"path": queue, "session": "s"}) as answer:
            assert await answer.read() == state


async def test_a_state_is_set_and_cleared(client: aiohttp.ClientSession, server: EmubusServer, queue: str) -> None:
    assert "The session has no state." in await page_of(client, queue, "s/1")
    status, text = await post(client, queue, "s/1", state="a\r\nb")
    assert (status, "The state of session 's/1' was set: 3 B." in text) == (200, True)
    assert state_of(server, queue, "s/1") == b"a\nb"
    await post(client, queue, "s/1", state="00 ff", state_form="hex")
    assert state_of(server, queue, "s/1") == b"\x00\xff"
    assert holders(server, queue) == {"s/1": None}
    _, text = await post(client, queue, "s/1", do="clear")
    assert "The state of session 's/1' was cleared." in text
    assert "was cleared" in (await post(client, queue, "s/1", state=""))[1]
    assert state_of(server, queue, "s/1") is None
    async with client.get(f"{PAGE}/session-state", params={"path": queue, "session": "s/1"}) as answer:
        assert answer.status == 404


async def test_what_is_refused_stands_beside_the_form_and_names_the_holder(
    client: aiohttp.ClientSession, server: EmubusServer, queue: str
) -> None:
    set_state(server, queue, "s", b"old")
    status, text = await post(client, queue, "s", state="no bytes", state_form="hex")
    assert (status, "State: 'no bytes' is not bytes in hexadecimal" in text) == (400, True)
    status, text = await post(client, queue, "s", state="x" * 300_000)
    assert (status, "300000" in text) == (403, True)
    holder = hold(server, queue, "s", "orders 1.0")
    status, text = await post(client, queue, "s", state="new")
    assert "The state of session 's' can't be set: the session is held by orders 1.0." in text
    assert (shown(text)[1:], holders(server, queue)) == (("old", "new"), {"s": "orders 1.0"})
    assert status >= 400
    server.call(holder.close)
    assert (await post(client, queue, "", state="new"))[0] == 400
    assert state_of(server, queue, "s") == b"old"


async def test_a_session_that_the_page_holds_stays_held(
    client: aiohttp.ClientSession, server: EmubusServer, queue: str
) -> None:
    send(server, queue, NewMessage(b"x", {"group-id": "s"}))
    (message,) = server.peek(queue)
    data = {"path": queue, "queue": "active", "verb": "lock", "number": str(message.sequence_number)}
    async with client.post(f"{PAGE}/act", data=data) as answer:
        assert answer.status == 200
    await post(client, queue, "s", state="new")
    assert state_of(server, queue, "s") == b"new"
    assert holders(server, queue) == {"s": "the web page"}


async def test_a_state_in_a_store_that_is_down_is_not_shown_as_none(
    client: aiohttp.ClientSession, server: EmubusServer, queue: str
) -> None:
    set_state(server, queue, "s", b"old")
    server.begin_outage(range(16), OutageKind.DOWN)
    try:
        async with client.get(f"{PAGE}/sessions", params={"path": queue, "session": "s"}) as answer:
            assert (answer.status, "it is down" in await answer.text()) == (503, True)
    finally:
        server.end_outage(range(16))
