"""The properties of a stored message, decoded: the broker itself decodes them only for those who read a message."""

from __future__ import annotations

from emubus.broker.errors import decode_refusal
from emubus.broker.message.message import PROPERTY_NAMES
from emubus.broker.message.stored_form import bare_at_of, decoded, named_values
from emubus.codec.errors import DecodeError
from emubus.codec.sections import APPLICATION_PROPERTIES, PROPERTIES, locate


def application_properties(stored: bytes) -> dict[str, object]:
    """The application properties with string keys. BrokerError (decode-error) for a malformed value."""
    bare_at, at = _located(stored)
    if not at[APPLICATION_PROPERTIES + 7]:
        return {}
    return named_values(stored, bare_at + at[APPLICATION_PROPERTIES])


def properties_fields(stored: bytes) -> dict[str, object]:
    """The properties that are not null, by AMQP name. BrokerError (decode-error) for a malformed value."""
    bare_at, at = _located(stored)
    if not at[PROPERTIES + 7]:
        return {}
    fields = decoded(stored, bare_at + at[PROPERTIES] + 3)
    if not isinstance(fields, list):
        return {}
    return {name: value for name, value in zip(PROPERTY_NAMES, fields, strict=False) if value is not None}


def _located(stored: bytes) -> tuple[int, list[int]]:
    """Where the bare sections begin, and their positions from there. BrokerError (decode-error)."""
    bare_at = bare_at_of(stored)
    try:
        at = locate(stored[bare_at:], mixed=True)
    except DecodeError as error:
        raise decode_refusal(error) from None
    assert at is not None
    return bare_at, at
