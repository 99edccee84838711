"""Links on which clients send messages to an entity: deliveries to the broker, the broker's word to the client.

Knows the sender handle of the broker, and the three ways of a delivery: into the entity, into a transaction, or through
the entity to another one [wire 8]. Does not know what is in a message. A link owns its handle and closes it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ...broker.entities.transaction import TransactionRef
from ...broker.errors import BrokerError
from ..wire.deliveries import Done, Host, Inflow
from ..wire.engine import Pointer
from .ports import BrokerPort, SenderPort


class IncomingHost(Host, Protocol):
    """What an incoming link needs of its connection besides."""

    broker: BrokerPort


class IncomingLink(Inflow):
    """A client's sender link, open for deliveries of up to the entity's size; with a `destination` they go on there."""

    __slots__ = ("_broker", "_destination", "_sender")

    def __init__(
        self, host: IncomingHost, pointer: Pointer, sender: SenderPort, credit: int, destination: str | None = None
    ) -> None:
        self._broker = host.broker
        self._sender = sender
        self._destination = destination
        bytes_max = max(sender.message_bytes_max, sender.batch_bytes_max)
        receive = self._send if destination is None else self._send_on
        super().__init__(host, pointer, receive, bytes_max=bytes_max, credit=credit)

    def interpose(self, wrap: Callable[[SenderPort], SenderPort]) -> None:
        """Let something stand between the link and the broker (`faults`)."""
        self._sender = wrap(self._sender)

    def _send(self, data: bytes, batch: bool, done: Done) -> None:
        self._sender.send(data, batch=batch, done=done)

    def _send_on(self, data: bytes, batch: bool, done: Done) -> None:
        self._transfer(None, data, batch, done)

    def receive_in(self, transaction: bytes, data: bytes, batch: bool, done: Done) -> None:
        """Add a delivery to a transaction: the client hears at once that it is in it."""
        if self._destination is not None:
            self._transfer(TransactionRef(self.host, transaction), data, batch, done)
            return
        try:
            self._broker.transactional_send(TransactionRef(self.host, transaction), self._sender, data, batch=batch)
        except BrokerError as error:
            done(error)
        else:
            done(None)

    def _transfer(self, transaction: TransactionRef | None, data: bytes, batch: bool, done: Done) -> None:
        sender, destination = self._sender, self._destination or ""
        error = sender.size_refusal(data, batch=batch)
        if error is not None:
            done(error)
        else:
            self._broker.transactions.transfer(transaction, sender.entity, data, destination, done, batch=batch)

    def gone(self) -> None:
        """Outcomes that are still to come are ignored from now on."""
        super().gone()
        self._sender.close()
