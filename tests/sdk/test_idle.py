"""Clients that do nothing for minutes: all at once, so that it takes these minutes only once."""

from __future__ import annotations

from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass

import pytest

from emubus.testing import EmubusServer

from .client import Message, Receiver, Sdk
from .conftest import Drivers, MakeQueue
from .features import partitioned_only
from .prepare import available

pytestmark = [pytest.mark.sdk, pytest.mark.slow, partitioned_only]

IDLE_MS = 180_000
MARGIN_MS = 30_000  # for SDKs that end a wait early or late
BUSY_MS = 60_000  # the server may be asked for this long before and after, on a machine that runs other tests


@dataclass
class Idler:
    """A client with a sender and a receiver that have been used."""

    sdk: Sdk
    queue: str
    receiver: Receiver

    def send_and_receive(self, body: str) -> Message:
        self.sdk.send(self.queue, {"body": body})
        message = self.receiver.receive_one()
        self.receiver.complete(message)
        return message

    def idle(self) -> list[Message]:
        """What one receive call of three minutes gives."""
        return self.receiver.receive(1, IDLE_MS, timeout_s=(IDLE_MS + MARGIN_MS) / 1000)


@pytest.mark.timeout((IDLE_MS + MARGIN_MS + 2 * BUSY_MS) / 1000)
def test_clients_that_were_idle_for_three_minutes_go_on_as_if_nothing_had_been(
    drivers: Drivers, make_queue: MakeQueue, server: EmubusServer
) -> None:
    idlers: dict[str, Idler] = {}
    try:
        for name in available():
            sdk, queue = Sdk(drivers.driver(name)), make_queue()
            idlers[name] = Idler(sdk, queue, sdk.receiver(queue))
            assert idlers[name].send_and_receive("before").body == "before"
        connections_count = server.call(lambda: server.server.amqp.connection_count)
        with ThreadPoolExecutor(len(idlers)) as threads:
            waits = {name: threads.submit(idler.idle) for name, idler in idlers.items()}
            assert wait(waits.values(), (IDLE_MS - MARGIN_MS) / 1000, FIRST_COMPLETED).done == set()
            assert {name: waiting.result() for name, waiting in waits.items()} == {name: [] for name in idlers}
        assert server.call(lambda: server.server.amqp.connection_count) == connections_count
        after = {name: idler.send_and_receive("after") for name, idler in idlers.items()}
        assert {name: (message.body, message.delivery_count) for name, message in after.items()} == dict.fromkeys(
            idlers, ("after", 0)
        )
    finally:
        for idler in idlers.values():
            idler.sdk.reset()
