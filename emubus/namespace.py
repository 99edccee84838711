"""One namespace of the process: its stores, broker, keys, AMQP server, snapshots and figures, opened on first use.

Knows what belongs to one namespace alone, in which order it is opened and closed, and what it shares with the others
(`Shared`, and what is `beside` it): the ledger of memory, the turns of the event loop, and the ports. So
limits on what the process holds for its peers are limits of the process, however many namespaces it has. Does not know
which others there are (`emubus/namespaces.py`) and by which name or port a client comes.

The first namespace is opened by the start; another one when somebody comes for it. Until then it costs what its
configuration takes: no file is opened, no thread is started and no timer is set. What its messages do by themselves,
such as expiring or being forwarded, is done when it is opened, as after a restart.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

import structlog

from . import __version__
from .amqp import AmqpServer, Find
from .amqp.limits import Limits as WireLimits
from .broker.access import Access
from .broker.admin.folder_view import DataFolderError
from .broker.api import TABLES
from .broker.broker import Broker
from .broker.clock import Clock
from .broker.directory import Directory
from .broker.errors import BrokerError, Condition
from .broker.keys import Right
from .broker.lazy_dataclass import dataclass
from .broker.ledger import Ledger
from .broker.model.catalog import CATALOG_TABLES, Catalog, CatalogError, other_store_count
from .broker.model.descriptions import Topology
from .broker.model.profiles import Partitioning, limits_over
from .broker.names import KeptFile
from .broker.roles import Roles, read_assignments
from .broker.service_errors import HOST_SUFFIX, jms_not_supported
from .broker.tokens import Issuer
from .config import Auth, Config
from .data_folder import DataFolder
from .snapshots import Snapshots, finish_restore
from .storage import Durability, Store, open_store
from .story.ring import Story
from .telemetry.sampler import Sampler
from .web.services import NamespacesPort, Services

if TYPE_CHECKING:
    from .telemetry.otlp import Otlp

PATHS_SHOWN = 10
"""Entities that the line about ignored ones names."""
PROBLEMS_MAX = 20
"""Mistakes in an uploaded Config.json that its refusal names."""

T = TypeVar("T")
log = structlog.get_logger("emubus")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Shared:
    """What the namespaces of a process have in common. `failpoint` is called at each step of a commit."""

    ledger: Ledger
    failpoint: Callable[[str], None]
    otlp: Otlp | None
    ca: str | None
    ports: Callable[[], Mapping[str, int]]
    is_ready: Callable[[], bool]
    started_us: int


class Neighbours(NamespacesPort, Protocol):
    """All namespaces of the process, as one of them sees them."""

    def choice(self, reached: HostedNamespace) -> Find | None:
        """What finds the AMQP server of the namespace that a client names which has reached that one; None while there
        is one only."""
        ...

    def beside(self, own: HostedNamespace) -> AmqpServer | None:
        """The AMQP server with which that one shares the turns of the loop; None for the first."""
        ...

    def is_elsewhere(self, host: str, own: HostedNamespace) -> bool:
        """Whether a host names another namespace than `own`."""
        ...


class HostedNamespace:
    """A namespace, by the settings in `config`: its name, entities, keys, limits and data folder are its own."""

    def __init__(self, config: Config, shared: Shared, neighbours: Neighbours, clock: Clock) -> None:
        self.config = config
        self.clock = clock
        self.name = config.topology.namespace
        self.story = Story(is_on=config.story, a_second_max=config.story_a_second)
        self.failure: BrokerError | None = None
        """Why it can't be opened, once that was tried; another try needs another one of these."""
        self._shared = shared
        self._neighbours = neighbours
        self._cleanup = contextlib.AsyncExitStack()
        self._folder: DataFolder | None = None
        self._stores: tuple[Catalog, list[Store]] | None = None  # until the broker has them
        self._broker: Broker | None = None
        self._amqp: AmqpServer | None = None
        self._snapshots: Snapshots | None = None
        self._sampler: Sampler | None = None
        self._roles: Roles | None = None
        self._services: Services | None = None

    @property
    def is_open(self) -> bool:
        """Whether somebody has come for it."""
        return self._services is not None

    @property
    def broker(self) -> Broker:
        """The entities and their messages; RuntimeError before it is opened."""
        return _of_started(self._broker)

    @property
    def amqp(self) -> AmqpServer:
        """Its AMQP connections; RuntimeError before it is opened."""
        return _of_started(self._amqp)

    @property
    def sampler(self) -> Sampler:
        """Its figures over time; RuntimeError before it is opened."""
        return _of_started(self._sampler)

    @property
    def snapshots(self) -> Snapshots:
        """Its snapshots; RuntimeError before it is opened."""
        return _of_started(self._snapshots)

    @property
    def roles(self) -> Roles:
        """The roles of its identities; RuntimeError before it is opened."""
        return _of_started(self._roles)

    @property
    def services(self) -> Services:
        """What the HTTP adapter works with; RuntimeError before it is opened."""
        return _of_started(self._services)

    def open_files(self) -> None:
        """Lock the data folder and open the stores, once, on any thread: that waits for the disk.

        StoreError, CatalogError; `close` then, too.
        """
        config = self.config
        if config.data_dir is not None:
            self._folder = own_folder(config.data_dir, fresh=config.fresh, durability=config.durability)
            self._cleanup.callback(self._folder.release)
        self._stores = self._open_stores()

    def open(self) -> None:
        """Begin with the open files, or open them; StoreError, CatalogError, BrokerError (a condition of the start).

        The order matters: `close` ends things in reverse. After an error, `close`, too.
        """
        config = self.config
        self._broker = broker = self._open_broker()
        self._cleanup.push_async_callback(broker.stop)  # also if it fails to start: it closes the stores
        missing, other = broker.start(config.topology, only_if_new=config.config_file is None)
        if config.made_once_from is not None and (missing or other):
            _warn_of_ignored(config, missing, other)
        issuer = self._issuer()
        self._roles = roles = self._read_roles(broker)
        access = Access(
            config.keys,
            verify=config.auth is not Auth.NONE,
            authority=f"{broker.name}{HOST_SUFFIX}",
            entity_keys=broker.namespace.entity_keys,
            is_elsewhere=self._is_elsewhere,
            issuer=issuer,
            roles=roles if config.auth is Auth.RBAC else None,
        )
        self._take_kept_keys(access)
        limits = config.limits
        partitioned = limits.partitioning is Partitioning.ALWAYS
        self._amqp = amqp = AmqpServer(
            broker,
            access,
            self.clock,
            limits=WireLimits(own_operations=not config.service_only),
            connections_max=limits.connections_max,
            jms_refusal=None if limits.jms else jms_not_supported(partitioned=partitioned),
            beside=self._neighbours.beside(self),
            choice=lambda: self._neighbours.choice(self),
        )
        self._snapshots = snapshots = Snapshots(broker, self._folder, self._open_stores)
        self._cleanup.push_async_callback(snapshots.stop)
        self._sampler = sampler = Sampler(broker, self.clock)
        sampler.start()
        self._cleanup.callback(sampler.stop)
        self._services = self._make_services(broker, access, issuer, roles, amqp, snapshots, sampler)

    async def close(self) -> None:
        """Let commits end, close the stores, end the clock. Its AMQP connections are closed before that."""
        if self._stores is not None:  # no broker has come to close them
            catalog, stores = self._stores
            catalog.close()
            for store in stores:
                store.close()
        await self._cleanup.aclose()
        self.clock.close()

    def start_conditions(self) -> None:
        """Start what is on from the start. BrokerError for one that is not known."""
        for name in self.config.conditions:
            self.amqp.conditions.start(name, seed=self.config.seed)

    def is_sound(self) -> bool:
        """Whether its folder is in place and not all of its stores fail; true of one that is not opened."""
        if self._folder is not None and not self._folder.is_in_place():
            return False
        return self._broker is None or any(worker.failure is None for worker in self._broker.namespace.workers)

    def _make_services(
        self,
        broker: Broker,
        access: Access,
        issuer: Issuer,
        roles: Roles,
        amqp: AmqpServer,
        snapshots: Snapshots,
        sampler: Sampler,
    ) -> Services:
        config, shared = self.config, self._shared
        return Services(
            broker=broker,
            access=access,
            directory=Directory(
                config.identities,
                is_open=lambda: not access.verify or any(each.is_known_root for each in access.keys),
                is_key=lambda text: any(
                    Right.MANAGE in each.rights and text in (each.key, each.secondary_key) for each in access.keys
                ),
            ),
            issuer=issuer,
            roles=roles,
            clock=self.clock,
            is_ready=shared.is_ready,
            amqp=amqp.protocol,
            ledger=shared.ledger,
            ports=shared.ports,
            faults=amqp.faults,
            conditions=amqp.conditions,
            snapshots=snapshots,
            connection_counts=self._connection_counts,
            connections=amqp.report,
            config_json=self._config_json,
            started_us=shared.started_us,
            ca_file=shared.ca,
            about={
                "Durability": config.durability.value,
                "Data folder": str(config.data_dir) if config.data_dir else "none: in memory",
                **({} if shared.otlp is None else {"Collector": shared.otlp.state}),
            },
            story=self.story,
            sampler=sampler,
            allowed_hosts=frozenset(name.lower().removesuffix(".") for name in config.allowed_hosts),
            read_config=self._read_config,
            files=self._folder,
            namespaces=self._neighbours,
        )

    def _take_kept_keys(self, access: Access) -> None:
        """Have the keys of the namespace as an earlier run has left them."""
        data = b"" if self._folder is None else self._folder.read(KeptFile.KEYS)
        if not data:
            return
        from .broker.kept_keys import keys_after  # only where a request has changed keys

        try:
            access.replace_keys(keys_after(access.configured, data))
        except ValueError as error:
            log.warning("changed keys are not used", file=KeptFile.KEYS.value, cause=str(error))

    def _issuer(self) -> Issuer:
        """Its key lies in the data folder, so that clients go on with their tokens after a restart."""
        folder = self._folder
        if folder is None:
            return Issuer()
        return Issuer(partial(folder.read, KeptFile.TOKEN_KEY), partial(folder.write, KeptFile.TOKEN_KEY))

    def _read_roles(self, broker: Broker) -> Roles:
        """Those that were assigned before, and those of the configuration. CatalogError."""
        folder, namespace = self._folder, broker.namespace
        try:
            kept = [] if folder is None else read_assignments(folder.read(KeptFile.ROLES))
        except ValueError as error:
            assert folder is not None
            path = folder.path / KeptFile.ROLES
            raise CatalogError(
                f"{path} can't be read: {error}; mend it, or delete it to go on without its roles"
            ) from None
        for each in self.config.roles:
            if each.entity and namespace.entity(each.entity) is None:
                what = f"there is no queue, topic or subscription {each.entity!r} for the role {each.role} of"
                remedy = "name one of the configuration, or leave it out for the whole namespace"
                raise CatalogError(f"{self.config.said('roles')}: {what} {each.principal}: {remedy}")
        return Roles(
            (*kept, *self.config.roles),
            keep=None if folder is None else lambda data: asyncio.to_thread(folder.write, KeptFile.ROLES, data),
            changed=namespace.keys_changed,
            exists=lambda path: namespace.entity(path) is not None,
        )

    def _is_elsewhere(self, host: str) -> bool:
        return self._neighbours.is_elsewhere(host, self)

    def _connection_counts(self) -> dict[str, int]:
        amqp = self.amqp
        return {"connections": amqp.connection_count, "links": amqp.link_count}

    def _config_json(self) -> Callable[[], Mapping[str, object]]:
        from .config_file.writing import config_json  # only for a request that asks for it

        descriptions = [entity.description for entity in self.broker.namespace.entities()]
        config = self.config
        keys, roles = self.services.access.keys, self.roles.list()
        return partial(config_json, self.broker.name, descriptions, keys, config.identities, roles)

    def _read_config(self, data: bytes) -> tuple[Topology, list[str]]:
        from .config_file.cursor import ConfigFileError  # only for a request that has a file
        from .config_file.reading import parse_config_bytes

        try:
            found = parse_config_bytes(data, self.config.limits)
        except ConfigFileError as error:
            raise BrokerError(Condition.ARGUMENT_ERROR, "\n".join(map(str, error.problems[:PROBLEMS_MAX]))) from None
        return found.topology, [str(each) for each in found.warnings[:PROBLEMS_MAX]]

    def _open_broker(self) -> Broker:
        config, shared = self.config, self._shared
        if self._stores is None:
            self.open_files()
        assert self._stores is not None
        catalog, stores = self._stores
        observer = self.story if shared.otlp is None else shared.otlp.observer(self.story)
        broker = Broker(catalog, stores, self.clock, config.limits, shared.failpoint, observer, self._is_elsewhere)
        self._stores = None
        if self._folder is not None:
            self._folder.warn_of_readers()
        return broker

    def _open_stores(self) -> tuple[Catalog, list[Store]]:
        """The stores in the data folder, verified; in memory without one. StoreError, CatalogError."""
        durability, count = self.config.durability, self.config.limits.partition_count
        folder = self._folder
        paths: list[Path | None] = [None] * (1 + count) if folder is None else [*folder.prepare(count)]
        found = len(paths) - 1
        if limits_over(self.config.limits, found).partition_count != found:
            raise other_store_count(found, count)
        opened: list[Store] = []
        try:
            journal = None if folder is None else folder.journal
            opened.append(open_store(paths[0], CATALOG_TABLES, durability, create=False, synced=True, behind=journal))
            opened += (
                open_store(path, TABLES, durability, self._shared.failpoint, create=False, synced=True, journal=journal)
                for path in paths[1:]
            )
            return Catalog(opened[0]), opened[1:]
        except BaseException:
            for store in opened:
                store.close()
            raise


