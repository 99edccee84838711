"""Identities and roles at the start: Config.json, `--roles`, what a ready server tells, and settings of Functions."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from emubus.announcement import banner, facts
from emubus.broker.directory import KnownIdentity
from emubus.broker.roles import RoleAssignment
from emubus.config import Auth, ConfigError, load_config
from emubus.config_file.json_schema import schema
from emubus.config_file.writing import config_json
from emubus.kit.remote import RemoteEmubus
from emubus.server import Server, StartError
from emubus.testing import EmubusServer, QueueDescription

from ..building import ROOT

ID = "11111111-2222-3333-4444-555555555555"
PAGE = (ROOT / "docs" / "IDENTITY.md").read_text()
PORTS = {"amqp": 5672, "http": 5300}


def block(kind: str, beginning: str) -> str:
    """The block of the page's code that begins so."""
    (found,) = [each for each in re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL) if each.startswith(beginning)]
    return str(found)


def test_the_configuration_of_the_page_assigns_a_role(tmp_path: Path) -> None:
    path = tmp_path / "Config.json"
    path.write_text(block("json", "{"))
    config = load_config({"config": str(path), "durability": "none"}, {})
    assert config.identities == (KnownIdentity(ID, "orders-secret"),)
    assert config.roles == (RoleAssignment.parse(ID, "sender", "orders"),)
    written = config_json("sbemulatorns", config.topology.queues, (), config.identities, config.roles)
    path.write_text(json.dumps(written))
    again = load_config({"config": str(path), "durability": "none"}, {})
    assert (again.identities, again.roles) == (config.identities, config.roles)


def test_the_kit_assigns_roles_as_the_page_shows() -> None:
    found: dict[str, Any] = {"EmubusServer": EmubusServer, "QueueDescription": QueueDescription, "Auth": Auth}
    code = block("python", "with EmubusServer").replace("    emubus.assign_role", "    emubus.assign_role")
    exec(f"{code}    roles = emubus.roles()\n", found)
    assert found["roles"] == [RoleAssignment.parse(ID, "sender", "orders")]


def test_the_schema_knows_identities() -> None:
    text = json.dumps(schema())
    for name in ("Identities", "ClientId", "ObjectId", "ResourceId", "Secret", "Certificate", "Roles", "Entity"):
        assert f'"{name}"' in text


WRONG: dict[str, tuple[object, str]] = {
    "no client id": ({"Secret": "s"}, "[0] has no ClientId; it is required"),
    "an empty client id": ({"ClientId": ""}, "[0].ClientId '' can't name an identity"),
    "a number": ({"ClientId": 5}, "[0].ClientId is 5; it must be a text"),
    "no certificate": ({"ClientId": "a", "Certificate": "x"}, "[0].Certificate is no certificate; allowed is PEM"),
    "no role": ({"ClientId": "a", "Roles": [{"Entity": "q"}]}, "Roles[0] has no Role; it is required"),
    "another role": (
        {"ClientId": "a", "Roles": [{"Role": "Reader"}]},
        "Roles[0].Role 'Reader' is no role; the roles are",
    ),
    "no entity": (
        {"ClientId": "a", "Roles": [{"Role": "sender", "Entity": "orderz"}]},
        'Roles[0].Entity is "orderz"; there is no queue, topic or subscription of that name; did you mean orders?',
    ),
    "no list": ("a", "Identities is"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_is_one_line_with_its_place(name: str, tmp_path: Path) -> None:
    identity, text = WRONG[name]
    identities = [identity] if isinstance(identity, dict) else identity
    namespace = {"Name": "ns", "Queues": [{"Name": "orders"}], "Identities": identities}
    path = tmp_path / "Config.json"
    path.write_text(json.dumps({"UserConfig": {"Namespaces": [namespace]}}))
    with pytest.raises(ConfigError) as refused:
        load_config({"config": str(path), "durability": "none"}, {})
    assert text in str(refused.value)
    assert str(refused.value).startswith(f"{path}:1: $.UserConfig.Namespaces[0].Identities")
    assert "\n" not in str(refused.value)


def test_another_property_is_a_warning_with_what_was_meant(tmp_path: Path) -> None:
    path = tmp_path / "Config.json"
    namespace = {"Name": "ns", "Identities": [{"ClientId": "a", "Secrets": "s"}]}
    path.write_text(json.dumps({"UserConfig": {"Namespaces": [namespace]}}))
    (warning,) = load_config({"config": str(path), "durability": "none"}, {}).warnings
    assert "Identities[0].Secrets" in warning
    assert "did you mean Secret?" in warning


def test_a_client_id_is_given_once(tmp_path: Path) -> None:
    identities = [{"ClientId": "Same"}, {"ClientId": "same"}]
    path = tmp_path / "Config.json"
    path.write_text(json.dumps({"UserConfig": {"Namespaces": [{"Name": "ns", "Identities": identities}]}}))
    with pytest.raises(ConfigError, match="another identity has that client id"):
        load_config({"config": str(path), "durability": "none"}, {})


def test_roles_of_the_command_line() -> None:
    config = load_config({"roles": f"{ID}:sender, other:Owner:queue.1", "durability": "none"}, {})
    assert config.roles == (RoleAssignment.parse(ID, "sender"), RoleAssignment.parse("other", "owner", "queue.1"))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x", "'' is no role"),
        ("x:reader", "'reader' is no role"),
        (":sender", "can't name an identity"),
        ("a:owner,", "''"),
    ],
)
def test_a_mistake_in_roles_of_the_command_line_is_named(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match="--roles") as refused:
        load_config({"roles": text, "durability": "none"}, {})
    assert why in str(refused.value)
    assert "CLIENT:ROLE:ENTITY" in str(refused.value)


