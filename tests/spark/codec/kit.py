"""Messages as a service gives them to a peek, made by Proton: an encoder that owes nothing to the one under test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from proton import Message, int32, symbol, timestamp

from emubus.spark_connector.codec import ArrowRows, Column, source_columns
from emubus.spark_connector.codec.decode import PropertiesFormat

NUMBER = (5 << 48) + 77
ENQUEUED_AT_MS = 1_767_225_600_123


def service_annotations(number: int = NUMBER, state: int = 0) -> dict[Any, Any]:
    return {
        symbol("x-opt-sequence-number"): number,
        symbol("x-opt-enqueued-time"): timestamp(ENQUEUED_AT_MS),
        symbol("x-opt-message-state"): int32(state),
    }


def peeked(
    number: int = NUMBER, *, state: int = 0, annotations: Mapping[str, Any] | None = None, **fields: Any
) -> bytes:
    """Return a message; `fields` are those of Proton's Message. Its body is a data section if it is bytes."""
    fields.setdefault("inferred", isinstance(fields.get("body"), bytes))
    message = Message(**fields)
    more: dict[Any, Any] = {symbol(key): value for key, value in (annotations or {}).items()}
    message.annotations = {**service_annotations(number, state), **more}
    return bytes(message.encode())


def with_sections(*sections: bytes, number: int = NUMBER) -> bytes:
    """Return a message with the service's annotations and these sections, encoded by hand."""
    message = Message()
    message.annotations = service_annotations(number)
    return bytes(message.encode()) + b"".join(sections)


def row_of(
    message: bytes, columns: Sequence[Column] | None = None, properties_format: PropertiesFormat = "text"
) -> dict[str, Any]:
    """Return the one row of a message as plain Python; maps as dicts."""
    rows = ArrowRows(source_columns() if columns is None else columns, properties_format=properties_format)
    rows.append(message)
    (row,) = rows.take().to_pylist(maps_as_pydicts="strict")
    return dict(row)


def column(message: bytes, name: str, properties_format: PropertiesFormat = "text") -> Any:
    """Return one column of a message's row."""
    (wanted,) = (each for each in source_columns() if each.name == name)
    return row_of(message, [wanted], properties_format)[name]


def decoded(data: bytes) -> Any:
    """Return the message that Proton reads; its binary values are views that die with it."""
    message = Message()
    message.decode(data)
    return message
