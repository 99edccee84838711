"""The plugin of pytest that has the suite's fixture for its recording proxy."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def test_proxy() -> None:
    """There is no proxy."""
