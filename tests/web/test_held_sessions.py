"""Sessions that a job or the page holds: how long, how many, and what happens when a lock ends."""

from __future__ import annotations

import pytest

from emubus.broker.address import SubQueue
from emubus.broker.admin.overview import Overview
from emubus.broker.broker import Broker
from emubus.broker.clock import Clock
from emubus.broker.model.descriptions import QueueDescription
from emubus.web.messages import sessions
from emubus.web.messages.sessions import HeldSessions, accepted
from emubus.web.messages.verbs import Plan, PlanRun, Verb

from ..broker.driving import encoded
from ..broker.namespace import _brokers_stop, brokers_stop, loop_turns, open_broker, send

__all__ = ["_brokers_stop", "brokers_stop"]
LOCK_MS = 30_000


@pytest.fixture
def clock() -> Clock:
    return Clock(start_at=1_800_000_000_000, frozen=True)


async def filled(clock: Clock, *names: str) -> Broker:
    """A broker with the queue `s`, which has two messages of each session, numbered from 1."""
    broker = open_broker(QueueDescription("s", requires_session=True, lock_duration_ms=LOCK_MS), clock=clock)
    for each in names * 2:
        await send(broker, "s", encoded(each, group_id=each))
    return broker


def holders(broker: Broker, *names: str) -> list[str | None]:
    entity = broker.namespace.find("s")[0]
    return [Overview(broker.namespace).session_holder(entity, each) for each in names]


async def test_a_lock_that_is_half_over_is_renewed_and_one_that_ended_is_taken_again(clock: Clock) -> None:
    broker = await filled(clock, "a")
    entity, held = broker.namespace.find("s")[0], HeldSessions(broker, "me")
    (first,), _ = await held.lock(entity, {1: "a"})
    clock.advance(LOCK_MS * 2 // 3)
    (second,), _ = await held.lock(entity, {2: "a"})
    assert (first.until_at, second.until_at) == (clock.now_ms() + LOCK_MS // 3, clock.now_ms() + LOCK_MS)
    clock.advance(LOCK_MS)
    await loop_turns(20)
    assert holders(broker, "a") == [None]
    locked, failures = await held.lock(entity, {1: "a", 2: "a", 9: "a"})
    assert ([each.delivery.sequence_number for each in locked], failures) == ([1, 2], {})
    held.close()
    await loop_turns(20)
    assert holders(broker, "a") == [None]


async def test_the_session_that_was_not_asked_for_longest_is_released_first(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "HELD_MAX", 2)
    broker = await filled(clock, "a", "b", "c")
    entity, held = broker.namespace.find("s")[0], HeldSessions(broker, "me")
    await held.lock(entity, {1: "a", 2: "b"})
    await held.lock(entity, {4: "a"})
    await held.lock(entity, {3: "c"})
    await loop_turns(20)
    assert holders(broker, "a", "b", "c") == ["me", None, "me"]


async def test_a_job_leaves_out_a_session_that_it_could_not_hold_at_first(clock: Clock) -> None:
    broker = await filled(clock, "a", "b")
    plan = Plan(Verb.DELETE, "s", SubQueue.ACTIVE)
    batch = (
        await Overview(broker.namespace).messages(
            broker.namespace.find("s")[0], SubQueue.ACTIVE, first=0, count=9, bytes_max=9_999
        )
    ).messages
    client = await accepted(broker, "s", "b", client="orders", detached=lambda _: None)
    plan_run = PlanRun(broker, plan)
    refusal = "its session 'b' is held by orders"
    assert await plan_run.carry_out(batch[:2]) == {2: refusal}
    assert holders(broker, "a", "b") == ["a job of the web page or the control API (delete)", "orders"]
    client.close()
    await loop_turns(20)
    assert await plan_run.carry_out(batch[2:]) == {4: refusal}
    plan_run.close()
    await loop_turns(20)
    assert holders(broker, "a", "b") == [None, None]
