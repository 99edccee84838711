"""The sequence numbers of dead-lettered messages (docs/decisions/0003)."""

from __future__ import annotations

from emubus.broker.address import SubQueue
from emubus.broker.api import DeadLetter
from emubus.broker.model.descriptions import QueueDescription

from .driving import Driver, encoded


def test_a_message_that_is_dead_lettered_late_has_a_higher_number_than_those_before_it() -> None:
    driver = Driver(QueueDescription("q"), index=0)
    for body in ("early", "late"):
        assert driver.send(encoded(body)) is None
    first, second = driver.take(2)
    for delivery in (second, first):
        assert driver.settle(delivery.token, DeadLetter()) is None
    dead = driver.take(2, sub_queue=SubQueue.DEAD_LETTER)
    assert (first.sequence_number, second.sequence_number) == (1, 2)
    assert [delivery.sequence_number for delivery in dead] == [3, 4]
    assert [b"late" in delivery.payload for delivery in dead] == [True, False]
    driver.check()
