"""Values of properties as ARM's reader of JSON takes them: `"10"` for a number, `"true"` for a boolean.

Templates of the portal and Microsoft's quickstarts have them as texts, because parameters were texts. Null is absent,
and so is an empty object where an object of optional parts may stand (`"action": {}` of exported rules).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..broker.model.properties import PROPERTIES, Value
from ..declared.resources import Kind
from .evaluating import JsonObject

_NUMBERS: Final = (Value.COUNT, Value.BYTES)
_OWN_TYPES: Final = {
    "compatibilitylevel": int,
    "enablefilteringmessagesbeforepublishing": bool,
    "enableexpress": bool,
    "isclientaffine": bool,
    "isdurable": bool,
    "isshared": bool,
    "requirespreprocessing": bool,
    "zoneredundant": bool,
    "disablelocalauth": bool,
    "capacity": int,
    "premiummessagingpartitions": int,
}
"""Of what is no row of the table of properties."""
_TYPES: Final[Mapping[str, type]] = {
    **_OWN_TYPES,
    **{each.name.lower(): bool for each in PROPERTIES if each.value is Value.BOOLEAN},
    **{each.name.lower(): int for each in PROPERTIES if each.value in _NUMBERS},
}
_EMPTY_IS_ABSENT: Final = frozenset({"action", "sqlfilter", "clientaffineproperties"})
_OF_APPLICATION: Final = "properties"
"""Of a correlation filter: values are those of messages, and stay."""


def coerced(kind: Kind, properties: Mapping[str, object]) -> JsonObject:
    """The properties of a resource as ARM reads them."""
    found: JsonObject = {}
    for name, value in properties.items():
        lowered = name.lower()
        if value is None or (value == {} and lowered in _EMPTY_IS_ABSENT):
            continue
        if lowered == "correlationfilter" and value == {} and not _is_correlation(properties):
            continue
        if isinstance(value, dict):
            found[name] = value if lowered == _OF_APPLICATION else coerced(kind, value)
        else:
            found[name] = _scalar(lowered, value)
    return found


def _is_correlation(properties: Mapping[str, object]) -> bool:
    given = next((each for name, each in properties.items() if name.lower() == "filtertype"), "")
    return str(given).lower().startswith("correlation")


def _scalar(name: str, value: object) -> object:
    """A value of the type that the property has; one that can't be it stays, and is refused by its reader."""
    wanted = _TYPES.get(name)
    if wanted is bool and isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    if wanted is int and isinstance(value, str):
        try:
            return int(value.strip()) if len(value) < 21 else value
        except ValueError:
            return value
    if wanted is int and isinstance(value, float) and value.is_integer():
        return int(value)
    if wanted is None and isinstance(value, int | float) and name in _TEXTS:
        return str(value).lower() if isinstance(value, bool) else str(value)
    return value


_TEXTS: Final = frozenset(
    {
        *(each.name.lower() for each in PROPERTIES if each.value in (Value.TEXT, Value.TARGET)),
        *("contenttype", "correlationid", "label", "messageid", "replyto", "replytosessionid", "sessionid", "to"),
        "sqlexpression",
    }
)
