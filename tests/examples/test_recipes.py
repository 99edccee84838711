"""The other folders of examples/: what can be run or read here, and that all that is not run says so at its head."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from emubus.config import OPTIONS, load_config
from emubus.options import HTTP_PORT

from ..building import ROOT
from ..kit.running import run_pytest

EXAMPLES = ROOT / "examples"
RUN = {"python", "javascript", "java", "go", "rust", "pytest", "spark", "conditions"}
RUN_FILES = {
    EXAMPLES / "dotnet/hello/Program.cs",  # where there is a .NET SDK
    *(EXAMPLES / "dotnet/tests").glob("*.cs"),
    EXAMPLES / "testcontainers-node/index.mjs",
    EXAMPLES / "testcontainers-python/src/emubus_testcontainers/__init__.py",
}
READ = {"compose", "devcontainer", "functions", "github-actions", "gitlab-ci", "kubernetes"}
NOT_RUN = re.compile(r"\b[Nn]ot run by a test of this repository|No test of this repository runs")
CONNECTION_STRING = re.compile(
    r"Endpoint=sb://(localhost|servicebus):5672;SharedAccessKeyName=RootManageSharedAccessKey;"
    r"SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true"
)
IN_VARIABLE = re.compile(r"^[\w.]+(\?(sessions|partitioned)(&(sessions|partitioned))*)?$")


def test_every_folder_is_in_the_list() -> None:
    folders = {path.name for path in EXAMPLES.iterdir() if path.is_dir()}
    listed = set(re.findall(r"\[([\w-]+)\]\(\1\)", (EXAMPLES / "README.md").read_text()))
    assert folders == listed
    assert folders > RUN | READ


@pytest.mark.parametrize("folder", sorted({path.name for path in EXAMPLES.iterdir() if path.is_dir()} - RUN - READ))
def test_what_is_not_run_says_so_at_the_head_of_its_program(folder: str) -> None:
    programs = [
        path
        for path in (EXAMPLES / folder).rglob("*")
        if path not in RUN_FILES
        and (path.suffix in {".cs", ".rs", ".go", ".mjs", ".py", ".yml"} or path.name == "pom.xml")
    ]
    assert programs
    assert [path for path in programs if not NOT_RUN.search("\n".join(path.read_text().splitlines()[:4]))] == []


def test_the_tests_for_pytest_pass_where_they_were_copied_to(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES / "pytest", tmp_path, dirs_exist_ok=True)
    assert dict(run_pytest(tmp_path).tests) == {
        "test_an_order_arrives": "passed",
        "test_an_unsettled_order_comes_back": "passed",
        "test_the_next_test_begins_with_an_empty_queue": "passed",
    }


def loaded(path: Path) -> list[str]:
    """The names of the queues and topics in a Config.json."""
    topology = load_config({"config": str(path), "durability": "none"}, {}).topology
    return [*(queue.name for queue in topology.queues), *(topic.name for topic in topology.topics)]


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((EXAMPLES / name).read_text()))


def test_the_entities_of_the_examples_are_loaded(tmp_path: Path) -> None:
    assert loaded(EXAMPLES / "compose" / "Config.json") == ["queue.1", "prices"]
    assert loaded(EXAMPLES / "pytest" / "Config.json") == ["orders"]
    (config,) = (each for each in documents("kubernetes/emubus.yaml") if each["kind"] == "ConfigMap")
    path = tmp_path / "Config.json"
    path.write_text(config["data"]["Config.json"])
    assert loaded(path) == ["queue.1"]


def test_the_app_of_the_compose_example_is_the_first_message_in_python() -> None:
    assert (EXAMPLES / "compose" / "app.py").read_text() == (EXAMPLES / "python" / "hello.py").read_text()


def brokers() -> Mapping[str, tuple[Mapping[str, str], Mapping[str, str]]]:
    """The variables of the broker, and of the program that uses it, of each example."""
    compose = documents("compose/compose.yml")[0]["services"]
    container = documents("devcontainer/.devcontainer/compose.yml")[0]["services"]
    job = documents("github-actions/.github/workflows/test.yml")[0]["jobs"]["test"]
    variables = documents("gitlab-ci/.gitlab-ci.yml")[0]["test"]["variables"]
    return {
        "compose": (compose["servicebus"]["environment"], compose["app"]["environment"]),
        "devcontainer": (container["servicebus"]["environment"], container["workspace"]["environment"]),
        "github-actions": (job["services"]["servicebus"]["env"], job["env"]),
        "gitlab-ci": (variables, variables),
    }


@pytest.mark.parametrize("folder", ["compose", "devcontainer", "github-actions", "gitlab-ci"])
def test_a_broker_in_a_container_is_told_what_it_understands(folder: str) -> None:
    broker, app = brokers()[folder]
    assert CONNECTION_STRING.fullmatch(app["SERVICEBUS_CONNECTION_STRING"])
    known = {variable for option in OPTIONS for variable in option.variables} | {"EMUBUS_QUEUES"}
    assert {name for name in broker if name.startswith("EMUBUS_")} <= known
    for queue in broker.get("EMUBUS_QUEUES", "queue.1").split(","):
        assert IN_VARIABLE.match(queue)


def scripts() -> dict[str, list[str]]:
    """The commands of the jobs that need no service, by the job."""
    github = {
        f"github {name}": documents(f"github-actions/.github/workflows/{name}.yml")[0]["jobs"]["test"]["steps"]
        for name in ("kit", "testcontainers")
    }
    gitlab = documents("gitlab-ci/.gitlab-ci.yml")[0]
    return {name: [each["run"] for each in steps if "run" in each] for name, steps in github.items()} | {
        f"gitlab {name}": gitlab[name]["script"] for name in ("kit", "testcontainers")
    }


def test_a_job_with_the_kit_or_testcontainers_uses_options_packages_and_variables_that_are_there(
    pytestconfig: pytest.Config,
) -> None:
    found = scripts()
    assert len(found) == 4
    for job, commands in found.items():
        install, run = commands[-2:]
        for option, value in re.findall(r"--emubus-(\w+)=(\S+)", run):
            assert pytestconfig.getoption(f"emubus_{option}", "missing") != "missing", job
            assert (EXAMPLES / "pytest" / value).is_file()
        assert run.startswith("pytest")
        local = re.findall(r"\./(\S+)", install)
        assert [each for each in local if not (EXAMPLES / each / "pyproject.toml").is_file()] == []
        assert local or re.search(r'"emubus @ \$(EMUBUS_SOURCE|\{\{ vars.EMUBUS_SOURCE \}\})"', install), job


def test_the_stateful_set_uses_the_ports_user_and_folder_of_the_image() -> None:
    (stateful,) = (each for each in documents("kubernetes/emubus.yaml") if each["kind"] == "StatefulSet")
    pod = stateful["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    dockerfile = (ROOT / "docker" / "Dockerfile").read_text()
    user, group = pod["securityContext"]["runAsUser"], pod["securityContext"]["runAsGroup"]
    assert f"USER {user}:{group}\n" in dockerfile
    assert "EXPOSE " + " ".join(str(each["containerPort"]) for each in container["ports"]) in dockerfile
    assert container["ports"][1]["containerPort"] == int(HTTP_PORT.default or 0)
    assert f"VOLUME {container['volumeMounts'][0]['mountPath']}\n" in dockerfile


def test_the_development_container_opens_a_service_that_exists() -> None:
    settings = json.loads((EXAMPLES / "devcontainer" / ".devcontainer" / "devcontainer.json").read_text())
    (compose,) = documents("devcontainer/.devcontainer/compose.yml")
    assert settings["service"] in compose["services"]
    assert [port.split(":")[0] in compose["services"] for port in settings["forwardPorts"]] == [True]
