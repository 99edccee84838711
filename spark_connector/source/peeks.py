"""Peeks of the driver that looks for ends and partitions: counted, and patient with a service that is busy.

Knows how a service throttles: it answers busy, and more so if it is asked again at once. Does not know what is looked
for. A `PatientPeeks` belongs to one look.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from ..errors import Code, ConnectorError
from ..timing import backoff_s, sleep

BUSY_FIRST_S: Final = 1.0
BUSY_MAX_S: Final = 30.0
"""Pauses after the service has refused because it is busy; its SDKs wait 4 to 10 s [wire 9.1]."""

PAUSES_MAX: Final = 4


@dataclass(frozen=True)
class _Asked:
    arguments: tuple[int, int, int | None]
    pending: Any
    pause_count: int  # pauses before it was asked


class PatientPeeks:
    """The peeks of a management node, for `browse`.

    A peek that is refused because the service is busy is asked again after a pause, which the other peeks share. After
    `PAUSES_MAX` pauses the refusal is raised.
    """

    def __init__(self, management: Any) -> None:
        self._management = management
        self._pause_count = 0
        self.request_count = 0
        """Requests so far."""

    def peek(self, from_sequence_number: int, count: int, *, partition_id: int | None = None) -> bytes | None:
        """The encoded response, None if there are no messages."""
        return self.end(self.begin_peek(from_sequence_number, count, partition_id=partition_id))

    def begin_peek(
        self, from_sequence_number: int, count: int, *, partition_id: int | None = None, deferred_only: bool = False
    ) -> Any:
        """Send the request without waiting; pass the result to `end`. Ends are never those of deferred messages."""
        assert not deferred_only
        self.request_count += 1
        pending = self._management.begin_peek(from_sequence_number, count, partition_id=partition_id)
        return _Asked((from_sequence_number, count, partition_id), pending, self._pause_count)

    def end(self, pending: Any) -> bytes | None:
        while True:
            try:
                reply: bytes | None = self._management.end(pending.pending)
                return reply
            except ConnectorError as error:
                if error.code is not Code.THROTTLED or self._pause_count >= PAUSES_MAX:
                    raise
            if pending.pause_count == self._pause_count:
                sleep(backoff_s(self._pause_count, BUSY_FIRST_S, BUSY_MAX_S))
                self._pause_count += 1
            number, count, partition_id = pending.arguments
            pending = self.begin_peek(number, count, partition_id=partition_id)
