"""Deployments of templates: what a template declares is put, resource by resource, by the operations of the endpoint.

Resource Manager goes by `dependsOn`. Here what needs another resource waits until that is there: each round puts what
it can, and the refusals of a round that could put nothing are the deployment's. So a deployment that fails has made
some of its resources, as in the service, and running it again goes on. Templates are evaluated beside the event loop
(`templates/`); what they ask of the namespace is answered on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Final
from uuid import UUID

from ...broker.errors import BrokerError
from ...broker.ids import new_message_id
from ...declared.resources import Declared, Kind
from ...templates.evaluating import Place
from ...templates.reading import Evaluated, evaluate, parameters_in
from ...templates.values import TooMuch, Unresolved, unknown_in
from ..errors import excerpt
from ..long_work import ASIDE
from ..markup import instant
from .calls import ArmCall, ArmRefusal, Operation, Reply, Run, bad, refusal_of_broker, reply_of_list
from .groups import TENANT, VERSIONS, find_group
from .homes import Homes
from .state import DEFAULT_GROUP, LOCATION
from .values import object_in, text_in

TYPE: Final = "Microsoft.Resources/deployments"
KEPT_MAX: Final = 800
"""Deployments that are remembered, as of a resource group of the service (azure-subscription-service-limits)."""
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
    """A resource that a template declares, as a request that puts it."""

    declared: Declared
    row: Operation
    call: ArmCall
    path: str


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
        return self._asked("GET", kind, names, "")

    def listing(self, function: str, kind: str, names: tuple[str, ...]) -> object | None:
        """What an action such as `listKeys` answers, or None."""
        return self._asked("POST", kind, names, f"/{function}")

    def _asked(self, method: str, kind: str, names: tuple[str, ...], action: str) -> Mapping[str, object] | None:
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
        """The requests that put what a template declares. ArmRefusal for a namespace without a name."""
        homes = Homes(self.call.services, self.call.state)
        made: list[Target] = []
        for each in found.resources.declared:
            if not each.namespace:
                raise bad(f"The namespace of {each.label} has no name that is known.", "InvalidTemplate")
            placed = homes.find(each.namespace)
            is_kept = placed is not None and placed.name.lower() in self.call.state.kept.namespaces
            group = self.group or (placed.group if placed is not None else DEFAULT_GROUP)
            if placed is not None and (is_kept or each.kind is not Kind.NAMESPACE) and not self.group:
                group = placed.group
            own = f"{self._root(group)}/providers/Microsoft.ServiceBus/namespaces/{each.namespace}"
            path = "/".join([own, *_below(each)])
            target = self.request("PUT", path, self._body(each))
            assert target is not None, f"there is a row for each kind of resource: {path}"
            made.append(Target(each, *target, f"/{path}"))
        return sorted(made, key=lambda each: each.declared.kind is not Kind.NAMESPACE)

    def _body(self, each: Declared) -> dict[str, object]:
        properties = dict(each.properties)
        if each.kind is not Kind.NAMESPACE:
            return {"properties": properties}
        sku = properties.pop("sku", None)
        return {"location": self.location, "properties": properties, **({} if sku is None else {"sku": sku})}


def _below(each: Declared) -> list[str]:
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
    """Deploy, and answer when all is done. ArmRefusal names what could not be put, and why."""
    own, started_at = Deploying(call), call.services.clock.now_ms()
    targets = own.targets(await own.evaluated())
    made, refused = await _put_all(targets)
    now = call.services.clock.now_ms()
    common = (_id(call), call.names["deployment"])
    if refused:
        details = [{"code": each.code, "message": each.message, "target": target.path} for target, each in refused]
        text = f"At least one resource deployment operation failed: {refused[0][1].message}"
        error = {"code": "DeploymentFailed", "message": text, "details": details}
        failed = Deployment(*common, "Failed", own.mode, started_at, now, own.parameters, {}, made, error)
        _keep(call, failed)
        lines = "; ".join(f"{target.declared.label}: {each.message.strip()}" for target, each in refused[:10])
        raise ArmRefusal(400, "DeploymentFailed", f"At least one resource deployment operation failed: {lines}")
    outputs = _plain((await own.evaluated()).outputs)
    done = Deployment(*common, "Succeeded", own.mode, started_at, now, own.parameters, outputs, made)
    _keep(call, done)
    return Reply(201, done.json())


async def _put_all(targets: Sequence[Target]) -> tuple[list[str], list[tuple[Target, ArmRefusal]]]:
    """The paths of what was put, and what could not be, with its refusal."""
    made: list[str] = []
    waiting = list(targets)
    while True:
        refused: list[tuple[Target, ArmRefusal]] = []
        for each in waiting:
            try:
                await each.row.run(each.call)
                made.append(each.path)
            except ArmRefusal as error:
                refused.append((each, error))
            except BrokerError as error:
                refused.append((each, refusal_of_broker(error)))
        if not refused or len(refused) == len(waiting):
            return made, refused
        waiting = [each for each, _ in refused]


def _plain(outputs: Mapping[str, object]) -> dict[str, object]:
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
    paths = [each.path for each in targets]
    found = Deployment(_id(call), call.names["deployment"], "Succeeded", own.mode, now, now, own.parameters)
    return Reply(200, found.json(validated=paths))


async def what_if(call: ArmCall) -> Reply:
    """What a deployment would change; nothing is made."""
    own = Deploying(call)
    changes: list[dict[str, object]] = []
    for each in own.targets(await own.evaluated()):
        read = own.request("GET", each.path.lstrip("/"), {})
        before: object = None
        if read is not None:
            try:
                before = (await read[0].run(read[1])).body
            except (ArmRefusal, BrokerError):
                before = None
        after = {"id": each.path, **each.call.body}
        if not isinstance(before, Mapping):
            changes.append({"resourceId": each.path, "changeType": "Create", "before": None, "after": after})
            continue
        delta = _delta(object_in(before.get("properties"), "properties"), each.declared.properties)
        change = {"resourceId": each.path, "changeType": "Modify" if delta else "NoChange", "before": before}
        changes.append({**change, "after": after, **({"delta": delta} if delta else {})})
    return Reply(200, {"status": "Succeeded", "properties": {"correlationId": "", "changes": changes}})


def _delta(before: Mapping[str, object], after: Mapping[str, object]) -> list[dict[str, object]]:
    """The properties that a template gives another value; those that it doesn't name are not compared."""
    found: list[dict[str, object]] = []
    for name, value in after.items():
        old = before.get(name.lower())
        if isinstance(value, Mapping) or old == value or name == "sku":
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


def _found(call: ArmCall) -> Deployment:
    found = call.state.deployments.get(_id(call).lower())
    if not isinstance(found, Deployment):
        raise ArmRefusal(
            404, "DeploymentNotFound", f"Deployment '{excerpt(call.names['deployment'])}' could not be found."
        )
    return found


async def show(call: ArmCall) -> Reply:
    return Reply(200, _found(call).json())


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
    found = _found(call)
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
}
