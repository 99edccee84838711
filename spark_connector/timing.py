"""Time and randomness for the connector: the only place that reads clocks and random numbers.

Knows the machine's clocks. Does not know what they are used for. Keeps no state, because readers and writers are
pickled into other processes.
"""

from __future__ import annotations

import random
import time
import uuid


def monotonic_s() -> float:
    """Seconds on a clock that never goes back; only differences mean something."""
    return time.monotonic()


def now_ms() -> int:
    """The time of day, Unix milliseconds."""
    return time.time_ns() // 1_000_000


def sleep(seconds: float) -> None:
    """Wait; negative means not at all."""
    if seconds > 0:
        time.sleep(seconds)


def backoff_s(attempt: int, first_s: float = 0.2, max_s: float = 10.0) -> float:
    """The pause before attempt number `attempt` + 1 (from 0): doubled each time, half of it random."""
    base = min(max_s, first_s * 2.0 ** min(attempt, 30))
    return base * (0.5 + random.random() / 2)


def new_id() -> str:
    """32 random hexadecimal digits."""
    return uuid.uuid4().hex
