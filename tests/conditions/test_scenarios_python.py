"""What a program with the Python SDK sees under a condition."""

from __future__ import annotations

import gc
import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.request import Request, urlopen

import pytest
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusMessage, ServiceBusReceivedMessage, ServiceBusReceiver
from azure.servicebus.exceptions import (
    MessageLockLostError,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusServerBusyError,
    SessionLockLostError,
)
from azure.servicebus.management import ServiceBusAdministrationClient

from emubus.broker.api import partition_for_key
from emubus.testing import EmubusServer

from .conftest import PARTS, QUEUE, SESSIONS, TOPIC, UNIQUE, Administrations, Connect

WAIT_S = 20
RETRIES, BUSY_PAUSE_MS = 3, 1_500  # of the SDK, by default: 1.6 s; before 7.15 it was 4 s
TRIES = 4  # of a request of the administration client
HOUR_STEPS = 360  # of ten seconds

# The SDK leaves the sockets of connections that were cut to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """They are closed before the next test."""
    yield
    gc.collect()


def take(receiver: ServiceBusReceiver, count: int = 1) -> list[ServiceBusReceivedMessage]:
    found: list[ServiceBusReceivedMessage] = []
    while len(found) < count:
        got = receiver.receive_messages(max_message_count=count - len(found), max_wait_time=WAIT_S)
        assert got, f"{len(found)} of {count} came"
        found += got
    return found


def test_the_credits_of_a_second_are_used_up_and_come_back(server: EmubusServer, connect: Connect) -> None:
    server.freeze()
    with (
        server.conditions("throttle-credits", credits_per_s=10) as on,
        connect().get_queue_sender(QUEUE) as sender,
    ):
        for number in range(10):
            sender.send_messages(ServiceBusMessage(str(number)))
        with pytest.raises(ServiceBusServerBusyError) as refused:
            sender.send_messages(ServiceBusMessage("10"))
        assert "Error code : 50009" in str(refused.value)
        assert "Please wait 2 seconds" in str(refused.value)
        server.advance(1_000)
        sender.send_messages(ServiceBusMessage("11"))
        assert [(each.behaviour, each.scope) for each in on.report.struck] == [("throttle-credits", QUEUE)]
    assert len(server.peek(QUEUE)) == 11


def test_defaults_of_the_sdk_outlast_a_busy_second(server: EmubusServer, connect: Connect) -> None:
    with (
        server.conditions("throttle-credits", credits_per_s=0, count=1) as on,
        connect(retry_total=RETRIES).get_queue_sender(QUEUE) as sender,
    ):
        sender.send_messages(ServiceBusMessage("x"))
        (struck,) = on.report.struck
    (stored,) = server.peek(QUEUE)
    assert stored.enqueued_at is not None
    assert stored.enqueued_at - struck.at >= BUSY_PAUSE_MS


def test_a_message_to_a_topic_costs_a_credit_for_each_filter(server: EmubusServer, connect: Connect) -> None:
    server.freeze()
    with (
        server.conditions("throttle-credits", credits_per_s=8),
        connect().get_topic_sender(TOPIC) as sender,
    ):
        for _ in range(2):
            sender.send_messages(ServiceBusMessage("x"))
        with pytest.raises(ServiceBusServerBusyError):
            sender.send_messages(ServiceBusMessage("x"))


def test_a_receiver_gets_as_many_messages_as_there_are_credits(server: EmubusServer, connect: Connect) -> None:
    client = connect()
    with client.get_queue_sender(QUEUE) as sender:
        sender.send_messages([ServiceBusMessage(str(number)) for number in range(7)])
    server.freeze()
    with server.conditions("throttle-credits", credits_per_s=3), client.get_queue_receiver(QUEUE) as receiver:
        first = receiver.receive_messages(max_message_count=7, max_wait_time=WAIT_S)
        assert [str(each) for each in first] == ["0", "1", "2"]
        server.advance(1_000)
        assert len(take(receiver, 3)) == 3
    with client.get_queue_receiver(QUEUE) as receiver:
        assert [str(each) for each in take(receiver)] == ["6"]  # what was withheld comes at once


def test_reading_a_hundred_queues_uses_up_the_credits_of_a_sender(
    server: EmubusServer, connect: Connect, administrations: Administrations
) -> None:
    for number in range(100):
        server.create_queue(f"read-{number}")
    reader = administrations(retry_backoff_factor=0)  # its tries come at once: the clock stands still
    server.freeze()
    refused = accepted = busy = 0
    with server.conditions("throttled") as on, connect().get_queue_sender(QUEUE) as sender:
        sender.send_messages(ServiceBusMessage("first"))
        for number in range(100):
            try:
                reader.get_queue(f"read-{number}")
            except HttpResponseError as error:
                refused += error.status_code == 503 and "50009" in str(error)
            if number % 10:
                continue
            try:
                sender.send_messages([ServiceBusMessage("x") for _ in range(5)])
            except ServiceBusServerBusyError:
                busy += 1
            else:
                accepted += 5
        strikes = Counter(each.behaviour for each in on.report.struck)
        server.advance(1_000)
        sender.send_messages(ServiceBusMessage("last"))
    assert refused > 80
    assert strikes == {"throttle-admin": TRIES * refused, "throttle-credits": busy}
    assert busy > 5
    assert len(server.peek(QUEUE)) == accepted + 2


