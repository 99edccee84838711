"""How often an idle query asks the service: less and less, and within a budget of requests.

Pure: numbers in, numbers out; times come as arguments. Knows the options `pollInterval` and `maxRequestsPerSecond`.
Does not know what is asked.
"""

from __future__ import annotations

from typing import Final

FIRST_STEPS: Final = 4  # looks per `pollInterval` right after the last message
PAUSE_MIN_S: Final = 0.005
IDLE_PAUSE_MAX_S: Final = 0.5  # between looks that cost one request


class Pace:
    """The pauses between looks that find nothing: doubled each time, up to what the budget asks for."""

    def __init__(self, poll_interval_s: float, requests_per_s: float) -> None:
        self._first_s = max(poll_interval_s / FIRST_STEPS, PAUSE_MIN_S)
        self._longest_first_s = max(poll_interval_s, IDLE_PAUSE_MAX_S)
        self._requests_per_s = requests_per_s
        self._pause_s = self._first_s
        self._not_before_s = float("-inf")

    def found(self) -> None:
        """There were messages: look again without a pause."""
        self._pause_s = self._first_s
        self._not_before_s = float("-inf")

    def nothing(self, request_count: int, now_s: float) -> None:
        """A look that took so many requests has found nothing."""
        self._not_before_s = now_s + self._pause_s
        longest_s = max(self._longest_first_s, request_count / self._requests_per_s)
        self._pause_s = min(2 * self._pause_s, longest_s)

    def wait_s(self, now_s: float) -> float:
        """How long to wait before the next look; 0 if it is due."""
        return max(0.0, self._not_before_s - now_s)
