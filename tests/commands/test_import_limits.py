"""`emubus import` of templates and namespaces that grow without end: one line within limits, nothing is created."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from emubus.importing import atom
from emubus.templates import reading
from emubus.templates.evaluating import Lazy, Scope
from emubus.templates.reading import evaluate
from emubus.templates.values import TEXT_CHARS_MAX, TooMuch, Unresolved

from .conftest import CommandLine
from .hostile import HostileServer, answer, hostile_server

QUEUES = "Microsoft.ServiceBus/namespaces/queues"
DEPLOYMENTS = "Microsoft.Resources/deployments"


def queue(name: str) -> dict[str, object]:
    return {"type": QUEUES, "name": name, "properties": {}}


def nested(resources: list[object], count: int) -> dict[str, object]:
    """A module in a loop."""
    return {
        "type": DEPLOYMENTS,
        "copy": {"name": "c", "count": count},
        "properties": {"template": {"resources": resources}},
    }


def loops(depth: int) -> dict[str, object]:
    inner = nested([queue("n/q")], 10_000)
    for _ in range(depth):
        inner = nested([inner], 10_000)
    return inner


def doubling(function: str) -> dict[str, object]:
    variables = {f"v{n}": f"[{function}(variables('v{n + 1}'), variables('v{n + 1}'))]" for n in range(30)}
    return {"variables": {**variables, "v30": "aaaaaaaaaa"}, "resources": [queue("[string(variables('v0'))]")]}


LONG: dict[str, object] = {
    "variables": {"v": f"[padLeft('', {TEXT_CHARS_MAX - 9}, 'x')]"},
    "resources": [queue("[concat('ns/', variables('v'))]") for _ in range(200)],
}
TOO_MUCH: Mapping[str, dict[str, object]] = {
    "loops in loops": {"resources": [loops(5)]},
    "loops of what is left out": {"resources": [nested([queue("y")] * 10, 10_000)]},
    "many queues": {
        "resources": [
            {**queue("[concat('ns/', copyIndex(), 'x')]"), "copy": {"name": "c", "count": 9_999}},
            {**queue("[concat('ns/', copyIndex())]"), "copy": {"name": "c", "count": 9_999}},
            queue("ns/last"),
        ]
    },
    "a list that doubles": doubling("createArray"),
    "a list that is written twice": {
        "variables": {f"v{n}": [f"[variables('v{n + 1}')]"] * 2 for n in range(30)} | {"v30": "a"},
        "resources": [queue("[string(variables('v0'))]")],
    },
    "a list that is mapped twice": {
        "variables": {f"v{n}": f"[map(range(0, 2), lambda('x', variables('v{n + 1}')))]" for n in range(30)}
        | {"v30": "a"},
        "resources": [queue("[string(variables('v0'))]")],
    },
    "long texts, often": LONG,
}
UNRESOLVED = (
    "string(length(range(0, 2000000000)))",
    "padLeft('a', 2000000000)",
    "padLeft('a', 10, 'bc')",
    "mul('aaaaaaaaaa', 500000000)",
    "mul(createArray(1), 500000000)",
    "mul(9223372036854775807, 2)",
    "add('a', 'b')",
    "add(9223372036854775807, 1)",
    "sub(-9223372036854775807, 9)",
    "div(1, 0)",
    "mod(1, 0)",
    "int('" + "9" * 5_000 + "')",
    "9" * 5_000,
    "int('-99999999999999999999')",
    "length(replace(padLeft('', 100000, 'a'), 'a', padLeft('', 100000, 'b')))",
    "replace('aaaa', '', padLeft('', 100000, 'b'))",
    "join(split(padLeft('', 9000, ','), ','), padLeft('', 1000, 'x'))",
    "split(padLeft('', 100000, ','), ',')",
    "format('{0}{0}{0}', padLeft('', 100000, 'x'))",
    "concat(padLeft('', 100000, 'x'), padLeft('', 100000, 'x'))",
    "concat(range(0, 9000), range(0, 9000))",
    "string(createArray(padLeft('', 100000, 'x'), padLeft('', 100000, 'x')))",
    "concat(" * 50_000 + "'a'" + ")" * 50_000,
    "substring(" * 70 + "'a'" + ", 0)" * 70,
    "variables('a')",
)


@pytest.mark.parametrize("what", TOO_MUCH)
def test_a_template_that_grows_without_end_is_refused_as_a_whole(what: str) -> None:
    with pytest.raises(TooMuch):
        evaluate(TOO_MUCH[what], {})


@pytest.mark.parametrize("expression", UNRESOLVED, ids=lambda text: text[:30])
def test_a_value_that_grows_is_not_made(expression: str) -> None:
    variables: dict[str, Lazy] = {}
    scope = Scope(variables=variables)
    variables |= {a: Lazy(a, lambda b=b: scope.value(f"[variables('{b}')]")) for a, b in ("ab", "ba")}  # type: ignore[misc]
    with pytest.raises(Unresolved):
        scope.value(f"[{expression}]")


def test_a_text_that_doubles_is_passed_over() -> None:
    found = evaluate(doubling("concat"), {})
    (line,) = found.resources.left_out
    assert f"the text would have more than {TEXT_CHARS_MAX} characters" in line.why


def test_what_is_large_but_of_use_is_read() -> None:
    many = {**queue("[concat('ns/q', copyIndex())]"), "copy": {"name": "c", "count": 9_000}}
    assert len(evaluate({"resources": [many]}, {}).resources.declared) == 9_000


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"resources": ' + "[" * 50_000 + "]" * 50_000 + "}", "nested more than 64 deep"),
        ('{"resources": ' + "[" * 150 + "]" * 150 + "}", "nested more than 64 deep"),
        ('{"resources": ' + "9" * 5_000 + "}", "is not JSON"),
        ("[]", "is not a JSON object"),
        (json.dumps({"resources": [loops(5)]}), "it makes more than 10000 entities"),
    ],
)
def test_a_file_that_grows_is_one_line(offline: CommandLine, tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "template.json"
    path.write_text(text)
    ended = offline("import", "--arm", str(path), "--url", "http://127.0.0.1:1")
    assert (ended.code, ended.out) == (2, "")
    assert len(ended.err.splitlines()) == 1
    assert why in ended.err


def test_lines_that_are_passed_over_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "LINES_MAX", 5)
    with pytest.raises(TooMuch, match="more than 5 of its resources"):
        evaluate({"resources": [queue("y")] * 10}, {})


@pytest.fixture
def namespace() -> Iterator[HostileServer]:
    with hostile_server() as running:
        yield running


ENTRY = """<entry xmlns="http://www.w3.org/2005/Atom"><title type="text">q</title><content type="application/xml">
<QueueDescription xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"/></content></entry>"""
FEED = '<feed xmlns="http://www.w3.org/2005/Atom">{}</feed>'


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (FEED.format(ENTRY * 100), "do not end: $Resources/Queues has 500 entries and more"),
        (FEED.format("<entry/>"), "has an entry without a description"),
        ("<a>" * 200_000, "is no XML"),
        ('<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>', "is no XML"),
        ("\x1b[2J", "is no XML"),
    ],
)
def test_a_namespace_without_end_is_one_line(
    offline: CommandLine, namespace: HostileServer, monkeypatch: pytest.MonkeyPatch, body: str, why: str
) -> None:
    monkeypatch.setattr(atom, "LIST_ENTRIES_MAX", 500)
    namespace.answers(lambda method, path: answer(body.encode()))
    host = namespace.url.removeprefix("http://")
    source = f"Endpoint=sb://{host};SharedAccessKeyName=k;SharedAccessKey=topsecret;UseDevelopmentEmulator=true"
    ended = offline("import", "--namespace", source, "--url", "http://127.0.0.1:1")
    assert (ended.code, ended.out, len(ended.err.splitlines())) == (1, "", 1)
    assert why in ended.err
    assert "topsecret" not in ended.err
