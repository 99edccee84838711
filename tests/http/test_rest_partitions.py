"""REST messaging on partitioned entities (P21): keys, partitions and locks are those that AMQP clients see."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceivedMessage, ServiceBusReceiveMode
from azure.servicebus.exceptions import ServiceBusServerBusyError

from emubus.broker import service_errors
from emubus.broker.api import partition_for_key
from emubus.testing import EmubusServer, OutageKind

from .rest import Answer, Rest

PARTITIONS = 16
KEYS = [f"key {number}" for number in range(40)]
CLIENTS = 8
WAIT_S = 60


def partition_of(number: int | None) -> int:
    assert number is not None
    return number >> 48


def all_by_sdk(sdk: ServiceBusClient, queue: str, count: int) -> list[ServiceBusReceivedMessage]:
    got: list[ServiceBusReceivedMessage] = []
    with sdk.get_queue_receiver(queue, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE) as receiver:
        while len(got) < count:
            more = receiver.receive_messages(max_message_count=count - len(got), max_wait_time=WAIT_S)
            assert more
            got += more
    return got


def all_by_rest(rest: Rest, queue: str) -> list[Answer]:
    got: list[Answer] = []
    while (answer := rest.receive(queue)).status == 200:
        got.append(answer)
    return got


def counts(bus: EmubusServer, queue: str) -> int:
    return sum(bus.message_counts(queue).values())


def test_p21_a_partition_key_goes_where_it_goes_over_amqp(rest: Rest, sdk: ServiceBusClient) -> None:
    with sdk.get_queue_sender("parts") as sender:
        for key in KEYS:
            assert rest.send("parts", b"rest", PartitionKey=key).status == 201
            sender.send_messages(ServiceBusMessage(b"amqp", partition_key=key))
    found = {
        (str(each.partition_key), bytes(next(each.body))): partition_of(each.sequence_number)
        for each in all_by_sdk(sdk, "parts", 2 * len(KEYS))
    }
    assert found == {(key, by): partition_for_key(key, PARTITIONS) for key in KEYS for by in (b"rest", b"amqp")}
    assert len(set(found.values())) > PARTITIONS // 2


def test_p21_a_session_id_is_the_key_and_its_session_is_received_over_amqp(rest: Rest, sdk: ServiceBusClient) -> None:
    for number in range(3):
        assert rest.send("sessions", b"%d" % number, SessionId="s").status == 201
    assert rest.send("sessions", b"3", SessionId="s", PartitionKey="s").status == 201
    with sdk.get_queue_receiver("sessions", session_id="s") as receiver:
        got = receiver.receive_messages(max_message_count=4, max_wait_time=WAIT_S)
        assert [str(each) for each in got] == ["0", "1", "2", "3"]
        assert {partition_of(each.sequence_number) for each in got} == {partition_for_key("s", PARTITIONS)}


def test_p21_a_message_id_is_the_key_where_duplicates_are_detected(rest: Rest, sdk: ServiceBusClient) -> None:
    with sdk.get_queue_sender("unique") as sender:
        for key in KEYS:
            assert rest.send("unique", b"rest", MessageId=key).status == 201
            sender.send_messages(ServiceBusMessage(b"amqp", message_id=key))
    got = all_by_rest(rest, "unique")
    assert {each.broker["MessageId"]: partition_of(each.broker["SequenceNumber"]) for each in got} == {
        key: partition_for_key(key, PARTITIONS) for key in KEYS
    }
    assert [each.content for each in got] == [b"rest"] * len(KEYS)


def test_p21_without_a_key_all_partitions_are_filled_in_turn_and_received_from(bus: EmubusServer, rest: Rest) -> None:
    for number in range(2 * PARTITIONS):
        assert rest.send("parts", b"%d" % number).status == 201
    locked = [rest.peek_lock("parts") for _ in range(2 * PARTITIONS)]
    assert rest.peek_lock("parts").status == 204
    places = Counter(partition_of(each.broker["SequenceNumber"]) for each in locked)
    assert places == dict.fromkeys(range(PARTITIONS), 2)
    assert sorted(int(each.content) for each in locked) == list(range(2 * PARTITIONS))
    # The token alone finds its partition, and does so once.
    assert [rest.complete(f"/parts/messages/1/{each.lock_token}") for each in locked] == [200] * len(locked)
    assert [rest.complete(each.path) for each in locked] == [404] * len(locked)
    assert counts(bus, "parts") == 0


def test_p21_keys_that_differ_are_refused_and_nothing_is_stored(bus: EmubusServer, rest: Rest) -> None:
    """As over AMQP, where both are one condition: they are one status here (P9)."""
    differing = {"Body": "x", "BrokerProperties": {"SessionId": "a", "PartitionKey": "b"}}
    mixed = [{"Body": key, "BrokerProperties": {"PartitionKey": key}} for key in ("a", "b")]
    answers = [
        rest.send("sessions", b"x", SessionId="a", PartitionKey="b"),
        rest.send_batch("sessions", differing),
        rest.send_batch("sessions", {"Body": "y", "BrokerProperties": {"SessionId": "a"}}, differing),
        rest.send_batch("parts", *mixed),
    ]
    mismatch = service_errors.key_mismatch("a", "b").description
    assert [(each.status, each.detail) for each in answers] == [
        *[(400, mismatch)] * 3,
        (400, service_errors.mixed_keys().description),
    ]
    assert rest.send_batch("plain", *mixed).status == 201
    assert (counts(bus, "sessions"), counts(bus, "parts"), counts(bus, "plain")) == (0, 0, 2)


def test_p08_without_an_id_or_a_key_nothing_is_taken_where_both_may_be_the_key(bus: EmubusServer, rest: Rest) -> None:
    apart = [{"Body": each, "BrokerProperties": {"MessageId": each}} for each in "ab"]
    answers = [
        rest.send("unique", b"x"),
        rest.send_batch("unique", {"Body": "a"}, {"Body": "b"}),
        rest.send_batch("unique", *apart),
    ]
    missing, differ = (
        service_errors.key_missing(),
        service_errors.mixed_ids(partition_for_key("a", 16), None, None, "a"),
    )
    assert [(each.status, each.detail) for each in answers] == [
        *[(400, missing.description)] * 2,
        (400, differ.description),
    ]
    assert counts(bus, "unique") == 0


def test_p21_a_batch_goes_whole_to_the_partition_of_its_key(rest: Rest) -> None:
    batch = [{"Body": str(number), "BrokerProperties": {"PartitionKey": "k"}} for number in range(20)]
    assert rest.send_batch("parts", *batch).status == 201
    once = [{"Body": body, "BrokerProperties": {"MessageId": "m", "PartitionKey": "k"}} for body in "ab"]
    assert rest.send_batch("unique", *once).status == 201
    got = all_by_rest(rest, "parts")
    assert [each.content for each in got] == [b"%d" % number for number in range(20)]
    assert {partition_of(each.broker["SequenceNumber"]) for each in got} == {partition_for_key("k", PARTITIONS)}
    assert [each.content for each in all_by_rest(rest, "unique")] == [b"a"]


def test_p21_a_partition_that_is_down_fails_its_own_keys_only(
    bus: EmubusServer, rest: Rest, sdk: ServiceBusClient
) -> None:
    down = partition_for_key(KEYS[0], PARTITIONS)
    rest.send("parts", b"before", PartitionKey=KEYS[0])
    locked = rest.peek_lock("parts")
    bus.begin_outage([down], OutageKind.DOWN)
    sent = {key: rest.send("parts", b"meanwhile", PartitionKey=key) for key in KEYS}
    failed = [key for key, answer in sent.items() if answer.status != 201]
    assert failed == [key for key in KEYS if partition_for_key(key, PARTITIONS) == down]
    assert {(sent[key].status, sent[key].headers["Retry-After"]) for key in failed} == {(503, "10")}
    with sdk.get_queue_sender("parts") as sender, pytest.raises(ServiceBusServerBusyError):
        sender.send_messages(ServiceBusMessage("x", partition_key=KEYS[0]))
    assert {rest.send("parts", b"no key").status for _ in range(2 * PARTITIONS)} == {201}
    got = [each.content for each in all_by_rest(rest, "parts")]
    assert Counter(got) == {b"meanwhile": len(KEYS) - len(failed), b"no key": 2 * PARTITIONS}
    assert rest.complete(locked.path) == rest.renew(locked.path).status == 503
    bus.end_outage([down])
    bus.advance(60_000)
    assert [each.content for each in all_by_rest(rest, "parts")] == [b"before"]


def test_p21_when_all_partitions_are_down_a_receive_is_asked_to_try_again(bus: EmubusServer, rest: Rest) -> None:
    rest.send("parts", b"x")
    bus.begin_outage(range(PARTITIONS), OutageKind.DOWN)
    refused = rest.receive("parts"), rest.peek_lock("parts"), rest.send("parts", b"y")
    assert [(each.status, each.headers["Retry-After"]) for each in refused] == [(503, "10")] * 3
    bus.end_outage(range(PARTITIONS))
    assert [each.content for each in all_by_rest(rest, "parts")] == [b"x"]


@pytest.mark.parametrize("kind", [OutageKind.FAILING, OutageKind.FULL])
def test_p21_a_receive_that_can_t_be_committed_deletes_nothing(bus: EmubusServer, rest: Rest, kind: OutageKind) -> None:
    rest.send("parts", b"x", PartitionKey="k")
    store = partition_for_key("k", PARTITIONS)
    bus.begin_outage([store], kind)
    assert rest.receive("parts").status in (403, 503)
    bus.end_outage([store])
    assert rest.receive("parts", timeout=WAIT_S).content == b"x"


def test_p21_many_clients_at_once_get_each_message_once(bus: EmubusServer, rest: Rest) -> None:
    total = 600
    for start in range(0, total, 100):
        bodies = [{"Body": str(number)} for number in range(start, start + 100)]
        assert [rest.send_batch("parts", each).status for each in bodies] == [201] * 100

    def consume(number: int) -> list[int]:
        got: list[int] = []
        with Rest(bus.http_port) as client:
            while True:
                answer = client.receive("parts") if number % 2 else client.peek_lock("parts")
                if answer.status == 204:
                    return got
                if answer.status == 201:
                    assert client.complete(answer.path) == 200
                    assert client.complete(answer.path) == 404
                got.append(int(answer.content))

    with ThreadPoolExecutor(CLIENTS) as pool:
        found = list(pool.map(consume, range(CLIENTS)))
    assert sorted(number for each in found for number in each) == list(range(total))
    assert (counts(bus, "parts"), rest.receive("parts").status) == (0, 204)


def test_p21_what_an_amqp_receiver_has_prefetched_is_not_given_and_not_lost(
    bus: EmubusServer, rest: Rest, sdk: ServiceBusClient
) -> None:
    rest.send("parts", b"x")
    with sdk.get_queue_receiver("parts") as receiver:
        (held,) = receiver.receive_messages(max_wait_time=WAIT_S)
        assert rest.receive("parts").status == 204
        receiver.abandon_message(held)
        assert rest.receive("parts", timeout=WAIT_S).content == b"x"


def test_p21_a_lock_taken_over_amqp_is_settled_over_http_and_the_other_way_round(
    rest: Rest, sdk: ServiceBusClient
) -> None:
    rest.send("parts", b"x")
    with sdk.get_queue_receiver("parts") as receiver:
        (held,) = receiver.receive_messages(max_wait_time=WAIT_S)
        assert rest.unlock(f"/parts/messages/{held.sequence_number}/{held.lock_token}") == 200
        locked = rest.peek_lock("parts", timeout=WAIT_S)
        assert locked.broker["DeliveryCount"] == 2
        assert rest.complete(locked.path) == 200
        assert receiver.receive_messages(max_wait_time=1) == []
