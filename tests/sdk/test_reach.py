"""What an SDK reaches, and with which right: by credentials in place of a key, and each namespace by its name or port.

One server over TLS has two namespaces, and each SDK one process, which is given what a program has in Azure: the
variables of a managed identity and of an authority. The suite has each SDK with one transport and one way to check
tokens, which differ from SDK to SDK; `make test-long` has them all.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from emubus.testing import Auth, EmubusServer

from ..rounds import IS_LONG
from .administration import queue_ref
from .client import Credential, Sdk
from .conftest import _prepare_errors
from .driver import DriverProcess, SdkError, Way
from .features import AMQPS, CLIENTS_WITH, WSS
from .prepare import ALL_CLIENTS

pytestmark = [pytest.mark.sdk, pytest.mark.timeout(600)]

APPLICATION: Final = "11111111-2222-3333-4444-555555555555"
PROGRAM: Final = "66666666-7777-8888-9999-000000000000"
SYSTEM_ASSIGNED: Final = "00000000-0000-0000-0000-000000000001"
TENANT: Final = "aaaaaaaa-0000-0000-0000-000000000001"
WARM_UP_TRIES: Final = 8
SECRET: Final = "secret-of-the-application"

Kind = tuple[str, Way, Auth]

SHORT: Final[tuple[Kind, ...]] = (
    ("python-sync", AMQPS, Auth.RBAC),
    ("python-aio", WSS, Auth.SAS),
    ("javascript", WSS, Auth.RBAC),
    ("java", AMQPS, Auth.SAS),
    ("go", WSS, Auth.RBAC),
    ("dotnet", AMQPS, Auth.RBAC),
)
ALL: Final = tuple((name, way, auth) for name, _, _ in SHORT for way in (AMQPS, WSS) for auth in (Auth.SAS, Auth.RBAC))


def _config(folder: Path) -> Path:
    roles = [{"Role": f"Azure Service Bus Data {each}", "Entity": "q"} for each in ("Sender", "Receiver")]
    owner = [{"Role": "Azure Service Bus Data Owner"}]
    first = {
        "Name": "first",
        "Queues": [{"Name": "q"}, {"Name": "closed"}],
        "Identities": [
            {"ClientId": APPLICATION, "Secret": SECRET, "Roles": roles},
            {"ClientId": PROGRAM, "Roles": roles},
            {"ClientId": SYSTEM_ASSIGNED, "Roles": owner},
        ],
    }
    orders = {"Name": "orders", "Port": 0, "Queues": [{"Name": "q"}, {"Name": "only"}]}
    file = folder / "Config.json"
    file.write_text(json.dumps({"UserConfig": {"Namespaces": [first, orders]}}))
    return file


class Bench:
    """A server for each way to check tokens, and a driver for each SDK, way and server; started when asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._servers: dict[Auth, EmubusServer] = {}
        self._drivers: dict[Kind, DriverProcess] = {}
        self._cleanup = ExitStack()
        self.token_file = folder / "token"
        self.token_file.write_text("of.another.issuer")

    def server(self, auth: Auth) -> EmubusServer:
        if auth not in self._servers:
            folder = (
                self._folder / auth.value
            )  # a CA of its own: it certifies the ports of one server, which Go asks for
            folder.mkdir()
            server = EmubusServer(config_file=_config(folder), auth=auth, tls_dir=folder)
            self._servers[auth] = self._cleanup.enter_context(server)
        return self._servers[auth]

    def sdk(self, kind: Kind) -> Sdk:
        name, way, auth = kind
        running = self._drivers.get(kind)
        if running is None or not running.alive:
            server = self.server(auth)
            variables = {
                "IDENTITY_ENDPOINT": f"http://localhost:{server.http_port}/msi/token",
                "IDENTITY_HEADER": "emubus",
                "AZURE_AUTHORITY_HOST": f"https://localhost:{server.http_port}/",
                "NODE_EXTRA_CA_CERTS": str(server.ca_file),
            }
            running = self._drivers[kind] = DriverProcess(
                ALL_CLIENTS[name],
                server.tls_connection_string,
                ca_file=server.ca_file,
                transport=way.transport,
                variables=variables,
            )
            self._cleanup.callback(running.close)
            _warm_up(Sdk(running))
        return Sdk(running)

    def close(self) -> None:
        self._cleanup.close()


def _warm_up(sdk: Sdk) -> None:
    """Have an SDK load what it needs: on a busy machine that outlasts its own limit for a try."""
    sdk.reset(credential={"kind": "default"})
    for _ in range(WARM_UP_TRIES - 1):
        try:
            sdk.receiver("q").peek()
        except SdkError:
            continue
        return
    sdk.receiver("q").peek()


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    bench = Bench(tmp_path_factory.mktemp("reach"))
    yield bench
    bench.close()


