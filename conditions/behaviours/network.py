"""The network: connections that are refused, reset or silent, and bytes that are late or cut.

Knows what happens when, and to which connections. Does not know how bytes are carried.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import exp, log
from statistics import NormalDist
from typing import Final

from ...broker.errors import BrokerError
from .. import texts
from ..behaviour import Behaviour, Circumstances, Parameter, Row, share
from ..network import Connection
from ..strikes import Passing, TlsFailure
from .idling import End, Idling

TOPIC: Final = "Network"
_P99: Final = NormalDist().inv_cdf(0.99)


class Firewall(Behaviour):
    """A firewall rule forbids clients."""

    def opening(self) -> BrokerError | None:
        if not self.chosen("namespace") or not self.on.record("namespace", "connection refused"):
            return None
        return texts.address_refused()


class Refuse(Behaviour):
    """Nobody listens."""

    def accepts(self, connection: int) -> bool:
        scope = "namespace"
        return not self.chosen(scope) or not self.on.record(scope, f"connection {connection} refused")


class TlsFails(Behaviour):
    def handshake(self) -> TlsFailure | None:
        how, scope = TlsFailure(self.word("how")), "namespace"
        return how if self.chosen(scope) and self.on.record(scope, f"TLS handshake fails: {how}") else None


class OnConnections(Behaviour):
    """What strikes connections of the scope: all, or those with a link to its entity."""

    def reached(self) -> Iterator[Connection]:
        for connection in list(self.on.network.connections()):
            if self.on.entity is None or any(self.covers(link.address) for link in connection.links):
                yield connection

    def is_reached(self, number: int) -> bool:
        return self.on.entity is None or any(each.number == number for each in self.reached())


class Reset(OnConnections):
    """Connections are reset, again and again."""

    def begin(self) -> None:
        self._next(self.on.started_at)

    def _next(self, since: int) -> None:
        least, most = sorted((self.number("ms_min"), self.number("ms_max")))
        at_ms = since + self.on.chance.between("when", least, most)
        if self.on.ends_at is None or at_ms < self.on.ends_at:
            self.at(at_ms, lambda: self._reset(at_ms))

    def _reset(self, at_ms: int) -> None:
        for connection in self.reached():
            scope = scope_of(connection.number)
            if self.chosen(scope) and self.on.record(scope, "connection reset"):
                connection.cut()
        self._next(at_ms)


class Carrying(OnConnections):
    """Delays the bytes of connections, each recorded once."""

    def __init__(self, on: Circumstances) -> None:
        super().__init__(on)
        self._met: dict[int, bool] = {}

    def meets(self, number: int, what: str) -> bool:
        """Whether a connection is struck; decided when its first bytes pass."""
        if number not in self._met and self.is_reached(number):
            self._met[number] = self.chosen(scope_of(number)) and self.on.record(scope_of(number), what)
        return self._met.get(number, False)

    def end(self) -> None:
        super().end()
        for connection in self.on.network.connections():
            if self._met.get(connection.number):
                connection.release_bytes()


class Latency(Carrying):
    """Bytes travel for a while, each way half of the round trip."""

    def delay_ms(self, passing: Passing) -> int:
        """Half a round trip: always the same, or from a log-normal distribution."""
        if not self.meets(passing.connection, "far away"):
            return 0
        median, p99 = self.number("median_ms"), self.number("p99_ms")
        if p99 <= median:
            return median // 2
        chance = self.on.chance.draw(f"{scope_of(passing.connection)} {'in' if passing.inward else 'out'}")
        spread = log(p99 / max(1, median)) / _P99
        return int(max(1, median) * exp(spread * NormalDist().inv_cdf(min(max(chance, 1e-6), 1 - 1e-6))) / 2)


class Bandwidth(Carrying):
    """Bytes pass at a rate."""

    def __init__(self, on: Circumstances) -> None:
        super().__init__(on)
        self._free_at: dict[tuple[int, bool], float] = {}

    def delay_ms(self, passing: Passing) -> int:
        if not self.meets(passing.connection, "narrow"):
            return 0
        now, key = self.on.clock.now_ms(), (passing.connection, passing.inward)
        free_at = max(now, self._free_at.get(key, 0)) + 1_000 * passing.size_bytes / self.number("bytes_per_s")
        self._free_at[key] = free_at
        return int(free_at - now)


class HalfOpen(Carrying):
    """Nothing passes either way, and nobody says so."""

    def begin(self) -> None:
        """Choose the connections; of one only, the oldest that the seed chooses."""
        found = [each.number for each in self.reached()]
        if self.word("connections") == "one" and found:
            only = found[self.on.chance.between("connection", 0, len(found) - 1)]
            self._met = dict.fromkeys(found, False)
            self._met[only] = self.on.record(scope_of(only), "half-open")
        self._is_one = self.word("connections") == "one"
        until_at = self.on.started_at + self.number("ms")
        self.on.plan(until_at, "bytes pass again")

    def delay_ms(self, passing: Passing) -> int:
        left_ms = self.on.started_at + self.number("ms") - self.on.clock.now_ms()
        if left_ms <= 0:
            return 0
        is_met = (
            self._met.get(passing.connection, False) if self._is_one else self.meets(passing.connection, "half-open")
        )
        return left_ms if is_met else 0


class CutInTransfer(OnConnections):
    """A connection is reset in the middle of a transfer."""

    def cut_at(self, passing: Passing) -> int | None:
        if passing.inward is not (self.word("direction") == "in") or not self.is_reached(passing.connection):
            return None
        for start, size in passing.transfers:
            scope = scope_of(passing.connection)
            if not self.chosen(scope):
                continue
            asked = self.number("at_byte")
            at_byte = self.on.chance.between(f"{scope} byte", 1, size - 1) if asked < 0 else min(asked, size - 1)
            if self.on.record(scope, f"cut after {at_byte} of {size} bytes of a transfer"):
                return min(passing.size_bytes, max(0, start + at_byte))
        return None


class WebsocketCut(Idling):
    """A proxy cuts WebSockets, at an age or when nothing comes over them."""

    def ends(self) -> Iterator[End]:
        for each in self.on.network.connections():
            if each.is_websocket:
                since = each.heard_at if self.word("idle_only") == "yes" else each.opened_at
                yield since + self.number("ms"), scope_of(each.number), each.cut


def scope_of(number: int) -> str:
    return f"connection {number}"


ROWS: Final = (
    Row(
        "latency",
        TOPIC,
        "Clients are far away: bytes of open connections travel for half a round trip each way, by the broker's clock.",
        "connection",
        "late bytes, in their order",
        "documentation (performance)",
        (
            share(),
            Parameter("median_ms", "A round trip; half of them take less.", 70, "ms", 0, 60_000),
            Parameter("p99_ms", "What 99 % of the round trips take at most; 0: all are equal.", 0, "ms", 0, 60_000),
        ),
        Latency,
    ),
    Row(
        "bandwidth",
        TOPIC,
        "The way of open connections to the broker is narrow, in each direction, by the broker's clock.",
        "connection",
        "late bytes, in their order",
        "azure-sdk-for-net 25381",
        (share(), Parameter("bytes_per_s", "Bytes of a second.", 100_000, "bytes/s", 1, 1 << 40)),
        Bandwidth,
    ),
    Row(
        "half-open",
        TOPIC,
        "Nothing passes either way, and neither side learns of it; locks stay. Then everything comes.",
        "connection",
        "nothing",
        "source of the SDKs",
        (
            share(),
            Parameter("ms", "How long.", 90_000, "ms", 1),
            Parameter(
                "connections", "All, later ones too, or one of those that are there.", "all", choices=("all", "one")
            ),
        ),
        HalfOpen,
    ),
    Row(
        "cut-in-transfer",
        TOPIC,
        "A connection is reset in the middle of a transfer: one that comes in is not stored, a message that goes out "
        "stays locked.",
        "connection",
        "part of a frame, then TCP reset",
        "documentation (troubleshooting)",
        (
            share(),
            Parameter("direction", "To the broker, or to the client.", "in", choices=("in", "out")),
            Parameter("at_byte", "After how many bytes of the frame; -1: by the seed.", -1, "bytes", -1, 1 << 20),
        ),
        CutInTransfer,
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
    Row(
        "refuse",
        TOPIC,
        "New AMQP connections are reset at their first bytes.",
        "namespace",
        "TCP reset",
        "documentation (troubleshooting)",
        (share(),),
        Refuse,
    ),
    Row(
        "tls-fails",
        TOPIC,
        "The TLS handshake of a new connection fails, AMQP or HTTP: the server ends it, or a proxy in between shows a "
        "certificate of its own.",
        "namespace",
        "the alert `handshake_failure`, or a certificate of an unknown CA",
        "documentation (troubleshooting)",
        (
            share(),
            Parameter("how", "An alert, or an unknown certificate.", TlsFailure.ALERT.value, choices=tuple(TlsFailure)),
        ),
        TlsFails,
    ),
    Row(
        "websocket-cut",
        TOPIC,
        "A proxy cuts AMQP over WebSockets, without a close frame.",
        "connection",
        "TCP reset below the WebSocket",
        "azure-sdk-for-python 44028; the usual limits of proxies",
        (
            Parameter("ms", "After how long.", 100_000, "ms", 1),
            Parameter(
                "idle_only", "Whether the client must have written nothing so long.", "no", choices=("yes", "no")
            ),
        ),
        WebsocketCut,
    ),
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
)
