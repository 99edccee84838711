"""`ls`, `show`, `create`, `update`, `delete`, `rules`, `sessions`, `connections`: answer, JSON, errors, exit code."""

from __future__ import annotations

import socket

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from emubus.testing import EmubusServer

from .conftest import CommandLine


def test_ls_lists_entities_with_their_counts(emubus: CommandLine) -> None:
    emubus.done("send", "orders", "x")
    lines = emubus.done("ls").splitlines()
    assert lines[0].split() == ["PATH", "KIND", "ACTIVE", "SCHEDULED", "DEFERRED", "DEAD-LETTER", "NOTES"]
    assert [line.split() for line in lines[1:]] == [
        ["carts", "queue", "0", "0", "0", "0", "sessions"],
        ["news", "topic", "-", "0", "-", "-"],
        ["news/Subscriptions/all", "subscription", "0", "0", "0", "0"],
        ["orders", "queue", "1", "0", "0", "0"],
        ["parts", "queue", "0", "0", "0", "0", "partitioned"],
    ]
    assert [each["path"] for each in emubus.json("ls", "ORD")["entities"]] == ["orders"]


def test_show_prints_counts_properties_and_partitions(emubus: CommandLine) -> None:
    shown = emubus.done("show", "parts")
    assert "LockDuration                         1m" in shown
    assert shown.count("available") == 16
    found = emubus.json("show", "news/all")
    assert (found["path"], found["properties"]["max_delivery_count"]) == ("news/Subscriptions/all", 10)


def test_an_unknown_entity_is_refused_with_the_nearest_name(emubus: CommandLine) -> None:
    ended = emubus("show", "order")
    assert (ended.code, ended.out) == (1, "")
    assert ended.err == "emubus: error: no entity 'order'; did you mean 'orders'?\n"
    assert "`emubus ls` lists" in emubus("peek", "zzz").err


def test_create_update_and_delete(emubus: CommandLine) -> None:
    assert emubus.done("create", "queue", "bills", "--set", "LockDuration=30s", "--sessions") == "created queue bills\n"
    made = emubus.json("show", "bills")["properties"]
    assert (made["lock_duration_ms"], made["requires_session"]) == (30_000, True)
    changed = emubus.json("update", "bills", "--set", "maxdeliverycount=3", "--set", "DefaultMessageTimeToLive=never")
    assert (changed["properties"]["max_delivery_count"], changed["properties"]["default_ttl_ms"]) == (3, None)
    assert changed["properties"]["lock_duration_ms"] == 30_000
    emubus.done("create", "topic", "events", "--partitioned")
    emubus.done("create", "subscription", "events/mine", "--set", "ForwardTo=orders")
    assert emubus.json("show", "events/mine")["properties"]["forward_to"] == "orders"
    assert emubus.json("delete", "bills", "events") == {"deleted": ["bills", "events"]}
    assert "events" not in emubus.done("ls")


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (("create", "queue", "orders"), 1, "already exists"),
        (("create", "queue", "new", "--set", "LockDuration=1h"), 1, "01:00:00"),
        (
            ("create", "queue", "new", "--set", "LockDurtion=30s"),
            2,
            "has no property 'LockDurtion'; did you mean LockD",
        ),
        (("create", "queue", "new", "--set", "LockDuration"), 2, "allowed is NAME=VALUE"),
        (("create", "queue", "new", "--set", "RequiresSession=maybe"), 2, "it must be true or false"),
        (("create", "subscription", "mine"), 2, "topic/name"),
        (("create", "subscription", "none/mine"), 1, "none"),
        (("create", "que", "new"), 2, "'que' is none of queue, topic, subscription; did you mean queue?"),
        (("update", "orders"), 2, "nothing to change"),
        (("update", "orders", "--set", "RequiresSession=true"), 1, "RequiresSession"),
        (("delete", "none"), 1, "no entity 'none'"),
        (("sessions", "orders"), 1, "does not require message sessions"),
        (("rules", "orders"), 1, "has no rules"),
        (("rules", "news/all", "--sql", "a = 1"), 2, "need --add"),
        (("rules", "news/all", "--add", "r", "--sql", "a ="), 1, "expected a value"),
        (("rules", "news/all", "--add", "r", "--sql", "a = 1", "--equal", "a=1"), 2, "one filter"),
        (("rules", "news/all", "--add", "r", "--equal", "a"), 2, "NAME=VALUE"),
        (("rules", "news/all", "--remove", "r"), 1, "r"),
    ],
)
def test_what_is_wrong_is_refused(emubus: CommandLine, arguments: tuple[str, ...], code: int, error: str) -> None:
    ended = emubus(*arguments)
    assert (ended.code, ended.out) == (code, "")
    assert error in ended.err
    assert len(ended.err.splitlines()) == 1


