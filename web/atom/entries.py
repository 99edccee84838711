"""Client side of the management API: descriptions of entities as Atom entries.

Writes a description so that the server reads the same one, with the names and order of the server's tables. Pure.
"""

from __future__ import annotations

from ...broker.model.catalog import Description
from ...broker.model.descriptions import RuleDescription, SubscriptionDescription
from ..markup import ATOM, CONNECT, INSTANCE, element
from .fields import FIELDS, KEYS, Field, client_affine, written
from .keys import keys_markup
from .rules import KIND, rule_markup


def entity_entry(description: Description) -> bytes:
    """The entry that creates or changes an entity; it has the first of a subscription's rules.

    ValueError if the largest message is not a multiple of 1 KiB, the unit of the API.
    """
    parts = [_settable_element(field, description) for field in FIELDS[type(description)]]
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


def _settable_element(field: Field, description: Description) -> str:
    """The element of what clients may set; "" for others and for what is not set."""
    if field is KEYS and not isinstance(description, SubscriptionDescription):
        return keys_markup(description.authorization_rules)
    if field.own is None:
        return ""
    return element(field.name, written(field.own, getattr(description, field.own.field)))
