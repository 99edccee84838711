"""What may explain a failed test, as one answer: from an instant on, as JSON and as text, and how much of each."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from emubus.testing import EmubusServer

from .client import Http
from .conftest import PARTS, PLAIN, QUEUES


@pytest.fixture
def told() -> Iterator[EmubusServer]:
    """A server that keeps the story of messages."""
    with EmubusServer(QUEUES, story=True) as running:
        yield running


def without_distance(text: str) -> str:
    """Without how far a frozen clock is from the machine's, which goes on."""
    return re.sub(r"[+-][\d,.]+ s from", "… s from", text)


def report_of(http: Http, since: int = 0) -> dict[str, list[str]]:
    """The lines of each section; the text is made of the same."""
    answer = json.loads(without_distance(http.ask("GET", f"/report?since={since}").content.decode()))
    sections = {each["name"]: each["lines"] for each in answer["sections"]}
    text = "\n".join(
        "\n".join([f"{name}:", *(f"  {line}" for each in lines for line in each.splitlines())])
        for name, lines in sections.items()
    )
    assert answer["text"] == text
    as_text = http.ask("GET", f"/report/text?since={since}")
    assert as_text.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert without_distance(as_text.content.decode()) == (f"{text}\n" if text else "")
    return sections


def misspell(client: ServiceBusClient, queue: str) -> None:
    with pytest.raises(ServiceBusError), client.get_queue_sender(queue) as sender:
        sender.send_messages(ServiceBusMessage("x"))


def test_what_was_before_an_instant_is_left_out(told: EmubusServer) -> None:
    http = Http(told.http_port)
    string = told.connection_string
    with ServiceBusClient.from_connection_string(string, retry_total=0) as client:
        misspell(client, "plian")
        with told.conditions("throttle-credits", entity=PLAIN, seed=7):
            pass
        told.send(PLAIN, "x", message_id="before")
        told.add_fault("server-busy", entity=PARTS, operations=["send"], count=1)
        with pytest.raises(ServiceBusError), client.get_queue_sender(PARTS) as sender:
            sender.send_messages(ServiceBusMessage("y"))
        told.freeze()
        told.advance(60_000)
        since = http.get("/clock")["now_ms"]
        misspell(client, "prats")
        told.send(PARTS, "x", message_id="after")
    everything, later = report_of(http), report_of(http, since)
    assert [each.split(":")[0] for each in everything["Refused"]] == ["prats", PARTS, "plian"]
    assert [each.split(":")[0] for each in later["Refused"]] == ["prats"]
    assert later["Refused"][0].endswith(f"\n  no queue, topic or subscription 'prats'; did you mean '{PARTS}'?")
    assert everything["Conditions and faults"] == [
        f"throttle-credits on {PLAIN} (seed 7, ended) struck 0 times",
        f"fault server-busy on {PARTS} struck once, all that it could",
    ]
    assert "Conditions and faults" not in later
    assert everything["Clock"] == later["Clock"]
    assert everything["Messages there"] == later["Messages there"] == [f"{PARTS}: 1 active", f"{PLAIN}: 1 active"]
    assert [each.split(" in ")[0] for each in everything["What nobody took"]] == ["'after'", "'before'"]
    (story,) = later["What nobody took"]
    head, sent = story.splitlines()
    assert head == f"'after' in {PARTS}, active, delivery count 0"
    assert f"  {PARTS}: Sent by " in sent
    told.reset()
    assert report_of(http) == {}


def test_of_many_facts_the_first_are_told(told: EmubusServer) -> None:
    http = Http(told.http_port)
    for number in range(12):
        told.send(PLAIN, "x", message_id=str(number))
    told.begin_outage(3)
    report = report_of(http)
    assert report["Outages"] == ["messaging store 3 is down"]
    assert report["Messages there"] == [f"{PLAIN}: 12 active"]
    *stories, more = report["What nobody took"]
    assert [each.split(" in ")[0] for each in stories] == [f"'{number}'" for number in range(10)]
    assert more == "…"


def test_a_message_without_a_story_says_how_to_have_one(control: Http, server: EmubusServer) -> None:
    server.keep_story(is_on=False)
    server.send(PLAIN, "x", message_id="untold")
    (line,) = control.get("/report")["sections"][-1]["lines"]
    assert line.endswith("events of messages are not kept (emubus trace --on)")
