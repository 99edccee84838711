"""A server whose namespace Resource Manager has made, and clients of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from emubus.testing import EmubusServer

from .client import Arm


@pytest.fixture
def server() -> Iterator[EmubusServer]:
    """In memory."""
    with EmubusServer() as running:
        yield running


@pytest.fixture
def arm(server: EmubusServer) -> Iterator[Arm]:
    with Arm(server.http_port) as client:
        client.namespace()
        yield client
