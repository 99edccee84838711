"""The same verbs on the server in the test process and on one that runs as a process of its own."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiveMode
from azure.servicebus.aio import ServiceBusClient as AsyncClient
from azure.servicebus.exceptions import ServiceBusError

from emubus.broker.clock import Clock
from emubus.broker.model.descriptions import DEFAULT_RULES
from emubus.kit.values import in_ms
from emubus.testing import (
    Auth,
    AuthorizationRule,
    BrokerError,
    Condition,
    CorrelationFilter,
    Description,
    Emubus,
    EmubusServer,
    EntityStatus,
    FaultKind,
    FaultOperation,
    ManualClock,
    OutageKind,
    Profile,
    QueueDescription,
    RemoteEmubus,
    Right,
    Role,
    RoleAssignment,
    RuleDescription,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
)

from .running import Served, serving

PARTS = "parts"
WAIT_S = 20
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def servers() -> Iterator[EmubusServer]:
    with EmubusServer([QueueDescription(PARTS, enable_partitioning=True)]) as server:
        yield server


@pytest.fixture(params=["in the process", "over HTTP"])
def broker(request: pytest.FixtureRequest, servers: EmubusServer) -> Emubus:
    """The verbs, done here and done over HTTP: a function that takes an `Emubus` takes both."""
    servers.reset()
    here: Emubus = servers
    there: Emubus = RemoteEmubus(f"http://localhost:{servers.http_port}")
    return here if request.param == "in the process" else there


@pytest.fixture
def client(servers: EmubusServer) -> Iterator[ServiceBusClient]:
    with ServiceBusClient.from_connection_string(servers.connection_string, retry_total=0) as client:
        yield client


def described(server: EmubusServer, path: str) -> Description:
    return server.call(lambda: server.server.broker.namespace.find(path)[0].description)


RULES = (
    RuleDescription("first", SqlFilter("a > @limit", {"@limit": 3}), "SET b = '<&>'"),
    RuleDescription("second", CorrelationFilter(label="x", properties={"n": 1, "t": True, "f": 1.5})),
)
DESCRIPTIONS: tuple[Description, ...] = (
    QueueDescription("plain"),
    QueueDescription(
        "all/of-it",
        enable_partitioning=True,
        lock_duration_ms=30_500,
        max_delivery_count=7,
        default_ttl_ms=HOUR_MS,
        dead_letter_on_expiration=True,
        max_size_mb=2048,
        max_message_bytes=256 << 10,
        requires_session=True,
        requires_duplicate_detection=True,
        duplicate_window_ms=25_000,
        forward_dead_letters_to=PARTS,
        auto_delete_on_idle_ms=HOUR_MS,
        status=EntityStatus.SEND_DISABLED,
        user_metadata='é <&> "\n.',
        enable_batched_operations=False,
        authorization_rules=(AuthorizationRule("a", (Right.SEND, Right.LISTEN), "k1", "k2"),),
    ),
    TopicDescription("prices", default_ttl_ms=HOUR_MS, max_size_mb=3072, support_ordering=False, enable_express=True),
    SubscriptionDescription("prices", "all"),
    SubscriptionDescription("prices", "none", rules=()),
    SubscriptionDescription("prices", "some", max_delivery_count=2, requires_session=True, rules=RULES),
)


def test_entities_are_as_they_were_described(broker: Emubus, servers: EmubusServer) -> None:
    for description in DESCRIPTIONS:
        broker.create(description)
    paths = ["plain", "all/of-it", "prices", *(f"prices/Subscriptions/{name}" for name in ("all", "none", "some"))]
    assert [described(servers, path) for path in paths] == list(DESCRIPTIONS)


def test_entities_change_and_go(broker: Emubus, servers: EmubusServer) -> None:
    broker.create_topic("prices")
    broker.create_subscription(SubscriptionDescription("prices", "s", rules=RULES))
    changed = SubscriptionDescription("prices", "s", lock_duration_ms=5_000, rules=(*DEFAULT_RULES, RULES[1]))
    broker.update(changed)
    found = described(servers, "prices/Subscriptions/s")
    assert isinstance(found, SubscriptionDescription)
    assert found.lock_duration_ms == 5_000
    assert {rule.name: rule for rule in found.rules} == {rule.name: rule for rule in changed.rules}
    broker.delete("prices")
    for path in ("prices", "prices/Subscriptions/s"):
        with pytest.raises(BrokerError) as refused:
            broker.message_counts(path)
        assert refused.value.condition is Condition.NOT_FOUND


@pytest.mark.parametrize("remote", [False, True])
def test_of_an_entity_that_is_only_named_the_profile_decides_the_rest(remote: bool) -> None:
    with EmubusServer(profile=Profile.MS_EMULATOR) as server:
        broker: Emubus = RemoteEmubus(f"http://localhost:{server.http_port}") if remote else server
        broker.create_queue("q")
        broker.create_topic("t")
        queue = described(server, "q")
        assert isinstance(queue, QueueDescription)
        assert (queue.max_delivery_count, queue.default_ttl_ms) == (3, HOUR_MS)
        assert described(server, "t").default_ttl_ms == HOUR_MS


def test_what_is_refused_is_reported_in_the_same_words(broker: Emubus) -> None:
    broker.create_queue("q")
    for wrong, words in (
        (QueueDescription("q"), r"already exists|Conflict\. You're requesting"),
        (QueueDescription("p", lock_duration_ms=1), r": LockDuration is PT0.001S; allowed is PT5S to PT5M\.?"),
        (SubscriptionDescription("nowhere", "s"), "nowhere"),
    ):
        with pytest.raises(BrokerError, match=words):
            broker.create(wrong)
    with pytest.raises(BrokerError) as refused:
        broker.peek("q", "nothing")
    assert refused.value.condition is Condition.ARGUMENT_ERROR


def test_messages_are_seen_where_they_are(broker: Emubus, client: ServiceBusClient) -> None:
    count = 260  # more than a page
    with client.get_queue_sender(PARTS) as sender:
        sender.send_messages([ServiceBusMessage(str(number), partition_key="k") for number in range(count)])
        sender.send_messages(ServiceBusMessage(b"\xff", message_id="m", application_properties={"n": 1}))
    with client.get_queue_receiver(PARTS) as receiver:
        receiver.dead_letter_message(receiver.receive_messages(max_wait_time=WAIT_S)[0], reason="bad")
    seen = [*broker.peek(PARTS), *broker.peek(PARTS, "dead-letter")]
    assert sorted(str(each.text) for each in seen) == sorted(["None", *map(str, range(count))])
    (binary,) = (each for each in seen if each.text is None)
    assert (binary.message_id, binary.application_properties["n"], binary.body["base64"]) == ("m", 1, "/w==")
    counts = broker.message_counts(PARTS)
    assert {name: number for name, number in counts.items() if number} == {"active": count, "dead-letter": 1}
    assert broker.route(PARTS, key="k").partition_id == next(each for each in seen if each.text).partition_id
    assert broker.route(PARTS).partition_id is None
    assert (broker.purge(PARTS), broker.purge()) == (count + 1, 0)


def test_time_is_moved(broker: Emubus) -> None:
    machine = Clock()
    clock = ManualClock(broker)
    before = clock.now_ms
    clock.advance(timedelta(days=1, microseconds=1))
    assert clock.now_ms == before + 24 * HOUR_MS + 1
    broker.thaw()
    broker.advance(5)
    assert broker.now_ms() >= before + 24 * HOUR_MS + 6
    broker.reset()
    assert abs(broker.now_ms() - machine.now_ms()) < HOUR_MS
    assert in_ms(timedelta(microseconds=1)) == 1


def test_stores_fail_and_work_again(broker: Emubus, client: ServiceBusClient) -> None:
    route = broker.route(PARTS, key="k")
    assert route.store is not None
    message = ServiceBusMessage("x", partition_key="k")
    with client.get_queue_sender(PARTS) as sender:
        broker.begin_outage([route.store], OutageKind.FULL, duration_ms=60_000)
        assert broker.route(PARTS, key="k") == route  # full: it is there
        with pytest.raises(ServiceBusError):
            sender.send_messages(message)
        broker.advance(60_000)
        sender.send_messages(message)
        broker.begin_outage(range(16), OutageKind.DOWN)
        broker.end_outage(range(16))
        sender.send_messages(message)
    assert broker.message_counts(PARTS)["active"] == 2


def test_faults_strike_and_are_cleared(broker: Emubus, client: ServiceBusClient) -> None:
    fault = broker.add_fault(FaultKind.SERVER_BUSY, entity=PARTS, operations=[FaultOperation.SEND], count=1)
    assert (fault.kind, fault.entity, tuple(fault.operations), fault.left, fault.probability) == (
        FaultKind.SERVER_BUSY,
        PARTS,
        (FaultOperation.SEND,),
        1,
        1.0,
    )
    with client.get_queue_sender(PARTS) as sender:
        with pytest.raises(ServiceBusError):
            sender.send_messages(ServiceBusMessage("x"))
        broker.add_fault(FaultKind.DROPPED_LINK)
        assert (broker.clear_faults(), broker.clear_faults()) == (1, 0)
        sender.send_messages(ServiceBusMessage("x"))
        assert (broker.drop_links(PARTS), broker.drop_links("elsewhere")) == (1, 0)


def test_roles_are_assigned_and_taken_away(broker: Emubus) -> None:
    broker.create_queue("roles")
    broker.assign_role("Some-Id", "sender", "roles")
    broker.assign_role("some-id", Role.OWNER)
    wanted = [RoleAssignment.parse("some-id", "owner"), RoleAssignment.parse("some-id", "sender", "roles")]
    assert [each for each in broker.roles() if each.principal == "some-id"] == wanted
    broker.remove_role("some-id", "sender", "roles")
    broker.remove_role("some-id", "owner")
    with pytest.raises(BrokerError, match="'some-id' does not have the role Azure Service Bus Data Owner"):
        broker.remove_role("some-id", "owner")
    assert all(each.principal != "some-id" for each in broker.roles())
    broker.delete("roles")


def test_connections_are_cut(broker: Emubus, servers: EmubusServer) -> None:
    with socket.create_connection(("localhost", servers.amqp_port), timeout=WAIT_S) as peer:
        peer.sendall(b"AMQP\x03\x01\x00\x00")
        peer.recv(8)
        assert (broker.drop_connections("elsewhere"), broker.drop_connections()) == (0, 1)
        while peer.recv(1024):
            pass  # the mechanisms, and then the end


def test_snapshots_bring_everything_back(broker: Emubus, client: ServiceBusClient) -> None:
    with client.get_queue_sender(PARTS) as sender:
        sender.send_messages(ServiceBusMessage("x"))
    name = f"at-{broker.now_ms()}"
    assert broker.snapshot(name).message_count == 1
    assert broker.purge() == 1
    assert broker.restore(name).message_count == 1
    assert [each.text for each in broker.peek(PARTS)] == ["x"]


# ---- another process


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path, "--auth", "sas", "--sas-key", "s3/cr+t=") as served:
        yield served


async def test_a_process_that_verifies_keys_is_driven_with_one(process: Served) -> None:
    remote = RemoteEmubus(process.url, key="s3/cr+t=")
    assert remote.is_healthy
    remote.create_queue(QueueDescription("orders", lock_duration_ms=60_000))
    async with AsyncClient.from_connection_string(remote.connection_string) as client:
        async with client.get_queue_sender("orders") as sender:
            await sender.send_messages(ServiceBusMessage("x"))
        async with client.get_queue_receiver("orders") as receiver:
            await receiver.receive_messages(max_wait_time=WAIT_S)
            remote.advance(timedelta(minutes=1))
            (again,) = await receiver.receive_messages(max_wait_time=WAIT_S)
            assert again.delivery_count == 1
    remote.advance(timedelta(days=365))
    assert remote.purge() == 1  # its token is still good
    stranger = RemoteEmubus(process.url)
    for refused in (stranger.reset, lambda: stranger.create_queue("q")):
        with pytest.raises(BrokerError) as error:
            refused()
        assert error.value.condition is Condition.UNAUTHORIZED_ACCESS
    remote.reset()
    assert remote.message_counts("queue.1")["active"] == 0


def test_where_nobody_answers_is_reported(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        remote = RemoteEmubus(served.url + "/")
        assert remote.is_healthy
    assert not remote.is_healthy
    with pytest.raises(ConnectionError, match=f"no emubus answers at {served.url}: "):
        remote.reset()


@pytest.mark.parametrize("url", ["localhost:5300", "ftp://localhost:5300", "sb://localhost", "http://", "https://", ""])
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="it must look like http://localhost:5300"):
        RemoteEmubus(url)


def test_an_address_of_ipv6_is_written_in_brackets() -> None:
    assert RemoteEmubus("http://[::1]:5300").connection_string.startswith("Endpoint=sb://[::1]:5300;")


# ---- the server in the process


async def test_a_server_ends_with_an_async_block() -> None:
    async with (
        EmubusServer([QueueDescription("q")]) as server,
        AsyncClient.from_connection_string(server.connection_string) as client,
    ):
        async with client.get_queue_sender("q") as sender:
            await sender.send_messages(ServiceBusMessage("x"))
        async with client.get_queue_receiver("q", receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE) as receiver:
            assert [str(each) for each in await receiver.receive_messages(max_wait_time=WAIT_S)] == ["x"]
    assert not RemoteEmubus(f"http://localhost:{server.http_port}").is_healthy


def test_a_server_begins_with_all_kinds_of_entities_or_with_those_of_a_file(tmp_path: Path) -> None:
    with EmubusServer([SubscriptionDescription("t", "s"), TopicDescription("t"), QueueDescription("q")]) as server:
        assert sum(server.message_counts("t/Subscriptions/s").values()) == 0
        server.delete("q")
        server.reset()
        assert sum(server.message_counts("q").values()) == 0
    path = tmp_path / "Config.json"
    path.write_text('{"UserConfig": {"Namespaces": [{"Name": "sbemulatorns", "Queues": [{"Name": "f"}]}]}}')
    with EmubusServer(config_file=path, auth=Auth.SAS) as server:
        assert sum(server.message_counts("f").values()) == 0
    with pytest.raises(ValueError, match=r"give either entities or a config_file, not both; config_file is .*json"):
        EmubusServer([QueueDescription("q")], config_file=path)


def test_a_size_that_http_cannot_tell_is_refused() -> None:
    with pytest.raises(ValueError, match="max_message_bytes is 1000; it must be a multiple of 1024"):
        RemoteEmubus("http://localhost:1").create(QueueDescription("q", max_message_bytes=1000))
