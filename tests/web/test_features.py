"""What the page can do, row by row of docs/PAGE.md, in a real browser: on a desk's width and on a phone's.

A row of that page without a function here fails, and so does a function without a row. A page that is wider than the
phone fails the row that has opened it.
"""

from __future__ import annotations

import gc
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from playwright.sync_api import Page, expect

from emubus.broker.api import ReceiveMode, partition_for_key
from emubus.broker.errors import BrokerError, Condition
from emubus.broker.message.builder import NewMessage
from emubus.broker.model.descriptions import (
    EntityStatus,
    QueueDescription,
    RuleDescription,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
)
from emubus.codec.types import Int
from emubus.testing import EmubusServer

from ..building import ROOT
from .conftest import Tab
from .looking import PAGE, at, row_of
from .namespace import counts, lock, send

PAGE_OF_DOCS: Final = ROOT / "docs" / "PAGE.md"
PHONE, DESK = 360, 1280
NO_SUCH: Final = BrokerError(Condition.NOT_FOUND, "There is no 'no-such'.")
Feature = Callable[[Page, EmubusServer, str], None]


def button(page: Page, name: str) -> None:
    """Press a button, which may be in closed details."""
    page.get_by_role("button", name=name, exact=True).click()


def said(page: Page, text: str) -> None:
    """What was done is said at the top of the next page."""
    expect(page.locator("#flash")).to_contain_text(text)


def previews(page: Page, *texts: str) -> None:
    """The messages in the table are these."""
    expect(page.locator("tbody.message-rows .preview")).to_have_text(list(texts))


# ---- entities


def nothing_to_install(page: Page, server: EmubusServer, name: str) -> None:
    page.goto("/")
    expect(page.get_by_role("heading", name="Entities")).to_be_visible()
    assert page.get_by_label("Connection string").input_value() == server.connection_string


def counts_live(page: Page, server: EmubusServer, name: str) -> None:
    server.create(QueueDescription(name))
    page.goto(f"/?find={name}")
    assert row_of(page, name) == "0 0 0 0"
    send(server, name, NewMessage(b"x"), NewMessage(b"x"))
    expect(page.locator("td[data-label=Active]")).to_have_text("2")


def found_by_name(page: Page, server: EmubusServer, name: str) -> None:
    server.create(QueueDescription(name))
    page.goto("/")
    page.get_by_label("Find by name").fill(name[3:].upper())
    button(page, "Find")
    expect(page.locator("tbody th a")).to_have_text([name])


def sorted_and_filtered(page: Page, server: EmubusServer, name: str) -> None:
    server.create(QueueDescription(f"{name}-a"))
    server.create(QueueDescription(f"{name}-b", status=EntityStatus.SEND_DISABLED))
    server.create(QueueDescription(f"{name}-c"))
    send(server, f"{name}-c", NewMessage(b"x"))
    page.goto(f"/?find={name}")
    page.get_by_role("navigation", name="Sort by").get_by_role("link", name="active").click()
    expect(page.locator("tbody th a")).to_have_text([f"{name}-c", f"{name}-a", f"{name}-b"])
    page.get_by_role("link", name="disabled").click()
    expect(page.locator("tbody th a")).to_have_text([f"{name}-b"])


def charts(page: Page, server: EmubusServer, name: str) -> None:
    server.create(QueueDescription(name))
    send(server, name, *(NewMessage(b"x") for _ in range(3)))
    server.call(server.server.sampler.sample)
    page.goto(at("charts", name))
    page.get_by_role("link", name="1 hour").click()
    depth = page.get_by_role("region", name="Messages there")
    plot = depth.locator(".u-over")
    expect(plot).to_be_visible()
    expect(page.locator("#charts")).to_be_hidden()
    expect(depth.locator(".u-legend")).to_contain_text("3 messages")  # the last value, without a pointer
    server.begin_outage(2)
    server.call(server.server.sampler.sample)
    data = page.locator("#charts [data-samples]").first
    expect(data).to_have_attribute("data-samples", re.compile(r'"outages":\[\[\d+,\d+\]'))
    server.end_outage(2)
    expect(depth).to_contain_text("a messaging store was out")
    box = plot.bounding_box()
    assert box is not None
    plot.hover(position={"x": box["width"] - 1, "y": box["height"] / 2})
    expect(depth.locator(".u-legend")).to_contain_text("3 messages")
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.up()
    button(page, "Whole span")  # zooms out
    expect(page.get_by_role("button", name="Whole span")).to_be_hidden()


