"""`send`, `peek`, `receive`, `settle`, `purge`, `resubmit`, `route`: answer, JSON, errors, exit code."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from emubus.testing import EmubusServer

from .conftest import CommandLine


def test_a_sent_message_is_seen_and_received(emubus: CommandLine) -> None:
    assert emubus.done("send", "orders", "hi") == "sent: sequence number 1, partition 0\n"
    assert emubus.done("peek", "orders").splitlines()[1].split()[-1] == "hi"
    assert emubus.done("peek", "orders", "--body") == "hi\n"
    assert emubus.done("receive", "orders", "--body") == "hi\n"
    ended = emubus("receive", "orders", "--json")
    assert (ended.code, ended.json) == (1, {"messages": [], "session_id": None})


def test_every_property_of_a_message_can_be_sent(emubus: CommandLine) -> None:
    given = ("message-id", "session-id", "subject", "correlation-id", "content-type", "reply-to")
    options = [word for name in given for word in (f"--{name}", name)]
    typed = ("--property", "n=1", "--property", "x=1.5", "--property", "ok=true", "--property", "text=1_0")
    emubus.done("send", "orders", "{}", *options, "--ttl", "1h", "--partition-key", "session-id", *typed)
    (found,) = emubus.json("peek", "orders")["messages"]
    assert {name.replace("-", "_"): name for name in given}.items() <= found["properties"].items()
    assert found["application_properties"] == {"n": 1, "x": 1.5, "ok": True, "text": "1_0"}
    assert (found["header"]["ttl_ms"], found["body"]["json"]) == (3_600_000, {})


def test_lines_files_binary_bodies_and_counts(
    emubus: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"one\ntwo\n")))
    assert emubus.done("send", "orders", "--lines") == "sent 2 messages to partition 0\n"
    (tmp_path / "body").write_bytes(b"\xff\xfe")
    emubus.done("send", "orders", "--file", str(tmp_path / "body"))
    assert len(emubus.json("send", "orders", "x", "--count", "150")["results"]) == 150
    assert emubus.done("peek", "orders", "--body", "--count", "3") == "one\ntwo\nbase64://4=\n"
    assert len(emubus.json("peek", "orders", "--count", "1000")["messages"]) == 153
    assert emubus.json("peek", "orders", "--from", "153")["messages"][0]["sequence_number"] == 153
    assert len(emubus.json("receive", "orders", "--count", "300")["messages"]) == 153


def test_jobs_act_on_numbers_and_on_what_matches(emubus: CommandLine) -> None:
    emubus.done("send", "orders", "x", "--count", "30", "--subject", "red")
    emubus.done("send", "orders", "y", "--subject", "blue")
    emubus.done("create", "queue", "other")
    words = ("job", "move", "orders", "--where", "sys.Label = 'red'", "--to", "other")
    assert emubus.done(*words) == "move: 30 messages done, 0 failed\n"
    assert emubus.json("job", "dead-letter", "other", "--all", "--reason", "why")["done_count"] == 30
    assert emubus.json("job", "resubmit", "other", "--all", "--dead-letters")["target"] == "other"
    number = str(emubus.json("peek", "orders")["messages"][0]["sequence_number"])
    ended = emubus("job", "delete", "orders", number, "999")
    assert (ended.code, "999: it is locked or gone" in ended.err) == (1, True)
    assert emubus("job", "delete", "orders").code == 2
    assert emubus("job", "delete", "orders", "--all", "--where", "1=1").code == 2
    emubus.done("delete", "other")


def test_messages_are_exported_and_imported(emubus: CommandLine, tmp_path: Path) -> None:
    emubus.done("send", "orders", "x", "--count", "3", "--property", "n=1", "--message-id", "m")
    emubus.done("send", "orders", "y")
    file = tmp_path / "lines"
    assert emubus.done("export", "orders", "--where", "n = 1", "--file", str(file)) == f"exported to {file}\n"
    assert len(file.read_text().splitlines()) == 3
    emubus.done("purge", "orders")
    assert emubus.done("import", "orders", "--lines", str(file)) == "sent 3 messages, 0 failed\n"
    again = emubus.json("peek", "orders")["messages"]
    assert [(each["properties"], each["application_properties"]) for each in again] == [
        ({"message_id": "m"}, {"n": 1})
    ] * 3
    file.write_text("{")
    ended = emubus("import", "orders", "--lines", str(file))
    assert (ended.code, "line 1: it is no message" in ended.err) == (1, True)
    assert emubus("import", "orders").code == 2
    assert emubus("import", "orders", "--lines", str(tmp_path / "none")).code == 2


def test_scheduled_and_duplicate_messages(emubus: CommandLine, server: EmubusServer) -> None:
    emubus.done("send", "orders", "later", "--delay", "10m")
    assert emubus.json("peek", "orders")["messages"][0]["state"] == "scheduled"
    assert emubus("receive", "orders").code == 1
    server.advance(600_000)
    assert emubus.done("receive", "orders", "--body") == "later\n"
    emubus.done("create", "queue", "once", "--set", "RequiresDuplicateDetection=true")
    emubus.done("send", "once", "x", "--message-id", "m")
    assert emubus.done("send", "once", "x", "--message-id", "m") == "dropped as duplicates: 1\n"
    emubus.done("delete", "once")


def test_a_locked_message_is_settled_by_its_token(emubus: CommandLine) -> None:
    emubus.done("send", "orders", "x", "--count", "4")
    tokens = [
        each["lock_token"] for each in emubus.json("receive", "orders", "--count", "4", "--then", "lock")["messages"]
    ]
    assert emubus.done("settle", "orders", "complete", tokens[0]) == "settled: 1 (complete)\n"
    emubus.done("settle", "orders", "dead-letter", tokens[1], "--reason", "bad", "--description", "why")
    emubus.done("settle", "orders", "defer", tokens[2])
    assert emubus.json("settle", "orders", "abandon", tokens[3]) == {"settled_count": 1}
    (dead,) = emubus.json("peek", "orders", "--dead-letters")["messages"]
    assert dead["application_properties"] == {"DeadLetterReason": "bad", "DeadLetterErrorDescription": "why"}
    deferred, back = sorted(emubus.json("peek", "orders")["messages"], key=lambda each: each["sequence_number"])
    assert (deferred["state"], back["delivery_count"]) == ("deferred", 1)
    assert emubus.json("receive", "orders", "--deferred", "3")["messages"][0]["sequence_number"] == 3
    assert "lock token of 4: " in emubus.done("receive", "orders", "--then", "lock")
    lost = emubus("settle", "orders", "complete", tokens[0])
    assert (lost.code, lost.out) == (1, "")
    assert "lock" in lost.err


@pytest.mark.parametrize("outcome", ["abandon", "dead-letter", "defer"])
def test_receive_can_settle_otherwise(emubus: CommandLine, outcome: str) -> None:
    emubus.done("send", "orders", "x")
    emubus.done("receive", "orders", "--then", outcome)
    counts = emubus.json("show", "orders")["messages"]
    state = {"abandon": "active", "dead-letter": "dead-letter", "defer": "deferred"}[outcome]
    assert {name for name, count in counts.items() if count} == {state}


def test_messages_of_a_session_are_received_together(emubus: CommandLine) -> None:
    for name in ("one", "two", "one"):
        emubus.done("send", "carts", name, "--session-id", name)
    assert emubus.done("receive", "carts", "--body", "--session", "two") == "two\n"
    answer = emubus.json("receive", "carts", "--count", "5")
    assert (answer["session_id"], len(answer["messages"])) == ("one", 2)
    refused = emubus("receive", "carts", "--then", "lock")
    assert (refused.code, "can't stay locked" in refused.err) == (1, True)


def test_resubmit_moves_dead_letters_back(emubus: CommandLine) -> None:
    emubus.done("send", "parts", "x", "--count", "130")
    emubus.done("receive", "parts", "--count", "130", "--then", "dead-letter")
    first = emubus.json("peek", "parts", "--dead-letters", "--count", "1")["messages"][0]["sequence_number"]
    assert emubus.done("resubmit", "parts", str(first)) == "resubmitted 1 of 1 dead letters\n"
    assert emubus.json("resubmit", "parts") == {"resubmitted_count": 129, "failures": []}
    assert emubus.json("show", "parts")["messages"]["active"] == 130
    gone = emubus("resubmit", "parts", str(first))
    assert gone.code == 1
    assert gone.err.startswith(f"emubus: error: {first}: ")


def test_purge_removes_messages(emubus: CommandLine) -> None:
    for name in ("orders", "parts", "news"):
        emubus.done("send", name, "x")
    assert emubus.done("purge", "orders", "news/all") == "removed 2 messages\n"
    assert emubus.json("purge", "--all") == {"message_count": 1}
    assert emubus("purge").code == 2


def test_route_asks_the_server(emubus: CommandLine) -> None:
    said = emubus.done("route", "PARTS", "--session-id", "7")
    sent = emubus.json("send", "parts", "x", "--session-id", "7")["results"][0]
    assert said == f"parts: partition {sent['partition_id']} of 16 (key '7')\n"
    assert emubus.json("route", "parts")["partition_id"] is None
    assert emubus.done("route", "orders", "--key", "k") == "orders: partition 0 of 1 (not partitioned)\n"
    assert emubus("route", "parts", "--session-id", "a", "--partition-key", "b").code == 1


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (("send", "news/all", "x"), 1, "Messages"),
        (("send", "orders", "x", "--file", "f"), 2, "exclude each other"),
        (("send", "orders", "x", "-d", "y"), 2, "exclude each other"),
        (("send", "orders", "--file", "/no/such/file"), 2, "can't be read"),
        (("send", "orders", "x" * 300_000), 1, "262144"),
        (("send", "carts", "x"), 1, "session"),
        (("send", "orders", "x", "--property", "n"), 2, "NAME=VALUE"),
        (("send", "orders", "x", "--ttl", "soon"), 2, "allowed is 500ms"),
        (("send", "orders", "x", "--count", "0"), 2, "whole number of 1 or more"),
        (("send", "orders", "x", "--sesion-id", "s"), 2, "did you mean --session-id?"),
        (("peek", "orders", "--sub-queue", "deadletter"), 2, "did you mean dead-letter?"),
        (("peek", "orders", "--partition", "4"), 1, "has no partition 4"),
        (("receive", "news"), 1, "topic"),
        (("receive", "orders", "--deferred", "99"), 1, "does not exist"),
        (("settle", "orders", "complete", "token"), 2, "TOKEN is 'token'; allowed is a lock token"),
        (("settle", "orders", "finish", "token"), 2, "none of complete"),
        (("resubmit", "none"), 1, "no entity 'none'"),
    ],
)
def test_what_is_wrong_is_refused(emubus: CommandLine, arguments: tuple[str, ...], code: int, error: str) -> None:
    ended = emubus(*arguments)
    assert (ended.code, ended.out) == (code, "")
    assert error in ended.err
    assert len(ended.err.splitlines()) == 1
