"""The composition root: stores, workers, AMQP and HTTP, started and stopped in order.

The only file that imports every folder. Knows which part needs which, not what they do.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import ipaddress
import ssl
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import structlog
import uvloop

from . import __version__
from .amqp import AmqpServer
from .amqp.limits import Limits as WireLimits
from .announcement import banner, facts, write_ready_file
from .broker.access import Access
from .broker.admin.folder_view import DataFolderError
from .broker.api import TABLES
from .broker.broker import Broker
from .broker.clock import Clock
from .broker.errors import BrokerError, Condition
from .broker.ledger import Caps, Ledger, MemoryAccount
from .broker.model.catalog import CATALOG_TABLES, Catalog, CatalogError, other_store_count
from .broker.model.descriptions import Topology
from .broker.model.profiles import Partitioning, largest_message, limits_over
from .broker.service_errors import HOST_SUFFIX, jms_not_supported
from .conditions.strikes import TlsFailure
from .config import Auth, Config, LogFormat, Tls
from .data_folder import DataFolder
from .exits import EXIT_FAILED, EXIT_OK, EXIT_USAGE
from .failpoint import failpoint_hook
from .listener import Listener
from .logging import announce_ready
from .options import variables_of_process
from .resources import raise_descriptors, sockets_max, trim
from .snapshots import Snapshots, finish_restore
from .stopping import catch_signals, stop_on_signal
from .storage import Durability, Store, StoreError, no_failpoint, open_store
from .story.ring import Story
from .telemetry.sampler import Sampler
from .terminal import write_notes
from .tls import (
    FOLDER,
    HANDSHAKE_FAILURE,
    TlsError,
    ca_file,
    certify,
    context_from_files,
    development_context,
    stranger_context,
)
from .web.lazy_server import LazyHttpServer
from .web.services import Services

if TYPE_CHECKING:
    from .telemetry.otlp import Otlp

STOP_TIMEOUT_S = 4.0
PROBLEMS_MAX = 20
"""Mistakes in an uploaded Config.json that its refusal names."""

# The broker makes few reference cycles and many short-lived objects; the default thresholds cost a tenth of the time.
GC_THRESHOLDS = (50_000, 20, 50)
# A commit thread that returns from the disk must get the interpreter soon (default: 5 ms).
SWITCH_INTERVAL_S = 0.0005

log = structlog.get_logger("emubus")


class StartError(Exception):
    """The server can't start; the text is one line for stderr. `exit_code` is 2 for a configuration fault, else 1."""

    def __init__(self, text: str, exit_code: int = EXIT_FAILED) -> None:
        super().__init__(text)
        self.exit_code = exit_code


class NotReady(asyncio.Protocol):
    """Closes connections that come before the broker has started; clients try again."""

    def __init__(self, account: MemoryAccount) -> None:
        self._account = account

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._account.close()


