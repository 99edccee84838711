"""The one source of randomness: lock tokens, transaction, message and tracking ids, and keys.

All randomness comes from the operating system's generator, so ids can't be predicted from earlier ones.

A lock token is 16 bytes in .NET GUID byte order, as the delivery-tag carries it [wire 5.3]. Its last two bytes hold
the index of the partition in its entity: a token that comes back over `$management` finds its lock without a search.
The other 14 are random.
"""

from __future__ import annotations

import base64
import operator
import os
import random
import uuid
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, repeat
from operator import itemgetter
from struct import Struct

_POOL_BYTES = 16 * 1024
"""Bytes read at once: a system call per lock token would double the cost of a token."""
_chance = random.SystemRandom().random

TOKEN_BYTES = 16
_INDEX_BYTES = 2
_RANDOM_BYTES = TOKEN_BYTES - _INDEX_BYTES
_TOKEN_SIZES = frozenset({TOKEN_BYTES})
_joined: Callable[[bytes, bytes], bytes] = operator.add
_token_end = itemgetter(slice(-_INDEX_BYTES, None))
_token_starts = Struct(f"{_RANDOM_BYTES}s").iter_unpack


class _Pool:
    """Random bytes read ahead. No byte is used twice, not in a forked process either."""

    __slots__ = ("_at", "_bytes")

    def __init__(self) -> None:
        self._bytes = b""
        self._at = 0
        os.register_at_fork(after_in_child=self.clear)

    def take(self, count: int) -> bytes:
        start = self._at
        end = self._at = start + count
        if end > len(self._bytes):
            self._bytes = os.urandom(max(count, _POOL_BYTES))
            start, end = 0, count
            self._at = count
        return self._bytes[start:end]

    def clear(self) -> None:
        """Drop the bytes; the next `take` reads new ones."""
        self._bytes, self._at = b"", 0


_take = _Pool().take


def new_lock_tokens(partition_index: int, count: int) -> list[bytes]:
    """Fresh lock tokens (16 bytes, delivery-tag order) for messages of partition `partition_index` (0…65535)."""
    index = partition_index.to_bytes(_INDEX_BYTES, "big")
    starts = chain.from_iterable(_token_starts(_take(count * _RANDOM_BYTES)))
    return list(map(_joined, starts, repeat(index)))  # a comprehension would be a call for each run


def new_transaction_id() -> bytes:
    """An id for a transaction: 16 bytes; a transaction-id on the wire has at most 32 [AMQP 4.5.4]."""
    return _take(16)


def partition_index_of_token(token: bytes) -> int:
    """Return the partition index in a lock token; any number for a foreign token."""
    return (token[14] << 8) | token[15] if len(token) == TOKEN_BYTES else 0


def positions_by_partition(tokens: Sequence[bytes]) -> Mapping[int, Sequence[int]]:
    """Return the positions of lock tokens by the partition indices in them; see `partition_index_of_token`."""
    ends = list(map(_token_end, tokens))
    if len(set(ends)) == 1 and _TOKEN_SIZES.issuperset(map(len, tokens)):  # of an unpartitioned entity
        return {int.from_bytes(ends[0], "big"): range(len(ends))}
    groups: dict[int, list[int]] = {}
    for position, token in enumerate(tokens):
        groups.setdefault(partition_index_of_token(token), []).append(position)
    return groups


def token_from_uuid(value: uuid.UUID) -> bytes:
    """The delivery-tag form of a lock token that arrived as an AMQP uuid [wire 5.3]."""
    return value.bytes_le


def token_to_uuid(token: bytes) -> uuid.UUID:
    """The AMQP uuid form of a lock token in delivery-tag order."""
    return uuid.UUID(bytes_le=token)


def new_tracking_id() -> str:
    """An id for error descriptions (`TrackingId:<this>`), as the service prints them."""
    return str(uuid.UUID(bytes=_take(16), version=4))


def new_message_id() -> str:
    """A message id for a message without one: 32 hexadecimal digits, as in the service."""
    return _take(16).hex()


def new_shared_key() -> str:
    """A key for an authorisation rule created without one: 32 bytes in base64."""
    return base64.b64encode(os.urandom(32)).decode("ascii")


def chance() -> float:
    """A random number, 0 ≤ n < 1."""
    return _chance()
