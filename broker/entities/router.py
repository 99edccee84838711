"""Routing: the partition of a message, by its key or in turn (P7 to P12).

Knows keys, partition counts, and which stores are available. Does not know what a partition does with a message.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from .. import service_errors
from ..identity import folded
from ..message.message import Message
from ..stores.worker import Worker

BACKLOG_MESSAGES = 64  # in flight without keys: up to here each message goes to the next partition
BACKLOG_PARTS = 4  # a longer backlog is divided into about so many parts: each costs a commit
PART_MESSAGES_MAX = 64


def partition_for_key(key: str, partition_count: int) -> int:
    """Return the partition (0 … partition_count - 1) of `key`: the same on every machine and after every restart, and
    for keys that differ in case only."""
    return _place(folded(key), partition_count)


def _place(identity: str, partition_count: int) -> int:
    return zlib.crc32(identity.encode("utf-8", "surrogatepass")) % partition_count


def key_of(message: Message, *, duplicate_detection: bool) -> str | None:
    """Return the effective partition key: SessionId, else PartitionKey, else (with duplicate detection) MessageId (P8).

    A message of a client whose SessionId and PartitionKey differ was refused when it was parsed (P9). A rule's action
    may give a copy such keys: inside the broker the SessionId is the key.
    """
    key = message.partition_key if message.session_id is None else message.session_id
    return message.message_id if key is None and duplicate_detection else key


class Router:
    """Assigns the messages of one entity to its partitions; `exact_keys`: keys that differ in case are two keys.

    So it was up to data folders of format 4, whose messages must be found where they are.
    """

    def __init__(self, partition_count: int, *, exact_keys: bool = False) -> None:
        self.partition_count = partition_count
        self.exact_keys = exact_keys

    def identity(self, key: str) -> str:
        """Return the same text for keys that are one key."""
        return key if self.exact_keys else folded(key)

    def handle(self, key: str) -> int:
        """Return the partition index of a key."""
        return _place(self.identity(key), self.partition_count) if self.partition_count > 1 else 0

    def route_keyed(self, messages: Sequence[Message], *, duplicate_detection: bool) -> int | None:
        """Return the partition index for the key of a delivery, None without a key; a batch has one partition (P12).

        Raises BrokerError (amqp:not-allowed) for a batch with several keys.
        """
        if self.partition_count == 1:
            return 0
        first = messages[0]
        key = key_of(first, duplicate_detection=duplicate_detection)
        index = None if key is None else self.handle(key)
        for message in messages[1:]:
            other = key_of(message, duplicate_detection=duplicate_detection)
            if other != key and (other is None or key is None or self.identity(other) != self.identity(key)):
                if not duplicate_detection:
                    raise service_errors.mixed_keys()
                shown = first.partition_key, first.session_id, first.message_id
                raise service_errors.mixed_ids(index or 0, *shown)
        return index


class Dealer:
    """Deals messages without keys to the partitions of one entity in turn (P11); partition n is in `workers[n]`.

    A message goes to the next partition, so that few messages spread over all. With a backlog in flight a partition
    gets a part before its successor's turn: one commit stores it whole. Parts have a turn of their own; those of one
    round over all partitions have the same length, more with a longer backlog, and an interrupted part goes on later.
    So any stretch of messages is even over the partitions.
    """

    def __init__(self, workers: Sequence[Worker]) -> None:
        self._workers = workers
        self.in_flight = 0  # messages without keys on their way to a partition; `Entity` counts them
        self._next = 0
        self._part_index = len(workers) - 1  # the partition whose part is being dealt
        self._part_left = 0  # how many messages it gets yet
        self._part_length = 1  # in this round over all partitions

    def next(self) -> int:
        """Return the next partition in turn, skipping unavailable stores (P11, P13)."""
        workers, count = self._workers, len(self._workers)
        index = self._next
        for _ in range(count - 1):
            if workers[index].available:
                break
            index = (index + 1) % count
        self._next = (index + 1) % count
        return index

    def deal(self, count: int) -> list[tuple[int, int]]:
        """Deal `count` messages: return (partition index, how many) in their order."""
        parts: list[tuple[int, int]] = []
        in_flight, end = self.in_flight, self.in_flight + count
        while in_flight < end:
            if in_flight <= BACKLOG_MESSAGES:
                index, taken = self.next(), 1
            else:
                index = self._part_for_backlog(in_flight)
                taken = min(end - in_flight, self._part_left)
                self._part_left -= taken
            parts.append((index, taken))
            in_flight += taken
        return parts

    def _part_for_backlog(self, in_flight: int) -> int:
        """Return the partition whose part goes on, or the next one in turn whose store is available."""
        for _ in self._workers:
            if self._part_left and self._workers[self._part_index].available:
                break
            self._part_index = (self._part_index + 1) % len(self._workers)
            if not self._part_index:
                self._part_length = min(in_flight // BACKLOG_PARTS, PART_MESSAGES_MAX)
            self._part_left = self._part_length
        return self._part_index
