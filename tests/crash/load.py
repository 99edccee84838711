"""A plain AMQP peer that keeps sending and settling until the broker dies, and remembers what the broker confirmed.

Not an SDK: Proton's own reactor, so that hundreds of deliveries are under way when the process is killed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from proton import Delivery, Message
from proton.handlers import MessagingHandler
from proton.reactor import AtLeastOnce, Container

RECONNECT_NEVER = False


@dataclass
class BrokerAnswers:
    """The broker's answers before it died."""

    accepted: set[str] = field(default_factory=set[str])  # sends that it acknowledged
    refused: list[str] = field(default_factory=list[str])
    settling: set[str] = field(default_factory=set[str])  # settlements that were asked for
    settled: set[str] = field(default_factory=set[str])  # settlements that it confirmed


class Load(MessagingHandler):
    """Sends numbered messages to each queue and completes every other one that comes back, until disconnected."""

    def __init__(
        self,
        url: str,
        queues: list[str],
        prefix: str,
        messages_max: int,
        confirmed: Callable[[BrokerAnswers], None] = lambda _: None,
    ) -> None:
        """`confirmed` is called after each confirmation of the broker; it may kill the broker."""
        super().__init__(auto_accept=False, prefetch=50)
        self._confirmed = confirmed
        self.url = url
        self.queues = queues
        self.prefix = prefix
        self.messages_max = messages_max
        self.answers = BrokerAnswers()
        self._sent = 0
        self._seen = 0
        self._ids: dict[Delivery, str] = {}

    def on_start(self, event: Any) -> None:
        connection = event.container.connect(self.url, reconnect=RECONNECT_NEVER, allowed_mechs="ANONYMOUS")
        for queue in self.queues:
            event.container.create_sender(connection, queue, options=AtLeastOnce())
            event.container.create_receiver(connection, queue, options=Peek())

    def on_sendable(self, event: Any) -> None:
        self._send(event.sender)

    def _send(self, sender: Any) -> None:
        while sender.credit and self._sent < self.messages_max and sender.queued < 100:
            name = f"{self.prefix}-{self._sent}"
            self._sent += 1
            size = (self._sent * 37) % 700
            sender.send(Message(id=name, body=b"x" * size, durable=True, inferred=True), tag=name)

    def on_accepted(self, event: Any) -> None:
        if event.link.is_sender:
            self.answers.accepted.add(event.delivery.tag)
            self._confirmed(self.answers)
            self._send(event.link)

    def on_rejected(self, event: Any) -> None:
        if event.link.is_sender:
            self.answers.refused.append(event.delivery.tag)

    def on_message(self, event: Any) -> None:
        self._seen += 1
        if self._seen % 2:
            return  # stays locked: it must be there after the restart
        name = str(event.message.id)
        self.answers.settling.add(name)
        self._ids[event.delivery] = name
        event.delivery.update(Delivery.ACCEPTED)

    def on_settled(self, event: Any) -> None:
        if event.link.is_receiver:
            name = self._ids.pop(event.delivery, None)
            if name is not None and event.delivery.remote_state == Delivery.ACCEPTED:
                self.answers.settled.add(name)
                self._confirmed(self.answers)

    def on_disconnected(self, event: Any) -> None:
        event.container.stop()

    def on_transport_error(self, event: Any) -> None:
        event.container.stop()


class Peek(AtLeastOnce):
    """Peek-lock: the receiver asks for confirmation of its settlements (rcv-settle-mode second)."""

    def apply(self, link: Any) -> None:
        super().apply(link)
        link.rcv_settle_mode = 1


def run_until_killed(load: Load) -> BrokerAnswers:
    """Run the peer until the broker is gone; what the broker confirmed."""
    Container(load).run()
    return load.answers
