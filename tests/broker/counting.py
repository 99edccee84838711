"""What something costs, in numbers that do not depend on the machine: calls and bytes."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable
from types import FrameType


def calls_of(function: Callable[..., object], act: Callable[[], object]) -> int:
    """How often `act` has `function` called."""
    count = 0

    def watch(frame: FrameType, event: str, _: object) -> None:
        nonlocal count
        count += event == "call" and frame.f_code is function.__code__

    sys.setprofile(watch)
    try:
        act()
    finally:
        sys.setprofile(None)
    return count


def peak_bytes(act: Callable[[], object]) -> int:
    """How much memory `act` takes at its worst."""
    tracemalloc.start()
    try:
        act()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
