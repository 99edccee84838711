"""Parcels in flight: each is sent until the service accepts it, the time is over, or the service refuses it finally.

Knows the window, the order within a key, and when to retry: after a refusal that may be temporary, and after the loss
of a connection, when the outcome of the parcels in flight is unknown (they are sent again with the same message ids).
Does not know rows and Spark. A `Delivery` belongs to one task; its connection belongs to the pool.

Order: parcels wait in lines. Only the first parcel of a line is in flight, so a retried parcel can't be overtaken. A
line holds the parcels of one key; parcels without a key have a line each, unless `ordered` is set.

Size: a service that finds a delivery too large closes the link, and may reject other deliveries in flight for the same
reason. So such a refusal counts only for a parcel that was in flight alone; the others are sent again, one at a time. A
single message is sent again, too: only a second refusal is final, because a link may be closed at any time.
"""

from __future__ import annotations

import contextlib
import heapq
import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final

from ..errors import Code, ConnectorError
from ..options import SinkOptions
from ..timing import backoff_s, monotonic_s, sleep
from .routes import Routes
from .targets import Limits, Parcel

SINGLES_PER_ENVELOPE: Final = 32  # small messages that travel alone count less in the window
SINGLE_BYTES_MAX: Final = 8 * 1024  # … up to this size
BACKLOG_WINDOWS: Final = 2  # the bytes that may wait for delivery, in full windows
DIVISIBLE: Final = frozenset({Code.REFUSED, Code.MESSAGE_TOO_LARGE, Code.SESSION_REQUIRED})  # one row may be to blame

REFUSALS_MAX: Final = 2  # of a single message for its size

_log = logging.getLogger("emubus.spark")


@dataclass(slots=True)
class Tally:
    """What a task has delivered so far."""

    rows: int = 0
    size_bytes: int = 0
    deliveries: int = 0
    repeated: int = 0  # deliveries sent again
    skipped: list[int] = field(default_factory=list)  # rows that no service would take, with onOversize=skip

    def sent_again(self, count: int = 1) -> None:
        self.repeated += count

    def delivered(self, parcel: Parcel) -> None:
        self.rows += len(parcel.rows)
        self.size_bytes += parcel.size_bytes
        self.deliveries += 1


@dataclass(slots=True, eq=False)
class Line:
    """Parcels that are sent one after the other."""

    key: Hashable
    parcels: deque[Parcel]


class Courier(ABC):
    """Common to both ways of delivery: the connection, the limits of targets, and retries."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._endpoint = options.connection.endpoint
        self._routes = Routes(options.connection, options.max_in_flight * SINGLES_PER_ENVELOPE)
        self._trouble_at_s: float | None = None  # since when nothing succeeds
        self._attempts = 0
        self._limits: dict[str, Limits] = {}
        self.tally = Tally()

    def limits(self, target: str) -> Limits:
        """What one delivery to `target` may hold; connects if necessary, with retries."""
        while (known := self._limits.get(target)) is None:
            try:
                sender = self._routes.sender(target)
            except ConnectorError as error:
                self._lost(error)
                continue
            self._trouble_at_s = None
            message_bytes_max = sender.message_bytes_max
            asked_for = self._options.batch_size_bytes or message_bytes_max
            envelope_bytes_max = min(message_bytes_max, sender.batch_bytes_max, asked_for)
            self._limits[target] = Limits(message_bytes_max, envelope_bytes_max)
        return known

    @abstractmethod
    def put(self, parcel: Parcel) -> None:
        """Take a parcel for delivery."""

    @abstractmethod
    def finish(self) -> None:
        """Return when everything is delivered; ConnectorError for the first parcel that can't be."""

    def abandon(self, error: BaseException) -> None:
        """Stop because of `error`: the connection is not used again, because its state is unknown."""
        self._routes.abandon(error)

    def _lost(self, error: ConnectorError) -> None:
        """The connection or a link is unusable: pause before the next attempt, or raise if there is none."""
        self._routes.abandon(error)
        now = monotonic_s()
        self._trouble_at_s = now if self._trouble_at_s is None else self._trouble_at_s
        if not error.retriable:
            raise error
        if now - self._trouble_at_s >= self._endpoint.retry_timeout_s:
            raise self._given_up(error)
        _log.warning("Trying again after: %s", error.text)
        sleep(backoff_s(self._attempts))
        self._attempts += 1

    def _reset_trouble(self) -> None:
        self._trouble_at_s = None
        self._attempts = 0

    def _given_up(self, error: ConnectorError, what: str = "") -> ConnectorError:
        limit = f"given up after {self._endpoint.retry_timeout_s:g} s of trying (retryTimeout)"
        return ConnectorError(error.code, f"{what}{error.text}; {limit}", condition=error.condition)