def test_rules_are_listed_added_and_removed(emubus: CommandLine) -> None:
    assert emubus.done("rules", "news/all").splitlines()[1].split() == ["$Default", "true", "every", "message", "-"]
    added = emubus.done("rules", "news/all", "--add", "dear", "--sql", "price > 10", "--action", "SET seen = TRUE")
    assert added == "added rule dear: price > 10\n"
    emubus.done("rules", "news/all", "--add", "red", "--equal", "label=l", "--equal", "colour=red")
    found = {each["name"]: each for each in emubus.json("rules", "news/all")["rules"]}
    assert found["dear"]["action"] == "SET seen = TRUE"
    assert found["red"]["filter"] == {"kind": "correlation", "label": "l", "properties": {"colour": "red"}}
    assert emubus.done("rules", "news/all", "--remove", "$Default") == "removed rule $Default\n"
    emubus.done("send", "news", "cheap", "--property", "price=1")
    emubus.done("send", "news", "dear", "--property", "price=11")
    (message,) = emubus.json("peek", "news/all")["messages"]
    assert message["application_properties"] == {"price": 11, "seen": True, "RuleName": "dear"}


def test_sessions_show_messages_state_and_lock(emubus: CommandLine, server: EmubusServer) -> None:
    emubus.done("send", "carts", "x", "--session-id", "one", "--count", "2")
    with ServiceBusClient.from_connection_string(server.connection_string) as client:
        emubus.done("send", "carts", "x", "--session-id", "two")
        with client.get_queue_receiver("carts", session_id="two") as receiver:
            receiver.session.set_state(b"abc")
            one, two = emubus.json("sessions", "carts")["sessions"]
            assert (one["session_id"], one["message_count"], one["locked_until_at"]) == ("one", 2, None)
            assert (two["session_id"], two["message_count"], two["state_bytes"]) == ("two", 1, 3)
            assert two["locked_until_at"] > server.now_ms()
            assert "two" in emubus.done("sessions", "carts")


def test_connections_are_listed_with_their_links_and_dropped(emubus: CommandLine, server: EmubusServer) -> None:
    assert emubus.json("connections") == {"connections": []}
    sdk = ServiceBusClient.from_connection_string(server.connection_string)
    with sdk as client, client.get_queue_sender("orders") as sender:
        sender.send_messages(ServiceBusMessage("x"))
        (found,) = emubus.json("connections", "--entity", "orders")["connections"]
        assert found["product"] == "azsdk-python-servicebus"
        assert ("orders", "sender") in [(each["address"], each["role"]) for each in found["links"]]
        assert emubus.json("connections", "--entity", "parts") == {"connections": []}
        assert "sender orders" in emubus.done("connections")
    with socket.create_connection(("127.0.0.1", server.amqp_port), timeout=60) as peer:
        peer.sendall(b"AMQP\x03\x01\x00\x00")
        assert peer.recv(8) == b"AMQP\x03\x01\x00\x00"
        assert emubus.done("connections", "--drop", "--entity", "orders") == "dropped 0 connections\n"
        assert emubus.json("connections", "--drop")["dropped_count"] >= 1
