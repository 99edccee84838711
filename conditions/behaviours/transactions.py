"""The ends of transactions: commits that are refused, done and not confirmed, and a coordinator that goes away.

Knows what happens to a commit or a rollback. Does not know what is in a transaction.
"""

from __future__ import annotations

from typing import Final

from ...broker import service_errors
from ...broker.errors import BrokerError
from .. import texts
from ..behaviour import Behaviour, Parameter, Row, share
from ..strikes import Attempt, Discharge, Effect, Strike

TOPIC: Final = "Transactions"
SCOPE: Final = "transactions"


class DischargeRefused(Behaviour):
    """A commit is refused, and the transaction is rolled back."""

    def strike(self, attempt: Attempt) -> Strike | None:
        if attempt.operation is not Discharge.COMMIT or not self.chosen(SCOPE):
            return None
        return Strike(Effect.REFUSE, self._error()) if self.on.record(SCOPE, "commit refused") else None

    def _error(self) -> BrokerError:
        return texts.rolled_back() if self.word("error") == "rollback" else texts.transaction_unknown()


class DischargeLost(Behaviour):
    """A commit is done, and the client does not learn of it."""

    def strike(self, attempt: Attempt) -> Strike | None:
        if attempt.operation is not Discharge.COMMIT or not self.chosen(SCOPE):
            return None
        if not self.on.record(SCOPE, "commit not confirmed"):
            return None
        return Strike(Effect.FORGET_AND_CUT if self.word("then") == "cut" else Effect.FORGET)


class RollbackHangs(Behaviour):
    """A rollback is done, and confirmed long after."""

    def strike(self, attempt: Attempt) -> Strike | None:
        if attempt.operation is not Discharge.ROLLBACK or not self.chosen(SCOPE):
            return None
        if not self.on.record(SCOPE, "rollback confirmed late"):
            return None
        return Strike(Effect.DELAY, delay_ms=self.number("ms"))


class CoordinatorDetached(Behaviour):
    """The coordinator goes away: its links are detached, and what is open is rolled back."""

    def begin(self) -> None:
        self._detach(self.on.started_at)

    def _detach(self, at_ms: int) -> None:
        for connection in list(self.on.network.connections()):
            for link in list(connection.links):
                scope = f"connection {connection.number}"
                if link.is_coordinator and self.chosen(scope) and self.on.record(scope, "coordinator detached"):
                    link.detach(service_errors.link_closed(link.name, sends=True))
        every_ms = self.number("every_ms")
        if every_ms:
            self.at(at_ms + every_ms, lambda: self._detach(at_ms + every_ms))


ROWS: Final = (
    Row(
        "discharge-refused",
        TOPIC,
        "A commit is refused: it came too late, or the coordinator has moved. The transaction is rolled back.",
        "namespace",
        "rejected, `amqp:transaction:rollback` or `amqp:transaction:unknown-id`",
        "inferred",
        (share(), Parameter("error", "The condition.", "rollback", choices=("rollback", "unknown-id"))),
        DischargeRefused,
    ),
    Row(
        "discharge-lost",
        TOPIC,
        "A commit is done, and its client never learns of it.",
        "namespace",
        "nothing, or a cut connection",
        "documentation (.NET, transaction in doubt)",
        (share(), Parameter("then", "What the client sees.", "silence", choices=("silence", "cut"))),
        DischargeLost,
    ),
    Row(
        "rollback-hangs",
        TOPIC,
        "A rollback is done at once and confirmed late.",
        "namespace",
        "`accepted`, late",
        "azure-sdk-for-net 37265",
        (share(), Parameter("ms", "Delay of the answer.", 60_000, "ms")),
        RollbackHangs,
    ),
    Row(
        "coordinator-detached",
        TOPIC,
        "The coordinator moves: its links are detached, open transactions are rolled back, and the next one needs a "
        "new link.",
        "connection",
        "detach, `amqp:link:detach-forced`",
        "nservicebus.azureservicebus 48",
        (share(), Parameter("every_ms", "Time until it happens again; 0: once.", 0, "ms")),
        CoordinatorDetached,
    ),
)
