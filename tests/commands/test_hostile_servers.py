"""Each client command against what is no emubus, or a hostile one: one line, a proper exit code, no control characters.

The table of commands is that of the command line: one without a row here fails.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest

from emubus.commands.client import api, bulk, exercise
from emubus.commands.table import COMMANDS
from emubus.kit import http_connection
from emubus.kit.remote import RemoteEmubus
from emubus.web.control import TABLES
from emubus.web.control.openapi import document

from ..rounds import rounds
from .conftest import CommandLine, Ended
from .hostile import HOSTILE, UNSAFE, Document, HostileServer, answer, hostile, hostile_server, wrong

DOCUMENT = Document(json.loads(json.dumps(document(TABLES, "1"))))
CLIENTS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "ls": (("ls",), ("ls", "x")),
    "show": (("show", "x"), ("show", "t/x")),
    "create": (("create", "queue", "x"), ("create", "subscription", "t/x", "--set", "LockDuration=30s")),
    "update": (("update", "x", "--set", "MaxDeliveryCount=3"),),
    "delete": (("delete", "x", "y"),),
    "import": (("import", "x", "--lines", "lines.jsonl"), ("import", "--arm", "template.json")),
    "config": (("config", "export"), ("config", "export", "--file", "out.json")),
    "rules": (("rules", "t/x"), ("rules", "t/x", "--add", "r", "--sql", "1=1"), ("rules", "t/x", "--remove", "r")),
    "sessions": (("sessions", "x"), ("sessions", "x", "--release", "s")),
    "connections": (("connections",), ("connections", "--entity", "x"), ("connections", "--drop")),
    "send": (("send", "x", "body"), ("send", "x", "body", "--count", "101")),
    "peek": (("peek", "x"), ("peek", "x", "--body"), ("peek", "x", "--dead-letters", "--count", "300")),
    "find": (("find", "x"), ("find", "--where", "1=1")),
    "refusals": (("refusals",), ("refusals", "x")),
    "receive": (("receive", "x", "--body"), ("receive", "x", "--then", "lock", "--count", "3")),
    "settle": (("settle", "x", "complete", "0" * 8 + "-0000" * 3 + "-" + "0" * 12),),
    "trace": (("trace",), ("trace", "x"), ("trace", "--on")),
    "purge": (("purge", "x"), ("purge", "--all")),
    "resubmit": (("resubmit", "x"),),
    "job": (("job", "delete", "x", "--all"),),
    "export": (("export", "x"), ("export", "x", "--file", "out.jsonl")),
    "route": (("route", "x", "--key", "k"),),
    "reset": (("reset",),),
    "clock": (("clock",), ("clock", "advance", "1s")),
    "outage": (("outage",), ("outage", "down", "1"), ("outage", "end")),
    "fault": (("fault",), ("fault", "add", "server-busy"), ("fault", "clear", "é")),
    "condition": (("condition",), ("condition", "begin", "throttled"), ("condition", "end"), ("condition", "names")),
    "exercise": (("exercise", "--minutes", "0.001", "--presets", "throttled"),),
    "namespace": (("namespace", "list"), ("namespace", "create", "x"), ("namespace", "delete", "x")),
    "role": (("role", "list"), ("role", "assign", "x", "sender")),
    "snapshot": (
        *(("snapshot",), ("snapshot", "take", "x"), ("snapshot", "download", "x"), ("snapshot", "upload", "x")),
        ("snapshot", "restore", "x"),
    ),
}
WITHOUT_SERVER = {"serve", "health", "check", "ca", "connection-string", "token", "completion"}
RUNS = [arguments for runs in CLIENTS.values() for arguments in runs]
MUTATIONS = 200
"""Answers with a wrong member that the suite tries, of some ten thousand; all with EMUBUS_TEST_LONG."""


@pytest.fixture(scope="module")
def server() -> Iterator[HostileServer]:
    with hostile_server() as running:
        yield running


@pytest.fixture
def command(
    offline: CommandLine, server: HostileServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> CommandLine:
    """The command line with the hostile server in the environment, in a folder with what commands read."""
    monkeypatch.setenv("EMUBUS_URL", server.url)
    monkeypatch.chdir(tmp_path)
    Path("lines.jsonl").write_text('{"message": {}}\n')
    Path("template.json").write_text(
        json.dumps({"resources": [{"type": "Microsoft.ServiceBus/namespaces/queues", "name": "ns/q"}]})
    )
    Path("x.tar").write_bytes(b"archive")
    # What is waited for in real time ends at once: a hostile server must not need it to be stopped.
    monkeypatch.setattr(exercise, "wait", lambda ms: None)
    return offline


def judge(ended: Ended, what: str) -> None:
    """Fail unless a command ended as it should."""
    assert ended.code in (0, 1, 2, 3), what
    for text in (ended.out, ended.err):
        assert UNSAFE.search(text.replace("\x1b[1m", "").replace("\x1b[0m", "")) is None, (what, text)
    assert all(re.match(r"emubus( \w+)*: ", line) for line in ended.err.splitlines()), (what, ended.err)
    if ended.code in (2, 3):
        assert len(ended.err.splitlines()) == 1, (what, ended.err)
    assert "\nemubus: error: forged" not in ended.err, what


def test_every_command_that_asks_a_server_is_tried() -> None:
    assert CLIENTS.keys() | WITHOUT_SERVER == COMMANDS.keys()


@pytest.mark.parametrize("arguments", RUNS, ids=" ".join)
def test_samples_of_the_document_are_understood(
    command: CommandLine, server: HostileServer, arguments: tuple[str, ...]
) -> None:
    """Else the hostile ones would fail for another reason."""
    server.answers(sample)
    ended = command(*arguments)
    assert ended.code in (0, 1), ended  # 1: the sample has failures of single messages
    assert "is no emubus" not in ended.err
    assert server.asked


def sample(method: str, path: str, change: Callable[[object], object] = lambda value: value) -> bytes:
    """The answer of the document, changed; of the administration protocol, an entry."""
    if not path.startswith("/emubus/v1/"):
        return answer(b'<entry xmlns="http://www.w3.org/2005/Atom"/>', 201)
    return given(method, path, change(DOCUMENT.sample(method, path)))


def given(method: str, path: str, value: object) -> bytes:
    """An answer of the type that the document says."""
    return answer(json.dumps(value).encode(), head=f"Content-Type: {DOCUMENT.media_type(method, path)}")


@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
@pytest.mark.parametrize("arguments", RUNS, ids=" ".join)
def test_hostile_texts_in_every_place_do_nothing(
    command: CommandLine, server: HostileServer, arguments: tuple[str, ...], as_json: bool
) -> None:
    server.answers(lambda method, path: sample(method, path, hostile))
    has_json = as_json and arguments[0] not in ("config", "export")
    ended = command(*arguments, *(["--json"] if has_json else []))
    judge(ended, " ".join(arguments))
    if has_json and ended.code == 0:
        assert json.loads(ended.out)
    for file in Path().glob("*.json*"):
        assert UNSAFE.search(file.read_text()) is None


@pytest.mark.parametrize("status", [400, 404, 500])
@pytest.mark.parametrize("arguments", RUNS, ids=" ".join)
def test_hostile_refusals_are_one_line(
    command: CommandLine, server: HostileServer, arguments: tuple[str, ...], status: int
) -> None:
    refusal = json.dumps({"error": {"code": HOSTILE, "message": HOSTILE * 1_000}}).encode()
    server.answers(lambda method, path: answer(refusal, status))
    ended = command(*arguments)
    judge(ended, " ".join(arguments))
    assert ended.code != 0
    assert len(ended.err) < 10_000


def mutations() -> Iterator[tuple[tuple[str, ...], str, str, str, bytes]]:
    """Each command with each of its requests answered with one member wrong."""
    for arguments in RUNS:
        for method, path in ROUTES[arguments]:
            for what, value in wrong(DOCUMENT.sample(method, path)):
                yield arguments, method, path, what, given(method, path, value)


def changed(method: str, path: str, own: bytes, asked: str, at: str) -> bytes:
    """The sample, but `own` for one method and path."""
    return own if (asked, at) == (method, path) else sample(asked, at)


ROUTES: dict[tuple[str, ...], list[tuple[str, str]]] = {}


def test_a_wrong_member_of_any_answer_is_one_line(command: CommandLine, server: HostileServer) -> None:
    for arguments in RUNS:
        server.answers(sample)
        command(*arguments)
        ROUTES[arguments] = [each for each in dict.fromkeys(server.asked) if each[1].startswith("/emubus/v1/")]
    chosen = [*mutations()]
    assert len(chosen) > MUTATIONS
    for arguments, method, path, what, own in random.Random(31).sample(chosen, rounds(MUTATIONS, len(chosen))):
        server.answers(partial(changed, method, path, own))
        judge(command(*arguments), f"{' '.join(arguments)}: {method} {path}: {what}")


DEEP = b'{"entities":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
NOT_SO_DEEP = b'{"entities":' + b"[" * 500 + b"]" * 500 + b"}"
STRANGE: Mapping[str, bytes] = {
    "nothing": b"",
    "bytes": bytes(range(256)) * 20,
    "AMQP": b"AMQP\x00\x01\x00\x00",
    "another status line": b"HTTP/1.1 \x1b[2J\r\n\r\n",
    "HTML": answer(b"<html>\x1b[2J</html>", head="Content-Type: text/html"),
    "HTML and not found": answer(b"<html>\x1b[2J</html>", 404),
    "an empty body": answer(b""),
    "a list": answer(b"[1, 2, 3]"),
    "a text": answer(b'"x"'),
    "null": answer(b"null"),
    "bytes as JSON": answer(b'{"entities": "\xff\xfe"}'),
    "deep": answer(DEEP),
    "deep, but not for a parser": answer(NOT_SO_DEEP),
    "a huge number": answer(b'{"entities": [], "next_page": ' + b"9" * 5_000 + b"}"),
    "a redirect": answer(b"", 302, "Location: http://127.0.0.1:1/stolen"),
    "a redirect with JSON": answer(b"{}", 307, "Location: http://127.0.0.1:1/stolen"),
    "no content": answer(b"", 204),
    "an error that is a list": answer(b'{"error": [1]}', 400),
    "too short": b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{}",
    "a bad chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "a negative length": b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n{",
    "many headers": b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 1_000 + b"\r\n{}",
    "a long header": b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000 + b"\r\n\r\n{}",
    "without end": b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * 300_000,
}


@pytest.mark.parametrize("what", STRANGE)
def test_what_is_no_emubus_is_one_line_and_exit_code_3(
    command: CommandLine, server: HostileServer, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_connection, "ANSWER_BYTES_MAX", 250_000)
    server.answers(lambda method, path: STRANGE[what])
    for arguments in RUNS:
        ended = command(*arguments)
        judge(ended, f"{what}: {' '.join(arguments)}")
        assert ended.code == 3, (arguments, ended)
        assert server.url in ended.err
    with pytest.raises(ConnectionError, match="no emubus answers"):
        RemoteEmubus(server.url).now_ms()


ENDLESS: Mapping[str, dict[str, object]] = {
    "the same page": {"next_page": "again", "next_sequence_number": 5, "state": "running"},
    "without items": {"entities": [], "messages": [], "next_page": "again", "next_sequence_number": 5},
}


@pytest.mark.parametrize("what", ENDLESS)
@pytest.mark.parametrize("arguments", RUNS, ids=" ".join)
def test_pages_without_end_end(
    command: CommandLine, server: HostileServer, arguments: tuple[str, ...], what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "JOB_STILL_MAX", 20)

    def endless(value: object) -> object:
        if not isinstance(value, dict):
            return value
        return {**value, **{name: each for name, each in ENDLESS[what].items() if name in value}}

    server.answers(lambda method, path: sample(method, path, endless))
    judge(command(*arguments), " ".join(arguments))
    assert len(server.asked) < 100


def test_new_pages_without_end_end(
    command: CommandLine, server: HostileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "PAGES_MAX", 20)

    def pages(method: str, path: str) -> bytes:
        return given(method, path, {**DOCUMENT.sample(method, path), "next_page": f"page-{len(server.asked)}"})

    server.answers(pages)
    ended = command("ls")
    assert (ended.code, len(server.asked)) == (3, 20)
    assert "the list of entities has more than 20 pages" in ended.err


def test_an_answer_that_comes_byte_by_byte_has_a_limit(
    command: CommandLine, server: HostileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Continuations, too, are part of the answer; the limit is over before the server answers at all."""
    monkeypatch.setattr(api, "READ_S_MAX", 1e-9)
    server.answers(lambda method, path: b"HTTP/1.1 100 Continue\r\n\r\n" * 1_000)
    ended = command("ls")
    assert ended.code == 3
    assert "no answer from" in ended.err


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("EMUBUS_URL", "http://[::1"),
        ("EMUBUS_URL", "http://" + "a" * 70),
        ("EMUBUS_URL", "http://a..b"),
        ("EMUBUS_URL", "http://\x1b[2J:80"),
        ("EMUBUS_URL", "http://h:99999"),
        ("EMUBUS_URL", "http://h o s t"),
        ("EMUBUS_CONNECTION_STRING", "Endpoint=sb://[::1;SharedAccessKey=topsecret"),
        ("EMUBUS_CONNECTION_STRING", "Endpoint=nonsense;SharedAccessKey=topsecret"),
        ("EMUBUS_SAS_KEY", "topsecret\udcff"),
    ],
)
def test_an_address_or_key_that_cannot_be_used_is_one_line_without_the_key(
    command: CommandLine, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    if variable == "EMUBUS_CONNECTION_STRING":
        monkeypatch.delenv("EMUBUS_URL")
    monkeypatch.setenv(variable, value)
    ended = command("ls")
    judge(ended, value)
    assert ended.code in (2, 3)
    assert "topsecret" not in ended.err


@pytest.mark.parametrize("arguments", RUNS, ids=" ".join)
def test_arguments_that_are_no_text_are_one_line(
    command: CommandLine, server: HostileServer, arguments: tuple[str, ...]
) -> None:
    server.answers(sample)
    for each in range(1, len(arguments)):
        for given in ("\udcff", "\x1b[2J\u202e", "x" * 5_000):
            changed = (*arguments[:each], given, *arguments[each + 1 :])
            judge(command(*changed), " ".join(changed))
