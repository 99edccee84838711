"""A sender in a process of its own: `python sender.py CONNECTION_STRING QUEUE`.

Sends numbers from 0 on, as bodies and as message ids, a few at a time, and sends again what was not confirmed when a
connection is lost. A line on stdin is answered by a line with a count: all numbers below it are confirmed. The line
"finish" is answered when all are, and is the last.
"""

from __future__ import annotations

import select
import sys
from collections import deque

from emubus.codec.encode import encode
from emubus.spark_connector.errors import ConnectorError
from emubus.spark_connector.options import sink_options
from emubus.spark_connector.timing import monotonic_s
from emubus.spark_connector.wire.pool import pooled
from emubus.spark_connector.wire.values import described

INTERVAL_S = 0.05  # between bursts, so that the load is steady
BURST = 10
TROUBLE_S_MAX = 600.0


class Numbers:
    """Which numbers are to be sent, and which are confirmed."""

    def __init__(self) -> None:
        self.count = 0
        self.open: set[int] = set()
        self._waiting: deque[int] = deque()

    def take(self, *, more: bool) -> list[int]:
        """The next ones to send: those that failed first, and new ones only if there are to be `more`."""
        while more and len(self._waiting) < BURST:
            self._waiting.append(self.count)
            self.open.add(self.count)
            self.count += 1
        return [self._waiting.popleft() for _ in range(min(BURST, len(self._waiting)))]

    def lost(self) -> None:
        """Nothing is under way any more."""
        self._waiting = deque(sorted(self.open))

    @property
    def confirmed_below(self) -> int:
        """All numbers below this one are confirmed."""
        return min(self.open, default=self.count)


def encoded(number: int) -> bytes:
    """A message with the number as id and body."""
    return encode(described(0x73, [str(number)])) + encode(described(0x75, str(number).encode()))


class Sending:
    """Sends until the parent process asks it to finish."""

    def __init__(self, connection_string: str, queue: str) -> None:
        self._options = sink_options({"connectionString": connection_string, "queue": queue}, streaming=False)
        self._queue = queue
        self._numbers = Numbers()
        self._is_finishing = False
        self._well_at_s = monotonic_s()

    def run(self) -> None:
        """Over as many connections as it takes; ConnectorError if nothing is confirmed for a minute."""
        while not self._is_done:
            try:
                self._send()
            except ConnectorError as error:
                if not error.retriable or monotonic_s() - self._well_at_s > TROUBLE_S_MAX:
                    raise
                self._numbers.lost()
                self._listen()
        answer(self._numbers.count)

    @property
    def _is_done(self) -> bool:
        return self._is_finishing and not self._numbers.open

    def _send(self) -> None:
        connection = self._options.connection
        with pooled(connection.endpoint, connection.credential) as connected:
            sender = connected.sender(self._queue, window=1000)
            while not self._is_done:
                for number in self._numbers.take(more=not self._is_finishing):
                    sender.send(encoded(number), envelope=False, key=number)
                for key, error in sender.flush():
                    if error is not None:
                        raise error
                    assert isinstance(key, int)
                    self._numbers.open.discard(key)
                self._well_at_s = monotonic_s()
                self._listen()
            sender.close()

    def _listen(self) -> None:
        """Answer a question that comes before the next burst is due."""
        if self._is_finishing or not select.select([sys.stdin], [], [], INTERVAL_S)[0]:
            return
        line = sys.stdin.readline()
        if not line:
            raise SystemExit("the parent process has ended")
        self._is_finishing = line.strip() == "finish"
        if not self._is_finishing:
            answer(self._numbers.confirmed_below)


def answer(count: int) -> None:
    """Write one line for the parent process."""
    sys.stdout.write(f"{count}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    Sending(sys.argv[1], sys.argv[2]).run()
