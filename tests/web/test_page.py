"""The page in a real browser: each thing that it can do, by what one sees."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import expect

from emubus.broker.api import OutageKind, partition_for_key
from emubus.broker.message.builder import NewMessage
from emubus.broker.model.descriptions import (
    QueueDescription,
    RuleDescription,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
)
from emubus.codec.types import Long
from emubus.testing import EmubusServer

from .conftest import Tab
from .looking import PAGE, REFUSED, at, figure, row_of
from .namespace import counts, lock, send

# ---- the namespace at a glance


def test_entities_are_shown_with_counts_that_follow_what_happens(tab: Tab, server: EmubusServer, name: str) -> None:
    server.create(QueueDescription(name, enable_partitioning=True))
    send(server, name, *(NewMessage(b"x") for _ in range(4)))
    lock(server, name, 1)
    lock(server, name, 1, reason="Bad")
    page = tab.open(f"/?find={name}")
    assert row_of(page, name) == "3 1 0 1"
    send(server, name, NewMessage(b"x"), NewMessage(b"x", scheduled_enqueue_at=server.clock.now_ms() + 3_600_000))
    expect(page.locator("td[data-label=Active]")).to_have_text("4")
    assert row_of(page, name) == "4 1 1 1"
    expect(page.locator("td[data-label='In/s']")).not_to_have_text("-")
    assert page.locator("td[data-label='Partitions'] svg rect.seg-available").count() > 0
    assert "flash" not in page.url


def test_an_entity_is_found_by_a_part_of_its_name(tab: Tab, server: EmubusServer, name: str) -> None:
    server.create(TopicDescription(name))
    server.create(SubscriptionDescription(name, "the-needle"))
    page = tab.open()
    page.get_by_label("Find by name").fill("NEEDLE")
    page.get_by_role("button", name="Find").click()
    expect(page.locator("tbody th a")).to_have_text(["the-needle"])
    page.get_by_label("Find by name").fill("nothing-like-it")
    page.get_by_role("button", name="Find").click()
    expect(page.get_by_text("No entity has 'nothing-like-it' in its name.")).to_be_visible()


def test_live_updates_can_be_paused(tab: Tab, server: EmubusServer, name: str) -> None:
    server.create(QueueDescription(name))
    page = tab.open(at("entity", name))
    toggle = page.locator("#live-toggle")
    expect(toggle).to_have_text("Live")
    toggle.click()
    expect(toggle).to_have_text("Paused")
    send(server, name, NewMessage(b"x"))
    with pytest.raises(AssertionError):
        expect(figure(page, "Active")).to_have_text("1", timeout=1_500)
    toggle.click()
    expect(figure(page, "Active")).to_have_text("1")


# ---- partitions


def test_sixteen_partitions_are_a_picture_of_depth_and_locks(tab: Tab, server: EmubusServer, name: str) -> None:
    server.create(QueueDescription(name, enable_partitioning=True))
    send(server, name, *(NewMessage(b"x", {"group-id": None}, partition_key="a") for _ in range(6)))
    send(server, name, *(NewMessage(b"x", partition_key="b") for _ in range(3)))
    lock(server, name, 6)
    first, second = partition_for_key("a", 16), partition_for_key("b", 16)
    page = tab.open(at("entity", name))
    columns = page.locator("#picture .column")
    expect(columns).to_have_count(16)
    totals = columns.locator(".total").all_inner_texts()
    assert totals == [str({first: 6, second: 3}.get(index, 0)) for index in range(16)]
    heights = {
        index: sum(
            float(each.get_attribute("height") or 0) for each in page.locator(f"#column-{index} [class^=seg]").all()
        )
        for index in (first, second)
    }
    assert heights[first] == 2 * heights[second]
    assert page.locator("#picture .seg-locked[fill='url(#hatch)']").count() > 0
    locked = [int(text) for text in page.locator("#partition-rows [data-label=Locked]").all_inner_texts()]
    assert sum(locked) == 6


def test_a_partition_is_taken_down_and_brought_back(tab: Tab, server: EmubusServer, name: str) -> None:
    server.create(QueueDescription(name, enable_partitioning=True))
    page = tab.open(at("entity", name))
    page.get_by_role("button", name="Simulate outage of messaging store 7").click()
    expect(page.locator("#flash")).to_contain_text("Store 7: down.")
    expect(page.locator("#column-7")).to_contain_text("down")
    expect(page.locator("#column-7 line.cross")).to_have_count(2)
    expect(page.locator("#partition-7")).to_contain_text("can't be reached")
    expect(page.locator("#alerts")).to_contain_text("1 of 16 messaging stores out: 7 (down)")
    page.get_by_role("button", name="End outage of messaging store 7").click()
    expect(page.locator("#flash")).to_contain_text("Store 7 works again.")
    expect(page.locator("#column-7")).to_contain_text("ok")
    expect(page.locator("#alerts")).to_have_text("")


def test_an_outage_that_begins_elsewhere_is_seen_and_said(tab: Tab, server: EmubusServer, name: str) -> None:
    server.create(QueueDescription(name, enable_partitioning=True))
    page = tab.open(at("entity", name))
    server.begin_outage([3], OutageKind.FULL)
    expect(page.locator("#column-3")).to_contain_text("full")
    expect(page.get_by_role("status").first).to_contain_text("1 of 16 messaging stores out: 3 (full)")
    server.end_outage([3])
    expect(page.locator("#column-3")).to_contain_text("ok")


def test_totals_say_what_an_outage_hides(tab: Tab, server: EmubusServer, name: str) -> None:
    server.create(QueueDescription(name, enable_partitioning=True))
    send(server, name, *(NewMessage(b"x") for _ in range(32)))
    page = tab.open(at("entity", name))
    server.begin_outage([3], OutageKind.DOWN)
    expect(figure(page, "Active")).to_have_text("30 + ?")
    expect(page.locator("main")).to_contain_text("? is what partition 3 holds: can't be reached.")
    page.goto(f"/?find={name}")
    expect(page.locator("main")).to_contain_text("In all: 30 + ? active")
    server.end_outage([3])
    page.goto(at("entity", name))
    expect(figure(page, "Active")).to_have_text("32")


def test_a_store_is_slow_for_a_time(tab: Tab, server: EmubusServer, name: str) -> None:
    server.create(QueueDescription(name, enable_partitioning=True))
    page = tab.open(at("entity", name))
    page.get_by_text("More outages: slow, failing, full, for a limited time").click()
    form = page.get_by_role("form", name="Outage")
    form.get_by_label("Messaging store").select_option("2")
    form.get_by_label("Outage").select_option("slow")
    form.get_by_label("Duration").fill("10m")
    form.get_by_role("button", name="Set").click()
    expect(page.locator("#flash")).to_contain_text("Store 2: slow for 10 min.")
    expect(page.locator("#column-2")).to_contain_text("slow")
    server.advance(600_000)
    expect(page.locator("#column-2")).to_contain_text("ok")


# ---- messages


def test_messages_are_browsed_page_by_page_with_their_bodies(tab: Tab, server: EmubusServer, name: str) -> None:
    server.create(QueueDescription(name))
    body = json.dumps({"price": 1.5, "tags": ["a", "b"], "none": {}}).encode()
    message = NewMessage(
        body,
        {"message-id": "first", "subject": "offer", "content-type": "application/json"},
        {"color": "red", "size": Long(7)},
    )
    send(server, name, message, NewMessage(b"\x00\xff\x10", {}), *(NewMessage(b"plain %d" % n) for n in range(28)))
    page = tab.open(at("messages", name))
    expect(page.locator("#counted")).to_have_text("30 messages")
    rows = page.locator("tbody.message-rows")
    expect(rows).to_have_count(25)
    rows.nth(0).locator("summary").click()
    opened = rows.nth(0).locator(".message")
    expect(opened.locator("pre")).to_have_text(
        '{\n  "price": 1.5,\n  "tags": [\n    "a",\n    "b"\n  ],\n  "none": {}\n}'
    )
    reported = opened.inner_text()
    for text in ("message_id\nfirst", "subject\noffer", "color\nred", "size\n7", "x-opt-sequence-number\n1"):
        assert text in reported
    rows.nth(1).locator("summary").click()
    expect(rows.nth(1).locator("pre")).to_contain_text("000000  00 ff 10")
    expect(rows.nth(1).locator("h2 .badge")).to_have_text("binary")
    page.get_by_role("link", name="Next page").click()
    expect(rows).to_have_count(5)
    expect(rows.nth(4)).to_contain_text("plain 27")
    page.get_by_role("link", name="First page").click()
    expect(rows).to_have_count(25)
    page.get_by_label("From number").fill("29")
    page.get_by_role("button", name="Show").click()
    expect(rows).to_have_count(2)
    assert counts(server, name) == {"active": 30}


def test_messages_of_one_session_and_one_partition_are_browsed(tab: Tab, server: EmubusServer, name: str) -> None:
    server.create(QueueDescription(name, enable_partitioning=True, requires_session=True))
    send(server, name, *(NewMessage(b"m%d" % n, {"group-id": f"s{n % 4}"}) for n in range(12)))
    page = tab.open(at("messages", name))
    page.get_by_role("textbox", name="SessionId").fill("s1")
    page.get_by_role("button", name="Show").click()
    expect(page.locator("tbody.message-rows .preview")).to_have_text(["m1", "m5", "m9"])
    page.get_by_role("textbox", name="SessionId").fill("")
    page.get_by_role("combobox", name="Partition").select_option(str(partition_for_key("s2", 16)))
    page.get_by_role("button", name="Show").click()
    expect(page.locator("table.messages")).to_contain_text("m2")


def test_a_sent_message_is_reported_by_partition_and_number(tab: Tab, server: EmubusServer, name: str) -> None:
    server.create(QueueDescription(name, enable_partitioning=True))
    page = tab.open(at("send", name))
    page.get_by_label("Body", exact=True).fill('{"hello": "wörld"}')
    page.get_by_label("PartitionKey").fill("customer-7")
    page.get_by_label("MessageId").fill("id-1")
    page.get_by_label("Time to live").fill("2h")
    page.get_by_label("Name of property 1").fill("weight")
    page.get_by_label("Type of property 1").select_option("double")
    page.get_by_label("Value of property 1").fill("2.5")
    page.get_by_role("button", name="Add a property").click()
    page.get_by_label("Name of property 3").fill("urgent")
    page.get_by_label("Type of property 3").select_option("boolean")
    page.get_by_label("Value of property 3").fill("true")
    page.get_by_role("button", name="Send", exact=True).click()
    index = partition_for_key("customer-7", 16)
    number = (index << 48) + 1
    expect(page.locator("#flash")).to_contain_text(f"Sent: partition {index} of 16, sequence number {number}")
    expect(page.get_by_label("PartitionKey")).to_have_value("customer-7")
    page.get_by_role("link", name="Show it").click()
    page.locator("table.messages summary").click()
    reported = page.locator(".message").inner_text()
    for text in ("wörld", "message_id\nid-1", "weight\n2.5", "urgent\ntrue", "ttl_ms\n7200000"):
        assert text in reported
    assert counts(server, name) == {"active": 1}


def test_a_message_is_scheduled(tab: Tab, server: EmubusServer, name: str) -> None:
    server.create(QueueDescription(name))
    page = tab.open(at("send", name))
    page.get_by_label("Body", exact=True).fill("later")
    page.get_by_label("Scheduled for").fill("20m")
    page.get_by_role("button", name="Send", exact=True).click()
    expect(page.locator("#flash")).to_contain_text("sequence number 1")
    assert counts(server, name) == {"scheduled": 1}
    server.advance(20 * 60_000)
    page.goto(at("entity", name))
    expect(figure(page, "Active")).to_have_text("1")


def test_the_next_due_message_is_delivered_now(tab: Tab, server: EmubusServer, name: str) -> None:
    server.create(QueueDescription(name))
    hour, now = 3_600_000, server.call(server.clock.now_ms)
    due = ((2, b"second"), (1, b"first"), (3, b"third"))
    send(server, name, *(NewMessage(text, scheduled_enqueue_at=now + hours * hour) for hours, text in due))
    page = tab.open(f"{at('messages', name)}&order=due")
    first = page.locator("table.messages summary").first
    expect(first).to_contain_text("first")
    first.click()
    page.get_by_role("button", name="Deliver now").first.click()
    expect(page.locator("#flash")).to_contain_text("1 of 1 message delivered now.")
    assert counts(server, name) == {"active": 1, "scheduled": 2}
    assert [each.text for each in server.peek(name) if each.state == "active"] == ["first"]


def test_the_link_to_a_message_opens_it_in_another_tab(tab: Tab, server: EmubusServer, name: str) -> None:
    server.create(QueueDescription(name))
    send(server, name, *(NewMessage(f"order {number}".encode()) for number in range(9)))
    page = tab.open(f"{at('messages', name)}&text=order+5")
    page.locator("table.messages th.mono a").click()
    other = tab.open(page.url)
    expect(other.locator("table.messages details[open] summary")).to_have_text("order 5")


def test_where_a_message_would_go_is_reported_without_sending_it(tab: Tab, server: EmubusServer, name: str) -> None:
    server.create(QueueDescription(name, enable_partitioning=True))
    page = tab.open(at("send", name))
    page.get_by_label("SessionId", exact=True).fill("s-9")
    page.get_by_role("button", name="Where would it go?").click()
    reported = page.locator("#destination")
    expect(reported).to_contain_text(
        f"It would be sent to partition {partition_for_key('s-9', 16)} of 16 (messaging store "
        f"{partition_for_key('s-9', 16)}), chosen by the SessionId 's-9'."
    )
    expect(page.get_by_label("SessionId", exact=True)).to_have_value("s-9")
    page.get_by_label("SessionId", exact=True).fill("")
    page.get_by_role("button", name="Where would it go?").click()
    expect(reported).to_contain_text("It has no key: round-robin over 16 partitions.")
    assert counts(server, name) == {}


def test_a_message_to_a_topic_is_reported_by_its_copies(tab: Tab, server: EmubusServer, name: str) -> None:
    server.create(TopicDescription(name, enable_partitioning=True))
    red = RuleDescription("red", SqlFilter("color = 'red'"))
    blue = RuleDescription("blue", SqlFilter("color = 'blue'"))
    server.create(SubscriptionDescription(name, "reds", rules=(red,)))
    server.create(SubscriptionDescription(name, "blues", rules=(blue,)))
    page = tab.open(at("send", name))
    page.get_by_label("Name of property 1").fill("color")
    page.get_by_label("Value of property 1").fill("red")
    page.get_by_role("button", name="Where would it go?").click()
    takes, leaves = page.locator("#destination li").all_inner_texts()
    assert [takes.partition(" ")[2], leaves.partition(" ")[2]] == [
        "reds takes the message\nred matches",
        "blues does not take it\nblue does not match: color = 'blue' is false (color is 'red')",
    ]
    page.get_by_label("PartitionKey").fill("k")
    page.get_by_role("button", name="Send", exact=True).click()
    number = (partition_for_key("k", 16) << 48) + 1
    expect(page.locator("#flash li")).to_have_text([f"Copy in reds: sequence number {number}"])
    page.locator("#flash li a").click()
    expect(page.locator("tbody.message-rows")).to_have_count(1)


def test_an_error_stands_beside_the_form_which_keeps_what_was_written(
    tab: Tab, server: EmubusServer, name: str
) -> None:
    tab.expected = REFUSED
    server.create(QueueDescription(name))
    page = tab.open(at("send", name))
    page.get_by_label("Body", exact=True).fill("my body")
    page.get_by_label("Time to live").fill("soon")
    page.get_by_role("button", name="Send", exact=True).click()
    form = page.get_by_role("form", name="Message")
    expect(form.get_by_role("alert")).to_contain_text("Time to live: 'soon' is not a duration")
    expect(form.get_by_role("alert")).to_be_focused()
    expect(page.get_by_label("Body", exact=True)).to_have_value("my body")
    expect(page.get_by_label("Time to live")).to_have_attribute("aria-invalid", "true")
    assert counts(server, name) == {}


# ---- dead letters


def test_one_dead_letter_is_resubmitted_and_the_others_stay(tab: Tab, server: EmubusServer, name: str) -> None:
    server.create(QueueDescription(name, enable_partitioning=True))
    send(server, name, *(NewMessage(b"m%d" % n, partition_key="k") for n in range(3)))
    lock(server, name, 3, reason="OutOfStock")
    page = tab.open(at("messages", name, "&queue=dead-letter"))
    rows = page.locator("tbody.message-rows")
    expect(rows.locator(".reason")).to_have_text(["OutOfStock"] * 3)
    rows.nth(1).locator("summary").click()
    expect(rows.nth(1).locator(".why")).to_have_text("OutOfStock: because of OutOfStock")
    rows.nth(1).get_by_role("checkbox").check()
    page.get_by_role("button", name="Resubmit selected").click()
    expect(page.locator("#flash")).to_contain_text(f"1 of 1 message resubmitted to '{name}'.")
    expect(rows.locator(".preview")).to_have_text(["m0", "m2"])
    assert counts(server, name) == {"active": 1, "dead-letter": 2}
    page.goto(at("messages", name))
    expect(rows.locator(".preview")).to_have_text(["m1"])
    rows.locator("summary").click()
    expect(rows.locator(".message")).not_to_contain_text("DeadLetterReason")


def test_all_dead_letters_of_a_subscription_go_back_to_its_topic(tab: Tab, server: EmubusServer, name: str) -> None:
    server.create(TopicDescription(name, enable_partitioning=True))
    server.create(SubscriptionDescription(name, "s"))
    path = f"{name}/Subscriptions/s"
    send(server, name, *(NewMessage(b"m%d" % n) for n in range(60)))
    lock(server, path, 60, reason="Bad")
    page = tab.open(at("messages", path, "&queue=dead-letter"))
    page.get_by_role("button", name="Resubmit all 60").click()
    expect(page.locator("#progress")).to_contain_text(f"60 of 60 messages resubmitted to {name}.")
    expect(page.get_by_text("No messages.")).to_be_visible()
    assert counts(server, path) == {"active": 60}


def test_a_long_resubmission_shows_its_progress_and_can_be_stopped(tab: Tab, server: EmubusServer, name: str) -> None:
    server.create(QueueDescription(name, enable_partitioning=True))
    send(server, name, *(NewMessage(b"m%d" % n) for n in range(48)))
    lock(server, name, 48, reason="Bad")
    server.call(server.clock.freeze)
    server.begin_outage(range(8, 16), OutageKind.SLOW, delay_ms=60_000)  # these wait for the clock, which stands
    page = tab.open(at("messages", name, "&queue=dead-letter"))
    page.get_by_label("Select this page").check()
    expect(page.locator("table.messages input:checked")).to_have_count(25)
    page.get_by_role("button", name="Resubmit all 48").click()
    expect(page.locator("#flash")).to_contain_text(f"48 messages to be looked at and resubmitted to '{name}'.")
    expect(page.locator("#progress")).to_contain_text("24 of 48")
    assert page.locator("#bar").get_attribute("value") == "24"
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("#flash")).to_contain_text("The job is being stopped.")
    server.end_outage(range(8, 16))
    server.call(server.clock.thaw)
    expect(page.locator("#progress")).to_contain_text("Stopped: 27 of 48")
    expect(page.get_by_role("status").first).to_contain_text("Stopped: 27 of 48")
    assert counts(server, name) == {"active": 27, "dead-letter": 21}


def test_a_dead_letter_that_would_be_lost_stays_and_says_why(tab: Tab, server: EmubusServer, name: str) -> None:
    server.create(QueueDescription(name, requires_duplicate_detection=True))
    send(server, name, NewMessage(b"x", {"message-id": "only-once"}))
    lock(server, name, 1, reason="Bad")
    page = tab.open(at("messages", name, "&queue=dead-letter"))
    page.get_by_role("button", name="Resubmit all 1").click()
    expect(page.locator("#flash")).to_contain_text("0 of 1 message resubmitted")
    expect(page.locator("#flash li")).to_contain_text("would be dropped as a duplicate: its MessageId 'only-once'")
    assert counts(server, name) == {"dead-letter": 1}


# ---- rules


def test_rules_are_added_tried_and_deleted(tab: Tab, server: EmubusServer, name: str) -> None:
    tab.expected = REFUSED
    server.create(TopicDescription(name))
    server.create(SubscriptionDescription(name, "s"))
    path = f"{name}/Subscriptions/s"
    page = tab.open(at("rules", path))
    add = page.get_by_role("form", name="Add a rule")
    add.get_by_label("Name", exact=True).fill("big-red")
    add.get_by_label("SQL expression").fill("color = 'red' AND AND size > 10")
    add.get_by_label("SQL action").fill("SET sys.Label = 'hot'; REMOVE color")
    add.get_by_role("button", name="Add the rule").click()
    expect(add.get_by_role("alert")).to_contain_text("line 1, column 19")
    add.get_by_label("SQL expression").fill("color = 'red' AND size > 10")
    add.get_by_role("button", name="Add the rule").click()
    expect(page.locator("#flash")).to_have_text("The rule 'big-red' was added.")
    add.get_by_label("Name", exact=True).fill("by-tenant")
    add.get_by_label("Filter", exact=True).select_option("correlation")
    add.get_by_text("Correlation filter").click()
    add.get_by_label("Name of property 1").fill("tenant")
    add.get_by_label("Value of property 1").fill("t1")
    add.get_by_role("button", name="Add the rule").click()
    rows = page.locator("table.rules tbody tr")
    expect(rows).to_have_count(3)
    trial = page.get_by_role("form", name="Which rule would match this message?")
    trial.get_by_label("Name of property 1").fill("color")
    trial.get_by_label("Value of property 1").fill("red")
    trial.get_by_label("Name of property 2").fill("size")
    trial.get_by_label("Type of property 2").select_option("long")
    trial.get_by_label("Value of property 2").fill("11")
    trial.get_by_role("button", name="Try").click()
    expect(page.locator("#tried")).to_have_text("2 of 3 rules match; see the table.")
    expect(rows.nth(0)).to_contain_text("matches")
    expect(rows.nth(1)).to_contain_text("Label = hot")
    expect(rows.nth(1)).to_contain_text("color = (removed)")
    expect(rows.nth(2)).to_contain_text("does not match: tenant must be 't1', and is not set")
    assert counts(server, path) == {}
    page.get_by_role("button", name="Delete the rule $Default").click()
    expect(rows).to_have_count(2)
    assert server.call(lambda: [r.name for r in server.server.broker.administration.rules(path)]) == [
        "big-red",
        "by-tenant",
    ]


# ---- create, purge, delete


def test_a_partitioned_queue_is_created_with_its_properties(tab: Tab, server: EmubusServer, name: str) -> None:
    tab.expected = REFUSED
    page = tab.open(f"{PAGE}/create")
    page.get_by_label("Name").fill(name)
    page.get_by_label("Enable partitioning").check()
    page.get_by_label("Message sessions").check()
    page.get_by_label("Lock duration").fill("9m")
    page.get_by_role("button", name="Create the queue").click()
    expect(page.get_by_role("alert")).to_contain_text("LockDuration")
    expect(page.get_by_label("Enable partitioning")).to_be_checked()
    page.get_by_label("Lock duration").fill("90s")
    page.get_by_label("Default time to live").fill("14d")
    page.get_by_role("button", name="Create the queue").click()
    expect(page.locator("#flash")).to_have_text(f"The queue '{name}' was created.")
    expect(page.locator("#picture .column")).to_have_count(16)
    found = server.call(lambda: server.server.broker.namespace.find(name)[0].description)
    assert found == QueueDescription(
        name,
        enable_partitioning=True,
        requires_session=True,
        lock_duration_ms=90_000,
        default_ttl_ms=14 * 86_400_000,
    )


def test_a_topic_and_its_subscription_are_created(tab: Tab, server: EmubusServer, name: str) -> None:
    page = tab.open(f"{PAGE}/create?kind=topic")
    page.get_by_label("Name").fill(name)
    page.get_by_role("button", name="Create the topic").click()
    page.get_by_role("link", name="Add a subscription").click()
    expect(page.get_by_label("Topic")).to_have_value(name)
    page.get_by_label("Name").fill("first")
    page.get_by_role("button", name="Create the subscription").click()
    expect(page.locator("h1")).to_contain_text("first")
    page.get_by_role("navigation", name="Breadcrumb").get_by_role("link", name=name).click()
    expect(page.locator("#s-rows th a")).to_have_text(["first"])


def test_an_entity_is_purged_and_deleted_after_a_question(tab: Tab, server: EmubusServer, name: str) -> None:
    server.create(QueueDescription(name, enable_partitioning=True))
    send(server, name, *(NewMessage(b"x") for _ in range(20)))
    page = tab.open(at("entity", name))
    expect(page.get_by_role("button", name=f"Purge {name}")).to_be_hidden()
    page.get_by_text("Purge …").click()
    page.get_by_role("button", name=f"Purge {name}").click()
    expect(page.locator("#flash")).to_have_text(f"'{name}' purged; 20 messages were removed.")
    assert counts(server, name) == {}
    page.get_by_text("Delete …").click()
    page.get_by_role("button", name=f"Delete {name}").click()
    expect(page.locator("#flash")).to_have_text(f"'{name}' was deleted.")
    assert server.call(lambda: server.server.broker.namespace.entity(name)) is None


# ---- the namespace


def test_the_clock_is_advanced_frozen_and_let_go(tab: Tab, server: EmubusServer, name: str) -> None:
    server.create(QueueDescription(name, default_ttl_ms=3_000_000))
    send(server, name, NewMessage(b"x"))
    page = tab.open(f"{PAGE}/namespace")
    page.get_by_label("Advance by", exact=True).fill("50m")
    page.get_by_role("button", name="Advance", exact=True).click()
    expect(page.locator("#flash")).to_have_text("The clock was advanced by 50 min.")
    expect(page.locator("#offset")).to_contain_text("ahead of the machine's clock")
    assert counts(server, name) == {}
    page.get_by_role("button", name="Freeze").click()
    expect(page.locator("#clock-big")).to_contain_text("frozen")
    assert server.clock.is_frozen
    stood_at = server.clock.now_ms()
    page.get_by_role("button", name="Advance by 1h").click()
    expect(page.locator("#flash")).to_have_text("The clock was advanced by 1 h.")
    assert server.clock.now_ms() == stood_at + 3_600_000
    page.get_by_role("button", name="Unfreeze").click()
    expect(page.locator("#flash")).to_have_text("The clock is running again.")
    assert not server.clock.is_frozen


def test_everything_is_purged_and_the_configuration_comes_back(tab: Tab) -> None:
    with EmubusServer([QueueDescription("configured")]) as server:
        tab.server = server
        server.create(QueueDescription("made-later"))
        send(server, "configured", NewMessage(b"x"))
        page = tab.open(f"{PAGE}/namespace")
        page.get_by_text("Purge everything …").click()
        page.get_by_role("button", name="Purge all entities").click()
        expect(page.locator("#flash")).to_have_text("All entities purged; 1 message was removed.")
        page.get_by_text("Reset to the configuration …").click()
        page.get_by_role("button", name="Reset to the configuration").click()
        expect(page.locator("#flash")).to_contain_text("reset to its start-up configuration")
        page.goto("/")
        expect(page.locator("tbody th a")).to_have_text(["configured"])
        page.context.close()


def test_profile_limits_and_connection_string_are_reported_and_copied(tab: Tab, server: EmubusServer) -> None:
    page = tab.open(f"{PAGE}/namespace", permissions=["clipboard-read", "clipboard-write"])
    about = page.locator("main").inner_text()
    for text in ("Profile\nstandard", "Durability\nnone", "Message size\n256 KiB", "Lock duration\n5 s to 5 min"):
        assert text in about
    assert page.get_by_label("Connection string").input_value() == server.connection_string
    page.get_by_role("button", name="Copy").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == server.connection_string
