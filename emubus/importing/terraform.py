"""Reads what `terraform show -json` prints, of a plan or a state, also that of OpenTofu: resources of Service Bus.

A plan does not know ids of what is still to be made. What a subscription or rule is in is then found by the references
of the configuration, which the plan holds [1]: through arguments of modules and their outputs, and with the same key
where both are made by `for_each` or `count`. What leads through `local` values or a key that is computed can't be
followed: it is left out, and a state has it.

[1] developer.hashicorp.com/terraform/internals/json-format
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from ..declared.resources import Declared, Kind, LeftOut, Origin, Resources
from .arm_ids import KINDS, PROVIDER, entity_name, parse_id, path_in
from .azurerm import SETTINGS, TYPES, Row, jms_name, properties_of

VERSIONS: Final = ("0", "1")
"""Major versions of the format; a file of another one must be refused [1]."""
HOPS_MAX: Final = 32
"""References that lead to other references: as deep as modules are nested, and more."""
MODULES_DEPTH_MAX: Final = 64
RESOURCES_MAX: Final = 20_000
_AZAPI: Final = ("azapi_resource", "azapi_update_resource")
_AFTER_APPLY: Final = "apply the plan, and import the state: `terraform show -json > state.json`"
_KEY: Final = re.compile(r'\[(?:"((?:[^"\\]|\\.)*)"|(\d+))\]$')

JsonObject = Mapping[str, object]


class NotTerraform(Exception):  # noqa: N818 - it says what the file is instead
    """The file is no output of `terraform show -json`; the text says what is wrong and what to do."""


@dataclass(slots=True)
class _Resource:
    """A resource of a plan or state, with the address of its module and its place in the file."""

    address: str
    module: str
    kind: str
    name: str
    index: object
    values: JsonObject
    unknown: JsonObject
    origin: Origin


@dataclass(slots=True)
class _File:
    """All resources, and the configuration of each module by its address without keys."""

    resources: list[_Resource] = field(default_factory=list[_Resource])
    modules: dict[str, JsonObject] = field(default_factory=dict[str, JsonObject])
    foreign: Counter[str] = field(default_factory=Counter[str])


def read_terraform(document: JsonObject, file: str) -> Resources:
    """The resources of a plan or a state. NotTerraform."""
    version = document.get("format_version")
    if not isinstance(version, str):
        if "terraform_version" in document and "resources" in document:
            raise NotTerraform("it is a state file; give what `terraform show -json` prints of it")
        raise NotTerraform("it has no format_version; give what `terraform show -json` prints of a plan or a state")
    if version.partition(".")[0] not in VERSIONS:
        raise NotTerraform(f"its format_version is {version!r:.40}; allowed is 1 (and 0)")
    is_plan = "planned_values" in document
    found = _File()
    root = _object_or_empty(
        _object_or_empty(document.get("planned_values" if is_plan else "values")).get("root_module")
    )
    base = "$.planned_values.root_module" if is_plan else "$.values.root_module"
    unknown = {
        str(each.get("address")): _object_or_empty(_object_or_empty(each.get("change")).get("after_unknown"))
        for each in _objects(document.get("resource_changes"))
    }
    _module(found, root, "", base, file, unknown, 0)
    _configuration(found, _object_or_empty(_object_or_empty(document.get("configuration")).get("root_module")), "", 0)
    return _Reader(found, file).resources()


def _object_or_empty(value: object) -> dict[str, object]:
    return {str(name): each for name, each in value.items()} if isinstance(value, dict) else {}


def _objects(value: object) -> list[dict[str, object]]:
    return [_object_or_empty(each) for each in value] if isinstance(value, list) else []


def _module(
    found: _File, module: JsonObject, address: str, path: str, file: str, unknown: Mapping[str, JsonObject], depth: int
) -> None:
    if depth > MODULES_DEPTH_MAX:
        raise NotTerraform(f"its modules are nested more than {MODULES_DEPTH_MAX} deep")
    for number, each in enumerate(_objects(module.get("resources"))):
        if each.get("mode", "managed") != "managed":
            continue
        kind = str(each.get("type", ""))
        if kind not in TYPES and kind not in SETTINGS and not _is_azapi(kind, _object_or_empty(each.get("values"))):
            found.foreign[_foreign(kind, _object_or_empty(each.get("values")))] += 1
            continue
        if len(found.resources) >= RESOURCES_MAX:
            raise NotTerraform(f"it has more than {RESOURCES_MAX} resources of Service Bus")
        place = Origin(file, None, f"{path}.resources[{number}]")
        own = str(each.get("address", f"{kind}.{each.get('name')}"))
        found.resources.append(
            _Resource(
                own,
                address,
                kind,
                str(each.get("name", "")),
                each.get("index"),
                _object_or_empty(each.get("values")),
                unknown.get(own, {}),
                Origin(file, None, own) if own else place,
            )
        )
    for number, each in enumerate(_objects(module.get("child_modules"))):
        _module(found, each, str(each.get("address", "")), f"{path}.child_modules[{number}]", file, unknown, depth + 1)


def _is_azapi(kind: str, values: JsonObject) -> bool:
    return kind in _AZAPI and str(values.get("type", "")).lower().startswith(f"{PROVIDER}/namespaces")


def _foreign(kind: str, values: JsonObject) -> str:
    return str(values.get("type", "")).partition("@")[0] if kind in _AZAPI else kind


def _configuration(found: _File, module: JsonObject, path: str, depth: int) -> None:
    """Note the configuration of a module under its path, such as `module.a.module.b`."""
    if depth > MODULES_DEPTH_MAX:
        raise NotTerraform(f"its modules are nested more than {MODULES_DEPTH_MAX} deep")
    found.modules[path] = module
    for name, call in _object_or_empty(module.get("module_calls")).items():
        below = f"{path}.module.{name}" if path else f"module.{name}"
        _configuration(found, _object_or_empty(_object_or_empty(call).get("module")), below, depth + 1)


def _without_keys(address: str) -> str:
    """The address of a module without the keys of `for_each` and `count`."""
    return re.sub(r'\[(?:"(?:[^"\\]|\\.)*"|\d+)\]', "", address)


class _Reader:
    """Makes declared resources of those of a file."""

    def __init__(self, found: _File, file: str) -> None:
        self._found = found
        self._file = file
        self._by_place: dict[tuple[str, str, str], list[_Resource]] = {}
        for each in found.resources:
            self._by_place.setdefault((each.module, each.kind, each.name), []).append(each)
        self._declared: list[Declared] = []
        self._left_out: list[LeftOut] = []

    def resources(self) -> Resources:
        for each in self._found.resources:
            if each.kind in SETTINGS:
                self._pass_over(each, "emubus has no such setting", is_entity=False)
            elif each.kind in _AZAPI:
                self._azapi(each)
            else:
                self._azurerm(each, TYPES[each.kind])
        return Resources(tuple(self._declared), tuple(self._left_out), dict(self._found.foreign))

    def _pass_over(self, each: _Resource, why: str, remedy: str = "", *, is_entity: bool = True) -> None:
        self._left_out.append(LeftOut(f"{each.kind} {each.address}", why, remedy, Origin(self._file), is_entity))

    # ---- azurerm

    def _azurerm(self, each: _Resource, row: Row) -> None:
        properties, unread = properties_of(row, each.values)
        for name in unread:
            self._pass_over(each, f"the attribute {name} is not read", is_entity=False)
        self._say_unknown(each, row.attributes)
        placed = self._path(each, row.kind, properties)
        if placed is not None:
            namespace, path = placed
            self._declared.append(Declared(row.kind, path, properties, each.origin, namespace))

    def _say_unknown(self, each: _Resource, attributes: Mapping[str, str]) -> None:
        """Name what the configuration sets and the plan does not know; the provider computes the others itself."""
        set_here = _object_or_empty(self._configured(each).get("expressions"))
        for name in attributes:
            if name in each.unknown and each.unknown[name] is True and name in set_here:
                self._pass_over(each, f"the attribute {name} is known after apply", _AFTER_APPLY, is_entity=False)

    def _path(
        self, each: _Resource, kind: Kind, properties: Mapping[str, object], hops: int = 0
    ) -> tuple[str, tuple[str, ...]] | None:
        """Namespace and path of a resource; None if it is left out, which is noted."""
        row = TYPES[each.kind]
        known = parse_id(str(each.values.get("id") or ""))
        if known is not None and known[0] is kind:
            return known[1], known[2]
        name = each.values.get("name")
        if kind in (Kind.NAMESPACE, Kind.NETWORK_RULES):
            return str(name or ""), ()
        if not isinstance(name, str) or not name:
            self._pass_over(each, "its name is known after apply", _AFTER_APPLY)
            return None
        own = entity_name(jms_name(name, properties) if kind is Kind.SUBSCRIPTION else name)
        above = self._parent_of(each, row, hops)
        if above is None:
            self._pass_over(
                each,
                f"what it is in ({row.parent}) is known after apply, and its references do not say it",
                _AFTER_APPLY,
            )
            return None
        return above[0], (*above[1], own)

    def _parent_of(self, each: _Resource, row: Row, hops: int) -> tuple[str, tuple[str, ...]] | None:
        """Namespace and path of what a resource is in; the namespace "" if it is not known."""
        known = parse_id(str(each.values.get(row.parent) or ""))
        if known is not None:
            return known[1], known[2]
        names = [each.values.get(name) for name in row.parents]
        if len(names) > 1 and all(isinstance(name, str) and name for name in names[1:]):
            return str(names[0] or ""), tuple(entity_name(str(name)) for name in names[1:])
        if len(row.parents) <= 1:  # in the namespace itself, whichever that is
            return str(names[0] or "") if names else "", ()
        return self._referred(each, row.parent, hops)

    # ---- azapi

    def _azapi(self, each: _Resource) -> None:
        kinds = [part.lower() for part in str(each.values.get("type", "")).partition("@")[0].split("/")[2:]]
        kind = KINDS.get(tuple(kinds))
        if kind is None:
            self._pass_over(each, "emubus has no such setting", is_entity=False)
            return
        body = _json_of(each.values.get("body"))
        if body is None and each.unknown.get("body"):
            self._pass_over(each, "its body is known after apply", _AFTER_APPLY)
            return
        properties = _object_or_empty(_object_or_empty(body).get("properties"))
        if kind is Kind.NAMESPACE and "sku" in _object_or_empty(body):
            properties["sku"] = _object_or_empty(body)["sku"]
        known = parse_id(str(each.values.get("id") or each.values.get("resource_id") or ""))
        if known is not None and known[0] is kind:
            self._declared.append(Declared(kind, known[2], properties, each.origin, known[1]))
            return
        name, above = each.values.get("name"), self._azapi_above(each, kinds)
        if kind is Kind.NAMESPACE:
            self._declared.append(Declared(kind, (), properties, each.origin, str(name or "")))
        elif kind is not Kind.NETWORK_RULES and (not isinstance(name, str) or not name):
            self._pass_over(each, "its name is known after apply", _AFTER_APPLY)
        elif above is None:
            self._pass_over(
                each, "what it is in (parent_id) is known after apply, and its references do not say it", _AFTER_APPLY
            )
        else:
            path = path_in(kind, [*above[1], str(name)])
            self._declared.append(Declared(kind, path, properties, each.origin, above[0]))

    def _azapi_above(self, each: _Resource, kinds: list[str]) -> tuple[str, tuple[str, ...]] | None:
        known = parse_id(str(each.values.get("parent_id") or ""))
        if known is not None:
            return known[1], known[2]
        if len(kinds) <= 1:
            return "", ()
        return self._referred(each, "parent_id", 0)

    # ---- references

    def _configured(self, each: _Resource) -> JsonObject:
        module = self._found.modules.get(_without_keys(each.module), {})
        for found in _objects(module.get("resources")):
            if found.get("type") == each.kind and found.get("name") == each.name:
                return found
        return {}

    def _referred(self, each: _Resource, attribute: str, hops: int) -> tuple[str, tuple[str, ...]] | None:
        """What an attribute of a resource refers to, by the references of the configuration."""
        expression = _object_or_empty(_object_or_empty(self._configured(each).get("expressions")).get(attribute))
        target = self._target(each.module, _references(expression), each.index, hops)
        if target is None or target is each or hops > HOPS_MAX:
            return None
        if target.kind in _AZAPI:
            kinds = [part.lower() for part in str(target.values.get("type", "")).partition("@")[0].split("/")[2:]]
            above = self._azapi_above(target, kinds)
            name = target.values.get("name")
            return None if above is None or not isinstance(name, str) else (above[0], (*above[1], entity_name(name)))
        row = TYPES.get(target.kind)
        name = target.values.get("name")
        if row is None or not isinstance(name, str):
            return None
        if row.kind is Kind.NAMESPACE:
            return name, ()
        above = self._parent_of(target, row, hops + 1)
        if row.kind is Kind.SUBSCRIPTION:
            name = jms_name(name, properties_of(row, target.values)[0])
        return None if above is None else (above[0], (*above[1], entity_name(name)))

    def _target(self, module: str, references: list[str], index: object, hops: int) -> _Resource | None:
        """The resource that references lead to from a module; with several instances the one of the same key."""
        if hops > HOPS_MAX:
            return None
        for each in references:
            words = each.split(".")
            if words[0] == "var" and len(words) > 1:
                found = self._of_argument(module, words[1], index, hops)
            elif words[0] == "module" and len(words) > 2:
                found = self._of_output(module, words[1], words[2], index, hops)
            else:
                found = self._instance(module, each, index)
            if found is not None:
                return found
        return None

    def _instance(self, module: str, reference: str, index: object) -> _Resource | None:
        kind, _, rest = reference.partition(".")
        match = re.match(r"([\w-]+)(.*)", rest)
        if match is None:
            return None
        found = self._by_place.get((module, kind, match[1]), [])
        key = re.match(_KEY.pattern.removesuffix("$"), match[2])
        if key is not None:
            wanted: object = key[1].replace('\\"', '"') if key[1] is not None else int(key[2])
            return next((each for each in found if each.index == wanted), None)
        if len(found) == 1:  # whatever its key is: there is no other
            return found[0]
        return next((each for each in found if each.index == index and index is not None), None)

    def _of_argument(self, module: str, name: str, index: object, hops: int) -> _Resource | None:
        """What the caller of a module has given for a variable."""
        if not module:
            return None
        above, _, own = module.rpartition("module.")
        above = above.rstrip(".")
        call_name, key = re.sub(_KEY, "", own), _KEY.search(own)
        call = _object_or_empty(
            _object_or_empty(self._found.modules.get(_without_keys(above), {}).get("module_calls")).get(call_name)
        )
        expression = _object_or_empty(_object_or_empty(call.get("expressions")).get(name))
        of_module: object = index if key is None else key[1] if key[1] is not None else int(key[2])
        return self._target(above, _references(expression), of_module, hops + 1)

    def _of_output(self, module: str, call: str, output: str, index: object, hops: int) -> _Resource | None:
        """What an output of a module refers to; `call` may have a key."""
        name, key = re.sub(_KEY, "", call), _KEY.search(call)
        path = ".".join(filter(None, (_without_keys(module), f"module.{name}")))
        outputs = _object_or_empty(self._found.modules.get(path, {}).get("outputs"))
        references = _references(_object_or_empty(_object_or_empty(outputs.get(output)).get("expression")))
        below = [f"module.{call}"] if key is not None else [f"module.{name}", *self._keyed(name, index)]
        for each in below:
            place = ".".join(filter(None, (module, each)))
            found = self._target(place, references, index, hops + 1)
            if found is not None:
                return found
        return None

    @staticmethod
    def _keyed(name: str, index: object) -> Iterator[str]:
        if isinstance(index, str):
            yield f'module.{name}["{index}"]'
        elif isinstance(index, int):
            yield f"module.{name}[{index}]"


def _references(expression: JsonObject) -> list[str]:
    """References of an expression, the most exact first."""
    given = expression.get("references")
    return [each for each in given if isinstance(each, str)] if isinstance(given, list) else []


def _json_of(body: object) -> object:
    """The body of an azapi resource: text (version 1), an object (version 2), or an object with its type beside it."""
    if isinstance(body, str):
        import json

        try:
            found: object = json.loads(body)
        except (ValueError, RecursionError):
            return None
        return found
    if isinstance(body, dict) and {*body} == {"type", "value"}:
        inner: object = body["value"]
        return inner
    return body
