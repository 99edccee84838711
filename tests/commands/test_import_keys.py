"""Keys of the namespace that an import makes: they open the server at once, and after a restart."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from emubus.broker.errors import BrokerError
from emubus.config import Auth
from emubus.testing import EmubusServer, QueueDescription, RemoteEmubus

from .conftest import CommandLine

SERVICE_BUS = "azurerm_servicebus_namespace_authorization_rule"
KEY = "k" * 44


def state(**rights: bool) -> str:
    """A state with a key of the namespace."""
    id_ = "/subscriptions/0/resourceGroups/g/providers/Microsoft.ServiceBus/namespaces/ns"
    values = {"name": "deploy", "namespace_id": id_, "primary_key": KEY, **rights}
    resource = {"mode": "managed", "type": SERVICE_BUS, "name": "k", "address": f"{SERVICE_BUS}.k", "values": values}
    return json.dumps({"format_version": "1.0", "values": {"root_module": {"resources": [resource]}}})


def may_manage(server: EmubusServer, number: int) -> bool:
    remote = RemoteEmubus(f"http://127.0.0.1:{server.http_port}", key_name="deploy", key=KEY)
    try:
        remote.create(QueueDescription(f"made-{number}"))
    except BrokerError:
        return False
    return True


def imported(offline: CommandLine, server: EmubusServer, file: Path) -> str:
    to = server.connection_string.replace("localhost", "127.0.0.1")
    return offline.done("import", "--terraform", str(file), "--connection-string", to)


def test_a_key_of_the_namespace_opens_it_changes_and_survives_a_restart(offline: CommandLine, tmp_path: Path) -> None:
    full, less = tmp_path / "full.json", tmp_path / "less.json"
    full.write_text(state(listen=True, send=True, manage=True))
    less.write_text(state(listen=True, send=True))
    folder = tmp_path / "data"
    with EmubusServer(data_dir=folder, auth=Auth.SAS) as server:
        assert not may_manage(server, 0)
        assert imported(offline, server, full) == "created authorization rule deploy\n"
        assert imported(offline, server, full) == "unchanged authorization rule deploy\n"
        assert may_manage(server, 1)
    with EmubusServer(data_dir=folder, auth=Auth.SAS) as server:
        assert may_manage(server, 2)
        changed = "changed authorization rule deploy: rights Send, Listen, Manage → Send, Listen\n"
        assert imported(offline, server, less) == changed
        assert not may_manage(server, 3)


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"configured": [], "keys": [{}]}'])
def test_a_damaged_file_of_keys_does_not_stop_a_start(tmp_path: Path, damage: str) -> None:
    folder = tmp_path / "data"
    with EmubusServer(data_dir=folder):
        pass
    (folder / "keys.json").write_text(damage)
    with EmubusServer(data_dir=folder, auth=Auth.SAS) as server:
        assert [each.name for each in server.server.config.keys] == ["RootManageSharedAccessKey"]
