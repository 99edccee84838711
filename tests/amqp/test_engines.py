"""A client that is a Proton engine itself, joined to the server in memory: many messages, none lost, none twice."""

from __future__ import annotations

from typing import Any

import proton
import pytest

from emubus.broker.api import Complete
from emubus.codec.frames import SASL_HEADER

from .wire import Wire, sasl_init


class Client:
    """Proton's readable API on the client's side; `pump` moves bytes until both sides are silent."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.collector = proton.Collector()
        self.connection = proton.Connection()
        self.connection.container = "proton"
        self.connection.collect(self.collector)
        self.transport = proton.Transport()
        self.transport.bind(self.connection)
        self.connection.open()
        self.session = self.connection.session()
        self.session.open()
        wire.write(SASL_HEADER + sasl_init())
        wire.socket.take()

    def receiver(self, name: str) -> Any:
        link = self.session.receiver(name)
        link.source.address = "q"
        link.target.address = name
        link.rcv_settle_mode = proton.Link.RCV_SECOND
        link.open()
        return link

    def sender(self, name: str) -> Any:
        link = self.session.sender(name)
        link.source.address = name
        link.target.address = "q"
        link.open()
        return link

    async def pump(self) -> None:
        silent = 0
        while silent < 2:
            data = b""
            while (pending := self.transport.pending()) > 0:
                data += self.transport.peek(pending) or b""
                self.transport.pop(pending)
            if data:
                self.wire.write(data)
            await self.wire.turns(2)
            answer = self.wire.socket.take()
            silent = 0 if data or answer else silent + 1
            while answer:
                size = min(len(answer), self.transport.capacity())
                self.transport.push(answer[:size])
                answer = answer[size:]
            while self.collector.peek():
                self.collector.pop()


@pytest.fixture
async def client(bare: Wire) -> Client:
    client = Client(bare)
    await client.pump()
    return client


@pytest.mark.parametrize("size", [10, 5_000, 100_000])
async def test_all_that_a_proton_client_sends_arrives_once_and_in_order(client: Client, size: int) -> None:
    count = 2_000 if size < 1000 else 100
    sender = client.sender("s")
    await client.pump()
    sent = [b"%d " % number + bytes(size) for number in range(count)]
    deliveries = []
    for number, payload in enumerate(sent):
        deliveries.append(sender.delivery(f"tag{number}"))
        sender.send(payload)
        sender.advance()
        if number % 300 == 299:
            await client.pump()
    await client.pump()
    assert [data for data, _ in client.wire.broker.q.sent] == sent
    assert {delivery.remote_state for delivery in deliveries} == {proton.Delivery.ACCEPTED}
    assert all(delivery.settled for delivery in deliveries)
    for delivery in deliveries:
        delivery.settle()


@pytest.mark.parametrize("size", [10, 5_000, 100_000])
async def test_all_that_the_broker_has_reaches_a_proton_client_once_and_is_settled(client: Client, size: int) -> None:
    count = 2_000 if size < 1000 else 100
    client.wire.broker.q.put(*[b"%d " % number + bytes(size) for number in range(count)])
    receiver = client.receiver("r")
    received: list[bytes] = []
    kept: list[Any] = []
    while len(received) < count:
        receiver.flow(300)
        await client.pump()
        while (delivery := receiver.current) is not None and not delivery.partial:
            received.append(bytes(receiver.recv(delivery.pending)))
            receiver.advance()
            delivery.update(proton.Delivery.ACCEPTED)
            kept.append(delivery)
    await client.pump()
    assert [int(payload.split(b" ")[0]) for payload in received] == list(range(count))
    assert [outcome for _, outcome in client.wire.broker.q.settled] == [Complete()] * count
    assert all(delivery.settled for delivery in kept)
    assert client.wire.broker.q.locked == {}
    for delivery in kept:
        delivery.settle()


async def test_a_proton_client_drains(client: Client) -> None:
    client.wire.broker.q.put(b"one", b"two")
    receiver = client.receiver("r")
    receiver.drain(10)
    await client.pump()
    assert receiver.queued == 2
    assert receiver.credit == 2  # those that lie there; the other eight came back
    assert receiver.drained() == 8


async def test_links_come_and_go_by_the_hundred_on_one_session(client: Client) -> None:
    for number in range(300):
        sender, receiver = client.sender(f"s{number}"), client.receiver(f"r{number}")
        receiver.flow(1)
        delivery = sender.delivery("t")
        sender.send(b"message")
        sender.advance()
        client.wire.broker.q.put(b"back")
        await client.pump()
        assert delivery.remote_state == proton.Delivery.ACCEPTED
        assert bytes(receiver.recv(100)) == b"back"
        sender.close()
        receiver.close()
        await client.pump()
        assert client.wire.server.context.wire.links == {}
        sender.free()
        receiver.free()
    assert len(client.wire.broker.q.sent) == 300
