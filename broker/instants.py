"""The instants that the clock may show: a value that can't be wrong.

Every sum of such an instant and a duration that the broker knows is an instant that clients can represent: .NET, Java
and Python end with the year 9999. Does not know what time it is.
"""

from __future__ import annotations

from typing import Final

from .errors import BrokerError, Condition

CLOCK_MS_MAX: Final = 32_503_680_000_000
"""The year 3000 (Unix ms): time to live, schedules and locks behind it still end before the year 9999."""


class ClockInstant(int):
    """An instant (Unix ms) that the clock may show."""

    __slots__ = ()

    def __new__(cls, ms: int) -> ClockInstant:
        if not 0 <= ms <= CLOCK_MS_MAX:
            raise BrokerError(
                Condition.NOT_ALLOWED,
                f"The clock can't be moved to {ms} ms since 1970: it stays before the year 3000 ({CLOCK_MS_MAX} ms). "
                "Move it less far; a restart of the server brings it back to the machine's time.",
            )
        return super().__new__(cls, ms)