def created_edited_deleted(page: Page, server: EmubusServer, name: str) -> None:
    page.goto(f"{PAGE}/create")
    page.get_by_label("Name").fill(name)
    button(page, "Create the queue")
    page.get_by_role("link", name="Edit").click()
    page.get_by_label("Status").select_option("Disabled")
    page.get_by_label("Lock duration").fill("90s")
    button(page, "Save")
    expect(page.locator("h1")).to_contain_text("Disabled")
    expect(page.get_by_role("region", name="Properties")).to_contain_text("1 min 30 s")
    page.get_by_text("Delete …").click()
    button(page, f"Delete {name}")
    said(page, f"'{name}' was deleted.")


def definitions_exported_and_imported(page: Page, server: EmubusServer, name: str) -> None:
    server.create(QueueDescription(name, lock_duration_ms=7_000))
    page.goto(f"{PAGE}/namespace")
    with page.expect_download() as download:
        page.get_by_role("link", name="Config.json").click()
    definitions = Path(download.value.path()).read_bytes()
    server.delete(name)
    page.get_by_label("Config.json").set_input_files(
        {"name": "Config.json", "mimeType": "application/json", "buffer": definitions}
    )
    button(page, "Create what is missing")
    said(page, "1 entity was created")
    page.locator("#flash").get_by_role("link", name=name).click()
    expect(page.get_by_role("region", name="Properties")).to_contain_text("7 s")


def flow_drawn(page: Page, server: EmubusServer, name: str) -> None:
    server.create(TopicDescription(name))
    rule = RuleDescription("red", SqlFilter("color = 'red'"))
    server.create(SubscriptionDescription(name, "s", rules=(rule,)))
    server.create(QueueDescription(f"{name}-to", forward_to=name))
    send(server, name, NewMessage(b"x"), NewMessage(b"x", {}, {"color": "red"}))
    page.goto(f"{PAGE}/forwarding")  # an address of before
    lines = page.locator("#flow tbody tr")
    expect(lines.filter(has_text=f"{name}-to")).to_contain_text("forwards to")
    expect(lines.filter(has_text=f"{name}/Subscriptions/s")).to_contain_text("took 1 of 2")
    expect(page.locator("#flow svg .node-topic").first).to_be_visible()


# ---- messages


def columns(page: Page, server: EmubusServer, name: str) -> None:
    server.create(QueueDescription(name))
    send(server, name, NewMessage(b"x", {"message-id": "id-1", "subject": "offer", "correlation-id": "c-1"}))
    page.goto(at("messages", name))
    page.get_by_text("State, time, SQL expression, groups, columns").click()
    page.get_by_label("CorrelationId").check()
    page.get_by_label("Partition", exact=True).uncheck()
    button(page, "Show")
    labels = [each.get_attribute("data-label") for each in page.locator("tbody.message-rows td[data-label]").all()]
    assert labels == ["MessageId", "Subject", "CorrelationId", "Enqueued", "Deliveries", "Size", "State"]
    expect(page.locator("tbody.message-rows")).to_contain_text("c-1")


def peeked(page: Page, server: EmubusServer, name: str) -> None:
    server.create(QueueDescription(name))
    send(server, name, *(NewMessage(b"m%d" % n) for n in range(30)))
    page.goto(at("messages", name))
    page.get_by_label("From number").fill("29")
    button(page, "Show")
    previews(page, "m28", "m29")
    assert counts(server, name) == {"active": 30}


