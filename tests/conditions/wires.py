"""A raw AMQP connection to a real broker, whose clock stands still, and how errors in its frames are read."""

from __future__ import annotations

from typing import Any, cast

from emubus.broker.api import Observer
from emubus.broker.broker import Broker
from emubus.broker.clock import Clock
from emubus.broker.model.descriptions import QueueDescription
from emubus.broker.model.profiles import Profile

from ..amqp.fakes import FakeBroker
from ..amqp.wire import CLOSE, DETACH, DISPOSITION, END, Frame, Wire
from ..broker.namespace import open_broker

START_AT = 1_700_000_000_000


def wire_to(
    *queues: QueueDescription, profile: Profile = Profile.STANDARD, observer: Observer | None = None
) -> tuple[Wire, Broker]:
    """An open connection to a broker with these queues."""
    clock = Clock(start_at=START_AT, manual=True)
    broker = open_broker(*queues, clock=clock, profile=profile, observer=observer)
    wire = Wire(broker=cast("FakeBroker", broker), clock=clock)
    wire.open()
    return wire, broker


def error_of(frame: Frame) -> tuple[str, str]:
    """The condition and the text of the error in a frame."""
    found: Any = {DETACH: 2, END: 0, CLOSE: 0, DISPOSITION: 4}[frame.code]
    error = frame.get(found)
    if frame.code == DISPOSITION:
        error = error.value[0]
    return str(error.value[0]), error.value[1]
