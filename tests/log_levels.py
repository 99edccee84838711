"""The log with lines of all levels, although a server of the test kit in this process shows warnings only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import structlog


@contextmanager
def every_level() -> Iterator[None]:
    """While it is open, `capture_logs` has the lines of all levels."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(0))
    try:
        yield
    finally:
        structlog.configure(**before)
