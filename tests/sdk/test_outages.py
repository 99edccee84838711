"""Outages: with some messaging stores down, what needs none of them goes on, and nothing is lost."""

from __future__ import annotations

from collections import Counter

import pytest

from emubus.broker.api import OutageKind
from emubus.testing import EmubusServer

from .client import EMPTY_WAIT_MS, FIRST_EMPTY_WAIT_MS, Sdk
from .conftest import STORES, STORES_OUT, MakeQueue, MakeSubscription, MakeTopic, Outages
from .driver import SdkError
from .features import RETRIES_SETTLEMENTS, clients_with, clients_without, partitioned_only

pytestmark = [pytest.mark.sdk, partitioned_only]

LOCK_MS = 60_000
OUTAGE_MS = 5_000
SLOW_MS = 1_500
KEYS = tuple(f"key {number}" for number in range(24))


def partitions_of_keys(sdk: Sdk, queue: str) -> dict[str, int]:
    """Where messages of each key go, found out by sending and deleting one each."""
    sdk.send(queue, *[{"body": key, "partition_key": key} for key in KEYS])
    received = sdk.receiver(queue, "receive-and-delete").receive_all(len(KEYS))
    return {message.body or "": message.partition for message in received}


def affected(partitions: dict[str, int]) -> tuple[list[str], list[str]]:
    """The keys whose partition is down, and the others; at least one and two of them."""
    down = [key for key in KEYS if partitions[key] in STORES_OUT]
    up = [key for key in KEYS if partitions[key] not in STORES_OUT]
    assert down
    assert len(up) > 1
    return down, up


def refused_to_send(sdk: Sdk, queue: str) -> str:
    """The kind of error that sending ends with."""
    with pytest.raises(SdkError) as refused:
        sdk.send(queue, {"body": "refused"})
    return refused.value.kind


def test_p07_a_store_that_is_down_takes_exactly_its_partition_with_it(sdk: Sdk, queue: str, outages: Outages) -> None:
    sdk.send(queue, *[{"body": f"{number}"} for number in range(2 * len(STORES))])
    outages.begin(stores=[5])
    receiver = sdk.receiver(queue, "receive-and-delete")
    received = receiver.receive_all(2 * len(STORES) - 2)
    assert Counter(message.partition for message in received) == {number: 2 for number in STORES if number != 5}
    assert receiver.receive(1, FIRST_EMPTY_WAIT_MS) == []
    outages.end()
    assert [message.partition for message in receiver.receive_all(2)] == [5, 5]


@pytest.mark.parametrize("kind", [OutageKind.DOWN, OutageKind.FAILING])
def test_p13_a_sender_without_keys_goes_on_without_one_error(
    sdk: Sdk, queue: str, outages: Outages, kind: OutageKind
) -> None:
    outages.begin(kind)
    sdk.send(queue, *[{"body": f"{number:02}"} for number in range(20)])
    sdk.send(queue, *[{"body": f"{number:02}"} for number in range(20, 30)], how="batch")
    outages.end()
    received = sdk.receiver(queue, "receive-and-delete").receive_all(30)
    assert sorted(message.body or "" for message in received) == [f"{number:02}" for number in range(30)]
    assert {message.partition for message in received}.isdisjoint(STORES_OUT)


def test_p14_keys_of_a_store_that_is_down_fail_and_no_others(sdk: Sdk, queue: str, outages: Outages) -> None:
    down, up = affected(partitions_of_keys(sdk, queue))
    sdk.send(queue, *[{"body": "before", "partition_key": key} for key in KEYS])
    outages.begin()
    for key in up:
        sdk.send(queue, {"body": "during", "partition_key": key})
    for key in down[:2]:
        with pytest.raises(SdkError) as refused:
            sdk.send(queue, {"body": "during", "partition_key": key})
        assert refused.value.kind == "busy"
    outages.end()
    sdk.send(queue, *[{"body": "after", "partition_key": key} for key in KEYS])
    received = sdk.receiver(queue, "receive-and-delete").receive_all(3 * len(up) + 2 * len(down))
    by_key = {key: [message.body for message in received if message.partition_key == key] for key in KEYS}
    assert by_key == {key: ["before", "during", "after"] if key in up else ["before", "after"] for key in KEYS}


def test_p15_receiving_goes_on_and_the_rest_comes_back_in_order(sdk: Sdk, queue: str, outages: Outages) -> None:
    down, up = affected(partitions_of_keys(sdk, queue))
    for number in range(2):
        sdk.send(queue, *[{"body": f"{number}", "partition_key": key} for key in KEYS])
    outages.begin()
    receiver = sdk.receiver(queue, "receive-and-delete")
    received = receiver.receive_all(2 * len(up))
    assert {message.partition_key for message in received} == set(up)
    assert receiver.receive(1, FIRST_EMPTY_WAIT_MS) == []
    outages.end()
    received += receiver.receive_all(2 * len(down))
    for key in KEYS:
        assert [message.body for message in received if message.partition_key == key] == ["0", "1"]


def test_p16_only_sessions_of_a_store_that_is_down_fail(sdk: Sdk, make_queue: MakeQueue, outages: Outages) -> None:
    plain, queue = make_queue(), make_queue(requires_session=True)
    down, up = affected(partitions_of_keys(sdk, plain))
    for key in (down[0], up[0], up[1]):
        sdk.send(queue, {"body": key, "session_id": key})
    outages.begin()
    receivers = [sdk.accept_session(queue, key) for key in up[:2]]
    assert [receiver.receive_one().body for receiver in receivers] == up[:2]
    receivers[0].set_state(b"state")
    assert receivers[0].state() == b"state"
    with pytest.raises(SdkError) as refused:
        sdk.send(queue, {"body": "x", "session_id": down[0]})
    assert refused.value.kind == "busy"
    outages.end()
    assert sdk.accept_session(queue, down[0]).receive_one().body == down[0]


