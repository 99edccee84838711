"""The page's views of what runs, without a browser: what they say, their forms, and values that try to be markup."""

from __future__ import annotations

import asyncio
import gc
import html
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from emubus.broker.api import ReceiveMode
from emubus.broker.errors import Condition
from emubus.broker.message.builder import NewMessage
from emubus.broker.model.descriptions import (
    QueueDescription,
    RuleDescription,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
)
from emubus.testing import EmubusServer
from emubus.web.page.rendering import rate

from ..broker.test_names import NO_NAMES
from .namespace import counts, lock, send

PAGE = "/emubus/page"
EVIL = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def server() -> Iterator[EmubusServer]:
    with EmubusServer() as running:
        yield running


@pytest.fixture
async def client(server: EmubusServer) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(f"http://localhost:{server.http_port}") as session:
        yield session


async def shown(client: aiohttp.ClientSession, view: str, **query: str) -> str:
    """The text of a page, without tags."""
    async with client.get(f"{PAGE}/{view}", params=query, headers={"Accept": "text/html"}) as answer:
        assert answer.status == 200
        text = await answer.text()
    assert EVIL not in text
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", text.split("<main", 1)[1]))


async def posted(client: aiohttp.ClientSession, view: str, **fields: str) -> tuple[int, str]:
    """Send a form as the page does; status and text of where it leads."""
    own = {"Accept": "text/html", "Origin": str(client._base_url).rstrip("/")}
    async with client.post(f"{PAGE}/{view}", data=fields, headers=own) as answer:
        text = re.sub(r"<[^>]*>", " ", await answer.text())
        return answer.status, re.sub(r"\s+", " ", text)


async def test_the_story_shows_a_timeline_and_why_no_subscription_took_a_message(
    client: aiohttp.ClientSession, server: EmubusServer
) -> None:
    await posted(client, "story", do="off")
    assert "Events are not kept at present" in await shown(client, "story")
    assert "kept from now on" in (await posted(client, "story", do="on"))[1]
    server.create(TopicDescription("t"))
    server.create(SubscriptionDescription("t", "red", rules=(RuleDescription("r", SqlFilter("color = 'red'")),)))
    send(server, "t", NewMessage(b"x", {"message-id": EVIL}))
    text = await shown(client, "story", id=EVIL)
    assert "No subscription takes the message: no rule matches" in text
    assert "red does not take it r does not match: color = &#39;red&#39; is unknown (color is not set)" in text
    server.create(QueueDescription("q"))
    send(server, "q", NewMessage(b"x"))
    (number,) = lock(server, "q", 1, reason="bad")
    text = await shown(client, "story", path="q", number=str(number))
    assert re.findall(r"UTC ([a-z-]+) q ", text) == ["sent", "locked", "dead-lettered"]
    assert "Dead-lettered: bad: because of bad" in text
    assert "No event of such a message" in await shown(client, "story", id="nothing like it")
    assert (await posted(client, "story", do="forget"))[0] == 200
    assert "No event yet" in await shown(client, "story")


async def test_forwarding_is_drawn_with_its_loops_and_dead_ends(
    client: aiohttp.ClientSession, server: EmubusServer
) -> None:
    server.create(QueueDescription("back"))
    server.create(QueueDescription("there", forward_to="back"))
    server.update(QueueDescription("back", forward_to="there"))
    server.create(TopicDescription("unheard"))
    text = await shown(client, "flow")
    assert "Loop : back forwards to there" in text
    assert "Dead end : unheard has no subscription: messages are lost" in text


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # the SDK leaves the socket that was cut
async def test_a_client_is_listed_with_its_links_and_can_be_dropped(
    client: aiohttp.ClientSession, server: EmubusServer
) -> None:
    assert "No client is connected" in await shown(client, "flow")
    server.create(QueueDescription("links"))
    with (
        ServiceBusClient.from_connection_string(server.connection_string) as sdk,
        sdk.get_queue_sender("links") as sender,
    ):
        await asyncio.to_thread(sender.send_messages, ServiceBusMessage("x"))
        text = await shown(client, "flow")
        found = re.search(
            r"Drop (\d+) azsdk-python-servicebus 7\.[\d.]+ 127\.0\.0\.1:\d+ .* sender links credit [\d,]+", text
        )
        assert found is not None, text
        assert "was dropped" in (await posted(client, "drop-connection", number=found[1]))[1]
        assert "No client is connected" in await shown(client, "flow")
        assert (await posted(client, "drop-connection", number=found[1]))[0] == 404
    gc.collect()


async def test_a_session_is_listed_with_its_holder_and_can_be_released(
    client: aiohttp.ClientSession, server: EmubusServer
) -> None:
    server.create(QueueDescription("s", requires_session=True))
    send(server, "s", NewMessage(b"x", {"group-id": EVIL}))
    assert "no receiver" in await shown(client, "sessions", path="s")
    lost: list[Condition] = []

    def accept() -> None:
        server.server.broker.accept_session(
            "s",
            EVIL,
            mode=ReceiveMode.PEEK_LOCK,
            timeout_ms=0,
            granted=lambda _: None,
            refused=lambda _: None,
            detached=lambda error: lost.append(error.condition),
            client="shop 1.2",
        )

    server.call(accept)
    text = await shown(client, "sessions", path="s")
    assert "shop 1.2 20" in text
    assert "its receiver lost it" in (await posted(client, "release-session", path="s", session=EVIL))[1]
    assert "no receiver" in await shown(client, "sessions", path="s")
    assert lost == [Condition.SESSION_LOCK_LOST]


