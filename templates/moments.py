"""Moments of templates: ISO 8601 and the formats of .NET in which `utcNow` and `dateTimeAdd` write them."""

from __future__ import annotations

import calendar
import re
from datetime import UTC, datetime, timedelta
from typing import Final

from .values import quoted

SHORT: Final = "yyyyMMddTHHmmssZ"
"""The format of `utcNow()` without one."""
_STANDARD: Final = {
    "d": "MM/dd/yyyy",
    "D": "dddd, dd MMMM yyyy",
    "f": "dddd, dd MMMM yyyy HH:mm",
    "F": "dddd, dd MMMM yyyy HH:mm:ss",
    "g": "MM/dd/yyyy HH:mm",
    "G": "MM/dd/yyyy HH:mm:ss",
    "M": "MMMM dd",
    "m": "MMMM dd",
    "o": "yyyy-MM-ddTHH:mm:ss.fffffffZ",
    "O": "yyyy-MM-ddTHH:mm:ss.fffffffZ",
    "r": "ddd, dd MMM yyyy HH:mm:ss GMT",
    "R": "ddd, dd MMM yyyy HH:mm:ss GMT",
    "s": "yyyy-MM-ddTHH:mm:ss",
    "t": "HH:mm",
    "T": "HH:mm:ss",
    "u": "yyyy-MM-dd HH:mm:ssZ",
    "y": "yyyy MMMM",
    "Y": "yyyy MMMM",
}
"""Of the invariant culture."""
_DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS: Final = (
    *("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November"),
    "December",
)
_TOKEN: Final = re.compile(r"'([^']*)'|\\(.)|(y+|M+|d+|H+|h+|m+|s+|f+|F+|t+|z+|K)|(GMT)|(.)", re.DOTALL)
_DURATION: Final = re.compile(
    r"(-?)P(?:(\d{1,5})Y)?(?:(\d{1,6})M)?(?:(\d{1,6})W)?(?:(\d{1,8})D)?"
    r"(?:T(?:(\d{1,9})H)?(?:(\d{1,9})M)?(?:(\d{1,12})(?:\.(\d{1,7}))?S)?)?"
)


def moment_text(moment: datetime, spelling: str = SHORT) -> str:
    """A moment in a standard or a custom format of .NET."""
    pattern = _STANDARD.get(spelling, spelling)
    return "".join(_token_text(moment, match) for match in _TOKEN.finditer(pattern))


def _token_text(moment: datetime, match: re.Match[str]) -> str:
    if match[3] is None:
        return next(each for each in (match[1], match[2], match[4], match[5], "") if each is not None)
    token, count = match[3][0], len(match[3])
    hour = moment.hour % 12 or 12
    numbers = {"H": moment.hour, "h": hour, "m": moment.minute, "s": moment.second}
    if token in numbers:
        return str(numbers[token]).rjust(min(count, 2), "0")
    match token:
        case "y":
            return str(moment.year % 100).rjust(count, "0") if count < 3 else str(moment.year).rjust(count, "0")
        case "M":
            name = _MONTHS[moment.month - 1]
            return str(moment.month).rjust(count, "0") if count < 3 else name[:3] if count == 3 else name
        case "d":
            name = _DAYS[moment.weekday()]
            return str(moment.day).rjust(count, "0") if count < 3 else name[:3] if count == 3 else name
        case "f" | "F":
            return f"{moment.microsecond:06d}0"[:count]
        case "t":
            return ("AM" if moment.hour < 12 else "PM")[:count]
        case _:
            return "Z" if token == "K" else "+00:00"


def moment_of(text: str) -> datetime:
    """A moment of ISO 8601, of any of its spellings that templates use. ValueError."""
    trimmed = text.strip()
    if re.fullmatch(r"\d{8}T\d{6}Z", trimmed):
        return datetime.strptime(trimmed, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    try:
        found = datetime.fromisoformat(trimmed)
    except ValueError:
        raise ValueError(f"{quoted(text)} is no time of ISO 8601") from None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def add_duration(base: str, duration: str, spelling: str | None = None) -> str:
    """Without a format in that of the base: with a blank between day and time, or with a T."""
    match = _DURATION.fullmatch(duration)
    if match is None or duration.endswith(("P", "T")):
        raise ValueError(f"{quoted(duration)} is no duration of ISO 8601")
    sign = -1 if match[1] else 1
    years, months, weeks, days, hours, minutes, seconds = (sign * int(match[at] or 0) for at in range(2, 9))
    moment = moment_of(base)
    month = moment.year * 12 + moment.month - 1 + years * 12 + months
    year, month = divmod(month, 12)
    if not 1 <= year <= 9_999:
        raise ValueError(f"there is no year {year}")
    day = min(moment.day, calendar.monthrange(year, month + 1)[1])
    fraction = sign * int((match[9] or "0").ljust(7, "0")) // 10
    moved = moment.replace(year=year, month=month + 1, day=day) + timedelta(
        days=days + 7 * weeks, hours=hours, minutes=minutes, seconds=seconds, microseconds=fraction
    )
    return moment_text(moved, spelling or _spelling_of(base))


def _spelling_of(base: str) -> str:
    if re.fullmatch(r"\d{8}T\d{6}Z", base.strip()):
        return SHORT
    return "u" if " " in base.strip() else "yyyy-MM-ddTHH:mm:ssZ"


def moment_of_epoch(seconds: int) -> str:
    return moment_text(datetime.fromtimestamp(seconds, UTC), "yyyy-MM-ddTHH:mm:ssZ")


def epoch_of(text: str) -> int:
    return int(moment_of(text).timestamp())
