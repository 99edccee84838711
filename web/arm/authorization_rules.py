"""The operations on authorization rules, of a namespace, a queue or a topic; `keys` has what they do."""

from __future__ import annotations

from typing import Final

from ...broker.model.descriptions import AuthorizationRule
from ..errors import excerpt
from . import keys
from .calls import ArmCall, Reply, no_parent, reply_of_list
from .entities import Place
from .values import object_in

_NAMESPACE_TYPE: Final = "Microsoft.ServiceBus/Namespaces/AuthorizationRules"


class _Scope:
    """What the rules of a request belong to."""

    def __init__(self, call: ArmCall, place: Place) -> None:
        self.place = place
        word = next((each for each in ("queue", "topic") if each in call.names), None)
        if word is None:
            self.rules: keys.Rules = keys.NamespaceRules(self.place.services, self.place.placed.name)
            self._names: tuple[str, ...] = ()
            self._type = _NAMESPACE_TYPE
            return
        entity = self.place.top_level(word)
        if entity is None:
            raise no_parent(f"{word}s", excerpt(call.names[word]))
        self.rules = keys.EntityRules(self.place.services, self.place.placed.name, entity)
        self._names = (f"{word}s", entity.path)
        self._type = f"Microsoft.ServiceBus/Namespaces/{word.title()}s/AuthorizationRules"

    @classmethod
    async def of(cls, call: ArmCall) -> _Scope:
        return cls(call, await Place.of(call))

    def shown(self, rule: AuthorizationRule) -> dict[str, object]:
        return {
            "id": self.place.id_of(*self._names, "authorizationRules", rule.key_name),
            "name": rule.key_name,
            "type": self._type,
            "location": self.place.placed.location,
            "properties": {"rights": [each.value for each in rule.rights]},
        }


async def list_all(call: ArmCall) -> Reply:
    scope = await _Scope.of(call)
    return reply_of_list([scope.shown(each) for each in scope.rules.all()])


async def show(call: ArmCall) -> Reply:
    scope = await _Scope.of(call)
    return Reply(200, scope.shown(keys.named(scope.rules, call.names["authorization_rule"])))


async def put(call: ArmCall) -> Reply:
    scope = await _Scope.of(call)
    properties = object_in(call.body, "the body").get("properties")
    rule, _ = await keys.put(scope.rules, call.names["authorization_rule"], properties)
    return Reply(200, scope.shown(rule))


async def delete(call: ArmCall) -> Reply:
    return Reply(200 if await keys.delete((await _Scope.of(call)).rules, call.names["authorization_rule"]) else 204)


async def list_keys(call: ArmCall) -> Reply:
    scope = await _Scope.of(call)
    return Reply(200, keys.keys_json(scope.rules, keys.named(scope.rules, call.names["authorization_rule"])))


async def regenerate(call: ArmCall) -> Reply:
    scope = await _Scope.of(call)
    rule = await keys.regenerate(scope.rules, call.names["authorization_rule"], call.body)
    return Reply(200, keys.keys_json(scope.rules, rule))
