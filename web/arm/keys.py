"""Authorization rules and their keys: of a namespace, of a queue, of a topic.

A queue's and a topic's are in its description. Those of the namespace are in `broker/access.py`; what requests have
changed of them is one small file, which a start reads (`broker/kept_keys.py`). Which rules are allowed is the same for
all (`broker/model/validation.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from ...broker.api import Entity
from ...broker.ids import new_shared_key
from ...broker.keys import Right
from ...broker.model.descriptions import AuthorizationRule, QueueDescription, TopicDescription, entity_key
from ...broker.service_errors import HOST_SUFFIX
from ..applying import LiveNamespace
from ..errors import excerpt
from ..services import Services
from .calls import ArmRefusal, bad
from .values import list_in, object_in, text_in

_RIGHTS: Final = {each.value.lower(): each for each in Right}
KEY_TYPES: Final = ("PrimaryKey", "SecondaryKey")


class NamespaceRules:
    def __init__(self, services: Services, name: str) -> None:
        self._services = services
        self._name = name

    def all(self) -> list[AuthorizationRule]:
        return list(LiveNamespace(self._services).namespace_rules())

    async def replace(self, rules: Sequence[AuthorizationRule]) -> None:
        """Have these. BrokerError: argument-error; server-busy if they can't be kept. Then nothing is changed."""
        await LiveNamespace(self._services).replace_namespace_rules(rules)

    def connection_string(self, name: str, key: str) -> str:
        return f"Endpoint=sb://{self._name}{HOST_SUFFIX}/;SharedAccessKeyName={name};SharedAccessKey={key}"


class EntityRules:
    """The rules of a queue or topic."""

    def __init__(self, services: Services, name: str, entity: Entity) -> None:
        self._services = services
        self._name = name
        self._entity = entity

    @property
    def _description(self) -> QueueDescription | TopicDescription:
        found = self._entity.description
        assert isinstance(found, QueueDescription | TopicDescription), "a subscription has no rules for keys"
        return found

    def all(self) -> list[AuthorizationRule]:
        return list(self._description.authorization_rules)

    async def replace(self, rules: Sequence[AuthorizationRule]) -> None:
        """Have these. BrokerError."""
        changed = replace(self._description, authorization_rules=tuple(rules))
        self._services.broker.administration.update(changed)

    def connection_string(self, name: str, key: str) -> str:
        own = NamespaceRules(self._services, self._name).connection_string(name, key)
        return f"{own};EntityPath={self._entity.path}"


Rules = NamespaceRules | EntityRules


def named(rules: Rules, name: str) -> AuthorizationRule:
    """The rule of that name. ArmRefusal (404)."""
    for each in rules.all():
        if entity_key(each.key_name) == entity_key(name):
            return each
    raise ArmRefusal(404, "NotFound", f"There is no authorization rule '{excerpt(name)}' here.")


async def put(rules: Rules, name: str, properties: object) -> tuple[AuthorizationRule, bool]:
    """Create a rule, or give it other rights; whether it is new. ArmRefusal, BrokerError."""
    rights = _rights_in(properties)
    known = rules.all()
    old = next((each for each in known if entity_key(each.key_name) == entity_key(name)), None)
    if old is None:
        made = AuthorizationRule(name, rights, new_shared_key(), new_shared_key())
        await rules.replace([*known, made])
        return made, True
    changed = replace(old, rights=rights)
    await rules.replace([changed if each is old else each for each in known])
    return changed, False


async def delete(rules: Rules, name: str) -> bool:
    """Delete a rule, with its keys; False if there is none."""
    known = rules.all()
    left = [each for each in known if entity_key(each.key_name) != entity_key(name)]
    if len(left) == len(known):
        return False
    await rules.replace(left)
    return True


async def regenerate(rules: Rules, name: str, body: object) -> AuthorizationRule:
    """Give a rule another key, of the request or a new one. ArmRefusal, BrokerError."""
    given = object_in(body, "the body")
    kind = text_in(given.get("keytype"), "keyType")
    if kind is None or kind.lower() not in (each.lower() for each in KEY_TYPES):
        raise bad(f"keyType is '{excerpt(kind or '')}'; it must be one of {', '.join(KEY_TYPES)}.")
    key = text_in(given.get("key"), "key") or new_shared_key()
    old = named(rules, name)
    is_primary = kind.lower() == KEY_TYPES[0].lower()
    changed = replace(old, primary_key=key) if is_primary else replace(old, secondary_key=key)
    await rules.replace([changed if each.key_name == old.key_name else each for each in rules.all()])
    return changed


def keys_json(rules: Rules, rule: AuthorizationRule) -> dict[str, object]:
    """Both keys of a rule, with their connection strings; an older rule has one key."""
    primary, secondary = rule.primary_key, rule.secondary_key or rule.primary_key
    return {
        "primaryConnectionString": rules.connection_string(rule.key_name, primary),
        "secondaryConnectionString": rules.connection_string(rule.key_name, secondary),
        "primaryKey": primary,
        "secondaryKey": secondary,
        "keyName": rule.key_name,
    }


def _rights_in(properties: object) -> tuple[Right, ...]:
    given = object_in(properties, "properties")
    texts = [text_in(each, "properties.rights") or "" for each in list_in(given.get("rights"), "properties.rights")]
    for each in texts:
        if each.lower() not in _RIGHTS:
            raise bad(f"The right '{excerpt(each)}' of properties.rights is none of {', '.join(Right)}.")
    return tuple(dict.fromkeys(_RIGHTS[each.lower()] for each in texts))
