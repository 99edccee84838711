"""XML as text: what has to be escaped, and the namespaces of the management API [http 2, 3].

Writes elements so that every text is read back unchanged. Does not know what they mean. Pure.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

ATOM: Final = "http://www.w3.org/2005/Atom"
CONNECT: Final = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
COUNTS: Final = "http://schemas.microsoft.com/netservices/2011/06/servicebus"
INSTANCE: Final = "http://www.w3.org/2001/XMLSchema-instance"
SCHEMA: Final = "http://www.w3.org/2001/XMLSchema"
SERIALIZATION: Final = "http://schemas.microsoft.com/2003/10/Serialization/"

NEVER: Final = "0001-01-01T00:00:00Z"
"""The instant of an event that has not happened, as in .NET."""

_TICKS_PER_MS: Final = 10_000
_MS_AT_1970: Final = 62_135_596_800_000  # ticks count from the year 1
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_ENTITIES: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "\r": "&#xD;"}
_IN_ATTRIBUTES: Final = {**_ENTITIES, "\n": "&#xA;", "\t": "&#x9;"}
_SPECIAL: Final = re.compile('[&<>"\r\n\t]')
_FORBIDDEN: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def escaped(text: str, entities: dict[str, str] = _ENTITIES) -> str:
    """A text between tags; what XML cannot carry at all becomes U+FFFD."""
    text = _FORBIDDEN.sub("\ufffd", text)
    return _SPECIAL.sub(lambda match: entities.get(match[0], match[0]), text)


def quoted(text: str) -> str:
    """A text as the value of an attribute, with its quotation marks."""
    return f'"{escaped(text, _IN_ATTRIBUTES)}"'


def element(name: str, text: str | None) -> str:
    """An element with a text; nothing at all for None."""
    return "" if text is None else f"<{name}>{escaped(text)}</{name}>"


def instant(ms: int | None) -> str:
    """An instant (Unix ms) in ISO 8601, without the zeros at the end of its fraction; None is `NEVER`."""
    if ms is None:
        return NEVER
    text = (_EPOCH + timedelta(milliseconds=ms)).strftime("%Y-%m-%dT%H:%M:%S")
    fraction = f".{ms % 1000:03}".rstrip("0.")
    return f"{text}{fraction}Z"


def instant_in_seconds(ms: int | None) -> str:
    """As `instant`, in whole seconds, as Atom's own elements have it."""
    return instant(None if ms is None else ms // 1000 * 1000)


def ticks(ms: int | None) -> str:
    """An instant (Unix ms) as a number of 100 ns since the year 1, which entity tags are made of."""
    return str(0 if ms is None else (ms + _MS_AT_1970) * _TICKS_PER_MS)
