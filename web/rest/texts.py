"""Values of messages as the text of HTTP headers, in both directions.

Knows how the text of a custom property gives its type [http 5]: a date or string has quotes; a boolean, an integer or a
floating-point number has none. Does not know which headers are properties. Pure.

Within quotes a quotation mark is written `\\"`, as Microsoft's clients write it, and nothing else is escaped: a
backslash stands for itself, so every string is read back unchanged.
"""

from __future__ import annotations

import math
import re
import uuid
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from email.utils import formatdate
from typing import Final

from ...codec import decimals
from ...codec.durations import TICKS_PER_S
from ...codec.types import Char, Decimal32, Decimal64, Decimal128, Described, Float, Symbol, Timestamp

LONG_MAX: Final = (1 << 63) - 1
TIME_SPAN: Final = "com.microsoft:timespan"  # as .NET puts a TimeSpan into a property: a long of ticks
_DATE_TIME_OFFSET: Final = "com.microsoft:datetime-offset"  # ticks since the year 1
_URI: Final = "com.microsoft:uri"
_TICKS_AT_1970: Final = 621_355_968_000_000_000

_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_HTTP_DATE: Final = re.compile(r"[A-Z][a-z]{2}, (\d\d) ([A-Z][a-z]{2}) (\d{4}) (\d\d):(\d\d):(\d\d) GMT", re.ASCII)
_INTEGER: Final = re.compile(r"[+-]?\d{1,19}", re.ASCII)
_FLOAT: Final = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_WORDS: Final = {
    "true": True,
    "false": False,
    "NaN": math.nan,
    "Infinity": math.inf,
    "-Infinity": -math.inf,
}
_DECIMAL_PLACES_MAX: Final = 60  # twice what a decimal of .NET has
_CONTROL: Final = re.compile("[\x00-\x1f\x7f]")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)


def http_date(at: int) -> str | None:
    """An instant (Unix ms) as HTTP writes dates, to the second; None beyond the years 1 to 9999."""
    try:
        return formatdate(at // 1000, usegmt=True)
    except (OverflowError, ValueError, OSError):
        return None


def http_date_in(text: str) -> int | None:
    """The instant (Unix ms) in a text that is a date as HTTP writes them, to the letter; None for all else."""
    match = _HTTP_DATE.fullmatch(text)
    if match is None or match[2] not in _MONTHS:
        return None
    day, month, year, hour, minute, second = match.groups()
    try:
        instant = datetime(
            int(year), _MONTHS.index(month) + 1, int(day), int(hour), int(minute), int(second), tzinfo=UTC
        )
    except ValueError:
        return None
    at = (instant - _EPOCH) // _MS
    return at if http_date(at) == text else None  # the weekday has to be right, too


def instant_in(text: str) -> int | None:
    """The instant (Unix ms) in a text: an HTTP date, or ISO 8601 (without a zone: UTC)."""
    text = text.strip()
    at = http_date_in(text)
    if at is not None:
        return at
    try:
        instant = datetime.fromisoformat(text)
        return ((instant if instant.tzinfo is not None else instant.replace(tzinfo=UTC)) - _EPOCH) // _MS
    except (ValueError, OverflowError):
        return None


def header_text(value: bytes) -> str:
    """A header's value, decoded as UTF-8, or as Latin-1 if it is not UTF-8: many clients write that."""
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return value.decode("latin-1")


def property_in(text: str) -> object:
    """The value of a custom property by the text of its header; ValueError if no type has such values."""
    if len(text) >= 2 and text[0] == text[-1] == '"':
        inside = text[1:-1].replace('\\"', '"')
        at = http_date_in(inside)
        return inside if at is None else Timestamp(at)
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text) and -LONG_MAX - 1 <= int(text) <= LONG_MAX:
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    raise ValueError(text)


def property_text(value: object) -> str | None:
    """A custom property as the text of a header; None for a value without one: binary, lists, maps, null."""
    match value:
        case bool():
            return "true" if value else "false"
        case Timestamp():
            date = http_date(int(value))
            return None if date is None else f'"{date}"'
        case int():
            return str(int(value))
        case float():
            return _double_text(value)
        case str():
            return _quoted_string(str.__str__(value))
        case uuid.UUID():
            return f'"{value}"'
        case Decimal32() | Decimal64() | Decimal128():
            return _decimal(decimals.meant(value))
        case Described(descriptor, str() as uri) if descriptor == _URI:
            return _quoted_string(str.__str__(uri))
        case Described(descriptor, int() as ticks) if descriptor == _DATE_TIME_OFFSET:
            return property_text(Timestamp((int(ticks) - _TICKS_AT_1970) // (TICKS_PER_S // 1_000)))
        case Described(descriptor, int() as ticks) if descriptor == TIME_SPAN:
            return _double_text(int(ticks) / TICKS_PER_S)
        case _:
            return None


def _decimal(text: str) -> str | None:
    """A decimal without an exponent, as .NET writes it; None for one that is no number, or that no header holds."""
    if not text[-1].isdigit() or text.startswith("0x"):
        return None
    number = Decimal(text)
    return format(number, "f") if abs(number.adjusted()) <= _DECIMAL_PLACES_MAX else None


def _double_text(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return f"{value:.9g}" if isinstance(value, Float) else repr(float(value))


def _quoted_string(text: str) -> str:
    """A string in quotes. A header can't hold control characters: they are written as in JSON."""
    text = _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text.replace('"', '\\"'))
    return f'"{text}"'


def identifier_text(value: object) -> str | None:
    """A message id or the like as text, whatever AMQP type its sender chose; None if it is not set."""
    match value:
        case None:
            return None
        case Symbol() | Char() | str():
            return str.__str__(value)
        case bytes():
            return value.hex()
        case _:
            return str(value)
