"""Waiting for one message: a request becomes a consumer with a credit of one, for as long as its client is there.

Knows time-outs, and clients that go away. Does not know what a message looks like, and which one comes next. A
`Wait` belongs to its request.

What a client that has gone would have got goes back at once, uncounted. That is why a receive that deletes takes the
message with a lock, too, and completes it only when somebody is there to have it: taking is no work for the store,
so it costs no more than the other way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from ...broker.api import Consumer, Delivery, ReceiveMode
from ...broker.broker import Broker
from ...broker.clock import Clock
from ...broker.errors import BrokerError, Condition
from ...broker.outcomes import Complete, Release
from ..limits import LOOK_MS_MAX

RELEASE: Final = Release()


class Watched(Protocol):
    """What has to be known of a request's connection (`connection.HttpConnection`): when its socket is gone."""

    watchers: set[Callable[[], None]]

    @property
    def is_lost(self) -> bool:
        """Whether it is."""
        ...


class Wait:
    """One message of a sub-queue for one request. BrokerError for an address that nothing can be received from."""

    def __init__(self, broker: Broker, clock: Clock, address: str) -> None:
        self._broker = broker
        self._clock = clock
        self._address = address
        self._answer: asyncio.Future[Delivery | None] = asyncio.get_running_loop().create_future()
        self._delivery: Delivery | None = None
        self._consumer: Consumer = broker.open_consumer(
            address, mode=ReceiveMode.PEEK_LOCK, deliver=self._deliver, detached=self._detached
        )
        self._entity = self._consumer.entity

    async def message(self, timeout_ms: int, connection: Watched) -> Delivery | None:
        """The message, locked; None if none came in time, or the client has gone. BrokerError if the entity goes away.

        Without a time-out (0) all partitions are asked once. A message that is not None has to be handed over, or
        given back (`release`).
        """
        timer = self._clock.call_at(self._clock.now_ms() + (timeout_ms or LOOK_MS_MAX), self._nothing)
        connection.watchers.add(self._nothing)
        try:
            if connection.is_lost:  # before anybody could watch it
                return None
            self._consumer.set_credit(1)
            if not timeout_ms:
                self._consumer.drain(self._nothing)
            found = await self._answer
        except BaseException:
            self.release()
            raise
        finally:
            timer.cancel()
            connection.watchers.discard(self._nothing)
            self._consumer.close()
        if connection.is_lost:  # after the message was on its way
            self.release()
            return None
        return found

    def release(self) -> None:
        """Give back what came, as if it had never been taken."""
        delivery, self._delivery = self._delivery, None
        if delivery is not None:
            self._entity.settle(delivery.token, RELEASE, None)

    async def complete(self, delivery: Delivery) -> bool:
        """Delete the message; False if its lock was over before the store had done it, and then it comes again."""
        try:
            await self._broker.settle(self._address, [delivery.token], Complete())
        except BrokerError as error:
            if error.condition is not Condition.MESSAGE_LOCK_LOST:
                raise
            return False
        self._delivery = None
        return True

    def check_reachable(self) -> None:
        """BrokerError (server-busy) if there was nothing because no store of the entity can be reached."""
        if not self._entity.is_reachable:
            raise BrokerError(
                Condition.SERVER_BUSY,
                f"No messaging store of '{self._entity.path}' can be reached now. Please retry.",
            )

    def _deliver(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            if self._answer.done():
                self._entity.settle(delivery.token, RELEASE, None)
            else:
                self._delivery = delivery
                self._answer.set_result(delivery)

    def _detached(self, error: BrokerError) -> None:
        if not self._answer.done():
            self._answer.set_exception(error)

    def _nothing(self) -> None:
        if not self._answer.done():
            self._answer.set_result(None)
