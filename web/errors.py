"""Broker errors over HTTP: one table from conditions to statuses, and the XML error body.

Knows which status and sub-code Service Bus SDKs map to which of their exceptions [http 4], and the statuses of REST
messaging [http 5]. Does not decide when something is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ..broker.errors import BrokerError, Condition, KeysDifferError, TargetMissingError
from ..broker.service_errors import RESOURCES
from ..broker.tracking import http_tail
from .markup import escaped


@dataclass(frozen=True, slots=True)
class Answer:
    """The HTTP form of a condition: status and sub-code for management, and the status for REST messaging."""

    status: int
    sub_code: int
    rest_status: int


_BAD, _MISSING, _QUOTA = Answer(400, 40000, 400), Answer(404, 40400, 410), Answer(403, 40300, 403)
_BUSY, _FAILED = Answer(503, 50300, 503), Answer(500, 50000, 500)
_LOST = Answer(404, 40400, 404)

ANSWERS: Final[Mapping[Condition, Answer]] = {
    Condition.ARGUMENT_ERROR: _BAD,
    Condition.ARGUMENT_OUT_OF_RANGE: _BAD,
    Condition.CONNECTION_FORCED: _BUSY,
    Condition.CONTAINER_CLOSE: _BUSY,
    Condition.DECODE_ERROR: _BAD,
    Condition.FRAMING_ERROR: _BAD,
    Condition.DETACH_FORCED: _BUSY,
    Condition.ENTITY_ALREADY_EXISTS: Answer(409, 40900, 409),
    Condition.ENTITY_DISABLED: Answer(403, 40301, 403),
    Condition.HANDLE_IN_USE: _BAD,
    Condition.ILLEGAL_STATE: _BAD,
    Condition.INTERNAL_ERROR: _FAILED,
    Condition.INVALID_FIELD: _BAD,
    Condition.MESSAGE_LOCK_LOST: _LOST,
    Condition.MESSAGE_NOT_FOUND: _LOST,
    Condition.MESSAGE_SIZE_EXCEEDED: _QUOTA,
    Condition.NOT_ALLOWED: Answer(400, 40000, 405),  # the service's answer to what an entity does not allow [http 5]
    Condition.NOT_FOUND: _MISSING,
    Condition.NOT_IMPLEMENTED: Answer(501, 50100, 501),
    Condition.PRECONDITION_FAILED: Answer(412, 41200, 412),
    Condition.RESOURCE_LIMIT_EXCEEDED: _QUOTA,
    Condition.SERVER_BUSY: _BUSY,
    Condition.SESSION_CANNOT_BE_LOCKED: Answer(409, 40900, 409),
    Condition.SESSION_LOCK_LOST: _LOST,
    Condition.SESSION_NOT_FOUND: _LOST,
    Condition.STOLEN: _BAD,
    Condition.TIMEOUT: _BUSY,
    Condition.TRANSACTION_ROLLBACK: _FAILED,
    Condition.TRANSACTION_TIMEOUT: _BUSY,
    Condition.TRANSACTION_UNKNOWN_ID: _BAD,
    Condition.UNATTACHED_HANDLE: _BAD,
    Condition.UNAUTHORIZED_ACCESS: Answer(401, 40100, 401),
}

TITLES: Final[Mapping[int, str]] = {
    40000: "",  # the service names the problem only
    40100: "",
    40301: "",
    40400: "Not Found. ",
    40900: "Conflict. ",
}


EXISTS: Final = (
    "SubCode=40900. Conflict. You're requesting an operation that isn't allowed in the resource's current state. "
    f"{RESOURCES}"
)
"""The answer to creating a queue or topic that exists."""


EXCERPT_CHARS_MAX: Final = 80


class HttpRefusal(Exception):  # noqa: N818 - the answer to a request; not every one is an error of the broker
    """An error answer that does not come from the broker, or has a text of its own."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(f"{status}: {detail}")
        self.status = status
        self.detail = detail


def excerpt(text: str) -> str:
    """Untrusted text, cut to a length that fits an error message."""
    return text if len(text) <= EXCERPT_CHARS_MAX else f"{text[:EXCERPT_CHARS_MAX]}…"


def rest_refusal_of(error: BrokerError) -> HttpRefusal:
    """The answer of REST messaging to a broker error."""
    status = 400 if isinstance(error, KeysDifferError) else ANSWERS[error.condition].rest_status
    return HttpRefusal(status, error.description)


def refusal_of(error: BrokerError) -> HttpRefusal:
    """The answer of the management API to a broker error."""
    error = error.in_service_words
    answer = ANSWERS[error.condition]
    if error.condition is Condition.ENTITY_ALREADY_EXISTS:
        return HttpRefusal(answer.status, EXISTS)
    if isinstance(error, TargetMissingError):
        return HttpRefusal(400, f"SubCode=40400. {error.description}")  # azure-service-bus 203
    if answer.status == 401:
        return HttpRefusal(401, error.description)  # SDKs look for no sub-code here
    return HttpRefusal(
        answer.status, f"SubCode={answer.sub_code}. {TITLES.get(answer.sub_code, '')}{error.description}"
    )


def error_body(refusal: HttpRefusal, system: str, now_ms: int) -> str:
    """The XML of an error: no namespace, and the tracking part that support tools parse."""
    return _body(refusal.status, f"{refusal.detail} {http_tail(system, now_ms)}")


def management_error_body(refusal: HttpRefusal, system: str, now_ms: int) -> str:
    """As `error_body`, as the management API writes it: the text always ends with a full stop."""
    return _body(refusal.status, f"{refusal.detail.removesuffix('.')}. {http_tail(system, now_ms)}")


def _body(status: int, detail: str) -> str:
    return f"<Error><Code>{status}</Code><Detail>{escaped(detail)}</Detail></Error>"
