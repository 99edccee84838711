"""The partitions of one messaging store that are in memory, and which of them the batch under way has touched."""

from __future__ import annotations

from collections.abc import Iterable

from ..partition.partition import Partition
from ..partition.ready_queue import Reader, WindowBudget
from ..partition.step import PartitionRef

WINDOW_BYTES_MAX = 4 << 20  # read-ahead of all partitions of one store


class OpenPartitions:
    """Partitions by queue id. A partition opens at its first use and stays until its queue or its memory is dropped.

    `touched` are those of the batch under way; `refs` name the open ones.
    """

    def __init__(self) -> None:
        self.by_queue_id: dict[int, Partition] = {}
        self.refs: dict[int, PartitionRef] = {}
        self.touched: dict[int, Partition] = {}
        self._activity: dict[int, int] = {}  # when partitions were last used whose memory was dropped (Unix ms)
        self._budget = WindowBudget(WINDOW_BYTES_MAX)

    def touch(self, ref: PartitionRef, view: Reader) -> Partition:
        """The partition that `ref` names, opened if need be; it belongs to the batch under way."""
        queue_id = ref.queue_id
        partition = self.by_queue_id.get(queue_id)
        if partition is None:
            partition = Partition(ref, view, self._budget, self.touch)
            partition.state.mark_used(self._activity.pop(queue_id, 0))
            self.by_queue_id[queue_id] = partition
            self.refs[queue_id] = ref
        self.touched[queue_id] = partition
        return partition

    def last_activity_at(self, queue_id: int) -> int:
        """When the partition of a queue was last used (Unix ms), 0 if it was not since the start."""
        partition = self.by_queue_id.get(queue_id)
        return self._activity.get(queue_id, 0) if partition is None else partition.state.last_activity_at

    def keep(self) -> None:
        """The batch is committed, or had nothing to store."""
        for partition in self.touched.values():
            partition.keep()

    def roll_back(self, view: Reader) -> None:
        """Nothing of the batch is stored: its partitions are as `view` has them, with the locks from before it."""
        for queue_id, partition in self.touched.items():
            if self.by_queue_id.get(queue_id) is partition:  # otherwise its queue was deleted meanwhile
                partition.roll_back(view)

    def refs_of_batch(self, named: Iterable[PartitionRef]) -> dict[int, PartitionRef]:
        """The partitions that the requests of the batch name, and those that it touched, by queue id."""
        touched = {each: self.refs[each] for each in self.touched if each in self.refs}
        return {ref.queue_id: ref for ref in named} | touched

    def drop(self, queue_ids: Iterable[int]) -> None:
        """Drop the memory of partitions, with their locks and held sessions: what the store has is not known."""
        for queue_id in queue_ids:
            partition = self.by_queue_id.pop(queue_id, None)
            if partition is not None:
                self._activity[queue_id] = partition.state.last_activity_at
                partition.close()
                partition.lose_sessions()

    def remove(self, queue_id: int) -> None:
        """The queue is deleted."""
        partition = self.by_queue_id.pop(queue_id, None)
        self.refs.pop(queue_id, None)
        self._activity.pop(queue_id, None)
        if partition is not None:
            partition.close()

    def close(self) -> None:
        """The store closes."""
        for partition in self.by_queue_id.values():
            partition.close()
