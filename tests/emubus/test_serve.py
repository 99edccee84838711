"""The program as a process: ready when it says so, not before; stops cleanly on a signal."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from emubus.__main__ import main
from emubus.config import load_config
from emubus.running import servers
from emubus.server import Server, StartError
from emubus.stopping import SIGNALS

from ..log_levels import every_level
from ..programs import PROGRAM_S_MAX

READY_LINE = "Emulator Service is Successfully Up!"
START_CPU_S_MAX = 3.0  # the promise is one second; caches that other processes take cost some
STOP_S_MAX = 60.0


class Process:
    """`emubus serve` with the given options; the log goes to a file, the ready line to stdout."""

    def __init__(self, folder: Path, *options: str, **environment: str) -> None:
        self.log_path = folder / "log"
        command = [sys.executable, "-P", "-m", "emubus", "serve", "--amqp-port", "0", "--http-port", "0", *options]
        with self.log_path.open("w") as log:
            self.process = subprocess.Popen(
                command, cwd=folder, stdout=subprocess.PIPE, stderr=log, text=True, env={**os.environ, **environment}
            )

    def ready(self) -> float:
        """Wait for the ready line; how many seconds of a processor the start took."""
        assert self.process.stdout is not None
        assert self.process.stdout.readline().strip() == READY_LINE, self.log_path.read_text()
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(") ")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def port(self, name: str) -> int:
        found = re.search(rf"\b{name}=(\d+)", self.log_path.read_text())
        assert found is not None
        return int(found[1])

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        code = self.process.wait(STOP_S_MAX)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    process = Process(tmp_path)
    yield process
    if process.process.poll() is None:
        process.process.kill()
        process.process.wait()
    if process.process.stdout is not None:
        process.process.stdout.close()


def test_it_is_ready_soon_and_both_ports_answer(process: Process, slowness: float) -> None:
    assert process.ready() < START_CPU_S_MAX * slowness
    with urllib.request.urlopen(f"http://127.0.0.1:{process.port('http_port')}/health", timeout=60) as answer:
        assert answer.status == 200
        assert json.load(answer) == {"status": "healthy", "message": "Service is healthy."}
    with socket.create_connection(("127.0.0.1", process.port("amqp_port")), timeout=60) as peer:
        peer.sendall(b"AMQP\x03\x01\x00\x00")
        assert peer.recv(8) == b"AMQP\x03\x01\x00\x00"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_stops_cleanly_on_a_signal(process: Process, number: int) -> None:
    process.ready()
    assert process.stop(number) == 0
    assert "Traceback" not in process.log_path.read_text()


def test_it_leaves_its_address_while_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever its ports, a command in the same folder needs no option."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    for name in ("EMUBUS_URL", "EMUBUS_CONNECTION_STRING", "EMUBUS_HTTP_PORT", "EMULATOR_HTTP_PORT"):
        monkeypatch.delenv(name, raising=False)
    process = Process(tmp_path)
    process.ready()
    monkeypatch.chdir(tmp_path)
    (found,) = servers()
    assert (found.http_port, found.data) == (process.port("http_port"), str(tmp_path / "emubus-data"))
    code = main(["ls"])
    found_by_it = capsys.readouterr()
    assert (code, found_by_it.err) == (0, "")
    assert "queue.1" in found_by_it.out
    assert process.stop() == 0
    assert [*(tmp_path / "emubus").iterdir()] == []


def test_it_stops_in_time_with_a_connected_client(process: Process) -> None:
    process.ready()
    with socket.create_connection(("127.0.0.1", process.port("amqp_port")), timeout=60) as peer:
        peer.sendall(b"AMQP\x03\x01\x00\x00")
        peer.recv(8)
        assert process.stop() == 0


def test_a_second_server_on_the_same_folder_is_refused_with_one_line(process: Process, tmp_path: Path) -> None:
    process.ready()
    command = [sys.executable, "-P", "-m", "emubus", "serve", "--amqp-port", "0", "--http-port", "0"]
    second = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PROGRAM_S_MAX, check=False)
    assert second.returncode == 1
    assert len(second.stderr.strip().splitlines()) == 1
    assert "emubus-data" in second.stderr


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [sys.executable, "-P", "-m", "emubus", "serve", "--http-port", "0", "--amqp-port", str(port)]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PROGRAM_S_MAX, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(f"emubus: error: can't listen on 127.0.0.1 port {port}: Address already in use: ")
    assert "--amqp-port 0 takes a free one" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_start_that_failed_leaves_no_signal_blocked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Children inherit what is blocked: a test's helper could not be ended, behind a test that started a server."""
    monkeypatch.chdir(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert main(["serve", "--amqp-port", port, "--http-port", "0"]) == 1
    assert "Address already in use" in capsys.readouterr().err
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) & SIGNALS == set()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"host": "no-such-host.invalid"}, "--host no-such-host.invalid is not known ("),
        ({"host": "192.0.2.1"}, "--host 192.0.2.1 is no address of this machine; 127.0.0.1 is, and 0.0.0.0 means all"),
        ({"conditions": "throtled"}, "--conditions: There is no condition 'throtled'; did you mean throttled?"),
    ],
)
async def test_what_a_server_can_not_start_with_is_named_with_the_remedy(arguments: dict[str, str], error: str) -> None:
    given = {"durability": "none", "amqp_port": "0", "http_port": "0", **arguments}
    with pytest.raises(StartError) as refused:
        await Server(load_config(given, {})).start()
    assert error in str(refused.value)


