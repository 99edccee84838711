"""Acting on selected messages, over HTTP: each verb, each kind of message, and what can't be done."""

from __future__ import annotations

import html
import re
from collections.abc import AsyncIterator

import aiohttp
import pytest

from emubus.broker.api import OutageKind
from emubus.broker.message.builder import NewMessage
from emubus.broker.model.descriptions import QueueDescription
from emubus.codec.types import Int
from emubus.testing import EmubusServer
from emubus.web.single_send import send_one

from .looking import PAGE
from .namespace import counts, hold, holders, lock, send


@pytest.fixture
async def client(server: EmubusServer) -> AsyncIterator[aiohttp.ClientSession]:
    base = f"http://127.0.0.1:{server.http_port}"
    async with aiohttp.ClientSession(base, headers={"Accept": "text/html", "Origin": base}) as session:
        yield session


async def act(
    client: aiohttp.ClientSession, path: str, verb: str, numbers: list[int], **fields: str
) -> tuple[int, str]:
    """Post the form; the status of the last page and its text."""
    data = [("path", path), ("verb", verb), ("queue", fields.pop("queue", "active")), *fields.items()]
    data += [("number", str(each)) for each in numbers]
    async with client.post(f"{PAGE}/act", data=data) as answer:
        return answer.status, html.unescape(await answer.text())


async def test_selected_messages_are_deleted_dead_lettered_and_deferred(
    client: aiohttp.ClientSession, server: EmubusServer, name: str
) -> None:
    server.create(QueueDescription(name, enable_partitioning=True))
    at = server.call(server.clock.now_ms) + 3_600_000
    send(server, name, *(NewMessage(b"m%d" % n, partition_key="k") for n in range(6)))
    send(server, name, NewMessage(b"later", partition_key="k", scheduled_enqueue_at=at))
    first = server.peek(name)[0].sequence_number
    one, two, three, four, five, six, later = range(first, first + 7)
    status, text = await act(client, name, "delete", [two, later])
    assert (status, "2 of 2 messages deleted." in text) == (200, True)
    assert counts(server, name) == {"active": 5}
    await act(client, name, "dead-letter", [four])
    await act(client, name, "defer", [five, six])
    assert counts(server, name) == {"active": 2, "deferred": 2, "dead-letter": 1}
    await act(client, name, "delete", [five])
    (dead,) = server.peek(name, "dead-letter")
    await act(client, name, "delete", [dead.sequence_number], queue="dead-letter")
    assert counts(server, name) == {"active": 2, "deferred": 1}
    assert [each.sequence_number for each in server.peek(name) if each.state == "active"] == [one, three]
    assert sorted(lock(server, name, 2)) == [one, three]


async def test_one_message_that_is_locked_or_gone_leaves_the_others_alone(
    client: aiohttp.ClientSession, server: EmubusServer, name: str
) -> None:
    server.create(QueueDescription(name))
    send(server, name, *(NewMessage(b"x") for _ in range(3)))
    (taken,) = lock(server, name, 1)
    status, text = await act(client, name, "delete", [taken, 2, 77])
    assert (status, "1 of 3 messages deleted." in text) == (200, True)
    assert f"{taken}: it is locked or gone" in text
    assert "77: it is locked or gone" in text
    assert counts(server, name) == {"active": 2}


async def test_the_next_page_is_the_same_search(client: aiohttp.ClientSession, server: EmubusServer, name: str) -> None:
    server.create(QueueDescription(name))
    send(server, name, *(NewMessage(b"find me %d" % n) for n in range(3)), NewMessage(b"other"))
    _, text = await act(client, name, "delete", [2], text="find", order="newest", column="size")
    assert 'value="find"' in text
    assert text.index("find me 2") < text.index("find me 0")
    assert "find me 1" not in text
    assert "other" not in text


async def test_what_can_not_be_done_is_refused_and_changes_nothing(
    client: aiohttp.ClientSession, server: EmubusServer, name: str
) -> None:
    server.create(QueueDescription(name, enable_partitioning=True))
    server.create(QueueDescription(f"{name}-s", requires_session=True))
    send(server, name, NewMessage(b"x", partition_key="k"))
    number = server.peek(name)[0].sequence_number
    for path, verb, numbers, sentence in (
        (name, "delete", [], "No message is selected."),
        (name, "explode", [number], "Action: 'explode' is none of delete, defer, complete, move, copy, dead-letter, "),
        (f"{name}-s", "resubmit", [1], "Action: 'resubmit' is none of delete, "),
    ):
        status, text = await act(client, path, verb, numbers)
        assert (status, sentence in text) == (400, True), text
    server.begin_outage([number >> 48], OutageKind.DOWN)
    status, text = await act(client, name, "delete", [number])
    assert (status, "0 of 1 message deleted. 1 failed and stay." in text) == (200, True), text
    assert "its messaging store can't be reached" in text
    server.end_outage([number >> 48])
    assert counts(server, name) == {"active": 1}
    assert len(lock(server, name, 1)) == 1


