"""Durations as text: the one reader of all the forms that clients, files and people write, and their writers.

| Form | Examples | Read by |
|---|---|---|
| ISO 8601 | `PT1M`, `P1DT12H`, `PT0.25S` | `parse_duration`, `parse_limit`, `parse_span`, `parse_time` |
| .NET's TimeSpan | `00:01:00`, `1.02:03:04.5` | `parse_span`, `clock_ticks` |
| a number and its unit | `90s`, `1.5h`, `5 minutes` | `parse_time`, `parse_seconds` |

A face takes the forms that its original takes: management documents and Config.json ISO 8601, SQL what .NET reads,
REST a TimeSpan, options and forms what people write. Years and months count 365 and 30 days, as in .NET's XmlConvert,
which the service uses. Does not know which durations are allowed. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

TICKS_PER_MS: Final = 10_000
TICKS_PER_S: Final = 1_000 * TICKS_PER_MS
"""A tick is .NET's unit of time: 100 ns."""
_DAY_S: Final = 86_400

UNLIMITED_TEXT: Final = "P10675199DT2H48M5.4775807S"
"""TimeSpan.MaxValue: how every SDK writes "never"."""
UNLIMITED_FROM_MS: Final = 10_675_199 * _DAY_S * 1_000
"""Python cannot hold TimeSpan.MaxValue and sends slightly less: "never" is a threshold, not an equality."""

_ISO_CHARS_MAX: Final = 60  # bounds the work of the parser
_ISO: Final = re.compile(
    r"P(?:(?P<years>\d+)Y)?(?:(?P<months>\d+)M)?(?:(?P<weeks>\d+)W)?(?:(?P<days>\d+)D)?"
    r"(?:T(?=\d)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+)(?:\.(?P<fraction>\d+))?S)?)?",
    re.ASCII,
)
_ISO_UNITS_S: Final[Mapping[str, int]] = {
    "years": 365 * _DAY_S,
    "months": 30 * _DAY_S,
    "weeks": 7 * _DAY_S,
    "days": _DAY_S,
    "hours": 3_600,
    "minutes": 60,
    "seconds": 1,
}
_CLOCK: Final = re.compile(
    r"(?:(?P<days>\d+)(?:\.|:(?=\d+:\d+:)))?"
    r"(?P<hours>\d+):(?P<minutes>\d+)(?::(?P<seconds>\d+)(?:\.(?P<fraction>\d{1,7}))?)?",
    re.ASCII,
)
_CLOCK_CHARS_MAX: Final = 60
_TICKS_MAX: Final = 2**63 - 1
_WITH_UNIT: Final = re.compile(r"(?P<whole>\d{1,15})(?:\.(?P<fraction>\d{1,9}))?\s*(?P<unit>[a-z]+)", re.ASCII)
_UNITS_MS: Final[Mapping[str, int]] = {
    # Spark's own spellings, too, because users know them from triggers and watermarks.
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 1),
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1_000),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000),
    **dict.fromkeys(("d", "day", "days"), _DAY_S * 1_000),
}


# ---------------------------------------------------------------- forms, in ticks


def iso_ticks(text: str) -> int | None:
    """The ticks of an ISO 8601 duration; None if it is none. What is finer than a tick is cut off."""
    found = _ISO.fullmatch(text) if len(text) <= _ISO_CHARS_MAX else None
    if found is None or not any(found[unit] for unit in _ISO_UNITS_S):
        return None
    seconds = sum(int(found[unit] or 0) * unit_s for unit, unit_s in _ISO_UNITS_S.items())
    return seconds * TICKS_PER_S + _fraction(found["fraction"], TICKS_PER_S)


def clock_ticks(text: str) -> int | None:
    """The ticks of .NET's `[days.]hours:minutes[:seconds[.fraction]]` without a sign; None if it is none.

    As TimeSpan.Parse reads it (dotnet/fundamentals/runtime-libraries/system-timespan-parse; `tests/codec/csharp` has
    what .NET answers). But for days alone: a number has another unit at each face.
    """
    found = _CLOCK.fullmatch(text.strip()) if len(text) <= _CLOCK_CHARS_MAX else None
    if found is None:
        return None
    days, hours, minutes, seconds = (int(found[unit] or 0) for unit in ("days", "hours", "minutes", "seconds"))
    if found["days"] is None and found["seconds"] is not None and found["fraction"] is None and hours > 23:
        days, hours, minutes, seconds = hours, minutes, seconds, 0  # .NET takes 24:00:00 for 24 days
    if hours > 23 or minutes > 59 or seconds > 59:
        return None
    total_s = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    ticks = total_s * TICKS_PER_S + _fraction(found["fraction"], TICKS_PER_S)
    return ticks if ticks <= _TICKS_MAX else None


def unit_ticks(text: str) -> int | None:
    """The ticks of a number with its unit, in any case; None if it is none. A number needs a unit: they differ."""
    found = _WITH_UNIT.fullmatch(text.strip().lower())
    if found is None or found["unit"] not in _UNITS_MS:
        return None
    ticks = _UNITS_MS[found["unit"]] * TICKS_PER_MS
    return int(found["whole"]) * ticks + _fraction(found["fraction"], ticks)


def _fraction(digits: str | None, ticks: int) -> int:
    """The ticks of the decimal places of a number of units, each of which has `ticks`."""
    return int(digits) * ticks // 10 ** len(digits) if digits else 0


# ---------------------------------------------------------------- what faces read


def parse_duration(text: str) -> int:
    """Return the whole milliseconds of an ISO 8601 duration. Raises ValueError."""
    return _iso_ticks(text) // TICKS_PER_MS


def _iso_ticks(text: str) -> int:
    ticks = iso_ticks(text)
    if ticks is None:
        raise ValueError(f"{text[:80]!r} is not an ISO 8601 duration such as 'PT1M' or 'P14D'")
    return ticks


def parse_limit(text: str) -> int | None:
    """Like `parse_duration`; TimeSpan.MaxValue, also as SDKs send it, is None: no limit."""
    ms = parse_duration(text)
    return None if ms >= UNLIMITED_FROM_MS else ms


def parse_span(text: str) -> int:
    """Return the ticks of an ISO 8601 duration or a TimeSpan, either of which may be negative. Raises ValueError."""
    body = text.removeprefix("-")
    ticks = clock_ticks(body)
    if ticks is None:
        ticks = _iso_ticks(body)
    return ticks if body == text else -ticks


def parse_time(text: str) -> int:
    """Return the whole milliseconds of what people write: a number with its unit, or ISO 8601. Raises ValueError."""
    ticks = unit_ticks(text)
    return parse_duration(text.strip().upper()) if ticks is None else ticks // TICKS_PER_MS


def parse_seconds(text: str) -> float:
    """Return the seconds of a number with its unit. Raises ValueError (without the text)."""
    ticks = unit_ticks(text)
    if ticks is None:
        raise ValueError("a duration is a number and a unit: ms, s, m, h or d")
    return ticks / TICKS_PER_S


# ---------------------------------------------------------------- and back


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


def format_time(ms: float) -> str:
    """Return the shortest text that `parse_time` reads back: `200ms`, `90s`, `2m`."""
    for unit in ("d", "h", "m", "s"):
        count = ms / _UNITS_MS[unit]
        if count >= 1 and count == int(count):
            return f"{int(count)}{unit}"
    return f"{ms:g}ms"
