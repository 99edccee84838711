"""What is in a server before somebody looks at its page: messages sent, locked and dead-lettered, without a client."""

from __future__ import annotations

import asyncio

from emubus.broker.admin.overview import Overview
from emubus.broker.api import DeadLetter, Delivery, ReceiveMode, SessionReceiver, alone
from emubus.broker.errors import BrokerError
from emubus.broker.message.builder import NewMessage
from emubus.testing import EmubusServer
from emubus.web.messages.sessions import HeldSessions, accepted

WAIT_S = 120.0


def send(server: EmubusServer, path: str, *messages: NewMessage) -> None:
    """Send messages, one after another."""

    async def run() -> None:
        sender = server.server.broker.open_sender(path, detached=lambda _: None)
        for message in messages:
            answer: asyncio.Future[BrokerError | None] = asyncio.get_running_loop().create_future()
            sender.send([message.encoded()], alone(answer.set_result))
            error = await asyncio.wait_for(answer, WAIT_S)
            if error is not None:
                raise error
        sender.close()

    server.run(run())


def lock(server: EmubusServer, path: str, count: int, *, reason: str | None = None) -> list[int]:
    """Lock messages for good, or with a reason dead-letter them; their sequence numbers."""

    async def run() -> list[int]:
        got: list[Delivery] = []
        more = asyncio.Event()

        def deliver(deliveries: object) -> None:
            got.extend(deliveries)  # type: ignore[arg-type]
            more.set()

        consumer = server.server.broker.open_receiver(
            path, mode=ReceiveMode.PEEK_LOCK, deliver=deliver, detached=lambda _: None
        )
        consumer.set_credit(count)
        async with asyncio.timeout(WAIT_S):
            while len(got) < count:
                more.clear()
                await more.wait()
        consumer.close()
        for delivery in got if reason is not None else ():
            answer: asyncio.Future[BrokerError | None] = asyncio.get_running_loop().create_future()
            outcome = DeadLetter(reason, f"because of {reason}", {})
            consumer.settle([delivery.token], outcome, alone(answer.set_result))
            assert await asyncio.wait_for(answer, WAIT_S) is None
        return [each.sequence_number for each in got]

    return server.run(run())


def hold(server: EmubusServer, path: str, session_id: str, client: str) -> SessionReceiver:
    """Accept a message session as `client`, and receive nothing from it."""
    broker = server.server.broker
    return server.run(accepted(broker, path, session_id, client=client, detached=lambda _: None))


def set_state(server: EmubusServer, path: str, session_id: str, state: bytes | None) -> None:
    """Set the state of a message session that nobody holds."""
    broker = server.server.broker
    server.run(HeldSessions(broker, "a test").set_state(broker.namespace.find(path)[0], session_id, state))


def holders(server: EmubusServer, path: str) -> dict[str, str | None]:
    """Who holds the message sessions that have messages or a state."""

    async def look() -> dict[str, str | None]:
        overview = Overview(server.server.broker.namespace)
        return {each.session_id: each.holder for each in await overview.sessions(overview.entity(path))}

    return server.run(look())


def counts(server: EmubusServer, path: str) -> dict[str, int]:
    """How many messages there are, by where they are; zeros are left out."""

    def look() -> dict[str, int]:
        overview = Overview(server.server.broker.namespace)
        return {name: count for name, count in overview.report(overview.entity(path)).messages.items() if count}

    return server.call(look)
