"""Delivery states that belong to transactions, as bytes: declared and transactional-state [AMQP 4.5].

Knows their codes and fields, and where Proton keeps what it has no structure for. Does not know what a transaction
is; the other states, which are outcomes, are in `outcomes`.
"""

from __future__ import annotations

from typing import Final

from ...codec.encode import encode_list
from ...codec.types import Described, Ulong
from .engine import Pointer, lib, put_value, value_of

DECLARED: Final = 0x33
TRANSACTIONAL: Final = 0x34


def transaction_of(delivery: Pointer) -> bytes:
    """The transaction that the client's state names; empty, which is no transaction's id, if it names none."""
    return read_transactional(delivery)[0]


def read_transactional(delivery: Pointer) -> tuple[bytes, object]:
    """The id and the outcome (a described value, or None) in the client's transactional-state."""
    value = value_of(lib.pn_disposition_data(lib.pn_delivery_remote(delivery)))
    fields = [*value, None, None] if isinstance(value, list) else [None, None]
    return fields[0] if isinstance(fields[0], bytes) else b"", fields[1]


def transactional_state(transaction: bytes, outcome_code: int) -> bytes:
    """The fields of a transactional-state around a bare outcome: what a success is answered with [wire 8]."""
    return encode_list([transaction, Described(Ulong(outcome_code), [])])


def declared(transaction: bytes) -> bytes:
    """The fields of a declared state."""
    return encode_list([transaction])


def set_state_data(delivery: Pointer, encoded: bytes) -> None:
    """Give our state its fields; the next update of the delivery writes them."""
    put_value(lib.pn_disposition_data(lib.pn_delivery_local(delivery)), encoded)
