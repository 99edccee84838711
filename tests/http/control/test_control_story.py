"""The story of a message over HTTP: who, where and why, of messages that a real SDK has sent and received."""

from __future__ import annotations

from typing import Any

from azure.servicebus import ServiceBusClient, ServiceBusMessage

from emubus.broker.model.descriptions import RuleDescription, SqlFilter, SubscriptionDescription, TopicDescription
from emubus.testing import EmubusServer

from .client import Http
from .conftest import PARTS


def switched_on(control: Http) -> Any:
    return control.done(control.ask("PUT", "/story", {"is_on": True}))


def test_a_message_of_an_sdk_is_followed_with_the_names_of_its_clients(control: Http, sdk: ServiceBusClient) -> None:
    assert switched_on(control)["is_on"] is True
    with sdk.get_queue_sender(PARTS) as sender:
        sender.send_messages(ServiceBusMessage("x", message_id="a/1", partition_key="k"))
    with sdk.get_queue_receiver(PARTS) as receiver:
        (message,) = receiver.receive_messages(max_message_count=1, max_wait_time=60)
        receiver.complete_message(message)
    events = control.get("/story?message_id=a%2F1")["events"]
    assert [each["event"] for each in events] == ["sent", "locked", "completed"]
    assert {each["by"].split(" at ")[0].split()[0] for each in events[:2]} == {"azsdk-python-servicebus"}
    assert {each["sequence_number"] for each in events} == {message.sequence_number}
    assert events[0]["message_id"] == "a/1"
    assert "that of its partition key, 'k'" in events[0]["text"]
    by_number = control.get(f"/story?entity={PARTS}&sequence_number={message.sequence_number}")["events"]
    assert by_number == events
    assert control.get("/story?top=1")["events"] == events[-1:]


def test_the_story_is_switched_off_and_on_and_can_be_forgotten(control: Http, server: EmubusServer) -> None:
    server.create(TopicDescription("t"))
    rule = RuleDescription("red", SqlFilter("color = 'red'"))
    server.create(SubscriptionDescription("t", "s", rules=(rule,)))
    control.done(control.ask("PUT", "/story", {"is_on": False}))
    control.ask("DELETE", "/story")
    before = control.get("/story")["forgotten_count"]
    control.post("/entities/t/messages", {"messages": [{"message_id": "before"}]})
    assert control.get("/story") == {
        "is_on": False,
        "message_count": 0,
        "forgotten_count": before,
        "events": [],
        "next_page": None,
    }
    switched_on(control)
    control.post("/entities/t/messages", {"messages": [{"message_id": "lost"}]})
    (routed,) = [each for each in control.get("/story?entity=t&message_id=lost")["events"] if each["verdicts"]]
    assert (routed["is_bad"], routed["text"]) == (True, "No subscription takes the message: no rule matches")
    reason = "color = 'red' is unknown (color is not set)"
    assert routed["verdicts"][0]["rules"] == [{"name": "red", "matches": False, "reason": reason}]
    assert control.ask("DELETE", "/story").json["message_count"] == 0
    assert control.get("/story?message_id=lost")["events"] == []


def test_a_long_story_is_read_page_by_page_from_its_end(control: Http) -> None:
    switched_on(control)
    control.post(f"/entities/{PARTS}/messages", {"messages": [{"message_id": f"m{n}"} for n in range(7)]})
    for query in ("", f"&entity={PARTS}", "&message_id=m3"):
        whole = control.get(f"/story?count=1000{query}")
        found: list[Any] = []
        page: str | None = ""
        while page is not None:
            answer = control.get(f"/story?count=3{query}{f'&page={page}' if page else ''}")
            assert len(answer["events"]) <= 3
            found = answer["events"] + found
            page = answer["next_page"]
        assert (found, whole["next_page"]) == (whole["events"], None)
        assert found
    assert control.ask("GET", "/story?page=1").status == 400
