"""A send, and the end of a transaction, that may fail on purpose: the taps of two kinds of links."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from ...broker.api import TransactionRef
from ...broker.errors import BrokerError
from ...broker.message.message import split_batch
from ...conditions.faults import FaultOperation
from ...conditions.strikes import Discharge, Effect
from ..wire.link import Done
from .point import EFFECTS, InjectionPoint


def send_or_fail(point: InjectionPoint, data: bytes, store: Callable[[Done], None], done: Done, batch: bool) -> None:
    """The tap of a sender link (`hooks.SendingTap`): store one delivery, or fail."""
    strike = point.next_strike(
        FaultOperation.SEND,
        lambda: _message_count(data, batch=batch),
        data=data,
        batch=batch,
    )
    if strike is None:
        store(done)
    else:
        EFFECTS[strike.effect](point, strike, store, done)


def discharge_or_fail(point: InjectionPoint, ref: TransactionRef, fail: bool, done: Done) -> None:
    """The tap of a coordinator's link (`hooks.DischargeTap`): end a transaction, or fail.

    A commit that is refused is rolled back.
    """
    discharge = point.connection.broker.transactions.discharge
    strike = point.next_strike(Discharge.ROLLBACK if fail else Discharge.COMMIT)
    if strike is None:
        discharge(ref, fail=fail, done=done)
    elif strike.effect is Effect.REFUSE:
        discharge(ref, fail=True, done=lambda _: done(strike.error))
    else:
        EFFECTS[strike.effect](point, strike, lambda then: discharge(ref, fail=fail, done=then), done)


def _message_count(data: bytes, *, batch: bool) -> int:
    """How many messages a delivery has; one that can't be read is refused by the broker."""
    with suppress(BrokerError):
        return len(split_batch(data)) if batch else 1
    return 1
