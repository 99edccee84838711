"""Links on which clients browse: a source with distribution-mode copy [AMQP 3.5.3].

JMS browsers attach like that; as receivers they would lock messages that their clients only want to see. Knows the
client's credit and how far the client has browsed. Locks nothing: a link peeks, and sends active messages only, since
browsers know no others. Messages that arrive later are sent with the next flow. A link owns a receiver that never gets
credit: its `detached` says when the entity goes away.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from ...broker.api import Delivery, Matches
from ...broker.errors import BrokerError, decode_refusal
from ...broker.message.message import parse_message
from ...codec.decode import decode
from ...codec.errors import DecodeError
from ...codec.types import Described
from ..link_context import LinkContext
from ..wire.engine import Pointer, lib
from ..wire.link import link_credit
from ..wire.outgoing_deliveries import OutgoingDeliveries
from ..wire.run import Run
from .hooks import ReceiverHandle

_ACTIVE: Final = 0
_SLICE_COUNT: Final = 256
_SLICE_BYTES: Final = 1024 * 1024
STEP_COUNT: Final = 16
"""Messages that are sent in one step of the loop: 1 ms, 5 on a slow machine. With all of a slice in one step a send of
somebody else waited for 0.45 s behind three hundred browsers on such a machine; a step costs 0.03 ms."""


class BrowsingLink(OutgoingDeliveries):
    """A client's browser. `start` gives it its broker receiver, right after the attach was accepted."""

    __slots__ = ("_address", "_busy", "_context", "_matches", "_next", "_number", "_owes_answer", "_receiver", "tap")

    def __init__(
        self,
        context: LinkContext,
        pointer: Pointer,
        address: str,
        *,
        presettled: bool,
        matches: Matches | None = None,
    ) -> None:
        super().__init__(context.wire, pointer, presettled=presettled)
        self._matches = matches
        self._context = context
        self._address = address
        self._receiver: ReceiverHandle | None = None
        self._next = 0  # the sequence number from which on the client has seen nothing
        self._number = 0  # of the last delivery
        self._busy = False
        self._owes_answer = False
        self.tap: Callable[[], bool] | None = None
        """Where faults say before each peek whether it may be; False once they end the link or its connection."""

    def start(self, receiver: ReceiverHandle) -> None:
        """From now on the client may browse."""
        self._receiver = receiver

    def on_flow(self) -> None:
        """A flow of the client, or Proton telling that it has sent something."""
        credit = link_credit(self.pointer)
        more = credit > self.credit
        self.credit = credit
        self._owes_answer = self._takes_reply() or self._owes_answer
        if (more or self._owes_answer) and (credit == 0 or self.tap is None or self.tap()):
            self.resume()

    def resume(self) -> None:
        """Go on, unless a peek is under way or there is no room; then the flow that asked is answered."""
        if self._busy or self._receiver is None:
            return
        self._busy = True
        self._context.requests.run(self._browse())

    async def _browse(self) -> None:
        try:
            await self._peek_on()
        except BrokerError as error:
            self._context.requests.detach(self.pointer, error)

    async def _peek_on(self) -> None:
        """Send messages from where the last peek ended, as far as credit and room go."""
        context, flow = self._context, self.state.flow
        more = True
        while more and self._receiver is not None and self.credit > 0:
            async with context.copying(_SLICE_BYTES):  # one link after the other
                unsent_bytes = 0 if self._receiver is None else lib.pn_session_outgoing_bytes(self.session)
                if flow.is_blocked or unsent_bytes > context.limits.outgoing_bytes_max:
                    flow.hold(self.resume)
                    self._busy = False
                    return
                more = await self._peek_once()
        self._busy = False
        if self._receiver is not None:
            self._answer()

    async def _peek_once(self) -> bool:
        """Send the next messages; whether there may be more."""
        if self._receiver is None or self.credit <= 0:
            return False
        count = min(self.credit, _SLICE_COUNT)
        messages = await self._context.broker.messages.peek(self._address, self._next, count, _SLICE_BYTES)
        if not messages or self._receiver is None:
            return False
        while messages and self._receiver is not None and self.credit > 0:  # what is left is peeked again
            step = messages[: min(self.credit, STEP_COUNT)]
            del messages[: len(step)]
            self._send(step)
            if messages:
                await asyncio.sleep(0)  # the step is over: others get their turn
        return self._receiver is not None

    def _send(self, messages: Sequence[bytes]) -> None:
        """Send the active ones; there is credit for all."""
        active: list[Delivery] = []
        for message in messages:
            number, state, count = _facts_of(message)
            self._next = number + 1
            if state == _ACTIVE and (self._matches is None or self._matches(parse_message(message), count)):
                self._number += 1
                active.append(Delivery(self._number.to_bytes(16, "big"), message, number))
        self.transfer(active)
        self.state.schedule_flush()

    def _answer(self) -> None:
        """Answer the flow that wanted an answer."""
        owes, self._owes_answer = self._owes_answer, False
        if owes and self.wants_drain():
            self.give_back()
        elif owes:
            self.show_state()

    def disposed(self, run: Run) -> None:
        """Confirm what the client says of a copy; nothing happens to the message."""
        if not run.is_settled:
            run.done_all(None)

    def gone(self) -> None:
        super().gone()
        self.state.flow.release(self.resume)
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            receiver.close()


def _facts_of(message: bytes) -> tuple[int, int, int]:
    """What the broker has written into a message: sequence number, state, delivery count."""
    position = delivery_count = 0
    while position < len(message):
        try:
            section, position = decode(message, position)
        except DecodeError as error:
            raise decode_refusal(error) from None
        match section:
            case Described(descriptor=0x70, value=[_, _, _, _, int(count), *_]):
                delivery_count = count
            case Described(descriptor=0x72, value=dict(annotations)):
                state = int(annotations.get("x-opt-message-state", _ACTIVE))
                return int(annotations["x-opt-sequence-number"]), state, delivery_count
    raise AssertionError("a peeked message has annotations of the broker's")
