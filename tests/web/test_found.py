"""What a search finds, counted, grouped and acted on; two messages compared; any property edited. Over HTTP."""

from __future__ import annotations

import html
import re
import uuid
from collections.abc import AsyncIterator, Mapping
from typing import Final
from urllib.parse import parse_qsl

import aiohttp
import pytest

from emubus.broker.address import SubQueue
from emubus.broker.admin.overview import Overview
from emubus.broker.api import OutageKind
from emubus.broker.message.builder import NewMessage
from emubus.broker.model.descriptions import QueueDescription
from emubus.codec.json_values import from_json
from emubus.codec.types import (
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float,
    Int,
    Long,
    Short,
    Symbol,
    Timestamp,
    Ubyte,
    Uint,
    Ulong,
    Ushort,
)
from emubus.testing import EmubusServer
from emubus.web.messages.json_lines import line_of
from emubus.web.page.message_form import PROPERTY_TYPES

from .looking import PAGE
from .namespace import counts, lock, send

VALUES: Final[Mapping[str, object]] = {
    "string": "text",
    "two lines": "one\ntwo",
    "empty": "",
    "spaces": " x ",
    "boolean": True,
    "int": Int(-5),
    "long": Long(1 << 60),
    "byte": Byte(-128),
    "short": Short(-3),
    "ubyte": Ubyte(255),
    "ushort": Ushort(9),
    "uint": Uint(1 << 31),
    "ulong": Ulong((1 << 64) - 1),
    "float": Float(0.5),
    "double": 1.5e-9,
    "not a number": float("inf"),
    "decimal32": Decimal32(bytes.fromhex("32800001")),
    "decimal64": Decimal64(bytes.fromhex("31c0000000000011")),
    "decimal128": Decimal128(bytes.fromhex("303c0000000000000000000000000011")),
    "char": Char("ö"),
    "timestamp": Timestamp(1_700_000_000_123),
    "uuid": uuid.UUID(int=7),
    "binary": b"\x00\xff",
    "symbol": Symbol("name"),
    "null": None,
    "time span": Described(Symbol("com.microsoft:timespan"), Long(600_000_000)),
    "list": ["a", Long(1)],
    "array": Array(0x54, (Int(1), Int(2))),
}
"""A value of each AMQP type, and those that a field of one line can't hold as they are."""


@pytest.fixture
async def client(server: EmubusServer) -> AsyncIterator[aiohttp.ClientSession]:
    base = f"http://127.0.0.1:{server.http_port}"
    async with aiohttp.ClientSession(base, headers={"Accept": "text/html", "Origin": base}) as session:
        yield session


async def shown(client: aiohttp.ClientSession, view: str, *query: tuple[str, str]) -> str:
    async with client.get(f"{PAGE}/{view}", params=list(query)) as answer:
        text = html.unescape(await answer.text())
        assert answer.status == 200, text
        return text


async def posted(client: aiohttp.ClientSession, view: str, *fields: tuple[str, str]) -> tuple[int, str]:
    async with client.post(f"{PAGE}/{view}", data=list(fields)) as answer:
        return answer.status, html.unescape(await answer.text())


def counted(text: str) -> str:
    found = re.search(r'id="counted"[^>]*>([^<]*)<', text)
    assert found is not None
    return found[1]


async def test_a_search_counts_all_it_finds_and_acts_on_these_alone(
    client: aiohttp.ClientSession, server: EmubusServer, name: str
) -> None:
    server.create(QueueDescription(name, enable_partitioning=True))
    send(server, name, *(NewMessage(b"x", {}, {"why": "a" if n % 3 else "b"}) for n in range(120)))
    lock(server, name, 120, reason="Bad")
    query = (("path", name), ("queue", "dead-letter"), ("where", "why = 'a'"))
    text = await shown(client, "messages", *query)
    assert counted(text).startswith("80 of 120 messages found; the oldest was enqueued ")
    assert "Resubmit the 80 found" in text
    assert "resubmit-all" not in text
    status, text = await posted(client, "act", *query, ("verb", "job"), ("job_verb", "resubmit"), ("which", "first"))
    assert (status, "The first: '' is not a whole number from 1" in text) == (400, True)
    first = (("verb", "job"), ("job_verb", "resubmit"), ("which", "first"), ("most", "30"))
    _, text = await posted(client, "act", *query, *first)
    assert "30 messages resubmitted" in text
    assert counts(server, name) == {"active": 30, "dead-letter": 90}
    assert counted(await shown(client, "messages", *query)).startswith("50 of 90 messages found")
    _, text = await posted(client, "act", *query, ("verb", "resubmit-found"))
    assert "50 messages resubmitted" in text
    assert counts(server, name) == {"active": 80, "dead-letter": 40}
    assert "Resubmit all 40" in await shown(client, "messages", *query[:2])


