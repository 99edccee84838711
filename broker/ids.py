"""The one source of randomness: lock tokens, message and tracking ids, and keys.

A lock token is 16 bytes in .NET GUID byte order, as the delivery-tag carries it [wire 5.3]. Its last two bytes hold
the index of the partition inside its entity, so that a token that comes back over `$management` finds its lock
without a search; the other 14 are random.
"""

from __future__ import annotations

import base64
import os
import random
import uuid

_random = random.Random(os.urandom(16))
_bits = _random.getrandbits

TOKEN_BYTES = 16


def new_lock_token(partition_index: int) -> bytes:
    """A fresh lock token (16 bytes, delivery-tag order) for a message of partition `partition_index` (0…65535)."""
    return ((_bits(112) << 16) | partition_index).to_bytes(16, "big")


def partition_index_of(token: bytes) -> int:
    """The partition index inside a token made by `new_lock_token`; any number for tokens made by others."""
    return (token[14] << 8) | token[15] if len(token) == TOKEN_BYTES else 0


def token_from_uuid(value: uuid.UUID) -> bytes:
    """The delivery-tag form of a lock token that arrived as an AMQP uuid [wire 5.3]."""
    return value.bytes_le


def token_to_uuid(token: bytes) -> uuid.UUID:
    """The AMQP uuid form of a lock token in delivery-tag order."""
    return uuid.UUID(bytes_le=token)


def new_tracking_id() -> str:
    """An id for error descriptions (`TrackingId:<this>`), as the service prints them."""
    return str(uuid.UUID(int=_bits(128), version=4))


def new_message_id() -> str:
    """A message id for a message that came without one: 32 hexadecimal digits, as the service gives them."""
    return f"{_bits(128):032x}"


def new_shared_key() -> str:
    """A key for an authorisation rule whose creator gave none: 32 bytes in base64."""
    return base64.b64encode(os.urandom(32)).decode("ascii")


def chance() -> float:
    """A number from 0 up to, not including, 1: for what is to happen with a probability."""
    return _random.random()
