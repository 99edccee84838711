"""What stands around the resources: the endpoints of the cloud, tenants, subscriptions, providers, resource groups.

The server has one subscription, `SUBSCRIPTION`, which lists show. Paths may name any other, and mean the same.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ..errors import excerpt
from ..services import Services
from .calls import ArmCall, ArmRefusal, Reply, bad, reply_of_list
from .homes import Homes
from .namespaces import namespace_json
from .state import GROUPS_MAX, Group, State
from .values import object_in, text_in, texts_in

SUBSCRIPTION: Final = "00000000-0000-0000-0000-000000000001"
TENANT: Final = "00000000-0000-0000-0000-00000000e0b5"
_LISTS: Final = ("2019", "2020", "2021")
"""Years whose versions answer the endpoints of all clouds as a list. Before and after it is those of one cloud: so the
Azure CLI reads 2015-01-01 (2.45) and 2022-09-01 (2.90)."""
_SUFFIX: Final = "servicebus.windows.net"
_PROVIDERS: Final = ("Microsoft.ServiceBus", "Microsoft.Resources", "Microsoft.Authorization")
_TYPES: Final = (
    "namespaces",
    "namespaces/authorizationrules",
    "namespaces/networkrulesets",
    "namespaces/queues",
    "namespaces/queues/authorizationrules",
    "namespaces/topics",
    "namespaces/topics/authorizationrules",
    "namespaces/topics/subscriptions",
    "namespaces/topics/subscriptions/rules",
    "checkNameAvailability",
)
VERSIONS: Final = (
    *("2026-01-01", "2025-05-01-preview", "2024-01-01", "2023-01-01-preview", "2022-10-01-preview"),
    *("2022-01-01-preview", "2021-11-01", "2021-06-01-preview", "2021-01-01-preview", "2018-01-01-preview"),
    *("2017-04-01", "2015-08-01"),
)
"""Versions of Microsoft.ServiceBus (azure-rest-api-specs, specification/servicebus/resource-manager)."""


# ---------------------------------------------------------------- the cloud


async def show_endpoints(call: ArmCall) -> Reply:
    """Where a client finds everything: all at this address, which must be one of HTTPS for tokens."""
    own = f"{call.request.scheme}://{call.request.host}"
    authentication = {
        "loginEndpoint": f"{own}/",
        "audiences": [f"{own}/", "https://management.core.windows.net/", "https://management.azure.com/"],
        "tenant": "common",
        "identityProvider": "AAD",
    }
    suffixes = {
        "storage": "core.windows.net",
        "keyVaultDns": "vault.azure.net",
        "sqlServerHostname": "database.windows.net",
        "acrLoginServer": "azurecr.io",
        "serviceBusEndpoint": _SUFFIX,
    }
    found = {
        "name": "emubus",
        "portal": own,
        "authentication": authentication,
        "media": own,
        "graphAudience": f"{own}/",
        "graph": f"{own}/",
        "microsoftGraphResourceId": f"{own}/",
        "gallery": f"{own}/",
        "batch": own,
        "resourceManager": f"{own}/",
        "suffixes": suffixes,
        # The names of older versions, which `az cloud register` asks for.
        "galleryEndpoint": f"{own}/",
        "graphEndpoint": f"{own}/",
        "portalEndpoint": f"{own}/",
    }
    return Reply(200, [found] if call.version.startswith(_LISTS) else found)


async def list_tenants(_: ArmCall) -> Reply:
    return reply_of_list(
        [{"id": f"/tenants/{TENANT}", "tenantId": TENANT, "displayName": "emubus", "tenantCategory": "Home"}]
    )


def _subscription(name: str) -> dict[str, object]:
    return {
        "id": f"/subscriptions/{name}",
        "subscriptionId": name,
        "tenantId": TENANT,
        "displayName": "emubus",
        "state": "Enabled",
        "subscriptionPolicies": {"locationPlacementId": "", "quotaId": "", "spendingLimit": "Off"},
        "authorizationSource": "RoleBased",
        "managedByTenants": [],
    }


async def list_subscriptions(_: ArmCall) -> Reply:
    return Reply(200, {"value": [_subscription(SUBSCRIPTION)], "count": {"type": "Total", "value": 1}})


async def show_subscription(call: ArmCall) -> Reply:
    return Reply(200, _subscription(call.names["subscription"]))


async def list_locations(call: ArmCall) -> Reply:
    """Locations have no meaning here; clients that look one up find those that lists of others name."""
    used = sorted({each.location for each in Homes(call.services, call.state).all()})
    one = [{"id": f"{call.subscription}/locations/{each}", "name": each, "displayName": each} for each in used]
    return reply_of_list(one)


# ---------------------------------------------------------------- providers


def _provider(call: ArmCall, name: str) -> dict[str, object]:
    types = _TYPES if name == _PROVIDERS[0] else ("deployments",) if name == _PROVIDERS[1] else ()
    found: dict[str, object] = {
        "id": f"{call.subscription}/providers/{name}",
        "namespace": name,
        "registrationPolicy": "RegistrationFree",
        "registrationState": "Registered",
        "resourceTypes": [
            {"resourceType": each, "locations": [], "apiVersions": list(VERSIONS), "capabilities": "None"}
            for each in types
        ],
    }
    return found


async def list_providers(call: ArmCall) -> Reply:
    return reply_of_list([_provider(call, each) for each in _PROVIDERS])


async def show_provider(call: ArmCall) -> Reply:
    """Also the answer to registering one: all that there are, are registered."""
    name = call.names["provider"]
    for each in _PROVIDERS:
        if each.lower() == name.lower():
            return Reply(200, _provider(call, each))
    known = ", ".join(_PROVIDERS)
    text = f"The resource namespace '{excerpt(name)}' is invalid; this server has {known}."
    raise ArmRefusal(404, "InvalidResourceNamespace", text)


async def list_operations(_: ArmCall) -> Reply:
    """The operations of the provider, by what they act on."""
    verbs = ("read", "write", "delete")
    found: list[dict[str, object]] = []
    for kind in _TYPES[:-1]:
        for verb in verbs:
            display = {"provider": "Microsoft Azure Service Bus", "resource": kind, "operation": verb}
            found.append({"name": f"Microsoft.ServiceBus/{kind}/{verb}", "isDataAction": False, "display": display})
    return reply_of_list(found)


# ---------------------------------------------------------------- resource groups


def group_of(call: ArmCall) -> Group:
    """The resource group of a request. ArmRefusal (404)."""
    name = call.names["group"]
    found = find_group(call.services, call.state, name)
    if found is None:
        raise ArmRefusal(404, "ResourceGroupNotFound", f"Resource group '{excerpt(name)}' could not be found.")
    return found


def find_group(services: Services, state: State, name: str) -> Group | None:
    """A group that was made; one that a namespace is in is there, too."""
    known = state.kept.groups.get(name.lower())
    if known is not None:
        return known
    used = {each.group.lower(): each.group for each in Homes(services, state).all()}
    return Group(used[name.lower()]) if name.lower() in used else None


def _group_json(call: ArmCall, group: Group) -> dict[str, object]:
    return {
        "id": call.group_id(group.name),
        "name": group.name,
        "type": "Microsoft.Resources/resourceGroups",
        "location": group.location,
        **({"managedBy": group.managed_by} if group.managed_by else {}),
        "tags": dict(group.tags),
        "properties": {"provisioningState": "Succeeded"},
    }


async def list_groups(call: ArmCall) -> Reply:
    kept = call.state.kept.groups
    used = [each.group for each in Homes(call.services, call.state).all() if each.group.lower() not in kept]
    groups = [*kept.values(), *(Group(each) for each in dict.fromkeys(used))]
    return reply_of_list([_group_json(call, each) for each in sorted(groups, key=lambda each: each.name.lower())])


async def show_group(call: ArmCall) -> Reply:
    return Reply(200, _group_json(call, group_of(call)))


async def head_group(call: ArmCall) -> Reply:
    """Whether there is one: 204, or 404 without a body."""
    found = find_group(call.services, call.state, call.names["group"])
    return Reply(404 if found is None else 204)


async def put_group(call: ArmCall) -> Reply:
    name, given = call.names["group"], object_in(call.body, "the body")
    location = text_in(given.get("location"), "location")
    if not location:
        raise bad("The location property is required for this definition.", "LocationRequired")
    old = call.state.kept.groups.get(name.lower())
    if old is None and len(call.state.kept.groups) >= GROUPS_MAX:
        raise ArmRefusal(
            409, "ResourceGroupQuotaExceeded", f"There are {GROUPS_MAX} resource groups: delete one before."
        )
    _check_group_name(name)
    tags = texts_in(given.get("tags"), "tags")
    group = Group(name if old is None else old.name, location, tags, text_in(given.get("managedby"), "managedBy"))
    await call.state.put_group(group)
    return Reply(201 if old is None else 200, _group_json(call, group))


async def patch_group(call: ArmCall) -> Reply:
    """Change tags alone."""
    group, given = group_of(call), object_in(call.body, "the body")
    changed = replace(group, tags=texts_in(given["tags"], "tags")) if "tags" in given else group
    await call.state.put_group(changed)
    return Reply(200, _group_json(call, changed))


async def delete_group(call: ArmCall) -> Reply:
    """Delete a resource group with its namespaces."""
    group, homes = group_of(call), Homes(call.services, call.state)
    for each in homes.all():
        if each.group.lower() == group.name.lower():
            await homes.delete(each)
    await call.state.drop_group(group.name)
    return Reply(200)


async def list_resources(call: ArmCall) -> Reply:
    """The resources of a group, or all: namespaces."""
    group = group_of(call).name.lower() if "group" in call.names else None
    found = [each for each in Homes(call.services, call.state).all() if group in (None, each.group.lower())]
    return reply_of_list([namespace_json(call, each) for each in found])


def _check_group_name(name: str) -> None:
    """1 to 90 letters, digits, `.`, `_`, `-` and brackets, no dot at the end (resource-name-rules)."""
    if not 1 <= len(name) <= 90 or name.endswith(".") or not all(each.isalnum() or each in "._-()" for each in name):
        text = (
            f"The resource group name '{excerpt(name)}' is invalid: it has 1 to 90 letters, digits, '.', '_', '-' and "
            "brackets, and no '.' at its end."
        )
        raise bad(text, "InvalidResourceGroupName")
