"""The container helper: what it asks of the Docker Engine, and what its strings lead to once the container runs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from testcontainers.core.config import ConnectionMode, testcontainers_config

from emubus.container import EmubusContainer
from emubus.testing import BrokerError, QueueDescription

from ..programs import PROGRAM_S_MAX
from .engine import CONFIG_PLACE, Engine, running_engine
from .running import run_pytest
from .test_docs import CONFIG, examples


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    folder = tmp_path / "engine"
    folder.mkdir()
    monkeypatch.setattr(testcontainers_config, "_ryuk_disabled", True)  # it removes what a killed process left behind
    monkeypatch.setattr(testcontainers_config, "connection_mode_override", ConnectionMode.docker_host)
    with running_engine(folder) as (engine, host):
        monkeypatch.setenv("DOCKER_HOST", host)
        monkeypatch.setenv("TESTCONTAINERS_RYUK_DISABLED", "true")  # the same for other processes
        monkeypatch.setenv("TESTCONTAINERS_CONNECTION_MODE", "docker_host")
        yield engine


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    path = tmp_path / "Config.json"
    path.write_text(json.dumps(CONFIG))
    return path


def test_the_engine_is_asked_for_ports_variables_and_the_config(engine: Engine, config_file: Path) -> None:
    container = EmubusContainer("emubus:1.2", config=config_file, profile="premium", auth="sas", sas_key="s3cret")
    with container.with_env("EMUBUS_LOG_LEVEL", "warning").with_env("EMUBUS_LOG_LEVEL", "info"):
        created = engine.created
        assert created["Image"] == "emubus:1.2"
        assert sorted(created["Env"]) == [
            "EMUBUS_AUTH=sas",
            "EMUBUS_DURABILITY=none",
            "EMUBUS_LOG_LEVEL=info",
            "EMUBUS_PROFILE=premium",
            "EMUBUS_SAS_KEY=s3cret",
        ]
        ports = created["HostConfig"]["PortBindings"]
        assert {port: [each["HostPort"] for each in bound] for port, bound in ports.items()} == {
            "5672/tcp": [""],
            "5300/tcp": [""],
        }
        assert created["HostConfig"]["Binds"] == [f"{config_file}:{CONFIG_PLACE}:ro"]
        assert engine.events == ["create", "start"]
    assert engine.events == ["create", "start", "remove"]


def test_started_it_answers_at_once_and_each_port_answers_everything(engine: Engine, config_file: Path) -> None:
    with EmubusContainer(config=config_file) as container:
        assert engine.served is not None
        amqp, http = engine.served.amqp_port, engine.served.http_port
        key = "SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;"
        assert container.get_connection_string() == f"Endpoint=sb://127.0.0.1:{amqp};{key}"
        assert container.get_admin_connection_string() == f"Endpoint=sb://127.0.0.1:{http};{key}"
        assert container.get_control_url() == f"http://127.0.0.1:{http}"
        emubus = container.get_emubus()
        assert emubus.is_healthy
        for string in (container.get_connection_string(), container.get_admin_connection_string()):
            with ServiceBusClient.from_connection_string(string) as client, client.get_queue_sender("orders") as sender:
                sender.send_messages(ServiceBusMessage("x", time_to_live=timedelta(minutes=1)))
        assert [each.text for each in emubus.peek("orders")] == ["x", "x"]
        emubus.advance(timedelta(minutes=1))
        assert emubus.peek("orders") == []
        emubus.create_queue(QueueDescription("later"))
        emubus.reset()
        with pytest.raises(BrokerError):
            emubus.peek("later")


def test_the_key_of_a_container_that_verifies_keys_is_in_its_strings(engine: Engine) -> None:
    with EmubusContainer(auth="sas", sas_key="s3cret") as container:
        assert "SharedAccessKey=s3cret;" in container.get_connection_string()
        container.get_emubus().reset()
        string = container.get_connection_string()
        with ServiceBusClient.from_connection_string(string) as client, client.get_queue_sender("queue.1") as sender:
            sender.send_messages(ServiceBusMessage("x"))
        assert len(container.get_emubus().peek("queue.1")) == 1


def test_a_config_that_is_not_there_is_reported_before_anything_starts(engine: Engine, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"the config of the container is .*missing\.json: there is no such"):
        EmubusContainer(config=tmp_path / "missing.json")
    with pytest.raises(ValueError, match="nobody"):
        EmubusContainer(auth="nobody")
    assert engine.events == []


def test_the_example_of_the_documentation_passes(engine: Engine, tmp_path: Path, config_file: Path) -> None:
    (tmp_path / "test_container.py").write_text(examples()["test_container.py"])
    finished = run_pytest(tmp_path, plugins=())
    assert dict(finished.tests) == {"test_an_order_arrives": "passed"}, finished.output
    assert engine.events == ["create", "start", "remove"]


def test_without_the_library_it_is_reported_what_to_install() -> None:
    code = "import sys; sys.modules['testcontainers.core.container'] = None; import emubus.container"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False, timeout=PROGRAM_S_MAX
    )
    assert done.returncode == 1
    assert "ImportError: emubus.container needs testcontainers: pip install 'emubus[testcontainers]'" in done.stderr
