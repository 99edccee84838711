"""Keeps back completed messages for whose end nobody waits, so that those of a moment are stored together.

A client may settle a message with its outcome, and hears no answer (AMQP's settled dispositions). Nothing but a kill of
the process shows whether that is stored now or a moment later: what was completed then comes again, as if the frame had
not arrived. So receives overtake it, and all else finds it done: any other request, any look at the store, and the end
of the link bring it before themselves. It counts at the instant at which it came (`Settle.came_at`). On the event loop;
owned by a worker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ..address import SubQueue
from ..clock import Clock, Timer
from ..outcomes import Complete
from ..partition.contract import PartitionRef
from ..partition.requests import Settle
from .batches import Submitted
from .group_commits import SYNC_AFTER_MS

LATE_MS: Final = 20
"""How long the first one waits for others. A client with one message at a time completes some fifty in it, three for
each of sixteen stores, which share a batch. Processor time, 20 ms for 2 ms: plain the same, in 16 stores a sixth less;
with `full`, where a batch is a wait for the disk, a third and a fifth less (`python bench/brokers.py --windows 1
--sizes 1024`). Longer saves little more, and a kill brings more messages again."""

TOKENS_MAX: Final = 64
"""So many are stored at once: then the batch costs little for each. A run of more than half of it is not kept back."""

assert LATE_MS * 10 <= SYNC_AFTER_MS, "a kill brings much less again than a power cut may"


class LateCompletions:
    """Those of one store. `due()` is called when the first has waited, or when they are many."""

    def __init__(self, clock: Clock, due: Callable[[], None]) -> None:
        self._clock = clock
        self._due = due
        self._timer: Timer | None = None
        self._tokens: list[bytes] = []  # of the last request, which has this list
        self._sub_queue = SubQueue.ACTIVE  # of the last request
        self._count = 0
        self.waiting: list[Submitted] = []
        """To be stored before anything but receives, in their order."""

    def takes(self, ref: PartitionRef, request: Settle) -> bool:
        """Keep a settlement back if it may come late; False if it may not."""
        count = len(request.tokens)
        if request.done is not None or type(request.outcome) is not Complete or count * 2 > TOKENS_MAX:
            return False
        waiting = self.waiting
        if waiting and waiting[-1][0] is ref and self._sub_queue is request.sub_queue:
            self._tokens += request.tokens
        else:
            self._tokens, self._sub_queue = list(request.tokens), request.sub_queue
            now = self._clock.now_ms()
            kept = Settle(self._tokens, (), request.outcome, None, request.sub_queue, now)
            waiting.append((ref, kept))
            if self._timer is None:
                self._timer = self._clock.call_after(LATE_MS, self._on_timer)
        self._count += count
        if self._count >= TOKENS_MAX:
            self._due()
        return True

    def take_all(self) -> list[Submitted]:
        """Give them up, in their order."""
        found, self.waiting, self._count = self.waiting, [], 0
        return found

    def stop(self) -> None:
        """Nothing comes any more, and nothing waits."""
        if self._timer is not None:
            self._timer.cancel()

    def _on_timer(self) -> None:
        """The timer of one that was given up long since may end the wait of the next a little early."""
        self._timer = None
        if self.waiting:
            self._due()