def test_a_receiver_goes_through_a_rolling_upgrade(server: EmubusServer, connect: Connect) -> None:
    client = connect(retry_total=3, retry_backoff_factor=0.01, retry_backoff_max=0.05)
    with client.get_queue_sender(QUEUE) as sender:
        sender.send_messages([ServiceBusMessage(str(number)) for number in range(20)])
    server.freeze()
    done: Counter[str] = Counter()
    with server.conditions("broker-move", entity=QUEUE, gap_min_ms=1_000, gap_max_ms=1_000) as on:
        with client.get_queue_receiver(QUEUE) as receiver:
            held = take(receiver, 5)
            server.advance(12_000)  # the move, and the time away
            with pytest.raises(MessageLockLostError):
                receiver.complete_message(held[0])
            while sum(done.values()) < 20:
                for message in receiver.receive_messages(max_message_count=20, max_wait_time=WAIT_S):
                    assert message.delivery_count == 0
                    receiver.complete_message(message)
                    done[str(message)] += 1
        assert [each.what.partition(",")[0] for each in on.report.struck] == ["moved"]
    assert done == {str(number): 1 for number in range(20)}
    assert server.peek(QUEUE) == []


def test_a_message_session_is_lost_by_a_move_and_accepted_again(server: EmubusServer, connect: Connect) -> None:
    client = connect(retry_total=3, retry_backoff_factor=0.01, retry_backoff_max=0.05)
    with client.get_queue_sender(SESSIONS) as sender:
        sender.send_messages([ServiceBusMessage(str(number), session_id="s") for number in range(3)])
    with client.get_queue_receiver(SESSIONS, session_id="s") as receiver:
        (first,) = take(receiver)
        server.start_condition("session-moved", entity=SESSIONS)
        with pytest.raises(SessionLockLostError):
            receiver.complete_message(first)
    with client.get_queue_receiver(SESSIONS, session_id=NEXT_AVAILABLE_SESSION) as receiver:
        found = take(receiver, 3)
    assert [str(each) for each in found] == ["0", "1", "2"]


def test_an_entity_that_exists_is_not_found_for_a_while(server: EmubusServer, connect: Connect) -> None:
    server.freeze()
    with server.conditions("phantom-not-found", entity=QUEUE) as on:
        with pytest.raises(MessagingEntityNotFoundError) as refused, connect().get_queue_sender(QUEUE) as sender:
            sender.send_messages(ServiceBusMessage("x"))
        assert f":Queue:{QUEUE}' could not be found" in str(refused.value)
        assert on.report.struck_count == 1  # no retry
        server.advance(15_000)
        with connect().get_queue_sender(QUEUE) as sender:
            sender.send_messages(ServiceBusMessage("x"))
    assert len(server.peek(QUEUE)) == 1


@pytest.mark.parametrize(("queue", "count"), [(QUEUE, 2), (UNIQUE, 1)])
def test_a_message_whose_outcome_is_lost_is_sent_again(
    server: EmubusServer, connect: Connect, queue: str, count: int
) -> None:
    with (
        server.conditions("accept-lost", then="cut", count=1),
        connect(retry_total=RETRIES).get_queue_sender(queue) as sender,
    ):
        sender.send_messages(ServiceBusMessage("x", message_id="m"))
    found = server.peek(queue)
    assert [each.message_id for each in found] == ["m"] * count
    assert len({each.sequence_number for each in found}) == count


