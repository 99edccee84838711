"""Hands what an entity's partitions have to those who wait for it (P19, P20): messages, or idle message sessions.

Knows which partitions may have something and who wants how many; asks partitions in turn, consumers first come, first
served, one question per partition at a time. Does not know messages, locks and links. Owned by an `Entity`.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Generic, Protocol, TypeVar

from ..partition.requests import Request
from ..partition.step import Received

TAKE_MESSAGES_MAX = 256  # asked of one partition at once, so that other consumers get their turn
LEFT_MAX = 64  # entries of consumers that left, before the line is tidied

T = TypeVar("T")
Ask = Callable[[int, Request], None]


class Demand(Generic[T]):
    """What one consumer still wants: `wanted` things, of which `asked` are already asked for.

    `make(count, reply)` is the question to a partition, `deliver` gets what it answered, and `give_back(partition,
    things)` what it answered after `close`.
    """

    __slots__ = ("asked", "closed", "deliver", "drained", "give_back", "make", "turn", "waiting", "wanted")

    def __init__(
        self,
        make: Callable[[int, Callable[[Received[T]], None]], Request],
        deliver: Callable[[Sequence[T]], None],
        give_back: Callable[[int, Sequence[T]], None],
    ) -> None:
        self.make = make
        self.deliver = deliver
        self.give_back = give_back
        self.wanted = 0
        self.asked = 0
        self.waiting = False
        self.turn = 0
        self.closed = False
        self.drained: Callable[[], None] | None = None


class Dispatcher(Generic[T]):
    """Those who wait, and the ready partitions; `ask(partition, request)` reaches a partition."""

    def __init__(self, partition_count: int, ask: Ask) -> None:
        self._ask = ask
        self._ready: deque[int] = deque(range(partition_count))  # whether they really have messages shows when asked
        self._is_ready = [True] * partition_count
        self._asking = [False] * partition_count
        self._announced_meanwhile = [False] * partition_count
        self._waiting: list[tuple[int, int, Demand[T]]] = []  # a heap by turn; entries of who left are passed over
        self._last_turn = 0
        self._left_count = 0  # at least so many entries are of consumers that left
        self._draining: list[Demand[T]] = []

    @property
    def is_waited_for(self) -> bool:
        """Whether anybody waits."""
        return any(demand.waiting for _, _, demand in self._waiting)

    def set_demand(self, demand: Demand[T], wanted: int) -> None:
        """`demand` wants `wanted` more messages from now on, whatever it wanted before."""
        demand.wanted = wanted
        self._enlist(demand)
        self._pump()

    def drain(self, demand: Demand[T], drained: Callable[[], None]) -> None:
        """Give `demand` all that is available now, then call `drained()` and leave it wanting nothing."""
        demand.drained = drained
        self._draining.append(demand)
        self._enlist(demand)
        self._pump()
        self._finish_drains()

    def close(self, demand: Demand[T]) -> None:
        """`demand` takes no more; what is already under way to it goes back uncounted."""
        demand.closed = True
        demand.wanted = 0
        if demand in self._draining:
            self._draining.remove(demand)
        if demand.waiting:
            demand.waiting = False
            self._left_count += 1
            if self._left_count > LEFT_MAX and self._left_count > len(self._waiting) // 2:
                self._waiting = [entry for entry in self._waiting if entry[2].waiting and entry[2].turn == entry[0]]
                heapq.heapify(self._waiting)
                self._left_count = 0

    def announce(self, index: int) -> None:
        """Partition `index` has messages (again)."""
        if self._asking[index]:
            self._announced_meanwhile[index] = True
        elif not self._is_ready[index]:
            self._is_ready[index] = True
            self._ready.append(index)
            self._pump()

    def _enlist(self, demand: Demand[T], turn: int | None = None) -> None:
        """Let `demand` wait: at the end, or where it was when it had its turn and got nothing (`turn`)."""
        if demand.closed or demand.wanted <= demand.asked or (demand.waiting and turn is None):
            return
        if turn is None:
            self._last_turn += 1
            turn = self._last_turn
        elif demand.waiting and demand.turn <= turn:
            return
        demand.turn = turn
        demand.waiting = True
        heapq.heappush(self._waiting, (turn, id(demand), demand))

    def _next_waiting(self) -> Demand[T] | None:
        """Who has waited longest; taken off the line."""
        while self._waiting:
            turn, _, demand = heapq.heappop(self._waiting)
            if demand.waiting and demand.turn == turn:  # else it left, or waits elsewhere in the line
                demand.waiting = False
                return demand
        return None

    def _pump(self) -> None:
        ready = self._ready
        while ready:
            demand = self._next_waiting()
            if demand is None:
                return
            open_count = demand.wanted - demand.asked
            if open_count <= 0:
                continue
            index = ready.popleft()
            self._is_ready[index] = False
            self._asking[index] = True
            share = -(-open_count // (len(ready) + 1))  # spread over what is ready, so that all stores work at once
            count = min(share, TAKE_MESSAGES_MAX)
            demand.asked += count
            answer = partial(self._taken, index, demand, count, demand.turn)
            self._enlist(demand)
            self._ask(index, demand.make(count, answer))

    def _taken(self, index: int, demand: Demand[T], count: int, turn: int, taken: Received[T]) -> None:
        self._asking[index] = False
        more = taken.more or self._announced_meanwhile[index]
        self._announced_meanwhile[index] = False
        if more:
            self._is_ready[index] = True
            self._ready.append(index)
        demand.asked -= count
        if taken.deliveries:
            if demand.closed:
                demand.give_back(index, taken.deliveries)
            else:
                demand.wanted = max(0, demand.wanted - len(taken.deliveries))
                demand.deliver(taken.deliveries)
        self._enlist(demand, None if taken.deliveries else turn)
        self._pump()
        if self._draining:
            self._finish_drains()

    def _finish_drains(self) -> None:
        for demand in list(self._draining):
            if demand.asked == 0 and (demand.wanted == 0 or not (self._ready or any(self._asking))):
                self._draining.remove(demand)
                drained, demand.drained = demand.drained, None
                demand.wanted = 0
                demand.waiting = False
                if drained is not None:
                    drained()


class Waiting(Protocol):
    """A receiver."""

    @property
    def is_waiting(self) -> bool:
        """Whether it wants messages that it has not got."""
        ...


class ReceiveQuota:
    """The receivers with credit; at most `count_max` of them wait at a time."""

    def __init__(self, count_max: int | None = None) -> None:
        self.count_max = count_max
        self._receivers: set[Waiting] = set()

    def enter(self, receiver: Waiting) -> bool:
        """Note that a receiver has credit; False if too many others wait."""
        receivers = self._receivers
        receivers.add(receiver)
        if self.count_max is None or len(receivers) <= self.count_max:
            return True
        receivers.intersection_update([each for each in receivers if each is receiver or each.is_waiting])
        if len(receivers) <= self.count_max:
            return True
        receivers.discard(receiver)
        return False

    def leave(self, receiver: Waiting) -> None:
        """A receiver has no credit any more."""
        self._receivers.discard(receiver)
