"""Sends encoded messages for a request, each on its own, and waits for their sequence numbers.

Knows how the broker is asked. Does not know where the messages come from.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ..broker.api import Entity, alone
from ..broker.broker import Broker
from ..broker.errors import BrokerError

Sent = int | None | BrokerError
"""What became of a message: its sequence number in the entity, None for a duplicate, or why it was refused."""


async def send_one(broker: Broker, entity: Entity, data: bytes) -> int | None:
    """Send a message; its sequence number in the entity, None for a duplicate. BrokerError."""
    (sent,) = await send_each(broker, entity, [data])
    if isinstance(sent, BrokerError):
        try:
            raise sent
        finally:
            del sent  # it has this frame, which would have it: a circle, with the message
    return sent


async def send_each(broker: Broker, entity: Entity, encoded: Sequence[bytes]) -> list[Sent]:
    """Send messages; what became of each, in their order. BrokerError if the entity takes none."""
    sender = broker.open_sender(entity.path, detached=lambda _: None)
    sender.close()
    refusals = [sender.size_refusal(data, batch=False) for data in encoded]
    answers = [
        _answer(error) if error is not None else _begin_send(entity, data)
        for data, error in zip(encoded, refusals, strict=True)
    ]
    return list(await asyncio.gather(*answers))


def _answer(sent: Sent) -> asyncio.Future[Sent]:
    answer: asyncio.Future[Sent] = asyncio.get_running_loop().create_future()
    answer.set_result(sent)
    return answer


def _begin_send(entity: Entity, data: bytes) -> asyncio.Future[Sent]:
    answer: asyncio.Future[Sent] = asyncio.get_running_loop().create_future()
    numbers: list[int | None] = []

    def done(error: BrokerError | None) -> None:
        if not answer.done():
            answer.set_result(numbers[0] if error is None else error)

    entity.send([data], alone(done), "the control API or the web page", numbered=numbers.extend)
    return answer
