"""The process in which Spark runs Python tasks, prepared for many short tasks.

After every task PySpark lets the garbage collector look at every object of the process. With everything that Spark,
Arrow, pandas and this connector import, that takes about 30 ms, many times as long as a small task. The objects that
exist when a task begins are modules and their tables, which stay anyway, so they are excluded from collection. Spark
imports some of them at the end of the first task, so the second task repeats it. Does not know what tasks do.
"""

from __future__ import annotations

import gc
from typing import Final

from pyspark import TaskContext

from .logs import show_logs

TASKS: Final = 2
_begun_count = 0


def begin_task() -> None:
    """What each task begins with: lines of the log are shown, and live objects are not collected."""
    show_logs()
    freeze_gc()


def freeze_gc() -> None:
    """Move all live objects to the permanent GC generation (`gc.freeze`), at the beginning of the first tasks."""
    global _begun_count
    if _begun_count == TASKS or TaskContext.get() is None:
        return
    _begun_count += 1
    gc.collect()  # so that no garbage is spared
    gc.freeze()
