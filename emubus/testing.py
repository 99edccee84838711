"""The test kit: an emubus inside the test process, on free ports, with a clock that can be moved.

Knows how to run a `Server` on an event loop of its own in a thread, so that synchronous and asynchronous clients and
programs in other languages can use it alike. Everything here may be called from any thread.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Collection, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import structlog
import uvloop

from .amqp import Target
from .broker.access import SharedKey
from .broker.catalog import Description
from .broker.clock import Clock
from .broker.description import QueueDescription, Topology
from .broker.errors import Condition
from .broker.faults import Fault, FaultKind, FaultOperation
from .broker.http.services import Snapshot
from .broker.limits import Profile, limits_for
from .broker.outage import Outage, OutageKind
from .config import Auth, Config, Tls, load_config
from .server import Server
from .storage.contract import Durability
from .tls import ca_file

T = TypeVar("T")
CALL_TIMEOUT_S = 30.0


class EmubusServer:
    """A running emubus; use it as a context manager, or call `close()`.

    Without `data_dir` it keeps everything in memory. `keys` are known besides the root key. With `tls_dir` its ports
    answer TLS too, with a certificate of the CA that is kept (or made, the first time) in that folder. The clock shows
    the machine's time until `advance` moves it.
    """

    def __init__(
        self,
        queues: Sequence[QueueDescription] = (),
        *,
        data_dir: Path | None = None,
        durability: Durability | None = None,
        profile: Profile = Profile.STANDARD,
        auth: Auth = Auth.NONE,
        keys: Sequence[SharedKey] = (),
        tls_dir: Path | None = None,
    ) -> None:
        base = load_config({"durability": "none", "amqp_port": "0", "http_port": "0", "auth": auth.value}, {})
        config: Config = replace(
            base,
            topology=Topology(queues=tuple(queues)),
            limits=limits_for(profile),
            keys=(*base.keys, *keys),
            data_dir=data_dir,
            durability=durability or (Durability.NONE if data_dir is None else Durability.FULL),
            tls=Tls.OFF if tls_dir is None else Tls.DEV,
            tls_dir=base.tls_dir if tls_dir is None else tls_dir,
        )
        self.ca_file = None if tls_dir is None else ca_file(tls_dir)
        if not structlog.is_configured():  # a test's output is no place for a line per link
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

    # ---- where it is

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
        """What a Service Bus SDK wants to know: its clients for data and for administration alike."""
        return f"{self.tls_connection_string};UseDevelopmentEmulator=true;"

    @property
    def tls_connection_string(self) -> str:
        """The same for clients that shall use TLS; they must trust `ca_file`."""
        return (
            f"Endpoint=sb://localhost:{self.amqp_port};SharedAccessKeyName=RootManageSharedAccessKey;"
            "SharedAccessKey=SAS_KEY_VALUE"
        )

    # ---- what can be done to it

    def advance(self, ms: int) -> None:
        """Move the clock forward by `ms`: locks end, messages expire, without anybody waiting."""
        self.call(lambda: self.clock.advance(ms))

    def create(self, description: Description) -> None:
        """Create a queue, topic or subscription; BrokerError if the name is taken or a property is out of range."""
        self.call(lambda: self._server.broker.administration.create(description))

    create_queue = create

    def update(self, description: Description) -> None:
        """Change an entity's properties; BrokerError for what is chosen at creation."""
        self.call(lambda: self._server.broker.administration.update(description))

    def delete(self, path: str) -> None:
        """Delete an entity with everything in it."""
        self.call(lambda: self._server.broker.administration.delete(path))

    def freeze(self) -> None:
        """Stop the clock; `advance` still moves it."""
        self.call(self.clock.freeze)

    def thaw(self) -> None:
        """Let the clock go on from where it stands."""
        self.call(self.clock.thaw)

    def purge(self, path: str | None = None) -> int:
        """Remove all messages and session states of an entity, without a path of all; how many messages it were.

        Links to it are detached, and clients attach again by themselves.
        """
        return self.call(lambda: self._server.broker.upkeep.purge(path))

    def reset(self) -> None:
        """Have the entities of the start, as they were described, without messages; others are deleted."""
        self.call(self._server.broker.upkeep.reset)

    def snapshot(self, name: str) -> Snapshot:
        """Keep all entities and messages as they are now; BrokerError if the name is taken."""
        return self.run(self._server.snapshots.take(name))

    def restore(self, name: str) -> Snapshot:
        """Bring all entities and messages back to what they were; clients attach again by themselves."""
        return self.run(self._server.snapshots.restore(name))

    def add_fault(
        self,
        kind: FaultKind,
        *,
        entity: str | None = None,
        operations: Collection[FaultOperation] = (),
        count: int | None = None,
        probability: float = 1.0,
        delay_ms: int = 0,
    ) -> Fault:
        """Let something go wrong when clients use an entity, or any: `count` times or until `clear_faults`."""
        table = self._server.amqp.faults.table
        return self.call(
            lambda: table.add(
                kind, entity=entity, operations=operations, count=count, probability=probability, delay_ms=delay_ms
            )
        )

    def clear_faults(self) -> int:
        """Let nothing go wrong any more; how many faults were set."""
        return self.call(self._server.amqp.faults.table.clear)

    def drop_connections(self, entity: str | None = None) -> int:
        """Cut the TCP connections of all clients, or of those with a link to `entity`; how many it were."""
        return self.call(lambda: self._server.amqp.faults.drop_connections(Target(entity)))

    def drop_links(self, entity: str, condition: Condition = Condition.DETACH_FORCED) -> int:
        """Detach every link to `entity`, its sub-queues and its `$management` node; how many it were."""
        return self.call(lambda: self._server.amqp.faults.drop_links(Target(entity), condition))

    def begin_outage(
        self, stores: Sequence[int], kind: OutageKind, *, delay_ms: int = 0, duration_ms: int | None = None
    ) -> None:
        """Let messaging stores be down, slow, failing their commits or full, for a time or until `end_outage` (P18)."""
        outage = Outage(kind, delay_ms)
        for index in stores:
            self.call(partial(self._server.broker.begin_outage, index, outage, duration_ms))

    def end_outage(self, stores: Sequence[int]) -> None:
        """The stores work again."""
        for index in stores:
            self.call(partial(self._server.broker.end_outage, index))

    def call(self, function: Callable[[], T]) -> T:
        """Run `function` on the server's event loop; its result."""

        async def on_loop() -> T:
            return function()

        return self.run(on_loop())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the server's event loop; its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_TIMEOUT_S)

    @property
    def server(self) -> Server:
        """The server itself; touch it through `call` and `run` only."""
        return self._server

    def close(self) -> None:
        """Stop; what is in memory is gone, what is in a data folder stays."""
        if self._thread.is_alive():
            try:
                self.run(self._server.stop())
            finally:
                self._end_loop()

    def __enter__(self) -> Self:
        return self

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
