"""The Spark task that writes, and what its rows' message ids begin with.

Knows Spark's TaskContext and the two local properties in which a streaming query names the batch of a task; there is no
other way to learn it [spark 1]. Does not know rows and messages. Objects live as long as a task.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..logs import BATCH_ID, QUERY_ID

if TYPE_CHECKING:
    from pyspark import TaskContext

_log = logging.getLogger("emubus.spark")


@dataclass(frozen=True, slots=True)
class Task:
    """One attempt at a Spark partition; `write` is the same if the task or, after a restart, the batch is repeated.

    `query` is the same for all batches of a streaming query; a batch write has its own.
    """

    query: str
    write: str
    partition_id: int = 0
    attempt: int = 0

    @property
    def name(self) -> str:
        return f"{self.write}/{self.partition_id}"

    def position_id(self, row: int) -> str:
        """A MessageId from the position of a row in the partition, from 0."""
        return f"{self.name}/{row}"


def task_context() -> TaskContext | None:
    """The context of the task that runs now; None outside of a task."""
    from pyspark import TaskContext

    return TaskContext.get()


def batch_task(job_id: str, *, is_repeatable: bool) -> Task:
    """The task of a batch write; `job_id` names the write, and is the same for each try.

    Unless the whole write `is_repeatable`, with the same message ids, it is warned of where Spark may repeat it.
    """
    context = task_context()
    batch_id = None if context is None else context.getLocalProperty(BATCH_ID)
    if batch_id is not None and not is_repeatable:
        _log.warning(
            "A batch write in foreachBatch: if batch %s is repeated, its rows get new message ids, and are there "
            "twice. Set the option writeId to the names of the query and the batch, or a column messageId.",
            batch_id,
        )
    return _task(context, job_id)


def stream_task(plan_id: str) -> Task:
    """The task of a streaming write.

    Names are made of the query and its batch, which stay the same when the query restarts from its checkpoint.
    `plan_id` is used if Spark does not name them; then a repeated batch looks like a new one.
    """
    context = task_context()
    query_id = None if context is None else context.getLocalProperty(QUERY_ID)
    batch_id = None if context is None else context.getLocalProperty(BATCH_ID)
    if query_id is None or batch_id is None:
        _log.warning("Spark does not name the query and batch of this task: repeated batches get new message ids.")
        return _task(context, plan_id)
    return _task(context, query_id, f"{query_id}/{batch_id}")


def _task(context: TaskContext | None, query: str, write: str | None = None) -> Task:
    name = write or query
    return Task(query, name) if context is None else Task(query, name, context.partitionId(), context.attemptNumber())
