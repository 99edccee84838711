"""A send, and the end of a transaction, that may fail on purpose. Each belongs to the link that it was put into."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from ...broker.api import TransactionRef
from ...broker.errors import BrokerError
from ...broker.message.message import split_batch
from ...conditions.fault_table import FaultOperation
from ...conditions.strikes import Discharge, Effect
from ..links.coordinator import Discharge as DischargeCall
from ..links.incoming import Send
from ..wire.link import Done
from .point import EFFECTS, InjectionPoint


class FaultySend:
    """Stores a delivery, or fails."""

    def __init__(self, inner: Send, point: InjectionPoint) -> None:
        self._inner = inner
        self._point = point

    def __call__(self, data: bytes, *, batch: bool, done: Done) -> None:
        """Store one delivery, or fail."""
        strike = self._point.next_strike(
            FaultOperation.SEND,
            lambda: _message_count(data, batch=batch),
            data=data,
            batch=batch,
        )
        work = partial(self._inner, data, batch=batch)
        if strike is None:
            work(done=done)
        else:
            EFFECTS[strike.effect](self._point, strike, lambda then: work(done=then), done)


class FaultyDischarge:
    """Ends a transaction, or fails: a commit that is refused is rolled back."""

    def __init__(self, inner: DischargeCall, point: InjectionPoint) -> None:
        self._inner = inner
        self._point = point

    def __call__(self, ref: TransactionRef, *, fail: bool, done: Done) -> None:
        """Commit, or with `fail` roll back, or fail."""
        strike = self._point.next_strike(Discharge.ROLLBACK if fail else Discharge.COMMIT)
        if strike is None:
            self._inner(ref, fail=fail, done=done)
        elif strike.effect is Effect.REFUSE:
            self._inner(ref, fail=True, done=lambda _: done(strike.error))
        else:
            EFFECTS[strike.effect](self._point, strike, lambda then: self._inner(ref, fail=fail, done=then), done)


def _message_count(data: bytes, *, batch: bool) -> int:
    """How many messages a delivery has; one that can't be read is refused by the broker."""
    with suppress(BrokerError):
        return len(split_batch(data)) if batch else 1
    return 1
