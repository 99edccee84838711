"""The page for everybody: by keyboard, on a phone, in light and dark, without scripts, without a network."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from playwright.sync_api import Page, expect

from emubus.broker.message.builder import NewMessage
from emubus.broker.model.descriptions import (
    QueueDescription,
    RuleDescription,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
)
from emubus.testing import EmubusServer

from ..http.control.client import Http
from .conftest import Tab
from .looking import PAGE, REFUSED, at, figure
from .namespace import lock, send, set_state
from .prepare import NODE_TOOLS, prepare_node_tools


def test_a_queue_is_created_and_found_again_by_keyboard_alone(tab: Tab, name: str) -> None:
    page = tab.open()
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    page.goto("/")
    tab_to(page, "Create")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("Create a queue")
    tab_to(page, "Name")
    page.keyboard.type(name)
    page.keyboard.press("Tab")
    expect(page.get_by_label("Enable partitioning")).to_be_focused()
    page.keyboard.press("Space")
    page.keyboard.press("Enter")
    expect(page.locator("#flash")).to_be_focused()
    expect(page.locator("#picture .column")).to_have_count(16)
    tab_to(page, "Send")
    page.keyboard.press("Enter")
    expect(page).to_have_title(f"Send to {name} · emubus")
    tab_to(page, "Body")
    page.keyboard.type("typed")
    tab_to(page, "Send")
    page.keyboard.press("Enter")
    expect(page.locator("#flash")).to_contain_text("Sent: partition")


NAME_OF_FOCUSED = """() => {
  const at = document.activeElement;
  return (at.labels && at.labels.length ? at.labels[0].textContent : at.textContent).trim();
}"""


def tab_to(page: Page, label: str) -> None:
    """Press Tab until the focus is on what has that name."""
    for _ in range(80):
        page.keyboard.press("Tab")
        if page.evaluate(NAME_OF_FOCUSED) == label:
            return
    raise AssertionError(f"Tab never came to {label!r}")


def test_focus_stays_where_it_is_while_the_page_updates(tab: Tab, server: EmubusServer, name: str) -> None:
    server.create(QueueDescription(name, enable_partitioning=True))
    page = tab.open(at("entity", name))
    page.get_by_role("button", name="Simulate outage of messaging store 4").focus()
    send(server, name, NewMessage(b"x"))
    expect(figure(page, "Active")).to_have_text("1")
    expect(page.get_by_role("button", name="Simulate outage of messaging store 4")).to_be_focused()


@pytest.fixture(scope="module")
def everything(server: EmubusServer) -> Iterator[list[str]]:
    """Paths of all pages, with long names and much on them, while a client is connected."""
    name = "a-" + "very-" * 20 + "long-name"
    server.create(QueueDescription(name, enable_partitioning=True, user_metadata="m" * 300))
    server.create(TopicDescription("wide"))
    rule = RuleDescription("r" * 50, SqlFilter("color = '" + "x" * 300 + "'"))
    server.create(SubscriptionDescription("wide", "s" * 50, rules=(rule,)))
    body = json.dumps({"k" * 100: "v" * 500}).encode()
    send(server, name, *(NewMessage(body, {"message-id": "i" * 128}, {"p" * 80: "v" * 400}) for _ in range(4)))
    lock(server, name, 2, reason="R" * 80)
    subscription = "wide/Subscriptions/" + "s" * 50
    server.create(QueueDescription("sessions", requires_session=True))
    send(server, "sessions", NewMessage(b"x", {"group-id": "g" * 120}))
    set_state(server, "sessions", "g" * 120, b'{"%s": 1}' % (b"k" * 300))
    server.call(lambda: server.server.story.switch(is_on=True))
    send(server, "wide", NewMessage(b"x", {"message-id": "i" * 128}))
    control = Http(server.http_port)
    control.done(control.ask("PUT", f"/templates/{'t' * 100}", {"message": {"body": {"kind": "none"}}}))
    control.post("/conditions", {"name": "throttled", "entity": "none"})
    control.done(control.ask("PUT", f"/snapshots/{'n' * 64}"))
    control.post("/jobs", {"entity": name, "verb": "complete", "filter": {"text": "nothing"}, "wait_ms": 20_000})
    server.call(server.server.sampler.sample)
    with (
        ServiceBusClient.from_connection_string(server.connection_string) as client,
        client.get_queue_sender(name) as sender,
    ):
        sender.send_messages(ServiceBusMessage("x", time_to_live=timedelta(days=1)))
        yield pages_of(name, subscription)


def pages_of(name: str, subscription: str) -> list[str]:
    """The paths of all pages, of a queue, a subscription and what else there is."""
    return [
        "/",
        at("entity", name),
        at("messages", name),
        at("messages", name, "&text=k&state=active&order=newest"),
        at("messages", name, "&queue=dead-letter"),
        at("messages", name, f"&group=reason&group_property={'p' * 80}&properties={'p' * 80}&where=1=1"),
        at("compare", name, "&queue=dead-letter&number=1&number=2"),
        f"{PAGE}/now?find=k&stored=yes",
        at("keys", name),
        at("send", name),
        at("edit", name),
        at("entity", "wide"),
        at("rules", subscription),
        at("rules", subscription, f"&edit={'r' * 50}"),
        at("entity", "none-" + "x" * 200),
        f"{PAGE}/create",
        f"{PAGE}/create?kind=subscription",
        f"{PAGE}/namespace",
        f"{PAGE}/story",
        f"{PAGE}/story?id={'i' * 128}",
        f"{PAGE}/charts",
        at("charts", name),
        f"{PAGE}/flow",
        at("sessions", "sessions"),
        at("sessions", "sessions", f"&session={'g' * 120}"),
        f"{PAGE}/failures",
    ]


def test_no_page_scrolls_sideways_on_a_phone(tab: Tab, everything: list[str]) -> None:
    tab.expected = REFUSED
    page = tab.open(viewport={"width": 360, "height": 740})
    for path in everything:
        page.goto(path)
        page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, path


@pytest.fixture(scope="module")
def axe() -> Path:
    """The script of axe-core."""
    prepare_node_tools()
    return NODE_TOOLS / "node_modules" / "axe-core" / "axe.min.js"


VIOLATIONS = """() => axe.run(document, {resultTypes: ["violations"]}).then((found) => found.violations.map((each) =>
  `${each.id}: ${each.nodes.map((node) => node.html).slice(0, 3).join(" ")}`))"""


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_breaks_a_rule_of_accessibility(
    tab: Tab, axe: Path, everything: list[str], scheme: str, width: int
) -> None:
    tab.expected = REFUSED
    page = tab.open(color_scheme=scheme, viewport={"width": width, "height": 800}, bypass_csp=True)
    page.add_init_script(path=axe)
    for path in everything:
        page.goto(path)
        page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        assert page.evaluate(VIOLATIONS) == [], path
    page.evaluate("document.querySelector('h1').innerHTML = '<img src=\"data:,\">'")
    assert any(each.startswith("image-alt: ") for each in page.evaluate(VIOLATIONS))


def test_every_field_has_a_name_and_every_page_its_landmarks(tab: Tab, everything: list[str]) -> None:
    tab.expected = REFUSED
    page = tab.open()
    for path in everything:
        page.goto(path)
        for role in ("banner", "main", "contentinfo"):
            expect(page.get_by_role(role)).to_have_count(1)
        expect(page.locator("h1")).to_have_count(1)
        nameless = page.evaluate(
            """() => [...document.querySelectorAll('input:not([type=hidden]), select, textarea, button, a')]
              .filter((each) => !(each.labels && each.labels.length) && !each.getAttribute('aria-label')
                && !each.textContent.trim()).map((each) => each.outerHTML)"""
        )
        assert nameless == [], path
        ids = page.evaluate("[...document.querySelectorAll('[id]')].map((each) => each.id)")
        assert sorted(set(ids)) == sorted(ids), path


def test_light_and_dark_follow_the_readers_preference(tab: Tab) -> None:
    grounds: dict[str, float] = {}
    for scheme in ("light", "dark"):
        page = tab.open(color_scheme=scheme)
        colour = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        grounds[scheme] = sum(int(each) for each in re.findall(r"\d+", colour)[:3]) / 3
    assert grounds["light"] > 200
    assert grounds["dark"] < 60


def test_the_page_asks_for_nothing_but_its_own_server(tab: Tab, server: EmubusServer, everything: list[str]) -> None:
    tab.expected = REFUSED
    page = tab.open()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    for path in everything:
        page.goto(path)
    assert asked
    assert {each for each in asked if not each.startswith(f"http://localhost:{server.http_port}/")} == set()


def test_everything_works_without_scripts(tab: Tab, server: EmubusServer, name: str) -> None:
    page = tab.open(f"{PAGE}/create", java_script_enabled=False)
    expect(page.locator("#live-toggle")).to_be_hidden()
    page.get_by_label("Name").fill(name)
    page.get_by_label("Enable partitioning").check()
    page.get_by_role("button", name="Create the queue").click()
    expect(page.locator("#flash")).to_contain_text("was created")
    page.get_by_role("link", name="Send").click()
    page.get_by_label("Body", exact=True).fill("no script")
    page.get_by_role("button", name="Where would it go?").click()
    expect(page.locator("#destination")).to_contain_text("round-robin")
    page.get_by_role("button", name="Send", exact=True).click()
    expect(page.locator("#flash")).to_contain_text("Sent: partition 0 of 16, sequence number 1")
    lock(server, name, 1, reason="Bad")
    page.get_by_role("link", name="Dead letters").click()
    page.get_by_role("button", name="Resubmit all 1").click()
    expect(page.locator("#flash")).to_contain_text("1 of 1 message resubmitted")
    page.get_by_role("link", name="Partitions").click()
    page.get_by_role("button", name="Simulate outage of messaging store 1", exact=True).click()
    expect(page.locator("#column-1")).to_contain_text("down")
    page.get_by_role("button", name="End outage of messaging store 1", exact=True).click()
    page.get_by_text("Delete …").click()
    page.get_by_role("button", name=f"Delete {name}").click()
    expect(page.locator("#flash")).to_contain_text("was deleted")
