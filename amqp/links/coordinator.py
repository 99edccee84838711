"""Transactions on the wire: the coordinator's link, and what an AMQP session may reach within them [wire 8].

Knows declare and discharge, and the rule of cross-entity transactions: on an AMQP session whose coordinator link came
before any entity link, the first entity is the one through which messages for others leave. Knows how many transactions
a connection may have open; what is in one, the broker collects. A coordinator link owns what was declared over it: when
it goes, all that is open is rolled back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Final

from ...broker.address import parse_address
from ...broker.api import Entity, TransactionRef
from ...broker.errors import BrokerError, Condition
from ...broker.lazy_dataclass import dataclass
from ...codec.types import Described
from ..link_context import LinkContext
from ..nodes.requests import read_request
from ..wire.engine import Pointer
from ..wire.incoming_deliveries import IncomingDeliveries
from ..wire.run import Run
from ..wire.transaction_states import DECLARED, declared
from .hooks import DischargeTap

_SUBSCRIPTIONS: Final = "/subscriptions/"


@dataclass(slots=True)
class Scope:
    """What one AMQP session may reach: `via` is the address of its first entity if it is `cross_entity`.

    `links` are the open ones to entities. When the last one has gone, the next entity is the first again: a pool of JMS
    sessions gives a session that has consumed from one queue to a consumer of another.
    """

    cross_entity: bool
    via: str | None = None
    links: set[Pointer] = field(default_factory=set[Pointer])

    def check(self, address: str) -> None:
        """Refuse a receiver on a second top-level entity, even while no transaction is open."""
        if self.via is not None and _queue_or_topic_of(address) != _queue_or_topic_of(self.via):
            raise BrokerError(
                Condition.NOT_ALLOWED,
                "Local transactions cannot span multiple top-level entities such as queue or topic. Receivers of this "
                f"AMQP session can be opened on '{_queue_or_topic_of(self.via)}' only, not on "
                f"'{_queue_or_topic_of(address)}'.",
            )

    def enter(self, pointer: Pointer, address: str) -> None:
        """An entity link was opened."""
        self.links.add(pointer)
        if self.cross_entity and self.via is None:
            self.via = address

    def leave(self, pointer: Pointer) -> None:
        self.links.discard(pointer)
        if not self.links:
            self.via = None


def _queue_or_topic_of(address: str) -> str:
    return parse_address(address).key.partition(_SUBSCRIPTIONS)[0]


class CoordinatorLink(IncomingDeliveries):
    """A client's link to the coordinator: each delivery declares a transaction or discharges one."""

    __slots__ = ("_context", "_scope", "tap")

    def __init__(self, context: LinkContext, pointer: Pointer, scope: Scope) -> None:
        self._context = context
        self._scope = scope
        self.tap: DischargeTap | None = None
        """Where faults stand between the link and the broker."""
        limits = context.limits
        super().__init__(context.wire, pointer, bytes_max=limits.request_bytes_max, credit=limits.request_credit)

    def receive(self, run: Run) -> None:
        """Declare a transaction, or discharge one."""
        if self._context.watch is not None:
            self._context.watch.used(self.pointer)
        (data,) = run.items
        try:
            if run.transaction is not None:
                raise BrokerError(Condition.NOT_ALLOWED, "What comes over this link can't be part of a transaction.")
            body = read_request(data).body
            handle = _COMMANDS.get(body.descriptor) if isinstance(body, Described) else None
            if handle is None or not isinstance(body, Described):
                raise BrokerError(Condition.NOT_IMPLEMENTED, "A coordinator takes declare and discharge only.")
            fields = body.value if isinstance(body.value, list) else []
            handle(self, [*fields, None, None], run)
        except BrokerError as error:
            self._refused(run, error)

    def _refused(self, run: Run, error: BrokerError) -> None:
        self._context.log.warning("transaction command refused", reason=str(error))
        run.done_one(error)

    def _declare(self, fields: list[object], run: Run) -> None:
        if fields[0] is not None:
            raise BrokerError(Condition.NOT_IMPLEMENTED, "Global transactions are not supported.")
        self._check_limits()
        self._via_entity()  # which may be gone
        ref = self._context.broker.transactions.declare(self, self._via_entity, connection=self._context)
        run.done_with((DECLARED, declared(ref.id)))

    def _check_limits(self) -> None:
        """BrokerError if the connection, or all of them, have too many open transactions.

        SDKs declare before they put any token, so that can't be refused; but without a valid claim it is for few.
        """
        context = self._context
        limits, transactions = context.limits, context.broker.transactions
        if context.claims.any_valid():
            own_max, all_max, advice = limits.transactions_per_connection_max, limits.transactions_max, ""
        else:
            own_max, all_max = limits.unclaimed_transactions_per_connection_max, limits.unclaimed_transactions_max
            advice = " Put a token (or log in with SASL PLAIN) to open more."
        if transactions.open_count_of(context) >= own_max:
            text = f"This connection has {own_max} open transactions already, which is the most that it may have."
            raise BrokerError(Condition.RESOURCE_LIMIT_EXCEEDED, text + advice)
        if transactions.open_count() >= all_max:
            text = f"There are {all_max} open transactions already; one must end before another can begin."
            raise BrokerError(Condition.RESOURCE_LIMIT_EXCEEDED, text + advice)

    def _via_entity(self) -> Entity | None:
        """The first entity of the AMQP session, None as long as there is none; BrokerError if it is gone."""
        return None if self._scope.via is None else self._context.broker.namespace.find(self._scope.via)[0]

    def _discharge(self, fields: list[object], run: Run) -> None:
        transaction, fail = fields[:2]
        if not isinstance(transaction, bytes):
            raise BrokerError(Condition.INVALID_FIELD, "A discharge must name its transaction by a binary id.")

        def discharged(error: BrokerError | None) -> None:
            if error is None:
                run.done_one(None)
            else:
                self._refused(run, error)

        ref = TransactionRef(self._context, transaction)
        if self.tap is None:
            self._context.broker.transactions.discharge(ref, fail=fail is True, done=discharged)
        else:
            self.tap(ref, fail is True, discharged)

    def gone(self) -> None:
        """Whatever is open is rolled back."""
        super().gone()
        self._context.broker.transactions.leave(self)


_Command = Callable[[CoordinatorLink, list[object], Run], None]
_COMMANDS: Final[Mapping[object, _Command]] = {
    0x31: CoordinatorLink._declare,
    0x32: CoordinatorLink._discharge,
    "amqp:declare:list": CoordinatorLink._declare,
    "amqp:discharge:list": CoordinatorLink._discharge,
}
