"""The `$cbs` node: clients put tokens there and get claims for their connection [wire 2].

Knows the put-token request and its answers. Refuses to know what a token opens: `broker.access` does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ..broker.encoding import Int
from ..broker.errors import BrokerError, Condition
from .requests import Answer, Request, Response

CBS_ADDRESS: Final = "$cbs"
PUT_TOKEN: Final = "put-token"
_ACCEPTED, _BAD_REQUEST, _NOT_IMPLEMENTED = 202, 400, 501
_STATUS: Final = {
    Condition.UNAUTHORIZED_ACCESS: 401,
    Condition.RESOURCE_LIMIT_EXCEEDED: 403,
    Condition.NOT_FOUND: 404,
}

PutToken = Callable[[str, str], None]
"""Takes a token and its audience, or raises BrokerError."""


def cbs_answer(put_token: PutToken) -> Answer:
    """The node's answering function."""

    async def answer(request: Request, bytes_max: int) -> Response:
        del bytes_max
        return _put_token(request, put_token)

    return answer


def _put_token(request: Request, put_token: PutToken) -> Response:
    operation, audience, token = request.text("operation"), request.text("name"), request.body
    if operation != PUT_TOKEN:
        return _response(_NOT_IMPLEMENTED, f"The operation '{operation}' is not supported by {CBS_ADDRESS}.")
    if audience is None:
        return _response(_BAD_REQUEST, "The application property 'name' (the audience) is missing.")
    if isinstance(token, bytes):
        token = token.decode(errors="replace")
    if not isinstance(token, str):
        return _response(_BAD_REQUEST, "The body must be the token, as a string.")
    try:
        put_token(token, audience)
    except BrokerError as error:
        return _response(_STATUS.get(error.condition, _BAD_REQUEST), error.description)
    return _response(_ACCEPTED, "Accepted")


def _response(status: int, description: str) -> Response:
    # No error-condition here, not even an empty one: Python takes its presence for failure [wire 2.4].
    return Response({"status-code": Int(status), "status-description": description})
