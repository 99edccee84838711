"""Errors of the connector: one readable line each, with a code.

Knows the codes. Does not know the conditions of AMQP (`conditions` maps them). Errors cross process borders of Spark,
so they pickle, and never contain a secret.
"""

from __future__ import annotations

from enum import StrEnum


class Code(StrEnum):
    """The code in square brackets at the beginning of each error text, after `SERVICEBUS_`."""

    OPTION_INVALID = "OPTION_INVALID"
    UNKNOWN_OPTION = "UNKNOWN_OPTION"
    ENTITY_NOT_FOUND = "ENTITY_NOT_FOUND"
    ENTITY_DISABLED = "ENTITY_DISABLED"
    UNAUTHORIZED = "UNAUTHORIZED"
    CHECKPOINT_MISMATCH = "CHECKPOINT_MISMATCH"
    DATA_LOSS = "DATA_LOSS"
    MESSAGE_TOO_LARGE = "MESSAGE_TOO_LARGE"
    SESSION_REQUIRED = "SESSION_REQUIRED"
    THROTTLED = "THROTTLED"
    MODE_UNSUPPORTED = "MODE_UNSUPPORTED"
    SCHEMA_UNSUPPORTED = "SCHEMA_UNSUPPORTED"
    UNAVAILABLE = "UNAVAILABLE"  # no connection, or no answer in time
    MALFORMED_MESSAGE = "MALFORMED_MESSAGE"  # bytes that came from the service and are no AMQP
    VALUE_INVALID = "VALUE_INVALID"  # what a row's column holds cannot be sent
    EQUAL_ROWS = "EQUAL_ROWS"  # rows of a batch had one message id: an entity with duplicate detection has one of them
    REFUSED = "REFUSED"  # whatever else the service refuses


class ConnectorError(Exception):
    """An error with a `code`, the AMQP `condition` if there is one, and whether a retry may help."""

    def __init__(self, code: Code, text: str, *, condition: str | None = None, retriable: bool = False) -> None:
        super().__init__(f"[SERVICEBUS_{code.value}] {text}")
        self.code = code
        self.text = text
        self.condition = condition
        self.retriable = retriable

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return _unpickled, (self.code, self.text, self.condition, self.retriable)


def _unpickled(code: Code, text: str, condition: str | None, retriable: bool) -> ConnectorError:
    return ConnectorError(code, text, condition=condition, retriable=retriable)
