"""Reads a deployment template into the resources of Service Bus that it declares. `evaluate` is the entry.

Names, loops, conditions, children, modules and the members that version 2.0 of the language adds. What a resource
*means*, and which of its values are allowed, is the business of those who apply it.

What can't be had is left out with its reason, never guessed, with one exception that the caller asks for (`stand_ins`):
a text parameter without a value gets its first allowed value or its own name, because a template that people try out
has a parameter for the name of each queue. Each is a note.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from ..declared.resources import PATH_LENGTHS, Declared, Kind, LeftOut, Origin, Resources
from .coercion import coerced
from .evaluating import Cloud, JsonObject, Lazy, Place, Scope, Setting, kind_and_names
from .syntax import is_expression
from .values import (
    DEPTH_MAX,
    Mixed,
    Partly,
    TooMuch,
    Unknown,
    Unresolved,
    blamed,
    kind_of,
    quoted,
    unknown_in,
)

RESOURCES_MAX: Final = 10_000
"""Of Service Bus: as many queues and topics as a namespace may have."""
LINES_MAX: Final = 10_000
"""Of what is left out."""
MODULES_MAX: Final = 16
"""Modules within each other; the service takes five."""
_LINK_PARTS_MAX: Final = 8
"""Folders of a link that are looked for beside a template."""
_SERVICE: Final = "microsoft.servicebus/"
_DEPLOYMENT: Final = "microsoft.resources/deployments"
_KINDS: Final[Mapping[str, Kind]] = {
    "namespaces": Kind.NAMESPACE,
    "namespaces/authorizationrules": Kind.AUTHORIZATION_RULE,
    "namespaces/networkruleset": Kind.NETWORK_RULES,
    "namespaces/networkrulesets": Kind.NETWORK_RULES,
    "namespaces/queues": Kind.QUEUE,
    "namespaces/queues/authorizationrules": Kind.AUTHORIZATION_RULE,
    "namespaces/topics": Kind.TOPIC,
    "namespaces/topics/authorizationrules": Kind.AUTHORIZATION_RULE,
    "namespaces/topics/subscriptions": Kind.SUBSCRIPTION,
    "namespaces/topics/subscriptions/rules": Kind.RULE,
}
NOT_READ: Final[Mapping[str, str]] = {
    "namespaces/disasterrecoveryconfigs": "geo-disaster recovery",
    "namespaces/disasterrecoveryconfigs/checknameavailability": "geo-disaster recovery",
    "namespaces/ipfilterrules": "IP filters of 2018, which network rule sets have replaced",
    "namespaces/migrationconfigurations": "migration to Premium",
    "namespaces/privateendpointconnections": "private endpoints",
    "namespaces/virtualnetworkrules": "rules of virtual networks of 2018, which network rule sets have replaced",
}
"""Types of Service Bus that make no entity."""
_UNKNOWN_NAME: Final = "\ue000"
"""Stands for an unknown piece while a name is divided at its slashes."""
Locate = Callable[[str], Origin]
"""Where a JSON path of the template is written."""
Linked = Callable[[str], Mapping[str, object] | None]
"""The template or the parameters that a link with a relative path names, or None."""


def _at_path(path: str) -> Origin:
    return Origin(path=path)


@dataclass(frozen=True, slots=True)
class Evaluated:
    """What a template declares, its outputs as ARM answers them, and notes, one line each.

    `missing` are parameters without a value, `problems` what is wrong with those that are given. The service refuses a
    deployment for either before it makes anything; an import may go on without a value.
    """

    resources: Resources
    outputs: Mapping[str, object] = field(default_factory=dict[str, object])
    notes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


def evaluate(
    template: Mapping[str, object],
    parameters: Mapping[str, object],
    *,
    scope: Place | None = None,
    existing: Cloud | None = None,
    stand_ins: bool = False,
    locate: Locate = _at_path,
    linked: Linked | None = None,
) -> Evaluated:
    """What a template with these values of its parameters declares. Unresolved if it is no template, TooMuch.

    `parameters` are plain values by name. Without a `scope` what depends on the cloud is unknown, and what needs it is
    left out. `existing` answers `reference` and `listKeys` for resources that the template does not make.
    """
    reading = _Reading(Setting(scope, existing), stand_ins, locate, linked)
    try:
        root = _Template(reading, template, _given_values(parameters), "$", 0)
        root.read()
        outputs = root.outputs()
    except RecursionError:
        raise TooMuch(f"its values are nested more than {DEPTH_MAX} levels deep") from None
    found = Resources(tuple(reading.declared), tuple(reading.left_out), reading.foreign)
    return Evaluated(found, outputs, tuple(reading.notes), tuple(reading.problems), tuple(reading.missing))


def parameters_in(document: Mapping[str, object]) -> JsonObject:
    """The values in a parameters file, which wraps each in `value`, or in an object of plain values. Unresolved."""
    values = _require_object(document.get("parameters", document), "parameters")
    found: JsonObject = {}
    for name, each in values.items():
        if name.startswith("$") or name == "contentVersion":
            continue
        if isinstance(each, dict) and "value" in each:
            found[name] = each["value"]
        elif isinstance(each, dict) and "reference" in each:
            found[name] = Unknown(f"the parameter '{name}' is a secret of a key vault", name)
        else:
            found[name] = each
    return found


def _given_values(parameters: Mapping[str, object]) -> dict[str, Lazy]:
    return {name: _constant(name, value) for name, value in parameters.items()}


def _constant(name: str, value: object) -> Lazy:
    return Lazy(f"the parameter '{name}'", lambda: value)


def _require_object(value: object, what: str) -> Mapping[str, object]:
    """The members of an object. Unresolved if the value is none."""
    if not isinstance(value, dict):
        raise Unresolved(f"{what}: what must be an object is of type {kind_of(value)}")
    found: JsonObject = value
    return found


class _Reading:
    """What all templates of a reading add to."""

    def __init__(self, setting: Setting, stand_ins: bool, locate: Locate, linked: Linked | None) -> None:
        self.setting = setting
        self.stand_ins = stand_ins
        self.locate = locate
        self.linked = linked
        self.declared: list[Declared] = []
        self.left_out: list[LeftOut] = []
        self.foreign: Counter[str] = Counter()
        self.notes: list[str] = []
        self.problems: list[str] = []
        self.missing: list[str] = []

    def declare(self, found: Declared) -> None:
        self.declared.append(found)
        if len(self.declared) > RESOURCES_MAX:
            raise TooMuch(f"it makes more than {RESOURCES_MAX} entities and rules")

    def leave_out(self, what: str, why: Unresolved | str, path: str, *, is_entity: bool = True) -> None:
        parameter = why.parameter if isinstance(why, Unresolved) else ""
        text = why.why if isinstance(why, Unresolved) else why
        remedy = f"give the parameter '{parameter}' a value" if parameter else ""
        self.left_out.append(LeftOut(what, text, remedy, self.locate(path), is_entity))
        if len(self.left_out) > LINES_MAX:
            raise TooMuch(f"more than {LINES_MAX} of its resources and properties can't be read")


@dataclass(frozen=True, slots=True)
class _Instance:
    """A resource of a template in one round of its loop. `symbol` is its symbolic name, if it has one."""

    kind: str
    raw: Mapping[str, object]
    scope: Scope
    path: str
    symbol: str
    above: _Instance | None
    names: Lazy
    """Its whole name, those of the resources that it is nested in before its own: `str | Mixed`."""
    properties: Lazy
    module: Lazy | None = None
    """Of a deployment: its `_Template`."""


class _Template:
    """One template, the root or a module's."""

    def __init__(
        self,
        reading: _Reading,
        raw: Mapping[str, object],
        given: Mapping[str, Lazy],
        path: str,
        depth: int,
        around: Scope | None = None,
    ) -> None:
        self._reading = reading
        self._raw = raw
        self._path = path
        self._depth = depth
        if depth > MODULES_MAX:
            raise TooMuch(f"it has more than {MODULES_MAX} modules in each other")
        self._instances: list[_Instance] | None = None
        self._by_symbol: dict[str, _Instance] = {}
        own = {name.lower(): name for name in self._declared_under("parameters")}
        parameters = dict[str, Lazy]()
        self.scope = Scope(reading.setting, parameters, find=self._answer_reference, is_root=depth == 0)
        parameters |= self._parameters({own.get(name.lower(), name): each for name, each in given.items()}, around)
        variables = self._variables()
        functions = {
            f"{group.get('namespace', '')}.{name}".lower(): _require_object(each, name)
            for group in self._list("functions")
            for name, each in _require_object(group.get("members", {}), "functions").items()
        }
        if around is not None:  # the nested template sees the names of the outer one first
            parameters |= around.parameters
            variables |= around.variables
            functions |= around.functions
        self.scope = replace(
            self.scope,
            variables=variables,
            functions=functions,
            loops={} if around is None else around.loops,
            find=self._answer_reference if around is None else self._find_here_or(around.find),
        )

    def _declared_under(self, name: str) -> Mapping[str, object]:
        value = self._raw.get(name)
        return {} if value is None else _require_object(value, name)

    def _list(self, name: str) -> list[Mapping[str, object]]:
        value = self._raw.get(name) or []
        if not isinstance(value, list):
            raise Unresolved(f"{name}: what must be an array is of type {kind_of(value)}")
        return [_require_object(each, name) for each in value]

    # Parameters and variables.

    def _parameters(self, given: Mapping[str, Lazy], around: Scope | None) -> dict[str, Lazy]:
        declared = {
            name: self._typed(_require_object(each, name)) for name, each in self._declared_under("parameters").items()
        }
        is_root = self._depth == 0
        if around is None:
            for name in given:
                if name not in declared:
                    close = difflib.get_close_matches(name, declared, n=1)
                    hint = f"; did you mean '{close[0]}'?" if close else ""
                    self._reading.problems.append(f"the template has no parameter '{name}'{hint}")
        found: dict[str, Lazy] = {}
        for name, raw in declared.items():
            found[name.lower()] = self._parameter(name, raw, given.get(name), is_root=is_root)
        return found

    def _typed(self, raw: Mapping[str, object]) -> Mapping[str, object]:
        """A parameter with what the type that it names adds."""
        found: JsonObject = dict(raw)
        for _ in range(10):
            name = found.pop("$ref", None)
            if not isinstance(name, str):
                break
            kind = self._declared_under("definitions").get(name.removeprefix("#/definitions/"))
            found = {**(kind if isinstance(kind, dict) else {}), **found}
        return found

    def _parameter(self, name: str, raw: Mapping[str, object], given: Lazy | None, *, is_root: bool) -> Lazy:
        if given is not None:
            return Lazy(f"the parameter '{name}'", lambda: self._checked(name, raw, given.get(), is_root=is_root))
        if "defaultValue" in raw:
            default = raw["defaultValue"]

            def make() -> object:
                try:
                    found = self.scope.value(default)
                except Unresolved as error:
                    found = Unknown(error.why, error.parameter)
                return blamed(found, name) if is_root else found

            return Lazy(f"the parameter '{name}'", make)
        if raw.get("nullable"):
            return _constant(name, None)
        if not is_root:
            return _constant(name, Unknown(f"the module's parameter '{name}' has no value"))
        self._reading.missing.append(name)
        return Lazy(f"the parameter '{name}'", lambda: self._stand_in(name, raw))

    def _checked(self, name: str, raw: Mapping[str, object], value: object, *, is_root: bool) -> object:
        """A given value, or the default in place of a null that a module is given."""
        if value is None and not raw.get("nullable") and "defaultValue" in raw and not is_root:
            return self.scope.value(raw["defaultValue"])
        problem = _value_refusal(name, raw, value)
        if problem and is_root and problem not in self._reading.problems:
            self._reading.problems.append(problem)
        return value

    def _stand_in(self, name: str, raw: Mapping[str, object]) -> object:
        missing = Unknown(f"the parameter '{name}' has no value", name)
        if not self._reading.stand_ins or str(raw.get("type", "string")).lower() not in ("string", "securestring"):
            return missing
        allowed = raw.get("allowedValues")
        found = str(allowed[0]) if isinstance(allowed, list) and allowed else name
        self._reading.notes.append(f"the parameter '{name}' has no value; '{found}' stands for it")
        return found

    def _variables(self) -> dict[str, Lazy]:
        found: dict[str, Lazy] = {}
        for name, written in self._declared_under("variables").items():
            if name.lower() == "copy":
                for loop in written if isinstance(written, list) else []:
                    own = str(_require_object(loop, "a loop of variables").get("name", ""))
                    found[own.lower()] = self._lazy_copy(own, loop)
            else:
                found[name.lower()] = self._lazy_variable(name, written)
        return found

    def _lazy_variable(self, name: str, written: object) -> Lazy:
        return Lazy(f"the variable '{name}'", lambda: self.scope.value(written))

    def _lazy_copy(self, name: str, loop: object) -> Lazy:
        return Lazy(f"the variable '{name}'", lambda: self.scope.copied([loop])[name])

    # Resources.

    def read(self) -> None:
        """Declare the resources of this template and of its modules."""
        for each in self.instances():
            self._read_one(each)

    def instances(self) -> list[_Instance]:
        """All resources, each round of a loop by itself, children behind their parents."""
        if self._instances is None:
            self._instances = []
            raw = self._raw.get("resources") or []
            for symbol, path, each in _resources(raw, f"{self._path}.resources"):
                self._expand(each, self.scope, path, symbol, None)
        return self._instances

    def _expand(self, raw: Mapping[str, object], scope: Scope, path: str, symbol: str, above: _Instance | None) -> None:
        kind = "/".join(filter(None, ("" if above is None else above.kind, str(raw.get("type", "")))))
        if above is not None and str(raw.get("type", "")).lower().startswith(f"{above.kind.lower()}/"):
            kind = str(raw["type"])  # the whole type, as version 2.0 has it in children, too
        if not _is_read(kind) and not raw.get("existing"):
            self._reading.foreign[kind] += 1
            return
        copy = raw.get("copy")
        try:
            rounds = [scope] if copy is None else list(scope.rounds(_require_object(copy, "copy")))
        except Unresolved as error:
            self._reading.leave_out(f"{_type_word(kind)} {quoted(raw.get('name', ''))}", error, path)
            return
        for index, inner in enumerate(rounds):
            self._reading.setting.budget.step()
            own = symbol if copy is None or not symbol else f"{symbol}[{index}]"
            instance = self._instance(kind, raw, inner, path, own, above)
            assert self._instances is not None
            self._instances.append(instance)
            if own:
                self._by_symbol[own.lower()] = instance
            for inner_symbol, inner_path, each in _resources(raw.get("resources") or [], f"{path}.resources"):
                self._expand(each, inner, inner_path, inner_symbol, instance)

    def _instance(
        self,
        kind: str,
        raw: Mapping[str, object],
        scope: Scope,
        path: str,
        symbol: str,
        above: _Instance | None,
    ) -> _Instance:
        def names() -> object:
            own = scope.value(raw.get("name", ""))
            if isinstance(own, Unknown):
                own = Mixed((own,))
            if not isinstance(own, str | Mixed):
                raise Unresolved(f"its name is {quoted(own)}, which is no text")
            if above is None or _depth_of(own) == kind.count("/"):
                return own
            return scope_text(above.names.get(), own)

        module = None
        if kind.lower() == _DEPLOYMENT:
            module = Lazy("a module", lambda: self._module(raw, scope, path))
        properties = Lazy("a resource", lambda: _properties(raw, scope))
        return _Instance(kind, raw, scope, path, symbol, above, Lazy("a name", names), properties, module)

    def _read_one(self, instance: _Instance) -> None:
        raw, path = instance.raw, instance.path
        if raw.get("existing"):
            return
        if instance.module is not None and not _mentions_service_bus(raw, DEPTH_MAX):
            self._reading.foreign[instance.kind] += 1
            return
        label = f"{_type_word(instance.kind)} {_shown_name(instance)}"
        try:
            is_made = instance.scope.value(raw.get("condition", True))
            if isinstance(is_made, str) and is_made.lower() in ("true", "false"):
                is_made = is_made.lower() == "true"
            if isinstance(is_made, Unknown | Mixed):
                missing = unknown_in(is_made)
                assert missing is not None
                raise Unresolved(f"whether it is made is not known: {missing.why}", missing.parameter)
            if not isinstance(is_made, bool):
                raise Unresolved(f"its condition is {quoted(is_made)}, which is neither true nor false")
            if not is_made:
                return
            if instance.module is not None:
                module = instance.module.get()
                if isinstance(module, _Template):
                    module.read()
                return
            lowered = instance.kind.lower().removeprefix(_SERVICE)
            if lowered in NOT_READ:
                self._reading.leave_out(label, f"emubus has no {NOT_READ[lowered]}", path, is_entity=False)
                return
            kind = _KINDS.get(lowered)
            if kind is None:
                self._reading.leave_out(label, "emubus knows no such type of Service Bus", path)
                return
            self._declare(kind, instance, label)
        except Unresolved as error:
            self._reading.leave_out(label, error, path)

    def _declare(self, kind: Kind, instance: _Instance, label: str) -> None:
        names = _names_in(instance.names.get(), instance.kind.count("/"))
        namespace, path = names[0], names[1:]
        if kind is Kind.NETWORK_RULES:
            path = ()
        assert len(path) in PATH_LENGTHS[kind]
        found = instance.properties.get()
        if isinstance(found, Unknown):
            raise Unresolved(f"its properties are not known: {found.why}", found.parameter)
        if not isinstance(found, dict):
            raise Unresolved(f"its properties are {quoted(found)}, which is no object")
        if isinstance(found, Partly):
            why = Unresolved(found.missing.why, found.missing.parameter)
            self._reading.leave_out(f"{label}: some of its properties", why, instance.path, is_entity=False)
        if kind is Kind.NAMESPACE:
            found = {**found, **_sku_and_tags(instance)}
        properties = coerced(kind, self._known_properties(found, label, instance.path))
        origin = self._reading.locate(instance.path)
        self._reading.declare(Declared(kind, path, properties, origin, "" if _UNKNOWN_NAME in namespace else namespace))

    def _known_properties(self, properties: Mapping[str, object], label: str, path: str) -> JsonObject:
        """The properties that are known; of the others a line each."""
        found: JsonObject = {}
        for name, value in properties.items():
            missing = unknown_in(value)
            if missing is None:
                found[name] = value
                continue
            why = Unresolved(missing.why, missing.parameter)
            self._reading.leave_out(f"{label}: the property {name}", why, f"{path}.properties.{name}", is_entity=False)
        return found

    # Modules.

    def _module(self, raw: Mapping[str, object], scope: Scope, path: str) -> _Template | None:
        properties = _require_object(raw.get("properties", {}), "properties")
        template = properties.get("template")
        where = f"{path}.properties.template"
        if template is None:
            template, where = self._link(properties.get("templateLink"), scope), f"{path}.properties.templateLink"
        if isinstance(template, str):
            template = scope.value(template)
        options = properties.get("expressionEvaluationOptions")
        is_inner = isinstance(options, dict) and str(scope.value(options.get("scope", ""))).lower() == "inner"
        is_inner = is_inner or "templateLink" in properties
        given = self._arguments(properties, scope)
        return _Template(
            self._reading,
            _require_object(template, "the template of a module"),
            given,
            where,
            self._depth + 1,
            None if is_inner else scope,
        )

    def _link(self, link: object, scope: Scope) -> object:
        """The template of a link: the file beside the template whose path ends the link, as repositories keep it."""
        if not isinstance(link, dict):
            raise Unresolved("it has no template")
        target = scope.value(link.get("relativePath") or link.get("uri") or link.get("id") or "")
        linked = self._reading.linked
        for path in [] if linked is None or "id" in link else _ends(target):
            found = linked(path) if linked is not None else None
            if found is not None:
                return found
        shown = quoted(_name_text(target)) if isinstance(target, str | Mixed) else "a link"
        raise Unresolved(f"its template {shown} is not beside the file; compile the module into the template")

    def _arguments(self, properties: Mapping[str, object], scope: Scope) -> dict[str, Lazy]:
        """What a module is given; evaluated when the module asks for it."""
        written = properties.get("parameters") or {}
        if isinstance(written, str):
            written = scope.value(written)
        if isinstance(written, Unknown):
            raise written.needed()
        found: dict[str, Lazy] = {}
        for name, each in _require_object(written, "the parameters of a module").items():
            found[name] = Lazy(f"the parameter '{name}'", _argument(name, each, scope))
        return found

    # References.

    def _find_here_or(self, outer: Callable[[object, bool], object]) -> Callable[[object, bool], object]:
        def find(name: object, is_full: bool) -> object:
            here = self._answer_reference(name, is_full)
            return outer(name, is_full) if here is None else here

        return find

    def _answer_reference(self, name: object, is_full: bool) -> object:
        """What `reference` says of a resource; None if the template has none of that name or id."""
        found = self._instance_of(name)
        if found is None:
            return self._existing(name, is_full)
        if found.module is not None:
            module = found.module.get()
            outputs = module.outputs() if isinstance(module, _Template) else {}
            answer: JsonObject = Partly({"outputs": outputs}, "the module's properties are of the cloud")
            return Partly({"properties": answer, "outputs": outputs}, "of the cloud") if is_full else answer
        if found.raw.get("existing") and isinstance(resource_id := self._id_of(found), str):
            real = self._existing(resource_id, is_full)
            if real is not None:
                return real
        own = found.properties.get()
        members = Partly(own if isinstance(own, dict) else {}, f"what the cloud says of '{found.kind}' is not known")
        if not is_full:
            return members
        whole: JsonObject = {"properties": members, "type": found.kind}
        names = found.names.get()
        whole["name"] = names.rpartition("/")[2] if isinstance(names, str) else names
        return Partly({**whole, "id": self._id_of(found)}, "of the cloud")

    def _id_of(self, found: _Instance) -> object:
        words = ", ".join(f"'{each}'" for each in _names_in(found.names.get(), found.kind.count("/")))
        return found.scope.value(f"[resourceId('{found.kind}', {words})]") if "'" not in words[1:-1] else None

    def _instance_of(self, name: object) -> _Instance | None:
        instances = self.instances()
        if isinstance(name, str) and name.lower() in self._by_symbol:
            return self._by_symbol[name.lower()]
        wanted_kind, wanted = _reference_target(name)
        if not wanted:
            return None
        for each in instances:
            self._reading.setting.budget.step()
            if wanted_kind and each.kind.lower() != wanted_kind:
                continue
            try:
                own = _key(each.names.get())
            except Unresolved:
                continue
            if own == wanted:
                return each
        return None

    def _existing(self, name: object, is_full: bool) -> object:
        cloud = self._reading.setting.cloud
        if cloud is None or not isinstance(name, str) or "/providers/" not in name:
            return None
        kind, names = kind_and_names(name)
        found = cloud.resource(kind, names)
        return found if found is None or is_full else found.get("properties", {})

    def outputs(self) -> JsonObject:
        """Each with its type and value; those whose condition is false are absent, those that can't be had unknown."""
        found: JsonObject = {}
        for name, each in self._declared_under("outputs").items():
            raw = _require_object(each, name)
            kind = str(self._typed(raw).get("type", ""))
            try:
                if self.scope.value(raw.get("condition", True)) is False:
                    continue
                if "copy" in raw:
                    loop = _require_object(raw["copy"], "copy")
                    value: object = self.scope.copied([{**loop, "name": name}])[name]
                else:
                    value = self.scope.value(raw.get("value"))
            except Unresolved as error:
                value = Unknown(error.why, error.parameter)
            found[name] = {"type": kind, "value": value}
        return found


