"""The `$management` node of an entity: one table of operations [wire 7].

Knows what each operation's body holds, in every spelling that SDKs use, and the exact types that they expect back.
Refuses to know how an operation is done: each is one of the broker's verbs. A new operation is a function and a row.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

from ..broker.commands import ReceiveMode
from ..broker.encoding import Array, Int, Symbol, encode, encode_array, encode_map, list_from_items, map_from_items
from ..broker.errors import BrokerError, Condition
from ..broker.ids import token_from_uuid, token_to_uuid
from ..broker.outcomes import Abandon, Complete, DeadLetter, Defer, Outcome
from .outcomes import property_changes
from .ports import BrokerPort
from .requests import Answer, Request, Response

_TRACKING_ID: Final = "com.microsoft:tracking-id"
_TIMESTAMP, _UUID = 0x83, 0x98
_PER_MESSAGE_BYTES: Final = 64  # what a peeked message costs besides its own bytes, at most
_REPLY_OVERHEAD_BYTES: Final = 1024
_PEEK_BYTES_MAX: Final = 1024 * 1024
_PEEK_COUNT_MAX: Final = 5_000
_LOCK_TOKENS_MAX: Final = 5_000

# [wire 7.1]: the numbers that SDKs fall back to, and what they make of them
_STATUS: Final[Mapping[str, int]] = {
    Condition.ARGUMENT_ERROR: 400,
    Condition.ARGUMENT_OUT_OF_RANGE: 400,
    Condition.DECODE_ERROR: 400,
    Condition.INVALID_FIELD: 400,
    Condition.NOT_ALLOWED: 400,
    Condition.UNAUTHORIZED_ACCESS: 401,
    Condition.ENTITY_DISABLED: 403,
    Condition.MESSAGE_SIZE_EXCEEDED: 403,
    Condition.RESOURCE_LIMIT_EXCEEDED: 403,
    Condition.MESSAGE_NOT_FOUND: 404,
    Condition.NOT_FOUND: 404,
    Condition.TIMEOUT: 408,
    Condition.ENTITY_ALREADY_EXISTS: 409,
    Condition.MESSAGE_LOCK_LOST: 410,
    Condition.INTERNAL_ERROR: 500,
    Condition.NOT_IMPLEMENTED: 501,
    Condition.SERVER_BUSY: 503,
}
_OK, _NO_CONTENT = 200, 204
_EMPTY_BODY: Final = encode_map({})


# ---- reading bodies


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

    def text(self, name: str) -> str:
        """A string that must be there."""
        value = self._fields.get(name)
        if not isinstance(value, str):
            raise self._wrong(name, "a string")
        return str.__str__(value)

    def text_or_none(self, name: str) -> str | None:
        """A string; null, absent and empty are all None, since Python sends empty strings for unset ones."""
        return self.text(name) or None if self._fields.get(name) is not None else None

    def changes(self, name: str) -> dict[str, object]:
        """A map of application properties; null and absent are empty."""
        value = self._fields.get(name)
        if value is not None and not isinstance(value, dict):
            raise self._wrong(name, "a map")
        return property_changes(value)

    def items(self, name: str) -> list[object]:
        """An array, a list, or a single value: one or more values."""
        value = self._fields.get(name)
        values = list(value.values) if isinstance(value, Array) else value if isinstance(value, list) else [value]
        if not values or values == [None]:
            raise self._wrong(name, "an array with at least one value")
        if len(values) > _LOCK_TOKENS_MAX:
            raise self._wrong(name, f"an array of at most {_LOCK_TOKENS_MAX} values")
        return values

    def integers(self, name: str) -> list[int]:
        """An array of numbers."""
        values = self.items(name)
        if not all(isinstance(value, int) and not isinstance(value, bool) for value in values):
            raise self._wrong(name, "an array of numbers")
        return [int(value) for value in values if isinstance(value, int)]

    def lock_tokens(self) -> list[bytes]:
        """The lock tokens, in the order of bytes that delivery-tags have."""
        tokens = [token_from_uuid(value) for value in self.items("lock-tokens") if isinstance(value, uuid.UUID)]
        if len(tokens) != len(self.items("lock-tokens")):
            raise self._wrong("lock-tokens", "an array of uuids")
        return tokens

    @staticmethod
    def _wrong(name: str, wanted: str) -> BrokerError:
        return BrokerError(Condition.ARGUMENT_ERROR, f"The field '{name}' of the request must be {wanted}.")


# ---- the operations


@dataclass(frozen=True, slots=True)
class Context:
    """What an operation works on: `address` is the entity (with sub-queue), `reply_bytes_max` what may go back."""

    broker: BrokerPort
    address: str
    reply_bytes_max: int


@dataclass(frozen=True, slots=True)
class Result:
    """What an operation gives: a status and an encoded body."""

    status: int = _OK
    body: bytes = _EMPTY_BODY
    description: str = "OK"
    condition: str | None = None


Operation = Callable[[Context, Body], Awaitable[Result]]


async def _renew_lock(context: Context, body: Body) -> Result:
    ends = await context.broker.renew_locks(context.address, body.lock_tokens())
    return Result(body=_fields({"expirations": encode_array(_TIMESTAMP, ends)}))


async def _peek(context: Context, body: Body) -> Result:
    count = body.integer("message-count")
    if count < 1:
        raise BrokerError(Condition.ARGUMENT_OUT_OF_RANGE, "The field 'message-count' must be at least 1.")
    first = body.integer("from-sequence-number", 0)
    budget = min(context.reply_bytes_max, _PEEK_BYTES_MAX) - _REPLY_OVERHEAD_BYTES
    messages = await context.broker.peek(context.address, first, min(count, _PEEK_COUNT_MAX), max(1, budget))
    rows: list[bytes] = []
    for message in messages:
        budget -= len(message) + _PER_MESSAGE_BYTES
        if rows and budget < 0:
            break
        rows.append(_fields({"message": encode(message)}))
    if not rows:
        return Result(_NO_CONTENT, description="There are no messages to peek.")
    return Result(body=_fields({"messages": _encoded_list(rows)}))


async def _update_disposition(context: Context, body: Body) -> Result:
    name = body.text("disposition-status")
    make = _DISPOSITIONS.get(name.lower())
    if make is None:
        raise BrokerError(
            Condition.ARGUMENT_ERROR,
            f"The field 'disposition-status' is '{name}'; it must be one of {', '.join(sorted(_DISPOSITIONS))}.",
        )
    await context.broker.settle(context.address, body.lock_tokens(), make(body))
    return Result()


def _suspended(body: Body) -> Outcome:
    return DeadLetter(
        body.text_or_none("deadletter-reason"),
        body.text_or_none("deadletter-description"),
        body.changes("properties-to-modify"),
    )


_DISPOSITIONS: Final[Mapping[str, Callable[[Body], Outcome]]] = {
    "completed": lambda _: Complete(),
    "abandoned": lambda body: Abandon(body.changes("properties-to-modify")),
    "defered": lambda body: Defer(body.changes("properties-to-modify")),
    "deferred": lambda body: Defer(body.changes("properties-to-modify")),
    "suspended": _suspended,
}


async def _receive_by_sequence_number(context: Context, body: Body) -> Result:
    mode = ReceiveMode.RECEIVE_AND_DELETE if body.integer("receiver-settle-mode", 1) == 0 else ReceiveMode.PEEK_LOCK
    numbers = body.integers("sequence-numbers")
    rows: list[bytes] = []
    for each in await context.broker.receive_by_sequence_number(context.address, numbers, mode):
        fields = {"message": encode(each.payload)}
        if mode is ReceiveMode.PEEK_LOCK:
            fields["lock-token"] = encode(token_to_uuid(each.token))
        rows.append(_fields(fields))
    return Result(body=_fields({"messages": _encoded_list(rows)}))


OPERATIONS: Final[Mapping[str, Operation]] = {
    "com.microsoft:renew-lock": _renew_lock,
    "com.microsoft:peek-message": _peek,
    "com.microsoft:update-disposition": _update_disposition,
    "com.microsoft:receive-by-sequence-number": _receive_by_sequence_number,
}


# ---- the node


def management_answer(broker: BrokerPort, address: str) -> Answer:
    """The answering function of the node of `address` (the entity, without `/$management`)."""

    async def answer(request: Request, bytes_max: int) -> Response:
        return _response(request, await _result(Context(broker, address, bytes_max), request))

    return answer


async def _result(context: Context, request: Request) -> Result:
    name = request.text("operation") or ""
    operation = OPERATIONS.get(name)
    try:
        if operation is None:
            raise BrokerError(Condition.NOT_IMPLEMENTED, f"The operation '{name}' is not supported.")
        return await operation(context, Body(request.body))
    except BrokerError as error:
        return Result(_STATUS.get(error.condition, 500), _EMPTY_BODY, error.description, error.condition.value)


def _response(request: Request, result: Result) -> Response:
    # Both spellings: Java, JavaScript and Go also read the older one [wire 7.1].
    properties: dict[str, object] = {
        "statusCode": Int(result.status),
        "status-code": Int(result.status),
        "statusDescription": result.description,
        "status-description": result.description,
    }
    if result.condition is not None:
        properties["errorCondition"] = Symbol(result.condition)  # .NET casts to a symbol
        properties["error-condition"] = Symbol(result.condition)
    tracking_id = request.text(_TRACKING_ID)
    if tracking_id is not None:
        properties[_TRACKING_ID] = tracking_id
    return Response(properties, result.body)


def _fields(fields: Mapping[str, bytes]) -> bytes:
    """A map with string keys around encoded values."""
    items = b"".join(encode(key) + value for key, value in fields.items())
    return map_from_items(2 * len(fields), items)


def _encoded_list(values: list[bytes]) -> bytes:
    return list_from_items(len(values), b"".join(values))
