"""The pytest plugin, as a project sees it that has emubus installed: pytest runs its tests in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from emubus.kit.remote import RemoteEmubus
from emubus.testing import OutageKind

from ..programs import PROGRAM_S_MAX
from .running import Served, run_pytest, serving

QUEUE = "orders"
CONFIG = {
    "UserConfig": {
        "Namespaces": [
            {
                "Name": "sbemulatorns",
                "Queues": [{"Name": QUEUE, "Properties": {"EnablePartitioning": True, "LockDuration": "PT30S"}}],
                "Topics": [{"Name": "prices", "Subscriptions": [{"Name": "all"}]}],
            }
        ]
    }
}
ISOLATION = """
import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from emubus.testing import FaultKind, FaultOperation, OutageKind

@pytest.fixture(scope="module")
def client(emubus_server):
    often = {"retry_backoff_factor": 0.01, "retry_backoff_max": 0.05}
    with ServiceBusClient.from_connection_string(emubus_server.connection_string, **often) as client:
        yield client

@pytest.fixture(scope="module")
def sender(client):
    with client.get_queue_sender("orders") as sender:
        yield sender

@pytest.mark.parametrize("number", [1, 2])
def test_everything_is_undone(emubus, client, sender, number):
    assert emubus.message_counts("orders")["active"] == 0
    assert emubus.peek("prices/Subscriptions/all") == []
    with pytest.raises(Exception, match="not be found|not found"):
        emubus.peek("later")
    machine = emubus.now_ms()
    emubus.create_queue("later")
    sender.send_messages(ServiceBusMessage(str(number), message_id="m"))
    with client.get_topic_sender("prices") as topic:
        topic.send_messages(ServiceBusMessage("x"))
    assert [(each.text, each.message_id) for each in emubus.peek("orders")] == [(str(number), "m")]
    assert len(emubus.peek("prices/Subscriptions/all")) == 1
    emubus.advance(100 * 24 * 3_600_000)
    emubus.freeze()
    emubus.begin_outage(range(16), OutageKind.DOWN)
    emubus.add_fault(FaultKind.SERVER_BUSY)
    emubus_times.append(machine)

def test_time_is_the_machines_again(emubus):
    emubus_times.append(emubus.now_ms())
    assert emubus_times == sorted(emubus_times)
    assert emubus_times[-1] - emubus_times[0] < 60_000

def test_a_fixture_that_lives_longer_shares_the_server(emubus_server, sender):
    sender.send_messages(ServiceBusMessage("kept"))
    emubus_server.freeze()

def test_who_asks_for_the_server_itself_finds_it_as_it_was_left(emubus_server):
    assert [each.text for each in emubus_server.peek("orders")] == ["kept"]

def test_who_asks_for_one_of_its_own_does_not(emubus, emubus_clock):
    assert emubus.peek("orders") == []
    before = emubus_clock.now
    emubus_clock.advance(1_500)
    assert (emubus_clock.now - before).total_seconds() == 1.5
    assert emubus_clock.now_ms == emubus.now_ms()