def searched(page: Page, server: EmubusServer, name: str) -> None:
    server.create(QueueDescription(name))
    server.call(server.clock.freeze)
    for n in range(5):
        send(server, name, NewMessage(b"m%d" % n, {}, {"n": Int(n)}))
        server.advance(1_000)
    page.goto(at("messages", name))
    page.get_by_label("Text", exact=True).fill("m4")
    button(page, "Show")
    previews(page, "m4")
    page.get_by_label("Text", exact=True).fill("")
    page.get_by_label("SQL expression").fill("n > 0 AND n < 3")
    page.get_by_label("Order").select_option("newest first")
    button(page, "Show")
    previews(page, "m2", "m1")
    later = server.now_ms() + 60_000
    for text, minutes in (("third", 3), ("first", 1), ("second", 2)):
        send(server, name, NewMessage(text.encode(), scheduled_enqueue_at=later + minutes * 60_000))
    page.goto(at("entity", name))
    page.get_by_role("link", name="the next due first").click()
    previews(page, "first", "second", "third")


def found_counted_and_acted_on(page: Page, server: EmubusServer, name: str) -> None:
    server.create(QueueDescription(name))
    send(server, name, *(NewMessage(b"x", {"subject": "red" if n % 3 else "blue"}) for n in range(60)))
    lock(server, name, 60, reason="Bad")
    page.goto(at("messages", name, "&queue=dead-letter"))
    page.get_by_text("State, time, SQL expression, groups, columns").click()
    page.get_by_label("Group by").select_option("subject")
    button(page, "Show")
    page.locator("table.groups").get_by_role("link", name="red").click()
    expect(page.locator("#counted")).to_contain_text("40 of 60 messages found")
    page.get_by_text("Move, copy, act on all that match").click()
    page.get_by_label("Action").select_option("delete")
    page.get_by_label("Messages", exact=True).select_option("the first …")
    page.get_by_label("The first", exact=True).fill("10")
    button(page, "Do it")
    said(page, "10 messages deleted.")
    button(page, "Resubmit the 30 found")
    said(page, "30 messages resubmitted")
    assert counts(server, name) == {"active": 30, "dead-letter": 20}


def two_compared(page: Page, server: EmubusServer, name: str) -> None:
    server.create(QueueDescription(name))
    send(server, name, NewMessage(b"x", {"subject": "a"}), NewMessage(b"y", {"subject": "b"}))
    page.goto(at("messages", name))
    page.get_by_label("Select message 1").check()
    page.get_by_label("Select message 2").check()
    button(page, "Compare two")
    expect(page.locator("tr.differs", has_text="subject").locator("td")).to_have_text(["a", "b"])


def locked_and_settled(page: Page, server: EmubusServer, name: str) -> None:
    server.create(QueueDescription(name))
    send(server, name, *(NewMessage(b"m%d" % n) for n in range(5)))
    page.goto(at("messages", name))
    for number in range(1, 6):
        page.get_by_label(f"Select message {number}").check()
    button(page, "Lock selected")
    for number, outcome in enumerate(("Complete", "Abandon", "Defer", "Dead-letter", "Release"), 1):
        row = page.locator(f"#m{number}")
        row.locator("summary").click()
        row.get_by_role("button", name=outcome, exact=True).click()
        said(page, f"Message {number} ")
    assert counts(server, name) == {"active": 2, "deferred": 1, "dead-letter": 1}


def one_deleted_one_dead_lettered(page: Page, server: EmubusServer, name: str) -> None:
    server.create(QueueDescription(name))
    send(server, name, *(NewMessage(b"m%d" % n) for n in range(3)))
    page.goto(at("messages", name))
    page.get_by_label("Select message 1").check()
    button(page, "Delete selected")
    said(page, "1 of 1 message deleted.")
    page.get_by_label("Select message 2").check()
    button(page, "Dead-letter selected")
    said(page, "1 of 1 message dead-lettered.")
    previews(page, "m2")


