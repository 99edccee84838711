"""Typed values in rules: properties that a correlation filter compares, parameters of SQL [http 3].

Knows the XML Schema types that clients send and how each is kept, so that a value is returned with the type and text
that were sent. Does not know what rules do with them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final
from xml.etree.ElementTree import Element

from ...broker.model.descriptions import PropertyValue, TypedText
from ..errors import excerpt
from ..markup import SCHEMA, SERIALIZATION, escaped
from .parsing import bad, child, children, text_of, type_of

ENTRY: Final = "KeyValueOfstringanyType"
_INT32: Final = range(-(2**31), 2**31)
_INT64: Final = range(-(2**63), 2**63)
_UINT64: Final = range(2**64)
_DIGITS_MAX: Final = 20
_BOOLEANS: Final = {"true": True, "1": True, "false": False, "0": False}
_SPECIAL_DOUBLES: Final = {"INF": math.inf, "-INF": -math.inf, "NaN": math.nan}


def _parse_int(text: str) -> PropertyValue:
    return _parse_whole_number(text, _INT32)


def _parse_long(text: str) -> PropertyValue:
    value = _parse_whole_number(text, _INT64)
    return TypedText("long", str(value)) if value in _INT32 else value


def _parse_whole_number(text: str, allowed: range) -> int:
    if len(text) > _DIGITS_MAX or (value := int(text)) not in allowed:
        raise ValueError(text)
    return value


def _parse_double(text: str) -> PropertyValue:
    return _SPECIAL_DOUBLES[text] if text in _SPECIAL_DOUBLES else float(text)


def _parse_boolean(text: str) -> PropertyValue:
    if text.lower() not in _BOOLEANS:
        raise ValueError(text)
    return _BOOLEANS[text.lower()]


READERS: Final[Mapping[str, Callable[[str], PropertyValue]]] = {
    "string": str,
    "int": _parse_int,
    "long": _parse_long,
    "unsignedLong": lambda text: _parse_whole_number(text, _UINT64),
    "double": _parse_double,
    "boolean": _parse_boolean,
    "decimal": lambda text: TypedText("decimal", text),
    "dateTime": lambda text: TypedText("dateTime", text),
    "duration": lambda text: TypedText("duration", text),
    "guid": lambda text: TypedText("guid", text),
}
"""Readers by type; ValueError if a text is not of that type."""

_SERIALIZED: Final = ("duration", "guid")  # .NET has types of its own for these


def values_in(node: Element | None) -> dict[str, PropertyValue]:
    """The names and values in `Properties` or `Parameters`; HttpRefusal (400) for a value that can't be stored."""
    values: dict[str, PropertyValue] = {}
    for entry in () if node is None else children(node):
        key, value = child(entry, "Key"), child(entry, "Value")
        if key is None:
            raise bad("An entry of the properties or parameters has no Key.")
        name = text_of(key)
        if name in values:
            raise bad(f"The key '{excerpt(name)}' is given twice.")
        values[name] = None if value is None else _value(name, value)
    return values


def _value(name: str, node: Element) -> PropertyValue:
    kind, text = type_of(node) or "string", text_of(node)
    read = READERS.get(kind)
    if read is None:
        raise bad(f"The value of '{excerpt(name)}' is of type '{excerpt(kind)}'; allowed is {', '.join(READERS)}.")
    try:
        return read(text)
    except ValueError:
        raise bad(f"The value of '{excerpt(name)}' is '{excerpt(text)}', which is no {kind}.") from None


def values_markup(name: str, values: Mapping[str, PropertyValue]) -> str:
    """The element `name` with keys and values; nothing at all without values."""
    if not values:
        return ""
    entries = (f"<{ENTRY}><Key>{escaped(key)}</Key>{_value_element(value)}</{ENTRY}>" for key, value in values.items())
    return f"<{name}>{''.join(entries)}</{name}>"


def _value_element(value: PropertyValue) -> str:
    if value is None:
        return '<Value i:nil="true"/>'
    kind, text = _type_and_text(value)
    # The prefix is d6p1 as in the service's answers: JavaScript cuts off five characters.
    namespace = SERIALIZATION if kind in _SERIALIZED else SCHEMA
    return f'<Value i:type="d6p1:{kind}" xmlns:d6p1="{namespace}">{escaped(text)}</Value>'


def _type_and_text(value: str | float | bool | TypedText) -> tuple[str, str]:
    match value:
        case TypedText():
            return value.type, value.text
        case bool():
            return "boolean", "true" if value else "false"
        case int():
            return "int" if value in _INT32 else "long" if value in _INT64 else "unsignedLong", str(value)
        case float():
            special = {number: text for text, number in _SPECIAL_DOUBLES.items()}
            text = "NaN" if math.isnan(value) else special.get(value) or repr(value).removesuffix(".0").upper()
            return "double", text
        case str():
            return "string", value