async def test_a_refused_settlement_gives_the_message_back(
    client: aiohttp.ClientSession, server: EmubusServer, name: str
) -> None:
    server.create(QueueDescription(name, enable_partitioning=True))
    send(server, name, NewMessage(b"x", partition_key="k"))
    number = server.peek(name)[0].sequence_number
    server.begin_outage([number >> 48], OutageKind.FAILING)
    status, text = await act(client, name, "delete", [number])
    assert (status, "0 of 1 message deleted." in text) == (200, True), text
    server.end_outage([number >> 48])
    assert lock(server, name, 1) == [number]


async def test_all_that_match_the_search_are_moved_with_a_job(
    client: aiohttp.ClientSession, server: EmubusServer, name: str
) -> None:
    server.create(QueueDescription(name, enable_partitioning=True))
    server.create(QueueDescription(f"{name}-to"))
    send(server, name, *(NewMessage(b"x", {"subject": "red" if n % 3 else "blue"}) for n in range(60)))
    fields = {"job_verb": "move", "which": "all", "where": "sys.Label = 'red'", "target": f"{name}-to"}
    status, text = await act(client, name, "job", [], **fields)
    assert (status, f"40 messages moved to '{name}-to'." in text) == (200, True), text
    assert "Done: 40 messages moved" in text
    assert (counts(server, name), counts(server, f"{name}-to")) == ({"active": 20}, {"active": 40})
    status, text = await act(client, name, "job", [], job_verb="delete", which="all", target="elsewhere")
    assert (status, "Target: only messages that move" in text) == (400, True)
    assert counts(server, name) == {"active": 20}


async def test_a_scheduled_message_is_delivered_now(
    client: aiohttp.ClientSession, server: EmubusServer, name: str
) -> None:
    server.create(QueueDescription(name, enable_partitioning=True, requires_duplicate_detection=True))
    at = server.call(server.clock.now_ms) + 3_600_000
    for each in "ab":
        send(server, name, NewMessage(b"x", {"message-id": each}, partition_key="k", scheduled_enqueue_at=at))
    one, two = (each.sequence_number for each in server.peek(name))
    _, text = await act(client, name, "", [], one=f"deliver-now {one}")
    assert "1 of 1 message delivered now." in text
    assert counts(server, name) == {"active": 1, "scheduled": 1}
    _, text = await act(client, name, "deliver-now", [one, 77])
    assert f"{one}: it is locked or gone" in text
    assert lock(server, name, 1) == [two + 1]
    server.advance(3_600_000)
    assert counts(server, name) == {"active": 2}


async def test_the_page_takes_a_lock_and_settles_it(
    client: aiohttp.ClientSession, server: EmubusServer, name: str
) -> None:
    server.create(QueueDescription(name))
    send(server, name, *(NewMessage(b"x") for _ in range(3)))
    await act(client, name, "defer", [3])
    _, text = await act(client, name, "lock", [1, 2, 3, 9])
    assert "3 of 4 messages locked" in text
    assert 'value="settle-abandon 1"' in text
    await act(client, name, "", [], one="settle-complete 3")
    await act(client, name, "", [], one="settle-abandon 1")
    _, text = await act(client, name, "", [], one="settle-release 2")
    assert "Message 2 released." in text
    assert [(each.sequence_number, each.delivery_count) for each in server.peek(name)] == [(1, 1), (2, 0)]
    status, text = await act(client, name, "", [], one="settle-complete 2")
    assert (status, "The lock of message 2 is over" in text) == (409, True)
    await act(client, name, "lock", [2])
    server.advance(60_000)
    assert (await act(client, name, "", [], one="settle-complete 2"))[0] == 409
    assert counts(server, name) == {"active": 2}