def purged(page: Page, server: EmubusServer, name: str) -> None:
    server.create(QueueDescription(name))
    send(server, name, *(NewMessage(b"x") for _ in range(4)))
    lock(server, name, 2, reason="Bad")
    page.goto(at("messages", name, "&queue=dead-letter"))
    page.get_by_text("Move, copy, act on all that match").click()
    page.get_by_label("Action").select_option("delete")
    page.get_by_label("Messages", exact=True).select_option("all 2")
    button(page, "Do it")
    said(page, "2 of 2 messages deleted.")
    assert counts(server, name) == {"active": 2}
    page.goto(at("entity", name))
    page.get_by_text("Purge …").click()
    button(page, f"Purge {name}")
    said(page, "2 messages were removed")


def resubmitted(page: Page, server: EmubusServer, name: str) -> None:
    server.create(QueueDescription(name))
    send(server, name, *(NewMessage(b"x") for _ in range(30)))
    lock(server, name, 30, reason="Bad")
    page.goto(at("messages", name, "&queue=dead-letter"))
    button(page, "Resubmit all 30")
    expect(page.locator("#progress")).to_contain_text(f"30 of 30 messages resubmitted to {name}.")
    assert counts(server, name) == {"active": 30}


def edited_and_sent_again(page: Page, server: EmubusServer, name: str) -> None:
    server.create(QueueDescription(name))
    server.create(QueueDescription(f"{name}-to"))
    send(server, name, NewMessage(b"old", {"subject": "s"}, {"n": Int(1)}))
    page.goto(at("messages", name))
    page.locator("table.messages summary").click()
    page.get_by_role("link", name="Edit and send again").click()
    page.get_by_label("Body", exact=True).fill("new")
    page.get_by_label("To queue or topic").fill(f"{name}-to")
    page.get_by_label("Remove the original").check()
    page.get_by_role("button", name="Send", exact=True).click()
    said(page, "1 of 1 message moved")
    (moved,) = server.peek(f"{name}-to")
    assert (moved.body["text"], moved.properties["subject"], moved.application_properties) == ("new", "s", {"n": 1})


def sent_with_all_properties(page: Page, server: EmubusServer, name: str) -> None:
    server.create(QueueDescription(name))
    page.goto(at("send", name))
    page.get_by_text("To, ReplyTo, ReplyToSessionId").click()
    fields = ("ContentType", "MessageId", "Subject (Label)", "CorrelationId", "To", "ReplyTo", "ReplyToSessionId")
    for label in fields:
        page.get_by_label(label, exact=True).fill(f"a {label}"[:20])
    page.get_by_label("Body", exact=True).fill("00 ff")
    page.get_by_label("Body as").select_option("hex")
    page.get_by_label("Time to live").fill("2h")
    page.get_by_label("Scheduled for").fill("10m")
    page.get_by_label("Name of property 1").fill("when")
    page.get_by_label("Type of property 1").select_option("timestamp")
    page.get_by_label("Value of property 1").fill("2030-01-01T12:00Z")
    page.get_by_role("button", name="Send", exact=True).click()
    said(page, "sequence number 1")
    (message,) = server.peek(name)
    assert (message.state, message.body["base64"], message.header["ttl_ms"]) == ("scheduled", "AP8=", 7_200_000)
    assert {message.properties[each] for each in ("message_id", "to", "reply_to")} == {
        "a MessageId",
        "a To",
        "a ReplyTo",
    }
    assert "2030-01-01T12:00" in json.dumps(message.application_properties)


