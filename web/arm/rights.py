"""Whether the caller of a request may do it: tokens of identities, as Resource Manager takes them, and keys.

A token is one that this server has signed, for Resource Manager. With `--auth rbac` the identity needs a role whose
actions have that of the request, such as `Microsoft.ServiceBus/namespaces/queues/write`. The roles of a namespace count
for what is in it. What is in none, resource groups and deployments among it, belongs to the first namespace, which
stands for the subscription: so *Contributor* on it opens the other namespaces, too.

Keys are no credentials of Resource Manager; here those with Manage on the first namespace open all, so that a script
without an identity can use the endpoint. Does not know what a role's rights on messages are.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Final
from urllib.parse import urlsplit

from aiohttp import hdrs, web

from ...broker.errors import BrokerError
from ...broker.roles import Role
from ...broker.tokens import TENANT, Bearer, Identity, TokenOverError
from ..services import Services
from ..transport.authorization import BASIC, mark_known, require_manage
from .calls import ArmRefusal, Operation
from .homes import Homes
from .state import State

AUDIENCES: Final = ("https://management.core.windows.net/", "https://management.azure.com/")
"""Resources that tokens for Resource Manager are asked for, besides the address of this server."""
_BEARER: Final = "bearer "
_SAS: Final = "sharedaccesssignature "
_READS: Final = (
    *("Microsoft.ServiceBus/*/queues/read", "Microsoft.ServiceBus/*/topics/read"),
    "Microsoft.ServiceBus/*/topics/subscriptions/read",
)
ACTIONS: Final[Mapping[Role, tuple[str, ...]]] = {
    Role.SENDER: _READS,
    Role.RECEIVER: _READS,
    Role.OWNER: ("Microsoft.ServiceBus/*",),
    Role.CONTRIBUTOR: ("*",),
}
"""The actions of each role in Resource Manager [docs: built-in-roles]."""
assert set(ACTIONS) == set(Role)
_VERBS: Final[Mapping[str, str]] = {
    hdrs.METH_GET: "read",
    hdrs.METH_HEAD: "read",
    hdrs.METH_PUT: "write",
    hdrs.METH_PATCH: "write",
    hdrs.METH_DELETE: "delete",
}
_FOR_ALL: Final = frozenset({"tenants", "subscriptions"})
"""What every identity may list, as it must to sign in."""


def action_of(row: Operation) -> str:
    """What an operation does, as roles name it: `Microsoft.ServiceBus/namespaces/queues/read`."""
    words = row.words
    at = max((n for n, each in enumerate(words) if each.startswith("Microsoft.")), default=-1)
    kinds = [each for each in words[max(at, 0) :] if not each.startswith("{")]
    named = kinds if at >= 0 else ["Microsoft.Resources", *kinds]
    if row.method != hdrs.METH_POST:
        return "/".join([*named, _VERBS[row.method]])
    return "/".join([*named, "write" if words[-1].startswith("{") else "action"])


async def require(
    request: web.Request, services: Services, state: State, row: Operation | None, names: Mapping[str, str]
) -> None:
    """ArmRefusal (401, 403) or BrokerError unless the caller may do it; `row` is None for what there isn't."""
    if not services.access.verify or (row is not None and row.is_public):
        return
    header = request.headers.get(hdrs.AUTHORIZATION, "").strip()
    if header.lower().startswith((BASIC, _SAS)):
        require_manage(request, services)
        return
    bearer = _bearer(request, services, header)
    if row is not None and services.access.roles is not None:
        await _require_role(request, services, state, row, names, bearer.identity)
    mark_known(request, f"identity {bearer.identity.client_id}")


