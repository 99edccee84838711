"""Several namespaces by the kit: its verbs on one of them, which the others do not notice."""

from __future__ import annotations

import http.client
from collections.abc import Callable, Iterator

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from emubus.testing import (
    BrokerError,
    Condition,
    ConfigError,
    Emubus,
    EmubusServer,
    FaultKind,
    FaultOperation,
    OutageKind,
    QueueDescription,
    RemoteEmubus,
)

STORES = tuple(range(16))
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def server() -> Iterator[EmubusServer]:
    with EmubusServer([QueueDescription("q")], namespaces={"orders": [QueueDescription("q")]}) as running:
        yield running


@pytest.fixture(params=["in the process", "over HTTP"])
def pair(request: pytest.FixtureRequest, server: EmubusServer) -> tuple[Emubus, Emubus]:
    """The first namespace, and another one that a test does something to."""
    url = f"http://localhost:{server.http_port}"
    remote = request.param == "over HTTP"
    first, orders = (
        (RemoteEmubus(url), RemoteEmubus(url, namespace="orders")) if remote else (server, server.namespace("orders"))
    )
    for each in (first, orders):
        each.reset()
    return first, orders


def send(emubus: Emubus, text: str) -> None:
    with (
        ServiceBusClient.from_connection_string(emubus.connection_string, retry_total=0) as client,
        client.get_queue_sender("q") as sender,
    ):
        sender.send_messages(ServiceBusMessage(text))


def texts(emubus: Emubus) -> list[str | None]:
    return [each.text for each in emubus.peek("q")]


Act = Callable[[Emubus], object]

FAILS: dict[str, tuple[Act, Act]] = {
    "an outage": (
        lambda orders: orders.begin_outage(STORES, OutageKind.DOWN),
        lambda orders: orders.end_outage(STORES),
    ),
    "a fault": (
        lambda orders: orders.add_fault(FaultKind.SERVER_BUSY, operations=[FaultOperation.SEND]),
        lambda orders: orders.clear_faults(),
    ),
    "a condition": (
        lambda orders: orders.start_condition("attach-refused"),
        lambda orders: orders.end_conditions(),
    ),
}
"""What makes a send fail, and what ends it."""


@pytest.mark.parametrize("name", FAILS)
def test_what_fails_in_one_works_in_the_other(pair: tuple[Emubus, Emubus], name: str) -> None:
    first, orders = pair
    begin, end = FAILS[name]
    begin(orders)
    with pytest.raises(ServiceBusError):
        send(orders, "fails")
    send(first, "works")
    end(orders)
    send(orders, "works again")
    assert (texts(first), texts(orders)) == (["works"], ["works again"])


def test_each_has_a_clock_of_its_own(pair: tuple[Emubus, Emubus]) -> None:
    first, orders = pair
    for each in pair:
        each.update(QueueDescription("q", default_ttl_ms=HOUR_MS))
        send(each, "for an hour")
    before = first.now_ms()
    orders.advance(2 * HOUR_MS)
    orders.freeze()
    assert orders.now_ms() >= before + 2 * HOUR_MS
    assert first.now_ms() < before + HOUR_MS
    assert (texts(first), texts(orders)) == (["for an hour"], [])
    orders.thaw()


def test_a_snapshot_is_of_one_and_restores_one(pair: tuple[Emubus, Emubus], request: pytest.FixtureRequest) -> None:
    first, orders = pair
    name = "remote" if "HTTP" in request.node.name else "local"
    send(orders, "kept")
    orders.snapshot(name)
    with pytest.raises(BrokerError) as refused:
        first.restore(name)
    assert refused.value.condition is Condition.NOT_FOUND
    send(first, "stays")
    orders.purge()
    orders.restore(name)
    assert (texts(first), texts(orders)) == (["stays"], ["kept"])


def test_entities_roles_and_connections_are_those_of_one(pair: tuple[Emubus, Emubus]) -> None:
    first, orders = pair
    orders.create_queue("only")
    orders.assign_role("app", "sender", "only")
    assert [each.role.short for each in orders.roles()] == ["sender"]
    assert list(first.roles()) == []
    with pytest.raises(BrokerError) as refused:
        first.message_counts("only")
    assert refused.value.condition is Condition.NOT_FOUND
    with (
        ServiceBusClient.from_connection_string(first.connection_string) as client,
        client.get_queue_sender("q") as sender,
    ):
        sender.send_messages(ServiceBusMessage("before"))
        assert orders.drop_connections() == 0
        sender.send_messages(ServiceBusMessage("over the same connection"))
    orders.remove_role("app", "sender", "only")


def test_metrics_count_the_messages_of_one(server: EmubusServer, pair: tuple[Emubus, Emubus]) -> None:
    _, orders = pair
    send(orders, "one")
    found = {}
    for host in ("localhost", "orders.localhost"):
        connection = http.client.HTTPConnection("127.0.0.1", server.http_port)
        connection.request("GET", "/metrics", headers={"Host": host})
        lines = connection.getresponse().read().decode().splitlines()
        connection.close()
        counted = [each for each in lines if each.startswith("emubus_messages{") and 'state="active"' in each]
        found[host] = sum(float(each.rpartition(" ")[2]) for each in counted)
    assert found == {"localhost": 0, "orders.localhost": 1}


def test_a_namespace_that_is_not_there_is_named(server: EmubusServer) -> None:
    remote = RemoteEmubus(f"http://localhost:{server.http_port}")
    assert remote.namespace("orders").message_counts("q")["active"] >= 0
    words = "There is no namespace 'oders'; there is sbemulatorns, orders"
    for find in (server.namespace, remote.namespace, lambda name: RemoteEmubus(remote.url, namespace=name)):
        with pytest.raises(BrokerError, match=words) as refused:
            find("oders")
        assert refused.value.condition is Condition.NOT_FOUND
    with pytest.raises(BrokerError, match="can't be the name of a namespace"):
        RemoteEmubus(remote.url, namespace="a/b")


def test_a_name_that_is_not_that_of_the_only_namespace_is_refused_though_each_host_means_it() -> None:
    with EmubusServer() as only, pytest.raises(BrokerError, match="'oders'; there is sbemulatorns"):
        RemoteEmubus(f"http://localhost:{only.http_port}", namespace="oders")


@pytest.mark.parametrize(
    ("names", "error", "words"),
    [
        (["sbemulatorns"], ConfigError, "'sbemulatorns', which is there already"),
        (["a", "A"], ConfigError, "'A', which is there already"),
        (["a b"], BrokerError, "can't be the name of a namespace"),
    ],
)
def test_names_that_can_not_be_used_start_no_server(names: list[str], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        EmubusServer(namespaces={each: [] for each in names})
