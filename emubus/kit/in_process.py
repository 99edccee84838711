"""An emubus inside the test process, on free ports, with a clock that can be moved.

Runs a `Server` on an event loop of its own in a thread, for synchronous and asynchronous clients and programs in other
languages. Everything here may be called from any thread.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from abc import abstractmethod
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeVar

import structlog

from .. import NO_WINDOWS

try:
    import uvloop
except ImportError as error:
    raise ImportError(f"{NO_WINDOWS} ({error})") from error

from ..broker.access import DEFAULT_KEY, DEFAULT_KEY_NAME
from ..broker.admin.overview import Overview, Route
from ..broker.api import Outage, OutageKind
from ..broker.clock import Clock
from ..broker.directory import KnownIdentity
from ..broker.errors import Condition
from ..broker.keys import SharedKey
from ..broker.model.catalog import Description
from ..broker.model.descriptions import (
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
    Topology,
)
from ..broker.model.profiles import Profile, defaults_of
from ..broker.names import NamespaceName, SnapshotName
from ..broker.roles import RoleAssignment
from ..conditions.behaviour import Value
from ..conditions.faults import Fault, FaultKind, FaultOperation
from ..config import Auth, Config, ConfigError, Durability, NamespaceConfig, Tls, load_config
from ..server import Server
from ..tls import ca_file
from ..web.control.entities import MESSAGES_BYTES_MAX, MESSAGES_MAX, SUB_QUEUES
from ..web.control.message_json import message_json
from ..web.services import Services, Snapshot
from .answers import Answer
from .condition_names import ConditionName
from .conditions import ConditionReport, parameters_of, report_of
from .remote import RemoteEmubus
from .values import (
    MessageCounts,
    PeekedMessage,
    choice_of,
    in_ms,
    message_in,
    stores_of,
    sub_queue_of,
    subscription_of,
)
from .verbs import Verbs

T = TypeVar("T")
CALL_TIMEOUT_S = 300.0
KEY: Final = f"SharedAccessKeyName={DEFAULT_KEY_NAME};SharedAccessKey={DEFAULT_KEY}"


class VerbsInProcess(Verbs):
    """The verbs on one namespace of a server in this process; any thread may call them."""

    @property
    @abstractmethod
    def _services(self) -> Services:
        """What the namespace works with."""

    @abstractmethod
    def run(self, work: Coroutine[object, None, T]) -> T:
        """Run a coroutine on the server's event loop; returns its result."""

    @property
    @abstractmethod
    def _over_http(self) -> RemoteEmubus:
        """The namespace as a client of the control API has it."""

    def _control(self, method: str, path: str, body: object = None) -> Answer:
        return self._over_http._control(method, path, body)

    def call(self, function: Callable[[], T]) -> T:
        """Run `function` on the server's event loop; returns its result."""

        async def on_loop() -> T:
            return function()

        return self.run(on_loop())

    def now_ms(self) -> int:
        """The time of the clock, in Unix milliseconds."""
        return self.call(self._services.clock.now_ms)

    def advance(self, by: int | timedelta) -> None:
        """Move the clock forward, by milliseconds or a timedelta: locks and messages expire at once."""
        self.call(lambda: self._services.clock.advance_instants(in_ms(by)))

    def create(self, description: Description) -> None:
        """Create a queue, topic or subscription; BrokerError if the name is taken or a property is out of range."""
        self.call(lambda: self._services.broker.administration.create(description))

    def create_queue(self, queue: QueueDescription | str) -> None:
        """Create a queue; properties that are not given come from the profile, as for clients."""
        if isinstance(queue, str):
            queue = QueueDescription(queue, **defaults_of(QueueDescription, self._services.broker.limits))
        self.create(queue)

    def create_topic(self, topic: TopicDescription | str) -> None:
        """Create a topic, in the same way."""
        if isinstance(topic, str):
            topic = TopicDescription(topic, **defaults_of(TopicDescription, self._services.broker.limits))
        self.create(topic)

    def create_subscription(self, subscription: SubscriptionDescription | str) -> None:
        """Create a subscription of a topic, with its rules; by name alone, `topic/name`, it receives every message."""
        if isinstance(subscription, str):
            topic, name = subscription_of(subscription)
            defaults = defaults_of(SubscriptionDescription, self._services.broker.limits)
            subscription = SubscriptionDescription(topic, name, **defaults)
        self.create(subscription)

    def update(self, description: Description) -> None:
        """Change an entity's properties; BrokerError for one that is fixed at creation."""
        self.call(lambda: self._services.broker.administration.update(description))

    def delete(self, path: str) -> None:
        """Delete an entity with everything in it."""
        self.call(lambda: self._services.broker.administration.delete(path))

    def freeze(self) -> None:
        """Freeze the clock; `advance` still moves it."""
        self.call(self._services.clock.freeze)

    def thaw(self) -> None:
        """Thaw the clock; it goes on from where it stands."""
        self.call(self._services.clock.thaw)

    def purge(self, path: str | None = None) -> int:
        """Remove all messages and session states of an entity, or of all; returns the number of messages.

        Links to it are detached, and SDKs reconnect on their own.
        """
        return self.call(lambda: self._services.broker.maintenance.purge(path))

    def reset(self) -> None:
        """Reset to the state at the start: its entities without messages, no faults of any kind, the machine's time,
        no refusals and no story.

        Links are detached, and SDKs reconnect on their own. Snapshots are kept.
        """
        self.call(self._start_over)
        self.started_conditions.clear()

    def _start_over(self) -> None:
        self._services.conditions.start_over()
        self._services.broker.maintenance.start_over()
        self._services.broker.refusals.forget()
        self._services.story.forget()

    def peek(self, path: str, sub_queue: str | None = "active") -> list[PeekedMessage]:
        """All messages of an entity, by peeking: does not lock, does not reset AutoDeleteOnIdle.

        `sub_queue` is active (with deferred and scheduled ones), dead-letter or transfer-dead-letter; the words of SDKs
        are known, too: deadletter, ServiceBusSubQueue.DEAD_LETTER, $DeadLetterQueue.
        """
        return self.run(self._peek(path, sub_queue_of(sub_queue)))

    async def _peek(self, path: str, sub_queue: str) -> list[PeekedMessage]:
        overview = Overview(self._services.broker.namespace)
        entity = overview.entity(path)
        found: list[PeekedMessage] = []
        first: int | None = 0
        while first is not None:
            page = await overview.messages(
                entity, SUB_QUEUES[sub_queue], first=first, count=MESSAGES_MAX, bytes_max=MESSAGES_BYTES_MAX
            )
            found += (message_in(Answer(message_json(each))) for each in page.messages)
            first = page.next_sequence_number
        return found

    def message_counts(self, path: str) -> MessageCounts:
        overview = Overview(self._services.broker.namespace)
        return self.call(lambda: MessageCounts(overview.report(overview.entity(path)).messages))

    def route(self, path: str, key: str | None = None) -> Route:
        """Where a message with a key (SessionId or PartitionKey) would go: its partition and store."""
        overview = Overview(self._services.broker.namespace)
        nothing: dict[str, None] = {"session_id": None, "partition_key": None}
        return self.call(lambda: overview.route(overview.entity(path), **nothing, key=key))

    def snapshot(self, name: str) -> Snapshot:
        """Take a snapshot of all entities and messages; BrokerError if the name is taken."""
        return self.run(self._services.snapshots.take(SnapshotName(name)))

    def restore(self, name: str) -> Snapshot:
        """Restore a snapshot; clients attach again by themselves."""
        return self.run(self._services.snapshots.restore(SnapshotName(name)))

    def add_fault(
        self,
        kind: FaultKind | str,
        *,
        entity: str | None = None,
        operations: Collection[FaultOperation | str] = (),
        count: int | None = None,
        probability: float = 1.0,
        delay_ms: int = 0,
    ) -> Fault:
        """Inject a fault into operations of clients on an entity, or on any: `count` times or until `clear_faults`.

        Kind and operations may be words: `add_fault("server-busy", operations=["send"])`.
        """
        begin = partial(
            self._services.conditions.set_fault,
            choice_of(FaultKind, kind, "kind"),
            entity=entity,
            operations=[choice_of(FaultOperation, each, "operations") for each in operations],
            count=count,
            probability=probability,
            delay_ms=delay_ms,
        )
        return self.call(begin)

    def clear_faults(self) -> int:
        """Clear all faults; returns how many were set."""
        return self.call(self._services.conditions.clear_faults)

    def start_condition(
        self,
        name: ConditionName | str,
        *,
        seed: int = 0,
        entity: str | None = None,
        duration_ms: int | None = None,
        count: int | None = None,
        **values: Value,
    ) -> ConditionReport:
        """Start a preset or a single behaviour: for a time, for `count` strikes, or until it is ended.

        `values` are parameters: of a single behaviour by name, of a preset as `behaviour__parameter` with underscores
        for hyphens, such as `throttle_credits__credits_per_s`.
        """
        given = parameters_of(name, values)
        start = partial(self._services.conditions.start, name, seed=seed, entity=entity, values=given)
        number = self.call(partial(start, duration_ms=duration_ms, count=count)).number
        self.started_conditions.append(number)
        return self.condition(number)

    def condition(self, number: int) -> ConditionReport:
        """A condition with what struck so far; one that has ended can be read for a while."""
        return self.call(partial(report_of, self._services.conditions, number))

    def end_condition(self, number: int) -> None:
        """End a condition; nothing if it has ended."""
        self.call(partial(self._services.conditions.end, number))

    def end_conditions(self) -> int:
        """End all conditions; returns how many were on."""
        return self.call(self._services.conditions.end_all)

    def _entity_count(self) -> int:
        return self.call(lambda: sum(1 for _ in self._services.broker.namespace.entities()))

    def drop_connections(self, entity: str | None = None) -> int:
        """Cut the TCP connections of all clients, or of those with a link to `entity`; returns how many."""
        return self.call(lambda: self._services.faults.drop_connections_of(entity))

    def drop_links(self, entity: str, condition: Condition = Condition.DETACH_FORCED) -> int:
        """Detach every link to `entity`, its sub-queues and its `$management` node; returns how many."""
        return self.call(lambda: self._services.faults.drop_links_of(entity, condition))

    def roles(self) -> list[RoleAssignment]:
        """The roles of identities, which clients need with `auth=Auth.RBAC`."""
        return self.call(lambda: self._services.roles.list())

    def assign_role(self, identity: str, role: str, entity: str | None = None) -> None:
        """Assign a role to a client id, an object id or the id of a resource; without `entity` on the namespace."""
        assignment = RoleAssignment.parse(identity, role, entity)
        self.run(self._services.roles.assign(assignment))

    def remove_role(self, identity: str, role: str, entity: str | None = None) -> None:
        """Take a role away; links that need it are detached."""
        assignment = RoleAssignment.parse(identity, role, entity)
        self.run(self._services.roles.remove(assignment))

    def begin_outage(
        self,
        stores: int | Collection[int],
        kind: OutageKind | str = OutageKind.DOWN,
        *,
        delay_ms: int = 0,
        duration_ms: int | None = None,
    ) -> None:
        """Begin an outage of a messaging store or several (down, slow, failing, full), for a time or until
        `end_outage` (P18)."""
        outage, broker = Outage(choice_of(OutageKind, kind, "kind"), delay_ms), self._services.broker
        self.call(partial(broker.outages.check_stores, stores_of(stores)))
        for index in stores_of(stores):
            self.call(partial(broker.outages.begin, index, outage, duration_ms))

    def end_outage(self, stores: int | Collection[int]) -> None:
        """End outages of stores."""
        self.call(partial(self._services.broker.outages.check_stores, stores_of(stores)))
        for index in stores_of(stores):
            self.call(partial(self._services.broker.outages.end, index))


