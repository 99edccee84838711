"""Deployments of templates: what a template declares is given to its namespaces by the engine of `emubus import`.

Templates are evaluated beside the event loop (`templates/`); what they ask of the namespace is answered on it.
Namespaces and their network rules, which only Resource Manager knows, are put by the operations of the endpoint; all
else of a namespace is applied at once (`declared/applying.py`), whatever `dependsOn` says. Each resource is judged
alone, so that a deployment that fails has made some of its resources, as in the service, and running it again goes on.

The service answers at once and goes on; here all is done before the answer. A deployment that has failed is answered
as an operation that has, because SDKs read the reasons there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Final
from uuid import UUID

from ...broker.errors import BrokerError, Condition
from ...broker.ids import new_message_id
from ...declared.applying import FAILURES, Result, Status, apply
from ...declared.future import FutureNamespace
from ...declared.resources import Declared, Kind, Resources
from ...templates.evaluating import Place
from ...templates.reading import Evaluated, evaluate, parameters_in
from ...templates.values import TooMuch, Unresolved, unknown_in
from ..applying import Around, LiveNamespace, apply_resources
from ..errors import excerpt
from ..long_work import ASIDE
from ..markup import instant
from ..services import Services
from .calls import CODES, ArmCall, ArmRefusal, Operation, Reply, Run, bad, missing, refusal_of_broker, reply_of_list
from .entities import under_conditions
from .groups import TENANT, VERSIONS, find_group
from .homes import Homes
from .namespaces import placed_in
from .state import DEFAULT_GROUP, LOCATION, Placed
from .values import object_in, text_in

TYPE: Final = "Microsoft.Resources/deployments"
KEPT_MAX: Final = 800
"""Deployments that are remembered, as of a resource group of the service (azure-subscription-service-limits)."""
LINES_MAX: Final = 10
"""Refusals in the sentence for people; the details have all."""
_CHANGE_TYPES: Final[Mapping[Status, str]] = {
    Status.CREATED: "Create",
    Status.CHANGED: "Modify",
    Status.UNCHANGED: "NoChange",
    Status.REMOVED: "Delete",
    Status.REFUSED: "Unsupported",
    Status.LEFT_OUT: "Unsupported",
    Status.PASSED_OVER: "Ignore",
}
"""How an answer to what-if names what would become of a resource (azure-rest-api-specs, WhatIfChange)."""
_CODES: Final[Mapping[Status, str]] = {Status.REFUSED: CODES[400], Status.LEFT_OUT: "ParentResourceNotFound"}
assert set(_CODES) == FAILURES
_OWN_VERSION: Final = VERSIONS[0]
_PATHS: Final[Mapping[Kind, tuple[str, ...]]] = {
    Kind.QUEUE: ("queues",),
    Kind.TOPIC: ("topics",),
    Kind.SUBSCRIPTION: ("topics", "subscriptions"),
    Kind.RULE: ("topics", "subscriptions", "rules"),
}


@dataclass(frozen=True, slots=True)
class Deployment:
    """What is remembered of a deployment."""

    id: str
    name: str
    state: str
    mode: str
    started_at: int
    ended_at: int
    parameters: Mapping[str, object] = field(default_factory=dict[str, object])
    outputs: Mapping[str, object] = field(default_factory=dict[str, object])
    resources: Sequence[str] = ()
    error: Mapping[str, object] | None = None

    def json(self, validated: Sequence[str] = ()) -> dict[str, object]:
        """What answers show; `validated`: what a deployment would put."""
        properties: dict[str, object] = {
            "provisioningState": self.state,
            "mode": self.mode,
            "timestamp": instant(self.ended_at),
            "duration": f"PT{max(0, self.ended_at - self.started_at) / 1000:.3f}S",
            "correlationId": str(UUID(new_message_id())),
            "parameters": dict(self.parameters),
            "outputs": dict(self.outputs),
            "providers": [],
            "dependencies": [],
            "outputResources": [{"id": each} for each in self.resources],
        }
        if validated:
            properties["validatedResources"] = [{"id": each} for each in validated]
        if self.error is not None:
            properties["error"] = dict(self.error)
        return {"id": self.id, "name": self.name, "type": TYPE, "properties": properties}


@dataclass(frozen=True, slots=True)
class Target:
    """A resource that a template declares, and its id. `put`: the request for a namespace or its network rules."""

    declared: Declared
    id: str
    group: str
    put: tuple[Operation, ArmCall] | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """Why a resource was not put."""

    target: Target
    code: str
    why: str

    def json(self) -> dict[str, object]:
        """As the details of an error have it."""
        return {"code": self.code, "message": self.why, "target": self.target.id}

    def __str__(self) -> str:
        return f"{self.target.declared.label}: {self.why}"


class Deploying:
    """One request to deploy, to validate, or to say what would change."""

    def __init__(self, call: ArmCall) -> None:
        self.call = call
        given = object_in(object_in(call.body, "the body").get("properties"), "properties")
        if given.get("template") is None:
            link = " A template behind a link can't be read here; send it as properties.template." * (
                "templatelink" in given
            )
            raise bad(f"properties.template is not there.{link}", "InvalidTemplate")
        template = given["template"]
        if not isinstance(template, dict):
            raise bad("properties.template is no object.", "InvalidTemplate")
        self.template: dict[str, object] = template
        parameters = given.get("parameters") or {}
        if not isinstance(parameters, dict):
            raise bad("properties.parameters is no object.", "InvalidTemplate")
        self.parameters: dict[str, object] = parameters
        self.mode = text_in(given.get("mode"), "properties.mode") or "Incremental"
        self.group = call.names.get("group", "")
        found = find_group(call.services, call.state, self.group) if self.group else None
        if self.group and found is None:
            text = f"Resource group '{excerpt(self.group)}' could not be found."
            raise ArmRefusal(404, "ResourceGroupNotFound", text)
        self.location = text_in(object_in(call.body, "the body").get("location"), "location") or (
            LOCATION if found is None else found.location
        )
        self._loop = asyncio.get_running_loop()

    async def evaluated(self) -> Evaluated:
        """What the template declares. ArmRefusal for one that the service would not begin with."""
        try:
            parameters = parameters_in(self.parameters)
            now = datetime.fromtimestamp(self.call.services.clock.now_ms() / 1000, UTC)
            place = Place(
                self.call.names["subscription"],
                self.group or DEFAULT_GROUP,
                self.location,
                TENANT,
                self.call.names["deployment"],
                now,
                lambda: str(UUID(new_message_id())),
            )
            work = partial(evaluate, self.template, parameters, scope=place, existing=self)
            found = await self.call.request.app[ASIDE].run(work)
        except Unresolved as error:
            raise bad(f"Deployment template validation failed: {error.why}.", "InvalidTemplate") from None
        except TooMuch as error:
            raise bad(f"Deployment template validation failed: {error}.", "InvalidTemplate") from None
        left_out = [str(each) for each in found.resources.left_out if each.is_entity]
        missing = [f"the parameter '{each}' has no value" for each in found.missing]
        problems = [*missing, *found.problems, *left_out]
        if problems:
            raise bad(f"Deployment template validation failed: {'; '.join(problems[:20])}.", "InvalidTemplate")
        return found

    # What a template asks of the cloud; on the thread of its evaluation.

    def resource(self, kind: str, names: tuple[str, ...]) -> Mapping[str, object] | None:
        """A resource as a GET answers it, or None."""
        return self._answer_of("GET", kind, names, "")

    def listing(self, function: str, kind: str, names: tuple[str, ...]) -> object | None:
        """What an action such as `listKeys` answers, or None."""
        return self._answer_of("POST", kind, names, f"/{function}")

    def _answer_of(self, method: str, kind: str, names: tuple[str, ...], action: str) -> Mapping[str, object] | None:
        provider, *types = kind.split("/")
        if provider.lower() != "microsoft.servicebus" or len(types) != len(names) or not names:
            return None

        async def ask() -> Mapping[str, object] | None:
            placed = Homes(self.call.services, self.call.state).find(names[0])
            if placed is None:
                return None
            parts = "/".join(f"{word}/{name}" for word, name in zip(types, names, strict=True))
            path = f"{self._root(placed.group)}/providers/Microsoft.ServiceBus/{parts}{action}"
            target = self.request(method, path, {})
            if target is None:
                return None
            try:
                reply = await target[0].run(target[1])
            except (ArmRefusal, BrokerError):
                return None
            return reply.body if isinstance(reply.body, Mapping) else None

        return _on_loop(self._loop, ask())

    # What is put.

    def _root(self, group: str) -> str:
        return f"subscriptions/{self.call.names['subscription']}/resourceGroups/{group}"

    def request(self, method: str, path: str, body: Mapping[str, object]) -> tuple[Operation, ArmCall] | None:
        for row, names in self.call.rows(path.split("/")):
            if row.method == method:
                return row, replace(self.call, method=method, names=names, version=_OWN_VERSION, body=body)
        return None

    def targets(self, found: Evaluated) -> list[Target]:
        """What a template declares. ArmRefusal for a namespace without a name."""
        homes = Homes(self.call.services, self.call.state)
        made: list[Target] = []
        for each in found.resources.declared:
            if not each.namespace:
                raise bad(f"The namespace of {each.label} has no name that is known.", "InvalidTemplate")
            placed = homes.find(each.namespace)
            is_kept = homes.is_placed(each.namespace)
            group = self.group or (placed.group if placed is not None else DEFAULT_GROUP)
            if placed is not None and (is_kept or each.kind is not Kind.NAMESPACE) and not self.group:
                group = placed.group
            own = f"{self._root(group)}/providers/Microsoft.ServiceBus/namespaces/{each.namespace}"
            path = "/".join([own, *_path_segments(each)])
            put = None
            if each.kind in (Kind.NAMESPACE, Kind.NETWORK_RULES):
                put = self.request("PUT", path, self._body(each))
                assert put is not None, f"there is a row for each kind of resource: {path}"
            made.append(Target(each, f"/{path}", group, put))
        return made

    def _body(self, each: Declared) -> dict[str, object]:
        properties = dict(each.properties)
        if each.kind is not Kind.NAMESPACE:
            return {"properties": properties}
        beside: dict[str, object] = {
            name: properties.pop(name) for name in ("sku", "location", "tags", "identity") if name in properties
        }
        return {"location": self.location, **beside, "properties": properties}

    async def apply(self, targets: Sequence[Target]) -> tuple[list[str], list[Refused]]:
        """Put all; the ids of what was put, and what could not be."""
        refused: list[Refused] = []
        for each in sorted(targets, key=lambda each: each.declared.kind is not Kind.NAMESPACE):
            if each.put is not None:
                row, call = each.put
                try:
                    await row.run(call)
                except (ArmRefusal, BrokerError) as error:
                    refused += self._refused([each], error)
        for own in _by_namespace(targets).values():
            try:
                services = await self.services_of(own[0])
            except (ArmRefusal, BrokerError) as error:
                refused += self._refused(own, error)
                continue
            declared = Resources(tuple(each.declared for each in own))
            results = await apply_resources(services, self._client, declared, around=_conditions_of(services))
            refused += [
                _refused_by(each, result)
                for each, result in zip(own, results, strict=True)
                if result.status in FAILURES
            ]
        failed = {id(each.target) for each in refused}
        return [each.id for each in targets if id(each) not in failed], refused

    async def services_of(self, target: Target) -> Services:
        """Those of a resource's namespace. ArmRefusal (404), BrokerError (server-busy)."""
        homes = Homes(self.call.services, self.call.state)
        placed = homes.find(target.declared.namespace)
        if placed is None or placed.group.lower() != target.group.lower():
            raise missing("namespaces", target.declared.namespace, target.group)
        return await homes.services_of(placed)

    @property
    def _client(self) -> str:
        return f"Resource Manager's client at {self.call.request.remote}"

    def _refused(self, targets: Sequence[Target], error: ArmRefusal | BrokerError) -> list[Refused]:
        """Refusals that nobody has logged yet."""
        found = error if isinstance(error, ArmRefusal) else refusal_of_broker(error)
        for each in targets:
            self.call.services.broker.refusals.refused_because(self._client, each.id, found.code, found.message)
        return [Refused(each, found.code, found.message) for each in targets]


