"""Takes the pictures of the page for the README and the documentation: `python -m tests.web.pictures`.

Knows what is in the namespace that they show, and their sizes. A picture is not compared with the page; a test takes
them all anew, so a page that no longer has what they show fails it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from playwright.sync_api import Browser, Page, expect, sync_playwright

from emubus.broker.message.builder import NewMessage
from emubus.broker.model.descriptions import (
    QueueDescription,
    RuleDescription,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
)
from emubus.codec.types import Int
from emubus.testing import EmubusServer

from ..building import ROOT
from .conftest import FLAGS
from .looking import PAGE, at
from .namespace import lock, send
from .prepare import prepare

FOLDER: Final = ROOT / "docs" / "pictures"
SIZE: Final = {"width": 1080, "height": 640}
BYTES_MAX: Final = 100_000


def shop(server: EmubusServer) -> None:
    """A namespace with something in it."""
    server.create(QueueDescription("orders", enable_partitioning=True))
    server.create(QueueDescription("invoices", requires_session=True))
    server.create(TopicDescription("events"))
    for name, expression in (("billing", "kind = 'paid'"), ("shipping", "kind = 'packed' AND weight > 5")):
        rule = RuleDescription("rule", SqlFilter(expression))
        server.create(SubscriptionDescription("events", name, rules=(rule,)))
    server.call(lambda: server.server.story.switch(is_on=True))
    for n in range(120):
        body = b'{"order": %d, "items": [{"sku": "A-%d", "count": %d}]}' % (n, n % 9, n % 4 + 1)
        properties = {"message-id": f"order-{n}", "subject": "placed", "content-type": "application/json"}
        send(server, "orders", NewMessage(body, properties, {"amount": Int(10 * n)}, f"customer-{n % 23}"))
    lock(server, "orders", 14)
    lock(server, "orders", 9, reason="OutOfStock")
    send(server, "invoices", *(NewMessage(b"x", {"group-id": f"customer-{n % 3}"}) for n in range(7)))
    send(server, "events", NewMessage(b"{}", {"message-id": "event-1"}, {"kind": "packed", "weight": Int(3)}))


def entities(page: Page) -> None:
    page.goto("/")
    expect(page.get_by_role("link", name="orders", exact=True)).to_be_visible()


def partitions(page: Page) -> None:
    page.goto(at("entity", "orders"))
    page.get_by_role("button", name="Simulate outage of messaging store 5").click()
    expect(page.locator("#column-5")).to_contain_text("down")


def messages(page: Page) -> None:
    page.goto(at("messages", "orders", "&text=placed&order=newest"))
    page.locator("tbody.message-rows summary").first.click()
    expect(page.locator("tbody.message-rows pre").first).to_contain_text('"sku": "A-')


def story(page: Page) -> None:
    page.goto(f"{PAGE}/story?id=event-1")
    expect(page.locator(".timeline")).to_contain_text("weight > 5 is false")


def phone(page: Page) -> None:
    page.set_viewport_size({"width": 360, "height": 640})
    page.goto("/?find=o")
    expect(page.get_by_role("link", name="orders", exact=True)).to_be_visible()


PICTURES: Final[Mapping[str, Callable[[Page], None]]] = {
    "entities": entities,
    "messages": messages,
    "story": story,
    "phone": phone,
    "partitions": partitions,  # last: it has an outage
}


def take(server: EmubusServer, browser: Browser, folder: Path) -> None:
    """Take all pictures into a folder."""
    shop(server)
    for name, show in PICTURES.items():
        context = browser.new_context(base_url=f"http://localhost:{server.http_port}", viewport=SIZE)  # type: ignore[arg-type]
        page = context.new_page()
        show(page)
        page.screenshot(path=folder / f"{name}.png", animations="disabled", caret="hide")
        context.close()


def main() -> int:
    """The command line."""
    FOLDER.mkdir(exist_ok=True)
    with EmubusServer() as server, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=prepare(), args=FLAGS)
        take(server, browser, FOLDER)
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
