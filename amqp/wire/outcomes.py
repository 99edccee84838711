"""The table of outcomes: what a disposition on the wire means in the broker's words [wire 5.7].

Knows AMQP's delivery states and where SDKs put reasons, descriptions and property changes. Does not know what the
broker does with an outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from ...broker.api import Abandon, Complete, DeadLetter, Defer, Outcome, Release
from ...codec.types import Described
from .engine import Pointer, ffi, lib, value_of
from .link import MODIFIED, REJECTED, RELEASED
from .loops import ACCEPTED

REASON_KEY: Final = "DeadLetterReason"
DESCRIPTION_KEY: Final = "DeadLetterErrorDescription"
_DEAD_LETTER_CONDITION: Final = "com.microsoft:dead-letter"

COMPLETE: Final = Complete()
RELEASE: Final = Release()


def _outcome_of_modified(delivery: Pointer) -> Outcome:
    remote = lib.pn_delivery_remote(delivery)
    changes = property_changes(value_of(lib.pn_disposition_annotations(remote)))
    return Defer(changes) if lib.pn_disposition_is_undeliverable(remote) else Abandon(changes)


def _outcome_of_rejected(delivery: Pointer) -> Outcome:
    condition = lib.pn_disposition_condition(lib.pn_delivery_remote(delivery))
    return _dead_letter(
        _chars(lib.pn_condition_get_name(condition)),
        _chars(lib.pn_condition_get_description(condition)),
        value_of(lib.pn_condition_info(condition)),
    )


def _dead_letter(name: str | None, text: str | None, info: object) -> Outcome:
    """From the three fields of an error."""
    changes = property_changes(info)
    reason, description = _taken_text(changes, REASON_KEY), _taken_text(changes, DESCRIPTION_KEY)
    if reason is None and description is None and REASON_KEY not in changes and DESCRIPTION_KEY not in changes:
        # A plain AMQP client says what is wrong in the error itself.
        if name is not None and name != _DEAD_LETTER_CONDITION:
            reason = name
        description = text
    return DeadLetter(reason, description, changes)


_OUTCOMES: Final[dict[int, Callable[[Pointer], Outcome]]] = {
    ACCEPTED: lambda _: COMPLETE,
    RELEASED: lambda _: RELEASE,
    MODIFIED: _outcome_of_modified,
    REJECTED: _outcome_of_rejected,
}


def outcome_of(state: int, delivery: Pointer) -> Outcome | None:
    """The outcome that a client gave a delivery; None for a state that is no outcome we know.

    Raises BrokerError or UnicodeDecodeError for values that can't be decoded.
    """
    read = _OUTCOMES.get(state)
    return None if read is None else read(delivery)


def _modified_fields(fields: list[object]) -> Outcome:
    changes = property_changes(fields[2])
    return Defer(changes) if fields[1] is True else Abandon(changes)


def _rejected_fields(fields: list[object]) -> Outcome:
    error = fields[0].value if isinstance(fields[0], Described) else None
    name, text, info = [*error, None, None, None][:3] if isinstance(error, list) else [None] * 3
    return _dead_letter(_text_or_none(name), _text_or_none(text), info)


_OUTCOMES_OF_FIELDS: Final[dict[int, Callable[[list[object]], Outcome]]] = {
    ACCEPTED: lambda _: COMPLETE,
    RELEASED: lambda _: RELEASE,
    MODIFIED: _modified_fields,
    REJECTED: _rejected_fields,
}
_CODES: Final[dict[object, int]] = {
    "amqp:accepted:list": ACCEPTED,
    "amqp:rejected:list": REJECTED,
    "amqp:released:list": RELEASED,
    "amqp:modified:list": MODIFIED,
}


def outcome_of_value(value: object) -> tuple[int, Outcome] | None:
    """The code and the outcome of a described value, as it stands inside a transactional-state; None if it is none."""
    if not isinstance(value, Described):
        return None
    code = _CODES.get(value.descriptor, value.descriptor)
    read = _OUTCOMES_OF_FIELDS.get(code) if isinstance(code, int) else None
    if read is None or not isinstance(code, int):
        return None
    fields = value.value if isinstance(value.value, list) else []
    return code, read([*fields, None, None, None])


def property_changes(value: object) -> dict[str, object]:
    """A map's entries as application properties: keys become plain strings, whatever kind of text they were."""
    if not isinstance(value, Mapping):
        return {}
    return {str.__str__(key): entry for key, entry in value.items() if isinstance(key, str)}


def _taken_text(changes: dict[str, object], key: str) -> str | None:
    """Take a text, or null, out of the changes; a value of another type stays among them as it is."""
    return _text_or_none(changes.pop(key, None)) if isinstance(changes.get(key), str | None) else None


def _text_or_none(value: object) -> str | None:
    return str.__str__(value) if isinstance(value, str) else None


def _chars(chars: Pointer) -> str | None:
    return None if chars == ffi.NULL else ffi.string(chars).decode() or None
