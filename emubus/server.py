"""The composition root: stores, workers, AMQP and HTTP, started and stopped in order.

The only file that imports every folder. Knows which part needs which, not what they do.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import ipaddress
import socket
import ssl
import sys
from functools import partial
from typing import TYPE_CHECKING

import structlog
import uvloop

from .amqp import AmqpServer
from .announcement import Facts, banner, facts, forget_ready_file, write_ready_file
from .broker.admin.folder_view import DataFolderError
from .broker.broker import Broker
from .broker.clock import Clock
from .broker.errors import BrokerError
from .broker.ledger import Caps, Ledger, MemoryAccount
from .broker.model.catalog import CatalogError
from .broker.model.profiles import largest_message
from .broker.roles import Roles
from .conditions.strikes import TlsFailure
from .config import Auth, Config, LogFormat, Tls
from .exits import EXIT_FAILED, EXIT_OK, EXIT_USAGE
from .failpoint import failpoint_hook
from .listener import Listener, Reached
from .logging import announce_ready
from .namespace import HostedNamespace, Shared
from .namespaces import Doors, Namespaces
from .options import ConfigError, variables_of_process
from .resources import raise_descriptors, sockets_max, trim
from .running import Left, Running, leave
from .snapshots import Snapshots
from .stopping import catch_signals, let_signals_go, stop_on_signal
from .storage import StoreError
from .story.ring import Story
from .telemetry.sampler import Sampler
from .terminal import write_errors, write_notes
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

GC_THRESHOLDS = (50_000, 2, 500)
"""The broker makes few reference cycles and many short-lived objects; the default thresholds cost a tenth of the time.