async def test_messages_are_grouped_and_a_group_leads_to_its_messages(
    client: aiohttp.ClientSession, server: EmubusServer, name: str
) -> None:
    server.create(QueueDescription(name))
    for number in range(7):
        kind = ("order", "it's", None)[number % 3]
        properties: dict[str, object] = {"n": Int(number % 2), "odd ]name": number % 2 == 1}
        message = NewMessage(b"x", {"subject": kind, "content-type": "text/plain"}, properties, f"key-{number % 2}")
        send(server, name, message)
    expected: dict[tuple[tuple[str, str], ...], list[tuple[str, int]]] = {
        (("group", "subject"),): [("order", 3), ("it's", 2), ("(none)", 2)],
        (("group", "type"),): [("text/plain", 7)],
        (("group", "key"),): [("key-0", 4), ("key-1", 3)],
        (("group", "reason"),): [("(none)", 7)],
        (("group_property", "n"),): [("0", 4), ("1", 3)],
        (("group_property", "odd ]name"),): [("false", 4), ("true", 3)],
    }
    for group, rows in expected.items():
        text = await shown(client, "messages", ("path", name), *group)
        found = re.findall(r'<th scope="row"><a href="([^"]*)">([^<]*)</a></th><td class="n">(\d+)</td>', text)
        assert [(each, int(count)) for _, each, count in found] == rows, group
        for address, _, count in found:
            narrowed = await shown(client, "messages", *parse_qsl(address.partition("?")[2]))
            assert counted(narrowed).startswith(f"{count} of 7 messages found"), address
    text = await shown(client, "messages", ("path", name), ("properties", "n, odd ]name"))
    assert re.findall(r'data-label="odd \]name"[^>]*>([^<]*)<', text)[:2] == ["false", "true"]


async def test_two_messages_stand_side_by_side(client: aiohttp.ClientSession, server: EmubusServer, name: str) -> None:
    server.create(QueueDescription(name))
    send(server, name, NewMessage(b'{"a":1,"b":2}', {"subject": "s"}, {"n": Int(1), "<b>": "x"}))
    send(server, name, NewMessage(b'{"a":1,"b":3}', {"subject": "s"}, {"n": Long(1)}))
    fields = (("path", name), ("queue", "active"), ("verb", "compare"))
    status, text = await posted(client, "act", *fields, ("number", "1"))
    assert (status, "1 messages are selected; two can be compared." in text) == (400, True)
    status, text = await posted(client, "act", *fields, ("number", "1"), ("number", "2"))
    assert status == 200
    rows = re.findall(r'class="differs"><th scope="row">(\S+) .*?</th><td[^>]*>(.*?)</td><td[^>]*>(.*?)</td>', text)
    assert ("n", "1 (int)", "1 (long)") in rows
    assert "subject" not in [each for each, _, _ in rows]
    assert re.findall(r'<span class="(gone|come)">(.*)', text) == [("gone", '-   "b": 2'), ("come", '+   "b": 3')]


async def test_a_property_of_any_type_is_shown_for_editing_and_comes_back_as_it_was(
    client: aiohttp.ClientSession, server: EmubusServer, name: str
) -> None:
    server.create(QueueDescription(name))
    send(server, name, NewMessage(b'{"a": [1]}', {}, VALUES))
    lock(server, name, 1, reason="Bad")
    (dead,) = server.peek(name, "dead-letter")
    asked = (("path", name), ("queue", "dead-letter"), ("number", str(dead.sequence_number)))
    text = await shown(client, "send", *asked)
    assert '{\n  "a": [\n    1\n  ]\n}</textarea>' in text
    rows: list[tuple[str, str]] = []
    for row in re.findall(r'<div class="row" data-row>(.*?)</div>', text, re.DOTALL):
        (kind,) = re.findall(r"<option selected>([^<]*)", row)
        for field in ("property_name", "property_value"):
            rows.append((field, re.findall(rf'name="{field}"[^>]*? value="(.*?)" autocomplete', row)[0]))
        rows.append(("property_type", kind))
    assert [value for field, value in rows if field == "property_name"][: len(VALUES)] == list(VALUES)
    assert {value for field, value in rows if field == "property_type"} >= set(PROPERTY_TYPES) - {
        "decimal",
        "time span",
    }
    body = [("body", '{\n  "a": [\n    1\n  ]\n}'), ("body_form", "text")]
    _, text = await posted(client, "send", *asked, *rows, *body, ("drop_dead_letter", "yes"), ("target", name))
    assert "1 of 1 message copied" in text
    (copy,) = server.peek(name)
    assert copy.body["text"] == '{"a": [1]}'
    assert server.run(properties_of(server, name)) == VALUES


async def properties_of(server: EmubusServer, name: str) -> dict[str, object]:
    """The application properties of the one active message, with their exact types."""
    overview = Overview(server.server.broker.namespace)
    page = await overview.messages(overview.entity(name), SubQueue.ACTIVE, first=0, count=1, bytes_max=1 << 20)
    message = line_of(page.messages[0])["message"]
    assert isinstance(message, dict)
    return {each: from_json(value) for each, value in message["application_properties"].items()}


async def test_figures_say_what_an_outage_hides(client: aiohttp.ClientSession, server: EmubusServer, name: str) -> None:
    server.create(QueueDescription(name, enable_partitioning=True))
    send(server, name, *(NewMessage(b"x") for _ in range(32)))
    server.begin_outage([3], OutageKind.DOWN)
    try:
        text = await shown(client, "entity", ("path", name))
        assert re.search(r"<dt>Active</dt><dd>30 \+ \?</dd>", text)
        assert "? is what partition 3 holds: can't be reached." in text
        async with client.get("/", params={"find": name}) as answer:
            assert "In all: 30 + ? active" in await answer.text()
        assert counted(await shown(client, "messages", ("path", name))).startswith("30 + ? messages")
    finally:
        server.end_outage([3])
    assert re.search(r"<dt>Active</dt><dd>32</dd>", await shown(client, "entity", ("path", name)))
