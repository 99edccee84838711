"""What a command imports: libraries that are slow to import wait until they are used. `-X importtime` lists them."""

from __future__ import annotations

import ast
import importlib.util
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

WAIT_S = 60.0
FOR_SERVERS = ("asyncio", "dataclasses", "emubus.broker", "emubus.config", "emubus.server", "lmdb", "structlog")
FOR_HTTP = ("aiohttp", "defusedxml", "emubus.web.server", "jinja2", "prometheus_client")
FOR_CLIENTS = ("argparse", "click")
FOR_SQL = ("emubus.broker.rules.sql", "lark")
FOR_CERTIFICATES = ("cryptography", "trustme")
UNUSED = (
    "emubus.broker.admin.verify",
    "emubus.conditions.behaviour",
    "opentelemetry",
    "rich.console",
)  # structlog would import rich for a format that is not ours
FOR_FILES = ("difflib", "emubus.config_file")
CONFIG = """{"UserConfig": {"Namespaces": [{"Name": "ns", "Topics": [{"Name": "t", "Subscriptions": [{"Name": "s",
"Rules": [{"Name": "r", "Properties": {"FilterType": "Sql", "SqlFilter": {"SqlExpression": "%s"}}}]}]}]}]}}"""


def python(*arguments: str, folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-P", "-X", "importtime", "-m", "emubus", *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def imported(log: str) -> set[str]:
    """The modules of an import log, with the packages that they are in."""
    names = re.findall(r"^import time: +\d+ \| +\d+ \| +(\S+)$", log, re.MULTILINE)
    return {".".join(parts[: end + 1]) for parts in (name.split(".") for name in names) for end in range(len(parts))}


class Serving:
    """`emubus serve` until `modules`; its log of imports goes to a file."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.log_path = folder / "log"
        command = [sys.executable, "-P", "-X", "importtime", "-m", "emubus", "serve"]
        with self.log_path.open("w") as log:
            self.process = subprocess.Popen(
                [*command, "--amqp-port", "0", "--http-port", "0", *options],
                cwd=folder,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self.process.stdout is not None
        assert "Successfully Up" in self.process.stdout.readline(), self.log_path.read_text()

    def get(self, path: str) -> None:
        port = re.search(r"\bhttp_port=(\d+)", self.log_path.read_text())
        assert port is not None
        with urllib.request.urlopen(f"http://127.0.0.1:{port[1]}{path}", timeout=WAIT_S) as answer:
            assert answer.status == 200

    def modules(self) -> set[str]:
        """What it has imported, once it has stopped."""
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=WAIT_S)
        return imported(self.log_path.read_text())


@pytest.mark.parametrize(
    ("arguments", "needed", "not_needed"),
    [
        (("--version",), (), (*FOR_SERVERS, *FOR_HTTP, *FOR_CLIENTS, "emubus.commands.health", "socket")),
        (
            ("health", "--http-port", "1"),
            ("socket",),
            (*FOR_SERVERS, *FOR_HTTP, *FOR_CLIENTS, "http", "ssl", "urllib.request"),
        ),
    ],
)
def test_short_commands_import_little(
    arguments: tuple[str, ...], needed: tuple[str, ...], not_needed: tuple[str, ...], tmp_path: Path
) -> None:
    log = python(*arguments, folder=tmp_path).communicate(timeout=WAIT_S)[1]
    found = imported(log)
    assert {"emubus.commands", *needed} <= found
    assert found & {*not_needed} == set()


@pytest.mark.parametrize("options", [(), ("--durability", "none")])
def test_a_start_and_its_health_check_import_nothing_for_http_sql_certificates_and_files(
    options: tuple[str, ...], tmp_path: Path
) -> None:
    server = Serving(tmp_path, *options)
    server.get("/health")
    found = server.modules()
    assert {*FOR_SERVERS} <= found
    assert found & {*FOR_HTTP, *FOR_CLIENTS, *FOR_SQL, *FOR_CERTIFICATES, *FOR_FILES, *UNUSED} == set()


def test_what_a_start_imports_compiles_methods_of_classes_when_they_are_called(tmp_path: Path) -> None:
    server = Serving(tmp_path, "--durability", "none")
    eager = {name for name in server.modules() if name.startswith("emubus.") and _has_eager_dataclasses(name)}
    rooms_below_broker = ("emubus.codec.", "emubus.storage.")
    assert sorted(name for name in eager if not name.startswith(rooms_below_broker)) == []
    assert "emubus.storage.manifest" in eager, "the test sees them"


def _has_eager_dataclasses(module: str) -> bool:
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    if not spec.origin.endswith(".py"):
        return False
    imports = [each for each in ast.parse(Path(spec.origin).read_text()).body if isinstance(each, ast.ImportFrom)]
    return any(each.module == "dataclasses" and "dataclass" in {name.name for name in each.names} for each in imports)


def test_a_request_imports_the_http_server_and_a_page_its_templates(tmp_path: Path) -> None:
    server = Serving(tmp_path, "--durability", "none")
    server.get("/metrics")
    before_page = imported(server.log_path.read_text())
    assert {"aiohttp", "emubus.web.server", "prometheus_client"} <= before_page
    assert "jinja2" not in before_page
    assert "emubus.web.arm.endpoint" not in before_page
    server.get("/emubus/page/create")
    assert "jinja2" in server.modules()


def test_a_sql_filter_in_the_configuration_is_checked_at_the_start(tmp_path: Path) -> None:
    path = tmp_path / "Config.json"
    path.write_text(CONFIG % "a = 1")
    server = Serving(tmp_path, "--durability", "none", "--config", str(path))
    assert {*FOR_SQL, "emubus.config_file"} <= server.modules()
    path.write_text(CONFIG % "a =")
    refused = python("serve", "--config", str(path), folder=tmp_path)
    assert "SqlExpression can't be used" in refused.communicate(timeout=WAIT_S)[1]
    assert refused.returncode == 2
