"""The way of bytes between a socket and its connection while conditions are on: late, slowly, or not to their end.

Keeps the order of bytes in each direction, and holds few of them (R6). Knows where transfer frames begin. Does not know
how late bytes are and where they are cut: behaviours do (`conditions/behaviours/network.py`). Owned by its connection.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from ...broker.clock import Clock, Timer
from ...codec.frames import AMQP_HEADER
from ...conditions.engine import Conditions
from ...conditions.strikes import Passing

HELD_BYTES_MAX: Final = 4 << 20
_FRAME_HEAD_BYTES: Final = 8
_TRANSFER: Final = b"\x00\x53\x14"
"""How the body of a transfer frame begins [AMQP 2.7.5]."""


class Path:
    """Both directions of one connection. `take(data)` gets what comes in, `put(data)` what goes out, late or not.

    `held(is_full, inward)` is called when too many bytes are held, and when few are again; `cut()` resets.
    """

    def __init__(
        self,
        conditions: Conditions,
        clock: Clock,
        number: int,
        take: Callable[[bytes], None],
        put: Callable[[bytes], None],
        held: Callable[[bool, bool], None],
        cut: Callable[[], None],
    ) -> None:
        self._conditions = conditions
        self._number = number
        self._cut = cut
        self._inward = _Direction(clock, take, lambda is_full: held(is_full, True))
        self._outward = _Direction(clock, put, lambda is_full: held(is_full, False))

    def carry(self, data: bytes, *, inward: bool) -> None:
        """Carry bytes that the socket has read, or that the connection writes."""
        direction = self._inward if inward else self._outward
        size = len(data)
        passing = Passing(self._number, inward, size, tuple(direction.frames.transfers(data)))
        delay_ms, cut_at = self._conditions.carry(passing)
        direction.carry(data if cut_at is None else data[:cut_at], delay_ms)
        if cut_at is not None:
            direction.release()
            self._cut()

    @property
    def held_bytes(self) -> int:
        return self._inward.held_bytes + self._outward.held_bytes

    def release(self) -> None:
        """Pass on everything that is held, at once."""
        self._inward.release()
        self._outward.release()

    def release_output(self) -> None:
        """The connection closes: what is to be written is written first."""
        self._outward.release()

    def close(self) -> None:
        """The connection is over: drop what is held."""
        self._inward.close()
        self._outward.close()


class _Direction:
    """Bytes of one direction, in their order."""

    def __init__(self, clock: Clock, deliver: Callable[[bytes], None], full: Callable[[bool], None]) -> None:
        self.frames = Frames()
        self._clock = clock
        self._deliver = deliver
        self._full = full
        self._is_full = False
        self._held: deque[tuple[int, bytes]] = deque()
        self.held_bytes = 0
        self._timer: Timer | None = None

    def carry(self, data: bytes, delay_ms: int) -> None:
        """Deliver bytes after a delay, behind those that are held."""
        if not delay_ms and not self._held:
            self._deliver(data)
            return
        due_at = self._clock.now_ms() + delay_ms
        self._held.append((max(due_at, self._held[-1][0]) if self._held else due_at, data))
        self.held_bytes += len(data)
        if not self._is_full and self.held_bytes > HELD_BYTES_MAX:
            self._is_full = True
            self._full(True)
        self._arm()

    def release(self) -> None:
        self._pass(None)

    def close(self) -> None:
        """Drop everything."""
        self._held.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        if self._timer is None and self._held:
            self._timer = self._clock.call_at(self._held[0][0], self._due)

    def _due(self) -> None:
        self._timer = None
        self._pass(self._clock.now_ms())
        self._arm()

    def _pass(self, until_at: int | None) -> None:
        while self._held and (until_at is None or self._held[0][0] <= until_at):
            _, data = self._held.popleft()
            self.held_bytes -= len(data)
            self._deliver(data)
        if self._is_full and self.held_bytes <= HELD_BYTES_MAX // 2:
            self._is_full = False
            self._full(False)


class Frames:
    """Finds the transfer frames in the bytes of one direction; the first bytes must begin a frame or a header."""

    def __init__(self) -> None:
        self._left = 0
        """Bytes of the frame under way that are still to come."""
        self._head = b""
        """The beginning of a frame that is not decided yet."""

    def transfers(self, data: bytes) -> Iterator[tuple[int, int]]:
        """Where transfer frames begin in `data` (below 0: before it), and how many bytes they have."""
        at = min(self._left, len(data))
        self._left -= at
        while at < len(data):
            start = at - len(self._head)
            wanted = _FRAME_HEAD_BYTES + len(_TRANSFER)
            more = data[at : at + wanted - len(self._head)]
            head = self._head + more
            if head.startswith(AMQP_HEADER[:4]) and len(head) >= _FRAME_HEAD_BYTES:
                self._head, at = b"", start + _FRAME_HEAD_BYTES
                continue
            size = int.from_bytes(head[:4], "big")
            if len(head) < min(wanted, max(size, _FRAME_HEAD_BYTES)):
                self._head = head
                return
            self._head = b""
            size = max(size, _FRAME_HEAD_BYTES)
            if head[_FRAME_HEAD_BYTES:] == _TRANSFER:
                yield start, size
            at = start + size
            if at > len(data):
                self._left = at - len(data)
