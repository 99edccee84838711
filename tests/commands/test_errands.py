"""What people come for, in their words: reasons, sizes, spans, and a question before what can't be undone."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from emubus.commands.client import output
from emubus.commands.client.api import plain_words
from emubus.commands.client.output import size_text, span_ms, span_text
from emubus.commands.table import COMMANDS
from emubus.testing import EmubusServer

from .conftest import CommandLine, Ended


@pytest.mark.parametrize(
    "words",
    [
        ["send", "orders", "--subject", "s", "hello"],
        ["send", "--subject", "s", "orders", "hello"],
        ["peek", "--json", "orders"],
        ["job", "copy", "orders", "--to", "parts", "1"],
        ["clock", "advance", "--json", "1s"],
        ["outage", "end", "--json", "3"],
        ["fault", "add", "--count", "1", "server-busy"],
        ["condition", "begin", "--for", "1s", "throttled"],
        ["purge", "orders", "--json", "parts"],
        ["receive", "--wait", "1ms", "parts"],
    ],
    ids=" ".join,
)
def test_options_stand_anywhere(emubus: CommandLine, words: list[str]) -> None:
    emubus.done("send", "orders", "x")
    emubus.done("send", "parts", "x")
    ended = emubus(*words)
    assert (ended.code, ended.err) == (0, "")


def test_the_reason_of_a_dead_letter_is_in_its_row(emubus: CommandLine) -> None:
    for reason, description in (("Malformed", "no amount"), ("Late", "by a day")):
        emubus.done("send", "orders", reason)
        token = emubus.json("receive", "orders", "--then", "lock")["messages"][0]["lock_token"]
        emubus.done("settle", "orders", "dead-letter", token, "--reason", reason, "--description", description)
    lines = emubus.done("peek", "orders", "--dead-letters").splitlines()
    assert lines[0].split()[-3:] == ["REASON", "DESCRIPTION", "BODY"]
    assert "Malformed  no amount    Malformed" in lines[1]
    assert "Late       by a day     Late" in lines[2]
    job = ("job", "resubmit", "orders", "--dead-letters", "--where", "user.DeadLetterReason = 'Malformed'")
    assert emubus.done(*job) == "resubmit: 1 messages done, 0 failed\n"
    assert emubus.json("show", "orders")["messages"]["dead-letter"] == 1


def test_show_speaks_of_sizes_and_spans_as_they_are_set(emubus: CommandLine) -> None:
    shown = emubus.done("show", "orders")
    assert " of 1 GiB\n" in shown
    lines = dict(line.split(maxsplit=1) for line in shown.splitlines() if line)
    assert (lines["LockDuration"], lines["DefaultMessageTimeToLive"]) == ("1m", "never")
    emubus.done("update", "orders", "--set", f"LockDuration={lines['LockDuration']}")
    emubus.done("update", "orders", "--set", f"DefaultMessageTimeToLive={lines['DefaultMessageTimeToLive']}")


@pytest.mark.parametrize("ms", [1, 999, 1_000, 1_500, 60_000, 90_000, 3_600_000, 86_400_000, 14 * 86_400_000])
def test_a_span_is_written_as_it_is_read(ms: int) -> None:
    assert span_ms(span_text(ms)) == ms


def test_sizes_and_the_longest_span_are_words() -> None:
    sizes = (0, 1023, 1024, 1536, 1 << 20, 1 << 30, 5 << 30)
    words = ["0 bytes", "1023 bytes", "1 KiB", "1.5 KiB", "1 MiB", "1 GiB", "5 GiB"]
    assert [size_text(each) for each in sizes] == words
    assert span_text(None) == "never"


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        (
            ("peek", "news"),
            1,
            "'news' is a topic, whose messages are in its subscriptions: peek news/NAME; `",
        ),
        (("create", "queue", "new", "--set", "LockDuration=10min"), 1, "; a span is written as 500ms, 30s, 5m, 1h"),
        (("create", "queue", "new", "--set", "LockDuration=10"), 2, "LockDuration is '10'; allowed is 500ms, 30s, 5m,"),
        (("update", "orders", "--set", "LockDuration=10min"), 1, "; a span is written as 500ms, 30s, 5m, 1h"),
        (("update", "orders", "--set", "RequiresSession=true"), 1, "`emubus delete orders`, and create it anew"),
        (("trace", "--on", "--off"), 2, "--on and --off exclude each other"),
        (("route", "x", "--config", "a", "--data", "b"), 2, "--config and --data exclude each other"),
        (("receive", "orders", "--deferred", "1,x"), 2, "--deferred is '1,x'; allowed are whole numbers"),
        (("job", "delete", "orders", "one"), 2, "NUMBER is 'one'; allowed is a whole number"),
        (("peek", "orders", "--from", "-1"), 1, "--from is -1"),
        (("connections", "--drop", "--number", "x"), 2, "--number is 'x'; allowed is a whole number"),
    ],
)
def test_a_wrong_value_is_named_with_what_is_allowed(
    emubus: CommandLine, words: tuple[str, ...], code: int, error: str
) -> None:
    ended = emubus(*words)
    assert (ended.code, ended.out) == (code, "")
    assert error in ended.err
    assert len(ended.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("body.stores[0] is 99; at most 63", "STORE is 99; at most 63"),
        ("body.messages[12].ttl_ms is 0", "--ttl is 0"),
        ("body.set.a-b.c is 1", "a-b.c is 1"),
        ("query.from_sequence_number is -1", "--from is -1"),
        ("body.other_thing is 1", "other thing is 1"),
        ("somebody.else is here", "somebody.else is here"),
    ],
)
def test_names_of_the_api_are_those_of_the_command_line(said: str, shown: str) -> None:
    assert plain_words(said) == shown


def test_a_message_is_found_wherever_it_is(emubus: CommandLine) -> None:
    emubus.done("send", "news", "order 4711", "--message-id", "copy")
    emubus.done("send", "parts", "x", "--property", "amount=4711", "--property", "ref=no-4711")
    emubus.done("send", "orders", "order 4711", "--message-id", "dead")
    emubus.done("receive", "orders", "--then", "dead-letter", "--reason", "r")
    emubus.done("send", "orders", "other")
    lines = [line.split()[:2] for line in emubus.done("find", "4711").splitlines()]
    assert lines == [
        ["ENTITY", "IN"],
        ["news/Subscriptions/all", "active"],
        ["orders", "dead-letter"],
        ["parts", "active"],
    ]
    assert [each["entity"] for each in emubus.json("find", "--where", "amount = 4711")["messages"]] == ["parts"]
    assert len(emubus.json("find", "4711", "--count", "2")["messages"]) == 2
    assert [each["sub_queue"] for each in emubus.json("find", "4711", "--in", "ord")["messages"]] == ["dead-letter"]
    assert emubus("find", "nowhere").code == 1
    assert "say what to look for" in emubus("find").err
    assert "SQL filter: unexpected the end" in emubus("find", "--where", "a =").err


def test_the_first_of_what_is_found_are_acted_on(emubus: CommandLine) -> None:
    emubus.done("send", "orders", "x", "--count", "10", "--subject", "red")
    emubus.done("receive", "orders", "--count", "10", "--then", "dead-letter")
    words = ("job", "resubmit", "orders", "--dead-letters", "--where", "sys.Label = 'red'", "--count", "4")
    assert emubus.done(*words) == "resubmit: 4 messages done, 0 failed\n"
    assert emubus.json("show", "orders")["messages"]["active"] == 4
    assert "not with NUMBERs" in emubus("job", "delete", "orders", "1", "--count", "2").err
    assert "allowed is 1 to 1000" in emubus("job", "delete", "orders", "--all", "--count", "1001").err


def test_what_clients_were_refused_is_shown_with_the_remedy(emubus: CommandLine, server: EmubusServer) -> None:
    sdk = ServiceBusClient.from_connection_string(server.connection_string, retry_total=0)
    with sdk as client, pytest.raises(ServiceBusError), client.get_queue_sender("ordrs") as sender:
        sender.send_messages(ServiceBusMessage("x"))
    shown = emubus.done("refusals", "ordrs")
    assert "remedy: no queue, topic or subscription 'ordrs'; did you mean 'orders'?" in shown
    assert emubus.json("refusals", "ordrs", "--count", "1")["refusals"][0]["entity"] == "ordrs"
    assert emubus.done("refusals", "none-such") == "nobody was refused anything lately\n"
    assert "--count is '0'" in emubus("refusals", "--count", "0").err


# ---------------------------------------------------------------- questions

Answering = Callable[[str | None, Sequence[str]], Ended]


@pytest.fixture
def at_terminal(emubus: CommandLine, monkeypatch: pytest.MonkeyPatch) -> Answering:
    """Run a command as on a terminal, where somebody answers so; None: the question must not come."""

    def run(answer: str | None, words: Sequence[str]) -> Ended:
        def read(prompt: str = "") -> str:
            assert answer is not None, prompt
            return answer

        monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
        monkeypatch.setattr(output, "is_terminal", lambda: True)
        monkeypatch.setattr("click.termui.visible_prompt_func", read)
        return emubus(*words)

    return run


@pytest.mark.parametrize(
    ("before", "words"),
    [
        ((), ("purge", "orders")),
        ((), ("purge", "--all")),
        ((), ("delete", "orders")),
        ((), ("reset",)),
        ((), ("job", "delete", "orders", "--all")),
        (("snapshot", "take", "one"), ("snapshot", "restore", "one")),
        (("snapshot", "take", "one"), ("snapshot", "delete", "one")),
        ((), ("connections", "--drop")),
        (("namespace", "create", "other-one"), ("namespace", "delete", "other-one")),
    ],
    ids=str,
)
def test_what_can_not_be_undone_is_asked_for_on_a_terminal(
    emubus: CommandLine, at_terminal: Answering, before: tuple[str, ...], words: tuple[str, ...]
) -> None:
    if before:
        emubus.done(*before)
    emubus.done("send", "orders", "x")
    refused = at_terminal("n", words)
    assert (refused.code, "nothing was done" in refused.err) == (1, True)
    assert emubus.json("show", "orders")["messages"]["active"] == 1
    assert at_terminal(None, (*words, "--yes")).code == 0
    if before:
        emubus(before[0], "delete", before[2], "--yes")


def test_a_yes_does_it_and_reading_asks_nothing(emubus: CommandLine, at_terminal: Answering) -> None:
    emubus.done("send", "orders", "x")
    assert at_terminal(None, ("peek", "orders")).code == 0
    assert at_terminal("y", ("purge", "orders")).code == 0
    assert emubus.json("show", "orders")["messages"]["active"] == 0


# ---------------------------------------------------------------- JSON


def test_every_command_that_prints_prints_json() -> None:
    """But `serve`, which has --ready-file and --log-format json."""
    without = [
        each.prog
        for name, entry in COMMANDS.items()
        for each in entry.command(name).commands()
        if "json" not in {own.name for own in each.parameters}
    ]
    assert without == ["emubus serve"]


def test_what_was_text_only_is_json(emubus: CommandLine, server: EmubusServer, tmp_path: Path) -> None:
    emubus.done("send", "orders", "x")
    file = str(tmp_path / "lines")
    assert emubus.json("export", "orders", "--file", file) == {"file": file}
    assert json.loads(emubus.done("export", "orders", "--json"))
    file = str(tmp_path / "Config.json")
    assert emubus.json("config", "export", "--file", file) == {"file": file}
    assert emubus.json("config", "schema")
    assert emubus.json("health", "--http-port", str(server.http_port))["is_healthy"] is True
    assert json.loads(emubus("health", "--http-port", "1", "--json").out)["is_healthy"] is False
    assert emubus.json("ca", "--data", str(tmp_path)).keys() == {"file", "sha256", "subject", "doubts"}


# ---------------------------------------------------------------- what must not be struck


def test_what_is_named_amiss_loses_nothing(emubus: CommandLine) -> None:
    """A sub-queue by its address, another namespace, a session of a queue without them: each would have lost these."""
    emubus.done("send", "orders", "x", "--count", "2", "--session-id", "other")
    for words in (
        ("purge", "orders/$DeadLetterQueue"),
        ("delete", "orders/$DeadLetterQueue"),
        ("receive", "orders/$DeadLetterQueue"),
        ("purge", "--all", "--namespace", "none"),
        ("receive", "orders", "--session", "mine"),
        ("receive", "orders", "--reason", "broken"),
    ):
        assert emubus(*words).code in (1, 2), words
    assert emubus.json("show", "orders")["messages"]["active"] == 2


def test_conditions_end_by_their_names(emubus: CommandLine) -> None:
    for name in ("throttled", "unsure", "throttled"):
        emubus.done("condition", "begin", name)
    assert emubus.done("condition", "end", "throttled") == "ended 2 conditions\n"
    assert [each["name"] for each in emubus.json("condition")["conditions"]] == ["unsure"]
    assert "(unsure)" in emubus("condition", "end", "throttled").err


def test_sends_are_disabled_for_a_while(emubus: CommandLine) -> None:
    emubus.done("send", "orders", "before")
    emubus.done("update", "orders", "--set", "Status=SendDisabled")
    assert "SendDisabled" in emubus.done("show", "orders")
    refused = emubus("send", "orders", "meanwhile")
    assert refused.code == 1
    assert "disabled" in refused.err
    assert [each["body"]["text"] for each in emubus.json("receive", "orders")["messages"]] == ["before"]
    emubus.done("update", "orders", "--set", "Status=Active")
    emubus.done("send", "orders", "after")