class Server:
    """One emubus: after `await start()` its ports are bound, `await stop()` leaves nothing running."""

    def __init__(self, config: Config, clock: Clock | None = None) -> None:
        self.config = config
        self.clock = clock or Clock()
        self.amqp_port = config.amqp_port
        self.http_port = config.http_port
        self.more_ports = config.more_ports
        self.ready = False
        self.story = Story(is_on=config.story)
        self.ledger = Ledger(self.clock)
        self._otlp: Otlp | None = None
        self._cleanup = contextlib.AsyncExitStack()
        self._broker: Broker | None = None
        self._amqp: AmqpServer | None = None
        self._stranger: ssl.SSLContext | None = None
        """With a certificate that nobody knows, once a condition wants it."""
        self._snapshots: Snapshots | None = None
        self._sampler: Sampler | None = None
        self._folder: DataFolder | None = None
        self._failpoint: Callable[[str], None] = no_failpoint
        self._http: LazyHttpServer | None = None
        self._listener: Listener | None = None

    @property
    def ports(self) -> dict[str, int]:
        """The listening ports, by name."""
        more = {f"more {number}": port for number, port in enumerate(self.more_ports, 1)}
        return {"amqp": self.amqp_port, "http": self.http_port, **more}

    @property
    def open_to(self) -> list[str]:
        """The addresses beyond loopback while tokens and keys are not verified."""
        if self.config.auth is not Auth.NONE or self._listener is None:
            return []
        return [address for address in self._listener.addresses if not ipaddress.ip_address(address).is_loopback]

    @property
    def broker(self) -> Broker:
        """The namespace; RuntimeError before the start."""
        if self._broker is None:
            raise RuntimeError("the server has not been started")
        return self._broker

    @property
    def amqp(self) -> AmqpServer:
        """The AMQP server; RuntimeError before the start."""
        if self._amqp is None:
            raise RuntimeError("the server has not been started")
        return self._amqp

    @property
    def sampler(self) -> Sampler:
        """The figures over time; RuntimeError before the start."""
        if self._sampler is None:
            raise RuntimeError("the server has not been started")
        return self._sampler

    @property
    def snapshots(self) -> Snapshots:
        """The snapshots of the namespace; RuntimeError before the start."""
        if self._snapshots is None:
            raise RuntimeError("the server has not been started")
        return self._snapshots

    async def start(self) -> None:
        """Open the stores, merge the configuration, bind the ports; StartError, with nothing left open."""
        try:
            await self._start()
        except (StoreError, CatalogError, TlsError, OSError) as error:
            await self.stop()
            bad_config = isinstance(error, CatalogError | DataFolderError | TlsError)
            raise StartError(str(error), EXIT_USAGE if bad_config else EXIT_FAILED) from error
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop listening, let commits end, close the stores."""
        self.ready = False
        if self._listener is not None:
            await self._listener.stop()
        await self._cleanup.aclose()

    async def _start(self) -> None:
        """The order matters: the cleanup ends things in reverse.

        Ports come first, so that a taken one changes nothing on disk; AMQP ends before HTTP, whose WebSockets carry
        it; the certificate is made again once the system has chosen the ports that it names.
        """
        config = self.config
        tls = self._tls_context()
        self.ledger = Ledger(self.clock, Caps.for_messages(largest_message(config.limits), sockets_max()), trim)
        factories = self._new_amqp, self._new_http
        self._listener = listener = Listener(*factories, self.clock, self.ledger, tls, self._handshake)
        self.http_port = listener.listen(config.host, config.http_port)  # first: a taken port changes nothing
        self._broker = self._open_broker()
        self._cleanup.callback(self.clock.close)
        self._cleanup.push_async_callback(self._broker.stop)  # also if it fails to start: it closes the stores
        self._broker.start(config.topology, only_if_new=config.config_file is None)
        access = Access(
            config.keys,
            verify=config.auth is Auth.SAS,
            authority=f"{self._broker.name}{HOST_SUFFIX}",
            entity_keys=self._broker.namespace.entity_keys,
        )
        limits = config.limits
        partitioned = limits.partitioning is Partitioning.ALWAYS
        self._amqp = amqp = AmqpServer(
            self._broker,
            access,
            self.clock,
            limits=WireLimits(own_operations=not config.service_only),
            connections_max=limits.connections_max,
            jms_refusal=None if limits.jms else jms_not_supported(partitioned=partitioned),
        )
        ca = str(ca_file(config.tls_dir)) if config.tls is Tls.DEV else None
        self._snapshots = snapshots = Snapshots(self._broker, self._folder, self._open_stores)
        self._cleanup.push_async_callback(snapshots.stop)
        services = self._services(self._broker, access, amqp, snapshots, ca)
        if self._otlp is not None:
            self._otlp.start(services.metric_sources)
            self._cleanup.push_async_callback(self._otlp.stop)
        self._http = LazyHttpServer(services)
        self._cleanup.push_async_callback(self._http.stop)
        self._cleanup.push_async_callback(self._amqp.stop)  # before HTTP, whose WebSockets carry AMQP
        self.amqp_port = listener.listen(config.host, config.amqp_port)
        self.more_ports = tuple(listener.listen(config.host, port) for port in config.more_ports)
        if tls is not None and ca is not None:  # again, with the names of the ports that the system has chosen
            left_out = certify(tls, config.tls_dir / FOLDER, [config.host], list(self.ports.values()))
            if left_out:
                log.warning(
                    "the development CA was not made for these names, so that TLS clients refuse them; for a new CA, "
                    "which clients have to trust anew, delete its folder",
                    names=", ".join(left_out),
                    folder=str(config.tls_dir / FOLDER),
                )
        self._start_conditions(amqp)
        self.ready = True

    def _services(
        self, broker: Broker, access: Access, amqp: AmqpServer, snapshots: Snapshots, ca: str | None
    ) -> Services:
        """What the HTTP adapter works with."""
        config = self.config
        self._sampler = sampler = Sampler(broker, self.clock)
        sampler.start()
        self._cleanup.callback(sampler.stop)
        return Services(
            broker=broker,
            access=access,
            clock=self.clock,
            is_ready=self._is_ready,
            amqp=amqp.protocol,
            ledger=self.ledger,
            ports=lambda: self.ports,
            faults=amqp.faults,
            conditions=amqp.conditions,
            snapshots=snapshots,
            connection_counts=self._connection_counts,
            connections=amqp.report,
            config_json=self._config_json,
            started_us=self.clock.stopwatch_us(),
            ca_file=ca,
            about={
                "Durability": config.durability.value,
                "Data folder": str(config.data_dir) if config.data_dir else "none: in memory",
                **({} if self._otlp is None else {"Collector": self._otlp.state}),
            },
            story=self.story,
            sampler=sampler,
            allowed_hosts=frozenset(name.lower().removesuffix(".") for name in config.allowed_hosts),
            read_config=self._read_config,
            files=self._folder,
        )

    def _start_conditions(self, amqp: AmqpServer) -> None:
        for name in self.config.conditions:
            try:
                amqp.conditions.start(name, seed=self.config.seed)
            except BrokerError as error:
                raise StartError(f"--conditions: {error.description}", EXIT_USAGE) from None

    def _is_ready(self) -> bool:
        """Whether the server answers, its folder is in place, and not all of its stores fail."""
        if not self.ready or (self._folder is not None and not self._folder.is_in_place()):
            return False
        return any(worker.failure is None for worker in self.broker.namespace.workers)

    def unconfirmed(self) -> str:
        """What the disk has not confirmed, if the process ends now, for its last line; on any thread."""
        workers = () if self._broker is None else self._broker.namespace.workers
        waiting = [str(worker.index) for worker in workers if worker.is_committing]
        failing = [str(worker.index) for worker in workers if worker.failure is not None]
        parts = [
            f"{what} {', '.join(stores)}"
            for what, stores in (("unconfirmed commits in messaging stores", waiting), ("failing stores", failing))
            if stores
        ]
        return (
            f"ends without waiting for its disk any longer ({'; '.join(parts) or 'the last writes are unconfirmed'}). "
            "All that was confirmed to clients is stored; of what was not answered, each batch is stored whole or not."
        )

    def _new_http(self, account: MemoryAccount) -> asyncio.Protocol:
        return self._http.protocol(account) if self._http is not None else NotReady(account)

    def _new_amqp(self, account: MemoryAccount) -> asyncio.Protocol:
        return self._amqp.protocol(account) if self._amqp is not None else NotReady(account)

    def _tls_context(self) -> ssl.SSLContext | None:
        config = self.config
        if config.tls_files is not None:
            return context_from_files(*config.tls_files)
        if config.tls is Tls.DEV:
            return development_context(config.tls_dir / FOLDER, [config.host], makes=False)
        return None

    def _handshake(self) -> ssl.SSLContext | bytes | None:
        """What a TLS client meets in place of our certificate, if a condition says so."""
        conditions = None if self._amqp is None else self._amqp.conditions
        failure = None if conditions is None or not conditions.are_on else conditions.handshake()
        if failure is not TlsFailure.CERTIFICATE:
            return None if failure is None else HANDSHAKE_FAILURE
        if self._stranger is None:
            self._stranger = stranger_context([self.config.host])
        return self._stranger

    def _connection_counts(self) -> dict[str, int]:
        amqp = self.amqp
        return {"connections": amqp.connection_count, "links": amqp.link_count}

    def _config_json(self) -> Callable[[], Mapping[str, object]]:
        from .config_file.writing import config_json  # only for a request that asks for it

        descriptions = [entity.description for entity in self.broker.namespace.entities()]
        return partial(config_json, self.broker.name, descriptions, self.config.keys)

    def _read_config(self, text: str) -> Topology:
        from .config_file.cursor import ConfigFileError  # only for a request that has a file
        from .config_file.reading import parse_config

        try:
            return parse_config(text, self.config.limits).topology
        except ConfigFileError as error:
            raise BrokerError(Condition.ARGUMENT_ERROR, "\n".join(map(str, error.problems[:PROBLEMS_MAX]))) from None

    def _open_broker(self) -> Broker:
        config = self.config
        if config.data_dir is not None:
            self._folder = folder = own_folder(config.data_dir, fresh=config.fresh, durability=config.durability)
            self._cleanup.callback(folder.release)
        self._failpoint = failpoint_hook(config.failpoint)
        self._otlp = None if config.otlp is None else _open_otlp(config.otlp, self.clock)
        observer = self.story if self._otlp is None else self._otlp.observer(self.story)
        broker = Broker(*self._open_stores(), self.clock, config.limits, self._failpoint, observer)
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
                open_store(path, TABLES, durability, self._failpoint, create=False, synced=True, journal=journal)
                for path in paths[1:]
            )
            return Catalog(opened[0]), opened[1:]
        except BaseException:
            for store in opened:
                store.close()
            raise


def _open_otlp(endpoint: str, clock: Clock) -> Otlp | None:
    """None if only the variable for every program asks for it, and the extra is missing. StartError."""
    variables = variables_of_process()
    try:
        from .telemetry.otlp import Otlp, OtlpError  # an extra, which few have
    except ImportError as error:
        what = "--otlp (or OTEL_EXPORTER_OTLP_ENDPOINT) needs OpenTelemetry: pip install 'emubus[otel]'"
        if variables.get("OTEL_EXPORTER_OTLP_ENDPOINT") != endpoint:
            raise StartError(f"{what} ({error})", EXIT_USAGE) from error
        log.warning("no traces and metrics are sent", remedy=what)  # a platform sets it for all its containers
        return None
    try:
        return Otlp(endpoint, variables, clock)
    except OtlpError as error:
        raise StartError(str(error), EXIT_USAGE) from error


def run(config: Config) -> int:
    """Serve until SIGTERM or SIGINT; the process's exit code. Errors at the start are one line on stderr."""
    catch_signals()
    try:
        uvloop.run(_serve(config))
    except StartError as error:
        write_notes([f"emubus: {error}"])
        return error.exit_code
    return EXIT_OK


