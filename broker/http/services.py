"""What the parts of the HTTP face work with: the broker, and what only the composition root can give.

Knows names and shapes. Refuses to know where the things come from; the composition root fills it once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..access import Access
from ..broker import Broker
from ..clock import Clock


@dataclass(frozen=True, slots=True)
class Services:
    """Handed to every part. `amqp` makes the protocol of a new AMQP connection, `ports` tells where the server listens
    by name, `ca_file` is the development CA's certificate if there is one."""

    broker: Broker
    access: Access
    clock: Clock
    is_ready: Callable[[], bool]
    amqp: Callable[[], asyncio.Protocol]
    ports: Callable[[], Mapping[str, int]]
    ca_file: str | None = None