A collection stops the loop for about 0.6 us an object, so the first two numbers bound a pause: with (50 000, 20) a
million young objects came together behind copies of messages and large requests, and one collection took 375 to 600 ms.
Each object is looked at once a generation, so more and smaller collections cost the same. The last number keeps whole
collections as rare as they were."""
YOUNG_OBJECTS_MAX = 150_000
"""As many as take 100 ms."""
assert GC_THRESHOLDS[0] * (GC_THRESHOLDS[1] + 1) <= YOUNG_OBJECTS_MAX, "a collection would hold up a send for too long"
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
        self.ledger = Ledger(self.clock)
        self._otlp: Otlp | None = None
        self._cleanup = contextlib.AsyncExitStack()
        self._namespaces: Namespaces | None = None
        self._stranger: ssl.SSLContext | None = None
        """With a certificate that nobody knows, once a condition wants it."""
        self._http: LazyHttpServer | None = None
        self._listener: Listener | None = None

    @property
    def ports(self) -> dict[str, int]:
        """The listening ports, by name."""
        more = {f"more {number}": port for number, port in enumerate(self.more_ports, 1)}
        own = {} if self._namespaces is None else self._namespaces.ports
        return {"amqp": self.amqp_port, "http": self.http_port, **more, **own}

    @property
    def open_to(self) -> list[str]:
        """The addresses beyond loopback while tokens and keys are not verified."""
        if self.config.auth is not Auth.NONE or self._listener is None:
            return []
        return [address for address in self._listener.addresses if not ipaddress.ip_address(address).is_loopback]

    @property
    def namespaces(self) -> Namespaces:
        """All namespaces; RuntimeError before the start."""
        if self._namespaces is None:
            raise RuntimeError("the server has not been started")
        return self._namespaces

    @property
    def first(self) -> HostedNamespace:
        """The first namespace; RuntimeError before the start."""
        return self.namespaces.first

    @property
    def broker(self) -> Broker:
        """The first namespace's broker; RuntimeError before the start."""
        return self.first.broker

    @property
    def amqp(self) -> AmqpServer:
        """Its AMQP server; RuntimeError before the start."""
        return self.first.amqp

    @property
    def story(self) -> Story:
        """Its last events of messages; RuntimeError before the start."""
        return self.first.story

    @property
    def roles(self) -> Roles:
        """The roles of its identities; RuntimeError before the start."""
        return self.first.roles

    @property
    def sampler(self) -> Sampler:
        """Its figures over time; RuntimeError before the start."""
        return self.first.sampler

    @property
    def snapshots(self) -> Snapshots:
        """Its snapshots; RuntimeError before the start."""
        return self.first.snapshots

    async def start(self) -> None:
        """Open the stores, merge the configuration, bind the ports; StartError, with nothing left open."""
        try:
            await self._start()
        except (StoreError, CatalogError, ConfigError, TlsError, OSError) as error:
            await self.stop()
            bad_config = isinstance(error, CatalogError | ConfigError | DataFolderError | TlsError)
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
        self._check_conditions()
        tls = self._tls_context()
        self.ledger = Ledger(self.clock, self._caps(), trim)
        factories = self._new_amqp, self._new_http
        self._listener = listener = Listener(*factories, self.clock, self.ledger, tls, self._handshake)
        self.http_port = _listen(listener, config, config.http_port, "http_port")  # first: a taken port changes nothing
        self._cleanup.callback(self.clock.close)
        self._otlp = None if config.otlp is None else _open_otlp(config.otlp, self.clock)
        ca = str(ca_file(config.tls_dir)) if config.tls is Tls.DEV else None
        doors = Doors(partial(listener.listen, config.host), listener.stop_listening, self._forget_namespace)
        self._namespaces = namespaces = Namespaces(config, self._shared(ca), doors, self.clock)
        self._cleanup.push_async_callback(namespaces.close)
        namespaces.open_first()
        if self._otlp is not None:
            self._otlp.start(namespaces.first.services.metric_sources)
            self._cleanup.push_async_callback(self._otlp.stop)
        self._http = LazyHttpServer(namespaces.first.services)
        self._cleanup.push_async_callback(self._http.stop)
        self._cleanup.push_async_callback(namespaces.stop_amqp)  # before HTTP, whose WebSockets carry AMQP
        self.amqp_port = _listen(listener, config, config.amqp_port, "amqp_port")
        self.more_ports = tuple(_listen(listener, config, port, "tls_port") for port in config.more_ports)
        namespaces.listen()
        if tls is not None and ca is not None:  # again, with the names of the ports that the system has chosen
            left_out = certify(tls, config.tls_dir / FOLDER, [config.host], list(self.ports.values()))
            if left_out:
                log.warning(
                    "the development CA was not made for these names, so that TLS clients refuse them; for a new CA, "
                    "which clients have to trust anew, delete its folder",
                    names=", ".join(left_out),
                    folder=str(config.tls_dir / FOLDER),
                )
        namespaces.first.start_conditions()
        self.ready = True

    def _caps(self) -> Caps:
        largest = max(
            map(largest_message, [self.config.limits, *(each.limits for each in self.config.more_namespaces)])
        )
        return Caps.for_messages(largest, sockets_max())

    def _shared(self, ca: str | None) -> Shared:
        """What all namespaces have in common."""
        return Shared(
            ledger=self.ledger,
            failpoint=failpoint_hook(self.config.failpoint),
            otlp=self._otlp,
            ca=ca,
            ports=lambda: self.ports,
            is_ready=self._is_ready,
            started_us=self.clock.stopwatch_us(),
        )

    def _forget_namespace(self, services: Services) -> None:
        """The HTTP server shall forget a namespace that is deleted."""
        if self._http is not None:
            self._http.forget(services)

    def _check_conditions(self) -> None:
        """StartError for a name that is not known, before anything is made and any condition begins."""
        if not self.config.conditions:
            return
        from .conditions.engine import behaviours_of  # loads the table of all that can go wrong

        try:
            for name in self.config.conditions:
                behaviours_of(name, {})
        except BrokerError as error:
            raise StartError(f"{self.config.said('conditions')}: {error.description}", EXIT_USAGE) from None

    def _is_ready(self) -> bool:
        """Whether the server answers, and each namespace that is open can do its work."""
        return self.ready and all(each.is_sound() for each in self.namespaces.opened())

    def unconfirmed(self) -> str:
        """What the disk has not confirmed, if the process ends now, for its last line; on any thread."""
        opened = [] if self._namespaces is None else list(self._namespaces.opened())
        workers = [worker for each in opened for worker in each.broker.namespace.workers]
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

    def _new_http(self, account: MemoryAccount, reached: Reached) -> asyncio.Protocol:
        del reached  # each request names its host, and its connection knows the port
        return self._http.protocol(account) if self._http is not None else NotReady(account)

    def _new_amqp(self, account: MemoryAccount, reached: Reached) -> asyncio.Protocol:
        if self._http is None:
            return NotReady(account)
        server, find = self.namespaces.amqp_reached(*reached)
        return server.protocol(account, find)

    def _tls_context(self) -> ssl.SSLContext | None:
        config = self.config
        if config.tls_files is not None:
            return context_from_files(*config.tls_files)
        if config.tls is Tls.DEV:
            return development_context(config.tls_dir / FOLDER, [config.host], makes=False)
        return None

    def _handshake(self) -> ssl.SSLContext | bytes | None:
        """What a TLS client meets in place of our certificate, if a condition says so."""
        conditions = self.amqp.conditions if self.ready else None
        failure = None if conditions is None or not conditions.are_on else conditions.handshake()
        if failure is not TlsFailure.CERTIFICATE:
            return None if failure is None else HANDSHAKE_FAILURE
        if self._stranger is None:
            self._stranger = stranger_context([self.config.host])
        return self._stranger


