"""The open partitions of one messaging store, and which of them the current batch has touched.

Does not know requests and commits. Owned by the store's worker.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..partition.contract import PartitionRef
from ..partition.partition import Partition
from ..partition.ready_queue import WINDOW_BYTES_MAX as QUEUE_WINDOW_BYTES_MAX
from ..partition.ready_queue import Reader, WindowBudget

WINDOW_BYTES_MAX = 4 << 20  # read-ahead of all partitions of one store

assert WINDOW_BYTES_MAX >= QUEUE_WINDOW_BYTES_MAX, "one queue could not fill its window"


class OpenPartitions:
    """Partitions by queue id. A partition opens at its first request and stays open until `drop` or `remove`.

    `touched` has the partitions of the current batch; `refs` describe the open partitions.
    """

    def __init__(self) -> None:
        self.by_queue_id: dict[int, Partition] = {}
        self.refs: dict[int, PartitionRef] = {}
        self.touched: dict[int, Partition] = {}
        self._activity: dict[int, int] = {}  # last use of dropped partitions (Unix ms)
        self._budget = WindowBudget(WINDOW_BYTES_MAX)

    def touch(self, ref: PartitionRef, view: Reader) -> Partition:
        """Return the partition `ref`, opened if necessary, and add it to the current batch."""
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
        """The last use of a queue's partition (Unix ms), 0 if unused since the start."""
        partition = self.by_queue_id.get(queue_id)
        return self._activity.get(queue_id, 0) if partition is None else partition.state.last_activity_at

    def roll_back(self, view: Reader) -> None:
        """Undo the batch: its partitions reload from `view` (the committed rows) and restore their locks."""
        for queue_id, partition in self.touched.items():
            if self.by_queue_id.get(queue_id) is partition:  # otherwise its queue has been deleted
                partition.roll_back(view)

    def refs_of_batch(self, named: Iterable[PartitionRef]) -> dict[int, PartitionRef]:
        """The partitions that the batch's requests name or that it touched, by queue id."""
        touched = {each: self.refs[each] for each in self.touched if each in self.refs}
        return {ref.queue_id: ref for ref in named} | touched

    def drop(self, queue_ids: Iterable[int]) -> None:
        """Drop the memory of partitions, with locks and held sessions, because their stored rows are unknown."""
        for queue_id in queue_ids:
            partition = self.by_queue_id.pop(queue_id, None)
            if partition is not None:
                self._activity[queue_id] = partition.state.last_activity_at
                partition.close()
                partition.lose_sessions()

    def remove(self, queue_id: int) -> None:
        partition = self.by_queue_id.pop(queue_id, None)
        self.refs.pop(queue_id, None)
        self._activity.pop(queue_id, None)
        if partition is not None:
            partition.close()

    def close(self) -> None:
        for partition in self.by_queue_id.values():
            partition.close()
