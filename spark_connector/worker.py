"""The process in which Spark runs Python tasks, made fit for many short ones.

Knows that PySpark has the garbage collector look at every object of the process after every task. With all that Spark,
Arrow and this connector import that takes some 50 ms, many times what a small task takes. What lives when the first
task begins is modules and their tables, which stay anyway: the collector is told to leave it alone. Refuses to know
what tasks do. Nothing is kept but that it was done, once per process.
"""

from __future__ import annotations

import gc

from pyspark import TaskContext

_is_done = False


def settle_in() -> None:
    """At the beginning of a task: spare the collector what is there already; outside of tasks nothing is done."""
    global _is_done
    if _is_done or TaskContext.get() is None:
        return
    _is_done = True
    gc.collect()  # so that no garbage is spared
    gc.freeze()
