"""The namespaces of the process: made, deleted, and found by the name or the port by which a client comes.

Knows all of them and what is kept about them from one run to the next (`namespaces.json` in the folder of the first;
the others have their data folders below `namespaces`). Does not know what is in one (`emubus/namespace.py`).

A client means the namespace whose name is the first label of the host that it names: in the `open` of AMQP, in the
`Host` header of HTTP and of a WebSocket, or to TLS (SNI). Otherwise the port decides, if it is a namespace's own. Every
other name and address means the first: so nothing changes for a process with one. What can only be the name of a
namespace (`orders.localhost`, `orders.servicebus.windows.net`) and is that of none is refused once there are several:
a misspelled or deleted one must not become the first, where its messages would not be missed.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

import structlog

from .amqp import AmqpServer, Find
from .broker import service_errors
from .broker.admin.folder_view import NAMESPACES_FOLDER
from .broker.clock import Clock
from .broker.errors import BrokerError, Condition
from .broker.hosts import label_of, names_a_namespace
from .broker.ids import new_message_id
from .broker.lazy_dataclass import dataclass
from .broker.ledger import Caps
from .broker.model.catalog import CatalogError
from .broker.model.descriptions import Topology
from .broker.model.profiles import Partitioning, Profile, largest_message
from .broker.names import KeptFile, NamespaceName, excerpt
from .config import Config, NamespaceConfig, limits_of
from .namespace import HostedNamespace, Shared
from .options import ConfigError
from .storage import StoreError
from .terminal import reason_of
from .web.services import NamespaceReport, Services

NAMESPACES_MAX: Final = 100
"""One that is in use has files, threads and 5 MiB of its own (`python -m bench.namespaces`): a program that makes one
for each of its tests hears of it at 500 MiB."""
OPENED_AT_ONCE: Final = 2
"""Each waits for the disk, 85 ms for a new folder (`python -m bench.namespaces`)."""
FORMAT: Final = 1

log = structlog.get_logger("emubus")


@dataclass(slots=True)
class Place:
    """A namespace with the port of its own, if any. `id` tells it from a later one of its name."""

    settings: NamespaceConfig
    namespace: HostedNamespace
    id: str
    port: int | None = None


class Doors(NamedTuple):
    """Where clients come in. `left(services)` has the HTTP adapter give up what it has of a namespace."""

    listen: Callable[[int], int]
    """Listens on a port, 0 for a free one, and returns it. OSError."""
    unlisten: Callable[[int], None]
    left: Callable[[Services], None]


class Namespaces:
    """See the module; implements `web.services.NamespacesPort`."""

    def __init__(self, config: Config, shared: Shared, doors: Doors, clock: Clock) -> None:
        """`clock` is that of the first; each other one has its own, which a test may move."""
        self._config = config
        self._shared = shared
        self._doors = doors
        self.first = HostedNamespace(replace(config, more_namespaces=()), shared, self, clock)
        self._places: dict[str, Place] = {}  # all but the first, by the compared form of their names
        self._gone: set[str] = set()  # deleted in this run
        self._ending: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._openings: dict[HostedNamespace, asyncio.Task[None]] = {}
        self._threads: ThreadPoolExecutor | None = None

    # ---- life

    def open_first(self) -> None:
        """Open the first, and know the others: those of the configuration and those that are kept. ConfigError."""
        self.first.open()
        kept = self._kept()
        settings = {_key(each.name): each for each, _ in kept}
        settings |= {_key(each.name): each for each in self._config.more_namespaces}
        ids = {_key(each.name): own for each, own in kept}
        for key, each in settings.items():
            self._place(each, ids.get(key))
        data = self._config.data_dir
        if self._config.fresh and data is not None and (data / NAMESPACES_FOLDER).exists():
            shutil.rmtree(data / NAMESPACES_FOLDER)
        self._keep()

    def listen(self) -> None:
        """Listen on the ports that namespaces have of their own. OSError."""
        for place in self._places.values():
            if place.settings.port is not None:
                place.port = self._doors.listen(place.settings.port)

    def opened(self) -> Iterator[HostedNamespace]:
        """Those that somebody has come for."""
        return (each for each in self._all() if each.is_open)

    async def stop_amqp(self) -> None:
        """Close all AMQP connections."""
        await asyncio.gather(*(each.amqp.stop() for each in self.opened()))

    async def close(self) -> None:
        """Close all stores."""
        await asyncio.gather(*self._tasks, *self._openings.values(), return_exceptions=True)
        if self._threads is not None:
            self._threads.shutdown(wait=False)
        for each in self._all():
            await each.close()

    @property
    def ports(self) -> Mapping[str, int]:
        """The ports of their own, by their names."""
        return {f"namespace {each.namespace.name}": each.port for each in self._places.values() if each.port}

    # ---- finding

    @property
    def are_several(self) -> bool:
        """Whether a name may mean another namespace than the one that was reached."""
        return bool(self._places or self._gone)

    def choice(self, reached: HostedNamespace) -> Find | None:
        """What finds the AMQP server that a client names which has reached that one; None while there is one only."""
        return partial(self._amqp_named, reached) if self.are_several else None

    def _amqp_named(self, reached: HostedNamespace, host: str) -> AmqpServer | Awaitable[AmqpServer]:
        found = self._named(host, reached)
        return found.amqp if found.is_open else self._amqp_opened(found)

    async def _amqp_opened(self, namespace: HostedNamespace) -> AmqpServer:
        return (await self._open(namespace)).amqp

    def reached(self, port: int, name: str) -> HostedNamespace:
        """The one that a client reaches by a port, and the name that it tells TLS. It may not be opened yet."""
        found = self._by_key(label_of(name)) if name else None
        return found or next((each.namespace for each in self._places.values() if each.port == port), self.first)

    def amqp_reached(self, port: int, name: str) -> tuple[AmqpServer, Find | None]:
        """Its AMQP server; while it isn't open the first's, with what finds it once the client says its open."""
        found = self.reached(port, name)
        return (found.amqp, None) if found.is_open else (self.first.amqp, partial(self._amqp_named, found))

    async def find(self, host: str, port: int) -> Services:
        return (await self._open(self._named(host, self.reached(port, "")))).services

    async def open(self, name: str) -> Services:
        return (await self._open(self._get(name))).services

    def beside(self, own: HostedNamespace) -> AmqpServer | None:
        """The AMQP server with which that one shares the turns of the loop; None for the first."""
        return self.first.amqp if self.first.is_open and own is not self.first else None

    def is_elsewhere(self, host: str, own: HostedNamespace) -> bool:
        """Whether a host names another namespace than `own`."""
        found = self._by_key(label_of(host)) if self._places else None
        return found is not None and found is not own

    def _named(self, host: str, reached: HostedNamespace) -> HostedNamespace:
        label = label_of(host)
        found = self._by_key(label)
        if found is not None:
            return found
        if reached is self.first and self.are_several and names_a_namespace(host):
            self.first.broker.lines.write(
                log.warning,
                "refused: there is no namespace of that name",
                host=host,
                namespaces=", ".join(each.name for each in self._all()),
                remedy=f"correct the name, or make it: emubus namespace create {label}",
            )
            raise service_errors.namespace_not_found(label)
        return reached

    def _by_key(self, key: str) -> HostedNamespace | None:
        if key == _key(self.first.name):
            return self.first
        place = self._places.get(key)
        return None if place is None else place.namespace

    def _get(self, name: str) -> HostedNamespace:
        found = self._by_key(_key(name))
        if found is None:
            known = ", ".join(each.name for each in self._all())
            raise BrokerError(Condition.NOT_FOUND, f"There is no namespace {excerpt(name)}; there is {known}.")
        return found

    async def _open(self, namespace: HostedNamespace) -> HostedNamespace:
        """The namespace, opened if need be while others are served.

        BrokerError (server-busy) if its folder can't be used.
        """
        if namespace.is_open:
            return namespace
        if namespace.failure is not None:
            raise namespace.failure
        opening = self._openings.get(namespace)
        if opening is None:
            opening = self._openings[namespace] = asyncio.get_running_loop().create_task(self._open_now(namespace))
            opening.add_done_callback(partial(self._opening_done, namespace))
        await asyncio.shield(opening)  # others may wait for it, too
        return namespace

    def _opening_done(self, namespace: HostedNamespace, task: asyncio.Task[None]) -> None:
        del self._openings[namespace]
        if not task.cancelled():
            task.exception()  # the log has it, also if nobody waits any more

    async def _open_now(self, namespace: HostedNamespace) -> None:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(OPENED_AT_ONCE, "opening")
        files = asyncio.wrap_future(self._threads.submit(namespace.open_files))
        try:
            await files
            namespace.open()
            namespace.start_conditions()
        except (StoreError, CatalogError, OSError, BrokerError) as error:
            place = self._places.get(_key(namespace.name))
            if place is not None and place.namespace is namespace:  # with a sound folder another try opens it
                place.namespace = self._make(namespace.config)
            self._run(namespace.close())
            log.error("namespace can't be opened", namespace=namespace.name, cause=str(error))
            text = f"The namespace '{namespace.name}' can't be opened: {error}"
            namespace.failure = BrokerError(Condition.SERVER_BUSY, text)
            raise namespace.failure from error
        log.info(
            "namespace opened", namespace=namespace.name, entities=sum(1 for _ in namespace.broker.namespace.entities())
        )

    def _all(self) -> list[HostedNamespace]:
        return [self.first, *(each.namespace for each in self._places.values())]

    # ---- the verbs

    def list(self) -> list[NamespaceReport]:
        return [self._report(each) for each in self._all()]

    def get(self, name: str) -> NamespaceReport:
        return self._report(self._get(name))

    def create(
        self,
        name: str,
        profile: Profile | None = None,
        *,
        premium_partitions: int | None = None,
        port: int | None = None,
    ) -> NamespaceReport:
        named = NamespaceName(name)
        if self._by_key(named.key) is not None:
            raise BrokerError(Condition.ENTITY_ALREADY_EXISTS, f"There is a namespace '{name}' already.")
        if named.key in self._ending:
            raise BrokerError(Condition.SERVER_BUSY, f"The namespace '{name}' is being deleted. Please retry.")
        if len(self._places) + 1 >= NAMESPACES_MAX:
            count = len(self._places) + 1
            profile_name = self._config.limits.profile.value
            raise service_errors.resources_exceeded("namespaces", count, NAMESPACES_MAX, profile_name)
        try:
            if profile is None and premium_partitions is None:
                limits = self._config.limits
            else:
                limits = limits_of(profile or self._config.limits.profile, premium_partitions)
        except ConfigError as error:
            raise BrokerError(Condition.ARGUMENT_ERROR, str(error)) from error
        place = self._place(NamespaceConfig(Topology(name), limits, port=port))
        ledger, caps = self._shared.ledger, Caps.for_messages(largest_message(limits))
        if caps.connection > ledger.caps.connection:
            ledger.widen(replace(caps, socket_count=ledger.caps.socket_count))
        try:
            if port is not None:
                place.port = self._doors.listen(port)
            self._keep()
        except (OSError, BrokerError) as error:
            del self._places[named.key]
            if place.port is not None:
                self._doors.unlisten(place.port)
            if isinstance(error, BrokerError):
                raise
            raise BrokerError(Condition.NOT_ALLOWED, f"The namespace was not made: {reason_of(error)}.") from error
        self._gone.discard(named.key)
        log.info("namespace created", namespace=name, profile=limits.profile.value, port=place.port)
        return self._report(place.namespace)

    async def delete(self, name: str) -> None:
        namespace = self._get(name)
        if namespace is self.first:
            raise BrokerError(
                Condition.NOT_ALLOWED, f"'{namespace.name}' is the first namespace, which stays as long as the server."
            )
        key = _key(namespace.name)
        place = self._places.pop(key)
        try:
            self._keep()
        except BrokerError:
            self._places[key] = place
            raise
        self._gone.add(key)
        self._ending.add(key)
        if place.port is not None:
            self._doors.unlisten(place.port)
        try:
            await self._end(namespace)
        finally:
            self._ending.discard(key)
        log.info("namespace deleted", namespace=namespace.name)

    async def _end(self, namespace: HostedNamespace) -> None:
        """Close what is open of a namespace that nobody finds any more, and delete its folder."""
        opening = self._openings.get(namespace)
        if opening is not None:
            await asyncio.wait([opening])
        if namespace.is_open:
            gone = service_errors.namespace_not_found(namespace.name)
            await namespace.amqp.stop(gone)
            self._doors.left(namespace.services)
            await namespace.broker.give_up_stores(gone, gone)  # requests of HTTP that are under way hear it, too
        await namespace.close()
        folder = namespace.config.data_dir
        if folder is not None and folder.exists():
            await asyncio.to_thread(shutil.rmtree, folder)

    def _report(self, namespace: HostedNamespace) -> NamespaceReport:
        place = self._places.get(_key(namespace.name))
        folder = namespace.config.data_dir
        return NamespaceReport(
            name=namespace.name,
            profile=namespace.config.limits.profile,
            host=f"{_key(namespace.name)}.localhost",
            port=None if place is None else place.port,
            is_first=namespace is self.first,
            is_open=namespace.is_open,
            data_folder=None if folder is None else str(folder),
            id=str(self.first.broker.namespace.catalog.created_at or "") if place is None else place.id,
        )

    # ---- what is kept

    def _make(self, config: Config) -> HostedNamespace:
        return HostedNamespace(config, self._shared, self, Clock())

    def _place(self, settings: NamespaceConfig, own_id: str | None = None) -> Place:
        data = self._config.data_dir
        key = _key(settings.name)
        config = replace(
            self._config,
            topology=settings.topology,
            limits=settings.limits,
            keys=settings.keys or self._config.new_keys,
            identities=settings.identities,
            roles=settings.roles,
            config_file=self._config.config_file if settings.is_of_file else None,
            made_once_from=self._config.made_once_from if settings.is_of_file else None,
            data_dir=None if data is None else data / NAMESPACES_FOLDER / key,
            more_namespaces=(),
            fresh=False,
        )
        place = self._places[key] = Place(settings, self._make(config), own_id or new_message_id())
        return place

    def _kept(self) -> Sequence[tuple[NamespaceConfig, str]]:
        """The namespaces of earlier runs, and their ids. ConfigError if the first was another one."""
        files = self.first.services.files
        data = b"" if files is None or self._config.fresh else files.read(KeptFile.NAMESPACES)
        if not data:
            return []
        path = f"{self._config.data_dir}/{KeptFile.NAMESPACES}"
        try:
            values = json.loads(data)
            if values["format"] != FORMAT:
                raise ValueError(f"its format is {values['format']}, not {FORMAT}")
            first = NamespaceName(values["first"])
            kept = [
                (
                    NamespaceConfig(
                        Topology(NamespaceName(each["name"])),
                        limits_of(Profile(each["profile"]), each["premium_partitions"]),
                        port=each["port"],
                    ),
                    str(each.get("id", "")),
                )
                for each in values["namespaces"]
            ]
        except (ValueError, KeyError, TypeError, BrokerError, ConfigError) as error:
            raise ConfigError(f"{path} can't be read: {error}; delete it to serve the first namespace only") from error
        if any(_key(each.name) == _key(self.first.name) for each, _ in kept):
            raise ConfigError(
                f"the first namespace is '{self.first.name}', but the data folder {self._config.data_dir} is that of "
                f"'{first}', and has '{self.first.name}' as another one: name '{first}' first, or give another folder"
            )
        return kept

    def _keep(self) -> None:
        """Keep which namespaces there are. BrokerError (server-busy)."""
        files = self.first.services.files
        if files is None:
            return
        values = {
            "format": FORMAT,
            "first": self.first.name,
            "namespaces": [
                {
                    "name": each.settings.name,
                    "profile": each.settings.limits.profile.value,
                    "premium_partitions": _partitions(each.settings),
                    "port": each.settings.port,
                    "id": each.id,
                }
                for each in self._places.values()
            ],
        }
        before, after = files.read(KeptFile.NAMESPACES), json.dumps(values, indent=1).encode()
        if before != after and (before or self._places):  # nothing is kept of a process that never had another one
            files.write(KeptFile.NAMESPACES, after)

    def _run(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _partitions(settings: NamespaceConfig) -> int | None:
    """The partitions of a partitioned Premium namespace."""
    limits = settings.limits
    return limits.partition_count if limits.partitioning is Partitioning.ALWAYS else None


def _key(name: str) -> str:
    """The form in which names are compared: host names have no case."""
    return name.lower()
