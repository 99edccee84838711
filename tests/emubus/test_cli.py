"""The commands: what they print, and with which code they exit."""

from __future__ import annotations

import io
import json
import logging
import re
import sys
import threading
import types
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import structlog

from emubus import __version__, data_folder
from emubus.__main__ import main
from emubus.amqp.wire.loops import IS_NATIVE
from emubus.broker.api import partition_for_key
from emubus.broker.model.descriptions import QueueDescription, Topology
from emubus.commands import check
from emubus.config import Config, LogFormat, LogLevel
from emubus.logging import READY_LINE, announce_ready, configure_logging

ROOT = Path(__file__).parents[2]
SAMPLE = str(ROOT / "docker" / "Config.json")


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("EMUBUS_CONFIG", "EMUBUS_HTTP_PORT", "EMULATOR_HTTP_PORT", "EMUBUS_HOST", "EMUBUS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


@pytest.fixture
def server_module(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """Stands in for the composition root: the command line is under test here, not the server."""
    module = types.ModuleType("emubus.server")
    monkeypatch.setitem(sys.modules, "emubus.server", module)
    return module


# ---------------------------------------------------------------- serve, check


def test_serve_runs_the_server_with_the_configuration_and_returns_its_exit_code(
    server_module: types.ModuleType,
) -> None:
    seen: list[Config] = []

    def run(config: Config) -> int:
        seen.append(config)
        return 7

    server_module.run = run  # type: ignore[attr-defined]
    assert main(["serve", "--amqp-port", "0", "--http-port", "0", "--durability", "none"]) == 7
    assert [(config.amqp_port, config.data_dir) for config in seen] == [(0, None)]


def test_a_configuration_that_cannot_be_used_is_one_line_on_stderr_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "Config.json"
    path.write_text('{\n"UserConfig": {"Namespace": []}}')
    assert main(["serve", "--config", str(path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == (
        f"emubus: error: {path}:2: $.UserConfig.Namespace is not a known property; did you mean Namespaces?\n"
    )


def test_check_looks_at_the_folder_and_returns_what_was_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "check_data", lambda directory, *, as_json: 0 if directory == tmp_path else 1)
    assert main(["check", str(tmp_path)]) == 0
    assert main(["check", str(tmp_path / "none")]) == 2
    assert capsys.readouterr().err == f"emubus: error: there is no folder {tmp_path / 'none'}\n"


def test_version_and_missing_commands_follow_the_conventions(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    for arguments, code in ((["--version", "--help"], 0), ([], 2), (["nonsense"], 2), (["serve", "--help"], 0)):
        with pytest.raises(SystemExit) as raised:
            main(arguments)
        assert raised.value.code == code
    functions = "functions in C" if IS_NATIVE else "pure Python"
    assert f"emubus {__version__} ({functions})\n" in capsys.readouterr().out


# ---------------------------------------------------------------- route


def test_the_route_of_the_documentation_works(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = re.search(r"`emubus (route [^`]+)`", (ROOT / "docs" / "PARTITIONS.md").read_text())
    assert found is not None
    monkeypatch.chdir(ROOT)
    assert main(found[1].split()) == 0
    assert "partition" in capsys.readouterr().out


@pytest.mark.parametrize("option", ["--key", "--session-id", "--partition-key"])
def test_p32_route_tells_the_partition_of_a_key(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["route", "QUEUE.partitioned", option, "order-7", "--config", SAMPLE]) == 0
    partition = partition_for_key("order-7", 16)
    assert capsys.readouterr().out == f"queue.partitioned: partition {partition} of 16 (key 'order-7')\n"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["queue.partitioned"], "queue.partitioned: any of 16 partitions, round-robin (no key)\n"),
        (["queue.partitioned", "--message-id", "m"], "queue.partitioned: any of 16 partitions, round-robin (no key)\n"),
        (["queue.1", "--key", "k"], "queue.1: partition 0 of 1 (not partitioned)\n"),
        (["topic.1", "--key", "k"], "topic.1: partition 0 of 1 (not partitioned)\n"),
    ],
)
def test_p32_route_tells_where_no_key_decides(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["route", *arguments, "--config", SAMPLE]) == 0
    assert capsys.readouterr().out == expected


def test_p08_route_takes_the_message_id_for_a_key_where_duplicates_are_detected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = QueueDescription("q", enable_partitioning=True, requires_duplicate_detection=True)
    monkeypatch.setattr(data_folder, "read_namespace", lambda directory: (Topology(queues=(queue,)), 16))
    assert main(["route", "q", "--message-id", "m", "--data", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"q: partition {partition_for_key('m', 16)} of 16 (key 'm')\n"


def test_p09_route_refuses_a_partition_key_that_differs_from_the_session_id(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["route", "queue.partitioned", "--session-id", "a", "--partition-key", "b", "--config", SAMPLE]
    assert main(arguments) == 2
    assert "SessionId and PartitionKey differ" in capsys.readouterr().err


def test_p32_route_knows_no_entity_that_the_configuration_has_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["route", "none", "--key", "k", "--config", SAMPLE]) == 1
    assert capsys.readouterr().err == f"emubus: error: {SAMPLE} has no queue or topic 'none'\n"


# ---------------------------------------------------------------- health


class _Health(BaseHTTPRequestHandler):
    status = 200

    def do_GET(self) -> None:
        body = b'{"path":"%s"}' % self.path.encode()
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@contextmanager
def answering(status: int) -> Iterator[int]:
    with HTTPServer(("127.0.0.1", 0), type("_Status", (_Health,), {"status": status})) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        try:
            yield server.server_port
        finally:
            thread.join(10)


@pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1)])
def test_health_succeeds_if_the_server_says_so(status: int, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    with answering(status) as port:
        assert main(["health", "--host", "0.0.0.0", "--http-port", str(port)]) == code
    captured = capsys.readouterr()
    assert '{"path":"/health"}' in captured.out + captured.err


def test_health_finds_the_server_by_the_environment_and_past_any_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with answering(200) as port:
        monkeypatch.setenv("EMULATOR_HTTP_PORT", str(port))
        assert main(["health"]) == 0


def test_health_fails_if_nobody_answers(capsys: pytest.CaptureFixture[str]) -> None:
    with HTTPServer(("127.0.0.1", 0), _Health) as server:
        port = server.server_port
    assert main(["health", "--http-port", str(port), "--timeout", "2"]) == 1
    assert f"no answer from http://127.0.0.1:{port}/health" in capsys.readouterr().err


# ---------------------------------------------------------------- log lines


def test_json_log_lines_of_every_logger_are_one_object_each() -> None:
    out = io.StringIO()
    configure_logging(LogFormat.JSON, LogLevel.INFO, out)
    structlog.get_logger("emubus").info("started", port=1)
    structlog.get_logger("emubus").debug("not shown")
    logging.getLogger("library").warning("from %s", "outside")
    first, second = (json.loads(line) for line in out.getvalue().splitlines())
    assert {**first, "timestamp": ""} == {
        "event": "started",
        "port": 1,
        "level": "info",
        "logger": "emubus",
        "timestamp": "",
    }
    assert {**second, "timestamp": ""} == {
        "event": "from outside",
        "level": "warning",
        "logger": "library",
        "timestamp": "",
    }


def test_a_failure_is_logged_with_its_trace_in_either_format() -> None:
    for log_format in LogFormat:
        out = io.StringIO()
        configure_logging(log_format, LogLevel.ERROR, out)
        try:
            raise ValueError("reason")
        except ValueError:
            structlog.get_logger("emubus").exception("broken")
        assert "reason" in out.getvalue()
        assert "\x1b" not in out.getvalue()


@pytest.mark.parametrize("log_format", LogFormat)
def test_texts_of_clients_are_made_safe_in_log_lines(log_format: LogFormat) -> None:
    out = io.StringIO()
    configure_logging(log_format, LogLevel.INFO, out)
    hostile = "\x1b]0;t\x07\x9b31m\u202e\ud800\nforged"
    structlog.get_logger("emubus").info(f"event {hostile}", value=hostile, listed=[hostile])
    logging.getLogger("library").warning("from %s", hostile)
    assert len(out.getvalue().splitlines()) == 2
    try:
        raise ValueError(hostile)
    except ValueError:
        structlog.get_logger("emubus").exception("broken")
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", out.getvalue())


def test_the_ready_line_is_verbatim_and_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    announce_ready()
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("Emulator Service is Successfully Up!\n", "")
    assert READY_LINE in captured.out
