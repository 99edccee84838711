"""The `$cbs` node: clients put tokens there and get claims for their connection [wire 2].

Knows the put-token request and its answers. Does not know what a token opens: `broker.access` does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ...broker.errors import BrokerError, Condition
from ...codec.types import Int, Symbol
from ..tracking import Tracker
from .requests import Answer, ReplyRoom, Request, Response

CBS_ADDRESS: Final = "$cbs"
PUT_TOKEN: Final = "put-token"
_ACCEPTED, _BAD_REQUEST = 202, 400
_STATUS: Final = {
    Condition.NOT_IMPLEMENTED: 501,
    Condition.UNAUTHORIZED_ACCESS: 401,
    Condition.RESOURCE_LIMIT_EXCEEDED: 403,
    Condition.NOT_FOUND: 404,
    Condition.INTERNAL_ERROR: 500,
}

PutToken = Callable[[str, str], None]
"""Takes a token and its audience, or raises BrokerError."""


def cbs_answer(put_token: PutToken, tracker: Tracker) -> Answer:
    """The node's answering function."""

    async def answer(request: Request, room: ReplyRoom) -> Response:
        del room
        return _put_token(request, put_token, tracker)

    return answer


def _put_token(request: Request, put_token: PutToken, tracker: Tracker) -> Response:
    operation, audience, token = request.text("operation"), request.text("name"), request.body
    try:
        if operation != PUT_TOKEN:
            text = f"The operation '{operation}' is not supported by {CBS_ADDRESS}."
            raise BrokerError(Condition.NOT_IMPLEMENTED, text)
        if audience is None:
            text = "The application property 'name' (the audience) is missing."
            raise BrokerError(Condition.ARGUMENT_ERROR, text)
        if isinstance(token, bytes):
            token = token.decode(errors="replace")
        if not isinstance(token, str):
            raise BrokerError(Condition.ARGUMENT_ERROR, "The body must be the token, as a string.")
        put_token(token, audience)
    except BrokerError as error:
        return _refusal(tracker.claimed(error, audience or ""))
    # A success has no error-condition, not even an empty one: Python takes its presence for failure [wire 2.4].
    return Response({"status-code": Int(_ACCEPTED), "status-description": "Accepted"})


def _refusal(error: BrokerError) -> Response:
    """A refusal. Java's SDK of the first generation needs a condition: without one it waits for its time-out.

    The condition has the newer spelling only, which Java reads first. The service writes `error-condition`, with which
    Python forgets status and description: its exception is the same then, but does not name the entity.
    """
    return Response(
        {
            "status-code": Int(_STATUS.get(error.condition, _BAD_REQUEST)),
            "status-description": error.description,
            "errorCondition": Symbol(error.condition.value),
        }
    )
