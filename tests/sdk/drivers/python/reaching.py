"""How the clients of ``azure-servicebus`` reach their server: with a key or a credential, by which name and address.

Knows the connection string of the driver and what a ``reset`` says in place of its parts, and the options of the SDK
that a port, a CA and a transport of their own need. Makes the clients' arguments, not the clients.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

import azure.servicebus as plain

JSON = dict[str, Any]
TRANSPORTS = {"amqp": plain.TransportType.Amqp, "websocket": plain.TransportType.AmqpOverWebsocket}
EMULATOR = "UseDevelopmentEmulator=true"


@dataclass(frozen=True)
class Reach:
    """The server as the driver was started, and what the last ``reset`` says in place of that."""

    face: str
    connection_string: str
    ca_file: str | None = None
    transport: str = "amqp"
    credential: JSON | None = None
    namespace: str | None = None
    address: str | None = None

    def data_client(self, client: Any, options: JSON) -> Any:
        """A client for data, of the class ``client``."""
        options = options | self._trust() | self._way()
        if self.credential is not None:
            return client(self._host(), self._made_credential(), **options)
        return client.from_connection_string(self._text(self.namespace or self._address()), **options)

    def administration_client(self, client: Any, options: JSON) -> Any:
        """A client for administration: it connects to the host that it names, whatever ``namespace`` is."""
        options = options | self._trust()
        if self.credential is not None:
            return client(self._address(), self._made_credential(), **options)
        return client.from_connection_string(self._text(self._address()), **options)

    def _address(self) -> str:
        parts = self.connection_string.split(";")
        endpoint = next(part.removeprefix("Endpoint=") for part in parts if part.startswith("Endpoint="))
        return self.address or endpoint.removeprefix("sb://").rstrip("/")

    def _host(self) -> str:
        return self.namespace or self._address().rpartition(":")[0]

    def _text(self, endpoint: str) -> str:
        parts = self.connection_string.split(";")
        return ";".join(f"Endpoint=sb://{endpoint}" if part.startswith("Endpoint=") else part for part in parts)

    def _trust(self) -> JSON:
        return {} if self.ca_file is None else {"connection_verify": self.ca_file}

    def _way(self) -> JSON:
        """The SDK takes the port of a connection string for plain AMQP only; that of everything else is said apart."""
        if self.transport == "amqp" and EMULATOR in self.connection_string.split(";"):
            return {}
        return {
            "custom_endpoint_address": f"sb://{self._address()}",
            "transport_type": TRANSPORTS[self.transport],
        }

    def _made_credential(self) -> Any:
        given = self.credential or {}
        module = importlib.import_module("azure.identity.aio" if self.face == "aio" else "azure.identity")
        directory = {"disable_instance_discovery": True, **self._trust()}
        kind = given["kind"]
        if kind == "client-secret":
            return module.ClientSecretCredential(given["tenant_id"], given["client_id"], given["secret"], **directory)
        if kind == "workload-identity":
            named = {"tenant_id": given["tenant_id"], "client_id": given["client_id"]}
            return module.WorkloadIdentityCredential(**named, token_file_path=given["token_file"], **directory)
        if kind == "managed-identity":
            return module.ManagedIdentityCredential(client_id=given.get("client_id"))
        if kind == "default":
            return module.DefaultAzureCredential()
        raise ValueError(f"unknown credential {kind!r}")
