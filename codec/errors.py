"""The error for bytes that are no AMQP."""

from __future__ import annotations

from ..broker.errors import BrokerError, Condition


def malformed(offset: int, problem: str) -> BrokerError:
    """Return the error for bytes that are no AMQP: what is wrong, and where."""
    return BrokerError(Condition.DECODE_ERROR, f"malformed AMQP data at offset {offset}: {problem}")