@pytest.mark.parametrize(
    ("arguments", "environment", "warnings"),
    [
        ({"tls_port": "5671"}, {}, ("--tls-port 5671: without --tls dev or --tls-cert these ports accept plain ",)),
        ({"tls_port": "5671", "tls": "dev"}, {}, ()),
        ({"sas_key": "secret"}, {}, ("--sas-key has no effect: every key is accepted; --auth sas verifies it",)),
        ({}, {"EMUBUS_SAS_KEY": "secret"}, ("EMUBUS_SAS_KEY has no effect",)),
        ({"sas_key": "secret", "auth": "sas"}, {}, ()),
    ],
)
def test_a_setting_without_effect_is_a_warning(
    arguments: dict[str, str], environment: dict[str, str], warnings: tuple[str, ...]
) -> None:
    found = load_config(arguments, environment).warnings
    assert len(found) == len(warnings)
    assert all(text in each for text, each in zip(warnings, found, strict=True))


def test_check_of_a_stopped_folder_says_what_it_holds(process: Process, tmp_path: Path) -> None:
    process.ready()
    process.stop()
    command = [sys.executable, "-P", "-m", "emubus", "check", str(tmp_path / "emubus-data")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PROGRAM_S_MAX, check=False)
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == "sound"
    assert "queue.1: empty" in done.stdout


INLINE = '{"UserConfig": {"Namespaces": [{"Name": "ns", "Queues": [%s]}]}}'


@pytest.mark.parametrize(
    ("arguments", "environment", "name"),
    [
        ({"queues": "a,b?sessions"}, {}, "--queues"),
        ({}, {"EMUBUS_QUEUES": "a,b?sessions"}, "EMUBUS_QUEUES"),
        (
            {},
            {"EMUBUS_CONFIG_JSON": INLINE % '{"Name": "a"}, {"Name": "b", "Properties": {"RequiresSession": true}}'},
            "EMUBUS_CONFIG_JSON",
        ),
    ],
)
async def test_entities_of_a_text_that_the_folder_has_otherwise_are_named_at_the_start(
    arguments: dict[str, str], environment: dict[str, str], name: str, tmp_path: Path
) -> None:
    """A file is applied at each start; a text once, so that what was deleted stays deleted. Silence would mislead."""
    common = {"data": str(tmp_path), "durability": "process", "amqp_port": "0", "http_port": "0"}

    async def warnings(arguments: dict[str, str], environment: dict[str, str]) -> list[dict[str, object]]:
        server = Server(load_config({**common, **arguments}, environment))
        with every_level(), capture_logs() as logs:
            await server.start()
            await server.stop()
        return [dict(each) for each in logs if each["log_level"] == "warning"]

    assert await warnings({"queues": "b,c"}, {}) == []
    assert await warnings({"queues": "b,c"}, {}) == []
    assert await warnings({}, {}) == []
    (warning,) = await warnings(arguments, environment)
    assert str(warning["event"]) == f"{name} is not used: the data folder {tmp_path} has its entities already"
    assert warning["ignored"] == "not created: a; not changed: b"
    assert "--fresh (EMUBUS_FRESH=yes)" in str(warning["remedy"])
    assert await warnings({**arguments, "fresh": "yes"}, environment) == []
