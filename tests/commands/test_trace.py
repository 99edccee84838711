"""`trace`: the events of a message, why nobody got it, and the switch."""

from __future__ import annotations

import json

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from emubus.broker.model.descriptions import RuleDescription, SqlFilter, SubscriptionDescription, TopicDescription
from emubus.commands.client import trace
from emubus.testing import EmubusServer

from .conftest import CommandLine


def test_a_message_that_no_subscription_took_shows_why(emubus: CommandLine, server: EmubusServer) -> None:
    server.create(TopicDescription("routed"))
    server.create(SubscriptionDescription("routed", "red", rules=(RuleDescription("r", SqlFilter("color = 'red'")),)))
    assert emubus.done("trace", "--on") == "events of messages are kept from now on\n"
    emubus.done("send", "routed", "x", "--message-id", "lost", "--property", "color=blue")
    lines = emubus.done("trace", "lost").splitlines()
    assert lines[0].endswith("routed #1 (lost)  Sent by the control API or the web page")
    assert lines[1].endswith("routed #1 (lost)  No subscription takes the message: no rule matches")
    assert lines[2] == "    routed/Subscriptions/red: does not take it"
    assert lines[3] == "        r: color = 'red' is false (color is 'blue')"
    assert (
        emubus.json("trace", "--entity", "routed", "--number", "1")["events"] == emubus.json("trace", "lost")["events"]
    )


def test_a_copy_without_what_its_action_could_not_calculate_shows_why(
    emubus: CommandLine, server: EmubusServer
) -> None:
    rules = (RuleDescription("r", SqlFilter("color = 'red'"), "SET size = color - 1; SET seen = TRUE"),)
    server.create(TopicDescription("changing"))
    server.create(SubscriptionDescription("changing", "red", rules=rules))
    emubus.done("trace", "--on")
    emubus.done("send", "changing", "x", "--message-id", "odd", "--property", "color=red")
    lines = emubus.done("trace", "odd").splitlines()
    assert lines[2:4] == [
        "    changing/Subscriptions/red: takes it",
        "        r: SET size = color - 1 is unknown: there is no - for a string and a number",
    ]


def test_what_happens_is_followed_until_an_interrupt(
    emubus: CommandLine, server: EmubusServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each event once, in order; the waits of the command are where other things happen here."""
    emubus.done("trace", "--on")
    emubus.done("send", "orders", "x", "--message-id", "first")
    sdk = ServiceBusClient.from_connection_string(server.connection_string)
    with sdk as client, client.get_queue_sender("orders") as sender:
        left = ["third", None, "second"]

        def wait(ms: int) -> None:
            assert ms > 0
            if not left:
                raise KeyboardInterrupt
            if (message_id := left.pop()) is not None:
                sender.send_messages(ServiceBusMessage("x", message_id=message_id))

        monkeypatch.setattr(trace, "wait", wait)
        ended = emubus("trace", "--follow", "--entity", "orders")
        left = ["fourth"]
        again = emubus("trace", "-f", "--entity", "orders", "--json")
    assert (ended.code, again.code) == (130, 130)
    assert [line.split("(")[1].split(")")[0] for line in ended.out.splitlines()] == ["first", "second", "third"]
    events = [json.loads(line) for line in again.out.splitlines()]
    assert [each["message_id"] for each in events] == ["first", "second", "third", "fourth"]


def test_what_is_not_kept_is_said_with_the_remedy(emubus: CommandLine) -> None:
    assert emubus.json("trace", "--off")["is_on"] is False
    ended = emubus("trace", "nothing like it")
    assert ended.code == 1
    assert ended.out.splitlines()[0] == "no event of message id 'nothing like it' is kept"
    assert "emubus trace --on" in ended.out
