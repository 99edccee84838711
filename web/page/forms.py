"""Forms: texts by name, read into values; an error names the field, its value and what is allowed.

Knows spellings that people write: `90s`, `5m`, `PT1M`, `2030-01-01T12:00Z`. Does not know what a value is for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from aiohttp import web

from ...broker.errors import BrokerError
from ...codec.durations import UNLIMITED_FROM_MS, parse_time
from ..errors import ANSWERS

URLENCODED: Final = "application/x-www-form-urlencoded"
SHOWN_CHARS_MAX: Final = 60
_NEVER: Final = frozenset({"", "never", "none", "unlimited"})
SPAN_HELP: Final = "a duration such as 30s, 5m, 2h, 14d or PT1M"


class FormError(Exception):
    """An invalid value; `text` is the message, `field` the name of its field."""

    def __init__(self, text: str, field_name: str = "", status: int = 400) -> None:
        super().__init__(text)
        self.text = text
        self.field = field_name
        self.status = status


REFUSALS: Final = (FormError, BrokerError)
"""Errors that are answered with the same page and the error beside the form."""


@dataclass(frozen=True, slots=True)
class Failed:
    """A refused form: its name on the page, its values and the error; or only `values` to fill in."""

    form: str
    values: Mapping[str, Sequence[str]] = field(default_factory=dict[str, list[str]])
    error: str = ""
    field: str = ""
    status: int = 200


class Form:
    """The fields of one request."""

    def __init__(self, values: Mapping[str, Sequence[str]]) -> None:
        self.values = values

    def failed(self, name: str, error: FormError | BrokerError) -> Failed:
        """The form `name`, for rendering it again with the error."""
        if isinstance(error, BrokerError):
            return Failed(name, self.values, error.description, "", ANSWERS[error.condition].status)
        return Failed(name, self.values, error.text, error.field, error.status)

    def text(self, name: str) -> str:
        """A stripped text; "" if it is absent."""
        return self.raw(name).strip()

    def raw(self, name: str) -> str:
        """A text exactly as it came, with the line ends of a text area as line feeds."""
        values = self.values.get(name, ())
        return values[0].replace("\r\n", "\n") if values else ""

    def optional(self, name: str) -> str | None:
        """A text, None for an empty one."""
        return self.text(name) or None

    def all(self, name: str) -> Sequence[str]:
        return self.values.get(name, ())

    def checked(self, name: str) -> bool:
        return bool(self.values.get(name))

    def number(self, name: str, label: str, start: int, stop: int, default: int | None = None) -> int:
        """A whole number from `start` to `stop`. FormError."""
        text = self.text(name)
        if not text and default is not None:
            return default
        if not re.fullmatch(r"-?\d{1,19}", text, re.ASCII) or not start <= int(text) <= stop:
            raise FormError(f"{label}: {quoted(text)} is not a whole number from {start} to {stop}.", name)
        return int(text)

    def choice(self, name: str, label: str, choices: Sequence[str]) -> str:
        """One of some texts. FormError."""
        text = self.text(name)
        if text not in choices:
            raise FormError(f"{label}: {quoted(text)} is none of {', '.join(choices)}.", name)
        return text

    def span(self, name: str, label: str, default_ms: int | None = None) -> int | None:
        """A duration in milliseconds; None for "never", `default_ms` for an empty text. FormError."""
        text = self.text(name)
        if not text:
            return default_ms
        if text.lower() in _NEVER:
            return None
        try:
            return parse_span(text)
        except ValueError:
            raise FormError(f"{label}: {quoted(text)} is not {SPAN_HELP}.", name) from None

    def finite_span(self, name: str, label: str, start_ms: int, stop_ms: int, default_ms: int | None = None) -> int:
        """A duration in milliseconds within bounds. FormError."""
        ms = self.span(name, label, default_ms)
        if ms is None or not start_ms <= ms <= stop_ms:
            allowed = f"from {start_ms / 1000:g} s to {stop_ms / 86_400_000:g} days"
            raise FormError(f"{label}: {quoted(self.text(name))} is not {SPAN_HELP}, {allowed}.", name)
        return ms


async def read_form(request: web.Request) -> Form:
    """The form in a request. FormError if the body is not a form."""
    if request.content_type != URLENCODED:
        raise FormError(f"The body is {quoted(request.content_type)}; a form is {URLENCODED}.", status=415)
    try:
        posted = await request.post()
    except (LookupError, ValueError):
        raise FormError(f"The form can't be read as {quoted(request.charset or 'utf-8')}.") from None
    values: dict[str, list[str]] = {}
    for name, value in posted.items():
        if isinstance(value, str):
            values.setdefault(name, []).append(value)
    return Form(values)


def query_form(request: web.Request) -> Form:
    return Form({name: request.query.getall(name) for name in request.query})


def parse_span(text: str) -> int | None:
    """Milliseconds of `90s`, `1.5h`, `PT1M`, …; None for TimeSpan.MaxValue. ValueError."""
    ms = parse_time(text)
    return None if ms >= UNLIMITED_FROM_MS else ms


def parse_instant(text: str) -> int:
    """Unix milliseconds of an ISO 8601 instant; without a zone it is UTC. ValueError."""
    at = datetime.fromisoformat(text)
    return int((at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp() * 1000)


def quoted(text: str) -> str:
    """A text for an error message: quoted and cut."""
    return f"'{text}'" if len(text) <= SHOWN_CHARS_MAX else f"'{text[:SHOWN_CHARS_MAX]}…'"
