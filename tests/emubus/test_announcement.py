"""What a server tells at its start, and of the clients that it refuses."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from emubus.announcement import banner, facts, write_ready_file
from emubus.broker.keys import ALL_RIGHTS, SharedKey
from emubus.config import Config, load_config
from emubus.options import ConfigError

WAIT_S = 60.0
PORTS = {"amqp": 5672, "http": 5300, "more 1": 443}
ENTITIES = [("queue", "a"), ("queue", "b"), ("topic", "t")]


def config(**arguments: str) -> Config:
    return load_config({"durability": "none", **arguments}, {})


def test_the_banner_shows_page_strings_configuration_and_entities() -> None:
    found = facts(config(), PORTS, None, ENTITIES)
    end = "SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;"
    assert [" ".join(line.split()) for line in banner(found, config(), ENTITIES)] == [
        "Page http://localhost:5300",
        f"Connection string Endpoint=sb://localhost:5672;{end}",
        f"Administration Endpoint=sb://localhost:5300;{end}",
        "Configuration no file (--config, --queues, EMUBUS_CONFIG_JSON)",
        "Entities 2 queues, 1 topic: a, b, t",
        "Durability none: in memory, ends with the server",
    ]
    default = banner(found, load_config({}, {}), ENTITIES)[-1]
    assert "second: what is acknowledged survives kill -9, and a power cut but for the last second" in default


def test_tls_adds_its_connection_string_and_a_key_of_the_user_is_not_shown() -> None:
    own = config(tls="dev", auth="sas", sas_key="secret", host="::1")
    found = facts(own, PORTS, Path("/ca.pem"), [])
    assert str(found["tls_connection_string"]).endswith("SharedAccessKey=secret;")
    text = "\n".join(banner(found, own, []))
    assert "secret" not in text
    assert "/ca.pem" in text
    assert "Entities           none" in text
    assert own.keys == (SharedKey("RootManageSharedAccessKey", "secret", ALL_RIGHTS),)


def test_a_ready_file_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="can't be written"):
        write_ready_file(tmp_path / "none" / "r.json", {})


def test_a_server_writes_its_ready_file_and_logs_whom_it_refuses(tmp_path: Path) -> None:
    ready, log_path = tmp_path / "r.json", tmp_path / "log"
    options = ["--amqp-port", "0", "--http-port", "0", "--durability", "none", "--ready-file", str(ready)]
    with log_path.open("w") as log:
        command = [sys.executable, "-P", "-m", "emubus", "serve", *options]
        process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert process.stdout is not None
        assert "Successfully Up" in process.stdout.readline(), log_path.read_text()
        found = json.loads(ready.read_text())
        assert (found["pid"], found["entities"]) == (process.pid, ["queue.1"])
        assert ready.stat().st_mode & 0o777 == 0o600
        with ServiceBusClient.from_connection_string(found["connection_string"], retry_total=0) as client:
            with pytest.raises(ServiceBusError), client.get_queue_sender("queue1") as sender:
                sender.send_messages(ServiceBusMessage("x"))
            with client.get_queue_sender("queue.1") as sender, pytest.raises(ServiceBusError):
                sender.send_messages(ServiceBusMessage("x" * 300_000))
        with socket.create_connection(("127.0.0.1", found["amqp_port"]), WAIT_S) as peer:
            peer.sendall(b"\x16\x03\x01")
            with suppress(ConnectionResetError):
                assert peer.recv(1) == b""
        with pytest.raises(urllib.error.HTTPError) as missing:
            urllib.request.urlopen(f"{found['url']}/queue2/messages/head", data=b"", timeout=WAIT_S)
        missing.value.close()
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=WAIT_S)
    assert not ready.exists()
    text = log_path.read_text()
    assert "Page               http://localhost:" in text
    lines = [line for line in text.splitlines() if "refused" in line]
    assert any("did you mean 'queue.1'?" in line and "azsdk-python" in line for line in lines), text
    assert any("size:" in line or "limit" in line for line in lines), text
    assert any("UseDevelopmentEmulator=true" in line for line in lines), text
    assert any("queue2" in line and "HTTP at" in line for line in lines), text
