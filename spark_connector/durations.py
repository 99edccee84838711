"""Durations in options: `200ms`, `5s`, `2m`, `1h`, `1d`.

Knows the units. Does not know the options and their ranges. A number without a unit is refused, because Spark's own
options differ in its meaning.
"""

from __future__ import annotations

import re

# Spark's own spellings (`5 seconds`, `5min`) are taken too, because users know them from triggers and watermarks.
_SECONDS_BY_UNIT = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 0.001),
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86400.0),
}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)", re.ASCII)


def parse_duration(text: str) -> float:
    """The seconds of a duration; ValueError (without the text) if it is not one."""
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None or match[2] not in _SECONDS_BY_UNIT:
        raise ValueError("a duration is a number and a unit: ms, s, m, h or d")
    return float(match[1]) * _SECONDS_BY_UNIT[match[2]]


def show_duration(seconds: float) -> str:
    """The same span in the shortest form that `parse_duration` reads back: `200ms`, `90s`, `2m`."""
    for unit in ("d", "h", "m", "s"):
        count = seconds / _SECONDS_BY_UNIT[unit]
        if count >= 1 and count == int(count):
            return f"{int(count)}{unit}"
    return f"{seconds * 1000:g}ms"
