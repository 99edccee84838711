"""The connector's log lines where nothing sets up Python's logging, as in the processes that Spark starts.

There Python's last resort writes bare texts to stderr, among Spark's own lines. Here a line has time and level as
Spark's have, and in a task the query, batch and Spark partition, so that the line of one task is not taken for
another's. A process that sets up logging itself, before or after, gets the lines in its own form, and nothing twice.
"""

from __future__ import annotations

import logging
from typing import Final

LOGGER: Final = "emubus.spark"
QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"
"""The local properties in which a streaming query names itself and its batch; there is no other way to learn it."""


class ResortHandler(logging.StreamHandler):  # type: ignore[type-arg]  # its stream is stderr
    """Writes lines to stderr as long as the root logger has no handler."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(
            logging.Formatter("%(asctime)s %(levelname)s %(name)s:%(where)s %(message)s", "%y/%m/%d %H:%M:%S")
        )

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line, unless another handler does."""
        if not logging.getLogger().handlers:
            super().emit(record)

    def format(self, record: logging.LogRecord) -> str:
        """The line, with where it comes from."""
        record.__dict__["where"] = where()
        return super().format(record)


def where() -> str:
    """Query, batch and Spark partition of the task that runs now; empty outside of a task."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        return ""
    query, batch = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
    of_query = "" if query is None else f"query {query} batch {batch} "
    return f" [{of_query}partition {context.partitionId()} attempt {context.attemptNumber()}]"


def show_logs() -> None:
    """Show lines where no program sets up logging; repeating it does no harm."""
    log = logging.getLogger(LOGGER)
    if not any(isinstance(each, ResortHandler) for each in log.handlers):
        log.addHandler(ResortHandler())
