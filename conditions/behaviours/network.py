"""The network: connections that are refused or reset.

Knows what happens when. Does not know how bytes are carried.
"""

from __future__ import annotations

from typing import Final

from ...broker.errors import BrokerError
from .. import texts
from ..behaviour import Behaviour, Parameter, Row, share

TOPIC: Final = "Network"


class Firewall(Behaviour):
    """A firewall rule forbids clients."""

    def opening(self) -> BrokerError | None:
        """Refuse a share of the connections."""
        if not self.chosen("namespace") or not self.on.record("namespace", "connection refused"):
            return None
        return texts.address_refused()


class Reset(Behaviour):
    """Connections are reset, again and again."""

    def begin(self) -> None:
        """Plan the first time."""
        self._next(self.on.started_at)

    def _next(self, since: int) -> None:
        least, most = sorted((self.number("ms_min"), self.number("ms_max")))
        at_ms = since + self.on.chance.between("when", least, most)
        if self.on.ends_at is None or at_ms < self.on.ends_at:
            self.at(at_ms, lambda: self._reset(at_ms))

    def _reset(self, at_ms: int) -> None:
        for connection in list(self.on.network.connections()):
            links = list(connection.links)
            if self.on.entity is not None and not any(self.covers(link.address) for link in links):
                continue
            scope = f"connection {connection.number}"
            if self.chosen(scope) and self.on.record(scope, "connection reset"):
                connection.cut()
        self._next(at_ms)


ROWS: Final = (
    Row(
        "firewall",
        TOPIC,
        "A firewall rule forbids the client's address: TCP and TLS work, AMQP does not.",
        "namespace",
        "close, `amqp:unauthorized-access`",
        "azure-docs 91061; wording inferred",
        (share(),),
        Firewall,
    ),
    Row(
        "reset",
        TOPIC,
        "Connections are reset, each time after a while.",
        "connection",
        "TCP reset",
        "documentation (troubleshooting)",
        (
            share(),
            Parameter("ms_min", "Shortest time between two resets.", 180_000, "ms", 1),
            Parameter("ms_max", "Longest time between two resets.", 600_000, "ms", 1),
        ),
        Reset,
    ),
)
