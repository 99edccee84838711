"""What the parts of the HTTP adapter work with: the broker, and objects that only the composition root can give.

Knows names and types. The composition root makes one `Services`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from ..broker.access import Access
from ..broker.broker import Broker
from ..broker.clock import Clock
from ..broker.directory import Directory
from ..broker.errors import Condition
from ..broker.lazy_dataclass import dataclass
from ..broker.ledger import Ledger, MemoryAccount
from ..broker.model.descriptions import Topology
from ..broker.model.profiles import Profile
from ..broker.names import KeptFile, SnapshotName
from ..broker.roles import Roles
from ..broker.tokens import Issuer
from ..conditions.engine import Conditions
from ..story.ring import Story
from ..telemetry.sampler import Sampler

if TYPE_CHECKING:
    from ..telemetry.collecting import Sources


class FaultsPort(Protocol):  # amqp.injection.faults.Faults; faces import no other face (tests/test_architecture.py)
    """Fault injection into AMQP connections. An entity of None means all; the methods return how many they hit."""

    def drop_connections_of(self, entity: str | None) -> int: ...

    def drop_connection(self, number: int) -> bool:
        """Cut one connection, if there is one of that number."""
        ...

    def drop_links_of(self, entity: str | None, condition: Condition) -> int: ...


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A copy of the whole namespace at one moment (`taken_at`, Unix ms)."""

    name: SnapshotName
    taken_at: int
    store_count: int
    entity_count: int
    message_count: int
    size_bytes: int


class SnapshotsPort(Protocol):  # emubus.snapshots.Snapshots: the program owns folders, and imports the faces
    """The stored snapshots. BrokerError: not-found, entity-already-exists, not-allowed, server-busy."""

    def list(self) -> list[Snapshot]:
        """All snapshots, the oldest first."""
        ...

    def get(self, name: SnapshotName) -> Snapshot: ...

    async def take(self, name: SnapshotName) -> Snapshot: ...

    async def restore(self, name: SnapshotName) -> Snapshot: ...

    async def delete(self, name: SnapshotName) -> None: ...

    def archive(self, name: SnapshotName) -> AsyncIterator[bytes]:
        """The files of a snapshot as a tar archive."""
        ...

    async def keep(self, name: SnapshotName, archive: AsyncIterator[bytes], bytes_max: int) -> Snapshot:
        """Store an archive's snapshot; BrokerError (argument-error) if it has none or is larger."""
        ...


@dataclass(frozen=True, slots=True)
class NamespaceReport:
    """A namespace of the process. `host` is the name by which clients on this machine reach it, `port` one of its own.

    The first one is reached by all other names and addresses of the server. `is_open`: somebody has come for it.
    `id` tells it from a later one of its name.
    """

    name: str
    profile: Profile
    host: str
    port: int | None
    is_first: bool
    is_open: bool
    data_folder: str | None
    id: str


class NamespacesPort(Protocol):  # emubus.namespaces.Namespaces, which makes the services of this file
    """The namespaces of the process, each with entities, keys, profile, data folder and page of its own."""

    @property
    def are_several(self) -> bool:
        """Whether a name may mean another namespace than the one that was reached."""
        ...

    def list(self) -> list[NamespaceReport]:
        """All of them, the first one first."""
        ...

    def get(self, name: str) -> NamespaceReport:
        """One of them; BrokerError (not-found)."""
        ...

    def create(
        self,
        name: str,
        profile: Profile | None = None,
        *,
        premium_partitions: int | None = None,
        port: int | None = None,
    ) -> NamespaceReport:
        """Make an empty one; a `profile` of None is that of the first, a port of 0 a free one.

        BrokerError: argument-error (the name, the profile), entity-already-exists, not-allowed (a port that is taken),
        resource-limit-exceeded.
        """
        ...

    async def delete(self, name: str) -> None:
        """Close its connections, delete it with everything in it. BrokerError: not-found, not-allowed (the first)."""
        ...

    async def open(self, name: str) -> Services:
        """What the parts work with for that namespace, opened while others are served. BrokerError: not-found,
        server-busy."""
        ...

    async def find(self, host: str, port: int) -> Services:
        """The one that a client means by the host that it names, or else by the port that it has reached.

        BrokerError: not-found, server-busy.
        """
        ...


class KeptFiles(Protocol):  # emubus.data_folder.DataFolder, of which a face needs these two verbs
    """The small files beside the messaging stores. They block: call them on another thread."""

    def read(self, name: KeptFile) -> bytes:
        """What a file has; nothing if it is missing or can't be read."""
        ...

    def write(self, name: KeptFile, data: bytes) -> None:
        """Replace a file, durably. BrokerError (server-busy) if the disk refuses it."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Services:
    """Given to every part."""

    broker: Broker
    access: Access
    directory: Directory
    """Who may have a token."""
    issuer: Issuer
    roles: Roles
    """Of identities; they count where `access` asks them."""
    clock: Clock
    is_ready: Callable[[], bool]
    amqp: Callable[[MemoryAccount], asyncio.Protocol]
    """Makes the protocol of a new AMQP connection, with its account of the `ledger`."""
    ledger: Ledger
    """Has the accounts of all peers."""
    ports: Callable[[], Mapping[str, int]]
    """The listening ports by name."""
    faults: FaultsPort
    conditions: Conditions
    snapshots: SnapshotsPort
    connection_counts: Callable[[], Mapping[str, int]]
    """The number of AMQP `connections` and `links`."""
    connections: Callable[[], Sequence[Mapping[str, object]]]
    """Describes each AMQP connection."""
    config_json: Callable[[], Callable[[], Mapping[str, object]]]
    """Takes the entities that are there now, and returns what makes a Config.json of them, on any thread."""
    started_us: int
    """The start, on the clock's stopwatch."""
    ca_file: str | None
    """The development CA's certificate, if any."""
    about: Mapping[str, object]
    """Further facts for the page, by their names, whose text may change."""
    story: Story
    """The last events of messages."""
    sampler: Sampler
    """Figures over time."""
    allowed_hosts: Collection[str]
    """Host names, in lower case, by which browsers may use the server."""
    read_config: Callable[[bytes], tuple[Topology, list[str]]]
    """Returns the entities of a Config.json, on any thread; BrokerError (argument-error) says what is wrong in it."""
    files: KeptFiles | None
    """The small files beside the stores, None in memory."""
    namespaces: NamespacesPort
    """All namespaces of the process."""

    @property
    def metric_sources(self) -> Sources:
        from ..telemetry.collecting import Sources  # not needed for a start

        name = self.broker.name if self.namespaces.are_several else None
        return Sources(self.broker, self.ledger, self.conditions, self.connection_counts, name)

    @property
    def uptime_s(self) -> int:
        """Whole seconds since the start."""
        return (self.clock.stopwatch_us() - self.started_us) // 1_000_000
