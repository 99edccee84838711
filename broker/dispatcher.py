"""Hands the messages of one sub-queue to the consumers that wait for them (P19, P20).

Knows which partitions may have messages and which consumers want how many; asks partitions in turn, consumers first
come, first served, one question per partition at a time. Refuses to know messages, locks and links. Owned by a `Queue`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from .address import SubQueue
from .commands import Command, Delivery, ReceiveMode, Settle, Take, Taken
from .outcomes import Release

TAKE_MESSAGES_MAX = 256  # asked of one partition at once, so that other consumers get their turn

Ask = Callable[[int, Command], None]


class Demand:
    """What one consumer still wants: `wanted` messages, of which `asked` are already asked for."""

    __slots__ = ("asked", "closed", "deliver", "drained", "mode", "waiting", "wanted")

    def __init__(self, mode: ReceiveMode, deliver: Callable[[Sequence[Delivery]], None]) -> None:
        self.mode = mode
        self.deliver = deliver
        self.wanted = 0
        self.asked = 0
        self.waiting = False
        self.closed = False
        self.drained: Callable[[], None] | None = None


class Dispatcher:
    """The consumers and the ready partitions of one sub-queue; `ask(partition, command)` reaches a partition."""

    def __init__(self, sub_queue: SubQueue, partition_count: int, ask: Ask) -> None:
        self._sub_queue = sub_queue
        self._ask = ask
        self._ready: deque[int] = deque(range(partition_count))  # whether they really have messages shows when asked
        self._is_ready = [True] * partition_count
        self._asking = [False] * partition_count
        self._announced_meanwhile = [False] * partition_count
        self._waiting: deque[Demand] = deque()
        self._draining: list[Demand] = []

    def set_demand(self, demand: Demand, wanted: int) -> None:
        """`demand` wants `wanted` more messages from now on, whatever it wanted before."""
        demand.wanted = wanted
        self._enlist(demand)
        self._pump()

    def drain(self, demand: Demand, drained: Callable[[], None]) -> None:
        """Give `demand` all that is available now, then call `drained()` and leave it wanting nothing."""
        demand.drained = drained
        self._draining.append(demand)
        self._enlist(demand)
        self._pump()
        self._finish_drains()

    def close(self, demand: Demand) -> None:
        """`demand` takes no more; what is already under way to it goes back uncounted."""
        demand.closed = True
        demand.wanted = 0
        if demand in self._draining:
            self._draining.remove(demand)
        if demand.waiting:
            demand.waiting = False
            self._waiting.remove(demand)

    def announce(self, index: int) -> None:
        """Partition `index` has messages (again)."""
        if self._asking[index]:
            self._announced_meanwhile[index] = True
        elif not self._is_ready[index]:
            self._is_ready[index] = True
            self._ready.append(index)
            self._pump()

    def _enlist(self, demand: Demand) -> None:
        if not demand.waiting and not demand.closed and demand.wanted > demand.asked:
            demand.waiting = True
            self._waiting.append(demand)

    def _pump(self) -> None:
        waiting, ready = self._waiting, self._ready
        while waiting and ready:
            demand = waiting.popleft()
            open_count = demand.wanted - demand.asked
            if open_count <= 0:
                demand.waiting = False
                continue
            index = ready.popleft()
            self._is_ready[index] = False
            self._asking[index] = True
            share = -(-open_count // (len(ready) + 1))  # spread over what is ready, so that all stores work at once
            count = min(share, TAKE_MESSAGES_MAX)
            demand.asked += count
            if open_count > count:
                waiting.append(demand)
            else:
                demand.waiting = False
            self._ask(index, Take(self._sub_queue, count, demand.mode, self._answer_to(index, demand, count)))

    def _answer_to(self, index: int, demand: Demand, count: int) -> Callable[[Taken], None]:
        return lambda taken: self._taken(index, demand, count, taken)

    def _taken(self, index: int, demand: Demand, count: int, taken: Taken) -> None:
        self._asking[index] = False
        more = taken.more or self._announced_meanwhile[index]
        self._announced_meanwhile[index] = False
        if more:
            self._is_ready[index] = True
            self._ready.append(index)
        demand.asked -= count
        if taken.deliveries:
            if demand.closed:
                self._return(index, demand, taken.deliveries)
            else:
                demand.wanted = max(0, demand.wanted - len(taken.deliveries))
                demand.deliver(taken.deliveries)
        self._enlist(demand)
        self._pump()
        if self._draining:
            self._finish_drains()

    def _return(self, index: int, demand: Demand, deliveries: Sequence[Delivery]) -> None:
        """The consumer left before its messages came: unlock them. Those it had asked to be removed are gone."""
        if demand.mode is ReceiveMode.PEEK_LOCK:
            for delivery in deliveries:
                self._ask(index, Settle(delivery.token, Release(), None))

    def _finish_drains(self) -> None:
        for demand in list(self._draining):
            if demand.asked == 0 and (demand.wanted == 0 or not (self._ready or any(self._asking))):
                self._draining.remove(demand)
                drained, demand.drained = demand.drained, None
                demand.wanted = 0
                if demand.waiting:
                    demand.waiting = False
                    self._waiting.remove(demand)
                if drained is not None:
                    drained()