def sent_often_from_a_file_from_a_template(page: Page, server: EmubusServer, name: str) -> None:
    server.create(QueueDescription(name))
    page.goto(at("send", name))
    page.get_by_label("Body", exact=True).fill("kept")
    page.get_by_label("Name of property 1").fill("n")
    page.get_by_label("Type of property 1").select_option("long")
    page.get_by_label("Value of property 1").fill("7")
    page.get_by_label("Name as a template").fill(name)
    button(page, "Keep as a template")
    said(page, f"The template '{name}' was kept.")
    page.goto(at("send", name))
    page.get_by_role("region", name="Kept templates").get_by_role("link", name=name, exact=True).click()
    expect(page.get_by_label("Body", exact=True)).to_have_value("kept")
    expect(page.get_by_label("Value of property 1")).to_have_value("7")
    page.get_by_label("How often").fill("3")
    page.get_by_role("button", name="Send", exact=True).click()
    said(page, "Sent 3 of 3 times.")
    line = json.dumps({"message": {"body": {"kind": "data", "text": "from a file"}}}).encode()
    page.get_by_label("Messages as JSON Lines").set_input_files(
        {"name": "x.jsonl", "mimeType": "application/jsonl", "buffer": line}
    )
    button(page, "Import")
    said(page, "1 message imported.")
    assert [each.body["text"] for each in server.peek(name)] == ["kept"] * 3 + ["from a file"]
    button(page, f"Delete the template {name}")
    said(page, "was deleted")


def messages_exported_and_bodies_downloaded(page: Page, server: EmubusServer, name: str) -> None:
    server.create(QueueDescription(name))
    send(server, name, NewMessage(b"\0" * 9_000), NewMessage(b"y"))
    page.goto(at("messages", name))
    page.locator("#m1 summary").click()
    for link, size in (("Download the body", 9_000), ("Export all as JSON Lines", None)):
        with page.expect_download() as download:
            page.locator(f"a:has-text('{link}'):visible").first.click()
        data = Path(download.value.path()).read_bytes()
        assert len(data) == size if size else len(data.splitlines()) == 2


def pretty_bodies(page: Page, server: EmubusServer, name: str) -> None:
    server.create(QueueDescription(name))
    send(server, name, NewMessage(b'{"a":[1]}'), NewMessage(b"<a><b>1</b></a>"))
    page.goto(at("messages", name))
    for number, text in ((1, '{\n  "a": [\n    1\n  ]\n}'), (2, "<a>\n  <b>1</b>\n</a>")):
        page.locator(f"#m{number} summary").click()
        expect(page.locator(f"#m{number} pre")).to_have_text(text)


# ---- rules, sessions, partitions


def rules_added_tried_deleted(page: Page, server: EmubusServer, name: str) -> None:
    server.create(TopicDescription(name))
    server.create(SubscriptionDescription(name, "s"))
    page.goto(at("rules", f"{name}/Subscriptions/s"))
    add = page.get_by_role("form", name="Add a rule")
    add.get_by_label("Name", exact=True).fill("red")
    add.get_by_label("SQL expression").fill("color = 'red'")
    add.get_by_label("SQL action").fill("SET sys.Label = 'hot'")
    add.get_by_role("button", name="Add the rule").click()
    trial = page.get_by_role("form", name="Which rule would match this message?")
    trial.get_by_label("Name of property 1").fill("color")
    trial.get_by_label("Value of property 1").fill("red")
    trial.get_by_role("button", name="Try").click()
    expect(page.locator("table.rules tbody tr").last).to_contain_text("Label = hot")
    page.get_by_role("link", name="Edit the rule red").click()
    edit = page.get_by_role("form", name="Edit the rule red")
    expect(edit.get_by_label("SQL action")).to_have_value("SET sys.Label = 'hot'")
    edit.get_by_label("SQL expression").fill("color = 'blue'")
    button(page, "Save the rule")
    said(page, "The rule 'red' was changed.")
    expect(page.locator("table.rules tbody tr").last).to_contain_text("color = 'blue'")
    button(page, "Delete the rule $Default")
    expect(page.locator("table.rules tbody tr")).to_have_count(1)


