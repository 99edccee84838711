"""Several namespaces in one process: which one a client reaches, what they share, and what outlasts a restart."""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from azure.core.credentials import AccessToken
from azure.servicebus import ServiceBusClient, ServiceBusMessage, TransportType
from azure.servicebus.exceptions import ServiceBusCommunicationError, ServiceBusConnectionError, ServiceBusError

from emubus.__main__ import main
from emubus.broker.access import sign
from emubus.broker.errors import BrokerError, Condition
from emubus.broker.model.profiles import Profile
from emubus.config import ConfigError, load_config
from emubus.namespace import HostedNamespace
from emubus.server import Server, StartError
from emubus.testing import Auth, EmubusServer, QueueDescription
from emubus.web.services import NamespacesPort

KEY = "SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE"
WAIT_S = 60.0  # ends a hang


@pytest.fixture(autouse=True)
def names_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every name below localhost is this machine, as RFC 6761 has it: not every C library knows that."""
    resolve = socket.getaddrinfo

    def getaddrinfo(host: str, *rest: object, **more: object) -> object:
        ours = isinstance(host, str) and host.endswith((".localhost", ".servicebus.windows.net"))
        return resolve("127.0.0.1" if ours else host, *rest, **more)  # type: ignore[arg-type] # passed on as they came

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)


def config_of(tmp_path: Path, *more: dict[str, object]) -> Path:
    """A Config.json with `first` and `orders`, each with a queue `q`, and more namespaces."""
    own: list[dict[str, object]] = [
        {"Name": "first", "Queues": [{"Name": "q"}]},
        {"Name": "Orders", "Profile": "premium", "Port": 0, "Queues": [{"Name": "q"}, {"Name": "only"}]},
    ]
    file = tmp_path / "Config.json"
    file.write_text(json.dumps({"UserConfig": {"Namespaces": [*own, *more]}}))
    return file


@pytest.fixture(name="server")
def server_of_two(tmp_path: Path) -> Iterator[EmubusServer]:
    with EmubusServer(config_file=config_of(tmp_path)) as server:
        yield server


def namespaces(server: EmubusServer) -> NamespacesPort:
    return server.server.namespaces


def client(host: str, port: int, key: str = KEY) -> ServiceBusClient:
    text = f"Endpoint=sb://{host}:{port};{key};UseDevelopmentEmulator=true;"
    return ServiceBusClient.from_connection_string(text, retry_total=0)


def send(host: str, port: int, text: str, queue: str = "q", key: str = KEY) -> None:
    with client(host, port, key) as bus, bus.get_queue_sender(queue) as sender:
        sender.send_messages(ServiceBusMessage(text))


def texts_in(server: EmubusServer, name: str, queue: str = "q") -> list[str]:
    """The bodies in a queue of a namespace, over HTTP."""
    answer = asked(server, f"/emubus/v1/entities/{queue}/messages?sub_queue=active", f"{name}.localhost")
    found = json.loads(answer[1])
    return [each["body"]["text"] if isinstance(each["body"], dict) else each["body"] for each in found["messages"]]


def asked(
    server: EmubusServer, path: str, host: str, method: str = "GET", port: int = 0, **headers: str
) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port or server.http_port)
    connection.request(method, path, headers={"Host": host, **headers})
    answer = connection.getresponse()
    body = answer.read().decode()
    connection.close()
    return answer.status, body


def name_of(server: EmubusServer, host: str, port: int = 0) -> str:
    """The name of the namespace that HTTP reaches."""
    return str(json.loads(asked(server, "/emubus/v1/about", host, port=port)[1])["namespace"])


# ---- which one is reached


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("localhost", "first"),
        ("127.0.0.1", "first"),
        ("servicebus-emulator", "first"),
        ("emubus.example.com", "first"),
        ("first.localhost", "first"),
        ("orders.localhost", "Orders"),
        ("ORDERS.servicebus.windows.net", "Orders"),
        ("orders", "Orders"),
        ("orders.example.com:5300", "Orders"),
        ("orders.localhost.", "Orders"),
    ],
)
def test_http_reaches_the_namespace_that_the_host_header_names(server: EmubusServer, host: str, expected: str) -> None:
    assert name_of(server, host) == expected


def test_amqp_reaches_the_namespace_that_the_open_names(server: EmubusServer) -> None:
    send("localhost", server.amqp_port, "for the first")
    send("orders.localhost", server.amqp_port, "for orders")
    send("orders.servicebus.windows.net", server.amqp_port, "only there", "only")
    assert namespaces(server).get("orders").is_open
    with client("orders.localhost", server.amqp_port) as bus, bus.get_queue_receiver("q") as receiver:
        assert [str(each) for each in receiver.receive_messages(5, max_wait_time=WAIT_S)] == ["for orders"]
    with client("localhost", server.amqp_port) as bus, bus.get_queue_receiver("q") as receiver:
        assert [str(each) for each in receiver.receive_messages(5, max_wait_time=WAIT_S)] == ["for the first"]


def test_a_websocket_reaches_the_namespace_that_its_open_names(tmp_path: Path) -> None:
    with EmubusServer(config_file=config_of(tmp_path), tls_dir=tmp_path) as server:
        bus = ServiceBusClient.from_connection_string(
            f"Endpoint=sb://orders.servicebus.windows.net;{KEY}",
            retry_total=0,
            transport_type=TransportType.AmqpOverWebsocket,
            custom_endpoint_address=f"sb://localhost:{server.http_port}",
            connection_verify=str(server.ca_file),
        )
        with bus, bus.get_queue_sender("only") as sender:
            sender.send_messages(ServiceBusMessage("over a WebSocket"))


def test_a_port_of_its_own_means_the_namespace_by_every_address(server: EmubusServer) -> None:
    port = namespaces(server).get("Orders").port
    assert port is not None
    assert name_of(server, "localhost", port) == "Orders"
    send("127.0.0.1", port, "over its port", "only")
    assert name_of(server, "first.localhost", port) == "first", "a name says more than a port"


def test_the_name_of_no_namespace_is_refused_once_there_are_several(server: EmubusServer) -> None:
    for host in ("oders.localhost", "oders.servicebus.windows.net"):
        with pytest.raises(ServiceBusError, match="Namespace cannot be resolved 'sb://oders"):
            send(host, server.amqp_port, "lost")
        status, body = asked(server, "/$namespaceinfo", host)
        assert status == 404
        assert "Namespace cannot be resolved" in body


def test_every_name_means_a_namespace_that_is_alone() -> None:
    with EmubusServer([QueueDescription("q")]) as server:
        send("company.servicebus.windows.net", server.amqp_port, "as ever")
        assert name_of(server, "company.localhost") == "sbemulatorns"


def test_the_name_that_tls_is_told_means_a_namespace(tmp_path: Path) -> None:
    with EmubusServer(config_file=config_of(tmp_path), tls_dir=tmp_path) as server:
        bus = ServiceBusClient(
            "company.servicebus.windows.net",
            Anyone(),
            custom_endpoint_address=f"sb://orders.servicebus.windows.net:{server.amqp_port}",
            connection_verify=str(server.ca_file),  # it may try again: its handshake has a limit of time
        )
        with bus, bus.get_queue_sender("only") as sender:
            sender.send_messages(ServiceBusMessage("by SNI"))


class Anyone:
    """A credential whose token nobody verifies."""

    def get_token(self, *scopes: str, **more: object) -> AccessToken:
        del scopes, more
        return AccessToken("anyone", 4_000_000_000)


# ---- what stays within one


def test_a_token_for_another_namespace_opens_nothing_though_the_key_is_the_same(tmp_path: Path) -> None:
    with EmubusServer(config_file=config_of(tmp_path), auth=Auth.SAS) as server:
        for name, queue in (("orders", "only"), ("first", "q")):
            other = "first" if name == "orders" else "orders"
            good, bad = (
                asked(server, f"/{queue}", f"{name}.localhost", Authorization=sas(f"http://{of}.localhost/{queue}"))
                for of in (name, other)
            )
            assert good[0] == 200
            assert bad[0] == 401
            assert "InvalidAudience" in bad[1]
        assert asked(server, "/q", "localhost", Authorization=sas("http://localhost/q"))[0] == 200


def test_a_token_of_an_identity_is_for_the_namespace_that_gave_it(tmp_path: Path) -> None:
    resource = quote("https://servicebus.azure.net", safe="")
    with EmubusServer(config_file=config_of(tmp_path), auth=Auth.SAS) as server:
        hosts = ("first.localhost", "orders.localhost")
        path = f"/metadata/identity/oauth2/token?resource={resource}"
        tokens = {host: json.loads(asked(server, path, host, Metadata="true")[1])["access_token"] for host in hosts}
        for given, token in tokens.items():
            for host in hosts:
                status, body = asked(server, "/q", host, Authorization=f"Bearer {token}")
                assert status == (200 if host == given else 401), body
                assert status == 200 or "InvalidIssuer" in body


def sas(resource: str) -> str:
    encoded = quote(resource, safe="")
    signature = quote(sign(encoded, "4000000000", "SAS_KEY_VALUE"), safe="")
    return f"SharedAccessSignature sr={encoded}&sig={signature}&se=4000000000&skn=RootManageSharedAccessKey"


def test_a_target_in_another_namespace_is_refused(server: EmubusServer) -> None:
    for target, names in (("sb://orders.localhost/q", "another"), ("sb://first.localhost/q", "own")):
        queue = QueueDescription(f"to-{names}", forward_to=target)
        if names == "another":
            with pytest.raises(BrokerError, match="sb://orders"):
                server.create(queue)
        else:
            server.create(queue)


def test_messages_of_one_are_not_seen_in_another(server: EmubusServer) -> None:
    send("orders.localhost", server.amqp_port, "for orders")
    assert texts_in(server, "first") == []
    assert len(texts_in(server, "orders")) == 1


# ---- made and deleted while the server runs


def test_a_namespace_is_made_used_and_deleted_with_its_connections(server: EmubusServer) -> None:
    found = server.call(lambda: namespaces(server).create("late", Profile.PREMIUM, port=0))
    assert (found.name, found.profile, found.is_open) == ("late", Profile.PREMIUM, False)
    services = server.run(namespaces(server).open("late"))
    server.call(lambda: services.broker.administration.create(QueueDescription("q")))
    with client("late.localhost", server.amqp_port) as bus, bus.get_queue_sender("q") as sender:
        sender.send_messages(ServiceBusMessage("one"))
        server.run(namespaces(server).delete("late"))
        with pytest.raises(ServiceBusError):
            sender.send_messages(ServiceBusMessage("two"))
    with pytest.raises((ServiceBusCommunicationError, ServiceBusConnectionError), match="Namespace cannot be resolved"):
        send("late.localhost", server.amqp_port, "three")
    with pytest.raises(OSError):  # noqa: PT011 - its port is closed
        asked(server, "/health", "localhost", port=found.port or 0)
    again = server.call(lambda: namespaces(server).create("late"))
    assert again.profile is Profile.STANDARD
    assert asked(server, "/q", "late.localhost")[0] in (200, 404)
    assert name_of(server, "late.localhost") == "late"


@pytest.mark.parametrize(
    ("name", "more", "condition"),
    [
        ("orders", {}, Condition.ENTITY_ALREADY_EXISTS),
        ("FIRST", {}, Condition.ENTITY_ALREADY_EXISTS),
        ("../x", {}, Condition.ARGUMENT_ERROR),
        ("localhost", {}, Condition.ARGUMENT_ERROR),
        ("a.b", {}, Condition.ARGUMENT_ERROR),
        ("", {}, Condition.ARGUMENT_ERROR),
        ("n" * 51, {}, Condition.ARGUMENT_ERROR),
        ("x", {"premium_partitions": 2}, Condition.ARGUMENT_ERROR),
    ],
)
def test_what_can_not_be_made_is_refused_and_changes_nothing(
    server: EmubusServer, name: str, more: dict[str, int], condition: Condition
) -> None:
    before = namespaces(server).list()
    with pytest.raises(BrokerError) as refused:
        server.call(lambda: namespaces(server).create(name, **more))  # type: ignore[arg-type] # a row's
    assert refused.value.condition is condition
    assert namespaces(server).list() == before


def test_a_port_that_is_taken_makes_no_namespace(server: EmubusServer) -> None:
    with pytest.raises(BrokerError, match=f"can't listen on .* port {server.amqp_port}"):
        server.call(lambda: namespaces(server).create("late", port=server.amqp_port))
    assert [each.name for each in namespaces(server).list()] == ["first", "Orders"]


def test_the_first_and_what_is_not_there_can_not_be_deleted(server: EmubusServer) -> None:
    for name, condition in (("first", Condition.NOT_ALLOWED), ("nobody", Condition.NOT_FOUND)):
        with pytest.raises(BrokerError) as refused:
            server.run(namespaces(server).delete(name))
        assert refused.value.condition is condition


# ---- opened while others are served

DISK_S = 0.05
"""How long opening takes, where nothing else says when it ends; nothing depends on it."""


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """A disk that opens no files until it is set, but for those of the first namespace."""
    goes_on, open_files = threading.Event(), HostedNamespace.open_files

    def late(self: HostedNamespace) -> None:
        if self.name != "first":
            goes_on.wait()
        open_files(self)

    monkeypatch.setattr(HostedNamespace, "open_files", late)
    yield goes_on
    goes_on.set()


@pytest.mark.parametrize("reach", ["name", "port"])
def test_others_are_served_while_a_namespace_is_opened(server: EmubusServer, disk: threading.Event, reach: str) -> None:
    port = namespaces(server).get("orders").port
    assert port is not None
    where = ("orders.localhost", server.amqp_port) if reach == "name" else ("127.0.0.1", port)
    with ThreadPoolExecutor() as clients:
        over_amqp = clients.submit(send, *where, "for orders", "only")
        over_http = clients.submit(name_of, server, *where)
        send("localhost", server.amqp_port, "for the first")
        assert texts_in(server, "first") == ["for the first"]
        assert not namespaces(server).get("orders").is_open
        assert not over_amqp.done()
        disk.set()
        assert over_http.result() == "Orders"
        over_amqp.result()
    assert texts_in(server, "orders", "only") == ["for orders"]


def test_a_namespace_is_deleted_while_it_is_opened(server: EmubusServer, disk: threading.Event) -> None:
    with ThreadPoolExecutor() as clients:
        over_amqp = clients.submit(send, "orders.localhost", server.amqp_port, "lost", "only")
        while not server.call(lambda: bool(server.server.namespaces._openings)):
            pass
        deleted = clients.submit(server.run, namespaces(server).delete("orders"))
        while len(server.call(namespaces(server).list)) > 1:
            pass
        disk.set()
        deleted.result()
        with pytest.raises(ServiceBusError):
            over_amqp.result()
    assert [each.name for each in namespaces(server).list()] == ["first"]


async def test_a_stop_waits_for_a_namespace_that_is_being_opened(disk: threading.Event) -> None:
    server = Server(load_config({"durability": "none", "amqp_port": "0", "http_port": "0", "namespace": "first,b"}, {}))
    await server.start()
    opening = asyncio.create_task(server.namespaces.open("b"))
    stopping = asyncio.create_task(server.stop())
    asyncio.get_running_loop().call_later(DISK_S, disk.set)
    await stopping
    await opening
    assert server.namespaces.get("b").is_open, "closed, and not half open"


# ---- over a restart


def test_namespaces_and_their_messages_outlast_a_restart_and_deleted_ones_do_not(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with EmubusServer([QueueDescription("q")], data_dir=data) as server:
        assert not (data / "namespaces.json").exists(), "nothing is kept of a namespace that is alone"
        for name in ("kept", "gone"):
            server.call(partial(namespaces(server).create, name))
            services = server.run(namespaces(server).open(name))
            server.call(partial(services.broker.administration.create, QueueDescription("q")))
            send(f"{name}.localhost", server.amqp_port, f"for {name}")
        server.run(namespaces(server).delete("gone"))
        assert not (data / "namespaces" / "gone").exists()
    with EmubusServer([QueueDescription("q")], data_dir=data) as server:
        assert [(each.name, each.is_open) for each in namespaces(server).list()] == [
            ("sbemulatorns", True),
            ("kept", False),
        ]
        assert len(texts_in(server, "kept")) == 1


async def test_another_first_namespace_than_before_is_refused(tmp_path: Path) -> None:
    texts = {"data": str(tmp_path / "data"), "amqp_port": "0", "http_port": "0", "namespace": "a,b"}
    server = Server(load_config(texts, {}))
    await server.start()
    await server.stop()
    with pytest.raises(StartError, match=r"the first namespace is 'b', .* is that of 'a'") as refused:
        await Server(load_config({**texts, "namespace": "b,a"}, {})).start()
    assert refused.value.exit_code == 2
    again = Server(load_config({**texts, "namespace": "a"}, {}))
    await again.start()
    assert [each.name for each in again.namespaces.list()] == ["a", "b"]
    await again.stop()
    fresh = Server(load_config({**texts, "namespace": "b", "fresh": "yes"}, {}))
    await fresh.start()
    assert [each.name for each in fresh.namespaces.list()] == ["b"]
    await fresh.stop()


async def test_a_damaged_folder_is_named_and_harms_no_other_namespace(tmp_path: Path) -> None:
    data = tmp_path / "data"
    texts = {"data": str(data), "amqp_port": "0", "http_port": "0", "namespace": "a,b"}
    (data / "namespaces" / "b").mkdir(parents=True)
    (data / "namespaces" / "b" / "notes.txt").write_text("not ours")
    server = Server(load_config(texts, {}))
    with pytest.raises(StartError, match="is not empty"):  # `data` itself has only foreign content yet
        await server.start()
    (data / "namespaces" / "b" / "notes.txt").rename(tmp_path / "notes.txt")
    (data / "namespaces" / "b").rmdir()
    (data / "namespaces").rmdir()
    server = Server(load_config(texts, {}))
    await server.start()
    (data / "namespaces" / "b").mkdir(parents=True)
    (tmp_path / "notes.txt").rename(data / "namespaces" / "b" / "notes.txt")
    with pytest.raises(BrokerError, match=r"The namespace 'b' can't be opened: .*notes\.txt"):
        await server.namespaces.open("b")
    assert (await server.namespaces.open("a")).is_ready()
    (data / "namespaces" / "b" / "notes.txt").unlink()
    assert (await server.namespaces.open("b")).broker.name == "b"
    await server.stop()


# ---- the command line


def test_the_command_line_names_the_first_and_others() -> None:
    config = load_config({"namespace": "a,b:premium@5673,c@0"}, {})
    assert config.topology.namespace == "a"
    assert [each.name for each in config.topology.queues] == ["queue.1"]
    found = [(each.name, each.limits.profile, each.port) for each in config.more_namespaces]
    assert found == [("b", Profile.PREMIUM, 5673), ("c", Profile.STANDARD, 0)]


def test_the_command_line_adds_to_a_file(tmp_path: Path) -> None:
    config = load_config({"config": str(config_of(tmp_path)), "namespace": "more"}, {})
    assert (config.topology.namespace, [each.name for each in config.more_namespaces]) == ("first", ["Orders", "more"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a,a", "each name once"),
        ("a:gold", "allowed is NAME, NAME:PROFILE, NAME@PORT or NAME:PROFILE@PORT with standard, premium"),
        ("a@70000", "with 0 to 65535"),
        ("a_b", "can't be the name of a namespace"),
        ("a@1,b", "leave out @1"),
    ],
)
def test_what_the_command_line_can_not_use_is_named(text: str, expected: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config({"namespace": text}, {})
    assert expected in str(refused.value)
    assert "\n" not in str(refused.value)


def test_plain_keys_open_the_namespace_that_the_open_names(tmp_path: Path) -> None:
    own = [{"KeyName": "k", "Rights": ["Manage"], "PrimaryKey": "of-third"}]
    file = config_of(tmp_path, {"Name": "third", "AuthorizationRules": own, "Queues": [{"Name": "q"}]})
    with EmubusServer(config_file=file, auth=Auth.SAS) as server:
        basic = base64.b64encode(b"k:of-third").decode()
        for name, status in (("third", 200), ("first", 401)):
            found = asked(server, "/emubus/v1/about", f"{name}.localhost", Authorization=f"Basic {basic}")
            assert found[0] == status
        key = "SharedAccessKeyName=k;SharedAccessKey=of-third"
        send("third.localhost", server.amqp_port, "with its key", key=key)
        with pytest.raises(ServiceBusError):
            send("first.localhost", server.amqp_port, "with the key of another", key=key)


# ---- the control API, the page, the metrics, the command line


def called(
    server: EmubusServer, method: str, path: str, body: object = None, host: str = "localhost"
) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port)
    data = None if body is None else json.dumps(body)
    connection.request(method, f"/emubus/v1{path}", data, {"Content-Type": "application/json", "Host": host})
    answer = connection.getresponse()
    found = answer.status, json.loads(answer.read())
    connection.close()
    return found


def test_the_control_api_makes_shows_and_deletes_namespaces(server: EmubusServer) -> None:
    status, made = called(server, "PUT", "/namespaces/late", {"profile": "relaxed", "port": 0})
    assert (status, made["host"], made["profile"], made["is_open"]) == (201, "late.localhost", "relaxed", False)
    names = [each["name"] for each in called(server, "GET", "/namespaces")[1]["namespaces"]]
    assert names == ["first", "Orders", "late"]
    assert called(server, "GET", "/namespaces/LATE")[1] == made, "a look opens nothing"
    assert called(server, "PUT", "/namespaces/late", {})[0] == 409
    assert called(server, "PUT", "/namespaces/x", {"profile": "gold"})[0] == 400
    assert called(server, "PUT", "/namespaces/x", {"port": server.amqp_port})[0] == 409
    assert called(server, "DELETE", "/namespaces/late")[0] == 200
    assert called(server, "GET", "/namespaces/late")[0] == 404
    assert called(server, "DELETE", "/namespaces/first")[0] == 409


def test_only_the_first_namespace_makes_and_deletes_others(server: EmubusServer) -> None:
    for method, body in (("PUT", {}), ("DELETE", None)):
        status, found = called(server, method, "/namespaces/first", body, "orders.localhost")
        assert (status, "Ask the first namespace, first" in str(found)) == (409, True)


def test_the_page_of_each_namespace_leads_to_the_others(server: EmubusServer) -> None:
    own, port = asked(server, "/", "localhost", Accept="text/html")[1], namespaces(server).get("orders").port
    assert f'<a href="http://localhost:{port}/">Orders</a>' in own
    other = asked(server, "/", f"orders.localhost:{server.http_port}", Accept="text/html")[1]
    assert f'<a href="http://first.localhost:{server.http_port}/">first</a>' in other
    assert '<span class="namespace-name" title="Namespace">Orders</span>' in other


def test_metrics_of_several_namespaces_are_labelled_each_with_its_own(server: EmubusServer) -> None:
    for host, name in (("localhost", "first"), ("orders.localhost", "Orders")):
        lines = [each for each in asked(server, "/metrics", host)[1].splitlines() if each.startswith("emubus_")]
        assert lines
        assert all(f'namespace="{name}"' in each for each in lines)


def test_metrics_of_a_namespace_alone_have_no_label_more() -> None:
    with EmubusServer() as server:
        assert 'namespace="' not in asked(server, "/metrics", "localhost")[1]


def test_the_command_line_makes_uses_and_deletes_a_namespace(
    server: EmubusServer, capsys: pytest.CaptureFixture[str]
) -> None:
    url = ["--url", f"http://127.0.0.1:{server.http_port}"]

    def done(*arguments: str) -> str:
        assert main([*arguments, *url]) == 0
        return capsys.readouterr().out

    assert "created late: late.localhost" in done("namespace", "create", "late", "--profile", "premium")
    done("create", "queue", "only-late", "--namespace", "late")
    assert "only-late" in done("ls", "--namespace", "late")
    assert "only-late" not in done("ls")
    assert "late.localhost" in done("namespace")
    assert "sb://late.localhost:" in done("connection-string", "--namespace", "late")
    assert "deleted late" in done("namespace", "delete", "late")
    assert main(["ls", "--namespace", "late", *url]) == 1
    assert "there is no namespace 'late'" in capsys.readouterr().err


def test_import_creates_and_sends_in_a_namespace(server: EmubusServer, capsys: pytest.CaptureFixture[str]) -> None:
    server.create_queue("moved")
    send("localhost", server.amqp_port, "to move", "moved")
    url, source = f"http://127.0.0.1:{server.http_port}", server.connection_string
    assert main(["import", "--namespace", source, "--messages", "--into", "orders", "--url", url]) == 0
    assert "copied 1 messages of moved" in capsys.readouterr().out
    assert texts_in(server, "orders", "moved") == ["to move"]


def test_commands_without_a_server_find_the_folders_of_namespaces(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    with EmubusServer([QueueDescription("q")], data_dir=data, namespaces={"Orders": [QueueDescription("only")]}) as own:
        own.namespace("orders")
    assert main(["check", str(data)]) == 0
    shown = capsys.readouterr().out
    assert f"{data}: 16 messaging stores, 1 entities" in shown
    assert f"{data / 'namespaces' / 'orders'}: 16 messaging stores, 1 entities" in shown
    assert main(["route", "only", "--key", "k", "--data", str(data), "--namespace", "Orders"]) == 0
    assert "only: partition 0 of 1" in capsys.readouterr().out
    (data / "namespaces" / "orders" / "emubus.json").write_text("{")
    assert main(["check", str(data)]) == 1
    assert "PROBLEM" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["create"], "need the NAME"),
        (["list", "x"], "list has none"),
        (["create", "../x"], "can't be the name of a namespace"),
        (["create", "x", "--port", "70000"], "--port is '70000'; allowed is 0 to 65535"),
        (["delete", "x", "--port", "1"], "go with create, not with delete"),
    ],
)
def test_what_the_command_can_not_use_is_named(
    arguments: list[str],
    expected: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))  # without the servers that run on this machine
    assert main(["namespace", *arguments]) == 2
    assert expected in capsys.readouterr().err
