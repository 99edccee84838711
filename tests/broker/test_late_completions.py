"""Completed messages for which no receiver waits are stored together, and nothing but a receive overtakes them."""

from __future__ import annotations

import pytest

from emubus.broker.address import SubQueue
from emubus.broker.api import Abandon, Complete, Outcome
from emubus.broker.broker import Broker
from emubus.broker.clock import Clock
from emubus.broker.model.descriptions import QueueDescription
from emubus.broker.partition.requests import Settle
from emubus.broker.stores.late_completions import LATE_MS, TOKENS_MAX, LateCompletions
from emubus.broker.stores.outage import Outage, OutageKind

from .driving import Place, encoded
from .namespace import Receiver, loop_turns, open_broker, send

START = 1_700_000_000_000
LOCK_MS = 60_000
PLACE = Place(QueueDescription("q"), index=0, partitioned=False)
OTHER = Place(QueueDescription("other"), index=0, partitioned=False)


def tokens(first: int, count: int = 1) -> list[bytes]:
    return [number.to_bytes(16, "big") for number in range(first, first + count)]


def completed(
    first: int, count: int = 1, sub_queue: SubQueue = SubQueue.ACTIVE, outcome: Outcome | None = None
) -> Settle:
    return Settle(tokens(first, count), (), outcome or Complete(), None, sub_queue)


async def test_those_of_one_queue_are_one_request_and_keep_their_order() -> None:
    late = LateCompletions(Clock(start_at=START, manual=True), lambda: None)
    first = completed(0)
    for place, request in (
        (PLACE, first),
        (PLACE, completed(1, 2)),
        (PLACE, completed(3, sub_queue=SubQueue.DEAD_LETTER)),
        (OTHER, completed(4)),
        (PLACE, completed(5)),
    ):
        assert late.takes(place, request)
    found = late.take_all()
    assert [
        (ref, list(request.tokens), request.sub_queue) for ref, request in found if isinstance(request, Settle)
    ] == [
        (PLACE, tokens(0, 3), SubQueue.ACTIVE),
        (PLACE, tokens(3), SubQueue.DEAD_LETTER),
        (OTHER, tokens(4), SubQueue.ACTIVE),
        (PLACE, tokens(5), SubQueue.ACTIVE),
    ]
    assert first.tokens == tokens(0), "the run of the link stays as it is"
    assert late.take_all() == []


@pytest.mark.parametrize(
    "request_",
    [
        completed(0, outcome=Abandon()),
        completed(0, TOKENS_MAX // 2 + 1),
        Settle(tokens(0), range(1), Complete(), lambda positions, error: None),
    ],
    ids=["abandoned", "many", "answered"],
)
async def test_others_are_not_kept_back(request_: Settle) -> None:
    late = LateCompletions(Clock(start_at=START, manual=True), lambda: None)
    assert not late.takes(PLACE, request_)
    assert late.take_all() == []


async def test_they_are_due_after_a_while_and_when_they_are_many() -> None:
    due: list[int] = []

    def store() -> None:
        due.append(sum(len(request.tokens) for _, request in late.take_all() if isinstance(request, Settle)))

    clock = Clock(start_at=START, manual=True)
    late = LateCompletions(clock, store)
    assert late.takes(PLACE, completed(0))
    clock.advance(LATE_MS - 1)
    assert due == []
    assert late.takes(PLACE, completed(1))
    clock.advance(1)
    assert due == [2]
    for number in range(TOKENS_MAX):
        assert late.takes(PLACE, completed(number))
    assert due == [2, TOKENS_MAX]
    clock.advance(LATE_MS)
    assert due == [2, TOKENS_MAX], "nothing waits"


class Stage:
    """A queue with messages that a receiver has locked; `batches` counts those of its stores that changed something."""

    def __init__(self) -> None:
        self.batches = 0
        self.clock = Clock(start_at=START, manual=True)
        self.broker: Broker = open_broker(
            QueueDescription("q", lock_duration_ms=LOCK_MS), clock=self.clock, failpoint=self._step
        )
        self.receiver = Receiver(self.broker, "q")

    def _step(self, name: str) -> None:
        self.batches += name == "batch-applied"

    async def lock(self, count: int) -> list[bytes]:
        """Send and lock so many; their tokens."""
        for number in range(count):
            await send(self.broker, "q", encoded(f"m{number}"))
        found = [each.token for each in await self.receiver.receive(count)]
        self.batches = 0
        return found

    def complete(self, token: bytes) -> None:
        self.receiver.consumer.settle([token], Complete(), None)

    def count(self) -> int:
        """The messages that are left."""
        entity = self.broker.namespace.entity("q")
        assert entity is not None
        return sum(entity.message_counts())


async def test_ten_completions_are_one_batch() -> None:
    stage = Stage()
    for token in await stage.lock(10):
        stage.complete(token)
        await loop_turns(3)
    assert stage.batches == 0
    stage.clock.advance(LATE_MS)
    await loop_turns(3)
    assert stage.batches == 1
    assert stage.count() == 0


async def test_a_look_finds_them_done() -> None:
    stage = Stage()
    (token,) = await stage.lock(1)
    stage.complete(token)
    assert stage.count() == 0


async def test_a_receive_overtakes_them_and_a_send_does_not() -> None:
    stage = Stage()
    token, _ = await stage.lock(2)
    await send(stage.broker, "q", encoded("third"))
    stage.batches = 0
    stage.complete(token)
    (third,) = await stage.receiver.receive(1)
    assert stage.batches == 0
    stage.complete(third.token)
    await send(stage.broker, "q", encoded("fourth"))
    assert stage.batches == 1, "all in the batch of the message"
    assert stage.count() == 2


async def test_a_lock_that_held_when_they_came_is_ended() -> None:
    stage = Stage()
    token, kept = await stage.lock(2)
    stage.clock.advance_instants(LOCK_MS - 1)
    stage.complete(token)
    stage.clock.advance_instants(1)  # what the timer of the locks brings does not overtake it
    (again,) = await stage.receiver.receive(1)
    assert again.token not in (token, kept)
    assert stage.count() == 1


async def test_a_stop_stores_them() -> None:
    stage = Stage()
    (token,) = await stage.lock(1)
    stage.complete(token)
    await stage.broker.stop()
    assert stage.batches == 1


async def test_the_end_of_the_link_stores_them() -> None:
    stage = Stage()
    (token,) = await stage.lock(1)
    stage.complete(token)
    stage.receiver.consumer.close()
    assert stage.batches == 1


async def test_an_outage_begins_behind_them() -> None:
    stage = Stage()
    (token,) = await stage.lock(1)
    stage.complete(token)
    for worker in stage.broker.namespace.workers:
        worker.begin_outage(Outage(OutageKind.DOWN))
    for worker in stage.broker.namespace.workers:
        worker.end_outage()
    await loop_turns(1)
    assert stage.batches == 1
    assert stage.count() == 0
