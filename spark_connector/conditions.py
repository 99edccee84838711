"""What the service's error conditions mean to the connector: one table [wire 9.1].

Knows the code of each condition, whether a retry may help, and what a user can do. Does not know where an error came
from: a detach, an outcome or a management response.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from .errors import Code, ConnectorError

_NO = False
_YES = True

CONDITIONS: Final[Mapping[str, tuple[Code, bool]]] = {
    "amqp:not-found": (Code.ENTITY_NOT_FOUND, _NO),
    "amqp:resource-deleted": (Code.ENTITY_NOT_FOUND, _NO),
    "amqp:unauthorized-access": (Code.UNAUTHORIZED, _NO),
    "com.microsoft:auth-failed": (Code.UNAUTHORIZED, _NO),
    "com.microsoft:entity-disabled": (Code.ENTITY_DISABLED, _NO),
    "amqp:link:message-size-exceeded": (Code.MESSAGE_TOO_LARGE, _NO),
    "com.microsoft:server-busy": (Code.THROTTLED, _YES),
    "amqp:resource-limit-exceeded": (Code.THROTTLED, _YES),
    "amqp:link:transfer-limit-exceeded": (Code.THROTTLED, _YES),
    "com.microsoft:timeout": (Code.UNAVAILABLE, _YES),
    "com.microsoft:message-wait-timeout": (Code.UNAVAILABLE, _YES),
    "com.microsoft:operation-cancelled": (Code.UNAVAILABLE, _YES),
    "com.microsoft:container-close": (Code.UNAVAILABLE, _YES),
    "com.microsoft:store-lock-lost": (Code.UNAVAILABLE, _YES),
    "amqp:internal-error": (Code.UNAVAILABLE, _YES),
    "amqp:link:detach-forced": (Code.UNAVAILABLE, _YES),
    "amqp:connection:forced": (Code.UNAVAILABLE, _YES),
    "amqp:connection:framing-error": (Code.UNAVAILABLE, _YES),
    "com.microsoft:session-cannot-be-locked": (Code.REFUSED, _YES),
    "com.microsoft:message-lock-lost": (Code.REFUSED, _NO),
    "com.microsoft:session-lock-lost": (Code.REFUSED, _NO),
    "com.microsoft:message-not-found": (Code.REFUSED, _NO),
    "com.microsoft:session-not-found": (Code.REFUSED, _NO),
    "com.microsoft:argument-error": (Code.REFUSED, _NO),
    "com.microsoft:argument-out-of-range": (Code.REFUSED, _NO),
    "amqp:not-allowed": (Code.REFUSED, _NO),
    "amqp:not-implemented": (Code.REFUSED, _NO),
    "amqp:precondition-failed": (Code.DATA_LOSS, _NO),  # of emubus: the entity has another generation
    "amqp:transaction:rollback": (Code.REFUSED, _YES),
    "amqp:transaction:timeout": (Code.REFUSED, _YES),
    "amqp:transaction:unknown-id": (Code.REFUSED, _YES),
    "amqp:link:stolen": (Code.REFUSED, _NO),
}

CONDITION_BY_STATUS: Final[Mapping[int, str]] = {
    400: "com.microsoft:argument-error",
    401: "amqp:unauthorized-access",
    403: "amqp:resource-limit-exceeded",
    404: "amqp:not-found",
    408: "com.microsoft:timeout",
    410: "com.microsoft:message-lock-lost",
    500: "amqp:internal-error",
    501: "amqp:not-implemented",
    412: "amqp:precondition-failed",
    503: "com.microsoft:server-busy",
}
"""For management responses that carry no condition of their own [wire 7.1]."""

REMEDIES: Final[Mapping[Code, str]] = {
    Code.ENTITY_NOT_FOUND: "check the name of the queue, or of the topic and its subscription",
    Code.UNAUTHORIZED: "check the key, the token and its rights (Listen to read, Send to write)",
    Code.ENTITY_DISABLED: "enable the entity",
    Code.DATA_LOSS: "start with a new checkpointLocation, or set failOnDataLoss=false to read the new entity from its "
    "first message",
    Code.MESSAGE_TOO_LARGE: "make the message smaller, or the entity's limit larger",
    Code.SESSION_REQUIRED: "give each message a sessionId",
    Code.THROTTLED: "try again later",
    Code.UNAVAILABLE: "try again",
}

_SESSION_WORDS: Final = ("sessionid was not set", "requires sessions", "non-sessionful")
"""Words that mark refusals about message sessions among those with `amqp:not-allowed` [wire 4.5, 5.2]."""


def wire_error(condition: str | None, description: str | None, *, entity: str) -> ConnectorError:
    """The error for a condition; an unknown condition is a refusal that is not retriable."""
    code, retriable = CONDITIONS.get(condition or "", (Code.REFUSED, False))
    said = " ".join((description or "").split())
    if condition == "amqp:not-allowed" and any(words in said.lower() for words in _SESSION_WORDS):
        code = Code.SESSION_REQUIRED
    parts = [f"{entity}: {said or 'the service gave no reason'}"]
    if condition:
        parts.append(f" ({condition})")
    if code in REMEDIES:
        parts.append(f": {REMEDIES[code]}")
    return ConnectorError(code, "".join(parts), condition=condition, retriable=retriable)


def unavailable(text: str, *, retriable: bool = True) -> ConnectorError:
    """No connection, or no answer in time; `text` names host and port."""
    return ConnectorError(Code.UNAVAILABLE, text, retriable=retriable)
