"""The end of the process on SIGTERM or SIGINT, whatever its disk does.

A thread of its own waits for the signals: the event loop, or the exit of the interpreter, may wait for a disk that does
not answer. It asks the loop to stop, and ends the process if that is not done in time.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Final

SIGNALS: Final = frozenset({signal.SIGTERM, signal.SIGINT})
GRACE_S: Final = 4.5
"""From the signal to the hard end: below the 5 s that are promised, above the 4 s that a stop may take."""

STOP_S: Final = 3.5
"""By then a stop is done, unless it waits for a disk."""

EXIT_STUCK: Final = 1


def catch_signals() -> None:
    """Keep the signals for `stop_on_signal`. Before the process has threads: each inherits this."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)


def let_signals_go() -> None:
    """A start has failed: what the process does now, and its children, can be ended by a signal again."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


def stop_on_signal(stop: Callable[[], object], last_words: Callable[[], str]) -> None:
    """At a signal call `stop`, on another thread; GRACE_S later print `last_words()` and end the process."""

    def wait() -> None:
        signal.sigwait(SIGNALS)
        stop()
        never = threading.Event()
        never.wait(STOP_S)  # the process ends meanwhile, and this thread with it
        words = last_words()  # of a stop that has not given up yet
        never.wait(GRACE_S - STOP_S)
        os.write(2, f"emubus: {words}\n".encode())
        os._exit(EXIT_STUCK)

    threading.Thread(target=wait, name="signals", daemon=True).start()
