"""Links on which clients look at messages without taking them: a source with distribution-mode copy [AMQP 3.5.3].

JMS browsers attach like that; taken for a receiver, such a link would lock what its client only wants to see. Knows
the client's credit and how far it has looked. Refuses to lock anything: it peeks, and shows active messages only, since
browsers know no others. What comes later is shown with the next flow, not by itself. A link owns a consumer that never
gets credit and through which it hears when the entity goes away.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

from ...broker.errors import BrokerError, decode_refusal
from ...broker.partition.step import Delivery
from ...codec.decode import decode
from ...codec.errors import DecodeError
from ...codec.types import Described
from ..limits import Limits
from ..wire.deliveries import Done, Host, Outflow, link_credit
from ..wire.engine import Pointer, lib, session_of
from .ports import BrokerPort, ConsumerPort

_MESSAGE_ANNOTATIONS: Final = 0x72
_ACTIVE: Final = 0
_SLICE_COUNT: Final = 256
_SLICE_BYTES: Final = 1024 * 1024


class BrowsingHost(Host, Protocol):
    """What these links need of their connection besides."""

    broker: BrokerPort
    limits: Limits
    held: set[Outflow]
    blocked: bool

    def run(self, work: Awaitable[None]) -> None:
        """Run work to its end; whatever it raises closes the connection."""
        ...

    def detach(self, pointer: Pointer, error: BrokerError) -> None:
        """Close a link from our side."""
        ...


class BrowsingLink(Outflow):
    """A client's browser. `start` gives it its consumer, right after the attach was accepted."""

    __slots__ = ("_address", "_asked", "_busy", "_consumer", "_host", "_next", "_number", "may_look")

    def __init__(self, host: BrowsingHost, pointer: Pointer, address: str, *, presettled: bool) -> None:
        super().__init__(host, pointer, presettled=presettled)
        self._host = host
        self._address = address
        self._consumer: ConsumerPort | None = None
        self._next = 0
        self._number = 0
        self._busy = False
        self._asked = False
        self.may_look: Callable[[], bool] = always
        """Asked before each look; False while the link or its connection is ended."""

    def start(self, consumer: ConsumerPort) -> None:
        """From now on the client may look."""
        self._consumer = consumer

    def on_flow(self) -> None:
        """A flow of the client, or Proton telling that it has sent something."""
        credit = link_credit(self.pointer)
        more = credit > self.credit
        self.credit = credit
        self._asked, self.asked = self._asked or self.asked, False
        if (more or self._asked) and (credit == 0 or self.may_look()):
            self.resume()

    def resume(self) -> None:
        """Look on, unless that is going on or there is no room; then the flow that asked is answered."""
        if self._busy or self._consumer is None:
            return
        self._busy = True
        self._host.run(self._look())

    async def _look(self) -> None:
        try:
            await self._look_through()
        except BrokerError as error:
            self._host.detach(self.pointer, error)

    async def _look_through(self) -> None:
        """Show what there is from where the last look ended, as far as credit and room go."""
        host = self._host
        while self._consumer is not None and self.credit > 0:
            if host.blocked or lib.pn_session_outgoing_bytes(session_of(self.pointer)) > host.limits.outgoing_bytes_max:
                host.held.add(self)
                self._busy = False
                return
            count = min(self.credit, _SLICE_COUNT)
            messages = await host.broker.peek(self._address, self._next, count, _SLICE_BYTES)
            if not messages or self._consumer is None:
                break
            self._show(messages)
        self._busy = False
        if self._consumer is not None:
            self._answer()

    def _show(self, messages: list[bytes]) -> None:
        shown: list[Delivery] = []
        for message in messages[: max(0, self.credit)]:
            number, state = _number_and_state(message)
            self._next = number + 1
            if state == _ACTIVE:
                self._number += 1
                shown.append(Delivery(self._number.to_bytes(16, "big"), message, number))
        self.transfer(shown)
        self._host.schedule_flush()

    def _answer(self) -> None:
        asked, self._asked = self._asked, False
        if asked and self.wants_drain():
            self.give_back()
        elif asked:
            self.show_state()

    def disposed(self, token: bytes, state: int, delivery: Any, done: Done | None) -> None:
        """Whatever the client says of a copy: confirmed, and nothing happens to the message."""
        del token, state, delivery
        if done is not None:
            done(None)

    def gone(self) -> None:
        """The client looks no more."""
        super().gone()
        self._host.held.discard(self)
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()


def always() -> bool:
    """Nothing stands in the way of a look."""
    return True


def _number_and_state(message: bytes) -> tuple[int, int]:
    """What the broker has written into a message's annotations: sequence number and state."""
    position = 0
    while position < len(message):
        try:
            section, position = decode(message, position)
        except DecodeError as error:
            raise decode_refusal(error) from None
        if isinstance(section, Described) and section.descriptor == _MESSAGE_ANNOTATIONS:
            annotations = section.value if isinstance(section.value, dict) else {}
            return int(annotations["x-opt-sequence-number"]), int(annotations.get("x-opt-message-state", _ACTIVE))
    raise AssertionError("a peeked message has annotations of the broker's")