class EmubusServer(VerbsInProcess):
    """A running emubus with these entities, or those of `config_file`; use it with `with`, `async with`, or `close()`.

    Without `data_dir` it keeps everything in memory. `keys` are valid besides the root key. With `auth=Auth.RBAC` a
    client that shows the token of an identity needs one of the `roles`; `identities` have secrets. With `tls_dir` its
    ports also accept TLS, with a certificate of the development CA in that folder (made the first time). A Premium
    namespace is partitioned with `premium_partitions`. `namespaces` has the entities of further ones by their names,
    each with a port of its own; `namespace(name)` has their verbs. `otlp` is the URL of an OpenTelemetry collector.
    With `service_only` emubus's own operations are not known. `story` keeps what happens to messages. The clock
    shows the machine's time until `advance` moves it.
    """

    def __init__(
        self,
        entities: Sequence[Description] = (),
        *,
        config_file: Path | str | None = None,
        data_dir: Path | None = None,
        durability: Durability | None = None,
        profile: Profile = Profile.STANDARD,
        premium_partitions: int | None = None,
        auth: Auth = Auth.NONE,
        keys: Sequence[SharedKey] = (),
        identities: Sequence[KnownIdentity] = (),
        roles: Sequence[RoleAssignment] = (),
        tls_dir: Path | None = None,
        namespaces: Mapping[str, Sequence[Description]] | None = None,
        otlp: str | None = None,
        service_only: bool = False,
        story: bool = False,
    ) -> None:
        if entities and config_file is not None:
            raise ValueError(f"give either entities or a config_file, not both; config_file is {config_file}")
        asked = {"durability": "none", "amqp_port": "0", "http_port": "0", "auth": auth.value, "profile": profile.value}
        if premium_partitions is not None:
            asked["premium_partitions"] = str(premium_partitions)
        base = load_config(asked if config_file is None else {**asked, "config": str(config_file)}, {})
        config: Config = replace(
            base,
            topology=base.topology if config_file is not None else topology_of(entities),
            keys=(*base.keys, *keys),
            identities=(*base.identities, *identities),
            roles=(*base.roles, *roles),
            more_namespaces=(*base.more_namespaces, *_namespaces_of(namespaces or {}, base)),
            data_dir=data_dir,
            durability=durability or (Durability.NONE if data_dir is None else Durability.SECOND),
            otlp=otlp,
            service_only=service_only,
            story=story,
            tls=Tls.OFF if tls_dir is None else Tls.DEV,
            tls_dir=base.tls_dir if tls_dir is None else tls_dir,
        )
        self.ca_file = None if tls_dir is None else ca_file(tls_dir)
        if not structlog.is_configured():  # keep the log out of the tests' output
            structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
        self._loop = uvloop.new_event_loop()
        self.clock = Clock()
        self._server = Server(config, self.clock)
        self._thread = threading.Thread(target=self._run, name="emubus", daemon=True)
        self._thread.start()
        try:
            self.run(self._server.start())
        except BaseException:
            self._end_loop()
            raise

    # ---- addresses

    @property
    def amqp_port(self) -> int:
        """The port for AMQP."""
        return self._server.amqp_port

    @property
    def http_port(self) -> int:
        """The port for HTTP."""
        return self._server.http_port

    @property
    def connection_string(self) -> str:
        """The connection string, for data and administration clients."""
        return f"{self.tls_connection_string};UseDevelopmentEmulator=true;"

    @property
    def tls_connection_string(self) -> str:
        """The connection string for TLS; clients must trust `ca_file`."""
        return f"Endpoint=sb://localhost:{self.amqp_port};{KEY}"

    def namespace(self, name: str) -> EmubusNamespace:
        """The same verbs on a namespace, which may be another than the first. BrokerError (not-found)."""
        return EmubusNamespace(self, self.run(self._server.namespaces.open(name)))

    def run(self, work: Coroutine[object, None, T]) -> T:
        """Run a coroutine on the server's event loop; returns its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_TIMEOUT_S)

    @property
    def _services(self) -> Services:
        return self._server.first.services

    @property
    def _over_http(self) -> RemoteEmubus:
        return RemoteEmubus(f"http://localhost:{self.http_port}")

    @property
    def server(self) -> Server:
        """The server itself; use it through `call` and `run` only."""
        return self._server

    def close(self) -> None:
        """Stop the server; data in memory is lost, data in a data folder is kept."""
        if self._thread.is_alive():
            try:
                self.run(self._server.stop())
            finally:
                self._end_loop()

    def __enter__(self) -> Self:
        return self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.close()

    def _end_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CALL_TIMEOUT_S)


class EmubusNamespace(VerbsInProcess):
    """A namespace of an `EmubusServer`: the same verbs, and its connection strings. It ends with the server."""

    def __init__(self, server: EmubusServer, services: Services) -> None:
        self._of = server
        self._reached = services

    @property
    def name(self) -> str:
        return self._reached.broker.name

    @property
    def connection_string(self) -> str:
        return f"{self.tls_connection_string};UseDevelopmentEmulator=true;"

    @property
    def tls_connection_string(self) -> str:
        """The connection string for TLS; clients must trust the `ca_file` of the server."""
        report = self._of.call(lambda: self._reached.namespaces.get(self.name))
        host, port = (report.host, self._of.amqp_port) if report.port is None else ("localhost", report.port)
        return f"Endpoint=sb://{host}:{port};{KEY}"

    def run(self, work: Coroutine[object, None, T]) -> T:
        return self._of.run(work)

    @property
    def _over_http(self) -> RemoteEmubus:
        return RemoteEmubus(f"http://localhost:{self._of.http_port}", namespace=self.name)

    @property
    def _services(self) -> Services:
        return self._reached


def _namespaces_of(namespaces: Mapping[str, Sequence[Description]], config: Config) -> list[NamespaceConfig]:
    """BrokerError for a name that none can have; ConfigError for one that is taken."""
    taken = [each.lower() for each in (config.topology.namespace, *(more.name for more in config.more_namespaces))]
    for name in namespaces:
        if NamespaceName(name).key in taken:
            raise ConfigError(f"namespaces has {name!r}, which is there already: give each name once")
        taken.append(NamespaceName(name).key)
    return [
        NamespaceConfig(replace(topology_of(entities), namespace=name), config.limits, port=0)
        for name, entities in namespaces.items()
    ]


def topology_of(entities: Sequence[Description]) -> Topology:
    return Topology(
        queues=tuple(each for each in entities if isinstance(each, QueueDescription)),
        topics=tuple(each for each in entities if isinstance(each, TopicDescription)),
        subscriptions=tuple(each for each in entities if isinstance(each, SubscriptionDescription)),
    )


def server_like(config_file: Path | None, profile: str | None) -> EmubusServer:
    """A server with the entities that `emubus serve` would have with these settings, and the story; ConfigError."""
    path = None if config_file is None else str(config_file)
    config = load_config({"config": path, "profile": profile, "durability": "none"}, {})
    if config.config_file is not None:
        return EmubusServer(config_file=config.config_file, profile=config.limits.profile, story=True)
    return EmubusServer(config.topology.queues, profile=config.limits.profile, story=True)
