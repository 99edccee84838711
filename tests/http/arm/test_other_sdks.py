"""The management SDKs of four languages over TLS, with a token of an identity: they go and read the same steps.

The programs are in `sdks`; each prints what its SDK has read. Python's steps are here.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.core.credentials import AccessToken
from azure.core.exceptions import HttpResponseError
from azure.mgmt.resource.resources import ResourceManagementClient
from azure.mgmt.servicebus import ServiceBusManagementClient, models

from emubus.testing import Auth, EmubusServer

from ...programs import PROGRAM_S_MAX
from .client import SUBSCRIPTION
from .sdks.prepare import FOLDER, PROGRAMS, available, prepare
from .test_tokens import token_of

TEMPLATE_STEPS: dict[str, object] = {
    "deployment": ["Succeeded", "into"],
    "the same again": ["Succeeded", "into"],
    "a deployment that fails": True,
}
STEPS: dict[str, object] = {
    "group": ["rg-{}", "westeurope", {"a": "b"}],
    "namespace": ["bus-{}", "Standard", {"c": "d"}, "Succeeded"],
    "namespaces": ["bus-{}"],
    "keys": "Endpoint=sb://bus-{}.servicebus.windows.net/",
    "authorization rule": ["Send"],
    "queue": ["PT45S", 9, True, "Active"],
    "rules": ["a > 3", "SET seen = TRUE", "l", {"k": "v"}],
    "all rules": ["$Default", "equal", "sql"],
    "a bad value": [400, "MessagingGatewayBadRequest", True],
    "nowhere": [404, "NotFound"],
    **TEMPLATE_STEPS,
    "queues": ["from", "into", "q"],
    "gone": [404, "ResourceNotFound"],
    "groups": False,
}
"""What each step reads; `{}` stands for the language."""
WITHOUT = {
    "python": set(TEMPLATE_STEPS),  # its client of deployments is a package of its own
    "dotnet": {"namespaces", "keys", "all rules", "queues"},  # generic resources have no lists
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmubusServer]:
    with EmubusServer(auth=Auth.SAS, tls_dir=tmp_path_factory.mktemp("tls")) as running:
        yield running


def address(server: EmubusServer) -> str:
    return f"https://localhost:{server.http_port}"


def expected(language: str, name: str) -> dict[str, object]:
    steps = {step: value for step, value in STEPS.items() if step not in WITHOUT.get(language, ())}
    found: dict[str, object] = json.loads(json.dumps(steps).replace("{}", name))
    return found


def environment(server: EmubusServer, folder: Path) -> dict[str, str]:
    """What has the programs trust the CA of the server."""
    ca, store = str(server.ca_file), folder / "ca.p12"
    command = ("keytool", "-importcert", "-noprompt", "-alias", "ca", "-file", ca, "-storetype", "PKCS12")
    if "java" in available():
        made = (*command, "-keystore", str(store), "-storepass", "changeit")
        subprocess.run(made, capture_output=True, timeout=PROGRAM_S_MAX, check=True)
    options = f"-Djavax.net.ssl.trustStore={store} -Djavax.net.ssl.trustStorePassword=changeit"
    return {**os.environ, "NODE_EXTRA_CA_CERTS": ca, "SSL_CERT_FILE": ca, "JDK_JAVA_OPTIONS": options}


@pytest.mark.parametrize("language", available())
def test_each_sdk_reads_what_it_has_set_up(server: EmubusServer, language: str, tmp_path: Path) -> None:
    prepare(language)
    token = token_of(server, language, address(server))
    ended = subprocess.run(
        [*PROGRAMS[language].start, address(server), token, str(FOLDER)],
        env=environment(server, tmp_path),
        capture_output=True,
        text=True,
        timeout=PROGRAM_S_MAX,
        check=False,
    )
    found = dict(json.loads(line) for line in ended.stdout.splitlines() if line.startswith("["))
    name = {"javascript": "js", "dotnet": "net"}.get(language, language)
    assert found == expected(language, name), ended.stderr
    assert ended.returncode == 0, ended.stderr


def test_python_s_sdks_read_what_they_have_set_up(server: EmubusServer) -> None:
    group, bus, steps = "rg-python", "bus-python", dict[str, object]()
    options: dict[str, Any] = {
        "base_url": address(server),
        "credential_scopes": [f"{address(server)}/.default"],
        "connection_verify": str(server.ca_file),
    }
    credential = Credential(token_of(server, "python", address(server)))
    with (
        ResourceManagementClient(credential, SUBSCRIPTION, **options) as resources,
        ServiceBusManagementClient(credential, SUBSCRIPTION, **options) as opened,
    ):
        client: Any = opened  # its models are objects of JSON as well, which its types don't say
        made = resources.resource_groups.create_or_update(group, {"location": "westeurope", "tags": {"a": "b"}})
        steps["group"] = [made.name, made.location, dict(made.tags or {})]
        given = {"location": "westeurope", "sku": {"name": "Standard"}, "tags": {"c": "d"}}
        namespace = client.namespaces.begin_create_or_update(group, bus, given).result(timeout=20)
        tags = dict(namespace.tags or {})
        steps["namespace"] = [namespace.name, namespace.sku.name, tags, namespace.provisioning_state]
        steps["namespaces"] = [each.name for each in client.namespaces.list_by_resource_group(group)]
        keys = client.namespaces.list_keys(group, bus, "RootManageSharedAccessKey")
        steps["keys"] = str(keys.primary_connection_string).partition(";")[0]
        own = {"properties": {"rights": ["Send"]}}
        rights = client.namespaces.create_or_update_authorization_rule(group, bus, "app", own).rights
        steps["authorization rule"] = list(rights or ())
        for count in (4, 9):
            properties = {"lockDuration": "PT45S", "maxDeliveryCount": count, "requiresSession": True}
            client.queues.create_or_update(group, bus, "q", {"properties": properties})
        queue = client.queues.get(group, bus, "q")
        lock = models.SBQueue({"properties": {"lockDuration": queue.lock_duration}}).as_dict()["properties"]
        steps["queue"] = [lock["lockDuration"], queue.max_delivery_count, queue.requires_session, queue.status]
        client.topics.create_or_update(group, bus, "t", {"properties": {"supportOrdering": True}})
        client.subscriptions.create_or_update(group, bus, "t", "s", {"properties": {"maxDeliveryCount": 3}})
        by_sql = {"sqlFilter": {"sqlExpression": "a > 3"}, "action": {"sqlExpression": "SET seen = TRUE"}}
        sql = client.rules.create_or_update(group, bus, "t", "s", "sql", {"properties": by_sql})
        equals = {"label": "l", "properties": {"k": "v"}}
        correlated = {"properties": {"filterType": "CorrelationFilter", "correlationFilter": equals}}
        equal = client.rules.create_or_update(group, bus, "t", "s", "equal", correlated).correlation_filter
        shown = dict(equal.properties or {})
        steps["rules"] = [sql.sql_filter.sql_expression, sql.action.sql_expression, equal.label, shown]
        steps["all rules"] = sorted(str(each.name) for each in client.rules.list_by_subscriptions(group, bus, "t", "s"))
        with pytest.raises(HttpResponseError) as bad:
            client.queues.create_or_update(group, bus, "bad", {"properties": {"lockDuration": "PT10M"}})
        steps["a bad value"] = [*refusal(bad.value), "LockDuration" in bad.value.message]
        with pytest.raises(HttpResponseError) as nowhere:
            client.queues.get(group, bus, "nowhere")
        steps["nowhere"] = refusal(nowhere.value)
        client.rules.delete(group, bus, "t", "s", "equal")
        client.subscriptions.delete(group, bus, "t", "s")
        client.topics.delete(group, bus, "t")
        for name in ("from", "into"):
            client.queues.create_or_update(group, bus, name, {})
        steps["queues"] = [each.name for each in client.queues.list_by_namespace(group, bus)]
        client.namespaces.begin_delete(group, bus).result(timeout=20)
        with pytest.raises(HttpResponseError) as gone:
            client.namespaces.get(group, bus)
        steps["gone"] = refusal(gone.value)
        resources.resource_groups.begin_delete(group).result(timeout=20)
        steps["groups"] = group in [each.name for each in resources.resource_groups.list()]
    assert steps == expected("python", "python")


class Credential:
    """A token that somebody else has got."""

    def __init__(self, token: str) -> None:
        self._token = token

    def get_token(self, *_scopes: str, **_more: object) -> AccessToken:
        return AccessToken(self._token, 1 << 33)


def refusal(error: HttpResponseError) -> list[object]:
    return [error.status_code, None if error.error is None else error.error.code]