def test_a_peek_ends_where_the_partition_ends_and_nothing_is_passed_over(
    server: EmubusServer, connect: Connect
) -> None:
    client, count = connect(), 20
    with client.get_queue_sender(PARTS) as sender:
        sender.send_messages([ServiceBusMessage(str(number)) for number in range(count // 2)])
        for number in range(count // 2, count):
            sender.send_messages(ServiceBusMessage(str(number)))
    seen: list[str] = []
    with server.conditions("peek-partition-end"), client.get_queue_receiver(PARTS) as receiver:
        while found := receiver.peek_messages(max_message_count=100):
            assert len(found) == 1
            seen += map(str, found)
    assert sorted(seen) == sorted(map(str, range(count)))


def test_management_under_way_is_behind(
    server: EmubusServer, connect: Connect, administration: ServiceBusAdministrationClient
) -> None:
    server.freeze()
    server.create_queue("short-lived")
    with server.conditions("laggy-admin", seed=8) as on:
        with connect().get_queue_sender(QUEUE) as sender:
            for number in range(10):
                sender.send_messages(ServiceBusMessage(str(number)))
        seen = []
        for advance_ms in (0, 29_000, 2_000):
            server.advance(advance_ms)
            seen.append(administration.get_queue_runtime_properties(QUEUE).active_message_count)
        assert seen == [0, 0, 10]
        administration.delete_queue("short-lived")
        for advance_ms in (0, 9_999):
            server.advance(advance_ms)
            with pytest.raises(ResourceExistsError, match="background clean up is still pending"):
                administration.create_queue("short-lived")
            with pytest.raises(ResourceNotFoundError):
                administration.get_queue("short-lived")
        server.advance(1)
        administration.create_queue("short-lived")
        assert {each.behaviour for each in on.report.struck} == {"counts-stale", "conflict-cleanup"}
    server.delete("short-lived")


def head(server: EmubusServer, queue: str) -> tuple[int, dict[str, Any]]:
    """Receive and delete over REST: the status and the broker properties."""
    address = f"http://localhost:{server.http_port}/{queue}/messages/head?timeout=0"
    with urlopen(Request(address, method="DELETE")) as answer:
        return answer.status, json.loads(answer.headers.get("BrokerProperties", "{}"))


def test_a_queue_looks_empty_while_another_front_end_holds_its_messages(server: EmubusServer, connect: Connect) -> None:
    client = connect()
    with client.get_queue_sender(PARTS) as sender:
        for number in range(4):
            sender.send_messages(ServiceBusMessage(str(number)))
    server.freeze()
    with server.conditions("foreign-cache", entity=PARTS), client.get_queue_receiver(PARTS) as receiver:
        receiver.complete_message(*take(receiver))
        while not all(each.locked_until_at for each in server.peek(PARTS)):
            """Another partition is still to answer."""
        assert head(server, PARTS) == (204, {})
        receiver.complete_message(*take(receiver))  # at once, where they are held
        server.advance(60_000)
        status, properties = head(server, PARTS)
    assert (status, properties["DeliveryCount"]) == (200, 2)


def test_a_store_that_is_out_refuses_its_keys_and_delays_messages_without(
    server: EmubusServer, connect: Connect
) -> None:
    out = 3
    own = next(key for key in map(str, range(100)) if partition_for_key(key, 16) == out)
    other = next(key for key in map(str, range(100)) if partition_for_key(key, 16) != out)
    server.freeze()
    values = {"store_out__store": out, "container_close__share": 0, "phantom_not_found__ms": 0}
    with (
        server.conditions("broker-failover", entity=PARTS, accepted_not_visible__share=0, **values) as on,
        connect().get_queue_sender(PARTS) as sender,
        ThreadPoolExecutor(1) as pool,
    ):
        with pytest.raises(OperationTimeoutError):
            sender.send_messages(ServiceBusMessage("its key", partition_key=own))
        sender.send_messages(ServiceBusMessage("another key", partition_key=other))
        before = on.report.struck_count
        sent = pool.submit(sender.send_messages, ServiceBusMessage("no key"))
        while on.report.struck_count == before:
            """The message is under way."""
        server.advance(4_999)
        assert not sent.done()
        server.advance(10_001)
        sent.result(WAIT_S)
    assert sorted(str(each.text) for each in server.peek(PARTS)) == ["another key", "no key"]


def test_an_upgrade_costs_locks_and_no_message(server: EmubusServer, connect: Connect) -> None:
    client, count = connect(retry_total=3, retry_backoff_factor=0.01, retry_backoff_max=0.05), 100
    with client.get_queue_sender(QUEUE) as sender:
        sender.send_messages([ServiceBusMessage(str(number)) for number in range(count)])
    server.freeze()
    done: Counter[str] = Counter()
    upgrade = server.conditions(  # the clock stands still while a partition is away; chance may spare a connection
        "rolling-upgrade", seed=7, broker_move__away_min_ms=1, broker_move__away_max_ms=1, gateway_restart__share=1.0
    )
    with upgrade as on, client.get_queue_receiver(QUEUE) as receiver:
        while len(done) < count:
            for message in receiver.receive_messages(max_message_count=10, max_wait_time=WAIT_S):
                assert message.delivery_count == 0
                try:
                    receiver.complete_message(message)
                except MessageLockLostError:
                    continue
                done[str(message)] += 1
            server.advance(10_000)
        for _ in range(HOUR_STEPS):  # few turns may have been enough
            if {each.behaviour for each in on.report.struck} >= {"broker-move", "gateway-restart"}:
                break
            server.advance(10_000)
        else:
            pytest.fail("no node was restarted, or no broker moved, for an hour")
    assert set(done) == set(map(str, range(count)))
    assert server.peek(QUEUE) == []


def test_an_ordinary_day_of_a_partitioned_queue_gives_each_message_once(server: EmubusServer, connect: Connect) -> None:
    client, count, seen = connect(), 20, Counter[str]()
    with client.get_queue_sender(PARTS) as sender:
        for number in range(count):
            sender.send_messages(ServiceBusMessage(str(number)))
    with server.conditions("partition-quirks", trickle__gap_ms=1), client.get_queue_receiver(PARTS) as receiver:
        while len(seen) < count:
            for message in receiver.receive_messages(max_message_count=5, max_wait_time=WAIT_S):
                seen[str(message)] += 1
                receiver.complete_message(message)
    assert seen == {str(number): 1 for number in range(count)}
    assert server.peek(PARTS) == []
