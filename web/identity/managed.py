"""Managed identities: the tokens that a program gets from the machine that it runs on.

Knows two protocols and what their relatives change [docs: app-service/overview-managed-identity,
managed-identities/how-to-use-vm-token]: that of App Service at IDENTITY_ENDPOINT (also of Functions, Container Apps
and, with `secret`, Azure ML), and IMDS. A header that no page of a browser and no forwarded request can have says that
the program itself is asking.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aiohttp import hdrs, web

from ...broker.directory import NoToken
from .answers import Tokens, answered, resource_in

APP_SERVICE: Final = "/msi/token"
IMDS: Final = "/metadata/identity/oauth2/token"
LIFE_S: Final = 86_400
"""Of a token of a managed identity [docs: managed-identities FAQ]."""
SECRET_HEADERS: Final = ("X-IDENTITY-HEADER", "secret")
"""How a program shows the value that its machine has given it; the second one in older versions, and in Azure ML."""
OBJECT_IDS: Final = ("object_id", "principal_id")
RESOURCE_IDS: Final = ("mi_res_id", "msi_res_id")
CLIENT_IDS: Final = ("client_id", "clientid")


class Managed:
    """Answers the two protocols."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens

    async def app_service(self, request: web.Request) -> web.Response:
        shown = next((request.headers[each] for each in SECRET_HEADERS if each in request.headers), None)
        if shown is None:
            if request.headers.get("Metadata", "").lower() != "true":
                raise NoToken(401, "invalid_request", "The header X-IDENTITY-HEADER is missing: set IDENTITY_HEADER.")
            shown = ""  # Cloud Shell's protocol
        return await self._answer(request, shown)

    async def imds(self, request: web.Request) -> web.Response:
        if request.headers.get("Metadata", "").lower() != "true":
            # SDKs find out by this answer whether there is an IMDS, before they ask for a token.
            raise NoToken(400, "invalid_request", "Required metadata header not specified")
        if hdrs.X_FORWARDED_FOR in request.headers:
            raise NoToken(400, "invalid_request", "IMDS does not answer requests with the header X-Forwarded-For")
        return await self._answer(request, "")

    async def _answer(self, request: web.Request, shown: str) -> web.Response:
        asked: Mapping[str, str] = request.query
        if request.method == hdrs.METH_POST:
            asked = {name: value for name, value in (await request.post()).items() if isinstance(value, str)}
        client_id, object_id, resource_id = (_first(asked, each) for each in (CLIENT_IDS, OBJECT_IDS, RESOURCE_IDS))
        if sum(map(bool, (client_id, object_id, resource_id))) > 1:
            raise NoToken(400, "invalid_request", "More than one id of an identity is given; one of them is enough.")
        resource = resource_in(asked.get("resource", ""))
        identity = self._tokens.directory.managed(client_id, object_id, resource_id, shown)
        token = await self._tokens.token(identity, resource, LIFE_S, "2")
        now_s = self._tokens.now_s
        # Numbers are texts here, as in the service's answers; older clients read nothing else.
        return answered(
            {
                "access_token": token,
                "refresh_token": "",
                "expires_in": str(LIFE_S),
                "expires_on": str(now_s + LIFE_S),
                "not_before": str(now_s),
                "ext_expires_in": str(LIFE_S),
                "resource": resource,
                "token_type": "Bearer",
                "client_id": identity.client_id,
            }
        )


def _first(asked: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((asked[each] for each in names if asked.get(each)), "")
