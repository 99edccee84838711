"""`import --arm` of files: comments, texts of several lines, parameters, linked files, Bicep and its compiler."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from .conftest import CommandLine

QUEUE = {"type": "Microsoft.ServiceBus/namespaces/queues", "name": "n/orders", "properties": {"maxDeliveryCount": 5}}
COMPILER = """#!/bin/sh
echo "$@" >> "$(dirname "$0")/asked"
if [ "$1" = bicep ]; then shift; fi
if grep -q broken "$3$4"; then echo "main.bicep(3,5) : Error BCP018: expected ="; echo "second error" ; exit 1; fi >&2
case "$1" in
  build) cat "$(dirname "$0")/template.json" ;;
  build-params) cat "$(dirname "$0")/parameters.json" ;;
esac
"""


def names(ended_in: Path) -> list[str]:
    (namespace,) = json.loads(ended_in.read_text())["UserConfig"]["Namespaces"]
    return [each["Name"] for each in namespace["Queues"]]


def test_what_az_takes_beside_json_is_taken(offline: CommandLine, tmp_path: Path) -> None:
    template, target = tmp_path / "main.json", tmp_path / "Config.json"
    text = """\ufeff{ // a comment
    /* of
       lines */
    "resources": [{"type": "Microsoft.ServiceBus/namespaces/queues", "name": "[concat('n/',
        'orders')]",},]
    }"""
    template.write_text(text, encoding="utf-8")
    offline.done("import", "--arm", str(template), "--file", str(target))
    assert names(target) == ["orders"]


def test_a_mistake_has_its_line(offline: CommandLine, tmp_path: Path) -> None:
    template, target = tmp_path / "main.json", tmp_path / "Config.json"
    template.write_text('{\n "resources": [\n  {"type": "Microsoft.ServiceBus/namespaces/queues",\n   "name": "q"}]}')
    ended = offline("import", "--arm", str(template), "--file", str(target))
    assert ended.code == 1
    assert f"left out queue q: its name 'q' has 1 parts; its type has 2 ({template}:3 $.resources[0])" in ended.err
    template.write_text('{\n "resources": [,]}')
    ended = offline("import", "--arm", str(template), "--file", str(target))
    assert (ended.code, ended.err.startswith(f"emubus: error: {template}:2:16: is not JSON: ")) == (2, True), ended.err


def test_a_parameter_without_a_value_is_said_and_a_wrong_one_refused(offline: CommandLine, tmp_path: Path) -> None:
    template, given, target = (tmp_path / each for each in ("main.json", "given.json", "Config.json"))
    queue = {**QUEUE, "name": "[concat('n/', parameters('queueName'))]"}
    parameters = {"queueName": {"type": "string", "maxLength": 10}}
    template.write_text(json.dumps({"parameters": parameters, "resources": [queue]}))
    ended = offline("import", "--arm", str(template), "--file", str(target))
    assert (ended.code, names(target)) == (0, ["queueName"])
    assert "the parameter 'queueName' has no value; 'queueName' stands for it; give it with --parameters" in ended.err
    given.write_text(json.dumps({"parameters": {"queueName": {"value": "much-too-long"}, "queueNmae": {"value": 1}}}))
    ended = offline("import", "--arm", str(template), "--parameters", str(given), "--file", str(target))
    assert (ended.code, ended.err.splitlines()) == (
        2,
        [
            f"emubus: error: {given}: the template has no parameter 'queueNmae'; did you mean 'queueName'?",
            f"emubus: error: {given}: the parameter 'queueName' is 'much-too-long'; its maxLength is 10",
        ],
    )


def test_a_linked_template_beside_the_file_is_read(offline: CommandLine, tmp_path: Path) -> None:
    template, target = tmp_path / "main.json", tmp_path / "Config.json"
    link = {"templateLink": {"uri": "[concat(parameters('base'), '/nested/queue.json')]"}}
    linked = {"type": "Microsoft.Resources/deployments", "name": "m", "properties": link}
    template.write_text(json.dumps({"parameters": {"base": {"type": "string"}}, "resources": [linked]}))
    (tmp_path / "nested").mkdir()
    (tmp_path / "nested/queue.json").write_text(json.dumps({"resources": [QUEUE]}))
    assert offline("import", "--arm", str(template), "--file", str(target)).code == 0
    assert names(target) == ["orders"]


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for programs, before those that the compiler's stand-in needs."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}/usr/bin{os.pathsep}/bin")
    return folder


def compiler(path: Path, name: str) -> None:
    parameters = json.dumps({"parameters": {"queueName": {"value": "given"}}})
    queue = {**QUEUE, "name": "[concat('n/', parameters('queueName'))]"}
    template = {"parameters": {"queueName": {"type": "string", "defaultValue": "orders"}}, "resources": [queue]}
    (path / "template.json").write_text(json.dumps(template))
    (path / "parameters.json").write_text(json.dumps({"parametersJson": parameters}))
    (path / name).write_text(COMPILER)
    (path / name).chmod(0o755)


@pytest.mark.parametrize("name", ["bicep", "az"])
def test_bicep_is_compiled_by_the_compiler_on_the_path(
    offline: CommandLine, tmp_path: Path, path: Path, name: str
) -> None:
    compiler(path, name)
    source, values, target = (tmp_path / each for each in ("main.bicep", "main.bicepparam", "Config.json"))
    source.write_text("resource …")
    values.write_text("using …")
    offline.done("import", "--arm", str(source), "--file", str(target))
    assert names(target) == ["orders"]
    offline.done("import", "--arm", str(source), "--parameters", str(values), "--file", str(target))
    assert names(target) == ["given"]
    asked = (path / "asked").read_text().splitlines()
    ways = {"bicep": ("build --stdout", "build-params --stdout"), "az": ("bicep build", "bicep build-params")}[name]
    assert (asked[0].startswith(ways[0]), asked[1].startswith(ways[1])) == (True, True), asked


def test_bicep_that_does_not_compile_has_the_words_of_the_compiler(
    offline: CommandLine, tmp_path: Path, path: Path
) -> None:
    compiler(path, "bicep")
    source = tmp_path / "main.bicep"
    source.write_text("broken")
    ended = offline("import", "--arm", str(source), "--file", str(tmp_path / "Config.json"))
    assert (ended.code, ended.err.splitlines()) == (
        2,
        [
            f"emubus: error: {source} does not compile: main.bicep(3,5) : Error BCP018: expected =",
            "emubus: error: second error",
        ],
    )


def test_bicep_without_a_compiler_is_one_line(
    offline: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    source = tmp_path / "main.bicep"
    source.write_text("resource …")
    ended = offline("import", "--arm", str(source), "--file", str(tmp_path / "Config.json"))
    assert (ended.code, len(ended.err.splitlines())) == (2, 1)
    assert "neither `bicep` nor `az` is on PATH" in ended.err
