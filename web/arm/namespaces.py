"""Namespaces and their network rules.

A namespace is made at once: the answer to PUT says `Succeeded`, so that no client has to ask again. Network rules and
the properties of security are kept and shown again; they have no effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from ...broker.errors import BrokerError
from ...broker.names import NamespaceName
from ...broker.service_errors import HOST_SUFFIX
from ..errors import excerpt
from ..markup import instant
from .calls import ArmCall, ArmRefusal, Reply, bad, missing, reply_of_list
from .homes import Homes
from .state import Group, Placed
from .values import list_in, object_in, shown, text_in, texts_in

TYPE: Final = "Microsoft.ServiceBus/Namespaces"
NETWORK_TYPE: Final = "Microsoft.ServiceBus/Namespaces/NetworkRuleSets"
TIERS: Final = ("Basic", "Standard", "Premium")
_SET: Final[Mapping[str, str]] = {
    "alternatename": "alternateName",
    "disablelocalauth": "disableLocalAuth",
    "encryption": "encryption",
    "geodatareplication": "geoDataReplication",
    "minimumtlsversion": "minimumTlsVersion",
    "premiummessagingpartitions": "premiumMessagingPartitions",
    "privateendpointconnections": "privateEndpointConnections",
    "publicnetworkaccess": "publicNetworkAccess",
    "zoneredundant": "zoneRedundant",
}
"""Properties that a client may set, which are repeated to it."""
_DEFAULTS: Final[Mapping[str, object]] = {
    "disableLocalAuth": False,
    "minimumTlsVersion": "1.2",
    "publicNetworkAccess": "Enabled",
    "zoneRedundant": True,
}
_NETWORK: Final[Mapping[str, object]] = {
    "publicNetworkAccess": "Enabled",
    "defaultAction": "Allow",
    "virtualNetworkRules": [],
    "ipRules": [],
    "trustedServiceAccessEnabled": False,
}


def namespace_json(call: ArmCall, placed: Placed) -> dict[str, object]:
    """A namespace as answers show it."""
    sku: dict[str, object] = {"name": placed.tier, "tier": placed.tier}
    if placed.capacity is not None:
        sku["capacity"] = placed.capacity
    properties = {
        **_DEFAULTS,
        **placed.properties,
        "provisioningState": "Succeeded",
        "status": "Active",
        "createdAt": instant(placed.created_at),
        "updatedAt": instant(placed.updated_at),
        "metricId": f"{call.names['subscription']}:{placed.name.lower()}",
        "serviceBusEndpoint": f"https://{placed.name}{HOST_SUFFIX}:443/",
    }
    return {
        "id": _id(call, placed),
        "name": placed.name,
        "type": TYPE,
        "location": placed.location,
        "tags": dict(placed.tags),
        "sku": sku,
        **({} if placed.identity is None else {"identity": dict(placed.identity)}),
        "properties": properties,
    }


def _id(call: ArmCall, placed: Placed) -> str:
    return f"{call.group_id(placed.group)}/providers/Microsoft.ServiceBus/namespaces/{placed.name}"


def placed_of(call: ArmCall) -> Placed:
    """The namespace of a request. ArmRefusal (404)."""
    name, group = call.names["namespace"], call.names["group"]
    found = Homes(call.services, call.state).find(name)
    if found is None or found.group.lower() != group.lower():
        raise missing("namespaces", name, group)
    return found


async def list_namespaces(call: ArmCall) -> Reply:
    """Those of a resource group, or all."""
    group = call.names.get("group", "").lower()
    found = Homes(call.services, call.state).all()
    if group and group not in call.state.kept.groups and all(each.group.lower() != group for each in found):
        raise ArmRefusal(404, "ResourceGroupNotFound", f"Resource group '{excerpt(group)}' could not be found.")
    return reply_of_list([namespace_json(call, each) for each in found if not group or each.group.lower() == group])


async def show_namespace(call: ArmCall) -> Reply:
    return Reply(200, namespace_json(call, placed_of(call)))


async def put_namespace(call: ArmCall) -> Reply:
    """Make a namespace, or change it. A resource group that nobody has made is made with it."""
    name, group = call.names["namespace"], call.names["group"]
    homes = Homes(call.services, call.state)
    old = homes.find(name)
    if old is None and (problem := name_problem(name)) is not None:
        raise bad(f"The specified service namespace is invalid. {problem}")  # azure-service-bus 269
    is_placed = homes.is_placed(name)
    if old is not None and is_placed and old.group.lower() != group.lower():
        text = f"The namespace '{old.name}' exists in the resource group '{old.group}': use that, or another name."
        raise ArmRefusal(409, "NamespaceUnavailable", text)
    given = object_in(call.body, "the body")
    location = text_in(given.get("location"), "location") or (old.location if old is not None and is_placed else "")
    if not location:
        raise bad("The location property is required for this definition.", "LocationRequired")
    now = call.services.clock.now_ms()
    base = Placed(name, created_at=now) if old is None else replace(old, tags={}, properties={})
    placed = placed_in(replace(base, group=group, location=location, updated_at=now), given)
    await homes.make(placed)
    if call.state.kept.groups.get(group.lower()) is None:
        await call.state.put_group(Group(group, location))
    return Reply(200 if old is not None else 201, namespace_json(call, placed))


async def patch_namespace(call: ArmCall) -> Reply:
    """Change what the body names."""
    old, given = placed_of(call), object_in(call.body, "the body")
    placed = replace(placed_in(old, given), updated_at=call.services.clock.now_ms())
    await Homes(call.services, call.state).keep(placed)
    return Reply(200, namespace_json(call, placed))


def placed_in(placed: Placed, given: Mapping[str, object]) -> Placed:
    """A namespace with what a body names. ArmRefusal."""
    given = object_in(given, "the body")
    sku = object_in(given.get("sku"), "sku")
    tier = text_in(sku.get("name", sku.get("tier")), "sku.name") or placed.tier
    tiers = {each.lower(): each for each in TIERS}
    if tier.lower() not in tiers:
        raise bad(f"sku.name is '{excerpt(tier)}'; it must be one of {', '.join(TIERS)}.")
    capacity = sku.get("capacity", placed.capacity)
    if not isinstance(capacity, int | None) or isinstance(capacity, bool):
        raise bad(f"sku.capacity is {shown(capacity)}; it must be a whole number.")
    properties = object_in(given.get("properties"), "properties")
    set_now = {_SET[name]: value for name, value in properties.items() if name in _SET}
    identity = given.get("identity", placed.identity)
    if not isinstance(identity, Mapping | None):
        raise bad(f"identity is {shown(identity)}; it must be an object.")
    return replace(
        placed,
        tier=tiers[tier.lower()],
        capacity=capacity,
        tags=texts_in(given["tags"], "tags") if "tags" in given else placed.tags,
        identity=identity,
        properties={**placed.properties, **set_now},
    )


async def delete_namespace(call: ArmCall) -> Reply:
    """Delete a namespace with its entities; 204 if there is none."""
    homes = Homes(call.services, call.state)
    found = homes.find(call.names["namespace"])
    if found is None or found.group.lower() != call.names["group"].lower():
        return Reply(204)
    await homes.delete(found)
    return Reply(200)


def name_problem(name: str) -> str | None:
    """Why a name can't be that of a namespace; None if it can."""
    try:
        NamespaceName(name)
    except BrokerError as error:
        return error.description
    return None


