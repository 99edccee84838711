"""Receives messages for one request: those that are there, or the first that comes in time.

Knows time-outs, clients that disconnect, and that a message session is held only during the request. Does not know the
JSON of a message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from ...broker.api import Delivery, Outcome, ReceiveMode, Receiver, Release, SessionReceiver
from ...broker.errors import BrokerError, Condition
from ..limits import LOOK_MS_MAX
from ..messages.sessions import accepted
from ..services import Services
from ..transport.connection import HttpConnection
from .endpoints import ControlRefusal

CLIENT: Final = "the control API"


class _Collector:
    """The deliveries of one request. `finish` ends the wait without a message."""

    def __init__(self) -> None:
        self.deliveries: list[Delivery] = []
        self._changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._error: BrokerError | None = None

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        self.deliveries += deliveries
        self.finish()

    def detached(self, error: BrokerError) -> None:
        """The entity goes away, or the session lock is lost."""
        self._error = error
        self.finish()

    def finish(self) -> None:
        if not self._changed.done():
            self._changed.set_result(None)

    async def wait(self) -> None:
        """Wait for messages, an error or `finish`. BrokerError."""
        await self._changed
        if self._error is not None:
            raise self._error


async def received(
    services: Services,
    connection: asyncio.BaseProtocol | None,
    address: str,
    *,
    count: int,
    timeout_ms: int,
    session_id: str | None,
    sessions: bool,
    outcome: Outcome | None,
) -> tuple[list[Delivery], str | None]:
    """Up to `count` messages, settled with `outcome` (None: they stay locked), and the session that they came from.

    BrokerError; ControlRefusal (409) if messages of a session are to stay locked.
    """
    broker, collector = services.broker, _Collector()
    if not sessions:
        opened = broker.open_receiver(
            address, mode=ReceiveMode.PEEK_LOCK, deliver=collector.deliver, detached=collector.detached, client=CLIENT
        )
        return await _receive_and_settle(
            services, connection, opened, collector, address, count, timeout_ms, outcome
        ), None
    if outcome is None:
        raise ControlRefusal(409, "Messages of a session can't stay locked: the session is free after the request.")
    wait_ms = timeout_ms or LOOK_MS_MAX // 10
    try:
        receiver = await accepted(
            broker, address, session_id, client=CLIENT, detached=collector.detached, timeout_ms=wait_ms
        )
    except BrokerError as error:
        if error.condition is Condition.TIMEOUT:  # no session became idle
            return [], None
        raise
    receiver.deliver = collector.deliver
    return (
        await _receive_and_settle(services, connection, receiver, collector, address, count, timeout_ms, outcome),
        receiver.session_id,
    )


async def _receive_and_settle(
    services: Services,
    connection: asyncio.BaseProtocol | None,
    receiver: Receiver | SessionReceiver,
    collector: _Collector,
    address: str,
    count: int,
    timeout_ms: int,
    outcome: Outcome | None,
) -> list[Delivery]:
    """Receive and settle as one: what a client that has left would not get is released, for others to get at once."""
    watchers: set[Callable[[], None]] = connection.watchers if isinstance(connection, HttpConnection) else set()
    watchers.add(collector.finish)
    try:
        found = await _receive_within(services, receiver, collector, count, timeout_ms)
        is_lost = isinstance(connection, HttpConnection) and connection.is_lost
        if found and (is_lost or outcome is not None):
            tokens = [each.token for each in found]
            await services.broker.messages.settle(address, tokens, Release() if is_lost or outcome is None else outcome)
        return [] if is_lost else found
    finally:
        watchers.discard(collector.finish)
        receiver.close()


async def _receive_within(
    services: Services, receiver: Receiver | SessionReceiver, collector: _Collector, count: int, timeout_ms: int
) -> list[Delivery]:
    """What is there, else the first message within the time-out."""
    drained: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    receiver.set_credit(count)
    receiver.drain(lambda: None if drained.done() else drained.set_result(None))
    with suppress(TimeoutError):
        async with services.clock.time_limit(LOOK_MS_MAX):
            await drained
    if not collector.deliveries and timeout_ms:
        receiver.set_credit(1)
        with suppress(TimeoutError):
            async with services.clock.time_limit(timeout_ms):
                await collector.wait()
    receiver.set_credit(0)
    return collector.deliveries
