"""Quotas and the network: limits that are lower than usual, and connections that are refused or reset.

Knows what is refused when. Does not know how a connection or an AMQP session ends.
"""

from __future__ import annotations

from typing import Final

from ...broker import service_errors
from ...broker.errors import BrokerError
from .. import texts
from ..behaviour import Behaviour, Parameter, Row, share


class LinksPerSession(Behaviour):
    """An AMQP session may have few links; one more ends it with all of them."""

    def links_per_session_max(self) -> int | None:
        """The lower limit."""
        return self.number("max")


class Connections(Behaviour):
    """The namespace may have few connections."""

    def opening(self) -> BrokerError | None:
        """Refuse a connection that is one too many."""
        count = sum(1 for _ in self.on.network.connections())
        if count < self.number("max") or not self.on.record("namespace", "connection refused"):
            return None
        return service_errors.connections_quota_exceeded(self.on.broker.namespace)


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
        "links-per-session",
        "Quotas",
        "An AMQP session may have few links: with one more the session ends, with all its links.",
        "AMQP session",
        "end, `amqp:resource-limit-exceeded`; the connection stays",
        "azure-sdk-for-java 32211",
        (Parameter("max", "Links of an AMQP session.", 255, "links", 1, 255),),
        LinksPerSession,
    ),
    Row(
        "connections",
        "Quotas",
        "The namespace may have few connections.",
        "namespace",
        "close, `amqp:resource-limit-exceeded`",
        "documentation (quotas); the AMQP form is inferred",
        (Parameter("max", "Connections of the namespace.", 5_000, "connections", 0, 5_000),),
        Connections,
    ),
    Row(
        "firewall",
        "Network",
        "A firewall rule forbids the client's address: TCP and TLS work, AMQP does not.",
        "namespace",
        "close, `amqp:unauthorized-access`",
        "azure-docs 91061; wording inferred",
        (share(),),
        Firewall,
    ),
    Row(
        "reset",
        "Network",
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
