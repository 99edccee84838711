"""A server for the source's tests, and a queue of its own for each of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ..idle import close_idle


@pytest.fixture(autouse=True)
def _no_idle_connections() -> Iterator[None]:
    yield
    close_idle()
