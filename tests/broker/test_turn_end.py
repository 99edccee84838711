"""Requests of a peer that is heard alone are executed before the loop turns; those of several share a batch."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from emubus.broker.errors import BrokerError
from emubus.broker.model.descriptions import QueueDescription
from emubus.broker.turns import TurnEnd
from emubus.storage import Store

from .driving import encoded
from .namespace import loop_turns, open_broker


async def test_calls_are_made_by_the_run_or_in_the_next_turn() -> None:
    made: list[str] = []
    end = TurnEnd()
    end.call(lambda: made.append("first"))
    assert made == []
    end.promise_run()
    end.call(lambda: made.append("second"))
    end.run()
    assert made == ["first", "second"], "what waits for the turn goes with it"
    end.run()
    await loop_turns(1)
    assert made == ["first", "second"]
    end.call(lambda: made.append("third"))
    await loop_turns(1)
    assert made == ["first", "second", "third"]


async def test_a_call_that_comes_during_a_run_waits_for_the_next_turn() -> None:
    made: list[str] = []
    end = TurnEnd()

    def again() -> None:
        made.append("first")
        end.call(lambda: made.append("second"))

    end.promise_run()
    end.call(again)
    end.run()
    assert made == ["first"]
    await loop_turns(1)
    assert made == ["first", "second"]


@pytest.mark.parametrize("is_alone", [True, False])
async def test_a_message_is_answered_within_the_run_of_one_that_is_alone(is_alone: bool) -> None:
    broker = open_broker(QueueDescription("q"))
    await loop_turns(3)  # the workers wait
    answers: list[BrokerError | None] = []
    if is_alone:
        broker.turn_end.promise_run()
    broker.open_sender("q", detached=print).send([encoded("m")], lambda positions, error: answers.append(error))
    assert answers == []
    if is_alone:
        broker.turn_end.run()
    assert answers == ([None] if is_alone else [])
    await loop_turns(3)
    assert answers == [None]


async def test_a_round_that_waits_is_ended_by_the_task_and_later_requests_by_the_next() -> None:
    def wrapped(store: Store) -> Store:
        store.blocking = True  # its commits are on another thread
        return store

    broker = open_broker(QueueDescription("q"), wrap=wrapped)
    await loop_turns(3)
    answers: list[str] = []
    both = asyncio.Event()

    def send(body: str) -> None:
        def done(positions: Sequence[int], error: BrokerError | None) -> None:
            answers.append(body)
            if len(answers) == 2:
                both.set()

        broker.turn_end.promise_run()
        broker.open_sender("q", detached=print).send([encoded(body)], done)
        broker.turn_end.run()

    send("first")
    send("second")
    assert answers == []
    await asyncio.wait_for(both.wait(), 10)
    assert answers == ["first", "second"]


async def test_a_fault_of_a_round_ends_the_worker_as_in_its_task(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = open_broker(QueueDescription("q"), loses_writes=True)
    await loop_turns(3)
    entity = broker.namespace.entity("q")
    assert entity is not None
    worker = entity.partitions[0].worker

    async def broken(requests: object) -> None:
        raise RuntimeError("broken on purpose")

    monkeypatch.setattr(worker._runner, "run", broken)
    broker.turn_end.promise_run()
    broker.open_sender("q", detached=print).send([encoded("m")], lambda positions, error: None)
    broker.turn_end.run()
    await loop_turns(3)
    assert not worker.available
