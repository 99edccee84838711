"""What is remembered of links that are over, and for how long."""

from __future__ import annotations

from emubus.amqp.past_links import KEPT_MAX, PastLinks
from emubus.broker.api import Abandon, Complete

from .fakes import token


def settled(past: PastLinks, number: int) -> None:
    past.settled(token(number), Complete())


def test_only_the_last_settlements_are_kept() -> None:
    past = PastLinks()
    for number in range(KEPT_MAX + 1):
        settled(past, number)
    assert not past.have_settled([token(0)], Complete())
    assert past.have_settled([token(1), token(KEPT_MAX)], Complete())
    assert not past.have_settled([token(1)], Complete())


def test_a_settlement_of_another_kind_and_one_that_is_not_known_do_not_count() -> None:
    past = PastLinks()
    settled(past, 2)
    assert not past.have_settled([token(1), token(2)], Complete())
    assert not past.have_settled([token(2)], Abandon({}))
    assert not past.have_settled([], Complete())
    assert past.have_settled([token(2)], Complete())


def test_the_links_that_lost_their_sessions_are_known_until_there_are_others() -> None:
    past = PastLinks()
    for number in range(KEPT_MAX + 1):
        past.session_lost(f"link {number}")
    assert [past.have_lost_session(name) for name in ("link 0", "link 1", "other", None)] == [False, True, False, False]
    past.attached("link 1")
    assert not past.have_lost_session("link 1")
