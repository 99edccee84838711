"""What the collector of circles finds that has a large text: something that somebody sent, and that is refused or done.

A server with many messages has a large heap, and Python collects a large heap seldom. An error whose traceback has a
frame that has the error is such a circle, with all that the callers of the frame had: a flood of refused documents of
200 KB made a server of 140 MB one of 570 MB.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

SIZE_BYTES: Final = 150_000
"""What a test sends: more than a buffer that a connection keeps, less than the limit of every face."""


@contextmanager
def only_new_objects() -> Iterator[None]:
    """Let the collector look at what is made from now on: the heap of the tests is large, each look slow."""
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


def circles() -> list[str]:
    """The objects in circles that hold a large text: their types, and the names of functions.

    Of those made in `only_new_objects`.
    """
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.collect()
    gc.set_debug(0)
    found: list[str] = []
    for each in gc.garbage:
        for part in gc.get_referents(each):
            if isinstance(part, bytes | bytearray | str) and len(part) >= SIZE_BYTES // 4:
                function = getattr(each, "f_code", None)
                found.append(f"{type(each).__name__} {getattr(function, 'co_qualname', '')}".strip())
    gc.garbage.clear()
    gc.collect()
    return found
