"""What strikes single operations by chance: refused, done and not confirmed, not done at all, with fewer messages.

Knows which operations each behaviour strikes and with what effect, one table for all. Does not know how an effect is
done.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from ...broker.errors import BrokerError
from .. import texts
from ..behaviour import Behaviour, Parameter, Row, key_of, share
from ..faults import FaultOperation
from ..strikes import Attempt, Effect, Strike

TROUBLE, TWICE, RECEIVING, PEEKS = "Moves and trouble", "Twice, late, lost", "Receiving", "Peeks"
SEND, SETTLE, RECEIVE = FaultOperation.SEND, FaultOperation.SETTLE, FaultOperation.RECEIVE
RENEW, REQUEST = FaultOperation.RENEW, FaultOperation.REQUEST
OF_EMUBUS: Final = "emubus:"
"""How the names of emubus's own management operations begin."""


class ByChance(Behaviour, ABC):
    """Strikes a share of some operations."""

    OPERATIONS: tuple[FaultOperation, ...] = ()
    REQUESTS: tuple[str, ...] = ()
    """Of requests, these only; empty: any."""

    def strike(self, attempt: Attempt) -> Strike | None:
        if attempt.operation not in self.OPERATIONS or not self.covers(attempt.address):
            return None
        if self.REQUESTS and attempt.request not in self.REQUESTS:
            return None
        scope = key_of(attempt.address)
        if not self.applies(attempt) or not self.chosen(scope):
            return None
        return self.effect(attempt) if self.on.record(scope, attempt.request or attempt.operation.value) else None

    def applies(self, attempt: Attempt) -> bool:
        """Whether the operation is one that this can strike at this time."""
        return True

    @abstractmethod
    def effect(self, attempt: Attempt) -> Strike: ...


class InternalError(ByChance):
    """A node in trouble."""

    OPERATIONS = (SEND, RECEIVE, REQUEST)

    def effect(self, attempt: Attempt) -> Strike:
        return Strike(Effect.REFUSE, texts.internal())


class ContainerClose(ByChance):
    """A broker unloads a partition."""

    OPERATIONS = (SEND, RECEIVE)

    def effect(self, attempt: Attempt) -> Strike:
        return Strike(Effect.DETACH, texts.container_closing())


class AcceptLost(ByChance):
    """A message is stored, and its sender gets no outcome."""

    OPERATIONS = (SEND,)
    THEN: Final = {
        "silence": Effect.FORGET,
        "cut": Effect.FORGET_AND_CUT,
        "detach": Effect.FORGET_AND_DETACH,
    }

    def effect(self, attempt: Attempt) -> Strike:
        then = self.word("then")
        if then == "any":
            chance = self.on.chance.draw(f"{key_of(attempt.address)} then")
            then = "cut" if chance < 0.5 else "silence" if chance < 0.75 else "detach"
        return Strike(self.THEN[then])


class AcceptLate(ByChance):
    """A message is stored, and its sender gets the outcome late."""

    OPERATIONS = (SEND,)

    def effect(self, attempt: Attempt) -> Strike:
        return Strike(Effect.DELAY, delay_ms=self.number("ms"))


class RerouteSlow(ByChance):
    """A message without a key is stored late: its partition's store is out, and the service looks for another one."""

    OPERATIONS = (SEND,)

    def applies(self, attempt: Attempt) -> bool:
        """While a store of the entity is out, messages without a key."""
        entity, message = self.on.broker.namespace.entity(key_of(attempt.address)), attempt.first()
        if entity is None or message is None or not entity.is_limited:
            return False
        with suppress(BrokerError):  # its keys contradict each other: the broker says so
            return entity.keyed_index(message) is None
        return False

    def effect(self, attempt: Attempt) -> Strike:
        least, most = sorted((self.number("ms_min"), self.number("ms")))
        return Strike(Effect.HOLD, delay_ms=self.on.chance.between(f"{key_of(attempt.address)} ms", least, most))


class SettleLost(ByChance):
    """A settlement arrives and nothing comes of it."""

    OPERATIONS = (SETTLE,)

    def effect(self, attempt: Attempt) -> Strike:
        return Strike(Effect.IGNORE)


class SettleUnconfirmed(ByChance):
    """A settlement is done and never confirmed."""

    OPERATIONS = (SETTLE,)

    def effect(self, attempt: Attempt) -> Strike:
        return Strike(Effect.FORGET)


class LockLost(ByChance):
    """A lock is over before its time."""

    OPERATIONS = (SETTLE, RENEW)

    def effect(self, attempt: Attempt) -> Strike:
        return Strike(Effect.LOSE_LOCK)


class Trickle(ByChance):
    """Messages come one by one although all of them are there."""

    OPERATIONS = (RECEIVE,)

    def effect(self, attempt: Attempt) -> Strike:
        return Strike(Effect.LIMIT, count=1, delay_ms=self.number("gap_ms"))


class DrySpell(ByChance):
    """A receiver gets nothing for a while although there are messages."""

    OPERATIONS = (RECEIVE,)

    def effect(self, attempt: Attempt) -> Strike:
        return Strike(Effect.LIMIT, count=0, delay_ms=self.number("ms"))


