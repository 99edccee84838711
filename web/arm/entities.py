"""Queues, topics, subscriptions and rules.

PUT creates or replaces. What it leaves out has the value of a new entity, but for what is fixed at creation, which
stays. A slash in a name is `~` in a path, where slashes separate names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from ...broker.api import Entity
from ...broker.model.catalog import Description
from ...broker.model.descriptions import (
    QueueDescription,
    RuleDescription,
    SubscriptionDescription,
    TopicDescription,
    entity_key,
)
from ...broker.model.validation import is_rule_name
from ...conditions.strikes import AdminRequest
from ..atom.descriptions import subscription_of, top_level_of
from ..atom.rules import of_subscription
from ..atom.views import view_of
from ..errors import excerpt
from ..services import Services
from .calls import ArmCall, ArmRefusal, Reply, bad, no_parent
from .homes import Homes
from .namespaces import placed_of
from .properties import client_in, described, given_values, rule_in, rule_json
from .state import Placed
from .values import object_in

_VERSION: Final = "9999-99"  # a view shows what the newest version of the management API has
_TOP: Final = 1_000
_KINDS: Final[Mapping[str, type[QueueDescription] | type[TopicDescription]]] = {
    "queue": QueueDescription,
    "topic": TopicDescription,
}
_TYPES: Final[Mapping[type[Description], str]] = {
    QueueDescription: "Microsoft.ServiceBus/Namespaces/Queues",
    TopicDescription: "Microsoft.ServiceBus/Namespaces/Topics",
    SubscriptionDescription: "Microsoft.ServiceBus/Namespaces/Topics/Subscriptions",
}
_RULE_TYPE: Final = "Microsoft.ServiceBus/Namespaces/Topics/Subscriptions/Rules"


class Place:
    """The namespace of a request, and the entities in it that its path names."""

    def __init__(self, call: ArmCall, placed: Placed, services: Services) -> None:
        self.call = call
        self.placed = placed
        self.services = services
        self.broker = services.broker

    @classmethod
    async def of(cls, call: ArmCall) -> Place:
        """Opens the namespace. ArmRefusal (404), BrokerError (server-busy)."""
        placed = placed_of(call)
        return cls(call, placed, await Homes(call.services, call.state).services_of(placed))

    def name(self, word: str) -> str:
        """A name of the path as the entity has it: `~` stands for a slash, unless there is an entity with `~`."""
        text = self.call.names[word]
        return text if self.broker.namespace.entity(text) is not None else text.replace("~", "/")

    def top_level(self, word: str) -> Entity | None:
        """The queue or topic of the path; None without one of that kind."""
        found = self.broker.namespace.entity(self.name(word))
        return found if found is not None and isinstance(found.description, _KINDS[word]) else None

    def topic(self) -> Entity:
        """ArmRefusal (404)."""
        found = self.top_level("topic")
        if found is None:
            raise no_parent("topics", excerpt(self.call.names["topic"]))
        return found

    def subscription(self) -> Entity | None:
        return self.broker.namespace.entity(f"{self.topic().path}/Subscriptions/{self.call.names['subscription_name']}")

    def parent_subscription(self) -> Entity:
        """ArmRefusal (404)."""
        found = self.subscription()
        if found is None:
            raise no_parent("subscriptions", excerpt(self.call.names["subscription_name"]))
        return found

    def id_of(self, *names: str) -> str:
        """The id of something in the namespace."""
        own = f"{self.call.group_id(self.placed.group)}/providers/Microsoft.ServiceBus/namespaces/{self.placed.name}"
        return "/".join([own, *(each.replace("/", "~") for each in names)])

    def resource(self, entity: Entity) -> dict[str, object]:
        """An entity as answers show it."""
        description = entity.description
        if isinstance(description, SubscriptionDescription):
            address = self.id_of("topics", description.topic_name, "subscriptions", description.name)
        else:
            address = self.id_of("queues" if isinstance(description, QueueDescription) else "topics", description.name)
        return {
            "id": address,
            "name": description.name.replace("/", "~"),
            "type": _TYPES[type(description)],
            "location": self.placed.location,
            "properties": described(view_of(self.services, entity, _VERSION, details=True)),
        }

    def rule(self, subscription: Entity, rule: RuleDescription) -> dict[str, object]:
        own = subscription.description
        assert isinstance(own, SubscriptionDescription), "only subscriptions have rules"
        names = ("topics", own.topic_name, "subscriptions", own.name, "rules", rule.name)
        return {
            "id": self.id_of(*names),
            "name": rule.name,
            "type": _RULE_TYPE,
            "location": self.placed.location,
            "properties": rule_json(rule),
        }

    def under_conditions(self, path: str, *, is_create: bool) -> under_conditions:
        return under_conditions(self.services, self.call.method, path, is_create=is_create)

    def put(self, description: Description, *, is_new: bool) -> Entity:
        """Create or change an entity. BrokerError."""
        change = self.broker.administration
        own_names = f"{self.placed.name}.servicebus.windows.net"
        if is_new:
            return change.create(description, targets_exist=True, own_name=own_names)
        return change.update(description, own_name=own_names)


def _page(call: ArmCall, items: list[dict[str, object]]) -> Reply:
    """The part of a list that `$skip` and `$top` ask for."""
    skip, top = _count(call, "$skip", 0), _count(call, "$top", _TOP)
    rest = items[skip : skip + top]
    body: dict[str, object] = {"value": rest}
    if skip + top < len(items):
        query = {**call.request.query, "$skip": str(skip + top), "$top": str(top)}
        own = call.request.url.with_query(query)
        body["nextLink"] = str(own)
    return Reply(200, body)


def _count(call: ArmCall, name: str, default: int) -> int:
    text = call.request.query.get(name)
    if not text:
        return default
    if not (text.isascii() and text.isdecimal() and len(text) <= 9) or (name == "$top" and not 1 <= int(text) <= _TOP):
        limit = f"1 to {_TOP}" if name == "$top" else "not negative"
        raise bad(f"The parameter {name} is '{excerpt(text)}'; it must be a whole number, {limit}.")
    return int(text)


# ---------------------------------------------------------------- queues and topics


def _kind_word(call: ArmCall) -> str:
    return "queue" if "queue" in call.names else "topic"


async def _list(call: ArmCall, kind: type[Description]) -> Reply:
    place = await Place.of(call)
    found = [each for each in place.broker.namespace.entities() if type(each.description) is kind]
    found.sort(key=lambda each: entity_key(each.path))
    return _page(call, [place.resource(each) for each in found])


async def list_queues(call: ArmCall) -> Reply:
    return await _list(call, QueueDescription)


async def list_topics(call: ArmCall) -> Reply:
    return await _list(call, TopicDescription)


async def show_top_level(call: ArmCall) -> Reply:
    place, word = await Place.of(call), _kind_word(call)
    found = place.top_level(word)
    if found is None:
        raise _absent(call.names[word])
    return Reply(200, place.resource(found))


async def put_top_level(call: ArmCall) -> Reply:
    """Create or replace a queue or topic; its keys stay."""
    place, word = await Place.of(call), _kind_word(call)
    kind, name = _KINDS[word], place.name(word)
    known = place.broker.namespace.entity(name)
    if known is not None and not isinstance(known.description, kind):
        text = f"There is a {known.description.kind} '{excerpt(known.path)}' already: delete it, or use another name."
        raise ArmRefusal(409, "Conflict", text)
    old = None if known is None else known.description
    given = given_values(kind, object_in(call.body, "the body").get("properties"))
    description = top_level_of(kind, given, name if old is None else old.name, old, place.broker.limits)
    if isinstance(old, QueueDescription | TopicDescription):
        description = replace(description, authorization_rules=old.authorization_rules)
    with place.under_conditions(name, is_create=old is None):
        entity = place.put(description, is_new=old is None)
    return Reply(200, place.resource(entity))


async def delete_top_level(call: ArmCall) -> Reply:
    place, word = await Place.of(call), _kind_word(call)
    found = place.top_level(word)
    if found is None:
        return Reply(204)
    with place.under_conditions(found.path, is_create=False):
        place.broker.administration.delete(found.path)
    return Reply(200)


# ---------------------------------------------------------------- subscriptions


async def list_subscriptions(call: ArmCall) -> Reply:
    place = await Place.of(call)
    found = place.broker.namespace.subscriptions_of(place.topic().path).entities()
    return _page(call, [place.resource(each) for each in sorted(found, key=lambda each: entity_key(each.path))])


async def show_subscription(call: ArmCall) -> Reply:
    place = await Place.of(call)
    found = place.subscription()
    if found is None:
        raise _absent(call.names["subscription_name"])
    return Reply(200, place.resource(found))


async def put_subscription(call: ArmCall) -> Reply:
    """Create a subscription, with the rule `$Default`, or replace its properties."""
    place = await Place.of(call)
    topic, known = place.topic(), place.subscription()
    old = None if known is None else known.description
    name = call.names["subscription_name"] if old is None else old.name
    body = object_in(call.body, "the body").get("properties")
    description = subscription_of(
        given_values(SubscriptionDescription, body), topic.path, name, old, place.broker.limits
    )
    if old is None:
        description = replace(description, jms=client_in(body))
    with place.under_conditions(description.path, is_create=old is None):
        entity = place.put(description, is_new=old is None)
    return Reply(200, place.resource(entity))


async def delete_subscription(call: ArmCall) -> Reply:
    place = await Place.of(call)
    found = place.subscription() if place.top_level("topic") is not None else None
    if found is None:
        return Reply(204)
    with place.under_conditions(found.path, is_create=False):
        place.broker.administration.delete(found.path)
    return Reply(200)


# ---------------------------------------------------------------- rules


def _rule(place: Place, subscription: Entity) -> RuleDescription | None:
    key = entity_key(place.call.names["rule"])
    rules = place.broker.administration.rules(subscription.path)
    return next((each for each in rules if entity_key(each.name) == key), None)


async def list_rules(call: ArmCall) -> Reply:
    place = await Place.of(call)
    subscription = place.parent_subscription()
    rules = place.broker.administration.rules(subscription.path)
    return _page(call, [place.rule(subscription, each) for each in rules])


async def show_rule(call: ArmCall) -> Reply:
    place = await Place.of(call)
    subscription = place.parent_subscription()
    found = _rule(place, subscription)
    if found is None:
        raise _absent(call.names["rule"])
    return Reply(200, place.rule(subscription, found))


async def put_rule(call: ArmCall) -> Reply:
    """Add or replace a rule."""
    place = await Place.of(call)
    subscription = place.parent_subscription()
    old = _rule(place, subscription)
    name = call.names["rule"] if old is None else old.name
    if old is None and not is_rule_name(name, place.broker.limits):
        raise bad(
            f"The name of the rule is '{excerpt(name)}', which has a character that is not allowed or is too long."
        )
    rule = rule_in(name, object_in(call.body, "the body").get("properties"))
    rule = of_subscription(subscription.description, rule)
    change = place.broker.administration
    with place.under_conditions(f"{subscription.path}/Rules/{name}", is_create=old is None):
        (change.add_rule if old is None else change.replace_rule)(subscription.path, rule)
    made = _rule(place, subscription)
    assert made is not None, "it was just made"
    return Reply(200, place.rule(subscription, made))


async def delete_rule(call: ArmCall) -> Reply:
    place = await Place.of(call)
    subscription = place.subscription() if place.top_level("topic") is not None else None
    found = None if subscription is None else _rule(place, subscription)
    if subscription is None or found is None:
        return Reply(204)
    with place.under_conditions(f"{subscription.path}/Rules/{found.name}", is_create=False):
        place.broker.administration.remove_rule(subscription.path, found.name)
    return Reply(200)


# ---------------------------------------------------------------- helpers


def _absent(name: str) -> ArmRefusal:
    return ArmRefusal(404, "NotFound", f"The requested resource '{excerpt(name)}' does not exist.")


class under_conditions:  # noqa: N801 - used as a statement
    """A change of an entity as conditions let it happen: refused before, or refused though it was done."""

    def __init__(self, services: Services, method: str, path: str, *, is_create: bool) -> None:
        self._conditions = services.conditions
        self._asked = AdminRequest(method, path, is_create)
        self._refusal: ArmRefusal | None = None

    def __enter__(self) -> None:
        if not self._conditions.are_on:
            return
        found = self._conditions.before_admin(self._asked)
        if found is None:
            return
        refusal = ArmRefusal(found.status, "ServerUnavailable" if found.status >= 500 else "Conflict", found.text)
        if not found.is_done:
            raise refusal
        self._refusal = refusal

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is None and self._conditions.are_on:
            self._conditions.after_admin(self._asked)
            if self._refusal is not None:
                raise self._refusal
