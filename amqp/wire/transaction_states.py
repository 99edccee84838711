"""Delivery states that belong to transactions, as bytes: declared and transactional-state [AMQP 4.5].

Knows their codes and fields, and where Proton keeps what it has no structure for. Does not know what a transaction
is; the other states, which are outcomes, are in `outcomes`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from ...codec.encode import encode_list
from ...codec.types import Described, Ulong
from .engine import Pointer, decoded, encoded_value_of, lib, put_value

DECLARED: Final = 0x33
TRANSACTIONAL: Final = 0x34

STATES_KEPT_MAX: Final = 64
"""Deliveries of one transaction mostly have equal states; so many are decoded, or encoded, once."""

SHARED_BYTES_MAX: Final = 64
"""A transaction's id and a bare outcome; one with an error or with changed properties is decoded each time."""


def transaction_of(delivery: Pointer) -> bytes:
    """The transaction that the client's state names; empty, which is no transaction's id, if it names none."""
    return read_transactional(delivery)[0]


def read_transactional(delivery: Pointer) -> tuple[bytes, object]:
    """The id and the outcome (a described value, or None) in the client's transactional-state."""
    encoded = encoded_value_of(lib.pn_disposition_data(lib.pn_delivery_remote(delivery)))
    return _transactional_fields(encoded) if len(encoded) > SHARED_BYTES_MAX else _shared_fields(encoded)


def _transactional_fields(encoded: bytes) -> tuple[bytes, object]:
    value = decoded(encoded)
    fields = [*value, None, None] if isinstance(value, list) else [None, None]
    return fields[0] if isinstance(fields[0], bytes) else b"", fields[1]


_shared_fields: Final = lru_cache(STATES_KEPT_MAX)(_transactional_fields)


@lru_cache(STATES_KEPT_MAX)
def transactional_state(transaction: bytes, outcome_code: int) -> bytes:
    """The fields of a transactional-state around a bare outcome: what a success is answered with [wire 8]."""
    return encode_list([transaction, Described(Ulong(outcome_code), [])])


def declared(transaction: bytes) -> bytes:
    return encode_list([transaction])


def set_state_data(delivery: Pointer, encoded: bytes) -> None:
    """Give our state its fields; the next update of the delivery writes them."""
    put_value(lib.pn_disposition_data(lib.pn_delivery_local(delivery)), encoded)
