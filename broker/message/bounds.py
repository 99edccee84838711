"""The size limits of a message that a client sends: its keys, one property, all properties [wire 10.13].

Knows the limits, and the encoded fields that each limit applies to. Does not decode small sections, so a message of a
few hundred bytes costs one comparison. Must not depend on queues and storage. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Final

from ...codec.decode import decode
from ...codec.encode import encode
from ...codec.sections import APPLICATION_PROPERTIES, BODY, FOOTER, MESSAGE_ANNOTATIONS, PROPERTIES, open_items
from ...codec.skip import skip
from .. import service_errors
from ..errors import BrokerError, Condition
from ..lazy_dataclass import dataclass

IDENTIFIER_CHARS_MAX: Final = 128
"""The service's limit of message id, session id and partition key, in characters (of a binary message id: bytes)."""

_KEYS: Final = {0: "message-id", 10: "group-id"}  # by their positions in the properties list [AMQP 3.2.4]
_TEXTS: Final = b"\xa1\xa3\xb1\xb3"


@dataclass(frozen=True, slots=True)
class MessageBounds:
    """The limits of one profile: bytes of all properties and of one property, characters of a key, number of hops.

    The defaults are the Standard tier's (`model.profiles`).
    """

    properties_bytes_max: int = 64 * 1024
    property_bytes_max: int = 32 * 1024
    key_length_max: int = IDENTIFIER_CHARS_MAX
    forward_hops_max: int = 4
    scanned_bytes_max: int = field(init=False)
    """A message of up to so many bytes can't exceed the limits of properties."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "scanned_bytes_max", min(self.property_bytes_max, self.properties_bytes_max))

    def may_be_exceeded(self, data: bytes, at: list[int]) -> bool:
        """Whether a message may exceed a limit; `at` is from `sections.locate`. Cheap, and False for most messages."""
        length_max = self.key_length_max
        return (
            at[PROPERTIES + 7] - at[PROPERTIES] > length_max
            or at[MESSAGE_ANNOTATIONS + 7] - at[MESSAGE_ANNOTATIONS] > length_max
            or len(data) > self.scanned_bytes_max
        )


STANDARD_BOUNDS: Final = MessageBounds()


def check_bounds(data: bytes, at: list[int], keys: Mapping[str, str | None], bounds: MessageBounds) -> None:
    """Raise BrokerError if a message exceeds `bounds`; `at` has its sections, `keys` are annotations by name.

    ARGUMENT_OUT_OF_RANGE for a long key, INTERNAL_ERROR for large properties: the service's conditions and texts.
    """
    for name, key in keys.items():
        if key is not None and len(key) > bounds.key_length_max:
            raise _too_long(name, len(key), bounds.key_length_max)
    for position, start, stop in _fields(data, at):
        if position in _KEYS and stop - start > bounds.key_length_max:
            value, _ = decode(data, start)
            if isinstance(value, str | bytes) and len(value) > bounds.key_length_max:
                raise _too_long(_KEYS[position], len(value), bounds.key_length_max)
    check_properties(data, at, bounds)


def check_properties(data: bytes, at: list[int], bounds: MessageBounds) -> None:
    """Raise BrokerError (INTERNAL_ERROR) if one property of a message is too large, or all properties.

    The size of all properties is that of the sections before the body [SB: service-bus-quotas].
    """
    size_bytes = len(data) - sum(at[rank + 7] - at[rank] for rank in (BODY, FOOTER))
    if size_bytes > bounds.properties_bytes_max:
        raise service_errors.properties_too_large(
            "All properties of the message", size_bytes, bounds.properties_bytes_max
        )
    if size_bytes <= bounds.property_bytes_max:
        return
    for position, start, stop in _fields(data, at):
        _check_property(f"Field {position} of the message's properties", data, start, stop, bounds)
    for name, start, stop in _application_properties(data, at):
        _check_property(f"The application property {name}", data, start, stop, bounds)


def changes_refusal(changes: Mapping[str, object], bounds: MessageBounds) -> BrokerError | None:
    """The error if changed application properties are too large, else None; unchanged properties do not count."""
    total_bytes = 0
    for name, value in changes.items():
        size_bytes = len(value.encode()) if isinstance(value, str) else len(encode(value))
        total_bytes += size_bytes
        if size_bytes > bounds.property_bytes_max:
            what = f"The application property '{name:.60}'"
            return service_errors.properties_too_large(what, size_bytes, bounds.property_bytes_max)
    if total_bytes > bounds.properties_bytes_max:
        return service_errors.properties_too_large("All changed properties", total_bytes, bounds.properties_bytes_max)
    return None


def _check_property(name: str, data: bytes, start: int, stop: int, bounds: MessageBounds) -> None:
    kind = data[start] >> 4  # a fixed-width value has a constructor byte, others also a size
    size_bytes = stop - start - {0xA: 2, 0xC: 2, 0xE: 2, 0xB: 5, 0xD: 5, 0xF: 5}.get(kind, 1)
    if size_bytes > bounds.property_bytes_max:
        raise service_errors.properties_too_large(name, size_bytes, bounds.property_bytes_max)


def _fields(data: bytes, at: list[int]) -> Iterator[tuple[int, int, int]]:
    """Yield position, start and end of each field of the properties section."""
    if at[PROPERTIES + 7]:
        count, pos = open_items(data, at[PROPERTIES] + 3)
        for position in range(count):
            start, pos = pos, skip(data, pos)
            yield position, start, pos


def _application_properties(data: bytes, at: list[int]) -> Iterator[tuple[str, int, int]]:
    """Yield the quoted name, and start and end of the value, of each application property."""
    if at[APPLICATION_PROPERTIES + 7]:
        count, pos = open_items(data, at[APPLICATION_PROPERTIES] + 3)
        for _ in range(count >> 1):
            start = skip(data, pos)
            key = data[pos + (2 if data[pos] < 0xB0 else 5) : start] if data[pos] in _TEXTS else b""
            pos = skip(data, start)
            yield f"'{key.decode(errors='replace'):.60}'", start, pos


def _too_long(name: str, length: int, length_max: int) -> BrokerError:
    return BrokerError(
        Condition.ARGUMENT_OUT_OF_RANGE,
        f"The {name} of the message has {length} characters; it must not have more than {length_max}.",
    )