@pytest.fixture
def way(request: pytest.FixtureRequest) -> Way:
    chosen: Way = request.param
    return chosen


@pytest.fixture
def auth(request: pytest.FixtureRequest) -> Auth:
    chosen: Auth = request.param
    return chosen


@pytest.fixture
def server(bench: Bench, auth: Auth) -> EmubusServer:
    return bench.server(auth)


@pytest.fixture
def sdk(request: pytest.FixtureRequest, bench: Bench, way: Way, auth: Auth) -> Iterator[Sdk]:
    if request.param in _prepare_errors:
        raise _prepare_errors[request.param]
    used = bench.sdk((request.param, way, auth))
    yield used
    used.reset()


def kinds(*clients: str) -> pytest.MarkDecorator:
    """Run a test with these clients."""
    chosen = [each for each in (ALL if IS_LONG else SHORT) if each[0] in clients]
    params = [pytest.param(*each, id="-".join(map(str, each))) for each in chosen]
    return pytest.mark.parametrize(("sdk", "way", "auth"), params, indirect=True)


every_kind = kinds(*(name for name, _, _ in SHORT))


def credentials(bench: Bench) -> dict[str, Credential]:
    """Credentials with the client id that each shows; the first two are the identity that owns everything."""
    named = {"tenant_id": TENANT, "client_id": APPLICATION}
    return {
        "default": {"kind": "default"},
        "system-assigned": {"kind": "managed-identity"},
        "user-assigned": {"kind": "managed-identity", "client_id": PROGRAM},
        "secret": {"kind": "client-secret", **named, "secret": SECRET},
        "workload": {"kind": "workload-identity", **named, "client_id": PROGRAM, "token_file": str(bench.token_file)},
    }


OWNERS: Final = frozenset({"default", "system-assigned"})


@every_kind
def test_each_credential_gets_a_token_that_opens_what_its_roles_give(sdk: Sdk, bench: Bench, auth: Auth) -> None:
    for name, credential in credentials(bench).items():
        sdk.reset(credential=credential)
        sdk.send("q", {"body": name})
        receiver = sdk.receiver("q")
        message = receiver.receive_one()
        receiver.complete(message)
        assert message.body == name
        if auth is Auth.SAS or name in OWNERS:
            assert sdk.admin.get(queue_ref("closed"))["max_delivery_count"] == 10
            continue
        for refused, words in (
            (lambda: sdk.send("closed", {"body": "x"}), "'Send' claim(s) are required to perform this operation"),
            (lambda: sdk.admin.get(queue_ref("q")), "Manage,EntityRead claims required for this operation"),
        ):
            with pytest.raises(SdkError) as told:
                refused()
            assert told.value.kind == "unauthorized", (name, told.value)
            assert words in str(told.value), name


@every_kind
def test_a_wrong_secret_opens_nothing(sdk: Sdk, bench: Bench) -> None:
    sdk.reset(credential={**credentials(bench)["secret"], "secret": "wrong"})
    with pytest.raises(SdkError, match="AADSTS7000215"):
        sdk.send("q", {"body": "x"})


@every_kind
def test_each_namespace_is_reached_by_its_name_and_by_its_port(sdk: Sdk, server: EmubusServer) -> None:
    port = server.call(lambda: server.server.namespaces.get("orders").port)
    for namespace, address in (("orders.servicebus.windows.net", None), (None, f"localhost:{port}")):
        sdk.reset(namespace=namespace, address=address)
        sdk.send("only", {"body": f"{address}"})
        receiver = sdk.receiver("only")
        message = receiver.receive_one()
        receiver.complete(message)
        assert message.body == f"{address}"
    assert sorted(sdk.admin.names("queues")) == ["only", "q"], "by its port"
    for other in ("first.servicebus.windows.net", None):
        sdk.reset(namespace=other)
        with pytest.raises(SdkError) as told:
            sdk.send("only", {"body": "x"})
        assert told.value.kind == "not-found"
    assert sorted(sdk.admin.names("queues")) == ["closed", "q"]


@kinds(*CLIENTS_WITH["transactions"])
def test_a_transaction_is_of_one_namespace(sdk: Sdk, server: EmubusServer) -> None:
    orders = server.namespace("orders")
    for emubus in (server, orders):
        emubus.purge("q")
    sdk.reset(namespace="orders.servicebus.windows.net")
    for commit in (False, True):
        transaction = sdk.begin_transaction("q")
        sdk.send("q", {"body": f"{commit}"}, transaction=transaction)
        sdk.end_transaction(transaction, commit=commit)
    assert [each.text for each in orders.peek("q")] == ["True"]
    assert server.peek("q") == []
