"""Namespaces, resource groups and keys: what is shown, what stays over a restart, and what keys open."""

from __future__ import annotations

import http.client
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusAuthenticationError, ServiceBusError

from emubus.broker.kept_keys import keys_after, written
from emubus.broker.keys import Right, SharedKey
from emubus.namespace import HostedNamespace
from emubus.testing import Auth, EmubusServer, QueueDescription

from .client import GROUP, NAMESPACE, NAMESPACES, ROOT, WAIT_S, Arm

ROOT_KEY = "Basic Um9vdE1hbmFnZVNoYXJlZEFjY2Vzc0tleTpTQVNfS0VZX1ZBTFVF"
GROUPS = "2021-04-01"
FIRST = f"{NAMESPACES}/sbemulatorns"
UNPLACED = FIRST.replace("/rg/", "/emubus/")


def test_the_namespace_of_the_configuration_is_there_before_anything_is_made(server: EmubusServer) -> None:
    with Arm(server.http_port) as arm:
        (only,) = arm("GET", f"{ROOT}/providers/Microsoft.ServiceBus/namespaces")[1]["value"]
        assert only["id"].endswith("/resourceGroups/emubus/providers/Microsoft.ServiceBus/namespaces/sbemulatorns")
        assert arm("GET", only["id"])[1] == only
        assert [each["name"] for each in arm("GET", f"{ROOT}/resourceGroups", version=GROUPS)[1]["value"]] == ["emubus"]


def test_a_namespace_that_is_made_is_another_with_entities_of_its_own() -> None:
    with EmubusServer([QueueDescription("mine")]) as server, Arm(server.http_port) as arm:
        arm.namespace()
        assert arm("GET", f"{NAMESPACE}/queues")[1]["value"] == []
        assert arm("PUT", f"{NAMESPACE}/queues/q", {})[0] == 200
        assert [each["name"] for each in arm("GET", f"{UNPLACED}/queues")[1]["value"]] == ["mine"]
        assert arm("GET", GROUP, version=GROUPS)[1]["location"] == "westeurope"
        assert arm("PUT", NAMESPACE, {"location": "westeurope"})[0] == 200
        by_name = {"Host": f"mybus.localhost:{server.http_port}"}
        assert arm("GET", f"{NAMESPACE}/queues", headers=by_name)[1]["value"][0]["name"] == "q"
        assert arm("DELETE", NAMESPACE)[0] == 200
        assert arm("DELETE", NAMESPACE)[0] == 204
        arm.namespace()
        assert arm("GET", f"{NAMESPACE}/queues")[1]["value"] == []


TEMPLATE = {
    "$schema": "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#",
    "contentVersion": "1.0.0.0",
    "resources": [{"type": "Microsoft.ServiceBus/namespaces/queues", "apiVersion": "2021-11-01", "name": "mybus/q"}],
}
DEPLOYMENTS = f"{GROUP}/providers/Microsoft.Resources/deployments/d1"


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", f"{NAMESPACE}/queues", None),
        ("PUT", f"{NAMESPACE}/topics/t", {}),
        ("POST", f"{NAMESPACE}/authorizationRules/RootManageSharedAccessKey/listKeys", {}),
        ("PUT", DEPLOYMENTS, {"properties": {"mode": "Incremental", "template": TEMPLATE}}),
        ("POST", f"{DEPLOYMENTS}/whatIf", {"properties": {"mode": "Incremental", "template": TEMPLATE}}),
    ],
    ids=["list", "put", "keys", "deployment", "what-if"],
)
def test_others_are_served_while_a_request_opens_a_namespace(
    monkeypatch: pytest.MonkeyPatch, method: str, path: str, body: object
) -> None:
    disk, open_files = threading.Event(), HostedNamespace.open_files

    def late(namespace: HostedNamespace) -> None:
        if namespace.name == "mybus":
            assert disk.wait(WAIT_S)
        open_files(namespace)

    monkeypatch.setattr(HostedNamespace, "open_files", late)
    with (
        EmubusServer([QueueDescription("mine")]) as server,
        Arm(server.http_port) as arm,
        ThreadPoolExecutor() as beside,
    ):
        arm.namespace()
        asked = beside.submit(arm, method, path, body)
        try:
            while not server.call(lambda: bool(server.server.namespaces._openings)):
                pass
            bus = ServiceBusClient.from_connection_string(server.connection_string)
            with bus, bus.get_queue_sender("mine") as sender:
                sender.send_messages(ServiceBusMessage("answered"))
            assert not asked.done()
        finally:
            disk.set()
        assert asked.result()[0] in (200, 201)