async def test_the_page_locks_messages_of_a_session_and_holds_the_session_until_the_last_is_settled(
    client: aiohttp.ClientSession, server: EmubusServer, name: str
) -> None:
    server.create(QueueDescription(name, requires_session=True, enable_partitioning=True))
    send(server, name, *(NewMessage(b"x", {"group-id": "s"}) for _ in range(4)), NewMessage(b"x", {"group-id": "t"}))
    one, two, three, four = (each.sequence_number for each in server.peek(name) if each.properties["session_id"] == "s")
    (other,) = (each.sequence_number for each in server.peek(name) if each.properties["session_id"] == "t")
    holder = hold(server, name, "t", "orders 1.0")
    _, text = await act(client, name, "lock", [one, three, other])
    assert "2 of 3 messages locked" in text
    assert f"{other}: its session 't' is held by orders 1.0" in text
    assert holders(server, name) == {"s": "the web page", "t": "orders 1.0"}
    await act(client, name, "lock", [two])
    _, text = await act(client, name, "delete", [four])
    assert f"{four}: its session 's' is held by the web page" in text
    await act(client, name, "", [], one=f"settle-abandon {one}")
    await act(client, name, "", [], one=f"settle-dead-letter {two}")
    assert holders(server, name)["s"] == "the web page"
    await act(client, name, "", [], one=f"settle-defer {three}")
    assert holders(server, name) == {"s": None, "t": "orders 1.0"}
    assert counts(server, name) == {"active": 3, "deferred": 1, "dead-letter": 1}
    server.call(holder.close)
    _, text = await act(client, name, "delete", [other, three])
    assert "2 of 2 messages deleted." in text
    assert [(each.sequence_number, each.delivery_count) for each in server.peek(name)] == [(one, 1), (four, 0)]


async def test_a_message_is_edited_and_sent_again(
    client: aiohttp.ClientSession, server: EmubusServer, name: str
) -> None:
    server.create(QueueDescription(name))
    server.create(QueueDescription(f"{name}-to"))
    properties = {"n": Int(5), "s": "text", "gone": True}
    send(server, name, NewMessage(b"old", {"message-id": "m", "subject": "s"}, properties, "key"))
    async with client.get(f"{PAGE}/send?path={name}&number=1") as answer:
        text = html.unescape(await answer.text())
    for part in ('value="m"', 'value="s"', 'value="key"', "old</textarea>", 'value="gone"', "Remove the original"):
        assert part in text, part
    form = {"path": name, "queue": "active", "number": "1", "body": "new", "body_form": "text", "subject": "edited"}
    rows = [("property_name", "s"), ("property_type", "string"), ("property_value", "other")]
    rows += [("property_name", "n"), ("property_type", "int"), ("property_value", "5")]
    data = [*form.items(), *rows, ("target", f"{name}-to"), ("remove", "yes")]
    async with client.post(f"{PAGE}/send", data=data) as answer:
        assert "1 of 1 message moved to" in await answer.text()
    (moved,) = server.peek(f"{name}-to")
    assert (moved.body["text"], moved.properties["subject"]) == ("new", "edited")
    assert moved.properties["message_id"] != "m"
    assert moved.application_properties == {"n": 5, "s": "other"}
    assert counts(server, name) == {}
    async with client.post(f"{PAGE}/send", data=form) as answer:
        assert (answer.status, "has no message 1 now" in html.unescape(await answer.text())) == (404, True)


async def test_a_body_that_is_no_data_stays_as_it_is(
    client: aiohttp.ClientSession, server: EmubusServer, name: str
) -> None:
    server.create(QueueDescription(name))
    value = b"\x00\x53\x77\xa1\x02hi"
    server.run(send_one(server.server.broker, server.server.broker.namespace.find(name)[0], value))
    async with client.get(f"{PAGE}/send?path={name}&number=1") as answer:
        assert 'value="unchanged" selected' in await answer.text()
    form = {"path": name, "queue": "active", "number": "1", "body_form": "unchanged", "subject": "s"}
    async with client.post(f"{PAGE}/send", data=form) as answer:
        assert answer.status == 200
    assert [each.body["kind"] for each in server.peek(name)] == ["value", "value"]


async def test_a_message_is_sent_often_and_messages_are_exported_and_imported(
    client: aiohttp.ClientSession, server: EmubusServer, name: str
) -> None:
    server.create(QueueDescription(name, enable_partitioning=True))
    async with client.post(f"{PAGE}/send", data={"path": name, "body": "x", "count": "250"}) as answer:
        assert "Sent 250 of 250 times." in await answer.text()
    async with client.get(f"{PAGE}/messages?path={name}&text=x&partition=3") as answer:
        (link,) = re.findall(r'href="(/emubus/v1/[^"]*lines[^"]*)"', await answer.text())
    async with client.get(html.unescape(link)) as answer:
        lines = await answer.read()
    assert 0 < len(lines.splitlines()) < 250
    upload = aiohttp.FormData({"path": name})
    upload.add_field("lines", lines + b"{", filename="x.jsonl")
    async with client.post(f"{PAGE}/import", data=upload) as answer:
        text = html.unescape(await answer.text())
        assert f"{len(lines.splitlines())} messages imported. 1 failed." in text
    assert counts(server, name) == {"active": 250 + len(lines.splitlines())}
    async with client.post(f"{PAGE}/import", data={"path": name}) as answer:
        assert answer.status == 415
