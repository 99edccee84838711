"""The two faces of the SDK, plain and asyncio, driven by one set of coroutines.

Knows that a call of the SDK gives a result or something to await, and a list of it pages of either kind. Refuses to
know what is called. With the plain face nothing is ever awaited, so that a coroutine runs to its end without an event
loop. Keeps nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Coroutine
from typing import Any


async def done(value: Any) -> Any:
    """The result of an SDK call, whichever face of the SDK was called."""
    return await value if inspect.isawaitable(value) else value


async def collected(pages: Any) -> list[Any]:
    """All that a list of the SDK has, over all its pages."""
    if hasattr(pages, "__aiter__"):
        return [item async for item in pages]
    return list(pages)


def run_without_loop(operation: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that never suspends."""
    try:
        operation.send(None)
    except StopIteration as stop:
        return stop.value
    raise RuntimeError("the plain client suspended")