def test_the_first_namespace_loses_its_entities_and_is_hidden_until_it_is_put_again() -> None:
    with EmubusServer([QueueDescription("mine")]) as server, Arm(server.http_port) as arm:
        assert arm("PUT", FIRST, {"location": "here"})[0] == 200
        assert arm("GET", UNPLACED)[0] == 404
        assert arm("DELETE", FIRST)[0] == 200
        assert list(server.server.broker.namespace.entities()) == []
        assert arm("GET", FIRST)[0] == 404
        assert arm("PUT", FIRST, {"location": "here"})[0] == 201
        assert arm("GET", FIRST)[0] == 200


def test_tags_groups_and_network_rules_stay_over_a_restart(tmp_path: Path) -> None:
    rules = {"properties": {"defaultAction": "Deny", "ipRules": [{"ipMask": "1.1.1.1", "action": "Allow"}]}}
    with EmubusServer(data_dir=tmp_path / "data") as server, Arm(server.http_port) as arm:
        assert arm("PUT", GROUP, {"location": "here", "tags": {"g": "1"}}, GROUPS)[0] == 201
        given = {"location": "there", "tags": {"n": "2"}, "sku": {"name": "premium", "capacity": 2}}
        assert arm("PUT", NAMESPACE, {**given, "properties": {"minimumTlsVersion": "1.1"}})[0] == 201
        assert arm("PUT", f"{NAMESPACE}/networkRuleSets/default", rules)[0] == 200
        before = [arm("GET", GROUP, version=GROUPS), arm("GET", NAMESPACE), arm("GET", f"{NAMESPACE}/networkRuleSets")]
    with EmubusServer(data_dir=tmp_path / "data") as server, Arm(server.http_port) as arm:
        after = [arm("GET", GROUP, version=GROUPS), arm("GET", NAMESPACE), arm("GET", f"{NAMESPACE}/networkRuleSets")]
        assert after == before
        assert after[1][1]["sku"] == {"name": "Premium", "tier": "Premium", "capacity": 2}
        assert after[1][1]["properties"]["minimumTlsVersion"] == "1.1"
        assert after[2][1]["value"][0]["properties"]["defaultAction"] == "Deny"


@pytest.mark.parametrize("content", ['{"namespaces": {"a": 1}}', "{", '{"gone": {"a": 1}}', '{"groups": []}'])
def test_a_file_that_can_not_be_read_is_not_replaced(tmp_path: Path, content: str) -> None:
    file = tmp_path / "arm.json"
    with EmubusServer(data_dir=tmp_path) as server, Arm(server.http_port) as arm:
        arm.namespace()
    kept = file.read_bytes()
    file.write_text(content)
    with EmubusServer(data_dir=tmp_path) as server, Arm(server.http_port) as arm:
        status, code, text = arm.refused("PUT", NAMESPACE, {"location": "x"})
        assert (status, code) == (503, "ServerUnavailable")
        assert "arm.json can't be read: " in text
        assert "mend it, or delete it" in text
        assert file.read_text() == content
        server.create_queue(QueueDescription("q"))
        send(server.connection_string)
    file.write_bytes(kept)
    with EmubusServer(data_dir=tmp_path) as server, Arm(server.http_port) as arm:
        assert arm("GET", NAMESPACE)[0] == 200


# ---------------------------------------------------------------- made and deleted by others

TAGGED = {"location": "there", "tags": {"a": "b"}}


