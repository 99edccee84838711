"""Links on which clients send messages to an entity: deliveries to the broker, the broker's word to the client.

Knows the sender handle of the broker. Refuses to know what is in a message. A link owns its handle and closes it.
"""

from __future__ import annotations

from .engine import Pointer
from .fastpath import Done, Host, Inflow
from .ports import SenderPort


class IncomingLink(Inflow):
    """A client's sender link, open for deliveries of up to the entity's size."""

    __slots__ = ("_sender",)

    def __init__(self, host: Host, pointer: Pointer, sender: SenderPort, credit: int) -> None:
        self._sender = sender
        bytes_max = max(sender.message_bytes_max, sender.batch_bytes_max)
        super().__init__(host, pointer, self._send, bytes_max=bytes_max, credit=credit)

    def _send(self, data: bytes, batch: bool, done: Done) -> None:
        self._sender.send(data, batch=batch, done=done)

    def gone(self) -> None:
        """Outcomes that are still to come are ignored from now on."""
        super().gone()
        self._sender.close()