class Delivery(Courier):
    """Delivers parcels in their order, `max_in_flight` at a time."""

    def __init__(self, options: SinkOptions) -> None:
        super().__init__(options)
        self._lines: dict[Hashable, Line] = {}
        self._ready: deque[Line] = deque()  # whose first parcel may go
        self._waiting: list[tuple[float, int, Line]] = []  # whose first parcel goes at an instant (heap)
        self._in_flight: dict[int, Line] = {}  # by serial, oldest first
        self._serial = 0
        self._slots = options.max_in_flight * SINGLES_PER_ENVELOPE
        self._backlog_bytes = 0
        self._singly: set[str] = set()  # targets that take messages without a key one by one only

    def put(self, parcel: Parcel) -> None:
        """Take a parcel; returns soon, unless so many wait that some must be delivered first."""
        self._enqueue(parcel)
        self._step(wait=False)
        backlog_max = BACKLOG_WINDOWS * self._options.max_in_flight * self.limits(parcel.target).envelope_bytes_max
        while self._backlog_bytes > backlog_max:
            self._step(wait=True)

    def finish(self) -> None:
        """Deliver everything, then return the connection to the pool."""
        while self._lines:
            self._step(wait=True)
        assert not self._in_flight
        assert self._backlog_bytes == 0  # or parcels were counted twice, and `put` would block for ever
        self._routes.close()

    # ---- lines

    def _enqueue(self, parcel: Parcel) -> None:
        self._serial += 1
        key: Hashable = parcel.key if parcel.has_key or self._options.ordered else self._serial
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = Line(key, deque())
            self._ready.append(line)
        line.parcels.append(parcel)
        self._backlog_bytes += parcel.size_bytes

    def _advance(self, line: Line) -> None:
        """The first parcel of a line is finished; the next one may go."""
        self._backlog_bytes -= line.parcels.popleft().size_bytes
        if line.parcels:
            self._ready.append(line)
        else:
            del self._lines[line.key]

    def _divide(self, line: Line, cause: Code) -> None:
        """Send each message of the first parcel of a line separately, before the following parcels."""
        parcel = line.parcels.popleft()
        singles = parcel.split(cause)
        self._backlog_bytes += sum(single.size_bytes for single in singles) - parcel.size_bytes
        if parcel.has_key or self._options.ordered:
            line.parcels.extendleft(reversed(singles))
            self._ready.appendleft(line)
            return
        del self._lines[line.key]
        for single in reversed(singles):
            self._serial += 1
            alone = self._lines[self._serial] = Line(self._serial, deque([single]))
            self._ready.appendleft(alone)

    # ---- sending

    def _step(self, *, wait: bool) -> None:
        """Send what may be sent, and read outcomes; with `wait`, at least one event has happened on return."""
        try:
            self._wake()
            self._send_ready()
            if self._in_flight:
                self._collect(wait=wait)
            elif wait and self._waiting:
                sleep(self._waiting[0][0] - monotonic_s())
        except ConnectorError as error:
            if not error.retriable:
                raise
            self._lost(error)

    def _wake(self) -> None:
        now = monotonic_s()
        while self._waiting and self._waiting[0][0] <= now:
            self._ready.append(heapq.heappop(self._waiting)[2])

    def _send_ready(self) -> None:
        while self._ready:
            line = self._ready[0]
            parcel = line.parcels[0]
            if len(parcel.rows) > 1 and not parcel.has_key and parcel.target in self._singly:
                self._ready.popleft()
                self._divide(line, Code.REFUSED)
                continue
            cost = _cost(parcel)
            if self._in_flight and (cost > self._slots or parcel.alone or self._is_alone_in_flight()):
                return
            sender = self._routes.sender(parcel.target)
            self._trouble_at_s = None  # from here on the parcel's own time counts
            data, is_envelope = parcel.encode()
            self._ready.popleft()
            self._serial += 1
            self._in_flight[self._serial] = line
            self._slots -= cost
            sender.send(data, envelope=is_envelope, key=self._serial)

    def _is_alone_in_flight(self) -> bool:
        """Whether the parcel in flight must be the only one."""
        return next(iter(self._in_flight.values())).parcels[0].alone

    def _collect(self, *, wait: bool) -> None:
        """Read the known outcomes; with `wait`, at least one."""
        oldest = next(iter(self._in_flight.values())).parcels[0].target
        for target, sender in self._routes.open_senders():
            for serial, error in sender.outcomes(wait=wait and target == oldest):
                self._settled(serial, error)

    def _settled(self, serial: object, error: ConnectorError | None) -> None:
        assert isinstance(serial, int)
        line = self._in_flight.pop(serial, None)
        if line is None:
            return
        parcel = line.parcels[0]
        self._slots += _cost(parcel)
        assert self._slots <= self._options.max_in_flight * SINGLES_PER_ENVELOPE
        if error is None:
            self._reset_trouble()
            self.tally.delivered(parcel)
            if parcel.cause is Code.REFUSED and not parcel.has_key:
                self._singly.add(parcel.target)
            self._advance(line)
        elif error.retriable:
            self._postpone(line, error)
            heapq.heappush(self._waiting, (monotonic_s() + backoff_s(parcel.attempts - 1), serial, line))
        elif error.code is Code.MESSAGE_TOO_LARGE and not parcel.alone:
            parcel.forbid_company()
            self.tally.repeated += 1
            self._ready.appendleft(line)
        elif len(parcel.rows) > 1 and error.code in DIVISIBLE:
            self._divide(line, error.code)
        elif error.code is Code.MESSAGE_TOO_LARGE and parcel.refusals + 1 < REFUSALS_MAX:
            parcel.refused_for_size()
            self.tally.repeated += 1
            self._ready.appendleft(line)
        elif error.code is Code.MESSAGE_TOO_LARGE and self._options.on_oversize == "skip":
            self.tally.skipped += parcel.numbers
            _log.warning("%s to '%s' is skipped: %s", parcel.describe(), parcel.target, error.text)
            self._advance(line)
        else:
            raise explained(error, parcel)

    def _postpone(self, line: Line, error: ConnectorError) -> None:
        """Send the first parcel of a line again; raises if its time is over."""
        parcel = line.parcels[0]
        if parcel.failed(monotonic_s()) >= self._endpoint.retry_timeout_s:
            raise self._given_up(error, f"{_where(parcel)}: ")
        _log.info("%s: trying again after: %s", _where(parcel), error.text)
        parcel.send_again()
        self.tally.repeated += 1

    def _lost(self, error: ConnectorError) -> None:
        """Send the parcels in flight again, in the same order, as soon as there is a connection."""
        for _, sender in self._routes.open_senders():
            known: list[tuple[object, ConnectorError | None]] = []
            with contextlib.suppress(ConnectorError):
                known = sender.outcomes()
            for serial, outcome in known:
                self._settled(serial, outcome)
        for line in reversed(list(self._in_flight.values())):
            self._slots += _cost(line.parcels[0])
            self._postpone(line, error)
            if error.code is Code.MESSAGE_TOO_LARGE:
                line.parcels[0].forbid_company()
            self._ready.appendleft(line)
        self._in_flight.clear()
        super()._lost(error)


def explained(error: ConnectorError, parcel: Parcel) -> ConnectorError:
    return ConnectorError(error.code, f"{_where(parcel)}: {error.text}", condition=error.condition)


def _where(parcel: Parcel) -> str:
    return f"{parcel.describe()} for '{parcel.target}'"


def _cost(parcel: Parcel) -> int:
    is_small = len(parcel.rows) == 1 and parcel.size_bytes <= SINGLE_BYTES_MAX
    return 1 if is_small else SINGLES_PER_ENVELOPE