async def test_charts_have_axes_and_units_and_an_entity_has_its_own(
    client: aiohttp.ClientSession, server: EmubusServer
) -> None:
    sampler = server.server.sampler
    server.create(QueueDescription("charted"))
    server.call(sampler.sample)
    send(server, "charted", NewMessage(b"x"), NewMessage(b"x"))
    server.call(sampler.sample)
    text = await shown(client, "charts", path="charted", span="1h")
    assert "Messages there messages 0 1 2 -60 min" in text
    assert "active: 2" in text
    assert "age of the oldest active message: " in text
    server.begin_outage(1)
    server.call(sampler.sample)
    server.end_outage(1)
    text = await shown(client, "charts")
    assert "mean duration" in text
    assert "a messaging store was out" in text
    server.create(QueueDescription("unused"))
    assert "Nothing was sampled yet" in await shown(client, "charts", path="unused")
    async with client.get("/emubus/v1/samples?entity=charted") as answer:
        samples = await answer.json()
    depths = [depth for depth in samples["figures"]["depth"] if depth is not None]  # the last second may have none yet
    assert (samples["slot_s"], depths[-1]) == (1, 2.0)


async def test_conditions_faults_and_outages_begin_and_end_in_one_table(
    client: aiohttp.ClientSession, server: EmubusServer
) -> None:
    assert "No condition, fault or outage is on" in await shown(client, "failures")
    server.create(QueueDescription("faulty"))
    condition = {"what": "condition", "name": "throttled", "entity": "faulty", "for": "90s", "count": "5"}
    assert "(throttled) is on" in (await posted(client, "begin-failure", **condition))[1]
    fault = {"what": "fault", "kind": "server-busy", "operation": "send", "count": "2", "percent": "50"}
    assert "(server-busy) is set" in (await posted(client, "begin-failure", **fault))[1]
    await posted(client, "begin-failure", what="outage", store="3", kind="down")
    text = await shown(client, "failures")
    assert re.search(r"throttled condition faulty 5 more times, \d+ s more 0 End", text), text
    assert "server-busy of send fault all 2 more times, with probability 0.5 0 End" in text
    assert "down store 3 outage" in text
    (on,) = server.server.amqp.conditions.list()
    for kind, number in (("condition", on.number), ("fault", 1), ("store", 3)):
        assert (await posted(client, "end-failure", kind=kind, number=str(number)))[0] == 200
    assert "No condition, fault or outage is on" in await shown(client, "failures")
    status, text = await posted(client, "begin-failure", **{**fault, "percent": "101"})
    assert (status, "is not a whole number from 1 to 100" in text) == (400, True)
    status, text = await posted(client, "begin-failure", **{**condition, "entity": "none"})
    assert status == 404
    assert (await posted(client, "end-failure", kind="fault", number="9"))[0] == 404


def files(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


@pytest.mark.parametrize("do", ["take", "restore", "delete"])
async def test_the_form_of_snapshots_takes_names_only(
    client: aiohttp.ClientSession, server: EmubusServer, do: str, tmp_path: Path
) -> None:
    (tmp_path / "precious").write_text("kept")
    up = "/".join([".."] * 12)
    for name in (f"x/{up}{tmp_path}", f"{up}{tmp_path}", str(tmp_path), f"../../{tmp_path.name}", *NO_NAMES):
        if name != name.strip():  # which a form leaves out
            continue
        status, text = await posted(client, "snapshot", do=do, name=name)
        assert (status, "can't be the name of a snapshot" in html.unescape(text)) == (400, True), name
    assert files(tmp_path) == ["precious"]
    assert server.call(server.server.snapshots.list) == []


async def test_a_snapshot_is_taken_restored_and_deleted(client: aiohttp.ClientSession, server: EmubusServer) -> None:
    server.create(QueueDescription("kept"))
    assert "Snapshot 'one' was taken" in html.unescape((await posted(client, "snapshot", do="take", name="one"))[1])
    send(server, "kept", NewMessage(b"x"))
    assert (await posted(client, "snapshot", do="take", name="one"))[0] == 409
    assert "was restored" in (await posted(client, "snapshot", do="restore", name="one"))[1]
    assert counts(server, "kept") == {}
    assert "was deleted" in (await posted(client, "snapshot", do="delete", name="one"))[1]
    assert "A snapshot has every entity" in await shown(client, "failures")


async def test_an_entity_shows_the_rates_of_the_last_sample(
    client: aiohttp.ClientSession, server: EmubusServer
) -> None:
    sampler = server.server.sampler
    server.create(QueueDescription("rated"))
    server.create(QueueDescription("unrated"))
    server.call(sampler.stop)  # no further sample comes between ours and the page
    server.call(sampler.sample)
    send(server, "rated", NewMessage(b"x"), NewMessage(b"x"))
    server.call(sampler.sample)
    try:
        in_per_s = sampler.rates("rated").in_per_s
        assert in_per_s
        assert f"In/s {rate(in_per_s)} Out/s 0 " in await shown(client, "entity", path="rated")
        assert "In/s 0 Out/s 0 " in await shown(client, "entity", path="unrated")
    finally:
        server.call(sampler.start)
