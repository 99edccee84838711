"""The modules for Testcontainers: what they ask of a container engine, and what their strings lead to."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from ..building import ROOT
from ..kit.engine import CONFIG_PLACE, Engine, running_engine
from ..programs import PROGRAM_S_MAX
from ..web.prepare import NODE_TOOLS, prepare_node_tools

PYTHON = ROOT / "examples" / "testcontainers-python"
NODE = ROOT / "examples" / "testcontainers-node"
CONFIG = {"UserConfig": {"Namespaces": [{"Name": "sbemulatorns", "Queues": [{"Name": "orders"}]}]}}
PYTHON_PROGRAM = """
import json, sys
from emubus_testcontainers import EmubusContainer
options = json.loads(sys.argv[1])
container = EmubusContainer("emubus:1.2", config=options.get("config", options.get("configFile")),
    **{own: options[given] for own, given in (("profile", "profile"), ("sas_key", "sasKey")) if given in options})
with container:
    print(json.dumps({"connectionString": container.get_connection_string(), "url": container.get_url()}), flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    folder = tmp_path / "engine"
    folder.mkdir()
    with running_engine(folder) as (engine, host):
        monkeypatch.setenv("DOCKER_HOST", host)
        monkeypatch.setenv("TESTCONTAINERS_RYUK_DISABLED", "true")  # it removes what a killed process left behind
        monkeypatch.setenv("TESTCONTAINERS_CONNECTION_MODE", "docker_host")
        monkeypatch.setenv("PYTHONPATH", str(PYTHON / "src"))
        yield engine


@pytest.fixture(params=["python", pytest.param("node", marks=pytest.mark.sdk)])
def command(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    """The command that starts a container with the options of its last argument, and stops it after a line."""
    if request.param == "python":
        return [sys.executable, "-c", PYTHON_PROGRAM]
    return ["node", str(NODE_TOOLS / "container.mjs"), str(node_module(tmp_path))]


def node_module(folder: Path) -> Path:
    """A copy of the module for Node.js, in a folder that has what it imports."""
    prepare_node_tools()
    (folder / "node_modules").symlink_to(NODE_TOOLS / "node_modules")
    return Path(shutil.copy(NODE / "index.mjs", folder))


def first_line(output: IO[str] | None) -> dict[str, str]:
    assert output is not None
    found: dict[str, str] = json.loads(output.readline())
    return found


@contextmanager
def started(command: list[str], options: Mapping[str, object]) -> Iterator[dict[str, str]]:
    """What a container that is running says of itself."""
    process = subprocess.Popen(
        [*command, json.dumps(options)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        said = first_line(process.stdout)
        yield said
        _, errors = process.communicate("\n", timeout=PROGRAM_S_MAX)
        assert process.returncode == 0, errors
    finally:
        process.kill()
        process.communicate()


def variables(engine: Engine) -> dict[str, str]:
    return dict(each.split("=", 1) for each in engine.created["Env"])


def sent(connection_string: str, queue: str) -> list[str]:
    """What arrives in a queue of one message that is sent to it."""
    with ServiceBusClient.from_connection_string(connection_string) as client:
        with client.get_queue_sender(queue) as sender:
            sender.send_messages(ServiceBusMessage("order 7"))
        with client.get_queue_receiver(queue) as receiver:
            return [str(each) for each in receiver.receive_messages(max_message_count=1, max_wait_time=20)]


def test_a_container_has_the_entities_of_a_file_is_in_memory_and_is_removed(
    engine: Engine, command: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "Config.json"
    file.write_text(json.dumps(CONFIG))
    with started(command, {"configFile": str(file)}) as said:
        assert engine.created["Image"] == "emubus:1.2"
        assert variables(engine).items() <= {"EMUBUS_DURABILITY": "none", "EMUBUS_PROFILE": "standard"}.items()
        assert engine.created["HostConfig"].get("Binds", [f"{file}:{CONFIG_PLACE}:ro"]) == [f"{file}:{CONFIG_PLACE}:ro"]
        assert engine.served is not None
        assert said["url"] == f"http://127.0.0.1:{engine.served.http_port}"
        assert said["connectionString"] == (
            f"Endpoint=sb://127.0.0.1:{engine.served.amqp_port};SharedAccessKeyName=RootManageSharedAccessKey;"
            "SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;"
        )
        assert sent(said["connectionString"], "orders") == ["order 7"]
    assert engine.events[-1] == "remove"


def test_a_container_has_the_entities_profile_and_key_that_it_is_given(engine: Engine, command: list[str]) -> None:
    with started(command, {"config": CONFIG, "profile": "premium", "sasKey": "s3cret"}) as said:
        given = variables(engine)
        assert given["EMUBUS_PROFILE"] == "premium"
        assert (given["EMUBUS_AUTH"], given["EMUBUS_SAS_KEY"]) == ("sas", "s3cret")
        assert "SharedAccessKey=s3cret;" in said["connectionString"]
        assert sent(said["connectionString"], "orders") == ["order 7"]


def test_a_file_that_is_missing_is_reported_before_anything_starts(
    engine: Engine, command: list[str], tmp_path: Path
) -> None:
    missing = json.dumps({"configFile": str(tmp_path / "missing.json")})
    done = subprocess.run(
        [*command, missing], input="\n", capture_output=True, text=True, check=False, timeout=PROGRAM_S_MAX
    )
    assert done.returncode == 1
    said = done.stdout + done.stderr
    assert "no such file" in said
    assert "missing.json" in said
    assert engine.events == []


@pytest.mark.sdk
def test_the_types_of_the_node_module_are_those_of_its_code(tmp_path: Path) -> None:
    module = node_module(tmp_path)
    out = tmp_path / "out"
    options = "--allowJs --checkJs --strict --declaration --emitDeclarationOnly --skipLibCheck --target es2022"
    modules = "--module nodenext --moduleResolution nodenext"
    compiler = str(NODE_TOOLS / "node_modules" / "typescript" / "bin" / "tsc")
    command = ["node", compiler, *options.split(), *modules.split(), "--outDir", str(out), str(module)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=PROGRAM_S_MAX)
    assert done.stdout + done.stderr == ""
    head, _, types = (NODE / "index.d.mts").read_text().partition("\n")
    assert head.startswith("// Made from index.mjs")
    assert types == (out / "index.d.mts").read_text()


def test_the_packages_ship_their_types_and_ask_for_what_they_import() -> None:
    package: dict[str, Any] = json.loads((NODE / "package.json").read_text())
    exported = package["exports"]["."]
    assert [(NODE / path).is_file() for path in (exported["types"], exported["default"])] == [True, True]
    assert set(package["peerDependencies"]) == {"testcontainers"}
    assert (PYTHON / "src" / "emubus_testcontainers" / "py.typed").is_file()
