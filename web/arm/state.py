"""What only Resource Manager knows: resource groups; place, tags, tier and network rules of a namespace.

Resource Manager is one for all namespaces of the process, so that this is one small file, in the folder of the first,
beside the list of the others. Each change is a new file before it is answered, and one change comes after the other. A
namespace may come and go without Resource Manager: what is kept of one has the id of that namespace, and a later one of
its name has none of it. A server in memory forgets all. Does not know the entities of a namespace.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Final

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


@dataclass(frozen=True, slots=True)
class Group:
    name: str
    location: str = LOCATION
    tags: Mapping[str, str] = field(default_factory=dict[str, str])
    managed_by: str | None = None


@dataclass(frozen=True, slots=True)
class Placed:
    """A namespace as Resource Manager has it. `properties` are those that it only repeats; instants are Unix ms.

    `of` is the id of the namespace (`NamespaceReport`): a later namespace of the name has another one.
    """

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
    of: str = ""

    def is_of(self, own_id: str) -> bool:
        """Whether this is of the namespace with that id; earlier builds have not kept it."""
        return self.of in ("", own_id)


@dataclass(frozen=True, slots=True)
class Kept:
    """All of it, by names in lower case. `gone`: the id of the first namespace once it has been deleted."""

    groups: Mapping[str, Group] = field(default_factory=dict[str, Group])
    namespaces: Mapping[str, Placed] = field(default_factory=dict[str, Placed])
    gone: Mapping[str, str] = field(default_factory=dict[str, str])


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
        """The state of the file. ValueError if it can't be read: the next change would replace it."""
        data = b"" if files is None else await asyncio.to_thread(files.read, KeptFile.ARM)
        return cls(files, _kept_in(data))

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


def _kept_in(data: bytes) -> Kept:
    try:
        read = JsonObject(read_json(data or b"{}"))
        groups = {key: _group(value) for key, value in read.object_of("groups").items()}
        namespaces = {key: _placed_in(value) for key, value in read.object_of("namespaces").items()}
        gone = read.object_of("gone")
        return Kept(groups, namespaces, {key: gone.one(key, str) for key in gone})
    except (KeyError, TypeError, ValueError) as error:
        text = f"{KeptFile.ARM} can't be read: {error}; mend it, or delete it to go on without resource groups and tags"
        raise ValueError(text) from error


def _group(value: object) -> Group:
    read = JsonObject(value)
    return Group(read.one("name", str), read.one("location", str), _texts(read), read.optional("managed_by", str))


def _placed_in(value: object) -> Placed:
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
        of=read.optional("of", str) or "",
    )


def _texts(read: JsonObject) -> dict[str, str]:
    tags = read.object_of("tags")
    return {name: tags.one(name, str) for name in tags}
