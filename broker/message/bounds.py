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

ITEMS_SKIPPED: Final = 64
"""Items that are passed at once while no large one is among them: a peer may send 20 000."""

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
    for position, start, stop in _fields(data, at, max(_KEYS) + 1):
        if position in _KEYS and stop - start > bounds.key_length_max:
            value, _ = decode(data, start)
            if isinstance(value, str | bytes) and len(value) > bounds.key_length_max:
                raise _too_long(_KEYS[position], len(value), bounds.key_length_max)
    check_properties(data, at, bounds)


def check_properties(data: bytes, at: list[int], bounds: MessageBounds) -> None:
    """Raise BrokerError (INTERNAL_ERROR) if one property of a message is too large, or all properties.

    The size of all properties is that of the sections before the body [SB: service-bus-quotas].
    """
    if check_size(data, at, bounds) <= bounds.property_bytes_max:
        return
    for position, start, stop in _large_items(data, at, PROPERTIES, bounds.property_bytes_max):
        _check_property(f"Field {position} of the message's properties", data, start, stop, bounds)
    for position, start, stop in _large_items(data, at, APPLICATION_PROPERTIES, bounds.property_bytes_max):
        if position & 1:  # a value; its key lies before it
            _check_property(f"The application property {_key(data, at, position - 1)}", data, start, stop, bounds)


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


def _fields(data: bytes, at: list[int], count_max: int) -> Iterator[tuple[int, int, int]]:
    """Yield position, start and end of each of the first fields of the properties section."""
    if at[PROPERTIES + 7]:
        count, pos = open_items(data, at[PROPERTIES] + 3)
        for position in range(min(count, count_max)):
            start, pos = pos, skip(data, pos)
            yield position, start, pos


def check_size(data: bytes, at: list[int], bounds: MessageBounds) -> int:
    """Return the bytes of all properties; BrokerError (INTERNAL_ERROR) if they are too large.

    To be asked before any of them is decoded: what a peer may make us decode ends here.
    """
    size_bytes = len(data) - sum(at[rank + 7] - at[rank] for rank in (BODY, FOOTER))
    if size_bytes > bounds.properties_bytes_max:
        raise service_errors.properties_too_large(
            "All properties of the message", size_bytes, bounds.properties_bytes_max
        )
    return size_bytes


def _large_items(data: bytes, at: list[int], section: int, bytes_max: int) -> Iterator[tuple[int, int, int]]:
    """Yield position, start and end of each item of a section that may have more bytes than `bytes_max`."""
    if not at[section + 7]:
        return
    count, pos = open_items(data, at[section] + 3)
    for first in range(0, count, ITEMS_SKIPPED):
        item_count = min(ITEMS_SKIPPED, count - first)
        start, pos = pos, skip(data, pos, item_count)
        if pos - start > bytes_max:
            for position in range(first, first + item_count):
                stop = skip(data, start)
                yield position, start, stop
                start = stop


def _key(data: bytes, at: list[int], position: int) -> str:
    """The application properties' item at `position`, quoted."""
    _, first = open_items(data, at[APPLICATION_PROPERTIES] + 3)
    start = skip(data, first, position)
    key = data[start + (2 if data[start] < 0xB0 else 5) : skip(data, start)] if data[start] in _TEXTS else b""
    return f"'{key.decode(errors='replace'):.60}'"


def _too_long(name: str, length: int, length_max: int) -> BrokerError:
    return BrokerError(
        Condition.ARGUMENT_OUT_OF_RANGE,
        f"The {name} of the message has {length} characters; it must not have more than {length_max}.",
    )
