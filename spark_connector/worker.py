"""The process in which Spark runs Python tasks, made fit for many short ones.

Knows that PySpark has the garbage collector look at every object of the process after every task. With all that Spark,
Arrow, pandas and this connector import that takes some 30 ms, many times what a small task takes. What lives when a
task begins is modules and their tables, which stay anyway: the collector is told to leave it alone. Spark imports some
of them at the end of the first task only, so the second task does it again. Does not know what tasks do.
"""

from __future__ import annotations

import gc
from typing import Final

from pyspark import TaskContext

TASKS: Final = 2
_begun_count = 0


def settle_in() -> None:
    """At the beginning of a task: spare the collector what is there already; outside of tasks nothing is done."""
    global _begun_count
    if _begun_count == TASKS or TaskContext.get() is None:
        return
    _begun_count += 1
    gc.collect()  # so that no garbage is spared
    gc.freeze()
