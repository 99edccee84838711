"""Waiting for one message: a request becomes a consumer with a credit of one while its client is connected.

Knows time-outs and clients that disconnect. Does not know what a message looks like, or which one comes next. A
`PendingReceive` belongs to its request.

A message for a client that has disconnected goes back at once, without counting as a delivery. Therefore
receive-and-delete also takes a lock first, and completes the message only while the client is connected: a lock writes
nothing to the store, so this costs no more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from ...broker.api import Delivery, ReceiveMode, Receiver
from ...broker.broker import Broker
from ...broker.clock import Clock
from ...broker.errors import BrokerError, Condition
from ...broker.outcomes import Complete, Release
from ..limits import LOOK_MS_MAX
from ..transport.connection import HttpConnection

RELEASE: Final = Release()
CLIENT: Final = "a client of HTTP"


class PendingReceive:
    """One message of a sub-queue for one request. BrokerError if the address can't be received from."""

    def __init__(self, broker: Broker, clock: Clock, address: str) -> None:
        self._broker = broker
        self._clock = clock
        self._address = address
        self._answer: asyncio.Future[Delivery | None] = asyncio.get_running_loop().create_future()
        self._delivery: Delivery | None = None
        self._receiver: Receiver = broker.open_receiver(
            address, mode=ReceiveMode.PEEK_LOCK, deliver=self._deliver, detached=self._detached, client=CLIENT
        )
        self._entity = self._receiver.entity

    async def message(self, timeout_ms: int, connection: HttpConnection) -> Delivery | None:
        """The message, locked; None if none came in time or the client disconnected. BrokerError for a deleted entity.

        Without a time-out (0) all partitions are asked once. The caller delivers a message, or gives it
        back (`release`).
        """
        timer = self._clock.call_at(self._clock.now_ms() + (timeout_ms or LOOK_MS_MAX), self._nothing)
        connection.watchers.add(self._nothing)
        try:
            if connection.is_lost:  # already, so no watcher is called
                return None
            self._receiver.set_credit(1)
            if not timeout_ms:
                self._receiver.drain(self._nothing)
            found = await self._answer
        except BaseException:
            self.release()
            raise
        finally:
            timer.cancel()
            connection.watchers.discard(self._nothing)
            self._receiver.close()
        if connection.is_lost:  # while the message was on its way
            self.release()
            return None
        return found

    def release(self) -> None:
        """Give the message back, without counting a delivery."""
        delivery, self._delivery = self._delivery, None
        if delivery is not None:
            self._entity.settle([delivery.token], RELEASE, None)

    async def complete(self, delivery: Delivery) -> bool:
        """Delete the message; False if its lock expired before that: it will be delivered again."""
        try:
            await self._broker.messages.settle(self._address, [delivery.token], Complete())
        except BrokerError as error:
            if error.condition is not Condition.MESSAGE_LOCK_LOST:
                raise
            return False
        self._delivery = None
        return True

    def check_reachable(self) -> None:
        """BrokerError (server-busy) if no store of the entity can be reached."""
        if not self._entity.is_reachable:
            raise BrokerError(
                Condition.SERVER_BUSY,
                f"No messaging store of '{self._entity.path}' can be reached now. Please retry.",
            )

    def _deliver(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            if self._answer.done():
                self._entity.settle([delivery.token], RELEASE, None)
            else:
                self._delivery = delivery
                self._answer.set_result(delivery)

    def _detached(self, error: BrokerError) -> None:
        if not self._answer.done():
            self._answer.set_exception(error)

    def _nothing(self) -> None:
        if not self._answer.done():
            self._answer.set_result(None)
