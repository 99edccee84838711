"""What the broker asks about messages that are late and locks that are short: the sum of several behaviours.

Knows when to have receivers ask again. Does not know why a message is late. Owned by the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..broker.address import SubQueue
from ..broker.api import NO_CUT, LockCut
from ..broker.broker import Broker
from ..broker.clock import Clock, Timer

if TYPE_CHECKING:
    from .behaviour import Behaviour


class Delaying:
    """The delays of a broker (`broker.namespace.use_delays`) while any behaviour has some."""

    def __init__(self, clock: Clock, broker: Broker) -> None:
        self._clock = clock
        self._broker = broker
        self._behaviours: Sequence[Behaviour] = ()
        self._asked_again: dict[str, tuple[int, Timer]] = {}
        """When receivers of an entity ask again (Unix ms), by its path."""

    def use(self, behaviours: Sequence[Behaviour]) -> None:
        """From now on these behaviours decide; without any the broker asks nobody."""
        if not behaviours and not self._behaviours:
            return
        self._behaviours = behaviours
        for _, timer in self._asked_again.values():
            timer.cancel()
        self._asked_again.clear()
        self._broker.namespace.use_delays(self if behaviours else None)

    # ---- what the broker asks

    def due_late_ms(self, path: str, *, is_activation: bool) -> int:
        """How much later a scheduled message becomes active, or a message is removed whose time to live is over."""
        return sum(each.due_late_ms(path, is_activation=is_activation) for each in self._behaviours)

    def hidden_until(self, path: str, sub_queue: SubQueue, number: int, enqueued_at: int) -> int:
        """Until when receivers get neither this message nor later ones of its partition (Unix ms); 0: it is there."""
        until_at = max(each.hidden_until(path, sub_queue, number, enqueued_at) for each in self._behaviours)
        if until_at > self._clock.now_ms():
            known = self._asked_again.get(path)
            if known is None or until_at < known[0]:
                if known is not None:
                    known[1].cancel()
                self._asked_again[path] = until_at, self._clock.call_at(until_at, lambda: self._ask_again(path))
        return until_at

    def lock_cut(self, path: str) -> LockCut:
        """How much earlier the locks of the next answer to a receiver end."""
        for each in self._behaviours:
            cut = each.lock_cut(path)
            if cut is not None:
                return cut._replace(cause=each.title)
        return NO_CUT

    def holds_rules(self, path: str, use: Callable[[], None]) -> bool:
        """Whether changed rules of a subscription are used later: by `use()`."""
        return any(each.holds_rules(path, use) for each in self._behaviours)

    def _ask_again(self, path: str) -> None:
        del self._asked_again[path]
        self._broker.namespace.announce(path)