def sessions(page: Page, server: EmubusServer, name: str) -> None:
    server.create(QueueDescription(name, requires_session=True))
    send(server, name, NewMessage(b"x", {"group-id": "two"}))
    server.advance(60_000)
    send(server, name, NewMessage(b"x", {"group-id": "one"}))
    lost: list[object] = []

    def accept() -> None:
        server.server.broker.accept_session(
            name,
            "one",
            mode=ReceiveMode.PEEK_LOCK,
            timeout_ms=0,
            granted=lambda _: None,
            refused=lambda _: None,
            detached=lost.append,
            client="shop 1.2",
        )

    server.call(accept)
    page.goto(at("sessions", name))
    expect(page.locator("tbody th")).to_have_text(["one", "two"])
    page.get_by_role("link", name="waiting longest first").click()
    expect(page.locator("tbody th")).to_have_text(["two", "one"])
    page.get_by_role("link", name="by name").click()
    expect(page.locator("tbody tr").first).to_contain_text("shop 1.2")
    button(page, "Release session one")
    said(page, "its receiver lost it")
    assert len(lost) == 1
    page.get_by_role("link", name="state of session one").click()
    page.get_by_text("Set or clear the state").click()
    page.get_by_label("New state").fill('{"step":2}')
    button(page, "Set the state")
    said(page, "The state of session 'one' was set: 10 B.")
    expect(page.get_by_role("region", name="State of session one").last).to_have_text('{\n  "step": 2\n}')
    page.get_by_text("Set or clear the state").click()
    button(page, "Clear the state")
    said(page, "was cleared")


def hot_keys(page: Page, server: EmubusServer, name: str) -> None:
    server.create(QueueDescription(name, enable_partitioning=True))
    send(server, name, *(NewMessage(b"x", partition_key="hot" if n else "cold") for n in range(10)))
    page.goto(at("entity", name))
    page.get_by_role("link", name="Keys").click()
    rows = page.locator("table.heat tbody tr")
    expect(rows.locator("th")).to_have_text(["hot", "cold"])
    cell = 3 + partition_for_key("hot", 16)
    expect(rows.first.locator("th, td").nth(cell)).to_have_text("9")
    expect(rows.first.locator(".heat-4")).to_have_count(1)


def partitions_and_outage(page: Page, server: EmubusServer, name: str) -> None:
    server.create(QueueDescription(name, enable_partitioning=True))
    page.goto(at("send", name))
    page.get_by_label("PartitionKey").fill("order-7")
    button(page, "Where would it go?")
    expect(page.locator("#destination")).to_contain_text("of 16 (messaging store")
    page.get_by_role("link", name="Partitions").click()
    expect(page.locator("#picture .column")).to_have_count(16)
    button(page, "Simulate outage of messaging store 2")
    expect(page.locator("#column-2")).to_contain_text("down")
    button(page, "End outage of messaging store 2")
    expect(page.locator("#column-2")).to_contain_text("ok")


# ---- the namespace


def clock_and_reset(page: Page, server: EmubusServer, name: str) -> None:
    server.create(QueueDescription(name, default_ttl_ms=3_000_000))
    send(server, name, NewMessage(b"x"))
    page.goto(f"{PAGE}/namespace")
    button(page, "Advance by 1h")
    said(page, "The clock was advanced by 1 h.")
    assert counts(server, name) == {}
    page.get_by_text("Reset to the configuration …").click()
    button(page, "Reset to the configuration")
    said(page, "reset to its start-up configuration")
    assert server.call(lambda: server.server.broker.namespace.entity(name)) is None


def connections(page: Page, server: EmubusServer, name: str) -> None:
    server.create(QueueDescription(name))
    with (
        ServiceBusClient.from_connection_string(server.connection_string, user_agent="shop") as sdk,
        sdk.get_queue_sender(name) as sender,
    ):
        sender.send_messages(ServiceBusMessage("x"))
        page.goto(f"{PAGE}/flow")
        expect(page.locator("#flow tbody tr", has_text=name)).to_contain_text("sends to")
        row = page.locator("#connections tbody tr", has_text=name)
        expect(row).to_contain_text("shop azsdk-python-servicebus")
        row.get_by_role("button").click()
        said(page, "was dropped")
    gc.collect()