def _listen(listener: Listener, config: Config, port: int, option: str) -> int:
    """Listen on the port of an option, and return it. StartError with what to do about it."""
    host, by_host, flag = config.host, config.said("host"), config.said(option)
    try:
        return listener.listen(host, port)
    except socket.gaierror as error:
        remedy = "name an address of this machine, such as 127.0.0.1, or 0.0.0.0 for all"
        raise StartError(f"{by_host} {host} is not known ({error.strerror}): {remedy}", EXIT_USAGE) from error
    except OSError as error:
        remedies = {
            errno.EADDRINUSE: f"another program has it, perhaps an emubus that runs; {flag} 0 takes a free one",
            errno.EACCES: f"only root may take it; {flag} 0 takes a free one",
            errno.EADDRNOTAVAIL: f"{by_host} {host} is no address of this machine; 127.0.0.1 is, and 0.0.0.0 means all",
        }
        remedy = remedies.get(error.errno or 0, f"{flag} and {by_host} choose another one")
        raise StartError(f"{error.strerror}: {remedy}") from error


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
        let_signals_go()
        write_errors([str(error)])
        return error.exit_code
    return EXIT_OK


async def _serve(config: Config) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    raise_descriptors()
    server = Server(config)
    stop_on_signal(lambda: loop.call_soon_threadsafe(stopping.set), server.unconfirmed)
    if config.ready_file is not None:
        try:
            forget_ready_file(config.ready_file, config.said("ready_file"))
        except ConfigError as error:
            raise StartError(str(error), EXIT_USAGE) from error
    await server.start()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.set_threshold(*GC_THRESHOLDS)
    gc.freeze()
    for note in config.notes:
        log.info(note)
    for warning in config.warnings:
        log.warning(warning)
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
    left = _announce(server)
    await stopping.wait()
    log.info("stopping")
    if left is not None:
        left.remove()
    if config.ready_file is not None:
        with contextlib.suppress(OSError):
            config.ready_file.unlink(missing_ok=True)
    try:
        async with asyncio.timeout(STOP_TIMEOUT_S):  # not on the clock, which the stop closes
            await server.stop()
    except TimeoutError:
        log.warning("stop timed out", waited_s=STOP_TIMEOUT_S)


def _announce(server: Server) -> Left | None:
    """Tell people and scripts that the server is ready, and where."""
    config = server.config
    entities = [(each.description.kind.value, each.path) for each in server.broker.namespace.entities()]
    ca = ca_file(config.tls_dir) if config.tls is Tls.DEV else None
    found = facts(config, server.ports, ca, entities)
    if config.log_format is LogFormat.CONSOLE:
        write_notes(banner(found, config, entities))
    if config.ready_file is not None:
        write_ready_file(config.ready_file, found, config.said("ready_file"))
    left = _leave_address(found, config)
    announce_ready()
    return left


def _leave_address(found: Facts, config: Config) -> Left | None:
    """For the command line, which finds the server by it; without a folder it has to be named."""
    data = None if config.data_dir is None else str(config.data_dir.resolve())
    try:
        return leave(Running(found["url"], found["http_port"], found["amqp_port"], data))
    except OSError as error:
        log.info("commands have to name this server (--url): its address can't be left", cause=str(error))
        return None
