"""The overview's order, chips and totals, and editing an entity, over HTTP."""

from __future__ import annotations

import html
import re
from collections.abc import AsyncIterator, Iterator

import aiohttp
import pytest

from emubus.broker.api import OutageKind
from emubus.broker.message.builder import NewMessage
from emubus.broker.model.descriptions import (
    EntityStatus,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from emubus.testing import EmubusServer

from .looking import PAGE
from .namespace import lock, send

ENTITIES = (
    QueueDescription("a-empty", enable_partitioning=True),
    QueueDescription("b-full"),
    QueueDescription("c-dead"),
    QueueDescription("d-disabled", status=EntityStatus.SEND_DISABLED),
    TopicDescription("e-topic"),
    SubscriptionDescription("e-topic", "sub"),
)


@pytest.fixture(scope="module")
def busy() -> Iterator[EmubusServer]:
    """A server whose entities differ in what is in them."""
    with EmubusServer(ENTITIES) as running:
        send(running, "b-full", *(NewMessage(b"x") for _ in range(5)))
        send(running, "c-dead", *(NewMessage(b"x") for _ in range(3)))
        lock(running, "c-dead", 2, reason="Bad")
        send(running, "e-topic", NewMessage(b"x"), NewMessage(b"y"))
        yield running


@pytest.fixture
async def page(busy: EmubusServer) -> AsyncIterator[aiohttp.ClientSession]:
    base = f"http://127.0.0.1:{busy.http_port}"
    async with aiohttp.ClientSession(base, headers={"Accept": "text/html", "Origin": base}) as session:
        yield session


def described(server: EmubusServer, path: str) -> object:
    """The description of an entity."""

    def look() -> object:
        entity = server.server.broker.namespace.entity(path)
        assert entity is not None
        return entity.description

    return server.call(look)


async def names(page: aiohttp.ClientSession, query: str = "") -> list[str]:
    """The entities in the overview, in order."""
    async with page.get(f"/?{query}") as answer:
        text = await answer.text()
        assert answer.status == 200
    return re.findall(r'<th scope="row"><a [^>]*>([^<]*)</a>', text)


async def test_entities_are_sorted_by_a_figure(page: aiohttp.ClientSession) -> None:
    by_name = ["a-empty", "b-full", "c-dead", "d-disabled", "e-topic", "sub"]
    assert await names(page) == by_name
    assert (await names(page, "sort=active"))[:3] == ["b-full", "e-topic/Subscriptions/sub", "c-dead"]
    assert (await names(page, "sort=dead"))[:2] == ["c-dead", "a-empty"]
    async with page.get("/?sort=colour") as answer:
        assert (answer.status, "Sort: &#39;colour&#39; is none of" in await answer.text()) == (400, True)


async def test_chips_show_entities_of_a_kind(page: aiohttp.ClientSession, busy: EmubusServer) -> None:
    assert await names(page, "only=messages") == ["b-full", "c-dead", "e-topic/Subscriptions/sub"]
    assert await names(page, "only=dead") == ["c-dead"]
    assert await names(page, "only=disabled") == ["d-disabled"]
    assert await names(page, "only=out") == []
    busy.begin_outage([7], OutageKind.DOWN)
    assert "a-empty" in await names(page, "only=out")
    busy.end_outage([7])
    assert await names(page, "only=messages&find=topic") == ["e-topic/Subscriptions/sub"]
    assert await names(page, "folded=yes") == ["a-empty", "b-full", "c-dead", "d-disabled", "e-topic"]


async def test_totals_are_those_of_what_is_shown(page: aiohttp.ClientSession) -> None:
    for query, sums in (
        ("", "8 active, 0 locked, 0 scheduled or deferred, 2 dead-lettered"),
        ("only=dead", "1 active"),
    ):
        async with page.get(f"/?{query}") as answer:
            assert f"In all: {sums}" in await answer.text()


# ---- editing


async def fields(page: aiohttp.ClientSession, path: str) -> dict[str, str]:
    """What the fields of the form contain; checked boxes are "yes"."""
    async with page.get(f"{PAGE}/edit", params={"path": path}) as answer:
        text = await answer.text()
        assert answer.status == 200, text
    inputs = re.findall(r'<input id="f-(\w+)" name="\w+" type="text" value="([^"]*)"', text)
    boxes = re.findall(r'<input type="checkbox" name="(\w+)" value="yes" checked>', text)
    status = re.findall(r'<option value="([^"]*)" selected>', text)
    found = {name: html.unescape(value) for name, value in inputs} | dict.fromkeys(boxes, "yes")
    return found | {"path": path, "status": status[0]}


async def save(page: aiohttp.ClientSession, values: dict[str, str]) -> tuple[int, str]:
    async with page.post(f"{PAGE}/edit", data=values, allow_redirects=False) as answer:
        return answer.status, html.unescape(await answer.text())


async def test_every_property_is_edited_and_what_is_not_touched_stays(
    page: aiohttp.ClientSession, busy: EmubusServer
) -> None:
    busy.create(TopicDescription("t"))
    busy.create(
        SubscriptionDescription(
            "t", "s", dead_letter_on_expiration=True, auto_delete_on_idle_ms=3_600_000, default_ttl_ms=86_400_000
        )
    )
    path = "t/Subscriptions/s"
    known = await fields(page, path)
    assert (await save(page, known))[0] == 303
    before = described(busy, path)
    changes = {
        "status": "ReceiveDisabled",
        "lock_duration": "90s",
        "max_delivery_count": "3",
        "default_ttl": "2h",
        "auto_delete_on_idle": "never",
        "forward_to": "b-full",
        "forward_dead_letters_to": "c-dead",
        "user_metadata": "<mine>",
    }
    left = {name: value for name, value in known.items() if name != "dead_letter_on_expiration"}
    assert (await save(page, {**left, **changes}))[0] == 303
    after = described(busy, path)
    assert isinstance(before, SubscriptionDescription)
    assert isinstance(after, SubscriptionDescription)
    assert (before.dead_letter_on_expiration, before.auto_delete_on_idle_ms, before.default_ttl_ms) == (
        True,
        3_600_000,
        86_400_000,
    )
    assert (after.status, after.lock_duration_ms, after.max_delivery_count) == (
        EntityStatus.RECEIVE_DISABLED,
        90_000,
        3,
    )
    assert (after.default_ttl_ms, after.auto_delete_on_idle_ms, after.user_metadata) == (7_200_000, None, "<mine>")
    assert (after.forward_to, after.forward_dead_letters_to) == ("b-full", "c-dead")
    assert (after.dead_letter_on_expiration, after.dead_letter_on_filter_exceptions) == (False, True)
    assert after.rules == before.rules
    assert (await fields(page, path))["lock_duration"] == "PT1M30S"


async def test_a_refused_change_stands_beside_its_form_and_changes_nothing(
    page: aiohttp.ClientSession, busy: EmubusServer
) -> None:
    before = described(busy, "b-full")
    known = await fields(page, "b-full")
    for changes, sentence in (
        ({"lock_duration": "never"}, "Lock duration: 'never' is not a finite duration."),
        ({"lock_duration": "9m"}, "LockDuration"),
        ({"status": "Gone"}, "Status: 'Gone' is none of"),
        ({"max_size_mb": "17"}, "MaxSizeInMegabytes"),
    ):
        status, text = await save(page, {**known, **changes})
        assert (status, sentence in text) == (400, True), text
        assert all(html.escape(value, quote=True) in text for value in changes.values() if value != "Gone")
    assert described(busy, "b-full") == before
    async with page.get(f"{PAGE}/edit", params={"path": "no-such"}) as answer:
        assert answer.status == 404