def _refused_by(target: Target, result: Result) -> Refused:
    """A refusal of the engine, in the words that a single request would have got."""
    if result.error is None:
        return Refused(target, _CODES[result.status], result.why)
    found = refusal_of_broker(result.error)
    return Refused(target, found.code, found.message)


def _by_namespace(targets: Sequence[Target]) -> dict[str, list[Target]]:
    """What is applied, by the compared form of the name of its namespace."""
    found: dict[str, list[Target]] = {}
    for each in targets:
        if each.put is None:
            found.setdefault(each.declared.namespace.lower(), []).append(each)
    return found


def _conditions_of(services: Services) -> Around:
    """Has conditions strike the changes of a deployment, as those of single requests."""

    @contextmanager
    def around(verb: str, path: str, is_new: bool) -> Iterator[None]:
        try:
            with under_conditions(services, verb, path, is_create=is_new):
                yield
        except ArmRefusal as error:
            raise BrokerError(Condition.SERVER_BUSY, error.message) from None

    return around


def _path_segments(each: Declared) -> list[str]:
    """The part of a path behind the namespace."""
    names = [name.replace("/", "~") for name in each.path]
    words: tuple[str, ...]
    match each.kind:
        case Kind.NAMESPACE:
            return []
        case Kind.NETWORK_RULES:
            return ["networkRuleSets", "default"]
        case Kind.AUTHORIZATION_RULE:
            words = ("queues", "authorizationRules") if len(names) == 2 else ("authorizationRules",)
        case Kind.QUEUE | Kind.TOPIC | Kind.SUBSCRIPTION | Kind.RULE:
            words = _PATHS[each.kind]
    return [part for pair in zip(words, names, strict=True) for part in pair]


