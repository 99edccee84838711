"""The OpenAPI document in the hands of tools for clients: a linter, and types that are generated for TypeScript."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from emubus.web.control import TABLES
from emubus.web.control.openapi import document
from emubus.web.control.schema import read

from ...web.prepare import NODE_TOOLS, prepare_node_tools

WAIT_S = 120.0
CLIENT = """
import type { components, operations } from "./api";
type Of<T extends keyof components["schemas"]> = components["schemas"][T];
const event: Of<"TraceEvent"> = null!;
const verdict: Of<"SubscriptionVerdict"> = event.verdicts[0];
const rule: Of<"RuleVerdict"> = verdict.rules[0];
const connection: Of<"Connection"> = (null! as Of<"Connections">).connections[0];
const link: Of<"Link"> = connection.links[0];
const session: Of<"Session"> = (null! as Of<"Sessions">).sessions[0];
const samples: Of<"Samples"> = null! as operations["showSamples"]["responses"][200]["content"]["application/json"];
const story: Of<"Story"> = null! as operations["showStory"]["responses"][200]["content"]["application/json"];
const said: string = event.text, reason: string | null = rule.reason, page: string | null = story.next_page;
const figures: (number | null)[] = samples.figures["depth"];
export const used = [link.credit, session.session_id, said, reason, page, figures];
"""


@pytest.fixture(scope="module")
def node_tools() -> Path:
    """The folder of the tools, installed."""
    prepare_node_tools()
    return NODE_TOOLS


@pytest.fixture(scope="module")
def described() -> Mapping[str, object]:
    """The document as the server gives it."""
    found: Mapping[str, object] = json.loads(json.dumps(document(TABLES, "1")))
    return found


def printed(folder: Path, script: str, *arguments: Path) -> list[str]:
    """The lines that a script prints."""
    command = ["node", script, *map(str, arguments)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_linter_has_no_complaint(node_tools: Path, described: Mapping[str, object], tmp_path: Path) -> None:
    path = tmp_path / "openapi.json"
    path.write_text(json.dumps(described))
    assert printed(node_tools, "lint.mjs", path) == []
    path.write_text(json.dumps({**described, "servers": []}))
    assert [each.split()[0] for each in printed(node_tools, "lint.mjs", path)] == ["no-empty-servers"]


def test_a_client_in_typescript_has_named_types(
    node_tools: Path, described: Mapping[str, object], tmp_path: Path
) -> None:
    path, client = tmp_path / "openapi.json", tmp_path / "client.ts"
    path.write_text(json.dumps(described))
    client.write_text(f"{CLIENT}const wrong: number = event.text;\n")
    assert printed(node_tools, "types.mjs", path, client) == [
        "TS2322: Type 'string' is not assignable to type 'number'."
    ]


def inline(value: object, place: str = "") -> Iterator[str]:
    """Where objects with fields are written out in place of a reference."""
    if isinstance(value, dict):
        is_object = isinstance(value.get("properties"), dict) and "type" in value
        if is_object and not (place.startswith("/components/schemas/") and place.count("/") == 3):
            yield place
        for name, each in value.items():
            yield from inline(each, f"{place}/{name}")
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from inline(each, f"{place}/{number}")


def test_every_object_has_a_name(described: Mapping[str, object]) -> None:
    assert list(inline(described)) == []
    assert list(inline({"a": [{"type": "object", "properties": {}}]})) == ["/a/0"]


def test_every_body_has_an_example_and_every_example_is_as_described() -> None:
    endpoints = [each for table in TABLES.values() for each in table]
    assert [each.operation_id for each in endpoints if each.body is not None and each.example is None] == []
    answers = {each.operation_id for each in endpoints if each.answers is not None}
    assert answers >= {"showStory", "showSamples", "listConnections", "listSessions"}
    for each in endpoints:
        if each.example is not None:
            assert each.body is not None
            read(each.example, each.body, each.operation_id)
        if each.answers is not None:
            read(each.answers, each.result, each.operation_id)
