"""Clients of Resource Manager: JSON as it is, and the management SDK of Python."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from typing import Any, Self

from azure.core.credentials import AccessToken
from azure.core.pipeline import PipelineRequest
from azure.core.pipeline.policies import SansIOHTTPPolicy
from azure.mgmt.servicebus import ServiceBusManagementClient

WAIT_S = 60.0
SUBSCRIPTION = "00000000-0000-0000-0000-000000000001"
ROOT = f"/subscriptions/{SUBSCRIPTION}"
GROUP = f"{ROOT}/resourceGroups/rg"
NAMESPACES = f"{GROUP}/providers/Microsoft.ServiceBus/namespaces"
NAMESPACE = f"{NAMESPACES}/mybus"
VERSION = "2021-11-01"
Json = dict[str, Any]


class Arm:
    """One connection; an answer is a status and what its JSON says."""

    def __init__(self, port: int, authorization: str | None = None) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
        self._own = {} if authorization is None else {"Authorization": authorization}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def __call__(
        self,
        method: str,
        path: str,
        body: object = None,
        version: str = VERSION,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, Json]:
        data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        if version:
            path += f"{'&' if '?' in path else '?'}api-version={version}"
        more = {"Content-Type": "application/json", **self._own, **(headers or {})}
        self._connection.request(method, path, data, more)
        answer = self._connection.getresponse()
        content = answer.read()
        assert not content or answer.headers.get_content_type() == "application/json", content
        assert answer.headers["x-ms-request-id"] or not path.startswith("/subscriptions/0")
        return answer.status, json.loads(content) if content else {}

    def namespace(self) -> None:
        """Make the namespace that the tests use."""
        status, _ = self("PUT", NAMESPACE, {"location": "westeurope"})
        assert status in (200, 201)

    def refused(self, method: str, path: str, body: object = None, version: str = VERSION) -> tuple[int, str, str]:
        """The status, the code and the text of a refusal."""
        status, answer = self(method, path, body, version)
        assert {name: set(each) for name, each in answer.items()} == {"error": {"code", "message"}}, answer
        return status, answer["error"]["code"], answer["error"]["message"]


class Token:
    """A credential whose token is not looked at."""

    def get_token(self, *_scopes: str, **_more: object) -> AccessToken:
        return AccessToken("token", 1 << 33)


class OverHttp(SansIOHTTPPolicy[Any, Any]):
    """In place of the policy that insists on HTTPS."""

    def on_request(self, request: PipelineRequest[Any]) -> None:
        request.http_request.headers["Authorization"] = "Bearer token"


def management(port: int, version: str) -> ServiceBusManagementClient:
    return ServiceBusManagementClient(
        Token(),
        SUBSCRIPTION,
        base_url=f"http://127.0.0.1:{port}",
        api_version=version,
        authentication_policy=OverHttp(),
    )