def _on_loop(
    loop: asyncio.AbstractEventLoop, work: Coroutine[object, object, Mapping[str, object] | None]
) -> Mapping[str, object] | None:
    """The result of work on the event loop, for another thread."""
    return asyncio.run_coroutine_threadsafe(work, loop).result()


async def put(call: ArmCall) -> Reply:
    """Deploy, and answer when all is done: also what has failed, with what could not be put, and why."""
    own, started_at = Deploying(call), call.services.clock.now_ms()
    made, refused = await own.apply(own.targets(await own.evaluated()))
    now = call.services.clock.now_ms()
    common = (_id(call), call.names["deployment"])
    if not refused:
        outputs = _json_outputs((await own.evaluated()).outputs)
        done = Deployment(*common, "Succeeded", own.mode, started_at, now, own.parameters, outputs, made)
        _keep(call, done)
        return Reply(201, done.json())
    lines = "; ".join(str(each).strip() for each in refused[:LINES_MAX])
    more = f"; and {len(refused) - LINES_MAX} more" if len(refused) > LINES_MAX else ""
    error = {
        "code": "DeploymentFailed",
        "message": f"At least one resource deployment operation failed: {lines}{more}",
        "details": [each.json() for each in refused],
    }
    failed = Deployment(*common, "Failed", own.mode, started_at, now, own.parameters, {}, made, error)
    _keep(call, failed)
    request = call.request
    status = f"{request.scheme}://{request.host}{failed.id}/operationStatuses/{started_at}?api-version={call.version}"
    return Reply(201, failed.json(), {"Azure-AsyncOperation": status, "Retry-After": "0"})