emubus_times = []
"""
ISOLATED = (
    "test_everything_is_undone[1]",
    "test_everything_is_undone[2]",
    "test_time_is_the_machines_again",
    "test_a_fixture_that_lives_longer_shares_the_server",
    "test_who_asks_for_the_server_itself_finds_it_as_it_was_left",
    "test_who_asks_for_one_of_its_own_does_not",
)
ONE_TEST = "def test_it(emubus):\n    assert emubus.peek('queue.1') == []\n"


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    path = tmp_path / "Config.json"
    path.write_text(json.dumps(CONFIG))
    return path


@pytest.fixture
def served(tmp_path: Path, config_file: Path) -> Iterator[Served]:
    folder = tmp_path / "server"
    folder.mkdir()
    with serving(folder, "--config", str(config_file)) as served:
        yield served


def test_each_test_begins_as_the_configuration_says_whatever_the_last_one_did(
    tmp_path: Path, config_file: Path
) -> None:
    (tmp_path / "test_isolation.py").write_text(ISOLATION)
    finished = run_pytest(tmp_path, f"--emubus-config={config_file.name}")
    assert dict(finished.tests) == dict.fromkeys(ISOLATED, "passed"), finished.output


def test_the_same_tests_pass_against_an_emubus_that_runs_elsewhere(tmp_path: Path, served: Served) -> None:
    remote = RemoteEmubus(served.url)
    remote.create_queue("later")  # of somebody who tried it before
    remote.begin_outage([0], OutageKind.FAILING)
    (tmp_path / "test_isolation.py").write_text(ISOLATION)
    finished = run_pytest(tmp_path, f"--emubus-url={served.url}")
    assert dict(finished.tests) == dict.fromkeys(ISOLATED, "passed"), finished.output
    assert remote.message_counts(QUEUE)["active"] == 0


def test_each_worker_of_xdist_has_a_server_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "test_alone.py").write_text(
        "import pytest\n"
        "@pytest.mark.parametrize('number', range(4))\n"
        "def test_alone(emubus, number, record_property):\n"
        "    emubus.create_queue('mine')\n"
        "    record_property('port', emubus.http_port)\n"
    )
    finished = run_pytest(tmp_path, "-n", "2", "--dist=load", plugins=("emubus", "xdist"))
    assert dict(finished.tests) == {f"test_alone[{number}]": "passed" for number in range(4)}, finished.output
    ports = {each.partition('"')[0] for each in (tmp_path / "report.xml").read_text().split('name="port" value="')[1:]}
    assert len(ports) == 2


def test_one_emubus_for_several_workers_is_refused(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(ONE_TEST)
    finished = run_pytest(tmp_path, "-n", "2", "--emubus-url=http://localhost:1", plugins=("emubus", "xdist"))
    assert set(finished.tests) == {"test_it"}
    assert "2 test processes would reset it under each other" in finished.tests["test_it"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--emubus-config=missing.json",), "missing.json"),
        (("--emubus-profile=nobody",), "--profile is 'nobody'; allowed is standard, premium, ms-emulator, relaxed"),
        (("--emubus-url=http://localhost:1", "--emubus-profile=relaxed"), "emubus_profile is relaxed, but the emubus"),
        (("--emubus-url=http://localhost:1", "--emubus-config=c.json"), "c.json, but the emubus at emubus_url has its"),
    ],
)
def test_a_setting_that_cannot_be_used_is_reported(tmp_path: Path, options: tuple[str, ...], said: str) -> None:
    (tmp_path / "test_it.py").write_text(ONE_TEST)
    finished = run_pytest(tmp_path, *options)
    assert finished.code == 1
    assert said in finished.tests["test_it"]


def test_the_command_line_comes_before_the_configuration_file(tmp_path: Path, config_file: Path) -> None:
    folder = tmp_path / "below"
    folder.mkdir()
    (folder / "pytest.ini").write_text("[pytest]\nemubus_config = ../Config.json\nemubus_profile = nobody\n")
    (folder / "test_it.py").write_text(
        "def test_it(emubus):\n"
        f"    assert emubus.message_counts('{QUEUE}')['active'] == 0\n"
        "    assert emubus.server.config.limits.profile == 'relaxed'\n"
    )
    finished = run_pytest(folder, "--emubus-profile=relaxed")
    assert dict(finished.tests) == {"test_it": "passed"}, finished.output


def test_nothing_is_imported_and_nothing_started_before_a_test_asks() -> None:
    (plugin,) = (each for each in entry_points(group="pytest11") if each.value.startswith("emubus"))
    assert (plugin.name, plugin.value) == ("emubus", "emubus.kit.pytest_plugin")
    code = (
        "import sys, pytest\n"
        "before = set(sys.modules)\n"
        "import emubus.kit.pytest_plugin\n"
        "print(sorted(name for name in set(sys.modules) - before if not name.startswith('__editable__')))"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False, timeout=PROGRAM_S_MAX
    )
    assert (done.stdout, done.stderr) == ("['emubus', 'emubus.kit', 'emubus.kit.pytest_plugin']\n", "")


def test_the_fixtures_are_there_without_being_asked_for(
    emubus: object, servicebus_connection_string: str, pytestconfig: pytest.Config
) -> None:
    """In this repository itself, whose settings are strict."""
    plugin = pytestconfig.pluginmanager.get_plugin("emubus")
    assert getattr(plugin, "__name__", None) == "emubus.kit.pytest_plugin"
    assert servicebus_connection_string.startswith("Endpoint=sb://localhost:")


def test_one_client_is_for_all_tests_and_its_links_open_and_close_at_once(tmp_path: Path) -> None:
    (tmp_path / "test_client.py").write_text(
        "import threading\n"
        "import pytest\n"
        "from azure.servicebus import ServiceBusMessage\n"
        "seen = set()\n"
        "@pytest.mark.parametrize('number', [1, 2])\n"
        "def test_it(emubus, servicebus_client, number):\n"
        "    seen.add(id(servicebus_client))\n"
        "    before = threading.active_count()\n"
        "    with servicebus_client.get_queue_sender('queue.1') as sender:\n"
        "        sender.send_messages(ServiceBusMessage(str(number)))\n"
        "        with servicebus_client.get_queue_receiver('queue.1') as receiver:\n"
        "            assert threading.active_count() == before  # closing waits for the threads of the SDK\n"
        "            (message,) = receiver.receive_messages()\n"
        "            receiver.complete_message(message)\n"
        "    assert str(message) == str(number)\n"
        "    emubus.wait_for('queue.1', active=0)\n"
        "    assert len(seen) == 1\n"
    )
    finished = run_pytest(tmp_path)
    assert dict(finished.tests) == {"test_it[1]": "passed", "test_it[2]": "passed"}, finished.output


def test_the_namespace_of_several_is_chosen(tmp_path: Path) -> None:
    names = [{"Name": name, "Queues": [{"Name": name}], "Topics": []} for name in ("first", "second")]
    (tmp_path / "Config.json").write_text(json.dumps({"UserConfig": {"Namespaces": names}}))
    (tmp_path / "test_it.py").write_text("def test_it(emubus):\n    assert list(emubus.entities()) == ['second']\n")
    finished = run_pytest(tmp_path, "--emubus-config=Config.json", "--emubus-namespace=second")
    assert dict(finished.tests) == {"test_it": "passed"}, finished.output
    folder = tmp_path / "server"
    folder.mkdir()
    with serving(folder, "--config", str(tmp_path / "Config.json")) as served:
        finished = run_pytest(tmp_path, f"--emubus-url={served.url}", "--emubus-namespace=second")
    assert dict(finished.tests) == {"test_it": "passed"}, finished.output