async def check_name(call: ArmCall) -> Reply:
    """Whether a namespace may have a name."""
    name = text_in(object_in(call.body, "the body").get("name"), "name")
    if name is None:
        raise bad("The body has no name; it must have the one to check.")
    problem = name_problem(name)
    if problem is not None:
        return Reply(200, {"nameAvailable": False, "reason": "InvalidName", "message": problem})
    if Homes(call.services, call.state).find(name) is not None:
        text = f"The specified service namespace '{excerpt(name)}' is not available."
        return Reply(200, {"nameAvailable": False, "reason": "NameInUse", "message": text})
    return Reply(200, {"nameAvailable": True, "reason": "None", "message": ""})


# ---------------------------------------------------------------- network rules


def _network_json(call: ArmCall, placed: Placed) -> dict[str, object]:
    return {
        "id": f"{_id(call, placed)}/networkRuleSets/default",
        "name": "default",
        "type": NETWORK_TYPE,
        "location": placed.location,
        "properties": {**_NETWORK, **placed.network},
    }


async def show_network(call: ArmCall) -> Reply:
    return Reply(200, _network_json(call, placed_of(call)))


async def list_networks(call: ArmCall) -> Reply:
    return reply_of_list([_network_json(call, placed_of(call))])


async def put_network(call: ArmCall) -> Reply:
    """Keep network rules, which have no effect."""
    placed, given = placed_of(call), object_in(object_in(call.body, "the body").get("properties"), "properties")
    action = text_in(given.get("defaultaction"), "properties.defaultAction")
    if action is not None and action.lower() not in ("allow", "deny"):
        raise bad(f"properties.defaultAction is '{excerpt(action)}'; it must be Allow or Deny.")
    for name in ("virtualnetworkrules", "iprules"):
        list_in(given.get(name), f"properties.{name}")
    names = {each.lower(): each for each in _NETWORK}
    network = {names[name]: value for name, value in given.items() if name in names}
    changed = replace(placed, network=network, updated_at=call.services.clock.now_ms())
    await Homes(call.services, call.state).keep(changed)
    return Reply(200, _network_json(call, changed))