async def show_status(call: ArmCall) -> Reply:
    """How the operation has ended that a deployment was."""
    found = _deployment_of(call)
    return Reply(200, {"status": found.state, **({} if found.error is None else {"error": dict(found.error)})})


def _json_outputs(outputs: Mapping[str, object]) -> dict[str, object]:
    """Outputs as JSON; null for what nobody knows here."""
    found: dict[str, object] = {}
    for name, each in outputs.items():
        shown = dict(each) if isinstance(each, Mapping) else {"type": "Object", "value": each}
        if str(shown.get("type", "")).lower().startswith("secure"):
            shown.pop("value", None)
        elif unknown_in(shown.get("value")) is not None:
            shown["value"] = None
        found[name] = shown
    return found


async def validate(call: ArmCall) -> Reply:
    """Whether a template can be read with its parameters; nothing is made."""
    own, now = Deploying(call), call.services.clock.now_ms()
    targets = own.targets(await own.evaluated())
    paths = [each.id for each in targets]
    found = Deployment(_id(call), call.names["deployment"], "Succeeded", own.mode, now, now, own.parameters)
    return Reply(200, found.json(validated=paths))


async def what_if(call: ArmCall) -> Reply:
    """What a deployment would change; nothing is made. The same engine tells, on a namespace that is a thought."""
    own = Deploying(call)
    targets = own.targets(await own.evaluated())
    outcomes = {id(each): await _rehearsed_put(each) for each in targets if each.put is not None}
    for name, these in _by_namespace(targets).items():
        try:
            future = await _future(own, name, targets)
        except ArmRefusal as error:
            outcomes |= {id(each): ("Unsupported", error.message) for each in these}
            continue
        results = await apply(Resources(tuple(each.declared for each in these)), future)
        outcomes |= {
            id(each): (_CHANGE_TYPES[result.status], result.why if result.status in FAILURES else "")
            for each, result in zip(these, results, strict=True)
        }
    changes = [await _change(own, each, *outcomes[id(each)]) for each in targets]
    return Reply(200, {"status": "Succeeded", "properties": {"correlationId": "", "changes": changes}})


