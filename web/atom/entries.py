"""Client side of the management API: descriptions of entities as Atom entries.

Writes a description so that the server reads the same one, with the names and order of the server's tables. Pure.
"""

from __future__ import annotations

from typing import Final

from ...broker.model.catalog import Description
from ...broker.model.descriptions import RuleDescription, SubscriptionDescription
from ...broker.model.durations import format_duration
from ...broker.model.profiles import KIB
from ..markup import ATOM, CONNECT, INSTANCE, element
from .fields import FIELDS, Field, client_affine
from .keys import keys_markup
from .rules import KIND, rule_markup

_BYTES: Final = "max_message_bytes"


def entity_entry(description: Description) -> bytes:
    """The entry that creates or changes an entity; it has the first of a subscription's rules.

    ValueError if the largest message is not a multiple of 1 KiB, the unit of the API.
    """
    parts = [_part(field, description) for field in FIELDS[type(description)] if field.attribute is not None]
    if isinstance(description, SubscriptionDescription) and description.rules:
        rule = rule_markup(description.rules[0])
        parts.append(f"<Default{rule.removeprefix('<').removesuffix(f'{KIND}>')}Default{KIND}>")
    if isinstance(description, SubscriptionDescription) and description.jms is not None:
        parts += [element("IsClientAffine", "true"), client_affine(description.jms) or ""]
    return named_entry(type(description), "".join(parts))


def named_entry(kind: type[Description], parts: str = "") -> bytes:
    """The entry of an entity with these elements only: the profile gives the rest."""
    name = kind.kind.element
    return _entry(f'<{name} xmlns="{CONNECT}" xmlns:i="{INSTANCE}">{parts}</{name}>')


def rule_entry(rule: RuleDescription) -> bytes:
    """The entry that adds or changes a rule."""
    return _entry(rule_markup(rule))


def _entry(markup: str) -> bytes:
    return f'<entry xmlns="{ATOM}"><content type="application/xml">{markup}</content></entry>'.encode()


def _part(field: Field, description: Description) -> str:
    attribute = str(field.attribute)
    value = getattr(description, attribute)
    if field.is_markup:
        return keys_markup(value)
    if attribute.endswith("_ms"):
        return element(field.name, format_duration(value))
    if value is None:
        return ""
    if attribute == _BYTES:
        if value % KIB:
            raise ValueError(f"{_BYTES} is {value}; it must be a multiple of {KIB}")
        value //= KIB
    return element(field.name, str(value).lower() if isinstance(value, bool) else str(value))
