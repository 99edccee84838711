"""What the parts of the HTTP face work with: the broker, and what only the composition root can give.

Knows names and shapes. Does not know where the things come from; the composition root fills it once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from ..broker.access import Access
from ..broker.admin.fault_table import FaultTable
from ..broker.broker import Broker
from ..broker.clock import Clock
from ..broker.errors import Condition


class FaultsPort(Protocol):
    """Faults on the wire that are made on purpose; an entity None is all. The verbs tell how many they hit."""

    table: FaultTable

    def drop_connections_of(self, entity: str | None) -> int:
        """Cut connections."""
        ...

    def drop_links_of(self, entity: str | None, condition: Condition) -> int:
        """Detach links because of `condition`."""
        ...


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A copy of the whole namespace at one moment (`taken_at`, Unix ms)."""

    name: str
    taken_at: int
    store_count: int
    entity_count: int
    message_count: int
    size_bytes: int


class SnapshotsPort(Protocol):
    """Snapshots that are kept. BrokerError: not-found, entity-already-exists, not-allowed, server-busy."""

    def list(self) -> list[Snapshot]:
        """All of them, the oldest first."""
        ...

    def get(self, name: str) -> Snapshot:
        """One of them."""
        ...

    async def take(self, name: str) -> Snapshot:
        """Take one while the broker works."""
        ...

    async def restore(self, name: str) -> Snapshot:
        """Bring the namespace back to one."""
        ...

    async def delete(self, name: str) -> None:
        """Delete one."""
        ...

    def archive(self, name: str) -> AsyncIterator[bytes]:
        """Its files as a tar archive."""
        ...

    async def keep(self, name: str, archive: AsyncIterator[bytes], bytes_max: int) -> Snapshot:
        """Keep what is in an archive; BrokerError (argument-error) for what is none, or larger."""
        ...


@dataclass(frozen=True, slots=True)
class Services:
    """Handed to every part. `amqp` makes the protocol of a new AMQP connection, `ports` tells where the server listens
    by name, `connection_counts` how many AMQP `connections` and `links` there are, `ca_file` is the development CA's
    certificate if there is one, `about` what else people want to know of the server, by its name."""

    broker: Broker
    access: Access
    clock: Clock
    is_ready: Callable[[], bool]
    amqp: Callable[[], asyncio.Protocol]
    ports: Callable[[], Mapping[str, int]]
    faults: FaultsPort
    snapshots: SnapshotsPort
    connection_counts: Callable[[], Mapping[str, int]]
    ca_file: str | None = None
    about: Mapping[str, str] = field(default_factory=dict[str, str])
