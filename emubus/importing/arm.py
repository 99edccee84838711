"""Reads the entities of an ARM template (what Bicep compiles to) as a Config.json.

Knows resource types, names, loops, conditions and nested templates. What is not literal or not of Service Bus is
listed, not guessed. Does not know which properties are allowed: the reader of Config.json does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from ..config_file.properties import CLIENT, QUEUE_PROPERTIES, SUBSCRIPTION_PROPERTIES, TOPIC_PROPERTIES
from ..declared.resources import Declared, Kind, LeftOut, Origin, Resources
from .expressions import Budget, Scope, TooMuch, Unresolved

LOOP_COUNT_MAX: Final = 10_000
ENTITIES_MAX: Final = 10_000
"""As many queues and topics as a namespace may have; subscriptions and rules count, too."""
LINES_MAX: Final = 10_000
"""Of what is passed over."""
NESTED_MAX: Final = 8
_NAMESPACE: Final = "microsoft.servicebus/namespaces"
_DEPLOYMENT: Final = "microsoft.resources/deployments"
_IS_OF_JMS: Final = "IsClientAffine"
_RULE: Final = ("FilterType", "SqlFilter", "CorrelationFilter", "Action")
_KNOWN: Final[Mapping[str, tuple[str, ...]]] = {
    f"{_NAMESPACE}/queues": tuple(QUEUE_PROPERTIES),
    f"{_NAMESPACE}/topics": tuple(TOPIC_PROPERTIES),
    f"{_NAMESPACE}/topics/subscriptions": (*SUBSCRIPTION_PROPERTIES, CLIENT, _IS_OF_JMS),
    f"{_NAMESPACE}/topics/subscriptions/rules": _RULE,
}
JsonObject = dict[str, object]


@dataclass(frozen=True)
class Found:
    """The entities of a template: properties by name (of subscriptions: topic and name; of rules: with the rule's), and
    what is passed over, one line each."""

    queues: dict[str, JsonObject] = field(default_factory=dict[str, JsonObject])
    topics: dict[str, JsonObject] = field(default_factory=dict[str, JsonObject])
    subscriptions: dict[tuple[str, str], JsonObject] = field(default_factory=dict[tuple[str, str], JsonObject])
    rules: dict[tuple[str, str, str], JsonObject] = field(default_factory=dict[tuple[str, str, str], JsonObject])
    passed_over: list[str] = field(default_factory=list[str])

    def resources(self, file: str) -> Resources:
        """What is found, declared."""
        origin = Origin(file)
        declared = [
            *(Declared(Kind.QUEUE, (name,), each, origin) for name, each in self.queues.items()),
            *(Declared(Kind.TOPIC, (name,), each, origin) for name, each in self.topics.items()),
            *(Declared(Kind.SUBSCRIPTION, path, each, origin) for path, each in self.subscriptions.items()),
            *(Declared(Kind.RULE, path, each, origin) for path, each in self.rules.items()),
        ]
        left: list[LeftOut] = []
        foreign: Counter[str] = Counter()
        for line in self.passed_over:
            what, _, why = line.partition(": ")
            if why.startswith("it is no "):
                foreign[what.partition(" ")[0]] += 1
            else:
                left.append(LeftOut(what, why, origin=origin, is_entity=not why.startswith("the property ")))
        return Resources(tuple(declared), tuple(left), foreign)


def read_template(template: Mapping[str, object], parameters: Mapping[str, object]) -> Found:
    """The entities of a template with these values of its parameters.

    Unresolved if it is no template, TooMuch if it grows without end.
    """
    found = Found()
    _template(found, template, parameters, Budget(), 0)
    return found


def parameters_in(document: Mapping[str, object]) -> JsonObject:
    """The values in a parameters file, which wraps each in `value`, or in an object of plain values. Unresolved."""
    values = _members(document.get("parameters", document))
    found: JsonObject = {
        name: each["value"] if isinstance(each, dict) and "value" in each else each for name, each in values.items()
    }
    return {name: each for name, each in found.items() if not name.startswith("$") and name != "contentVersion"}


def _template(
    found: Found, template: Mapping[str, object], given: Mapping[str, object], budget: Budget, depth: int
) -> None:
    declared = {name: _members(each) for name, each in _members(template.get("parameters", {})).items()}
    defaults = {name: each["defaultValue"] for name, each in declared.items() if "defaultValue" in each}
    proper = {name.lower(): name for name in declared}
    values = {**defaults, **{proper.get(name.lower(), name): each for name, each in given.items()}}
    variables = {name: each for name, each in _members(template.get("variables", {})).items() if name != "copy"}
    scope = Scope(values, variables, budget=budget)
    for resource in _listed(template.get("resources", [])):
        _resource(found, resource, scope, ("", ""), depth)


def _members(value: object) -> Mapping[str, object]:
    """The members of an object. Unresolved if the value is none."""
    if not isinstance(value, dict):
        raise Unresolved(f"what must be an object is of type {type(value).__name__}")
    found: JsonObject = value
    return found


def _listed(resources: object) -> list[Mapping[str, object]]:
    """Resources are a list, or in newer templates an object of names. Unresolved if they are neither."""
    items: list[object] = resources if isinstance(resources, list) else [*_members(resources).values()]
    return [_members(each) for each in items]


def _resource(found: Found, resource: Mapping[str, object], scope: Scope, above: tuple[str, str], depth: int) -> None:
    """A resource, each time that its loop makes it; `above` is type and name of the resource that it is nested in."""
    scope.budget.step()
    if len(found.passed_over) > LINES_MAX:
        raise TooMuch(f"more than {LINES_MAX} of its resources and properties are not of Service Bus, or not literal")
    if len(found.queues) + len(found.topics) + len(found.subscriptions) + len(found.rules) > ENTITIES_MAX:
        raise TooMuch(f"it makes more than {ENTITIES_MAX} entities and rules")
    if resource.get("existing"):
        return
    kind = "/".join(filter(None, (above[0], str(resource.get("type", "")))))
    try:
        for inner in _rounds(resource, scope):
            if inner.value(resource.get("condition", True)) is False:
                continue
            if kind.lower() == _DEPLOYMENT and depth < NESTED_MAX:
                _deployment(found, resource, inner, depth)
                continue
            name = "/".join(filter(None, (above[1], str(inner.value(resource.get("name", ""))))))
            _one(found, kind, name, resource, inner)
            for each in _listed(resource.get("resources", [])):
                _resource(found, each, inner, (kind, name), depth)
    except Unresolved as error:
        found.passed_over.append(f"{kind} {resource.get('name', '')}: {error}")


def _rounds(resource: Mapping[str, object], scope: Scope) -> Iterator[Scope]:
    if resource.get("copy") is None:
        yield scope
        return
    loop = _members(resource["copy"])
    count = scope.value(loop.get("count", 0))
    if not isinstance(count, int) or not 0 <= count <= LOOP_COUNT_MAX:
        raise Unresolved(f"the count of the loop is {count!r}")
    for index in range(count):
        loops = {**scope.loops, "": index, str(loop.get("name", "")).lower(): index}
        scope.budget.step()
        yield replace(scope, loops=loops)


def _deployment(found: Found, resource: Mapping[str, object], scope: Scope, depth: int) -> None:
    """A nested template, as Bicep makes of a module."""
    properties = _members(resource.get("properties", {}))
    if "template" not in properties:
        raise Unresolved("its template is not in the file")
    parameters = _members(properties.get("parameters", {}))
    given = {name: scope.value(_members(each).get("value")) for name, each in parameters.items()}
    _template(found, _members(properties["template"]), given, scope.budget, depth + 1)


def _one(found: Found, kind: str, name: str, resource: Mapping[str, object], scope: Scope) -> None:
    """Note a resource of the template under its kind and path, with the properties that emubus knows.

    Values stay as the template has them; the reader of Config.json judges them. What is unknown is passed over by name.
    """
    lowered = kind.lower()
    if lowered == _NAMESPACE:
        return
    known = _KNOWN.get(lowered)
    parts = [part.replace("~", "/") for part in name.split("/")[1:]]  # behind the namespace; ~ is a slash of a name
    if known is None or len(parts) < lowered.count("/") - 1:
        found.passed_over.append(f"{kind} {name}: it is no queue, topic, subscription or rule")
        return
    proper = {each.lower(): each for each in known}
    properties: JsonObject = {}
    for written, value in _members(resource.get("properties", {})).items():
        if written.lower() in proper:
            properties[proper[written.lower()]] = scope.value(value)
        else:
            found.passed_over.append(f"{kind} {name}: the property {written}")
    if lowered.endswith("/queues"):
        found.queues["/".join(parts)] = properties
    elif lowered.endswith("/topics"):
        found.topics["/".join(parts)] = properties
    elif lowered.endswith("/subscriptions"):
        if properties.pop(_IS_OF_JMS, CLIENT in properties) is True:
            properties.setdefault(CLIENT, {})
        else:
            properties.pop(CLIENT, None)
        found.subscriptions["/".join(parts[:-1]), parts[-1]] = properties
    else:
        found.rules["/".join(parts[:-2]), parts[-2], parts[-1]] = properties