def _bearer(request: web.Request, services: Services, header: str) -> Bearer:
    """The token of a header. ArmRefusal (401) in Resource Manager's words."""
    if not header:  # hashicorp/terraform-provider-azurerm 3612
        raise ArmRefusal(401, "AuthenticationFailed", "Authentication failed. The 'Authorization' header is missing.")
    if not header.lower().startswith(_BEARER):  # azure-sdk-for-python 4124
        raise ArmRefusal(
            401,
            "AuthenticationFailedInvalidHeader",
            "Authentication failed. The 'Authorization' header is provided in an invalid format.",
        )
    token, now = header[len(_BEARER) :].strip(), services.clock.now_ms()
    try:
        found = services.issuer.read(token, now)
    except TokenOverError as error:  # hashicorp/terraform-provider-azurerm 20867
        raise ArmRefusal(
            401,
            "ExpiredAuthenticationToken",
            f"The access token expiry UTC time '{_us_instant(error.ended_at)}' is earlier than current UTC time "
            f"'{_us_instant(now)}'.",
        ) from None
    except BrokerError as error:  # azure-powershell 27882 has the first sentence
        raise ArmRefusal(
            401, "InvalidAuthenticationToken", f"The access token is invalid. {error.description.strip()}"
        ) from None
    own = f"{request.scheme}://{request.host}/"
    if not _is_for_arm(found.audience, own):
        allowed = ",".join(f"'{each}','{each.rstrip('/')}'" for each in (*AUDIENCES, own))
        text = (  # active-directory-dotnetcore-daemon-v2 145
            f"The access token has been obtained for wrong audience or resource '{found.audience}'. It should exactly "
            f"match with one of the allowed audiences {allowed}."
        )
        raise ArmRefusal(401, "InvalidAuthenticationTokenAudience", text)
    return found


def _is_for_arm(audience: str, own: str) -> bool:
    """Whether a token was asked for Resource Manager: by one of its names, or by this server's, whatever the port."""
    try:
        host = urlsplit(audience).hostname
        return host is not None and host in {urlsplit(each).hostname for each in (*AUDIENCES, own)}
    except ValueError:
        return False


async def _require_role(
    request: web.Request,
    services: Services,
    state: State,
    row: Operation,
    names: Mapping[str, str],
    identity: Identity,
) -> None:
    if row.path in _FOR_ALL:
        return
    action, held = action_of(row), set[Role]()
    own = await _services_of(services, state, names)
    if own is not None:
        held |= own.roles.held(identity.principals, _entity_of(names))
    first = services.roles.held(identity.principals, "")
    held |= first if own is None else first & {Role.CONTRIBUTOR}
    if not any(fnmatchcase(action.lower(), each.lower()) for role in held for each in ACTIONS[role]):
        text = (  # microsoft/spring-cloud-azure 1033
            f"The client '{identity.client_id}' with object id '{identity.object_id}' does not have authorization to "
            f"perform action '{action}' over scope '{request.path}' or the scope is invalid. If access was recently "
            "granted, please refresh your credentials."
        )
        raise ArmRefusal(403, "AuthorizationFailed", text)


async def _services_of(services: Services, state: State, names: Mapping[str, str]) -> Services | None:
    """Those of the namespace in a path; None if it names none that there is. BrokerError (server-busy)."""
    homes = Homes(services, state)
    placed = homes.find(names["namespace"]) if "namespace" in names else None
    return None if placed is None else await homes.services_of(placed)


def _entity_of(names: Mapping[str, str]) -> str:
    """The path of the entity in a path, in the form that roles compare; "" for the namespace."""
    top = names.get("queue", names.get("topic", "")).replace("~", "/")
    below = f"/subscriptions/{names['subscription_name']}" if "subscription_name" in names else ""
    return f"{top}{below}".lower()


def challenge(request: web.Request, message: str) -> str:
    """What a 401 says of how to get in, in the form that SDKs read (azure-sdk-for-js, core-client)."""
    why = "The authentication failed because of missing 'Authorization' header."
    if hdrs.AUTHORIZATION in request.headers:
        why = "".join(each if each.isascii() and each.isprintable() and each not in '"\\' else "?" for each in message)
    authority = f"{request.scheme}://{request.host}/{TENANT}"
    return f'Bearer authorization_uri="{authority}", error="invalid_token", error_description="{why}"'


def _us_instant(at_ms: int) -> str:
    """An instant as Resource Manager writes it: 3/19/2023 8:55:46 AM."""
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    return f"{at.month}/{at.day}/{at.year} {at.hour % 12 or 12}:{at:%M:%S} {'AM' if at.hour < 12 else 'PM'}"