def _of_started(part: T | None) -> T:
    if part is None:
        raise RuntimeError("the server has not been started")
    return part


def _warn_of_ignored(config: Config, missing: Sequence[str], other: Sequence[str]) -> None:
    """Say which entities of an option or a variable are not used, as the data folder has had its own before."""
    parts = [
        f"{what} {', '.join(paths[:PATHS_SHOWN])}{', …' if len(paths) > PATHS_SHOWN else ''}"
        for what, paths in (("not created:", missing), ("not changed:", other))
        if paths
    ]
    log.warning(
        f"{config.made_once_from} is not used: the data folder {config.data_dir} has its entities already",
        ignored="; ".join(parts),
        remedy="--fresh (EMUBUS_FRESH=yes) to begin anew without messages; --config FILE, which is applied at each "
        "start; or `emubus create` and `emubus update`",
    )


def own_folder(folder: Path, *, fresh: bool = False, durability: Durability = Durability.FULL) -> DataFolder:
    """Lock a data folder, made if missing; finish a restore that a kill has interrupted.

    With `fresh` its entities and messages are deleted. StoreError: another process has it, or it isn't emubus's.
    """
    owned = DataFolder(folder, __version__, durability)
    try:
        if fresh:
            deleted = owned.empty()
            log.info("data folder emptied (--fresh)", data=str(folder), deleted=", ".join(deleted) or "nothing")
        elif finish_restore(folder):
            log.info("interrupted restore finished", data=str(folder))
    except OSError as error:
        owned.release()
        raise DataFolderError(folder, f"can't be changed: {error.strerror}") from error
    except BaseException:
        owned.release()
        raise
    return owned
