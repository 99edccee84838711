"""The facade: what adapters call. It holds the running namespace and one object for each kind of verb.

`Broker` itself starts, stops and opens links. Does not decide about messages (`partition/`), does not create entities
(`admin/`), and speaks no protocol. Owned by the composition root; everything here runs on the event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ..storage import Store, no_failpoint
from . import service_errors
from .address import SubQueue
from .admin.administration import Administration
from .admin.jms import JmsEntities
from .admin.maintenance import Maintenance
from .admin.refusal_log import RefusalLog
from .clock import Clock
from .entities.entity import Entity
from .entities.links import Deliver, Detached, Matches, Receiver, Sender, SessionAccept, SessionReceiver
from .entities.namespace import Namespace, nowhere
from .errors import BrokerError
from .messages import Messages
from .model.catalog import Catalog
from .model.descriptions import Topology
from .model.profiles import Limits
from .outages import Outages
from .partition.contract import Observer, ReceiveMode, SharedLock
from .repeated_lines import RepeatedLines
from .sessions import Sessions
from .strikes import Strikes
from .transactional import TransactionalWork


class Broker:
    """One namespace over `stores` (one worker for each) and the `catalog` of its entities, within `limits`."""

    def __init__(
        self,
        catalog: Catalog,
        stores: Sequence[Store],
        clock: Clock,
        limits: Limits,
        failpoint: Callable[[str], None] = no_failpoint,
        observer: Observer | None = None,
        is_elsewhere: Callable[[str], bool] = nowhere,
    ) -> None:
        self.namespace = Namespace(catalog, stores, clock, limits, failpoint, observer, is_elsewhere)
        """The entities at run time, found by address."""
        self.clock = clock
        self.turn_end = self.namespace.turn_end
        """For what brings requests: they are executed behind its input if it is `open`."""
        self.messages = Messages(self.namespace)
        self.sessions = Sessions(self.namespace)
        self.transactions = self.namespace.transactions
        self.work = TransactionalWork(self.namespace)
        """What transactions collect."""
        self.outages = Outages(self.namespace)
        self.strikes = Strikes(self.namespace)
        self.administration = Administration(self.namespace)
        self.maintenance = Maintenance(self.namespace, self.administration)
        self.jms = JmsEntities(self.namespace, self.administration)
        self.refusals = RefusalLog(
            lambda: (each.path for each in self.namespace.entities()), now_ms=lambda: self.clock.now_ms()
        )
        self.lines = RepeatedLines(clock)
        """Writes what any client can make the log say."""

    @property
    def name(self) -> str:
        return self.namespace.name

    @property
    def limits(self) -> Limits:
        return self.namespace.limits

    def entities(self) -> Iterator[Entity]:
        """All queues, topics and subscriptions. Programs that judge a data folder from outside begin here."""
        return self.namespace.entities()

    # ---- life

    def start(self, topology: Topology, *, only_if_new: bool = False) -> tuple[list[str], list[str]]:
        """Merge `topology` into the catalog and start working. Raises CatalogError if they contradict each other.

        With `only_if_new` the topology is merged at the first start only, so that deleted entities stay deleted; later
        the paths of `topology` are returned that are not there, and those that are there with other properties.
        """
        ignored = self.namespace.merge(topology, only_if_new=only_if_new)
        self._begin()
        return ignored

    async def stop(self) -> None:
        """Finish the accepted requests, then close the stores."""
        if self.namespace.away is None:
            await self._close_stores()
        self.namespace.pool.shutdown()

    async def give_up_stores(self, detached: BrokerError, away: BrokerError) -> None:
        """Detach all links with `detached`, finish the accepted requests and close the stores.

        Until `go_on_with`, every look-up of an entity raises `away`.
        """
        self.namespace.go_away(detached, away)
        await self._close_stores()
        self.namespace.forget_entities()

    def go_on_with(self, catalog: Catalog, stores: Sequence[Store]) -> None:
        """Continue with these stores after `give_up_stores`. Raises CatalogError if their number has changed."""
        self.namespace.use_other_stores(catalog, stores)
        self._begin()
        self.namespace.away = None

    def _begin(self) -> None:
        self.namespace.start()
        self.administration.start()
        self.jms.delete_left_over()

    async def _close_stores(self) -> None:
        await self.administration.stop()
        await self.namespace.stop_workers()
        self.administration.idle.remember_access()
        self.namespace.catalog.close()

    # ---- links

    def open_sender(self, address: str, *, detached: Detached, client: str = "") -> Sender:
        """Open a sender to `address` (as the client wrote it). The entity calls `detached(error)` to close the link.

        Here and below `client` says who it is, for an observer.

        Raises BrokerError: not-found, entity-disabled, not-allowed (a sub-queue or a subscription).
        """
        entity = self.namespace.find_sendable(address)
        size_bytes_max = self.namespace.message_bytes_max(entity)
        return Sender(entity, size_bytes_max, self.limits.batch_bytes_max, detached, client)

    def open_receiver(
        self,
        address: str,
        *,
        mode: ReceiveMode,
        deliver: Deliver,
        detached: Detached,
        matches: Matches | None = None,
        client: str = "",
    ) -> Receiver:
        """Open a receiver on `address`. `deliver(deliveries)` gets messages, `detached(error)` the reason for a detach.

        With `matches(message, delivery count)` it gets only messages for which that is true, in their order.

        Raises BrokerError: not-found, entity-disabled, not-allowed (the entity requires message sessions, or forwards
        its messages).
        """
        entity, parsed = self.namespace.find_receivable(address)
        target = getattr(entity.description, "forward_dead_letters_to", None)
        if target is not None and parsed.sub_queue is SubQueue.DEAD_LETTER:
            raise service_errors.forwards()
        if entity.requires_session and parsed.sub_queue is SubQueue.ACTIVE:
            raise service_errors.session_receiver_required()
        return Receiver(entity, parsed.sub_queue, mode, self.clock, deliver, detached, matches, client)

    def accept_session(
        self,
        address: str,
        session_id: str | None,
        *,
        mode: ReceiveMode,
        timeout_ms: int,
        granted: Callable[[SessionReceiver], None],
        refused: Callable[[BrokerError], None],
        detached: Detached,
        client: str = "",
        is_operator: bool = False,
        shared: SharedLock | None = None,
    ) -> SessionAccept:
        """Accept a message session: the named one, or with None the next idle one, waiting up to `timeout_ms`.

        With `shared` the lock has a token, and may be that of another receiver, which loses it. Calls
        `granted(receiver)` or `refused(error)` later: session-cannot-be-locked, com.microsoft:timeout. Raises
        BrokerError at once: not-found, not-allowed (an entity without sessions), and, if `is_operator` is false,
        entity-disabled.
        """
        entity, parsed = self.namespace.find(address) if is_operator else self.namespace.find_receivable(address)
        if not entity.requires_session or parsed.sub_queue is not SubQueue.ACTIVE:
            raise service_errors.session_not_supported()
        ways = granted, refused, detached
        return SessionAccept(entity, session_id, mode, timeout_ms, self.clock, *ways, client, shared)
