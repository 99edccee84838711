"""Refusals that only the management API makes, in the service's words [http 4]."""

from __future__ import annotations

from collections.abc import Mapping
from string import punctuation
from typing import Final
from urllib.parse import quote

from aiohttp import web

from ...broker import service_errors
from ..errors import HttpRefusal, excerpt
from ..limits import XML_BYTES_MAX
from ..resources import Resource, ResourceKind

_ACTIONS: Final[Mapping[str, str]] = {
    "GET": "Manage,EntityRead claims required for this operation.",
    "PUT": "Authorization failed for specified action: Manage,EntityWrite.",
    "DELETE": "Authorization failed for specified action: Manage,EntityDelete.",
}
_OPERATIONS: Final[Mapping[ResourceKind, Mapping[str, str]]] = {
    ResourceKind.SUBSCRIPTIONS: {"GET": "EnumerateSubscriptions"},
    ResourceKind.SUBSCRIPTION: {
        "GET": "GetSubscription",
        "PUT": "CreateOrUpdateSubscription",
        "DELETE": "DeleteSubscription",
    },
    ResourceKind.RULES: {"GET": "EnumerateRules"},
    ResourceKind.RULE: {"GET": "GetRule", "PUT": "CreateOrUpdateRule", "DELETE": "DeleteRule"},
}


def unauthorized(request: web.Request, target: Resource) -> HttpRefusal:
    """What the service says to a valid token without Manage; Go's tests know the words."""
    operation = _OPERATIONS.get(target.kind, {}).get(request.method)
    if operation is None:
        return HttpRefusal(401, _ACTIONS[request.method])
    where = f"operation on endpoint 'sb://{request.host}/{target.path}'."
    return HttpRefusal(401, f"401 SubCode=40100: Unauthorized : Unauthorized access for '{operation}' {where}")


def wrong_characters(request: web.Request, target: Resource) -> HttpRefusal:
    """What the service says to a name with a character that it does not take, with the address of the request.

    To names of subscriptions and rules without a sub-code and with the scheme sb: so in the tests of Ballerina's
    connector (asb-ballerina-connector) and in azure-service-bus-dotnet 151. Signs are decoded there, a blank is not.
    """
    is_below = target.kind in (ResourceKind.SUBSCRIPTION, ResourceKind.RULE)
    path, query = quote(target.path, safe=punctuation), request.rel_url.raw_query_string
    address = f"{'sb' if is_below else request.scheme}://{request.host}/{path}{f'?{query}' if query else ''}"
    problem = service_errors.wrong_characters(address).description
    return HttpRefusal(400, problem if is_below else f"SubCode=40000. {problem}")


def wrong_verb(method: str) -> HttpRefusal:
    """What the service says to a verb that a resource does not have (azure-sdk-for-php 387, -net 36261)."""
    return HttpRefusal(400, f"The specified HTTP verb ({excerpt(method)}) is not valid. {service_errors.RESOURCES}")


def too_large() -> HttpRefusal:
    """The body is larger than a description may be."""
    return HttpRefusal(413, f"SubCode=41300. The body is larger than {XML_BYTES_MAX} bytes.")
