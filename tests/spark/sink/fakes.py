"""A service with answers that the test chooses, in place of connections: for what can't be timed with a real one.

Knows the methods that `sink.routes` uses of a connection and a sender. Deliveries are logged in the order of their
arrival; each is answered by the first rule of the script that wants it, else accepted.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from emubus.spark_connector.codec.encode import EncodedRow
from emubus.spark_connector.errors import Code, ConnectorError

Outcome = tuple[object, ConnectorError | None]
BUSY = ConnectorError(Code.THROTTLED, "busy", condition="com.microsoft:server-busy", retriable=True)
MIXED_KEYS = ConnectorError(Code.REFUSED, "distinct keys", condition="amqp:not-allowed")
CUT = ConnectorError(Code.UNAVAILABLE, "the connection was cut", retriable=True)
TOO_LARGE = ConnectorError(Code.MESSAGE_TOO_LARGE, "too large", condition="amqp:link:message-size-exceeded")
CLOSED = ConnectorError(TOO_LARGE.code, TOO_LARGE.text, condition=TOO_LARGE.condition, retriable=True)


@dataclass
class Arrived:
    """One delivery."""

    target: str
    data: bytes
    is_envelope: bool


Verdict = ConnectorError | Literal["cut", "cut after", "close", "reject and close"] | None
"""What becomes of a delivery. `close` and `reject and close` end the link because the delivery is too large; the second
rejects all that is under way, for the same reason."""

Rule = Callable[[Arrived], Verdict]


@dataclass
class FakeService:
    """What arrived, what was stored, and the rules for what comes next: each is asked once, in order."""

    message_bytes_max: int = 10_000
    batch_bytes_max: int = 10_000
    rules: deque[Rule] = field(default_factory=deque[Rule])
    always: Rule | None = None
    arrived: list[Arrived] = field(default_factory=list[Arrived])
    stored: list[Arrived] = field(default_factory=list[Arrived])
    connections: int = 0
    most_in_flight: int = 0

    @contextmanager
    def pooled(self, endpoint: object, credential: object) -> Iterator[FakeConnection]:
        """Stand in for `wire.pool.pooled`."""
        self.connections += 1
        yield FakeConnection(self)

    def answer(self, delivery: Arrived) -> Verdict:
        """What becomes of a delivery."""
        self.arrived.append(delivery)
        rule = self.rules.popleft() if self.rules else self.always
        verdict = None if rule is None else rule(delivery)
        if verdict is None or verdict == "cut after":
            self.stored.append(delivery)
        return verdict


class FakeConnection:
    """A connection; once cut, nothing works on it."""

    def __init__(self, service: FakeService) -> None:
        self.service = service
        self.lost: ConnectorError | None = None

    def sender(self, entity: str, *, window: int) -> FakeSender:
        """A link."""
        return FakeSender(self, entity)


class FakeSender:
    """A link whose deliveries arrive when somebody waits for outcomes."""

    def __init__(self, connection: FakeConnection, entity: str) -> None:
        self._connection = connection
        self._entity = entity
        self._sent: deque[tuple[object, Arrived]] = deque()
        self._known: list[Outcome] = []
        self.message_bytes_max = connection.service.message_bytes_max
        self.batch_bytes_max = connection.service.batch_bytes_max

    def send(self, data: bytes, *, envelope: bool, key: object, transaction: object = None) -> None:
        """Put a delivery under way."""
        self._check()
        self._sent.append((key, Arrived(self._entity, data, envelope)))
        service = self._connection.service
        service.most_in_flight = max(service.most_in_flight, len(self._sent))

    def outcomes(self, *, wait: bool = False) -> list[Outcome]:
        """What is known; with `wait`, one more delivery arrives first."""
        if wait and not self._known:
            self._check()
            self._arrive()
        known, self._known = self._known, []
        return known

    def close(self) -> None:
        """Detach."""

    def _arrive(self) -> None:
        if not self._sent:
            return
        key, delivery = self._sent.popleft()
        verdict = self._connection.service.answer(delivery)
        if verdict in ("close", "reject and close"):
            rejected = [key, *(each for each, _ in self._sent)]
            if len(rejected) == 1 or verdict == "reject and close":
                self._known += [(each, TOO_LARGE) for each in rejected]
            self._connection.lost = CLOSED
            if not self._known:
                self._check()
        elif isinstance(verdict, str):
            self._connection.lost = CUT
            self._check()
        else:
            self._known.append((key, verdict))

    def _check(self) -> None:
        if self._connection.lost is not None:
            raise self._connection.lost


def row(index: int, *, size: int = 100, session: str | None = None, key: str | None = None) -> EncodedRow:
    """A message of `size` bytes that begins with its number."""
    data = f"<{index}>".encode().ljust(size, b".")
    return EncodedRow(index, data, session or key, session, key, f"id-{index}", None)


def numbers(data: bytes) -> list[int]:
    """The numbers of the messages in a delivery."""
    return [int(number) for number in re.findall(rb"<(\d+)>", data)]
