"""Every example of docs/TESTING.md and of the README's section about tests, as it is written there."""

from __future__ import annotations

import json
import re
import subprocess
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from emubus.testing import EmubusServer, QueueDescription, RemoteEmubus

from ..building import ROOT
from ..programs import PROGRAM_S_MAX
from .running import Served, run_pytest, serving

DOCS = ROOT / "docs" / "TESTING.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
HELD_ELSEWHERE = {"test_container.py"}  # by tests/kit/test_container.py
CONFIG = {"UserConfig": {"Namespaces": [{"Name": "sbemulatorns", "Queues": [{"Name": "orders"}], "Topics": []}]}}


def blocks(language: str, text: str | None = None) -> list[str]:
    """The examples in a language."""
    return [block for kind, block in BLOCK.findall(DOCS.read_text() if text is None else text) if kind == language]


def examples() -> dict[str, str]:
    """The Python examples by the name of their file."""
    return {block.partition("\n")[0].removeprefix("# "): block for block in blocks("python")}


def names_in(example: str) -> set[str]:
    return set(re.findall(r"^ *(?:async )?def (test_\w+)", example, re.MULTILINE))


def test_the_examples_for_pytest_pass_as_they_are_written(tmp_path: Path) -> None:
    section = (ROOT / "README.md").read_text().partition("\n## In tests\n")[2].partition("\n## ")[0]
    (readme,) = blocks("python", section)
    chosen = {name: example for name, example in examples().items() if name not in HELD_ELSEWHERE}
    assert set(chosen) == {
        "test_orders.py",
        "test_why_not.py",
        "test_more.py",
        "test_bad_days.py",
        "test_async.py",
        "test_with_unittest.py",
    }
    chosen["test_readme.py"] = readme
    for name, example in chosen.items():
        (tmp_path / name).write_text(example)
    finished = run_pytest(tmp_path)
    expected = {name: "passed" for example in chosen.values() for name in names_in(example)}
    assert dict(finished.tests) == expected, finished.output
    assert len(expected) >= 12


def test_the_example_for_unittest_passes_without_pytest() -> None:
    module: dict[str, object] = {"__name__": "example"}
    exec(examples()["test_with_unittest.py"], module)  # the example is ours
    loader, result = unittest.TestLoader(), unittest.TestResult()
    for case in (each for each in module.values() if isinstance(each, type) and issubclass(each, unittest.TestCase)):
        loader.loadTestsFromTestCase(case).run(result)
    assert (result.testsRun, result.errors, result.failures) == (2, [], [])


def test_the_configuration_file_of_the_example_is_read(tmp_path: Path) -> None:
    (tmp_path / "Config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "pyproject.toml").write_text(blocks("toml")[0])
    (tmp_path / "test_it.py").write_text(
        "def test_it(emubus):\n"
        "    assert emubus.message_counts('orders')['active'] == 0\n"
        "    assert emubus.server.config.limits.profile == 'ms-emulator'\n"
    )
    assert dict(run_pytest(tmp_path).tests) == {"test_it": "passed"}


def test_every_fixture_and_every_setting_has_its_row() -> None:
    text = DOCS.read_text()
    plugin = (ROOT / "emubus" / "kit" / "pytest_plugin.py").read_text()
    fixtures = re.findall(r"^@pytest\.fixture.*\ndef ([a-z]\w+)", plugin, re.MULTILINE)
    assert sorted(re.findall(r"^\| `(\w+)` \| (?:test|session) \|", text, re.MULTILINE)) == sorted(fixtures)
    settings = re.findall(r'^    "(\w+)": "', plugin, re.MULTILINE)
    assert re.findall(r"^\| `--emubus-(\w+)=[A-Z]+` \| `emubus_\w+` \|", text, re.MULTILINE) == settings
    assert re.findall(r"^\| `--emubus-\w+=[A-Z]+` \| `emubus_(\w+)` \|", text, re.MULTILINE) == settings


def test_every_verb_is_named() -> None:
    text = DOCS.read_text()
    verbs = [name for name in dir(EmubusServer) if not name.startswith("_") and hasattr(RemoteEmubus, name)]
    assert "create_queue" in verbs
    assert [name for name in verbs if not re.search(rf"\b{name}\b", text)] == ["create"]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path) as served:
        yield served


def test_the_requests_for_a_shell_do_what_is_said(served: Served) -> None:
    remote = RemoteEmubus(served.url)
    remote.create(QueueDescription("later"))
    answers = [shell(block, served) for block in blocks("bash")]
    entity, clock, dead, report, refusing, snapshots = answers
    assert entity == [{"message_count": 0}]
    assert [answer["is_frozen"] for answer in clock] == [True, True]
    assert clock[1]["now_ms"] == clock[0]["now_ms"] + 60_000
    assert (dead[0]["messages"], len(dead[1]["partitions"])) == ([], 1)
    assert report[0]["text"].startswith("Clock:")
    assert [each["health"] for each in refusing[0]["stores"]] == ["down" if n == 3 else "available" for n in range(16)]
    assert (refusing[1]["kind"], refusing[1]["count"]) == ("server-busy", 2)
    assert [answer.get("name") for answer in snapshots] == [None, "seeded", "seeded"]


def shell(block: str, served: Served) -> list[dict[str, Any]]:
    """Run an example against another address; the JSON that each request was answered with, or its `text`."""
    script = block.replace("http://localhost:5300", served.url).replace("curl ", "curl --noproxy '*' --max-time 20 ")
    done = subprocess.run(
        ["bash", "-e", "-c", script], capture_output=True, text=True, timeout=PROGRAM_S_MAX, check=False
    )
    assert done.returncode == 0, (done.stdout, done.stderr)
    decoder, answers, rest = json.JSONDecoder(), [], done.stdout
    if not rest.startswith("{"):
        return [{"text": rest}]
    while rest:
        answer, end = decoder.raw_decode(rest)
        answers.append(answer)
        rest = rest[end:].lstrip()
    return answers


def test_the_compose_file_of_the_example_is_a_part_of_the_real_one() -> None:
    (example,) = blocks("yaml")
    real = (ROOT / "docker-compose.yml").read_text()
    for pattern in (r"image: (\S+)", r"[\s{](EMUBUS_\w+):", r":(/\S+/Config\.json:ro)"):
        found = re.findall(pattern, example)
        assert found
        assert set(found) <= set(re.findall(pattern, real))
    exposed = re.findall(r"^EXPOSE (.+)$", (ROOT / "docker" / "Dockerfile").read_text(), re.MULTILINE)
    assert re.findall(r'"\d+:(\d+)"', example) == exposed[0].split()
