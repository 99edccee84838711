"""JSON values as Resource Manager's provider takes them: names in any case, numbers and truth values also as text.

The templates of Microsoft's own quickstarts write `"maxDeliveryCount": "10"` (azure-quickstart-templates,
201-servicebus-create-topic-subscription-rule), and they deploy. Null is the same as nothing. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import excerpt
from .calls import bad


def object_in(value: object, what: str) -> dict[str, object]:
    """An object with its names in lower case; an empty one for null. ArmRefusal."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise bad(f"{what} is {shown(value)}; it must be an object.", "InvalidRequestContent")
    found: dict[str, object] = {}
    for name, each in value.items():
        if each is not None:
            found[str(name).lower()] = each
    return found


def list_in(value: object, what: str) -> list[object]:
    """A list; an empty one for null. ArmRefusal."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise bad(f"{what} is {shown(value)}; it must be a list.", "InvalidRequestContent")
    return list(value)


def text_in(value: object, what: str) -> str | None:
    """A value as a text; None for null. ArmRefusal for an object or a list."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 2**63 else repr(value)
    raise bad(f"{what} is {shown(value)}; it must be a single value.", "InvalidRequestContent")


def texts_in(value: object, what: str) -> dict[str, str]:
    """An object of texts, such as tags, its names as they are. ArmRefusal."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise bad(f"{what} is {shown(value)}; it must be an object.", "InvalidRequestContent")
    return {str(name): text_in(each, f"{what}.{name}") or "" for name, each in value.items()}


def shown(value: object) -> str:
    """A value in an error: short, and never the text of an object of Python."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list):
        return "a list"
    return f"'{excerpt(str(value))}'"
