"""The fixtures of this folder: a joint that has been opened; at the end nothing of it, and of brokers, is left."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from structlog.testing import capture_logs

from emubus.codec.types import Described

from ..broker.namespace import _brokers_stop, brokers_stop
from ..log_levels import every_level
from .transacting import DECLARED, ID, coordinate, declare
from .wire import Wire

__all__ = ["_brokers_stop", "bare", "brokers_stop", "open_transaction", "wire"]


@pytest.fixture
async def bare() -> AsyncIterator[Wire]:
    """A connection that nothing was said on yet. At the end it is lost, and no error may have been logged."""
    with every_level(), capture_logs() as logs:
        wire = Wire()
        yield wire
        wire.lose()
        assert wire.connections == set()
    assert [entry for entry in logs if entry["log_level"] in ("error", "critical")] == []


@pytest.fixture
async def wire(bare: Wire) -> Wire:
    """A connection that is open, with an AMQP session on channel 0."""
    bare.open()
    return bare


@pytest.fixture
async def open_transaction(wire: Wire) -> Wire:
    """A coordinator at handle 9, on an AMQP session whose first link is that of a sender at handle 8."""
    wire.attach_sender(handle=8)
    coordinate(wire)
    assert declare(wire).get(4) == Described(DECLARED, [ID])
    return wire
