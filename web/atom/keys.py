"""Authorisation rules of entities as XML [http 3].

Knows the one type of rule that clients send. Does not know which rules are allowed (`broker/model/profiles.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final
from xml.etree.ElementTree import Element

from ...broker.keys import Right
from ...broker.model.descriptions import AuthorizationRule
from ..errors import excerpt
from ..markup import element
from .parsing import bad, child, children, local_name, text_of, type_of

TYPE: Final = "SharedAccessAuthorizationRule"


def keys_in(
    node: Element, known: Iterable[AuthorizationRule], new_key: Callable[[], str]
) -> tuple[AuthorizationRule, ...]:
    """The rules in `AuthorizationRules`; HttpRefusal (400).

    A missing key is taken from the rule of the same name in `known`, else from `new_key`.
    """
    before = {rule.key_name: rule for rule in known}
    return tuple(_key_in(each, before, new_key) for each in children(node))


def _key_in(node: Element, before: dict[str, AuthorizationRule], new_key: Callable[[], str]) -> AuthorizationRule:
    kind = type_of(node)
    if local_name(node) != "AuthorizationRule" or kind not in (None, TYPE):
        raise bad(f"The authorization rule is of type '{excerpt(kind or local_name(node))}'; allowed is {TYPE}.")
    name = _child_text(node, "KeyName")
    rule = before.get(name)
    return AuthorizationRule(
        name,
        _rights_in(child(node, "Rights")),
        _child_text(node, "PrimaryKey") or (rule.primary_key if rule is not None else new_key()),
        _child_text(node, "SecondaryKey") or (rule.secondary_key if rule is not None else new_key()),
    )


def _rights_in(node: Element | None) -> tuple[Right, ...]:
    rights = [] if node is None else [_right(text_of(each)) for each in children(node)]
    return tuple(dict.fromkeys(rights))


def _right(text: str) -> Right:
    try:
        return Right(text)
    except ValueError:
        raise bad(f"The right '{excerpt(text)}' is none of {', '.join(Right)}.") from None


def _child_text(node: Element, name: str) -> str:
    part = child(node, name)
    return "" if part is None else text_of(part)


def keys_markup(rules: Iterable[AuthorizationRule]) -> str:
    """The AuthorizationRules element, also without rules."""
    return f"<AuthorizationRules>{''.join(_key_markup(rule) for rule in rules)}</AuthorizationRules>"


def _key_markup(rule: AuthorizationRule) -> str:
    rights = "".join(element("AccessRights", right.value) for right in rule.rights)
    parts = (
        element("ClaimType", "SharedAccessKey"),
        element("ClaimValue", "None"),
        f"<Rights>{rights}</Rights>",
        element("KeyName", rule.key_name),
        element("PrimaryKey", rule.primary_key),
        element("SecondaryKey", rule.secondary_key),
    )
    return f'<AuthorizationRule i:type="{TYPE}">{"".join(parts)}</AuthorizationRule>'