def _ends(target: object) -> list[str]:
    """Paths that a link may mean, the longest first: `https://host/a/b.json` is `a/b.json` or `b.json`."""
    text = target.pieces[-1] if isinstance(target, Mixed) else target
    if not isinstance(text, str) or not text.partition("?")[0].endswith(".json"):
        return []
    path = text.partition("?")[0]
    parts = path.split("/") if "://" not in path else path.split("/")[3:]
    return ["/".join(parts[at:]) for at in range(max(0, len(parts) - _LINK_PARTS_MAX), len(parts)) if parts[at]]


def _argument(name: str, each: object, scope: Scope) -> Callable[[], object]:
    def make() -> object:
        if isinstance(each, dict) and "reference" in each and "value" not in each:
            return Unknown(f"the parameter '{name}' of a module is a secret of a key vault")
        try:
            if isinstance(each, dict) and "value" in each:
                return scope.value(each["value"])
            found = scope.value(each)  # Bicep: `[if(…, createObject('value', …), createObject('value', …))]`
            return found["value"] if isinstance(found, dict) and found.keys() == {"value"} else found
        except Unresolved as error:
            return Unknown(error.why, error.parameter)

    return make


def _value_refusal(name: str, raw: Mapping[str, object], value: object) -> str:
    """What the service says against a value of a parameter, or nothing."""
    if unknown_in(value) is not None or (value is None and raw.get("nullable")):
        return ""
    kind = str(raw.get("type", "")).lower().removeprefix("secure")
    own = kind_of(value)
    if kind in ("string", "int", "bool", "array", "object") and own != kind:
        return f"the parameter '{name}' is {quoted(value)}; it must be of type {kind}"
    allowed = raw.get("allowedValues")
    if isinstance(allowed, list) and "items" not in raw:
        values = value if isinstance(value, list) else [value]
        if value not in allowed and not all(each in allowed for each in values):
            shown = ", ".join(str(each) for each in allowed[:20])
            return f"the parameter '{name}' is {quoted(value)}; allowed is {shown}"
    size = value if isinstance(value, int) else len(value) if isinstance(value, str | list) else None
    for limit, is_low in (("minValue", True), ("maxValue", False), ("minLength", True), ("maxLength", False)):
        bound = raw.get(limit)
        if isinstance(bound, int) and isinstance(size, int) and (size < bound if is_low else size > bound):
            return f"the parameter '{name}' is {quoted(value)}; its {limit} is {bound}"
    return ""


