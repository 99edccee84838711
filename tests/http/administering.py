"""Requests of administration clients, as bytes and through the Python SDK."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from xml.etree.ElementTree import Element, fromstring

import aiohttp
from azure.servicebus.management import ServiceBusAdministrationClient
from yarl import URL

from emubus.broker.clock import Clock
from emubus.config import load_config
from emubus.server import Server
from emubus.tls import ca_file

T = TypeVar("T")

ATOM = "http://www.w3.org/2005/Atom"
CONNECT = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
NOW = 1_800_000_000_123  # 2027-01-15T08:00:00.123Z
DEFAULT_CREDENTIALS = ("RootManageSharedAccessKey", "SAS_KEY_VALUE")


def entry(description: str) -> str:
    """An Atom entry around a description without its namespace, as most clients send it."""
    tag, rest = re.split(r"(?=[\s/>])", description.removeprefix("<"), maxsplit=1)
    inside = f'<{tag} xmlns="{CONNECT}" xmlns:i="http://www.w3.org/2001/XMLSchema-instance"{rest}'
    return f'<entry xmlns="{ATOM}"><content type="application/xml">{inside}</content></entry>'


@dataclass(frozen=True)
class Reply:
    """An answer; `elements` are those of the description, in order, with their texts."""

    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def root(self) -> Element:
        return fromstring(self.text)

    @property
    def description(self) -> Element:
        found = self.root.find(f"{{{ATOM}}}content")
        assert found is not None, self.text
        return found[0]

    @property
    def elements(self) -> dict[str, str | None]:
        return {child.tag.rpartition("}")[2]: child.text for child in self.description}

    @property
    def id(self) -> str | None:
        return self.root.findtext(f"{{{ATOM}}}id")

    @property
    def detail(self) -> str:
        return self.root.findtext("Detail") or ""

    @property
    def links(self) -> list[tuple[str | None, str | None]]:
        return [(link.get("rel"), link.get("href")) for link in self.root.findall(f"{{{ATOM}}}link")]

    @property
    def titles(self) -> list[str | None]:
        """Of the entries of a feed."""
        return [each.findtext(f"{{{ATOM}}}title") for each in self.root.findall(f"{{{ATOM}}}entry")]

    @property
    def ids(self) -> list[str | None]:
        return [each.findtext(f"{{{ATOM}}}id") for each in self.root.findall(f"{{{ATOM}}}entry")]


class Raw:
    """Sends requests as they are given; paths are percent-encoded already."""

    def __init__(self, client: aiohttp.ClientSession, port: int) -> None:
        self._client = client
        self.authority = f"localhost:{port}"

    async def __call__(
        self,
        method: str,
        path: str,
        body: str | bytes | None = None,
        *,
        version: str | None = "2021-05",
        **headers: str,
    ) -> Reply:
        mark = "&" if "?" in path else "?"
        query = "" if version is None else f"{mark}api-version={version}"
        url = URL(f"http://{self.authority}{path}{query}", encoded=True)
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self._client.request(method, url, data=body, headers=given) as answer:
            return Reply(answer.status, answer.headers, await answer.text())

    async def put(
        self, path: str, description: str, *, update: bool = False, version: str = "2021-05", token: str | None = None
    ) -> Reply:
        """Create, or with `update` change what is there."""
        headers = {"If_Match": "*"} if update else {}
        if token is not None:
            headers["Authorization"] = token
        return await self("PUT", path, entry(description), version=version, **headers)

    async def get(self, path: str, version: str | None = "2021-05") -> Reply:
        return await self("GET", path, version=version)


@asynccontextmanager
async def running(folder: Path, clock: Clock | None = None, **options: str) -> AsyncIterator[Server]:
    """A server on free ports, its entities in memory unless `durability` says otherwise."""
    texts: dict[str, str | None] = {
        "data": str(folder),
        "durability": "none",
        "amqp_port": "0",
        "http_port": "0",
        **options,
    }
    server = Server(load_config(texts, {}), clock or Clock())
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


@asynccontextmanager
async def raw(server: Server) -> AsyncIterator[Raw]:
    """Requests to a server over plain HTTP."""
    async with aiohttp.ClientSession() as client:
        yield Raw(client, server.http_port)


class Sdk:
    """The Python SDK's administration client, over https, each call on another thread."""

    def __init__(
        self, server: Server, folder: Path, credentials: tuple[str, str] = DEFAULT_CREDENTIALS, **more: Any
    ) -> None:
        name, key = credentials
        self.client = ServiceBusAdministrationClient.from_connection_string(
            f"Endpoint=sb://localhost:{server.http_port};SharedAccessKeyName={name};SharedAccessKey={key}",
            connection_verify=str(ca_file(folder)),
            retry_total=0,
            **more,
        )

    async def __call__(self, work: Callable[[ServiceBusAdministrationClient], T]) -> T:
        return await asyncio.to_thread(work, self.client)


@asynccontextmanager
async def sdk(server: Server, folder: Path, **more: Any) -> AsyncIterator[Sdk]:
    """The Python SDK of a server with `tls="dev"` whose data folder is `folder`."""
    opened = Sdk(server, folder, **more)
    try:
        yield opened
    finally:
        opened.client.close()
