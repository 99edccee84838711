"""Checks the `Authorization` header of HTTP requests against the keys of namespace and entities [http 2].

Knows which header has the token, and that clients sign the address of the request or of a parent. Does not know what
a token is, or whether tokens are verified: `broker.access` does.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final

from aiohttp import hdrs, web

from ...broker.access import Claim
from ...broker.errors import BrokerError, Condition
from ...broker.keys import Right
from ..services import Services
from .connection import HttpConnection

BASIC: Final = "basic "
KEY_MISSING: Final = "Enter the name of a key with Manage on the namespace as user name, and the key as password."


def may(request: web.Request, services: Services, address: str, right: Right) -> bool:
    """Whether the request's token gives `right` on the entity at `address`; BrokerError without a valid token.

    `address` may be empty (the namespace), and may have any scheme, authority and spelling.
    """
    access = services.access
    if not access.verify:
        return True
    now = services.clock.now_ms()
    return access.claims_allow([_claim(request, services, address, now)], address, right, now)


def require(request: web.Request, services: Services, address: str, right: Right) -> None:
    """As `may`, with the service's sentence as a BrokerError (unauthorized-access) in place of False."""
    access = services.access
    if access.verify:
        now = services.clock.now_ms()
        access.require([_claim(request, services, address, now)], address, right, now)


def require_manage(request: web.Request, services: Services) -> None:
    """BrokerError (unauthorized-access) unless a token, or Basic credentials (key name, key), give Manage on the
    namespace."""
    access = services.access
    if not access.verify:
        return
    header = request.headers.get(hdrs.AUTHORIZATION, "")
    if not header.lower().startswith(BASIC):
        require(request, services, "", Right.MANAGE)
        return
    claim = access.claim_of_key(*basic_credentials(header))
    mark_known(request, claim.identity)
    access.require([claim], "", Right.MANAGE, services.clock.now_ms())


def basic_credentials(header: str) -> tuple[str, str]:
    """Name and key of a Basic Authorization header. BrokerError (unauthorized-access) if it is none."""
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() == BASIC.strip():
        try:
            name, colon, key = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
        except (binascii.Error, ValueError):
            name = colon = key = ""
        if colon:
            return name, key
    raise BrokerError(Condition.UNAUTHORIZED_ACCESS, KEY_MISSING)


def may_forward(request: web.Request, services: Services, address: str, header: str) -> bool:
    """Whether the request may set `address` as a forwarding target, which needs the Send right there.

    Clients send a token for the target in `header`; without it the token of the request must cover the target.
    """
    access = services.access
    if not access.verify:
        return True
    now = services.clock.now_ms()
    for token in (request.headers.get(header), request.headers.get(hdrs.AUTHORIZATION)):
        if token is not None:
            try:
                claim = access.put_token(token, address, now)
            except BrokerError:
                continue
            if access.claims_allow([claim], address, Right.SEND, now):
                return True
    return False


def _claim(request: web.Request, services: Services, address: str, now: int) -> Claim:
    token = request.headers.get(hdrs.AUTHORIZATION)
    if token is None:
        raise BrokerError(Condition.UNAUTHORIZED_ACCESS, "MissingToken: The authorization header was not found.")
    claim = services.access.put_token(token, address, now, asked=request.rel_url.raw_path)
    if services.access.opens_anything(claim):
        mark_known(request, claim.identity)
    return claim


def mark_known(request: web.Request, identity: str) -> None:
    """Have the connection count as one of somebody who may do something here."""
    if isinstance(request.protocol, HttpConnection):
        request.protocol.known_by(lambda: False)
        request.protocol.memory.identify(identity)
