"""Failpoints for durability tests: SIGKILL at the N-th passage of a named step of a commit.

Counts passages and kills the process; the steps are named where they happen: `storage/contract.py` and
`broker/stores/worker.py`.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

from .config import Failpoint
from .storage import no_failpoint


def failpoint_hook(failpoint: Failpoint | None) -> Callable[[str], None]:
    """A function to call with the name of each step; without a `failpoint` it does nothing."""
    if failpoint is None:
        return no_failpoint
    wanted = failpoint.name
    left = failpoint.occurrence
    guard = threading.Lock()  # commits run on several threads

    def reached(name: str) -> None:
        nonlocal left
        if name != wanted:
            return
        with guard:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return reached
