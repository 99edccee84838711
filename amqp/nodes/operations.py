"""What the operations of a `$management` node have in common: reading their bodies, and what they give [wire 7.1].

Knows every spelling and type in which SDKs write a field, and how results are encoded. Does not know any operation.
Nothing here has an owner.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from ...broker.api import TransactionRef
from ...broker.broker import Broker
from ...broker.errors import BrokerError, Condition
from ...broker.ids import token_from_uuid
from ...broker.keys import Right
from ...codec.encode import encode, encode_map, list_from_items, map_from_items
from ...codec.types import Array
from ..past_links import PastLinks
from ..wire.outcomes import property_changes

OK, NO_CONTENT = 200, 204
EMPTY_BODY: Final = encode_map({})
VALUES_MAX: Final = 5_000
"""Of one array or list in a request."""


class Body:
    """The map in a request's body; every getter refuses what it can't use with the field's name in the text."""

    def __init__(self, body: object) -> None:
        if not isinstance(body, dict):
            raise BrokerError(Condition.ARGUMENT_ERROR, "The body of the request must be a map.")
        self._fields: dict[str, object] = body

    def integer(self, name: str, default: int | None = None) -> int:
        """A number of any integer type."""
        value = self._fields.get(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, int) or isinstance(value, bool):
            raise self._wrong(name, "a number")
        return int(value)

    def count(self, name: str, default: int | None = None, *, at_least: int = 1) -> int:
        """A number from 1 on, or from another one."""
        value = self.integer(name, default)
        if value < at_least:
            raise BrokerError(Condition.ARGUMENT_OUT_OF_RANGE, f"The field '{name}' must be at least {at_least}.")
        return value

    def integer_or_none(self, name: str) -> int | None:
        """A number, or None for null and absent."""
        return None if self._fields.get(name) is None else self.integer(name)

    def text(self, name: str) -> str:
        """A string that must be there."""
        value = self._fields.get(name)
        if not isinstance(value, str):
            raise self._wrong(name, "a string")
        return str.__str__(value)

    def text_or_none(self, name: str) -> str | None:
        """A string; null, absent and empty are all None, since Python sends empty strings for unset ones."""
        return self.text(name) or None if self._fields.get(name) is not None else None

    def session_id(self) -> str | None:
        """The message session's name; null and absent are None, and empty is a name."""
        return self.text("session-id") if self._fields.get("session-id") is not None else None

    def binary_or_none(self, name: str) -> bytes | None:
        """Bytes, or None for null and absent."""
        value = self._fields.get(name)
        if value is not None and type(value) is not bytes:  # decimals are bytes of another type
            raise self._wrong(name, "binary or null")
        return value

    def map(self, name: str) -> dict[str, object]:
        """A map; null and absent are empty."""
        value = self._fields.get(name)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise self._wrong(name, "a map")
        return value

    def property_changes(self, name: str) -> dict[str, object]:
        """A map of application properties; null and absent are empty."""
        return property_changes(self.map(name))

    def items(self, name: str) -> list[object]:
        """An array, a list, or a single value: one or more values."""
        value = self._fields.get(name)
        values = list(value.values) if isinstance(value, Array) else value if isinstance(value, list) else [value]
        if not values or values == [None]:
            raise self._wrong(name, "an array with at least one value")
        if len(values) > VALUES_MAX:
            raise self._wrong(name, f"an array of at most {VALUES_MAX} values")
        return values

    def integers(self, name: str) -> list[int]:
        """An array of numbers."""
        values = self.items(name)
        if not all(isinstance(value, int) and not isinstance(value, bool) for value in values):
            raise self._wrong(name, "an array of numbers")
        return [int(value) for value in values if isinstance(value, int)]

    def runs_or_none(self, name: str, count_max: int) -> list[tuple[int, int]] | None:
        """Runs of numbers, at most `count_max` in all: an array of first number and count in turns; None if absent."""
        value = self._fields.get(name)
        if value is None:
            return None
        if isinstance(value, Array) and not value.values:
            return []
        values = self.integers(name)
        found = list(zip(values[::2], values[1::2], strict=False))
        counts = values[1::2]
        if len(values) % 2 or min(values) < 0 or min(counts) < 1 or sum(counts) > count_max:
            raise self._wrong(name, f"an array of first numbers and counts, {count_max} numbers at most")
        return found

    def messages(self, name: str) -> list[bytes]:
        """A list of maps that hold one encoded message each."""
        values = self.items(name)
        found = [value.get("message") for value in values if isinstance(value, dict)]
        encoded = [value for value in found if type(value) is bytes]
        if len(encoded) != len(values):
            raise self._wrong(name, "a list of maps, each with a binary 'message'")
        return encoded

    def lock_tokens(self) -> list[bytes]:
        """The lock tokens, in the order of bytes that delivery-tags have."""
        tokens = [token_from_uuid(value) for value in self.items("lock-tokens") if isinstance(value, uuid.UUID)]
        if len(tokens) != len(self.items("lock-tokens")):
            raise self._wrong("lock-tokens", "an array of uuids")
        return tokens

    @staticmethod
    def _wrong(name: str, wanted: str) -> BrokerError:
        return BrokerError(Condition.ARGUMENT_ERROR, f"The field '{name}' of the request must be {wanted}.")


@dataclass(frozen=True, slots=True)
class Context:
    """What an operation works on: `address` is the entity (with sub-queue), `reply_bytes_max` what may go back."""

    broker: Broker
    address: str
    reply_bytes_max: int
    past_links: PastLinks
    transaction: TransactionRef | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """What an operation gives: a status and an encoded body."""

    status: int = OK
    body: bytes = EMPTY_BODY
    description: str = "OK"
    condition: str | None = None


class Within(Enum):
    """What becomes of a request that names a transaction; .NET names one in every request of an ambient transaction."""

    PART = auto()
    """It comes true with the commit."""
    ASIDE = auto()
    """It is done at once, as without the transaction: it only looks, or it only prolongs or takes a lock."""
    REFUSED = auto()
    """It changes what no transaction can change (P25)."""


@dataclass(frozen=True, slots=True)
class Operation:
    """A row of the table of operations: how it is done, what it takes to be allowed, and how within a transaction."""

    run: Callable[[Context, Body], Awaitable[Result]]
    right: Right
    within: Within
    is_large: bool = False
    """Whether the response holds what clients have stored: messages, states, names, rules."""


def encoded_fields(fields: Mapping[str, bytes]) -> bytes:
    """A map with string keys around encoded values."""
    items = b"".join(encode(key) + value for key, value in fields.items())
    return map_from_items(2 * len(fields), items)


def encoded_list(values: list[bytes]) -> bytes:
    return list_from_items(len(values), b"".join(values))
