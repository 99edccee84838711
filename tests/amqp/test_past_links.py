"""What is remembered of links that are over, and for how long."""

from __future__ import annotations

from emubus.amqp.past_links import KEPT_MAX, PastLinks
from emubus.broker.api import Abandon, Complete
from emubus.broker.errors import BrokerError, Condition

from .fakes import token


def settled(past: PastLinks, number: int, error: BrokerError | None = None) -> None:
    past.noting(token(number), Complete(), None)(error)


def test_only_the_last_settlements_are_kept() -> None:
    past = PastLinks()
    for number in range(KEPT_MAX + 1):
        settled(past, number)
    assert not past.have_settled([token(0)], Complete())
    assert past.have_settled([token(1), token(KEPT_MAX)], Complete())
    assert not past.have_settled([token(1)], Complete())


def test_a_settlement_that_failed_or_was_of_another_kind_does_not_count() -> None:
    past = PastLinks()
    told: list[BrokerError | None] = []
    lost = BrokerError(Condition.MESSAGE_LOCK_LOST, "The lock supplied is invalid.")
    past.noting(token(1), Complete(), told.append)(lost)
    settled(past, 2)
    assert told == [lost]
    assert not past.have_settled([token(1), token(2)], Complete())
    assert not past.have_settled([token(2)], Abandon({}))
    assert not past.have_settled([], Complete())
    assert past.have_settled([token(2)], Complete())
