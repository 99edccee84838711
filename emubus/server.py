"""The composition root: stores, workers, AMQP and HTTP, started and stopped in order.

The only file that imports every folder. Knows which part needs which; refuses to know what any of them does.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import sys
from pathlib import Path

import structlog
import uvloop

from .amqp import AmqpListener
from .broker.access import Access
from .broker.broker import Broker
from .broker.catalog import CATALOG_TABLES, Catalog, CatalogError
from .broker.check import check_data_folder
from .broker.clock import Clock
from .broker.description import QueueDescription, SubscriptionDescription, TopicDescription, Topology
from .broker.http import HttpServer
from .broker.records import TABLES
from .broker.sentences import AUTHORITY
from .config import Auth, Config
from .failpoint import failpoint_hook
from .logging import announce_ready
from .storage import Durability, Store, StoreError, open_store

STOP_TIMEOUT_S = 4.0
EXIT_OK, EXIT_FAILED, EXIT_BAD_CONFIG = 0, 1, 2

# The broker makes few reference cycles and many short-lived objects; the default thresholds cost a tenth of the time.
GC_THRESHOLDS = (50_000, 20, 50)
# A commit thread that comes back from the disk must not wait long for the interpreter (default: 5 ms).
SWITCH_INTERVAL_S = 0.0005

log = structlog.get_logger("emubus")


class StartError(Exception):
    """The server can't start; the text is one line for stderr. `exit_code` is 2 for a configuration fault, else 1."""

    def __init__(self, text: str, exit_code: int = EXIT_FAILED) -> None:
        super().__init__(text)
        self.exit_code = exit_code


class Server:
    """One emubus: after `await start()` its ports are bound, `await stop()` leaves nothing running."""

    def __init__(self, config: Config, clock: Clock | None = None) -> None:
        self.config = config
        self.clock = clock or Clock()
        self.amqp_port = config.amqp_port
        self.http_port = config.http_port
        self.ready = False
        self._cleanup = contextlib.AsyncExitStack()
        self._broker: Broker | None = None
        self._amqp: AmqpListener | None = None

    @property
    def broker(self) -> Broker:
        """The namespace; RuntimeError before the start."""
        if self._broker is None:
            raise RuntimeError("the server has not been started")
        return self._broker

    @property
    def amqp(self) -> AmqpListener:
        """The listener for AMQP; RuntimeError before the start."""
        if self._amqp is None:
            raise RuntimeError("the server has not been started")
        return self._amqp

    async def start(self) -> None:
        """Open the stores, merge the configuration, bind the ports; StartError (and nothing left open) if it can't."""
        try:
            await self._start()
        except (StoreError, CatalogError, OSError) as error:
            await self.stop()
            bad_config = isinstance(error, CatalogError)
            raise StartError(str(error), EXIT_BAD_CONFIG if bad_config else EXIT_FAILED) from error
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop listening, let commits end, close the stores."""
        self.ready = False
        await self._cleanup.aclose()

    async def _start(self) -> None:
        config = self.config
        http = HttpServer(config.host, config.http_port, lambda: self.ready)
        self._cleanup.push_async_callback(http.stop)
        self.http_port = await http.start()  # first, so that /health answers 503 while the rest starts
        self._broker = self._open_broker()
        self._cleanup.callback(self.clock.close)
        self._broker.start(config.topology, only_if_new=config.config_file is None)
        self._cleanup.push_async_callback(self._broker.stop)
        access = Access(config.keys, verify=config.auth is Auth.SAS, authority=AUTHORITY)
        self._amqp = AmqpListener(
            self._broker,
            access,
            self.clock,
            config.host,
            config.amqp_port,
            connections_max=config.limits.connections_max,
        )
        self._cleanup.push_async_callback(self._amqp.stop)
        self.amqp_port = await self._amqp.start()
        self.ready = True

    def _open_broker(self) -> Broker:
        config = self.config
        failpoint = failpoint_hook(config.failpoint)
        opened: list[Store] = []
        try:
            opened.append(open_store(_under(config.data_dir, "namespace"), CATALOG_TABLES, config.durability))
            for index in range(config.limits.partition_count):
                path = _under(config.data_dir, f"store-{index:02}")
                opened.append(open_store(path, TABLES, config.durability, failpoint))
            return Broker(Catalog(opened[0]), opened[1:], self.clock, config.limits, failpoint)
        except BaseException:
            for store in opened:
                store.close()
            raise


def run(config: Config) -> int:
    """Serve until SIGTERM or SIGINT; the process's exit code. Faults at the start are one line on stderr."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    try:
        uvloop.run(_serve(config))
    except StartError as error:
        print(f"emubus: {error}", file=sys.stderr)  # noqa: T201 - the one line a user looks for
        return error.exit_code
    return EXIT_OK


async def _serve(config: Config) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    server = Server(config)
    await server.start()
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
        entities=sum(1 for _ in server.broker.entities()),
    )
    announce_ready()
    await stopping.wait()
    log.info("stopping")
    try:
        async with asyncio.timeout(STOP_TIMEOUT_S):
            await server.stop()
    except TimeoutError:
        log.warning("stopped without waiting for everything", waited_s=STOP_TIMEOUT_S)


def check_data(folder: Path) -> int:
    """Verify the data folder of a stopped emubus and print what it holds; 0 if it is sound, else 1."""
    report = check_data_folder(folder)
    print("\n".join(report.lines()))  # noqa: T201 - this is the command's output
    return EXIT_OK if report.sound else EXIT_FAILED


def read_namespace(folder: Path) -> tuple[Topology, int]:
    """The entities in the data folder of a stopped emubus, and its number of messaging stores.

    StoreError if the folder holds none or is in use.
    """
    path = folder / "namespace"
    if not path.is_dir():
        raise StoreError(folder, "not a data folder of emubus: it has no folder 'namespace'")
    catalog = Catalog(open_store(path, CATALOG_TABLES, Durability.PROCESS))
    try:
        found = [entry.description for entry in catalog.entries()]
        topology = Topology(
            queues=tuple(each for each in found if isinstance(each, QueueDescription)),
            topics=tuple(each for each in found if isinstance(each, TopicDescription)),
            subscriptions=tuple(each for each in found if isinstance(each, SubscriptionDescription)),
        )
        return topology, catalog.store_count or 1
    finally:
        catalog.close()


def _under(folder: Path | None, name: str) -> Path | None:
    return None if folder is None else folder / name