def _resources(raw: object, path: str) -> Iterator[tuple[str, str, Mapping[str, object]]]:
    """Symbolic name, path and content of resources: a list, or from version 2.0 on an object of symbolic names."""
    if isinstance(raw, dict):
        for name, each in raw.items():
            yield name, f"{path}.{name}", _require_object(each, path)
        return
    if not isinstance(raw, list):
        raise Unresolved(f"resources: what must be an array is of type {kind_of(raw)}")
    for at, each in enumerate(raw):
        yield "", f"{path}[{at}]", _require_object(each, path)


def _sku_and_tags(instance: _Instance) -> JsonObject:
    """What a namespace has beside its properties. No entity needs its place and tags: they are left out if unknown."""
    found: JsonObject = {}
    for name in ("sku", "location", "tags", "identity"):
        if name not in instance.raw:
            continue
        try:
            value = instance.scope.value(instance.raw[name])
        except Unresolved:
            if name == "sku":
                raise
            continue
        if name == "sku" or unknown_in(value) is None:
            found[name] = value
    return found


def _properties(raw: Mapping[str, object], scope: Scope) -> object:
    written = raw.get("properties")
    found = {} if written is None else scope.value(written)
    return {} if found is None else found


def _is_read(kind: str) -> bool:
    """Not what other services add to a resource: `…/providers/diagnosticSettings`."""
    lowered = kind.lower()
    return lowered == _DEPLOYMENT or (lowered.startswith(_SERVICE) and "/providers/" not in lowered)


