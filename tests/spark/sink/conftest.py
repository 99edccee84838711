"""What the sink's tests start from."""

from __future__ import annotations

import pytest

from emubus.testing import EmubusServer

from .kit import Rig


@pytest.fixture
def rig(server: EmubusServer) -> Rig:
    """The shared server; tests name their queues themselves."""
    return Rig(server)
