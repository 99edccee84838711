"""Partitions: where messages go, seen from the sequence numbers."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from emubus.broker.api import partition_for_key
from emubus.broker.model.descriptions import QueueDescription
from emubus.testing import EmubusServer

from .client import How, Sdk
from .conftest import MakeQueue
from .driver import DriverProcess, SdkError
from .features import COMPARES_KEYS, only_clients, partitioned_only, unpartitioned_only
from .prepare import CLIENTS

pytestmark = pytest.mark.sdk

PARTITION_COUNT = 16
LOCAL_NUMBERS = (1 << 48) - 1
KEYS = tuple(f"key {number}" for number in range(24))


def partitions(sdk: Sdk, queue: str) -> dict[str | None, int]:
    """The partition of each message in a queue, by its body."""
    return {message.body: message.partition for message in sdk.receiver(queue).peek_all(page=32)}


@partitioned_only
def test_p08_session_id_comes_before_partition_key_and_partition_key_before_message_id(
    sdk: Sdk, make_queue: MakeQueue
) -> None:
    queue = make_queue(requires_duplicate_detection=True)
    sdk.send(
        queue,
        {"body": "session id", "session_id": "s", "message_id": "1"},
        {"body": "both", "session_id": "k", "partition_key": "k", "message_id": "2"},
        {"body": "partition key", "partition_key": "p", "message_id": "3"},
        {"body": "message id", "message_id": "m"},
    )
    keys = {"session id": "s", "both": "k", "partition key": "p", "message id": "m"}
    assert partitions(sdk, queue) == {body: partition_for_key(key, PARTITION_COUNT) for body, key in keys.items()}


@partitioned_only
def test_p08_a_message_id_is_no_key_without_duplicate_detection(sdk: Sdk, queue: str) -> None:
    sdk.send(queue, *[{"body": f"{number}", "message_id": "m"} for number in range(PARTITION_COUNT)])
    assert sorted(partitions(sdk, queue).values()) == list(range(PARTITION_COUNT))


@partitioned_only
@pytest.mark.parametrize("how", ["single", "batch"])
def test_p09_session_id_and_partition_key_that_differ_are_refused(sdk: Sdk, queue: str, how: How) -> None:
    message: dict[str, Any] = {"body": "x", "session_id": "s", "partition_key": "k"}
    if sdk.name in COMPARES_KEYS:
        with pytest.raises(SdkError) as refused:
            sdk.send(queue, message, how=how)
        assert refused.value.kind == "other"  # by the SDK itself
        message = {"body": "x", "session_id": "s", "annotations": {"x-opt-partition-key": "k"}}
    with pytest.raises(SdkError) as refused:
        sdk.send(queue, message, how=how)
    assert refused.value.kind == "not-allowed"
    assert sdk.receiver(queue).peek_all() == []


@partitioned_only
def test_p11_messages_without_a_key_fill_all_partitions_evenly(sdk: Sdk, queue: str) -> None:
    sdk.send(queue, *[{"body": f"{number}"} for number in range(2 * PARTITION_COUNT)])
    partitions = Counter(message.partition for message in sdk.receiver(queue).peek_all(page=32))
    assert partitions == dict.fromkeys(range(PARTITION_COUNT), 2)


@partitioned_only
def test_p12_a_batch_without_a_key_stays_together(sdk: Sdk, queue: str) -> None:
    sdk.send(queue, *[{"body": f"{number}"} for number in range(6)], how="batch")
    peeked = sdk.receiver(queue).peek_all()
    assert [message.body for message in peeked] == ["0", "1", "2", "3", "4", "5"]
    assert len({message.partition for message in peeked}) == 1


@partitioned_only
@pytest.mark.parametrize("key", ["partition_key", "session_id"])
def test_p10_messages_with_one_key_go_to_one_partition_in_order(sdk: Sdk, queue: str, key: str) -> None:
    for number in range(3):
        sdk.send(queue, {"body": f"{number}", key: "the key"})
    sdk.send(queue, *[{"body": f"{number}", key: "the key"} for number in range(3, 6)], how="batch")
    peeked = sdk.receiver(queue).peek_all()
    assert [message.body for message in peeked] == ["0", "1", "2", "3", "4", "5"]
    assert len({message.partition for message in peeked}) == 1
    assert [message.sequence_number & LOCAL_NUMBERS for message in peeked] == [1, 2, 3, 4, 5, 6]


@partitioned_only
def test_p10_a_key_leads_to_the_same_partition_in_every_queue(sdk: Sdk, make_queue: MakeQueue) -> None:
    sent = [{"body": f"{number}", "partition_key": f"key {number}"} for number in range(8)]
    partitions: list[list[tuple[str | None, int]]] = []
    for queue in (make_queue(), make_queue()):
        sdk.send(queue, *sent)
        partitions.append([(message.body, message.partition) for message in sdk.receiver(queue).peek_all()])
    assert len(partitions[0]) == len(sent)
    assert sorted(partitions[0]) == sorted(partitions[1])


@partitioned_only
def test_p12_a_batch_with_two_keys_is_refused_whole(sdk: Sdk, queue: str) -> None:
    with pytest.raises(SdkError) as refused:
        sdk.send(queue, {"body": "a", "partition_key": "a"}, {"body": "b", "partition_key": "b"}, how="batch")
    assert refused.value.kind == "not-allowed"
    assert sdk.receiver(queue).peek_all() == []


@unpartitioned_only
def test_a_queue_without_partitions_takes_a_batch_with_two_keys(sdk: Sdk, queue: str) -> None:
    sdk.send(queue, {"body": "a", "partition_key": "a"}, {"body": "b", "partition_key": "b"}, how="batch")
    peeked = sdk.receiver(queue).peek_all()
    assert [(message.body, message.partition_key) for message in peeked] == [("a", "a"), ("b", "b")]
    assert [message.sequence_number for message in peeked] == [1, 2]


@only_clients("python-sync", "go")
def test_p10_a_key_stays_on_its_partition_over_a_restart(sdk: Sdk, tmp_path: Path) -> None:
    queue = QueueDescription("q", enable_partitioning=True)
    found: list[dict[str | None, int]] = []
    for run in ("first", "second"):
        with EmubusServer([queue], data_dir=tmp_path) as server:
            driver = DriverProcess(CLIENTS[sdk.name], server.connection_string)
            client = Sdk(driver)
            client.send("q", *[{"body": f"{run} {key}", "partition_key": key} for key in KEYS])
            found.append(partitions(client, "q"))
            driver.close()
    assert found[0] == {f"first {key}": partition_for_key(key, PARTITION_COUNT) for key in KEYS}
    assert found[1] == found[0] | {f"second {key}": found[0][f"first {key}"] for key in KEYS}


@partitioned_only
def test_p19_a_receiver_gets_the_first_message_that_any_partition_has(sdk: Sdk, queue: str) -> None:
    receiver = sdk.receiver(queue)
    seen: set[int] = set()
    for number in range(PARTITION_COUNT):
        sdk.send(queue, {"body": f"{number}"})
        message = receiver.receive_one()
        assert message.body == f"{number}"
        receiver.complete(message)
        seen.add(message.partition)
    assert seen == set(range(PARTITION_COUNT))


@partitioned_only
def test_p19_one_receiver_sees_all_partitions(sdk: Sdk, queue: str) -> None:
    sdk.send(queue, *[{"body": f"{number}"} for number in range(2 * PARTITION_COUNT)])
    receiver = sdk.receiver(queue)
    received = receiver.receive_all(2 * PARTITION_COUNT)
    assert Counter(message.partition for message in received) == dict.fromkeys(range(PARTITION_COUNT), 2)
    receiver.complete(*received)
    assert receiver.peek_until(lambda messages: messages == []) == []


@partitioned_only
def test_p22_the_top_16_bits_of_a_sequence_number_are_the_partition_of_the_key(sdk: Sdk, queue: str) -> None:
    for number in range(2):
        sdk.send(queue, *[{"body": f"{key}, {number}", "partition_key": key} for key in KEYS])
    peeked = sdk.receiver(queue).peek_all(page=32)
    assert len(peeked) == 2 * len(KEYS)
    assert {message.body: message.sequence_number >> 48 for message in peeked} == {
        f"{key}, {number}": partition_for_key(key, PARTITION_COUNT) for key in KEYS for number in range(2)
    }
    for partition, count in Counter(message.partition for message in peeked).items():
        local = [message.sequence_number & LOCAL_NUMBERS for message in peeked if message.partition == partition]
        assert local == list(range(1, count + 1))


@unpartitioned_only
def test_p22_without_partitions_the_top_16_bits_are_0(sdk: Sdk, queue: str) -> None:
    sdk.send(queue, *[{"body": key, "partition_key": key} for key in KEYS])
    assert [message.sequence_number for message in sdk.receiver(queue).peek_all()] == list(range(1, len(KEYS) + 1))
