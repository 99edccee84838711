"""Sends one encoded message for a request and waits for its sequence number.

Knows how the broker is asked. Does not know where the message comes from.
"""

from __future__ import annotations

import asyncio

from ..broker.api import Entity
from ..broker.broker import Broker
from ..broker.errors import BrokerError


async def send_one(broker: Broker, entity: Entity, data: bytes) -> int | None:
    """Send a message; its sequence number in the entity, None for a duplicate. BrokerError."""
    sender = broker.open_sender(entity.path, detached=lambda _: None)
    sender.close()
    error = sender.size_refusal(data, batch=False)
    if error is not None:
        raise error
    answer: asyncio.Future[BrokerError | None] = asyncio.get_running_loop().create_future()
    numbers: list[int | None] = []
    entity.send(
        data,
        batch=False,
        done=lambda result: None if answer.done() else answer.set_result(result),
        numbered=numbers.extend,
        by="the control API or the web page",
    )
    failure = await answer
    if failure is not None:
        raise failure
    return numbers[0]
