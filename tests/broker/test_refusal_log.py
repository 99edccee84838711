"""A refusal is one log line with a remedy; the same refusal of the same client is logged once in a while."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from emubus.broker.admin import refusal_log
from emubus.broker.admin.refusal_log import (
    AGAIN_US,
    KNOWN_MAX,
    LINES_PER_S_MAX,
    REASON_CHARS_MAX,
    RECENT_MAX,
    RefusalLog,
)
from emubus.broker.errors import BrokerError, Condition

MISSING = BrokerError(Condition.NOT_FOUND, "The messaging entity could not be found.")


@pytest.fixture(autouse=True)
def _every_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log lines of all levels: the test kit shows warnings only."""
    everything = structlog.make_filtering_bound_logger(logging.DEBUG)
    monkeypatch.setattr(refusal_log, "log", structlog.wrap_logger(None, wrapper_class=everything))


class Refusals:
    """A log with a stopwatch that the test moves."""

    def __init__(self, *paths: str) -> None:
        self.now_us = 0
        self.log = RefusalLog(lambda: paths, lambda: self.now_us)

    def lines(self, *refusals: tuple[str, str, BrokerError]) -> list[Any]:
        with capture_logs() as found:
            for each in refusals:
                self.log.refused(*each)
        return found


def test_a_misspelt_name_is_answered_with_the_nearest_one() -> None:
    (line,) = Refusals("queue.1", "Orders").lines(("sdk", "sb://host/queue1", MISSING))
    assert line == {
        "event": "refused",
        "log_level": "info",
        "client": "sdk",
        "entity": "queue1",
        "code": "amqp:not-found",
        "reason": MISSING.description,
        "remedy": "no queue, topic or subscription 'queue1'; did you mean 'queue.1'?",
    }
    (line,) = Refusals("queue.1").lines(("sdk", "something", MISSING))
    assert line["remedy"].startswith("create it: emubus create queue something")


def test_the_same_refusal_is_logged_again_after_a_while_with_their_number() -> None:
    refusals = Refusals()
    assert len(refusals.lines(*[("sdk", "q", MISSING)] * 5)) == 1
    assert len(refusals.lines(("other", "q", MISSING), ("sdk", "r", MISSING))) == 2
    refusals.now_us += AGAIN_US
    (line,) = refusals.lines(("sdk", "q", MISSING))
    assert line["repeated"] == "4"


def test_names_made_at_random_do_not_fill_the_log() -> None:
    refusals = Refusals()
    flood = [(f"client {number}", f"q{number}", MISSING) for number in range(2 * KNOWN_MAX)]
    assert len(refusals.lines(*flood)) == LINES_PER_S_MAX
    refusals.now_us += 1_000_000
    assert len(refusals.lines(("sdk", "q", MISSING))) == 1


def test_a_wait_that_ends_is_no_refusal() -> None:
    assert Refusals().lines(("sdk", "q", BrokerError(Condition.TIMEOUT, "over"))) == []


def test_the_last_refusals_can_be_read_each_once_with_its_remedy() -> None:
    refusals = Refusals("queue.1")
    refusals.lines(("sdk", "queue1", MISSING), ("other", "queue1", MISSING), *[("sdk", "queue1", MISSING)] * 2)
    other, first = refusals.log.recent
    assert (other.client, other.count, other.number) == ("other", 1, 2)
    assert (first.client, first.entity, first.code, first.count) == ("sdk", "queue1", "amqp:not-found", 3)
    assert first.remedy == "no queue, topic or subscription 'queue1'; did you mean 'queue.1'?"
    assert (first.number, refusals.log.last_number) == (4, 4)
    refusals.log.forget()
    assert refusals.log.recent == []
    assert len(refusals.lines(("sdk", "queue1", MISSING))) == 1  # it is logged again
    assert refusals.log.counts["queue1"] == 5


def test_only_so_many_refusals_are_kept() -> None:
    refusals = Refusals()
    refusals.lines(*[(f"client {number}", "q" * 2 * REASON_CHARS_MAX, MISSING) for number in range(RECENT_MAX + 3)])
    assert [each.client for each in refusals.log.recent][::RECENT_MAX] == ["client 3"]
    assert len(refusals.log.recent) == RECENT_MAX
    assert {len(each.entity) for each in refusals.log.recent} == {REASON_CHARS_MAX}