async def _rehearsed_put(target: Target) -> tuple[str, str]:
    """What a PUT of a namespace, or of its network rules, would be."""
    assert target.put is not None
    call = target.put[1]
    homes, name = Homes(call.services, call.state), target.declared.namespace
    return ("Create" if homes.find(name) is None else "NoChange" if homes.is_placed(name) else "Modify"), ""


async def _future(own: Deploying, name: str, targets: Sequence[Target]) -> FutureNamespace:
    """The namespace as it is, or as the template makes it. ArmRefusal (404), BrokerError (server-busy)."""
    homes = Homes(own.call.services, own.call.state)
    these = [each for each in targets if each.declared.namespace.lower() == name]
    made = next((each.put[1].body for each in these if each.put and each.declared.kind is Kind.NAMESPACE), None)
    if made is not None and homes.find(name) is None:
        return FutureNamespace(homes.limits_of_new(placed_in(Placed(name), made)), name)
    services = await own.services_of(these[0])
    entities = [each.description for each in services.broker.namespace.entities()]
    return FutureNamespace(
        services.broker.limits, services.broker.name, entities, LiveNamespace(services).namespace_rules()
    )


async def _change(own: Deploying, target: Target, kind: str, why: str) -> dict[str, object]:
    """One line of an answer to what-if."""
    body = target.put[1].body if target.put is not None else {"properties": dict(target.declared.properties)}
    after = {"id": target.id, **body}
    found: dict[str, object] = {"resourceId": target.id, "changeType": kind}
    if kind == "Unsupported":
        return {**found, "unsupportedReason": why}
    read = own.request("GET", target.id.lstrip("/"), {}) if kind != "Create" else None
    before: object = None
    if read is not None:
        try:
            before = (await read[0].run(read[1])).body
        except (ArmRefusal, BrokerError):
            before = None
    found |= {"before": before, "after": after}
    if not isinstance(before, Mapping):
        return found
    delta = _delta(object_in(before.get("properties"), "properties"), target.declared.properties)
    if target.put is not None and kind == "NoChange" and delta:
        found["changeType"] = kind = "Modify"
    return {**found, "delta": delta} if kind == "Modify" else found


