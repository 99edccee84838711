"""Shares the messages, or idle message sessions, of an entity's partitions among its receivers (P19, P20).

Knows the ready partitions and the demand of each receiver. Asks partitions in turn, serves receivers first come, first
served, with one request per partition at a time. Does not know messages, locks and links. Owned by an `Entity`.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Generic, Protocol, TypeVar

from ..partition.contract import Received
from ..partition.requests import Request

TAKE_MESSAGES_MAX = 256  # per request to a partition, so that other receivers get their turn
TAKE_MESSAGES_MIN = 128  # as far as the credit goes: many small requests cost more than uneven shares
LEFT_MAX = 64  # stale heap entries before a clean-up

T = TypeVar("T")


class Demand(Generic[T]):
    """The demand of one receiver: it wants `wanted` items, `requested` of them are already requested.

    `make(count, reply)` builds the request to a partition, `deliver(items)` takes its answer, and `give_back(partition
    index, items)` returns an answer that comes after `close`.
    """

    __slots__ = ("closed", "deliver", "drained", "give_back", "make", "requested", "turn", "waiting", "wanted")

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
        self.requested = 0
        self.waiting = False
        self.turn = 0
        self.closed = False
        self.drained: Callable[[], None] | None = None


class Dispatcher(Generic[T]):
    """The waiting demands and the ready partitions; `submits` submit a request to each of the partitions."""

    def __init__(self, submits: Sequence[Callable[[Request], None]]) -> None:
        self._submits = submits
        partition_count = len(submits)
        self._ready: deque[int] = deque(range(partition_count))  # may turn out empty
        self._is_ready = [True] * partition_count
        self._asking = [False] * partition_count
        self._announced_meanwhile = [False] * partition_count
        self._waiting: list[tuple[int, int, Demand[T]]] = []  # heap by turn, may hold stale entries
        self._last_turn = 0
        self._left_count = 0  # lower bound of stale heap entries
        self._draining: list[Demand[T]] = []

    @property
    def is_waited_for(self) -> bool:
        return any(demand.waiting for _, _, demand in self._waiting)

    def set_demand(self, demand: Demand[T], wanted: int) -> None:
        """Set the number of items that `demand` wants from now on (absolute)."""
        demand.wanted = wanted
        self._enlist(demand)
        self._pump()

    def drain(self, demand: Demand[T], drained: Callable[[], None]) -> None:
        """Give `demand` everything available, then set its wanted number to 0 and call `drained()`."""
        demand.drained = drained
        self._draining.append(demand)
        self._enlist(demand)
        self._pump()
        self._finish_drains()

    def close(self, demand: Demand[T]) -> None:
        """Close `demand`; items on their way to it go back uncounted."""
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
        """Queue `demand`: at the end, or at its old position `turn` if it got nothing."""
        if demand.closed or demand.wanted <= demand.requested or (demand.waiting and turn is None):
            return
        if turn is None:
            self._last_turn += 1
            turn = self._last_turn
        elif demand.waiting and demand.turn <= turn:
            return
        demand.turn = turn
        demand.waiting = True
        heapq.heappush(self._waiting, (turn, id(demand), demand))

    def _pump(self) -> None:
        """Ask ready partitions for those that wait, the one first that has waited longest."""
        ready, waiting = self._ready, self._waiting
        while ready and waiting:
            turn, _, demand = heapq.heappop(waiting)
            if not demand.waiting or demand.turn != turn:
                continue  # a stale entry
            demand.waiting = False
            open_count = demand.wanted - demand.requested
            if open_count <= 0:
                continue
            index = ready.popleft()
            self._is_ready[index] = False
            self._asking[index] = True
            share = -(-open_count // (len(ready) + 1))  # so that all stores work in parallel
            count = min(max(share, TAKE_MESSAGES_MIN), open_count, TAKE_MESSAGES_MAX)
            demand.requested += count
            answer = partial(self._taken, index, demand, count, demand.turn)
            if count < open_count:
                self._enlist(demand)
            self._submits[index](demand.make(count, answer))

    def _taken(self, index: int, demand: Demand[T], count: int, turn: int, taken: Received[T]) -> None:
        self._asking[index] = False
        more = taken.more or self._announced_meanwhile[index]
        self._announced_meanwhile[index] = False
        if more:
            self._is_ready[index] = True
            self._ready.append(index)
        demand.requested -= count
        if taken.deliveries:
            if demand.closed:
                demand.give_back(index, taken.deliveries)
            else:
                demand.wanted = max(0, demand.wanted - len(taken.deliveries))
                demand.deliver(taken.deliveries)
        if demand.wanted > demand.requested:
            self._enlist(demand, None if taken.deliveries else turn)
        if self._ready:
            self._pump()
        if self._draining:
            self._finish_drains()

    def _finish_drains(self) -> None:
        for demand in list(self._draining):
            if demand.requested == 0 and (demand.wanted == 0 or not (self._ready or any(self._asking))):
                self._draining.remove(demand)
                drained, demand.drained = demand.drained, None
                demand.wanted = 0
                demand.waiting = False
                if drained is not None:
                    drained()


class Waiting(Protocol):
    """A receiver, as the quota knows it."""

    @property
    def is_waiting(self) -> bool:
        """Whether it wants more messages."""
        ...


class ReceiveQuota:
    """The receivers with credit; at most `count_max` may wait at a time."""

    def __init__(self, count_max: int | None = None) -> None:
        self.count_max = count_max
        self.receivers: set[Waiting] = set()
        """Those that were let in and have not left; one that asks for more is let in already."""

    def enter(self, receiver: Waiting) -> bool:
        """Add a receiver with credit; return False if too many others wait."""
        receivers = self.receivers
        receivers.add(receiver)
        if self.count_max is None or len(receivers) <= self.count_max:
            return True
        receivers.intersection_update([each for each in receivers if each is receiver or each.is_waiting])
        if len(receivers) <= self.count_max:
            return True
        receivers.discard(receiver)
        return False

    def leave(self, receiver: Waiting) -> None:
        """Remove a receiver without credit."""
        self.receivers.discard(receiver)
