"""A directory's endpoints for applications: client secret, certificate and federation, and what clients read first.

Knows the client credentials flow in its two versions [docs: v2-oauth2-client-creds-grant-flow], and the documents by
which libraries find its endpoints and keys. Every name of a tenant is one. There are no users: nobody can sign in by a
browser.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

from aiohttp import web

from ...broker.directory import NoToken
from ...broker.names import excerpt
from ...broker.tokens import TENANT as OWN_TENANT
from .answers import Tokens, answered, resource_in

TENANT: Final = "/{tenant:[A-Za-z0-9.-]{1,255}}"
LIFE_S: Final = 3_600
"""Of an access token; Entra ID chooses 60 to 90 minutes [docs: access-tokens]."""
GRANT: Final = "client_credentials"
ASSERTION_TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_GUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE | re.ASCII)
_DEFAULT_SCOPE: Final = "/.default"
_OF_SIGN_IN: Final = frozenset({"openid", "profile", "offline_access", "email"})
"""Scopes of a sign-in [OpenID Connect Core 1.0, 5.4 and 11], which Go's library names in each request."""


class Applications:
    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens

    async def token(self, request: web.Request) -> web.Response:
        """A token for an application that shows a secret or an assertion."""
        form = {name: value for name, value in (await request.post()).items() if isinstance(value, str)}
        is_v2 = "/v2.0/" in request.path
        grant = form.get("grant_type", "")
        if not grant:
            raise _missing("grant_type")
        if grant != GRANT:
            text = f"The app requested an unsupported grant type {excerpt(grant)}; there are no users here: {GRANT} is."
            raise NoToken(70_003, "unsupported_grant_type", text)
        client_id = form.get("client_id", "")
        if not client_id:
            raise _missing("client_id")
        resource = _resource_of_scope(form.get("scope", "")) if is_v2 else form.get("resource", "")
        if not resource:
            raise _missing("scope" if is_v2 else "resource")
        resource = resource_in(resource)
        named = request.match_info["tenant"]
        tenant = named.lower() if _GUID.fullmatch(named) else OWN_TENANT
        directory, now_s = self._tokens.directory, self._tokens.now_s
        if form.get("client_assertion_type") == ASSERTION_TYPE:
            identity = directory.asserted(client_id, form.get("client_assertion", ""), tenant, now_s)
            method = "2"
        elif form.get("client_secret"):
            identity = directory.application(client_id, form["client_secret"], tenant)
            method = "1"
        else:
            text = "The request body must contain the following parameter: 'client_assertion' or 'client_secret'."
            raise NoToken(7_000_218, "invalid_client", text)
        token = await self._tokens.token(identity, resource, LIFE_S, method)
        body: dict[str, object] = {"token_type": "Bearer", "access_token": token}
        if is_v2:
            return answered({**body, "expires_in": LIFE_S, "ext_expires_in": LIFE_S})
        times = {"expires_on": now_s + LIFE_S, "not_before": now_s, "expires_in": LIFE_S, "ext_expires_in": LIFE_S}
        return answered({**body, "resource": resource, **{name: str(value) for name, value in times.items()}})

    async def document(self, request: web.Request) -> web.Response:
        """What libraries read before they ask for a token."""
        if request.path.endswith("/keys"):
            return answered(await self._tokens.keys())
        base = f"{request.scheme}://{request.host}"
        if request.path.endswith("/instance"):
            return answered(_instance(base, request.host, request.query.get("authorization_endpoint", "")))
        return answered(_configuration(f"{base}/{request.match_info['tenant']}", v2="/v2.0/" in request.path))


def _resource_of_scope(scope: str) -> str:
    """The resource of a scope that asks for all that an application has there. NoToken."""
    named = [each for each in scope.split() if each not in _OF_SIGN_IN]
    if scope and (len(named) != 1 or not named[0].endswith(_DEFAULT_SCOPE)):
        text = (
            f"The provided value for scope {excerpt(scope)} is not valid. Client credential flows must have a scope "
            f"value with {_DEFAULT_SCOPE} suffixed to the resource identifier (application ID URI)."
        )
        raise NoToken(1_002_012, "invalid_scope", text)
    return named[0].removesuffix(_DEFAULT_SCOPE) if named else ""


def _missing(name: str) -> NoToken:
    return NoToken(900_144, "invalid_request", f"The request body must contain the following parameter: '{name}'.")


def _instance(base: str, host: str, endpoint: str) -> dict[str, object]:
    """The metadata of the clouds: the host that a client asks for and the one that it has asked are one."""
    try:
        asked = urlsplit(endpoint)
    except ValueError:
        asked = urlsplit("")
    tenant = asked.path.strip("/").partition("/")[0] or "common"
    names = sorted({host, asked.netloc or host})
    authority = f"{asked.scheme}://{asked.netloc}" if asked.netloc else base
    return {
        "tenant_discovery_endpoint": f"{authority}/{tenant}/v2.0/.well-known/openid-configuration",
        "api-version": "1.1",
        "metadata": [{"preferred_network": names[0], "preferred_cache": names[0], "aliases": names}],
    }


def _configuration(base: str, *, v2: bool) -> dict[str, object]:
    """The OpenID configuration of a tenant [OpenID Connect Discovery 1.0, 3]."""
    part = "/v2.0" if v2 else ""
    return {
        "issuer": f"{base}{part}" if v2 else f"{base}/",
        "token_endpoint": f"{base}/oauth2{part}/token",
        "authorization_endpoint": f"{base}/oauth2{part}/authorize",
        "device_authorization_endpoint": f"{base}/oauth2{part}/devicecode",
        "jwks_uri": f"{base}/discovery{part}/keys",
        "token_endpoint_auth_methods_supported": ["client_secret_post", "private_key_jwt"],
        "response_types_supported": ["code", "id_token", "code id_token", "id_token token"],
        "response_modes_supported": ["query", "fragment", "form_post"],
        "subject_types_supported": ["pairwise"],
        "id_token_signing_alg_values_supported": ["RS256"],
        "scopes_supported": ["openid", "profile", "email", "offline_access"],
        "claims_supported": ["sub", "iss", "aud", "exp", "iat", "nbf", "oid", "tid", "appid", "ver"],
    }