async def test_a_role_on_a_missing_entity_stops_the_start() -> None:
    asked = {"roles": "x:sender:missing", "durability": "none", "amqp_port": "0", "http_port": "0"}
    with pytest.raises(StartError, match="--roles: there is no queue, topic or subscription 'missing'"):
        await Server(load_config(asked, {})).start()


async def test_a_damaged_file_of_roles_stops_the_start(tmp_path: Path) -> None:
    asked = {"data": str(tmp_path / "data"), "amqp_port": "0", "http_port": "0"}
    server = Server(load_config(asked, {}))
    await server.start()
    await server.stop()
    (tmp_path / "data" / "roles.json").write_text("[")
    with pytest.raises(
        StartError, match=r"roles.json can't be read: .*; mend it, or delete it to go on without its roles"
    ):
        await Server(load_config(asked, {})).start()


@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        ({}, None),
        ({"auth": "sas"}, None),
        ({"tls": "dev"}, "IDENTITY_HEADER=emubus"),
        ({"auth": "rbac"}, "IDENTITY_HEADER=emubus"),
        ({"auth": "rbac", "sas_key": "own"}, "IDENTITY_HEADER=(not shown)"),
        ({"tls": "dev", "sas_key": "own"}, "IDENTITY_HEADER=emubus"),
    ],
)
def test_the_variables_of_a_managed_identity_are_told_where_they_help(asked: dict[str, str], shown: str | None) -> None:
    config = load_config({**asked, "durability": "none"}, {})
    found = facts(config, PORTS, None, [])
    lines = [each for each in banner(found, config, []) if "IDENTITY_ENDPOINT" in each]
    if shown is None:
        assert (lines, found["identity_variables"]) == ([], {})
        return
    (line,) = lines
    assert line.split()[-2:] == ["IDENTITY_ENDPOINT=http://localhost:5300/msi/token", shown] or shown.endswith("shown)")
    assert shown in line
    own = "own" if "(not" in shown else "emubus"
    assert found["identity_variables"]["IDENTITY_HEADER"] == own


@pytest.mark.parametrize(
    ("asked", "told"),
    [({"tls": "dev"}, {"AZURE_AUTHORITY_HOST": "https://localhost:5300/"}), ({"auth": "rbac"}, {})],
    ids=["with TLS", "without"],
)
def test_the_authority_of_applications_is_told_where_there_is_tls(asked: dict[str, str], told: dict[str, str]) -> None:
    config = load_config({**asked, "durability": "none"}, {})
    found = facts(config, PORTS, None, [])
    lines = [each.split()[-1] for each in banner(found, config, []) if "AZURE_AUTHORITY_HOST" in each]
    assert (found["authority_variables"], lines) == (told, [f"{name}={value}" for name, value in told.items()])


def test_one_string_in_the_settings_of_functions_serves_data_and_administration() -> None:
    settings = json.loads((ROOT / "examples" / "functions" / "local.settings.json").read_text())
    with EmubusServer([QueueDescription("q")]) as running:
        text = settings["Values"]["ServiceBusConnection"].replace(":5672;", f":{running.amqp_port};")
        with ServiceBusClient.from_connection_string(text) as client, client.get_queue_sender("q") as sender:
            sender.send_messages(ServiceBusMessage("m"))
        assert RemoteEmubus(f"http://localhost:{running.amqp_port}").message_counts("q")["active"] == 1


def test_the_identity_in_the_settings_of_functions_is_the_one_that_is_told() -> None:
    values = json.loads((ROOT / "examples" / "functions" / "identity.settings.json").read_text())["Values"]
    config = load_config({"tls": "dev", "durability": "none"}, {})
    told = facts(config, PORTS, None, [])["identity_variables"]
    assert {name: values[name] for name in told} == told
