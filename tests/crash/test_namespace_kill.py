"""`kill -9` under a load of topics, message sessions, transactions, forwarding and schedules: each message is where
it belongs, once.

`python -m tests.crash.namespace_rounds --rounds 1000` plays more rounds than these.
"""

from __future__ import annotations

from collections import Counter

import pytest

from ..rounds import rounds
from .namespace_load import LEDGER_NEW, LEDGER_OLD, PLACES, Confirmed
from .namespace_rounds import Found, judge, play

SEEDS = range(rounds(3, 100))


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_after_a_kill_each_message_is_where_it_belongs(seed: int) -> None:
    _, acknowledged, wrong = play(seed)
    assert wrong == []
    assert acknowledged > 0


# ---- the judgement notices what it is there for


def right() -> tuple[Confirmed, Found]:
    """One accepted message for each address and all old messages of the ledger, one of them in a transaction."""
    confirmed = Confirmed(sent_to={f"{address}-1": address for address in PLACES})
    confirmed.accepted = {*confirmed.sent_to, *(f"old-{number}" for number in range(LEDGER_OLD))}
    confirmed.committing = confirmed.committed = {"old-0"}
    found: Found = Counter(
        (path, "active", name) for name, address in confirmed.sent_to.items() for path in PLACES[address]
    )
    found.update(("ledger", "active", f"old-{number}") for number in range(1, LEDGER_OLD))
    found.update(("ledger", "active", f"new-old-0-{each}") for each in range(LEDGER_NEW))
    return confirmed, found


def test_what_is_right_is_found_right() -> None:
    assert judge(*right()) == []


@pytest.mark.parametrize("address", PLACES)
def test_a_lost_and_a_doubled_copy_are_noticed_in_every_place(address: str) -> None:
    for path in PLACES[address]:
        for copies in (0, 2):
            confirmed, found = right()
            found[path, "active", f"{address}-1"] = copies
            (sentence,) = judge(confirmed, found)
            assert sentence.startswith(f"{address}-1 ")
            assert path in sentence


def test_a_message_that_was_not_confirmed_may_be_missing_but_not_torn() -> None:
    confirmed, found = right()
    confirmed.accepted.remove("news-1")
    for path in PLACES["news"]:
        del found[path, "active", "news-1"]
    assert judge(confirmed, found) == []
    found["target", "active", "news-1"] = 1
    (sentence,) = judge(confirmed, found)
    assert "torn" in sentence


def test_what_was_settled_may_not_come_back() -> None:
    confirmed, found = right()
    confirmed.completing = confirmed.completed = {("plain", "plain-1")}
    assert judge(confirmed, found) == ["plain-1 was completed in plain and is there again"]
    del found["plain", "active", "plain-1"]
    assert judge(confirmed, found) == []
    confirmed, found = right()
    confirmed.burying = confirmed.buried = {("parts", "parts-1")}
    assert judge(confirmed, found) == ["parts-1 was dead-lettered in parts and is not in ('graves', 'active')"]
    found["graves", "active", "parts-1"] = found.pop(("parts", "active", "parts-1"))
    assert judge(confirmed, found) == []


def test_a_torn_transaction_is_noticed() -> None:
    confirmed, found = right()
    found["ledger", "active", "old-0"] = 1
    assert judge(confirmed, found) == ["the transaction on old-0 is torn: 1 old, [1, 1, 1] new"]


def test_a_message_that_nobody_sent_and_one_in_a_wrong_place_are_noticed() -> None:
    confirmed, found = right()
    found["plain", "active", "stranger"] = 1
    found["graves", "active", "plain-1"] = 1
    found["parts", "active", "plain-1"] = 1
    assert judge(confirmed, found) == [
        "plain-1 was sent to plain and is in parts",
        "stranger in plain/active was never sent",
    ]
