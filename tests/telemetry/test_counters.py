"""The counters of entities equal what a run of the Python SDK did, outcome by outcome."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiveMode, ServiceBusSubQueue
from azure.servicebus.exceptions import ServiceBusError

from emubus.broker.model.descriptions import (
    FalseFilter,
    QueueDescription,
    RuleDescription,
    SubscriptionDescription,
    TopicDescription,
)
from emubus.conditions.faults import FaultKind, FaultOperation
from emubus.testing import EmubusServer

from ..http.control.client import Http
from ..http.control.conftest import sdk_of
from .run import Key, Run, counters

PLAIN, PARTS, SESSIONS = "plain", "parts", "sessions"
LOCK_MS = 60_000


@pytest.fixture(scope="module")
def server() -> Iterator[EmubusServer]:
    queues = (
        QueueDescription(PLAIN),
        QueueDescription(PARTS, enable_partitioning=True),
        QueueDescription(SESSIONS, enable_partitioning=True, requires_session=True),
    )
    with EmubusServer(queues) as running:
        yield running


@pytest.fixture
def control(server: EmubusServer) -> Http:
    return Http(server.http_port)


@pytest.fixture
def sdk(server: EmubusServer) -> Iterator[ServiceBusClient]:
    with sdk_of(server) as client:
        yield client


@pytest.fixture
def did(control: Http) -> Iterator[Counter[Key]]:
    """What the test does; at its end the counters say the same."""
    before = counters(control)
    noted = Counter[Key]()
    yield noted
    after = counters(control)
    assert after - before == noted


@pytest.mark.parametrize(("queue", "session"), [(PLAIN, None), (PARTS, None), (SESSIONS, "s")])
def test_settlements_in_queues_of_each_kind(
    sdk: ServiceBusClient, did: Counter[Key], queue: str, session: str | None
) -> None:
    run = Run(sdk, queue, did, session=session)
    run.send(*(run.message(number) for number in range(11)))
    with run.receiver() as receiver:
        taken = run.take(receiver, 9)
        run.complete(receiver, taken[:2])
        for message in taken[2:4]:
            receiver.abandon_message(message)
        run.note("abandoned", 2, more="active")
        for message in taken[4:7]:
            receiver.defer_message(message)
        run.note("deferred", 3, more="active")
        receiver.dead_letter_message(taken[7], reason="bad")
        run.note("dead_lettered", more="bad")
        receiver.dead_letter_message(taken[8], reason="worse", error_description="x")
        run.note("dead_lettered", more="worse")
        numbers = [message.sequence_number for message in taken[4:7] if message.sequence_number is not None]
        # One by one: a request of several partitions is refused.
        deferred = [each for number in numbers for each in receiver.receive_deferred_messages(number)]
        run.note("delivered", 3, more="active")
        run.complete(receiver, deferred)
    with run.receiver(receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE) as receiver:
        run.take(receiver, 4)  # the two that were abandoned, too
        run.note("received_and_deleted", 4, more="active")
    dead = Run(sdk, queue, did)
    with dead.receiver(sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
        first, second = dead.take(receiver, 2, "dead-letter")
        receiver.abandon_message(first)
        dead.note("abandoned", more="dead-letter")
        dead.complete(receiver, [second], "dead-letter")
    with dead.receiver(sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
        dead.complete(receiver, dead.take(receiver, 1, "dead-letter"), "dead-letter")


def test_what_time_does(server: EmubusServer, sdk: ServiceBusClient, did: Counter[Key]) -> None:
    server.create(QueueDescription("keeps", dead_letter_on_expiration=True, lock_duration_ms=LOCK_MS))
    server.create(QueueDescription("drops", lock_duration_ms=LOCK_MS, max_delivery_count=2))
    server.freeze()
    try:
        for queue in ("keeps", "drops"):
            run = Run(sdk, queue, did)
            run.send(*(run.message(number, time_to_live=timedelta(seconds=5)) for number in range(3)))
        server.advance(timedelta(seconds=6))
        with run.receiver() as receiver:  # an expired message does not arrive before this one
            run.send(run.message())
            run.take(receiver, 1)
            for entity in ("keeps", "drops"):
                did["expired", entity] += 3
            did["dead_lettered", "keeps", "TTLExpiredException"] += 3
            server.advance(LOCK_MS + 1)
            run.note("message_locks_expired", more="active")
            (again,) = run.take(receiver, 1)
            receiver.abandon_message(again)
            run.note("abandoned", more="active")
            run.note("dead_lettered", more="MaxDeliveryCountExceeded")
    finally:
        server.thaw()


def test_schedules_and_duplicates(server: EmubusServer, sdk: ServiceBusClient, did: Counter[Key]) -> None:
    server.create(QueueDescription("once", requires_duplicate_detection=True, enable_partitioning=True))
    run = Run(sdk, "once", did)
    run.send(*(run.message(message_id=each) for each in "abc"))
    run.send(*(run.message(message_id=each) for each in "bc"), counted="duplicates_dropped")
    later = datetime.now(UTC) + timedelta(hours=1)
    with sdk.get_queue_sender("once") as sender:
        numbers = sender.schedule_messages([run.message(message_id=each) for each in "bdef"], later)
        run.note("sent", 3)
        run.note("duplicates_dropped")
        sender.cancel_scheduled_messages(numbers[1])
        run.note("canceled")


def test_topics_and_forwarding(server: EmubusServer, sdk: ServiceBusClient, did: Counter[Key]) -> None:
    server.create(QueueDescription("target", enable_partitioning=True))
    server.create(TopicDescription("news", enable_partitioning=True))
    server.create(SubscriptionDescription("news", "all"))
    server.create(SubscriptionDescription("news", "none", rules=(RuleDescription("r", FalseFilter()),)))
    server.create(SubscriptionDescription("news", "onward", forward_to="target"))
    with sdk.get_topic_sender("news") as sender:
        sender.send_messages([ServiceBusMessage("x", partition_key="one key") for _ in range(5)])
    did["sent", "news"] += 5
    for name in ("all", "onward"):
        did["copied", f"news/Subscriptions/{name}"] += 5
    did["forwarded", "target"] += 5
    run = Run(sdk, "target", did)
    with run.receiver() as receiver:
        run.complete(receiver, run.take(receiver, 5))
    with sdk.get_subscription_receiver("news", "all") as receiver:
        for message in receiver.receive_messages(5, 60):
            receiver.complete_message(message)
            did["delivered", "news/Subscriptions/all", "active"] += 1
            did["completed", "news/Subscriptions/all", "active"] += 1


def test_requests_of_operators(server: EmubusServer, control: Http, sdk: ServiceBusClient, did: Counter[Key]) -> None:
    run = Run(sdk, PLAIN, did)
    run.send(*(run.message(number) for number in range(3)))
    with run.receiver() as receiver:
        (message,) = run.take(receiver, 1)
        receiver.dead_letter_message(message, reason="bad")
        run.note("dead_lettered", more="bad")
    control.post(f"/entities/{PLAIN}/resubmit", {})
    run.note("resubmitted")
    run.note("purged", server.purge(PLAIN))


def test_refusals_and_throttling(server: EmubusServer, control: Http, sdk: ServiceBusClient, did: Counter[Key]) -> None:
    run = Run(sdk, PLAIN, did)
    server.add_fault(FaultKind.SERVER_BUSY, entity=PLAIN, operations=[FaultOperation.SEND], count=2)
    run.send(run.message())  # at the third attempt
    did["refusals", PLAIN] += 2
    did["throttled", PLAIN] += 2
    did["errors", "com.microsoft:server-busy"] += 2
    run.note("purged", server.purge(PLAIN))
    with sdk_of(server, retry_total=0) as once:
        for name in ("no such queue", "nor this one"):
            with pytest.raises(ServiceBusError):
                once.get_queue_sender(name).__enter__()
    did["refusals", ""] += 2
    did["errors", "amqp:not-found"] += 2


def test_a_deleted_entity_takes_its_counters_along(server: EmubusServer, control: Http, sdk: ServiceBusClient) -> None:
    for _ in range(2):
        server.create(QueueDescription("short-lived"))
        did = Counter[Key]()
        run = Run(sdk, "short-lived", did)
        run.send(run.message())
        assert counters(control)["sent", "short-lived"] == 1
        server.delete("short-lived")
        assert counters(control)["sent", "short-lived"] == 0


def test_openmetrics_for_who_asks_for_it(control: Http) -> None:
    accept = "application/openmetrics-text; version=1.0.0,text/plain;q=0.5"
    answered = control.send("GET", "/metrics", Accept=accept)
    assert answered.headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
    text = answered.content.decode()
    assert text.endswith("# EOF\n")
    assert "# UNIT emubus_store_commit_duration_seconds seconds\n" in text
    assert "# TYPE emubus_store_commits counter\n" in text
    assert "emubus_store_commits_total{" in text
    assert 'profile="standard"' in next(line for line in text.splitlines() if line.startswith("emubus_build_info{"))