async def _serve(config: Config) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    raise_descriptors()
    server = Server(config)
    stop_on_signal(lambda: loop.call_soon_threadsafe(stopping.set), server.unconfirmed)
    await server.start()
    if config.ready_file is not None:
        config.ready_file.unlink(missing_ok=True)  # one of an earlier run says nothing of this one
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.set_threshold(*GC_THRESHOLDS)
    gc.freeze()
    for note in config.notes:
        log.info(note)
    log.info(
        "listening",
        host=config.host,
        amqp_port=server.amqp_port,
        http_port=server.http_port,
        data=str(config.data_dir) if config.data_dir else "(in memory)",
        durability=config.durability.value,
        profile=config.limits.profile.value,
        entities=sum(1 for _ in server.broker.namespace.entities()),
    )
    if server.open_to:
        log.warning(
            "no authentication beyond loopback: anyone who can reach this machine has full access",
            addresses=", ".join(server.open_to),
            remedy="--auth sas, or --host 127.0.0.1",
        )
    _announce(server)
    await stopping.wait()
    log.info("stopping")
    if config.ready_file is not None:
        config.ready_file.unlink(missing_ok=True)
    try:
        async with asyncio.timeout(STOP_TIMEOUT_S):  # not on the clock, which the stop closes
            await server.stop()
    except TimeoutError:
        log.warning("stop timed out", waited_s=STOP_TIMEOUT_S)


def _announce(server: Server) -> None:
    """Tell people and scripts that the server is ready, and where."""
    config = server.config
    entities = [(each.description.kind.value, each.path) for each in server.broker.namespace.entities()]
    ca = ca_file(config.tls_dir) if config.tls is Tls.DEV else None
    found = facts(config, server.ports, ca, entities)
    if config.log_format is LogFormat.CONSOLE:
        write_notes(banner(found, config, entities))
    if config.ready_file is not None:
        write_ready_file(config.ready_file, found)
    announce_ready()


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
