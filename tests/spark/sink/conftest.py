"""What the sink's tests start from."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from emubus.testing import EmubusServer

from .kit import Rig


@pytest.fixture
def rig(server: EmubusServer) -> Iterator[Rig]:
    """The shared server; tests name their queues themselves, and these go with the test."""
    rig = Rig(server)
    yield rig
    rig.delete_created()