def others(server: EmubusServer, method: str) -> int:
    """Make or delete `mybus` by the control API."""
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=WAIT_S)
    data = b"{}" if method == "PUT" else None
    connection.request(method, "/emubus/v1/namespaces/mybus", data, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status


@pytest.mark.parametrize("restarts", [False, True])
def test_a_namespace_has_nothing_of_an_earlier_one_of_its_name(tmp_path: Path, restarts: bool) -> None:
    with EmubusServer(data_dir=tmp_path) as server, Arm(server.http_port) as arm:
        assert arm("PUT", NAMESPACE, TAGGED)[0] == 201
        assert arm("PUT", f"{NAMESPACES}/stays", TAGGED)[0] == 201
        assert others(server, "DELETE") == 200
        assert arm("GET", NAMESPACE)[0] == 404
        if not restarts:
            assert others(server, "PUT") == 201
            check_new(arm)
    if restarts:
        with EmubusServer(data_dir=tmp_path) as server, Arm(server.http_port) as arm:
            assert others(server, "PUT") == 201
            check_new(arm)
    with EmubusServer(data_dir=tmp_path) as server, Arm(server.http_port) as arm:
        check_new(arm)
        assert arm("PUT", NAMESPACE, {"location": "here"})[1]["tags"] == {}
    assert set(json.loads((tmp_path / "arm.json").read_bytes())["namespaces"]) == {"mybus", "stays"}


def check_new(arm: Arm) -> None:
    """`mybus` is as Resource Manager shows what others have made, and `stays` as it was put."""
    found = arm("GET", f"{UNPLACED.rpartition('/')[0]}/mybus")[1]
    assert (found["location"], found["tags"]) == ("local", {})
    assert arm("GET", f"{NAMESPACES}/stays")[1]["tags"] == {"a": "b"}


def test_the_file_is_in_the_folder_of_the_first_whichever_name_the_client_used(tmp_path: Path) -> None:
    with EmubusServer(data_dir=tmp_path) as server, Arm(server.http_port) as arm:
        arm.namespace()
        by_name = {"Host": f"mybus.localhost:{server.http_port}"}
        assert arm("PUT", GROUP, {"location": "x", "tags": {"by": "name"}}, GROUPS, headers=by_name)[0] == 200
        assert arm("PUT", f"{NAMESPACE}/queues/q", {}, headers=by_name)[0] == 200
        assert arm("GET", GROUP, version=GROUPS)[1]["tags"] == {"by": "name"}
    assert [each.relative_to(tmp_path) for each in tmp_path.rglob("arm.json")] == [Path("arm.json")]


def test_groups_are_made_changed_and_deleted_with_their_namespaces(arm: Arm) -> None:
    assert arm("PATCH", GROUP, {"tags": {"a": "b"}}, GROUPS)[1]["tags"] == {"a": "b"}
    assert arm("HEAD", GROUP, version=GROUPS)[0] == 204
    assert [each["name"] for each in arm("GET", f"{GROUP}/resources", version=GROUPS)[1]["value"]] == ["mybus"]
    assert arm("DELETE", GROUP, version=GROUPS)[0] == 200
    assert arm("HEAD", GROUP, version=GROUPS)[0] == 404
    assert arm("GET", NAMESPACE)[0] == 404


NAMES = {"mybus": "AlreadyExists", "free": "", "1x": "Invalid", "a_b": "Invalid", "x" * 51: "Invalid"}


@pytest.mark.parametrize("name", NAMES)
def test_names_of_namespaces_are_checked(arm: Arm, name: str) -> None:
    path = f"{ROOT}/providers/Microsoft.ServiceBus/CheckNameAvailability"
    found = arm("POST", path, {"name": name})[1]
    reasons = {"AlreadyExists": "NameInUse", "": "None", "Invalid": "InvalidName"}
    assert (found["nameAvailable"], found["reason"]) == (NAMES[name] == "", reasons[NAMES[name]])


# ---------------------------------------------------------------- keys


def connection_string(server: EmubusServer, name: str, key: str) -> str:
    end = f"SharedAccessKeyName={name};SharedAccessKey={key};UseDevelopmentEmulator=true;"
    return f"Endpoint=sb://127.0.0.1:{server.amqp_port};{end}"


def send(text: str, queue: str = "q") -> None:
    with (
        ServiceBusClient.from_connection_string(text, retry_total=0) as client,
        client.get_queue_sender(queue) as sender,
    ):
        sender.send_messages(ServiceBusMessage(b"x"))


SCOPES = {"namespace": FIRST, "queue": f"{FIRST}/queues/q"}


@pytest.mark.parametrize("at", SCOPES.values(), ids=SCOPES)
def test_a_rule_opens_what_its_rights_are_until_it_is_deleted(at: str) -> None:
    with EmubusServer([QueueDescription("q")], auth=Auth.SAS) as server, Arm(server.http_port, ROOT_KEY) as arm:
        arm("PUT", FIRST, {"location": "x"})
        rule = f"{at}/authorizationRules/app"
        assert arm("PUT", rule, {"properties": {"rights": ["Listen"]}})[1]["properties"] == {"rights": ["Listen"]}
        keys = arm("POST", f"{rule}/listKeys")[1]
        for each in ("primaryKey", "secondaryKey"):
            with pytest.raises(ServiceBusError):
                send(connection_string(server, "app", keys[each]))
        assert arm("PUT", rule, {"properties": {"rights": ["send", "Listen"]}})[0] == 200
        for each in ("primaryKey", "secondaryKey"):
            send(connection_string(server, "app", keys[each]))
        other = arm("POST", f"{rule}/regenerateKeys", {"keyType": "SecondaryKey"})[1]
        assert other["primaryKey"] == keys["primaryKey"]
        assert other["secondaryKey"] != keys["secondaryKey"]
        with pytest.raises(ServiceBusAuthenticationError):
            send(connection_string(server, "app", keys["secondaryKey"]))
        own = arm("POST", f"{rule}/regenerateKeys", {"keyType": "PrimaryKey", "key": "A" * 44})[1]
        assert own["primaryKey"] == "A" * 44
        send(connection_string(server, "app", "A" * 44))
        with (
            ServiceBusClient.from_connection_string(
                connection_string(server, "app", "A" * 44), retry_total=0
            ) as client,
            client.get_queue_sender("q") as sender,
        ):
            sender.send_messages(ServiceBusMessage(b"x"))
            assert arm("DELETE", rule)[0] == 200
            assert arm("DELETE", rule)[0] == 204
            with pytest.raises(ServiceBusError):
                sender.send_messages(ServiceBusMessage(b"x"))
        with pytest.raises(ServiceBusAuthenticationError):
            send(connection_string(server, "app", "A" * 44))


BAD_RIGHTS = {"none": [], "unknown": ["Own"], "manage alone": ["Manage"], "no list": "Send", "objects": [{}]}


@pytest.mark.parametrize("at", SCOPES.values(), ids=SCOPES)
@pytest.mark.parametrize("rights", BAD_RIGHTS.values(), ids=list(BAD_RIGHTS))
def test_rights_that_can_not_be_given_are_refused_and_nothing_is_made(arm: Arm, at: str, rights: object) -> None:
    assert arm("PUT", FIRST, {"location": "x"})[0] == 200
    assert arm("PUT", f"{FIRST}/queues/q", {})[0] == 200
    status, _, text = arm.refused("PUT", f"{at}/authorizationRules/app", {"properties": {"rights": rights}})
    assert status == 400
    assert "ights" in text
    assert arm("GET", f"{at}/authorizationRules/app")[0] == 404


def test_there_are_at_most_twelve_rules(arm: Arm) -> None:
    assert arm("PUT", FIRST, {"location": "x"})[0] == 200
    for number in range(11):
        rule = f"{FIRST}/authorizationRules/k{number}"
        assert arm("PUT", rule, {"properties": {"rights": ["Send"]}})[0] == 200
    status, _, text = arm.refused("PUT", f"{FIRST}/authorizationRules/k", {"properties": {"rights": ["Send"]}})
    assert status == 400
    assert "at most 12" in text


def test_keys_of_the_namespace_stay_over_a_restart(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    first = EmubusServer([QueueDescription("q")], data_dir=folder, auth=Auth.SAS)
    with first, Arm(first.http_port, ROOT_KEY) as arm:
        arm("PUT", FIRST, {"location": "x"})
        rule = f"{FIRST}/authorizationRules/app"
        assert arm("PUT", rule, {"properties": {"rights": ["Send"]}})[0] == 200
        key = arm("POST", f"{rule}/listKeys")[1]["primaryKey"]
    with EmubusServer(data_dir=folder, auth=Auth.SAS) as server:
        send(connection_string(server, "app", key))


ONE, OTHER, MADE = SharedKey("one", "1"), SharedKey("other", "2"), SharedKey("made", "3", frozenset({Right.SEND}))
KEPT = {
    "nothing kept": ([ONE], b"", [ONE]),
    "one more": ([ONE], written([ONE], [ONE, MADE]), [ONE, MADE]),
    "one deleted": ([ONE, OTHER], written([ONE, OTHER], [OTHER]), [OTHER]),
    "one changed": ([ONE], written([ONE], [SharedKey("one", "new")]), [SharedKey("one", "new")]),
    "configured anew": ([SharedKey("one", "x")], written([ONE], [SharedKey("one", "new")]), [SharedKey("one", "x")]),
    "no longer configured": ([OTHER], written([ONE, OTHER], [ONE, OTHER]), [OTHER]),
}


@pytest.mark.parametrize(("configured", "data", "found"), KEPT.values(), ids=KEPT)
def test_a_changed_configuration_wins_over_kept_keys(
    configured: list[SharedKey], data: bytes, found: list[SharedKey]
) -> None:
    assert list(keys_after(configured, data)) == found


@pytest.mark.parametrize("data", [b"{", b"[]", b'{"configured": [], "keys": [{}]}', b"\xff"])
def test_a_file_that_can_not_be_read_is_said_to_be_so(data: bytes) -> None:
    with pytest.raises(ValueError, match="can't be read"):
        keys_after([ONE], data)