def roles(page: Page, server: EmubusServer, name: str) -> None:
    page.goto(f"{PAGE}/roles")
    page.get_by_label("Identity", exact=True).fill(name)
    page.get_by_label("Role", exact=True).select_option("Azure Service Bus Data Receiver")
    button(page, "Assign")
    said(page, f"{name} has the role Azure Service Bus Data Receiver")
    assert [each.principal for each in server.roles()] == [name]
    button(page, f"Remove Azure Service Bus Data Receiver from {name}")
    assert server.roles() == []


def failures_and_snapshots(page: Page, server: EmubusServer, name: str) -> None:
    server.create(QueueDescription(name))
    page.goto(f"{PAGE}/failures")
    page.get_by_label("Condition", exact=True).select_option("throttled")
    button(page, "Show its parameters")
    page.get_by_label("throttle-credits: credits_per_s").fill("5")
    page.locator("#c-entity").fill(name)
    button(page, "Begin the condition")
    said(page, "(throttled) is on")
    (behaviour, *_) = server.server.amqp.conditions.list()[0].behaviours
    assert behaviour.number("credits_per_s") == 5
    page.goto("/")
    expect(page.locator("#alerts")).to_contain_text(f"Condition on: throttled ({name}).")
    page.locator("#alerts").get_by_role("link", name="End").click()
    button(page, "End condition throttled")
    page.locator("#s-name").fill(name)
    button(page, "Take a snapshot")
    send(server, name, NewMessage(b"x"))
    page.locator("summary", has_text=f"Restore {name}").click()
    button(page, f"Restore {name}")
    said(page, "was restored")
    assert counts(server, name) == {}
    page.locator("summary", has_text=f"Delete {name}").click()
    button(page, f"Delete {name}")


def story(page: Page, server: EmubusServer, name: str) -> None:
    server.create(TopicDescription(name))
    rule = RuleDescription("red", SqlFilter("color = 'red'"))
    server.create(SubscriptionDescription(name, "s", rules=(rule,)))
    server.create(QueueDescription(f"{name}-q"))
    server.call(lambda: server.server.story.switch(is_on=True))
    send(server, name, NewMessage(b"x", {"message-id": name}))
    page.goto(f"{PAGE}/story")
    page.get_by_label("Message id").fill(name)
    page.get_by_role("search").get_by_role("button", name="Find").click()
    expect(page.locator(".timeline")).to_contain_text("No subscription takes the message: no rule matches")
    expect(page.locator(".timeline")).to_contain_text("color = 'red' is unknown (color is not set)")
    send(server, f"{name}-q", NewMessage(b"x"))
    page.goto(at("messages", f"{name}-q"))
    page.locator("table.messages summary").click()
    page.get_by_role("link", name="Story of message 1").click()
    expect(page.locator(".timeline .badge")).to_have_text(["sent"])


def happening_now(page: Page, server: EmubusServer, name: str) -> None:
    server.create(QueueDescription(name))
    server.call(lambda: server.server.story.switch(is_on=True))
    page.goto(f"{PAGE}/now")
    page.keyboard.press("/")
    page.keyboard.type(f"{name}-id")
    send(server, name, NewMessage(b"the body", {"message-id": f"{name}-id"}))
    row = page.locator("table.now tbody tr")
    expect(row).to_have_count(1)
    expect(row).to_contain_text("the body")
    page.get_by_label("Find").blur()
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_contain_text(name)
    server.call(lambda: server.server.broker.refusals.refused("shop 1.2", "no-such", NO_SUCH))
    page.goto(f"{PAGE}/now?only=refusals")
    expect(row.first).to_contain_text("create it: emubus create queue no-such")