def _mentions_service_bus(raw: object, depth: int) -> bool:
    """Whether a module may have something to read: a type of Service Bus, or a template that is not in the file."""
    if isinstance(raw, str):
        return raw.lower().startswith(_SERVICE)
    if depth == 0:
        return True
    if isinstance(raw, dict):
        return "templateLink" in raw or any(_mentions_service_bus(each, depth - 1) for each in raw.values())
    return isinstance(raw, list) and any(_mentions_service_bus(each, depth - 1) for each in raw)


def _type_word(kind: str) -> str:
    """A type as messages name it."""
    known = _KINDS.get(kind.lower().removeprefix(_SERVICE))
    return "module" if kind.lower() == _DEPLOYMENT else kind if known is None else known.value


def _shown_name(instance: _Instance) -> str:
    """The name of a resource in a message, without that of its namespace; what is unknown is an ellipsis."""
    try:
        text = _name_text(instance.names.get())
    except Unresolved:
        text = str(instance.raw.get("name", ""))
        return quoted(text) if is_expression(text) else text
    _, slash, rest = text.partition("/")
    return rest if slash else text


def _name_text(name: object) -> str:
    pieces = name.pieces if isinstance(name, Mixed) else (str(name),)
    return "".join(each if isinstance(each, str) else "…" for each in pieces)


