"""What is stored of message sessions: as much as they need, and nothing of those that are over."""

from __future__ import annotations

import pytest

from emubus.broker.address import SubQueue
from emubus.broker.api import ReceiveMode
from emubus.broker.model.descriptions import QueueDescription
from emubus.broker.partition.contract import Received, SessionGrant
from emubus.broker.partition.requests import (
    AcceptSession,
    DeleteMessages,
    ExpireLocks,
    ProcessDue,
    ReceiveFromSession,
    ReleaseSession,
    SetSessionState,
)

from .driving import Driver, encoded
from .tearing import heads_of, sessions_of

QUEUE_ID = 7


@pytest.fixture
def driver() -> Driver:
    return Driver(QueueDescription("q", requires_session=True, max_delivery_count=1), index=0, partitioned=False)


def accept(driver: Driver, name: str | None) -> SessionGrant:
    answers: list[Received[SessionGrant]] = []
    driver.run(AcceptSession(name, lambda _: None, lambda _: None, lambda _: None, answers.append))
    (grant,) = answers[0].deliveries
    assert isinstance(grant, SessionGrant)
    return grant


def stored(driver: Driver) -> tuple[list[str], dict[int, str]]:
    """The names of the sessions, and their heads."""
    return sorted(sessions_of(driver.store, QUEUE_ID)), heads_of(driver.store, QUEUE_ID)


def fall_due(driver: Driver, ms: int) -> None:
    driver.now += ms
    driver.run(ProcessDue(driver.due_rows()))


def test_an_empty_session_that_is_accepted_is_not_stored(driver: Driver) -> None:
    grant = accept(driver, "a")
    assert stored(driver) == ([], {})
    driver.run(ReleaseSession(grant.grant))
    assert stored(driver) == ([], {})
    accept(driver, "a")
    assert driver.ask(SetSessionState, "a", b"state") is None
    assert stored(driver) == (["a"], {})


def test_a_session_whose_messages_have_expired_is_forgotten(driver: Driver) -> None:
    for name in ("a", "b"):
        driver.send(encoded(group_id=name, ttl=1))
    driver.send(encoded(group_id="b", ttl=9))
    assert stored(driver) == (["a", "b"], {1: "a", 2: "b"})
    fall_due(driver, 1_000)
    assert stored(driver) == (["b"], {3: "b"})
    assert accept(driver, None).session_id == "b"
    driver.check()
    fall_due(driver, 8_000)
    driver.now += 60_000
    driver.run(ExpireLocks())
    assert stored(driver) == ([], {})


def test_a_session_with_a_state_is_remembered_though_its_messages_have_expired(driver: Driver) -> None:
    driver.send(encoded(group_id="a", ttl=1))
    grant = accept(driver, "a")
    assert driver.ask(SetSessionState, "a", b"state") is None
    driver.run(ReleaseSession(grant.grant))
    fall_due(driver, 1_000)
    assert stored(driver) == (["a"], {})


def test_a_session_whose_messages_are_deleted_is_forgotten(driver: Driver) -> None:
    for name in ("a", "a", "b"):
        driver.send(encoded(group_id=name))
    assert driver.ask(DeleteMessages, SubQueue.ACTIVE, 1, driver.now + 1, None) == 1
    assert stored(driver) == (["a", "b"], {2: "a", 3: "b"})
    assert driver.ask(DeleteMessages, SubQueue.ACTIVE, 1, driver.now + 1, None) == 1
    assert stored(driver) == (["b"], {3: "b"})


def test_a_session_whose_last_message_is_dead_lettered_with_its_end_is_forgotten(driver: Driver) -> None:
    driver.send(encoded(group_id="a"))
    grant = accept(driver, "a")
    driver.run(ReceiveFromSession(grant.grant, 1, ReceiveMode.PEEK_LOCK, lambda _: None))
    driver.now += 60_000
    driver.run(ExpireLocks())
    assert len(driver.take(1, ReceiveMode.PEEK_LOCK, SubQueue.DEAD_LETTER)) == 1
    assert stored(driver) == ([], {})


def test_what_a_crash_leaves_of_a_held_session_goes_when_it_is_accepted(driver: Driver) -> None:
    for name in ("a", "a", "b"):
        driver.send(encoded(group_id=name))
    grant = accept(driver, "a")
    driver.run(ReceiveFromSession(grant.grant, 1, ReceiveMode.RECEIVE_AND_DELETE, lambda _: None))
    driver.reopen()
    assert stored(driver) == (["a", "b"], {1: "a", 3: "b"})
    assert accept(driver, None).session_id == "a"
    assert stored(driver) == (["a", "b"], {2: "a", 3: "b"})


def test_idle_sessions_beyond_the_window_keep_their_order(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("emubus.broker.partition.sessions.IDLE_WINDOW_MAX", 2)
    for name in ("a", "b", "c", "a"):
        driver.send(encoded(group_id=name))
    grant = accept(driver, "a")
    driver.run(ReceiveFromSession(grant.grant, 1, ReceiveMode.RECEIVE_AND_DELETE, lambda _: None))
    driver.reopen()  # the row of "a" tells of its first message, which is gone
    assert [accept(driver, None).session_id for _ in range(3)] == ["b", "c", "a"]