def test_p16_only_message_ids_of_a_store_that_is_down_fail_where_they_are_the_key(
    sdk: Sdk, make_queue: MakeQueue, outages: Outages
) -> None:
    plain, queue = make_queue(), make_queue(requires_duplicate_detection=True)
    down, up = affected(partitions_of_keys(sdk, plain))
    outages.begin()
    sdk.send(queue, *[{"body": key, "message_id": key} for key in up])
    with pytest.raises(SdkError) as refused:
        sdk.send(queue, {"body": down[0], "message_id": down[0]})
    assert refused.value.kind == "busy"
    outages.end()
    sdk.send(queue, *[{"body": key, "message_id": key} for key in KEYS])
    received = sdk.receiver(queue, "receive-and-delete").receive_all(len(KEYS))
    assert sorted(message.body or "" for message in received) == sorted(KEYS)


@clients_without(RETRIES_SETTLEMENTS)
def test_p14_what_could_not_be_settled_is_received_again(
    sdk: Sdk, queue: str, outages: Outages, server: EmubusServer
) -> None:
    down, _ = affected(partitions_of_keys(sdk, queue))
    sdk.send(queue, {"body": "x", "partition_key": down[0]})
    receiver = sdk.receiver(queue)
    message = receiver.receive_one()
    outages.begin()
    if sdk.confirms_settlement:
        with pytest.raises(SdkError):
            receiver.complete(message)
    else:
        receiver.complete(message)
        assert receiver.receive(1, EMPTY_WAIT_MS) == []  # so that the server has heard of it while the store is down
    outages.end()
    server.advance(LOCK_MS + 1)
    again = receiver.receive_one()
    assert (again.sequence_number, again.delivery_count) == (message.sequence_number, 1)
    receiver.complete(again)
    assert receiver.peek_until(lambda messages: messages == []) == []


@pytest.mark.parametrize("kind", [OutageKind.FAILING, OutageKind.FULL])
def test_p14_a_send_that_is_refused_costs_no_receiver_its_lock(
    sdk: Sdk, queue: str, outages: Outages, kind: OutageKind
) -> None:
    down, _ = affected(partitions_of_keys(sdk, queue))
    sdk.send(queue, {"body": "x", "partition_key": down[0]})
    receiver = sdk.receiver(queue)
    message = receiver.receive_one()
    outages.begin(kind)
    with pytest.raises(SdkError):
        sdk.send(queue, {"body": "refused", "partition_key": down[0]})
    outages.end()
    receiver.complete(message)
    assert receiver.peek_until(lambda messages: messages == []) == []


@clients_with("rules")
def test_p17_a_rule_is_changed_on_all_partitions_or_not_at_all(
    sdk: Sdk, make_topic: MakeTopic, make_subscription: MakeSubscription, outages: Outages
) -> None:
    topic = make_topic()
    make_subscription(topic)
    outages.begin(stores=[5])
    with pytest.raises(SdkError) as added:
        sdk.add_rule(topic, "all", "red", {"sql": "colour = 'red'"})
    with pytest.raises(SdkError) as removed:
        sdk.remove_rule(topic, "all", "$Default")
    assert [error.value.kind for error in (added, removed)] == ["busy", "busy"]
    assert list(sdk.rules(topic, "all")) == ["$Default"]
    outages.end()
    sdk.send(topic, *[{"body": f"{number}"} for number in range(len(STORES))])
    assert len(sdk.receiver(topic, subscription="all").peek_all(page=32)) == len(STORES)
    sdk.add_rule(topic, "all", "red", {"sql": "colour = 'red'"})
    sdk.remove_rule(topic, "all", "$Default")
    assert list(sdk.rules(topic, "all")) == ["red"]


@pytest.mark.parametrize("kind", [OutageKind.DOWN, OutageKind.FAILING, OutageKind.FULL])
def test_p18_while_all_stores_are_out_a_client_is_asked_to_try_again(
    sdk: Sdk, queue: str, outages: Outages, kind: OutageKind
) -> None:
    sdk.send(queue, {"body": "before"})
    outages.begin(kind, STORES)
    assert refused_to_send(sdk, queue) == "busy"
    outages.end()
    sdk.send(queue, {"body": "after"})
    assert sorted(message.body or "" for message in sdk.receiver(queue).peek_all()) == ["after", "before"]


def test_p18_an_outage_can_end_by_itself(sdk: Sdk, queue: str, outages: Outages, server: EmubusServer) -> None:
    outages.begin(OutageKind.DOWN, STORES, duration_ms=OUTAGE_MS)
    assert refused_to_send(sdk, queue) == "busy"
    server.advance(OUTAGE_MS)
    sdk.send(queue, {"body": "after"})
    assert [message.body for message in sdk.receiver(queue).peek_all()] == ["after"]


def test_p18_a_slow_store_takes_its_time_and_loses_nothing(
    sdk: Sdk, queue: str, outages: Outages, server: EmubusServer
) -> None:
    sdk.send(queue, {"body": "before"})
    outages.begin(OutageKind.SLOW, STORES, delay_ms=SLOW_MS)
    server.call(server.clock.thaw)
    try:
        began_ms = server.now_ms()
        sdk.send(queue, {"body": "slow"})
        passed_ms = server.now_ms() - began_ms
    finally:
        server.call(server.clock.freeze)
    outages.end()
    assert passed_ms >= SLOW_MS
    received = sdk.receiver(queue, "receive-and-delete").receive_all(2)
    assert sorted(message.body or "" for message in received) == ["before", "slow"]
