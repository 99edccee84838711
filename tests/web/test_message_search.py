"""Searching the messages of an entity over HTTP: filters, order, columns, and the body as a file."""

from __future__ import annotations

import html
import re
from collections.abc import AsyncIterator
from urllib.parse import urlencode

import aiohttp
import pytest

from emubus.broker.message.builder import NewMessage
from emubus.broker.model.descriptions import QueueDescription
from emubus.codec.types import Int
from emubus.testing import EmubusServer

from .looking import PAGE
from .namespace import lock, send

HOUR_MS = 3_600_000


@pytest.fixture
async def client(server: EmubusServer) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(f"http://127.0.0.1:{server.http_port}") as session:
        yield session


class Search:
    """The page of messages of one entity."""

    def __init__(self, client: aiohttp.ClientSession, path: str) -> None:
        self._client = client
        self._path = path
        self.text = ""

    async def get(self, status: int = 200, **query: object) -> list[str]:
        """The previews of the messages on the page, in order."""
        pairs = [("path", self._path)]
        for name, value in query.items():
            pairs += [(name.rstrip("_"), str(each)) for each in (value if isinstance(value, list) else [value])]
        return await self.follow(f"{PAGE}/messages?{urlencode(pairs)}", status)

    async def follow(self, address: str, status: int = 200) -> list[str]:
        async with self._client.get(address) as answer:
            self.text = await answer.text()
            assert answer.status == status, self.text
        return [html.unescape(each) for each in re.findall(r'class="preview">([^<]*)<', self.text)]

    @property
    def next(self) -> str | None:
        """The address of the next page."""
        found = re.search(r'rel="next" href="([^"]*)"', self.text)
        return None if found is None else html.unescape(found.group(1))

    def cells(self, label: str) -> list[str]:
        """The texts of a column."""
        return [html.unescape(each) for each in re.findall(rf'<td data-label="{label}"[^>]*>([^<]*)</td>', self.text)]


