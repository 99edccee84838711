"""The `$management` node of an entity: one table of operations, one table of statuses [wire 7].

Knows the envelope of a response, and what an operation takes to be allowed. Does not know what the operations do:
the `operations_…` modules do. A new operation is a function and a row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Final

from ...broker import service_errors
from ...broker.broker import Broker
from ...broker.errors import BrokerError, Condition
from ...broker.keys import Right
from ...codec.types import Int, Symbol
from ..past_links import PastLinks
from ..tracking import Tracker
from . import operations_messages as messages
from . import operations_partitions as partitions
from . import operations_rules as rules
from . import operations_sessions as sessions
from .operations import EMPTY_BODY, Body, Context, Operation, Result, Within
from .requests import Answer, ReplyRoom, Request, Response

PART, ASIDE, REFUSED = Within.PART, Within.ASIDE, Within.REFUSED
_GENERATION: Final = "emubus:generation"
_TRACKING_ID: Final = "com.microsoft:tracking-id"
ASSOCIATED_LINK: Final = "associated-link-name"
"""The application property with the name of the link in whose name a client asks."""
_OF_HOLDERS: Final = frozenset(
    f"com.microsoft:{name}"
    for name in (
        "update-disposition",
        "renew-session-lock",
        "set-session-state",
        "get-session-state",
        "receive-by-sequence-number",
    )
)
"""What only the holder of a message session may do, if the body names the session."""

# [wire 7.1]: the numbers that SDKs fall back to, and what they make of them
STATUS: Final[Mapping[Condition, int]] = {
    Condition.ARGUMENT_ERROR: 400,
    Condition.ARGUMENT_OUT_OF_RANGE: 400,
    Condition.DECODE_ERROR: 400,
    Condition.FRAMING_ERROR: 400,
    Condition.HANDLE_IN_USE: 400,
    Condition.ILLEGAL_STATE: 400,
    Condition.INVALID_FIELD: 400,
    Condition.NOT_ALLOWED: 400,
    Condition.STOLEN: 400,
    Condition.TRANSACTION_ROLLBACK: 400,
    Condition.TRANSACTION_TIMEOUT: 400,
    Condition.TRANSACTION_UNKNOWN_ID: 400,
    Condition.UNATTACHED_HANDLE: 400,
    Condition.UNAUTHORIZED_ACCESS: 401,
    Condition.ENTITY_DISABLED: 403,
    Condition.MESSAGE_SIZE_EXCEEDED: 403,
    Condition.RESOURCE_LIMIT_EXCEEDED: 403,
    Condition.MESSAGE_NOT_FOUND: 404,
    Condition.NOT_FOUND: 404,
    Condition.SESSION_NOT_FOUND: 404,
    Condition.TIMEOUT: 408,
    Condition.ENTITY_ALREADY_EXISTS: 409,
    Condition.MESSAGE_LOCK_LOST: 410,
    Condition.SESSION_CANNOT_BE_LOCKED: 410,
    Condition.SESSION_LOCK_LOST: 410,
    Condition.PRECONDITION_FAILED: 412,
    Condition.INTERNAL_ERROR: 500,
    Condition.NOT_IMPLEMENTED: 501,
    Condition.CONNECTION_FORCED: 503,
    Condition.CONTAINER_CLOSE: 503,
    Condition.DETACH_FORCED: 503,
    Condition.SERVER_BUSY: 503,
}

OPERATIONS: Final[Mapping[str, Operation]] = {
    "com.microsoft:renew-lock": Operation(messages.renew_lock, Right.LISTEN, ASIDE),
    "com.microsoft:peek-message": Operation(messages.peek, Right.LISTEN, ASIDE, is_large=True),
    "com.microsoft:schedule-message": Operation(messages.schedule, Right.SEND, PART),
    "com.microsoft:cancel-scheduled-message": Operation(messages.cancel_scheduled, Right.SEND, PART),
    "com.microsoft:receive-by-sequence-number": Operation(
        messages.receive_by_sequence_number, Right.LISTEN, ASIDE, is_large=True
    ),
    "com.microsoft:update-disposition": Operation(messages.update_disposition, Right.LISTEN, PART),
    "com.microsoft:batch-delete-messages": Operation(messages.batch_delete, Right.LISTEN, REFUSED),
    "com.microsoft:renew-session-lock": Operation(sessions.renew_session_lock, Right.LISTEN, ASIDE),
    "com.microsoft:set-session-state": Operation(sessions.set_session_state, Right.LISTEN, PART),
    "com.microsoft:get-session-state": Operation(sessions.get_session_state, Right.LISTEN, ASIDE, is_large=True),
    "com.microsoft:get-message-sessions": Operation(sessions.get_message_sessions, Right.LISTEN, ASIDE, is_large=True),
    "com.microsoft:add-rule": Operation(rules.add_rule, Right.LISTEN, REFUSED),
    "com.microsoft:remove-rule": Operation(rules.remove_rule, Right.LISTEN, REFUSED),
    "com.microsoft:enumerate-rules": Operation(rules.enumerate_rules, Right.LISTEN, ASIDE, is_large=True),
    "emubus:get-partitions": Operation(partitions.get_partitions, Right.LISTEN, ASIDE),
    "emubus:list-sequence-numbers": Operation(partitions.list_sequence_numbers, Right.LISTEN, ASIDE),
    "emubus:delete-messages-before": Operation(partitions.delete_messages_before, Right.LISTEN, REFUSED),
    "emubus:delete-messages": Operation(partitions.delete_messages, Right.LISTEN, REFUSED),
    "emubus:claim-messages": Operation(partitions.claim_messages, Right.LISTEN, REFUSED),
    "emubus:delete-deferred-messages": Operation(partitions.delete_deferred_messages, Right.LISTEN, REFUSED),
}

OF_THE_SERVICE: Final = {name: row for name, row in OPERATIONS.items() if not name.startswith("emubus:")}


def management_answer(
    broker: Broker,
    address: str,
    require: Callable[[Right], None],
    tracker: Tracker,
    past_links: PastLinks,
    *,
    own_operations: bool = True,
) -> Answer:
    """The answering function of the node of `address` (the entity, without `/$management`).

    `require` raises BrokerError unless the client has the right on it. Without `own_operations` it knows none that the
    service does not have.
    """
    known = OPERATIONS if own_operations else OF_THE_SERVICE

    async def answer(request: Request, room: ReplyRoom) -> Response:
        context = Context(broker, address, room.bytes_max, past_links, request.transaction)
        try:
            operation = _operation(known, context, request, require)
            async with room.turn() if operation.is_large else nullcontext():
                _check_generation(context, request)
                body = Body(request.body)
                _check_holder(context, request, body)
                return _response(request, await operation.run(context, body))
        except BrokerError as error:
            return refusal(request, tracker.answered(error, address))

    return answer


def _operation(
    known: Mapping[str, Operation], context: Context, request: Request, require: Callable[[Right], None]
) -> Operation:
    """The row of the operation, if the client may ask for it here. Raises BrokerError."""
    name = request.text("operation") or ""
    operation = known.get(name)
    if operation is None:
        raise BrokerError(Condition.NOT_IMPLEMENTED, f"Invalid command '{name}'.")
    require(operation.right)
    if name in OF_THE_SERVICE:
        context.broker.namespace.check_browsable(context.address)
    if context.transaction is not None and operation.within is REFUSED:
        raise BrokerError(Condition.NOT_ALLOWED, f"The operation '{name}' can't be part of a transaction.")
    return operation


def _check_holder(context: Context, request: Request, body: Body) -> None:
    """Refuse a request in the name of a receiver that has lost its message session: another one may hold it by now.

    Raises BrokerError: session-lock-lost.
    """
    if request.text("operation") not in _OF_HOLDERS or body.session_id() is None:
        return
    if context.past_links.have_lost_session(request.text(ASSOCIATED_LINK)):
        raise service_errors.session_lock_lost()


def _check_generation(context: Context, request: Request) -> None:
    """Refuse a request whose sequence numbers are those of another entity that had the path before.

    Raises BrokerError: precondition-failed, not-found.
    """
    wanted = request.text(_GENERATION)
    if wanted is None:
        return
    found = context.broker.messages.generation(context.address)
    if found != wanted:
        raise BrokerError(
            Condition.PRECONDITION_FAILED,
            f"'{context.address}' has generation {found}, not {wanted}: it was created again or restored.",
        )


def refusal(request: Request, error: BrokerError) -> Response:
    """The response to a request that is refused because of `error`."""
    return _response(request, _refusal(error))


def _refusal(error: BrokerError) -> Result:
    return Result(STATUS.get(error.condition, 500), EMPTY_BODY, error.description, error.condition.value)


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
