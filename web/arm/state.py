"""What only Resource Manager knows: resource groups; place, tags, tier and network rules of a namespace.

All of it is one small file beside the stores. Each change is a new file before it is answered, and one change comes
after the other. A server in memory forgets it with its entities. Does not know the entities of a namespace.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Final

import structlog

from ...broker.names import KeptFile
from ..json_object import JsonObject
from ..json_reader import read_json
from ..json_writer import json_pieces
from ..services import KeptFiles

DEFAULT_GROUP: Final = "emubus"
"""The resource group of a namespace that Resource Manager has not made."""
LOCATION: Final = "local"
GROUPS_MAX: Final = 980
"""Resource groups of a subscription (azure-subscription-service-limits)."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Group:
    """A resource group."""

    name: str
    location: str = LOCATION
    tags: Mapping[str, str] = field(default_factory=dict[str, str])
    managed_by: str | None = None


@dataclass(frozen=True, slots=True)
class Placed:
    """A namespace as Resource Manager has it. `properties` are those that it only repeats; instants are Unix ms."""

    name: str
    group: str = DEFAULT_GROUP
    location: str = LOCATION
    tags: Mapping[str, str] = field(default_factory=dict[str, str])
    tier: str = "Standard"
    capacity: int | None = None
    identity: Mapping[str, object] | None = None
    properties: Mapping[str, object] = field(default_factory=dict[str, object])
    network: Mapping[str, object] = field(default_factory=dict[str, object])
    created_at: int = 0
    updated_at: int = 0


@dataclass(frozen=True, slots=True)
class Kept:
    """All of it, by names in lower case. `gone`: the first namespace's name if Resource Manager has deleted it."""

    groups: Mapping[str, Group] = field(default_factory=dict[str, Group])
    namespaces: Mapping[str, Placed] = field(default_factory=dict[str, Placed])
    gone: tuple[str, ...] = ()


class State:
    """The present state; `change` replaces it."""

    def __init__(self, files: KeptFiles | None, kept: Kept) -> None:
        self._files = files
        self.kept = kept
        self.deployments: dict[str, object] = {}
        """What is remembered of deployments, by id in lower case (`deployments.py`); a restart forgets it."""
        self.turn = asyncio.Lock()
        """Held by an operation that looks before it changes what is kept."""

    @classmethod
    async def open(cls, files: KeptFiles | None) -> State:
        """The state of the file; what can't be read counts as none, and is said so in the log."""
        data = b"" if files is None else await asyncio.to_thread(files.read, KeptFile.ARM)
        return cls(files, _parsed(data))

    async def change(self, kept: Kept) -> None:
        """Keep a new state. BrokerError (server-busy) if the disk refuses it: then the old one stays."""
        if self._files is not None:
            await asyncio.to_thread(self._files.write, KeptFile.ARM, b"".join(json_pieces(asdict(kept))))
        self.kept = kept

    async def put_group(self, group: Group) -> None:
        await self.change(replace(self.kept, groups={**self.kept.groups, group.name.lower(): group}))

    async def drop_group(self, name: str) -> None:
        left = {key: each for key, each in self.kept.groups.items() if key != name.lower()}
        await self.change(replace(self.kept, groups=left))

    async def put_namespace(self, placed: Placed) -> None:
        key = placed.name.lower()
        gone = tuple(each for each in self.kept.gone if each != key)
        await self.change(replace(self.kept, namespaces={**self.kept.namespaces, key: placed}, gone=gone))

    async def drop_namespace(self, name: str, *, hides: bool) -> None:
        left = {key: each for key, each in self.kept.namespaces.items() if key != name.lower()}
        gone = tuple(dict.fromkeys((*self.kept.gone, name.lower()))) if hides else self.kept.gone
        await self.change(replace(self.kept, namespaces=left, gone=gone))


def _parsed(data: bytes) -> Kept:
    try:
        read = JsonObject(read_json(data or b"{}"))
        groups = {key: _group(value) for key, value in read.object_of("groups").items()}
        namespaces = {key: _placed(value) for key, value in read.object_of("namespaces").items()}
        return Kept(groups, namespaces, tuple(read.list_of("gone", str)))
    except (KeyError, TypeError, ValueError) as error:
        log.warning("resource groups and tags can't be read", file=KeptFile.ARM.value, cause=str(error))
        return Kept()


def _group(value: object) -> Group:
    read = JsonObject(value)
    return Group(read.one("name", str), read.one("location", str), _texts(read), read.optional("managed_by", str))


def _placed(value: object) -> Placed:
    read = JsonObject(value)
    identity = read.get("identity")
    return Placed(
        name=read.one("name", str),
        group=read.one("group", str),
        location=read.one("location", str),
        tags=_texts(read),
        tier=read.one("tier", str),
        capacity=read.optional("capacity", int),
        identity=None if identity is None else dict(JsonObject(identity)),
        properties=dict(read.object_of("properties")),
        network=dict(read.object_of("network")),
        created_at=read.one("created_at", int),
        updated_at=read.one("updated_at", int),
    )


def _texts(read: JsonObject) -> dict[str, str]:
    tags = read.object_of("tags")
    return {name: tags.one(name, str) for name in tags}
