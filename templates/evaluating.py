"""Evaluates the expressions of a template: what is written, in a scope of parameters, variables, functions and loops.

Everything is lazy: parameters and variables are evaluated when an expression names them and kept then, of `if` only the
branch that is chosen, and a value that can't be had is an error only where somebody needs it: members of objects and
items of lists that fail are `Unknown`, with the reason.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cmp_to_key
from typing import Final, Protocol

from .functions import FUNCTIONS, call, item, string, whole_number
from .moments import SHORT, moment_text
from .syntax import Call, Expression, Item, Literal, is_expression, literal_of, parse
from .values import (
    Budget,
    Mixed,
    Partly,
    Unknown,
    Unresolved,
    blamed,
    few,
    kind_of,
    quoted,
    text_from,
    unknown_in,
)

LOOP_COUNT_MAX: Final = 10_000
"""The service makes 800 resources in a loop; loops of variables and properties may be longer."""
JsonObject = dict[str, object]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a template is deployed, as its scope functions say; without one, they are unknown."""

    subscription: str
    resource_group: str
    location: str
    tenant: str
    deployment: str
    now: datetime
    new_guid: Callable[[], str]

    @property
    def group_id(self) -> str:
        return f"/subscriptions/{self.subscription}/resourceGroups/{self.resource_group}"


class Cloud(Protocol):
    """What exists already, for `reference` and the functions whose names start with `list`."""

    def resource(self, kind: str, names: tuple[str, ...]) -> Mapping[str, object] | None:
        """A resource as ARM answers a GET, or None."""
        ...

    def listing(self, function: str, kind: str, names: tuple[str, ...]) -> object | None:
        """What an action such as `listKeys` answers, or None."""
        ...


class Lazy:
    """A value that is made once, when it is first asked for. Unresolved if making it asks for it."""

    __slots__ = ("_error", "_is_made", "_is_making", "_make", "_value", "_what")

    def __init__(self, what: str, make: Callable[[], object]) -> None:
        self._what = what
        self._make = make
        self._is_made = False
        self._is_making = False
        self._value: object = None
        self._error: Unresolved | None = None

    def get(self) -> object:
        if not self._is_made:
            if self._is_making:
                raise Unresolved(f"{self._what} depends on itself")
            self._is_making = True
            try:
                self._value = self._make()
            except Unresolved as error:
                self._error = error
            finally:
                self._is_making = False
            self._is_made = True
        if self._error is not None:
            raise Unresolved(self._error.why, self._error.parameter)
        return self._value


