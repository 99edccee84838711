"""A batch that takes long ends early, and requests for others come before the rest of it."""

from __future__ import annotations

from itertools import count

import pytest

from emubus.broker.api import alone
from emubus.broker.clock import Clock
from emubus.broker.errors import BrokerError
from emubus.broker.message.message import parse_message
from emubus.broker.model.descriptions import QueueDescription
from emubus.broker.partition.receive import ReceiveHandlers
from emubus.broker.partition.requests import Peek
from emubus.broker.partition.turn import Turn
from emubus.broker.stores.batch_runner import BATCH_US

from .namespace import _brokers_stop, brokers_stop, loop_turns, open_broker
from .rules.messages import encoded

__all__ = ["_brokers_stop", "brokers_stop"]

SENDS = 100


@pytest.mark.parametrize("is_slow", [True, False])
async def test_requests_for_others_come_before_the_rest_of_a_long_batch(is_slow: bool) -> None:
    looks = count(0, BATCH_US if is_slow else 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Clock, "stopwatch_us", staticmethod(lambda: next(looks)))
        broker = open_broker()
        create = broker.administration.create
        busy = create(QueueDescription("busy"))
        home = busy.partitions[0].worker
        queues = (create(QueueDescription(f"q{number}")) for number in range(1_000))
        other = next(each for each in queues if each.partitions[0].worker is home)
        order: list[str] = []

        def done(error: BrokerError | None) -> None:
            assert error is None
            order.append("busy")
            if len(order) == 1:
                other.send([encoded()], alone(lambda error: order.append(f"other {error}")))

        for _ in range(SENDS):
            busy.send([encoded()], alone(done))
        for _ in range(1_000):
            await loop_turns(1)
        assert sorted(order) == [*["busy"] * SENDS, "other None"]
        assert order.index("other None") < SENDS // 2 if is_slow else order[-1] == "other None"
        await broker.stop()


async def test_a_peek_that_finds_few_of_many_goes_on_in_further_requests() -> None:
    broker = open_broker(QueueDescription("q"))
    run = [encoded(session_id="few" if not number % 700 else "many", message_id=f"{number}") for number in range(2_200)]
    broker.open_sender("q", detached=print).send(run, lambda _, error: None)
    for _ in range(100):
        await loop_turns(1)
    looked: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        peek = ReceiveHandlers.peek

        def noted(self: ReceiveHandlers, request: Peek, turn: Turn) -> None:
            looked.append(request.from_sequence_number)
            peek(self, request, turn)

        patch.setattr(ReceiveHandlers, "peek", noted)
        found = await broker.messages.peek("q", 0, 3, 1 << 20, session_id="few")
    assert [parse_message(each).message_id for each in found] == ["0", "700", "1400"]
    assert len(looked) == 3, looked
