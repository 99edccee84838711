"""Partitions: where messages go, seen from the sequence numbers."""

from __future__ import annotations

from collections import Counter

import pytest

from .client import Sdk
from .conftest import MakeQueue
from .driver import SdkError

pytestmark = pytest.mark.sdk

PARTITION_COUNT = 16
LOCAL_NUMBERS = (1 << 48) - 1

partitioned_only = pytest.mark.parametrize("partitioned", [True], ids=["partitioned"], indirect=True)
unpartitioned_only = pytest.mark.parametrize("partitioned", [False], ids=["unpartitioned"], indirect=True)


@partitioned_only
def test_messages_without_a_key_fill_all_partitions_evenly(sdk: Sdk, queue: str) -> None:
    sdk.send(queue, *[{"body": f"{number}"} for number in range(2 * PARTITION_COUNT)])
    partitions = Counter(message.partition for message in sdk.receiver(queue).peek_all(page=32))
    assert partitions == dict.fromkeys(range(PARTITION_COUNT), 2)


@partitioned_only
def test_a_batch_without_a_key_stays_together(sdk: Sdk, queue: str) -> None:
    sdk.send(queue, *[{"body": f"{number}"} for number in range(6)], how="batch")
    peeked = sdk.receiver(queue).peek_all()
    assert [message.body for message in peeked] == ["0", "1", "2", "3", "4", "5"]
    assert len({message.partition for message in peeked}) == 1


@partitioned_only
@pytest.mark.parametrize("key", ["partition_key", "session_id"])
def test_messages_with_one_key_go_to_one_partition_in_order(sdk: Sdk, queue: str, key: str) -> None:
    for number in range(3):
        sdk.send(queue, {"body": f"{number}", key: "the key"})
    sdk.send(queue, *[{"body": f"{number}", key: "the key"} for number in range(3, 6)], how="batch")
    peeked = sdk.receiver(queue).peek_all()
    assert [message.body for message in peeked] == ["0", "1", "2", "3", "4", "5"]
    assert len({message.partition for message in peeked}) == 1
    assert [message.sequence_number & LOCAL_NUMBERS for message in peeked] == [1, 2, 3, 4, 5, 6]


@partitioned_only
def test_a_key_leads_to_the_same_partition_in_every_queue(sdk: Sdk, make_queue: MakeQueue) -> None:
    sent = [{"body": f"{number}", "partition_key": f"key {number}"} for number in range(8)]
    partitions: list[list[tuple[str | None, int]]] = []
    for queue in (make_queue(), make_queue()):
        sdk.send(queue, *sent)
        partitions.append([(message.body, message.partition) for message in sdk.receiver(queue).peek_all()])
    assert len(partitions[0]) == len(sent)
    assert sorted(partitions[0]) == sorted(partitions[1])


@partitioned_only
def test_a_batch_with_two_keys_is_refused_whole(sdk: Sdk, queue: str) -> None:
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