@dataclass(frozen=True, slots=True)
class Setting:
    """What all templates of an evaluation share."""

    place: Place | None = None
    cloud: Cloud | None = None
    budget: Budget = field(default_factory=Budget)
    trees: dict[str, Expression] = field(default_factory=dict[str, Expression])

    def tree(self, text: str) -> Expression:
        """The tree of an expression; loops evaluate the same text many times."""
        found = self.trees.get(text)
        if found is None:
            self.budget.step(1 + len(text) // 100)
            found = self.trees[text] = parse(text[1:-1])
        return found


Finder = Callable[[object, bool], object]
"""`reference`: a symbolic name, a name or an id, and whether the full resource is asked for."""


def _nothing(_name: object, _is_full: bool) -> object:
    return None


@dataclass(frozen=True, slots=True)
class Scope:
    """What names mean at a place of a template. Names have no case; keys are lower-case."""

    setting: Setting = field(default_factory=Setting)
    parameters: Mapping[str, Lazy] = field(default_factory=dict[str, Lazy])
    variables: Mapping[str, Lazy] = field(default_factory=dict[str, Lazy])
    functions: Mapping[str, Mapping[str, object]] = field(default_factory=dict[str, Mapping[str, object]])
    loops: Mapping[str, int] = field(default_factory=dict[str, int])
    """Rounds of the loops around it, by name; "" is the innermost of resources."""
    arguments: Mapping[str, object] = field(default_factory=dict[str, object])
    """Of the lambdas around it."""
    find: Finder = _nothing
    is_root: bool = False
    """Whether its parameters are those that a user can give."""

    def value(self, written: object) -> object:
        """A value of the template with all expressions in it replaced. Unresolved, TooMuch."""
        budget = self.setting.budget
        budget.step()
        match written:
            case str() if is_expression(written):
                return self.run(self.setting.tree(written))
            case str():
                return literal_of(written)
            case dict() | list():
                budget.deeper("a value")
                try:
                    whole = [self._part(e) for e in written] if isinstance(written, list) else self._object(written)
                    budget.made(whole)
                    return whole
                finally:
                    budget.depth -= 1
            case _:
                return written

    def _object(self, written: Mapping[str, object]) -> JsonObject:
        found: JsonObject = {}
        for name, each in written.items():
            if name == "copy" and is_property_copy(each):
                found |= self.copied(each)
                continue
            key = self.value(name) if is_expression(name) else literal_of(name)
            if not isinstance(key, str):
                raise (unknown_in(key) or Unknown(f"the name of a member is {quoted(key)}")).needed()
            found[key] = self._part(each)
        return found

    def _part(self, written: object) -> object:
        """A member or an item; unknown if it can't be had."""
        try:
            return self.value(written)
        except Unresolved as error:
            return Unknown(error.why, error.parameter)

    def copied(self, loops: object) -> JsonObject:
        """The lists that the `copy` of an object or of variables makes, by their names. Unresolved."""
        found: JsonObject = {}
        for loop in loops if isinstance(loops, list) else []:
            if not isinstance(loop, dict) or "input" not in loop:
                raise Unresolved("a loop of properties has no input")
            name = str(loop.get("name", ""))
            try:
                found[name] = [inner._part(loop["input"]) for inner in self.rounds(loop, of_resources=False)]
            except Unresolved as error:
                found[name] = Unknown(f"the loop '{name}': {error.why}", error.parameter)
        return found

    def rounds(self, loop: Mapping[str, object], *, of_resources: bool = True) -> Iterator[Scope]:
        """The scope of each round of a loop. Unresolved."""
        name = str(loop.get("name", "")).lower()
        count = self.value(loop.get("count", 0))
        if isinstance(count, str):
            count = whole_number(count)
        if (missing := unknown_in(count)) is not None:
            raise missing.needed()
        if not isinstance(count, int) or isinstance(count, bool) or count < 0:
            raise Unresolved(f"the count of the loop is {quoted(count)}")
        if count > LOOP_COUNT_MAX:
            raise Unresolved(f"the count of the loop is {count}; at most {LOOP_COUNT_MAX} are allowed")
        for index in range(count):
            self.setting.budget.step()
            around = self.loops if "" in self.loops and not of_resources else {**self.loops, "": index}
            yield replace(self, loops={**around, name: index})

    def run(self, tree: Expression) -> object:
        """The value of an expression. Unresolved, TooMuch."""
        if isinstance(tree, Literal):
            return tree.value
        budget = self.setting.budget
        budget.step()
        budget.deeper("an expression")
        try:
            if isinstance(tree, Item):
                return self._item(self.run(tree.of), self.run(tree.key), is_safe=tree.is_safe)
            return self._call(tree)
        finally:
            budget.depth -= 1

    def _item(self, value: object, key: object, *, is_safe: bool) -> object:
        if isinstance(value, Unknown | Mixed) or isinstance(key, Unknown | Mixed):
            return unknown_in([value, key])
        if value is None and is_safe:
            return None
        try:
            return item(value, key)
        except LookupError:
            if isinstance(value, Partly):
                return value.missing
            if is_safe:
                return None
            names = ", ".join(list(value)[:8]) if isinstance(value, dict) else f"{len(value)} items"  # type: ignore[arg-type]
            raise Unresolved(f"there is no {quoted(key)} in a value that has {names or 'nothing'}") from None

    def _call(self, tree: Call) -> object:
        name = tree.name.removeprefix("sys.").removeprefix("az.")
        special = _SPECIAL.get(name)
        if special is not None:
            made = special(self, tree)
            if name in _WITH_LAMBDAS:
                self.setting.budget.made(made)
            return made
        if name in self.functions:
            return self._own_function(tree, self.functions[name])
        given = [self.run(each) for each in tree.arguments]
        function = FUNCTIONS.get(name)
        if function is None:
            if name.startswith("list"):
                return self._listing(tree, given)
            if name in CLOUD_FUNCTIONS:
                return Unknown(f"{tree.written}() is a value of the cloud")
            raise Unresolved(f"{tree.written}() is not a function of templates")
        if name in ("union", "intersection", "contains", "indexof", "lastindexof"):  # these compare each with each
            self.setting.budget.step(sum(len(each) for each in given if isinstance(each, list)) // 10)
        found = call(tree.written, function, given)
        self.setting.budget.made(found)
        return found

    def _own_function(self, tree: Call, function: Mapping[str, object]) -> object:
        """A user-defined one: it sees its arguments and other functions, but no variables."""
        declared = function.get("parameters") or []
        names = [str(each.get("name", "")) if isinstance(each, dict) else "" for each in _list_or_empty(declared)]
        if len(tree.arguments) > len(names):
            raise Unresolved(f"{tree.written}() has {len(tree.arguments)} arguments; it takes {len(names)}")
        given = [self.run(each) for each in tree.arguments] + [None] * (len(names) - len(tree.arguments))
        slots = {
            name.lower(): Lazy(f"the argument '{name}'", lambda value=value: value)  # type: ignore[misc]
            for name, value in zip(names, given, strict=True)
        }
        output = function.get("output")
        inner = Scope(self.setting, slots, {}, self.functions)
        return inner.value(output.get("value") if isinstance(output, dict) else None)

    def _listing(self, tree: Call, given: Sequence[object]) -> object:
        cloud = self.setting.cloud
        if cloud is not None and given and isinstance(given[0], str):
            kind, names = kind_and_names(given[0])
            found = cloud.listing(tree.written, kind, names)
            if found is not None:
                return found
        return Unknown(f"{tree.written}() is a value of the cloud")

    def text(self, tree: Expression) -> str:
        """The value of an argument that must be a known text. Unresolved."""
        found = self.run(tree)
        if isinstance(found, str):
            return found
        raise (unknown_in(found) or Unknown(f"{quoted(found)} is no text")).needed()


def _list_or_empty(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def is_property_copy(value: object) -> bool:
    """Whether a member `copy` is a loop and no property of that name."""
    return isinstance(value, list) and bool(value) and all(isinstance(e, dict) and "count" in e for e in value)


def kind_and_names(resource_id: str) -> tuple[str, tuple[str, ...]]:
    """Type and names of an id: `…/providers/Microsoft.ServiceBus/namespaces/n/queues/q`. Unresolved."""
    _, _, path = resource_id.rpartition("/providers/")
    provider, *parts = path.split("/")
    if not parts or len(parts) % 2:
        raise Unresolved(f"{quoted(resource_id)} is no id of a resource")
    return "/".join([provider, *parts[::2]]), tuple(parts[1::2])


# Functions that choose what they evaluate.


def _needs(tree: Call, least: int, most: int | None = None) -> tuple[Expression, ...]:
    given = tree.arguments
    if not least <= len(given) <= (least if most is None else most):
        raise Unresolved(f"{tree.written}() has {len(given)} arguments")
    return given


def _truth(value: object, tree: Call) -> bool | Unknown:
    if isinstance(value, bool | Unknown):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise Unresolved(f"{tree.written}() takes a bool, not {quoted(value)}")


def _if(scope: Scope, tree: Call) -> object:
    test, yes, no = _needs(tree, 3)
    found = _truth(scope.run(test), tree)
    return found if isinstance(found, Unknown) else _blamed_on_parameter(scope, test, scope.run(yes if found else no))


def _blamed_on_parameter(scope: Scope, test: Expression, value: object) -> object:
    """An unknown value that is chosen because a parameter has none is laid to that one: `name ?? uniqueString(…)`."""
    missing = unknown_in(value) if scope.is_root else None
    if missing is None or missing.parameter:
        return value
    name = next(_parameters_in(test), None)
    return value if name is None else blamed(value, name)


def _parameters_in(tree: Expression) -> Iterator[str]:
    if isinstance(tree, Item):
        yield from _parameters_in(tree.of)
    elif isinstance(tree, Call):
        first = tree.arguments[0] if tree.arguments else None
        if tree.name == "parameters" and isinstance(first, Literal):
            yield str(first.value)
        for each in tree.arguments:
            yield from _parameters_in(each)


def _all_or_any(decides: bool) -> Callable[[Scope, Call], object]:
    def decide(scope: Scope, tree: Call) -> object:
        missing: Unknown | None = None
        for each in _needs(tree, 1, 1_000):
            found = _truth(scope.run(each), tree)
            if found is decides:
                return decides
            missing = missing or (found if isinstance(found, Unknown) else None)
        return (not decides) if missing is None else missing

    return decide


def _coalesce(scope: Scope, tree: Call) -> object:
    for each in _needs(tree, 1, 1_000):
        found = scope.run(each)
        if found is not None:
            return _blamed_on_parameter(scope, tree.arguments[0], found)
    return None


def _try_get(scope: Scope, tree: Call) -> object:
    first, *keys = _needs(tree, 2, 1_000)
    found = scope.run(first)
    for each in keys:
        if found is None:
            return None
        found = scope._item(found, scope.run(each), is_safe=True)
    return found


def _try_from_end(scope: Scope, tree: Call) -> object:
    values, index = (scope.run(each) for each in _needs(tree, 2))
    if isinstance(values, list) and isinstance(index, int) and not 1 <= index <= len(values):
        return None
    return call(tree.written, FUNCTIONS["indexfromend"], [values, index])


def _parameter(scope: Scope, tree: Call) -> object:
    return _value_named(scope.parameters, "parameter", scope.text(_needs(tree, 1)[0]))


def _variable(scope: Scope, tree: Call) -> object:
    return _value_named(scope.variables, "variable", scope.text(_needs(tree, 1)[0]))


def _value_named(values: Mapping[str, Lazy], what: str, name: str) -> object:
    found = values.get(name.lower())
    if found is None:
        raise Unresolved(f"the template has no {what} '{name}'")
    return found.get()


def _copy_index(scope: Scope, tree: Call) -> object:
    given = [scope.run(each) for each in _needs(tree, 0, 2)]
    name = next((each for each in given if isinstance(each, str)), "")
    offset = next((each for each in given if isinstance(each, int)), 0)
    if name.lower() not in scope.loops:
        raise Unresolved(f"copyIndex({quoted(name) if name else ''}) stands outside of that loop")
    return scope.loops[name.lower()] + offset


def _any(scope: Scope, tree: Call) -> object:
    return scope.run(_needs(tree, 1)[0])


def _fail(scope: Scope, tree: Call) -> object:
    raise Unresolved(f"the template fails: {scope.text(_needs(tree, 1)[0])}")


# Lambdas.


def _lambda(scope: Scope, tree: Expression, least: int, most: int) -> Callable[..., object]:
    """A function of Python for `lambda('a', 'b', body)`; arguments that it has no names for are left out."""
    if not isinstance(tree, Call) or tree.name != "lambda":
        raise Unresolved("a lambda is missing")
    *names, body = tree.arguments
    if not least <= len(names) <= most:
        raise Unresolved(f"a lambda has {len(names)} arguments")
    own = [scope.text(each).lower() for each in names]

    def run(*given: object) -> object:
        return replace(scope, arguments={**scope.arguments, **dict(zip(own, given, strict=False))}).run(body)

    return run


def _lambda_variable(scope: Scope, tree: Call) -> object:
    name = scope.text(_needs(tree, 1)[0])
    if name.lower() not in scope.arguments:
        raise Unresolved(f"no lambda has an argument '{name}'")
    return scope.arguments[name.lower()]


def _collection_of(scope: Scope, tree: Call, kind: type[list[object]] | type[dict[str, object]]) -> object:
    """The first argument of a function with lambdas, or what is unknown. Unresolved."""
    found = scope.run(tree.arguments[0])
    if isinstance(found, Unknown | kind):
        return found
    raise Unresolved(f"{tree.written}() takes an {kind_of(kind())}, not {quoted(found)}")


def _map(scope: Scope, tree: Call) -> object:
    _needs(tree, 2)
    values = _collection_of(scope, tree, list)
    if not isinstance(values, list):
        return values
    work = _lambda(scope, tree.arguments[1], 1, 2)
    return [_or_unknown(work, each, at) for at, each in enumerate(values)]


def _or_unknown(work: Callable[..., object], *given: object) -> object:
    try:
        return work(*given)
    except Unresolved as error:
        return Unknown(error.why, error.parameter)


def _filter(scope: Scope, tree: Call) -> object:
    _needs(tree, 2)
    values = _collection_of(scope, tree, list)
    if not isinstance(values, list):
        return values
    work = _lambda(scope, tree.arguments[1], 1, 2)
    found: list[object] = []
    for at, each in enumerate(values):
        is_kept = _truth(work(each, at), tree)
        if isinstance(is_kept, Unknown):
            return is_kept
        found += [each] * is_kept
    return found


def _reduce(scope: Scope, tree: Call) -> object:
    _needs(tree, 3)
    values = _collection_of(scope, tree, list)
    if not isinstance(values, list):
        return values
    found = scope.run(tree.arguments[1])
    work = _lambda(scope, tree.arguments[2], 2, 3)
    for at, each in enumerate(values):
        found = work(found, each, at)
    return found


def _sort(scope: Scope, tree: Call) -> object:
    _needs(tree, 2)
    values = _collection_of(scope, tree, list)
    if not isinstance(values, list):
        return values
    work = _lambda(scope, tree.arguments[1], 2, 2)

    def order(a: object, b: object) -> int:
        found = _truth(work(a, b), tree)
        if isinstance(found, Unknown):
            raise found.needed()
        return -1 if found else 1 if work(b, a) is True else 0

    return sorted(values, key=cmp_to_key(order))


def _to_object(scope: Scope, tree: Call) -> object:
    _needs(tree, 2, 3)
    values = _collection_of(scope, tree, list)
    if not isinstance(values, list):
        return values
    name_of = _lambda(scope, tree.arguments[1], 1, 1)
    value_of = _lambda(scope, tree.arguments[2], 1, 1) if len(tree.arguments) > 2 else lambda each: each
    found: JsonObject = {}
    for each in values:
        name = name_of(each)
        if not isinstance(name, str):
            raise (unknown_in(name) or Unknown(f"{tree.written}() makes a name of {quoted(name)}")).needed()
        found[name] = _or_unknown(value_of, each)
    return found


def _group_by(scope: Scope, tree: Call) -> object:
    _needs(tree, 2)
    values = _collection_of(scope, tree, list)
    if not isinstance(values, list):
        return values
    name_of = _lambda(scope, tree.arguments[1], 1, 1)
    found: dict[str, list[object]] = {}
    for each in values:
        name = name_of(each)
        if not isinstance(name, str):
            raise (unknown_in(name) or Unknown(f"{tree.written}() groups by {quoted(name)}")).needed()
        found.setdefault(name, []).append(each)
    return found


def _map_values(scope: Scope, tree: Call) -> object:
    _needs(tree, 2)
    values = _collection_of(scope, tree, dict)
    if not isinstance(values, dict):
        return values
    work = _lambda(scope, tree.arguments[1], 1, 1)
    return {name: _or_unknown(work, each) for name, each in values.items()}


# Where the template is deployed.


def _of_place(make: Callable[[Place], object]) -> Callable[[Scope, Call], object]:
    def find(scope: Scope, tree: Call) -> object:
        place = scope.setting.place
        if place is None or (tree.arguments and tree.name not in ("utcnow",)):
            return Unknown(f"{tree.written}() is a value of the cloud")
        return make(place)

    return find


def _group_of(place: Place) -> object:
    members = {
        "id": place.group_id,
        "name": place.resource_group,
        "type": "Microsoft.Resources/resourceGroups",
        "location": place.location,
        "tags": {},
        "properties": {"provisioningState": "Succeeded"},
    }
    return Partly(members, "resourceGroup() is a value of the cloud")


def _subscription_of(place: Place) -> object:
    members = {
        "id": f"/subscriptions/{place.subscription}",
        "subscriptionId": place.subscription,
        "tenantId": place.tenant,
    }
    return Partly(members, "subscription() is a value of the cloud")


def _tenant_of(place: Place) -> object:
    return Partly({"tenantId": place.tenant, "id": f"/tenants/{place.tenant}"}, "tenant() is a value of the cloud")


def _deployment_of(place: Place) -> object:
    members = {"name": place.deployment, "location": place.location}
    return Partly(members, "deployment() is a value of the cloud")


def _environment(_scope: Scope, _tree: Call) -> object:
    """Of the public cloud."""
    members: JsonObject = {
        "name": "AzureCloud",
        "resourceManager": "https://management.azure.com/",
        "authentication": Partly(
            {"loginEndpoint": "https://login.microsoftonline.com/"}, "environment() is a value of the cloud"
        ),
        "suffixes": Partly(
            {
                "keyvaultDns": ".vault.azure.net",
                "sqlServerHostname": ".database.windows.net",
                "storage": "core.windows.net",
                "acrLoginServer": ".azurecr.io",
            },
            "environment() is a value of the cloud",
        ),
    }
    return Partly(members, "environment() is a value of the cloud")


def _utc_now(scope: Scope, tree: Call) -> object:
    spelling = scope.text(tree.arguments[0]) if _needs(tree, 0, 1) else SHORT
    return _of_place(lambda place: moment_text(place.now, spelling))(scope, tree)


def _unique_string(scope: Scope, tree: Call) -> object:
    """Thirteen characters that depend on nothing but the arguments. They are not those of the service, whose hash is
    not documented."""
    given = [scope.run(each) for each in _needs(tree, 1, 100)]
    if (missing := unknown_in(given)) is not None:
        return missing
    if scope.setting.place is None:
        return Unknown(f"{tree.written}() is a value of the cloud")
    digest = hashlib.sha256("-".join(str(string(each)) for each in given).encode()).digest()
    number = int.from_bytes(digest[:9])
    return "".join(_BASE_32[number >> 5 * at & 31] for at in range(13))


_BASE_32: Final = "abcdefghijklmnopqrstuvwxyz234567"


def _resource_id(prefix: str) -> Callable[[Scope, Call], object]:
    """Ids: of a resource group, a subscription, a management group, a tenant, or of what another resource has."""

    def make(scope: Scope, tree: Call) -> object:
        given = [string(scope.run(each)) for each in _needs(tree, 2, 100)]
        at = next((n for n, each in enumerate(given) if isinstance(each, str) and _TYPE.fullmatch(each)), None)
        if at is None:
            return unknown_in(given) or Unknown(f"{tree.written}() has no type of a resource")
        above, (provider, *types), names = given[:at], str(given[at]).split("/"), given[at + 1 :]
        few(len(names))
        pieces: list[str | Mixed | Unknown] = [*_above(scope, prefix, above), f"/providers/{provider}"]
        for each, name in zip(types, names, strict=False):
            pieces += [f"/{each}/", name]
        return text_from(pieces)

    return make


_TYPE: Final = re.compile(r"[A-Za-z][\w-]*(?:\.[\w-]+)+(?:/[\w-]+)+")


def _above(scope: Scope, prefix: str, given: Sequence[str | Mixed]) -> list[str | Mixed | Unknown]:
    place = scope.setting.place
    cloud = Unknown("the id of a resource is a value of the cloud")
    if prefix == "extension":
        return list[str | Mixed | Unknown](given[:1])
    if prefix == "tenant":
        return []
    if prefix == "managementgroup":
        return ["/providers/Microsoft.Management/managementGroups/", given[0] if given else cloud]
    own_subscription: str | Unknown = cloud if place is None else place.subscription
    own_group: str | Unknown = cloud if place is None else place.resource_group
    if prefix == "subscription":
        return ["/subscriptions/", given[0] if given else own_subscription]
    subscription = given[0] if len(given) > 1 else own_subscription
    return ["/subscriptions/", subscription, "/resourceGroups/", given[-1] if given else own_group]


def _reference(scope: Scope, tree: Call) -> object:
    """Of a resource of the template, or of one that exists."""
    first, *more = _needs(tree, 1, 3)
    is_full = len(more) == 2 and scope.text(more[1]).lower() == "full"
    found = scope.find(scope.run(first), is_full)
    return Unknown(f"{tree.written}() is a value of the cloud") if found is None else found


def _references(scope: Scope, tree: Call) -> object:
    """Of all resources that a loop with a symbolic name makes."""
    name = scope.text(_needs(tree, 1, 3)[0])
    found: list[object] = []
    for index in range(LOOP_COUNT_MAX):
        scope.setting.budget.step()
        each = scope.find(f"{name}[{index}]", False)
        if each is None:
            return found
        found.append(each)
    return found


def _resource_info(scope: Scope, tree: Call) -> object:
    found = scope.find(scope.run(_needs(tree, 1)[0]), True)
    return Unknown(f"{tree.written}() is a value of the cloud") if found is None else found


Special = Callable[[Scope, Call], object]
_SPECIAL: Final[Mapping[str, Special]] = {
    "and": _all_or_any(decides=False),
    "any": _any,
    "coalesce": _coalesce,
    "copyindex": _copy_index,
    "deployment": _of_place(_deployment_of),
    "environment": _environment,
    "extensionresourceid": _resource_id("extension"),
    "fail": _fail,
    "filter": _filter,
    "groupby": _group_by,
    "if": _if,
    "lambdavariables": _lambda_variable,
    "managementgroupresourceid": _resource_id("managementgroup"),
    "map": _map,
    "mapvalues": _map_values,
    "newguid": _of_place(lambda place: place.new_guid()),
    "or": _all_or_any(decides=True),
    "parameters": _parameter,
    "reduce": _reduce,
    "reference": _reference,
    "references": _references,
    "resourcegroup": _of_place(_group_of),
    "resourceid": _resource_id("group"),
    "resourceinfo": _resource_info,
    "sort": _sort,
    "subscription": _of_place(_subscription_of),
    "subscriptionresourceid": _resource_id("subscription"),
    "tenant": _of_place(_tenant_of),
    "tenantresourceid": _resource_id("tenant"),
    "toobject": _to_object,
    "tryget": _try_get,
    "tryindexfromend": _try_from_end,
    "uniquestring": _unique_string,
    "utcnow": _utc_now,
    "variables": _variable,
}
_WITH_LAMBDAS: Final = frozenset({"filter", "groupby", "map", "mapvalues", "reduce", "sort", "toobject"})
CLOUD_FUNCTIONS: Final = frozenset(
    {
        *("deployer", "externalinput", "getsecret", "managementgroup", "pickzones", "providers"),
        *("tologicalzone", "tologicalzones", "tophysicalzone", "tophysicalzones"),
    }
)
"""Always unknown, beside those whose names start with `list`."""
SPECIAL_NAMES: Final = frozenset(_SPECIAL)