def scope_text(above: object, own: str | Mixed) -> str | Mixed:
    """The name of a child behind that of its parent."""
    pieces: list[str | Unknown] = []
    for part in (above, "/", own):
        pieces += part.pieces if isinstance(part, Mixed) else [str(part)]
    return Mixed(tuple(pieces)) if any(isinstance(each, Unknown) for each in pieces) else "".join(map(str, pieces))


def _depth_of(name: str | Mixed) -> int:
    """How many parts a name has."""
    return _name_text(name).count("/") + 1


def _names_in(name: object, count: int) -> tuple[str, ...]:
    """The names of the resources in a whole name, as many as its type has. Unresolved.

    The first, of the namespace, may be unknown. A tilde is a slash of an entity's name, as resource names have it.
    """
    pieces = name.pieces if isinstance(name, Mixed) else (str(name),)
    text = "".join(each if isinstance(each, str) else _UNKNOWN_NAME for each in pieces)
    first, *others = text.split("/")
    missing = next((each for each in pieces if isinstance(each, Unknown)), None)
    if len(others) + 1 != count:
        if missing is not None:
            raise Unresolved(f"its name depends on what is not known: {missing.why}", missing.parameter)
        raise Unresolved(f"its name {quoted(text)} has {len(others) + 1} parts; its type has {count}")
    if any(_UNKNOWN_NAME in each for each in others):
        behind = next(each for n, each in enumerate(pieces) if isinstance(each, Unknown) and _behind_slash(pieces, n))
        raise Unresolved(f"its name depends on what is not known: {behind.why}", behind.parameter)
    if not all(others):
        raise Unresolved(f"its name {quoted(text)} has an empty part")
    return (first, *(each.replace("~", "/") for each in others))


def _behind_slash(pieces: tuple[str | Unknown, ...], at: int) -> bool:
    return any(isinstance(each, str) and "/" in each for each in pieces[:at])


def _reference_target(name: object) -> tuple[str, tuple[str, ...]]:
    """Type, or "", and key of what `reference` asks for."""
    key = _key(name)
    if "providers" not in key:
        return "", key
    at = len(key) - 1 - key[::-1].index("providers")
    provider, *parts = key[at + 1 :]
    return "/".join([provider, *parts[::2]]), tuple(parts[1::2])


def _key(name: object) -> tuple[str, ...]:
    """A name to be compared: two unknown pieces of the same origin are equal."""
    if not isinstance(name, str | Mixed):
        return ()
    pieces = name.pieces if isinstance(name, Mixed) else (name,)
    text = "".join(each if isinstance(each, str) else f"{_UNKNOWN_NAME}{each.why}" for each in pieces)
    return tuple(text.lower().split("/"))
