"""The load client's links: each sends or receives a given number of messages.

Every message has its number in the last eight bytes of its body, so a lost, doubled or refused message fails the run
instead of making it fast. Does not know the broker or the connection's turns: `load.py` calls `step` before each and
`event` for each delivery of the link.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Final

from cproton_ffi import ffi, lib
from engine import Engine, EngineError, Pointer, TagWriter
from messages import NUMBER_BYTES, Template

SAMPLE_EVERY: Final = 16
"""Latency is measured for one delivery in so many: a look-up for each would cost too much at 100 000 per second."""

BUFFER_BYTES: Final = 1 << 21

OUTCOMES: Final[Mapping[int, str]] = {
    lib.PN_ACCEPTED: "accepted",
    lib.PN_REJECTED: "rejected",
    lib.PN_RELEASED: "released",
    lib.PN_MODIFIED: "modified",
}


class Part(ABC):
    """One link and what it has to do; it may need a second link to do it."""

    def __init__(self, link: Pointer) -> None:
        self.link = link
        self.links = [link]
        """All links; the last one is closed first."""
        self.latencies_s: list[float] = []

    @property
    @abstractmethod
    def moved(self) -> int:
        """Grows with every event."""

    @property
    @abstractmethod
    def done(self) -> bool:
        """True when everything was sent or received, and answered."""

    @abstractmethod
    def step(self) -> None:
        """Send, or grant credit, as far as it is allowed."""

    @abstractmethod
    def event(self, delivery: Pointer) -> None:
        """Handle what has come for one delivery. Raises EngineError if a message was lost, doubled or refused."""


class Sending(Part):
    """A sender that keeps up to `window` unsettled outstanding messages until `count` are accepted.

    A delivery has as many messages as its template. Raises EngineError unless every delivery is accepted.
    """

    def __init__(self, engine: Engine, address: str, count: int, template: Template, window: int) -> None:
        batches = template.messages > 1
        super().__init__(engine.open_sender(address, "bench-sender", batches=batches))
        self.count = count
        self.sent = 0
        self.accepted = 0
        self._window = max(window, template.messages)
        self._template = template
        self._tags = TagWriter(batches=batches)
        self._samples: dict[Pointer, float] = {}

    @property
    def moved(self) -> int:
        """See `Part`."""
        return self.sent + self.accepted

    @property
    def done(self) -> bool:
        """See `Part`."""
        return self.accepted == self.count

    def step(self) -> None:
        """Send as many as window and credit allow."""
        link, template, tags = self.link, self._template, self._tags
        each = template.messages
        room = min(
            (self._window - (self.sent - self.accepted)) // each,
            lib.pn_link_credit(link) - lib.pn_link_queued(link),
            (self.count - self.sent) // each,
        )
        if room <= 0:
            return
        new_delivery, send, advance = lib.pn_delivery, lib.pn_link_send, lib.pn_link_advance
        data, length, tag = template.data, template.length, tags.tag
        now_s = time.perf_counter()
        for number in range(self.sent, self.sent + room * each, each):
            tags.write(number)
            template.write(number)
            delivery = new_delivery(link, tag)
            send(link, data, length)
            advance(link)
            if number // each % SAMPLE_EVERY == 0:
                self._samples[delivery] = now_s
        self.sent += room * each

    def event(self, delivery: Pointer) -> None:
        """Handle the broker's outcome of one delivery."""
        if not is_accepted(delivery):
            return
        if self._samples and (sent_at_s := self._samples.pop(delivery, None)) is not None:
            self.latencies_s.append(time.perf_counter() - sent_at_s)
        self.accepted += self._template.messages
        lib.pn_delivery_settle(delivery)


class Receiving(Part):
    """A receiver that accepts `count` messages, with up to `window` of credit.

    The messages' numbers are below the length of `seen`, no number twice; several receivers may share it. `confirmed`
    waits for the broker's answer to each outcome; otherwise outcomes are sent settled.
    """

    def __init__(
        self,
        engine: Engine,
        address: str,
        count: int,
        seen: bytearray,
        window: int,
        *,
        confirmed: bool = False,
        session_id: str | None = None,
    ) -> None:
        name = f"bench-receiver-{address}-{session_id}"
        super().__init__(engine.open_receiver(address, name, confirmed=confirmed, session_id=session_id))
        self.count = count
        self.received = 0
        self.answered = 0
        self._confirmed = confirmed
        self._window = window
        self._granted = 0
        self._granted_at_s = 0.0
        self._seen = seen
        self._buffer: Pointer = _buffer()

    @property
    def moved(self) -> int:
        """See `Part`."""
        return self.received + self.answered

    @property
    def done(self) -> bool:
        """True when every message was accepted, and confirmed if that was asked for."""
        return self.received == self.count and (not self._confirmed or self.answered == self.count)

    def step(self) -> None:
        """Grant credit again when half of it is used; never more than `count` in all."""
        outstanding = self._granted - self.received
        more = min(self._window - outstanding, self.count - self._granted)
        if more > 0 and (outstanding <= self._window // 2):
            lib.pn_link_flow(self.link, more)
            self._granted += more
            self._granted_at_s = time.perf_counter()

    def event(self, delivery: Pointer) -> None:
        """Handle one event of a delivery: the message itself, or the broker's answer to our outcome."""
        if not lib.pn_delivery_readable(delivery):
            if self._confirmed and lib.pn_delivery_settled(delivery):
                self.answered += 1
                lib.pn_delivery_settle(delivery)
            return
        if lib.pn_delivery_partial(delivery):
            return
        self._take()
        lib.pn_delivery_update(delivery, lib.PN_ACCEPTED)
        lib.pn_link_advance(self.link)
        if not self._confirmed:
            lib.pn_delivery_settle(delivery)

    def _take(self) -> int:
        """Read the current delivery and check its number off; returns the number."""
        length = lib.pn_link_recv(self.link, self._buffer, BUFFER_BYTES)
        number: int = ffi.cast("uint64_t *", self._buffer + length - NUMBER_BYTES)[0] if length > NUMBER_BYTES else -1
        if not 0 <= number < len(self._seen):
            raise EngineError(f"a message came that was not sent here: {length} bytes, number {number}")
        if self._seen[number]:
            raise EngineError(f"message {number} came twice")
        self._seen[number] = 1
        self.received += 1
        if self._window == 1:
            self.latencies_s.append(time.perf_counter() - self._granted_at_s)
        return number


def is_accepted(delivery: Pointer, state: int = lib.PN_ACCEPTED) -> bool:
    """Whether the outcome has come that is expected. Raises EngineError if it is another one."""
    found = lib.pn_delivery_remote_state(delivery)
    if found == state:
        return True
    if not lib.pn_delivery_settled(delivery):
        return False
    condition = lib.pn_disposition_condition(lib.pn_delivery_remote(delivery))
    description = lib.pn_condition_get_description(condition)
    text = ffi.string(description).decode() if description else ""
    raise EngineError(f"a message was not accepted but {OUTCOMES.get(found, found)}: {text}")


_shared: list[Pointer] = []


def _buffer() -> Pointer:
    """One buffer for all receivers of the process: nothing stays in it from one call to the next."""
    if not _shared:
        _shared.append(ffi.new("char[]", BUFFER_BYTES))
    return _shared[0]