@pytest.fixture
def search(client: aiohttp.ClientSession, server: EmubusServer, name: str) -> Search:
    """Four hours of orders in a partitioned queue: every third is red, the last one is scheduled."""
    server.create(QueueDescription(name, enable_partitioning=True))
    server.call(server.clock.freeze)
    for n in range(9):
        properties = {"colour": "red" if n % 3 == 0 else "blue", "amount": Int(100 * n)}
        send(server, name, NewMessage(b"order %d" % n, {"message-id": f"id-{n}", "subject": "Order"}, properties))
        server.advance(HOUR_MS // 2)
    later = server.call(server.clock.now_ms) + HOUR_MS
    send(server, name, NewMessage(b"later", {"message-id": "last"}, scheduled_enqueue_at=later))
    return Search(client, name)


async def test_a_text_is_found_in_body_names_and_values(search: Search) -> None:
    assert await search.get(text="ORDER 4") == ["order 4"]
    assert await search.get(text="id-7") == ["order 7"]
    assert sorted(await search.get(text="red")) == ["order 0", "order 3", "order 6"]
    assert len(await search.get(text="colour")) == 9
    assert await search.get(text="nothing like it") == []
    assert "No message matches." in search.text
    assert "0 of 10 messages" in search.text


async def test_a_sql_expression_is_that_of_a_rule(search: Search) -> None:
    assert await search.get(where="colour = 'red' AND amount > 100", order="newest") == ["order 6", "order 3"]
    assert await search.get(where="sys.MessageId = 'id-2'") == ["order 2"]
    assert await search.get(where="sys.Label LIKE 'O%' AND NOT EXISTS(colour)") == []
    assert await search.get(400, where="colour =") == []
    assert 'role="alert"' in search.text
    assert 'aria-invalid="true" aria-describedby="error-filter"' in search.text
    assert "Nothing was searched." in search.text


async def test_messages_of_a_state_and_of_a_time_are_found(search: Search, server: EmubusServer, name: str) -> None:
    assert await search.get(state="scheduled") == ["later"]
    assert len(await search.get(state="active")) == 9
    assert await search.get(state="deferred") == []
    lock(server, name, 2)
    assert len(await search.get(state="locked")) == 2
    assert search.cells("State") == ["active, locked"] * 2
    await search.get(order="newest", text="order 4")
    (at,) = search.cells("Enqueued")
    instant = at.removesuffix(" UTC").replace(" ", "T")
    assert await search.get(after=instant, order="newest", state="active") == [f"order {n}" for n in (8, 7, 6, 5, 4)]
    assert await search.get(before=instant, order="newest") == [f"order {n}" for n in (3, 2, 1, 0)]
    assert await search.get(400, after="yesterday") == []
    assert "After: &#39;yesterday&#39; is not an instant" in search.text


async def test_the_newest_come_first_over_all_partitions_page_by_page(
    client: aiohttp.ClientSession, server: EmubusServer, name: str
) -> None:
    server.create(QueueDescription(name, enable_partitioning=True))
    server.call(server.clock.freeze)
    for n in range(60):
        send(server, name, NewMessage(b"m%d" % n))
        server.advance(1_000)
    search = Search(client, name)
    seen = await search.get(order="newest")
    while search.next is not None:
        seen += await search.follow(search.next)
    assert seen == [f"m{n}" for n in range(59, -1, -1)]


async def test_a_search_goes_on_where_its_page_ended(
    client: aiohttp.ClientSession, server: EmubusServer, name: str
) -> None:
    server.create(QueueDescription(name))
    send(server, name, *(NewMessage(b"m%d" % n, {"subject": "even" if n % 2 == 0 else "odd"}) for n in range(120)))
    search = Search(client, name)
    seen = await search.get(text="even", column=["subject", "count"])
    assert len(seen) == 25
    assert search.cells("Subject") == ["even"] * 25
    while search.next is not None:
        seen += await search.follow(search.next)
        assert set(search.cells("Subject")) <= {"even"}
        assert not search.cells("MessageId")
    assert seen == [f"m{n}" for n in range(0, 120, 2)]


async def test_columns_are_chosen(search: Search) -> None:
    await search.get(text="order 3", column=["id", "session", "expires", "scheduled", "partition"])
    heads = re.findall(r'<th scope="col">([^<]*)</th>', search.text)
    assert heads == ["Number", "MessageId", "SessionId", "Partition", "Expires", "Scheduled"]
    assert search.cells("MessageId") == ["id-3"]
    await search.get(state="scheduled", column="scheduled")
    assert search.cells("Scheduled")[0].endswith(" UTC")


async def test_types_of_properties_and_xml_are_shown(
    client: aiohttp.ClientSession, server: EmubusServer, name: str
) -> None:
    server.create(QueueDescription(name))
    bomb = b'<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>'
    message = NewMessage(b"<a><b>1</b><c/></a>", application_properties={"n": Int(7), "s": "7", "x": True})
    send(server, name, message, NewMessage(bomb), NewMessage(b"<no markup"))
    search = Search(client, name)
    assert len(await search.get()) == 3
    assert "&lt;a&gt;\n  &lt;b&gt;1&lt;/b&gt;\n  &lt;c/&gt;\n&lt;/a&gt;" in search.text
    assert re.findall(r'Body <span class="badge">([^<]*)<', search.text) == ["XML", "text", "text"]
    types = re.findall(r'<dd>([^<]*) <span class="badge">([a-z]+)</span></dd>', search.text)
    assert types == [("7", "int"), ("7", "string"), ("true", "boolean")]


async def test_a_whole_body_is_a_file(client: aiohttp.ClientSession, server: EmubusServer, name: str) -> None:
    server.create(QueueDescription(name, enable_partitioning=True))
    body = bytes(range(256)) * 1_000
    send(server, name, NewMessage(body, partition_key="k"), NewMessage(b'{"a": 1}', partition_key="k"))
    search = Search(client, name)
    await search.get()
    addresses = [html.unescape(each) for each in re.findall(rf'href="({PAGE}/body[^"]*)"', search.text)]
    async with client.get(addresses[0]) as answer:
        assert (await answer.read(), answer.content_type) == (body, "application/octet-stream")
        assert answer.headers["Content-Disposition"].endswith('.bin"')
    async with client.get(addresses[1]) as answer:
        assert (await answer.read()) == b'{"a": 1}'
        assert answer.headers["Content-Disposition"].endswith('.json"')
    async with client.get(f"{PAGE}/body", params={"path": name, "number": "5"}) as answer:
        assert (answer.status, "has no message 5 now" in await answer.text()) == (404, True)


async def test_a_link_to_a_message_opens_it(search: Search) -> None:
    await search.get(text="order 5")
    link = re.search(r'<th scope="row" class="mono"><a href="([^"]*)"', search.text)
    assert link is not None
    await search.follow(html.unescape(link.group(1)))
    opened = re.findall(r"<details open>\s*<summary><span class=\"preview\">([^<]*)<", search.text)
    assert opened == ["order 5"]


async def test_a_sql_expression_reads_every_system_property(
    client: aiohttp.ClientSession, server: EmubusServer, name: str
) -> None:
    server.create(QueueDescription(name, enable_partitioning=True))
    properties = {"message-id": "m", "subject": "s", "content-type": "c", "to": "t", "correlation-id": "x"}
    send(server, name, NewMessage(b"body", properties, {"Own": Int(7)}, "key", ttl_ms=60_000), NewMessage(b"\x00"))
    search = Search(client, name)
    for where in (
        "sys.MessageId = 'm' AND sys.Label = 's' AND sys.ContentType = 'c' AND sys.To = 't'",
        "sys.CorrelationId = 'x' AND sys.ReplyTo IS NULL",
        "own = 7",
        "EXISTS(OWN)",
        "sys.PartitionKey = 'key'",
        "sys.SequenceNumber > 0 AND sys.Label LIKE 's'",
        "sys.TimeToLive IS NOT NULL",
        "sys.Size > 0 AND own > 6",
        "sys.EnqueuedTimeUtc IS NOT NULL AND own < 8",
    ):
        assert await search.get(where=where) == ["body"], where
    assert await search.get(where="sys.Label IS NULL") == ["(binary)"]