def _delta(before: Mapping[str, object], after: Mapping[str, object]) -> list[dict[str, object]]:
    """The properties that a template gives another value; those that it doesn't name are not compared."""
    found: list[dict[str, object]] = []
    for name, value in after.items():
        old = before.get(name.lower())
        if isinstance(value, Mapping) or old == value or name in ("sku", "location", "tags", "identity"):
            continue
        change = {"path": f"properties.{name}", "propertyChangeType": "Modify", "before": old, "after": value}
        found.append({**change, "children": None})
    return found


# ---------------------------------------------------------------- what is remembered


def _id(call: ArmCall) -> str:
    scope = call.group_id(call.names["group"]) if "group" in call.names else call.subscription
    return f"{scope}/providers/{TYPE}/{call.names['deployment']}"


def _keep(call: ArmCall, deployment: Deployment) -> None:
    kept = call.state.deployments
    kept.pop(deployment.id.lower(), None)
    kept[deployment.id.lower()] = deployment
    while len(kept) > KEPT_MAX:
        kept.pop(next(iter(kept)))


def _deployment_of(call: ArmCall) -> Deployment:
    found = call.state.deployments.get(_id(call).lower())
    if not isinstance(found, Deployment):
        raise ArmRefusal(
            404, "DeploymentNotFound", f"Deployment '{excerpt(call.names['deployment'])}' could not be found."
        )
    return found


async def show(call: ArmCall) -> Reply:
    return Reply(200, _deployment_of(call).json())


async def head(call: ArmCall) -> Reply:
    return Reply(204 if _id(call).lower() in call.state.deployments else 404)


async def delete(call: ArmCall) -> Reply:
    """Forget a deployment; what it made stays."""
    return Reply(200 if call.state.deployments.pop(_id(call).lower(), None) is not None else 204)


async def list_all(call: ArmCall) -> Reply:
    """The deployments of a group, or of the subscription itself."""
    scope = call.group_id(call.names["group"]) if "group" in call.names else call.subscription
    start = f"{scope}/providers/{TYPE}/".lower()
    kept = [each for key, each in call.state.deployments.items() if key.startswith(start)]
    return reply_of_list([each.json() for each in kept if isinstance(each, Deployment)])


async def list_operations(call: ArmCall) -> Reply:
    """One operation for each resource that was put."""
    found = _deployment_of(call)
    items: list[dict[str, object]] = []
    for number, each in enumerate(found.resources):
        target = {
            "id": each,
            "resourceName": each.rpartition("/")[2],
            "resourceType": "Microsoft.ServiceBus/namespaces",
        }
        properties = {
            "provisioningOperation": "Create",
            "provisioningState": "Succeeded",
            "statusCode": "OK",
            "timestamp": instant(found.ended_at),
            "duration": "PT0S",
            "targetResource": target,
        }
        operation = f"{number:016X}"
        items.append({"id": f"{found.id}/operations/{operation}", "operationId": operation, "properties": properties})
    return reply_of_list(items)


RUNS: Final[Mapping[str, Run]] = {
    "put": put,
    "validate": validate,
    "what_if": what_if,
    "show": show,
    "head": head,
    "delete": delete,
    "list_all": list_all,
    "list_operations": list_operations,
    "show_status": show_status,
}