def found_in_all_entities(page: Page, server: EmubusServer, name: str) -> None:
    for queue in (f"{name}-a", f"{name}-b", f"{name}-c"):
        server.create(QueueDescription(queue))
    send(server, f"{name}-a", NewMessage(b"order 4711 of " + name.encode()), NewMessage(b"another"))
    send(server, f"{name}-b", NewMessage(b"order 4711 of " + name.encode()))
    lock(server, f"{name}-b", 1, reason="Bad")
    send(server, f"{name}-c", NewMessage(b"another"))
    page.goto(f"{PAGE}/now")
    page.get_by_label("Find").fill(f"4711 of {name}")
    button(page, "In all entities")
    expect(page.locator("#places li")).to_have_text([f"{name}-a, Messages: 1", f"{name}-b, Dead letters: 1"])
    page.get_by_role("link", name=f"{name}-b, Dead letters").click()
    previews(page, f"order 4711 of {name}")


FEATURES: Final[dict[str, Feature]] = {
    "Nothing to install: the broker's HTTP port has it": nothing_to_install,
    "Counts of all entities, live": counts_live,
    "Find entities by name": found_by_name,
    "Sort entities by each figure; show only those with messages, dead letters, links, an outage": sorted_and_filtered,
    "Charts over five minutes, an hour, a day, with hover and zoom; outages are marked": charts,
    "Create, edit, disable and delete an entity": created_edited_deleted,
    "Export entities (Config.json, ARM, commands), import a Config.json": definitions_exported_and_imported,
    "The flow as a graph: senders, entities, what subscriptions took, receivers; loops and dead ends": flow_drawn,
    "Columns of messages, chosen": columns,
    "Peek, from a sequence number": peeked,
    "Search by text, SQL expression, state, time, session, partition; newest, oldest or next due first": searched,
    "Count what a search finds and act on it, or on the first of it; group it by any property": (
        found_counted_and_acted_on
    ),
    "Compare two messages": two_compared,
    "Lock; then complete, abandon, defer, dead-letter or release": locked_and_settled,
    "Delete or dead-letter single messages": one_deleted_one_dead_lettered,
    "Purge an entity, or one of its queues": purged,
    "Resubmit dead letters, with progress, a stop and the failures": resubmitted,
    "Edit a message and send it again, here or elsewhere": edited_and_sent_again,
    "Send with all properties and their types": sent_with_all_properties,
    "Send many times, from a file, from kept templates": sent_often_from_a_file_from_a_template,
    "Export messages, download a body": messages_exported_and_bodies_downloaded,
    "JSON and XML indented, other bytes in hexadecimal": pretty_bodies,
    "Rules: add, edit, delete, try a message and see why, and what the action does": rules_added_tried_deleted,
    "Message sessions: the state shown, set and cleared; holder, release; which one waits longest": sessions,
    "Keys over partitions: which key is hot, and which partition it fills": hot_keys,
    "Partitions as a picture, where a message would go, outages": partitions_and_outage,
    "Clock and reset": clock_and_reset,
    "Connections with their links, drop one": connections,
    "Roles of identities: assign, remove": roles,
    "Conditions, faults, outages, snapshots": failures_and_snapshots,
    "The story of a message: what happened, and why no subscription took it": story,
    "What happens now: events of messages and refusals of the whole namespace, searched as you type": happening_now,
    "Find a text in the messages of all entities": found_in_all_entities,
}


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # the SDK leaves the socket that was cut
@pytest.mark.parametrize("width", [DESK, PHONE])
@pytest.mark.parametrize("feature", FEATURES.values(), ids=lambda each: each.__name__)
def test_the_page_can_do_it(tab: Tab, server: EmubusServer, feature: Feature, width: int) -> None:
    tab.expected = ["status of 404"]  # of a live update that asks for what was deleted meanwhile
    page = tab.open("about:blank", viewport={"width": width, "height": 800})
    feature(page, server, f"{feature.__name__.replace('_', '-')}-{width}")
    if width == PHONE:
        # the last step may have led to another page, whose styles are on their way
        page.wait_for_function("width => document.documentElement.scrollWidth <= width", arg=PHONE)


def test_every_row_of_the_documentation_is_a_feature_with_a_test() -> None:
    rows = re.findall(r"^\| ([^|]+?) \|", PAGE_OF_DOCS.read_text(), re.MULTILINE)
    assert rows[1:] == list(FEATURES)