class PeekPartitionEnd(ByChance):
    """A peek of a partitioned entity ends where the partition that answers ends."""

    OPERATIONS = (REQUEST,)
    REQUESTS = ("peek-message",)

    def applies(self, attempt: Attempt) -> bool:
        entity = self.on.broker.namespace.entity(key_of(attempt.address))
        return entity is not None and len(entity.partitions) > 1 and attempt.count() > self.number("per_reply")

    def effect(self, attempt: Attempt) -> Strike:
        return Strike(Effect.LIMIT, count=self.number("per_reply"))


class PeekShort(ByChance):
    """A peek gives fewer messages than there are."""

    OPERATIONS = (REQUEST,)
    REQUESTS = ("peek-message",)

    def applies(self, attempt: Attempt) -> bool:
        return attempt.count() > 1

    def effect(self, attempt: Attempt) -> Strike:
        count = self.on.chance.between(f"{key_of(attempt.address)} count", 1, attempt.count() - 1)
        return Strike(Effect.LIMIT, count=count)


class NoEmubusOperations(Behaviour):
    """A management node knows no operation that the service does not have."""

    def strike(self, attempt: Attempt) -> Strike | None:
        if not attempt.request.startswith(OF_EMUBUS) or not self.covers(attempt.address):
            return None
        if not self.on.record(key_of(attempt.address), attempt.request):
            return None
        return Strike(Effect.REFUSE, texts.operation_unknown(attempt.request))


def _row(
    name: str,
    topic: str,
    about: str,
    wire: str,
    source: str,
    make: Callable[..., Behaviour],
    *parameters: Parameter,
    chance: float = 1.0,
) -> Row:
    return Row(name, topic, about, "entity", wire, source, (share(chance), *parameters), make)


ROWS: Final = (
    _row(
        "internal-error",
        TROUBLE,
        "A node is in trouble: sends and requests are refused, receivers are detached.",
        "`amqp:internal-error` with the text `The service was unable to process the request; …`",
        "azure-sdk-for-python 19376, azure-sdk-for-net 31036",
        InternalError,
    ),
    _row(
        "container-close",
        TROUBLE,
        "A broker unloads a partition: the link is detached.",
        "`com.microsoft:container-close`",
        "condition: source of the Python library; text: azure-event-hubs 320; the pair is inferred",
        ContainerClose,
    ),
    _row(
        "accept-lost",
        TWICE,
        "A message is stored, and its sender never gets the outcome: clients send it again.",
        "nothing, a cut connection, or a detach with `amqp:link:detach-forced`",
        "documentation (exceptions, outages)",
        AcceptLost,
        Parameter("then", "What the sender sees.", "silence", choices=("silence", "cut", "detach", "any")),
    ),
    _row(
        "accept-late",
        TWICE,
        "A message is stored at once, and its sender gets the outcome late.",
        "`accepted`, late",
        "inferred",
        AcceptLate,
        Parameter("ms", "Delay of the outcome.", 5_000, "ms"),
    ),
    _row(
        "settle-lost",
        TWICE,
        "A settlement arrives and nothing comes of it: the message returns when its lock ends.",
        "nothing",
        "azure-sdk-for-python 48143",
        SettleLost,
    ),
    _row(
        "settle-unconfirmed",
        TWICE,
        "A settlement is done and never confirmed: a second try fails.",
        "nothing",
        "inferred",
        SettleUnconfirmed,
    ),
    _row(
        "lock-lost",
        TWICE,
        "A lock is over before its time: the message is available at once and the attempt counts.",
        "`com.microsoft:message-lock-lost`",
        "azure-sdk-for-java 25121",
        LockLost,
    ),
    _row(
        "reroute-slow",
        "Stores",
        "While a store is out, a message without a key is stored late.",
        "`accepted`, late",
        "documentation (partitioned entities)",
        RerouteSlow,
        Parameter("ms_min", "Shortest delay.", 5_000, "ms"),
        Parameter("ms", "Longest delay.", 15_000, "ms"),
    ),
    _row(
        "trickle",
        RECEIVING,
        "Messages come one by one although all of them are there.",
        "transfers with gaps",
        "documentation (.NET troubleshooting)",
        Trickle,
        Parameter("gap_ms", "Time between two messages.", 25, "ms", 1),
    ),
    _row(
        "dry-spell",
        RECEIVING,
        "A receiver gets nothing for a while although there are messages.",
        "nothing; a drain is answered as for an empty queue",
        "inferred",
        DrySpell,
        Parameter("ms", "How long.", 5_000, "ms", 1),
    ),
    _row(
        "peek-partition-end",
        PEEKS,
        "A peek of a partitioned entity ends where the partition that answers ends.",
        "status 200 with fewer messages",
        "documentation; azure-sdk-for-js 1108",
        PeekPartitionEnd,
        Parameter("per_reply", "Messages of a reply at most.", 1, "messages", 1, 250),
    ),
    _row(
        "peek-short",
        PEEKS,
        "A peek gives fewer messages than there are, at least one.",
        "status 200 with fewer messages",
        "azure-sdk-for-java 21168; documentation (browsing)",
        PeekShort,
        chance=0.05,
    ),
    Row(
        "no-emubus-operations",
        "Outside the service",
        "Operations that only emubus has are not known, as with `--service-only`: the Spark source goes as on Azure.",
        "entity",
        "status 501, `amqp:not-implemented`",
        "inferred",
        make=NoEmubusOperations,
    ),
)
