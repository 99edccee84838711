"""Refusals of the broker: one exception, one table of conditions.

Knows the condition symbols that Service Bus SDKs map to their own exceptions [wire 9.1]. Does not know frames:
`amqp/` turns a `BrokerError` into an AMQP error, `web/` into an HTTP status.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from ..codec.errors import DecodeError


class Condition(StrEnum):
    """AMQP error conditions; the value is the symbol on the wire."""

    ARGUMENT_ERROR = "com.microsoft:argument-error"
    ARGUMENT_OUT_OF_RANGE = "com.microsoft:argument-out-of-range"
    CONNECTION_FORCED = "amqp:connection:forced"
    CONTAINER_CLOSE = "com.microsoft:container-close"
    DECODE_ERROR = "amqp:decode-error"
    DETACH_FORCED = "amqp:link:detach-forced"
    ENTITY_ALREADY_EXISTS = "com.microsoft:entity-already-exists"
    ENTITY_DISABLED = "com.microsoft:entity-disabled"
    FRAMING_ERROR = "amqp:connection:framing-error"
    HANDLE_IN_USE = "amqp:session:handle-in-use"
    ILLEGAL_STATE = "amqp:illegal-state"
    INTERNAL_ERROR = "amqp:internal-error"
    INVALID_FIELD = "amqp:invalid-field"
    MESSAGE_LOCK_LOST = "com.microsoft:message-lock-lost"
    MESSAGE_NOT_FOUND = "com.microsoft:message-not-found"
    MESSAGE_SIZE_EXCEEDED = "amqp:link:message-size-exceeded"
    NOT_ALLOWED = "amqp:not-allowed"
    NOT_FOUND = "amqp:not-found"
    NOT_IMPLEMENTED = "amqp:not-implemented"
    PRECONDITION_FAILED = "amqp:precondition-failed"
    RESOURCE_LIMIT_EXCEEDED = "amqp:resource-limit-exceeded"
    SERVER_BUSY = "com.microsoft:server-busy"
    SESSION_CANNOT_BE_LOCKED = "com.microsoft:session-cannot-be-locked"
    SESSION_LOCK_LOST = "com.microsoft:session-lock-lost"
    SESSION_NOT_FOUND = "com.microsoft:session-not-found"
    STOLEN = "amqp:link:stolen"
    TIMEOUT = "com.microsoft:timeout"
    TRANSACTION_ROLLBACK = "amqp:transaction:rollback"
    TRANSACTION_TIMEOUT = "amqp:transaction:timeout"
    TRANSACTION_UNKNOWN_ID = "amqp:transaction:unknown-id"
    UNATTACHED_HANDLE = "amqp:session:unattached-handle"
    UNAUTHORIZED_ACCESS = "amqp:unauthorized-access"


class BrokerError(Exception):
    """A refusal: `condition` for programs, `description` for people (subject, value, limit)."""

    def __init__(self, condition: Condition, description: str, info: Mapping[str, object] | None = None) -> None:
        super().__init__(f"{condition.value}: {description}")
        self.condition = condition
        self.description = description
        self.info = info

    @property
    def in_service_words(self) -> BrokerError:
        """The error as administration and `$management` write it, where the service frames what is wrong."""
        return self


class KeysDifferError(BrokerError):
    """The keys of a delivery contradict each other (SessionId and PartitionKey, or those of a batch), or are missing.

    REST messaging answers 400 instead of the 405 of other not-allowed operations (P9).
    """


class WrongCharactersError(BrokerError):
    """A name holds a character that no name may hold. The management API says so with the request's own address."""


class EmptyBatchError(BrokerError):
    """A batch holds no message. Over AMQP the service closes the link, whose name its text has."""


class TargetMissingError(BrokerError):
    """The target of a forward does not exist. The management API answers 400 with the sub-code of what is missing."""


class UnknownOutcomeError(BrokerError):
    """The commit was not confirmed: all of the work is stored, or none of it (R3)."""


def decode_refusal(error: DecodeError) -> BrokerError:
    """Return the client's error for a decoding error of `codec`."""
    return BrokerError(Condition.DECODE_ERROR, str(error))
