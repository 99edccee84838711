"""Routing: the partition of a message, by its key or in turn (P7 to P12).

Knows keys and partition counts. Does not know stores and their health.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from .. import service_errors
from ..identity import folded
from ..message.message import Message


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
        self._next = 0

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

    def next(self) -> int:
        """Return the next partition index in turn (P11)."""
        index = self._next
        self._next = (index + 1) % self.partition_count
        return index
