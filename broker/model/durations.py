"""ISO 8601 durations, as in the management documents of Service Bus and in Config.json.

Knows the text form and milliseconds. Does not know allowed durations (`validation.py`). Years and months count 365 and
30 days, as in .NET's XmlConvert, which the service uses.
"""

from __future__ import annotations

import re
from typing import Final

UNLIMITED_TEXT: Final = "P10675199DT2H48M5.4775807S"
"""TimeSpan.MaxValue: how every SDK writes "never"."""

# Python cannot hold TimeSpan.MaxValue and sends slightly less: "never" is a threshold, not an equality.
UNLIMITED_FROM_MS: Final = 10_675_199 * 86_400_000

_DURATION = re.compile(
    r"P(?:(?P<years>\d+)Y)?(?:(?P<months>\d+)M)?(?:(?P<weeks>\d+)W)?(?:(?P<days>\d+)D)?"
    r"(?:T(?=\d)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+)(?:\.(?P<fraction>\d+))?S)?)?",
    re.ASCII,
)
_UNITS_MS: Final = {
    "years": 365 * 86_400_000,
    "months": 30 * 86_400_000,
    "weeks": 7 * 86_400_000,
    "days": 86_400_000,
    "hours": 3_600_000,
    "minutes": 60_000,
    "seconds": 1_000,
}
_DIGITS_MAX = 30  # bounds the work of the parser


def parse_duration(text: str) -> int:
    """Return the whole milliseconds of an ISO 8601 duration. Raises ValueError."""
    match = _DURATION.fullmatch(text) if len(text) <= 2 * _DIGITS_MAX else None
    if match is None or not any(match.group(unit) for unit in _UNITS_MS):
        raise ValueError(f"{text[:80]!r} is not an ISO 8601 duration such as 'PT1M' or 'P14D'")
    total_ms = sum(int(match.group(unit) or 0) * unit_ms for unit, unit_ms in _UNITS_MS.items())
    return total_ms + int((match.group("fraction") or "0")[:3].ljust(3, "0"))


def parse_limit(text: str) -> int | None:
    """Like `parse_duration`; TimeSpan.MaxValue, also as SDKs send it, is None: no limit."""
    ms = parse_duration(text)
    return None if ms >= UNLIMITED_FROM_MS else ms


def format_duration(ms: int | None) -> str:
    """Return the canonical ISO 8601 text, e.g. `PT1M`, `P1DT12H`, `PT0.25S`; None is TimeSpan.MaxValue."""
    if ms is None:
        return UNLIMITED_TEXT
    days, rest_ms = divmod(ms, 86_400_000)
    hours, rest_ms = divmod(rest_ms, 3_600_000)
    minutes, rest_ms = divmod(rest_ms, 60_000)
    seconds, rest_ms = divmod(rest_ms, 1_000)
    fraction = f".{rest_ms:03}".rstrip("0") if rest_ms else ""
    clock = (f"{hours}H" if hours else "") + (f"{minutes}M" if minutes else "")
    clock += f"{seconds}{fraction}S" if seconds or fraction else ""
    date = f"{days}D" if days else ""
    return f"P{date}T{clock}" if clock else f"P{date or 'T0S'}"


def format_span(ms: int) -> str:
    """Return milliseconds as .NET writes a TimeSpan, e.g. `00:10:00`, `1.00:00:00.0010000`."""
    seconds, rest_ms = divmod(ms, 1_000)
    days, of_day = divmod(seconds, 86_400)
    clock = f"{of_day // 3600:02}:{of_day // 60 % 60:02}:{of_day % 60:02}"
    return f"{f'{days}.' if days else ''}{clock}{f'.{rest_ms:03}0000' if rest_ms else ''}"
