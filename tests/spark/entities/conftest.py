"""No connection of a test is left to the next one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from emubus.spark_connector.wire.pool import close_idle


@pytest.fixture(autouse=True)
def _no_idle_connections() -> Iterator[None]:
    yield
    close_idle()
