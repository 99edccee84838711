"""Which peeked messages a search shows: text, SQL expression, state and time.

Knows the fields of the search form and evaluates them on one message, the cheapest first. Does not know where messages
come from (`search`). Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from ....broker.admin.overview import Seen
from ....broker.errors import BrokerError
from ....broker.message.message import parse_message
from ....broker.model.descriptions import SqlFilter
from ....broker.rules.context import MessageContext
from ....broker.rules.errors import FilterError, FilterException
from ....broker.rules.filters import compile_filter
from ....codec.decode import decode
from ....codec.errors import DecodeError
from ....codec.types import Described
from ...control.message_json import STATES
from ..forms import Form, FormError, parse_instant, quoted

LOCKED: Final = "locked"
TEXT_CHARS_MAX: Final = 200
SQL_CHARS_MAX: Final = 1024
_ANNOTATIONS: Final = 0x72
_STATE, _UNTIL = "x-opt-message-state", "x-opt-scheduled-enqueue-time"
_STATE_BYTES, _ENQUEUED_BYTES = _STATE.encode(), b"x-opt-enqueued-time"
_TIMESTAMP, _SMALL_INT = b"\x83", b"\x54"  # constructors


class Candidate:
    """A peeked message with what a search reads of it, decoded at most once."""

    def __init__(self, seen: Seen) -> None:
        self.seen = seen

    @cached_property
    def annotations(self) -> dict[object, object]:
        """The message annotations; empty if the sections before them are malformed."""
        try:
            position = 0
            while position < len(self.seen.encoded):
                section, position = decode(self.seen.encoded, position)
                if isinstance(section, Described) and section.descriptor == _ANNOTATIONS:
                    return section.value if isinstance(section.value, dict) else {}
        except DecodeError:
            pass
        return {}

    def instant(self, name: str) -> int | None:
        """An annotation that is an instant (Unix ms)."""
        value = self.annotations.get(name)
        return int(value) if isinstance(value, int) else None

    @property
    def enqueued_at(self) -> int:
        """The enqueued time (Unix ms), for a scheduled message the one that it will get; 0 if unknown."""
        tail = _after(_ENQUEUED_BYTES, self.seen.encoded, 9)
        if tail[:1] == _TIMESTAMP:
            return int.from_bytes(tail[1:], "big", signed=True)
        return self.instant(_UNTIL) or 0

    @property
    def state(self) -> str:
        """One of `STATES`."""
        tail = _after(_STATE_BYTES, self.seen.encoded, 2)
        value = tail[1] if tail[:1] == _SMALL_INT else self.annotations.get(_STATE)
        return STATES[value] if isinstance(value, int) and 0 <= value < len(STATES) else STATES[0]


def _after(name: bytes, encoded: bytes, size: int) -> bytes:
    """The bytes behind an annotation's name: the broker writes them first. Decoding takes ten times as long."""
    at = encoded.find(name)
    return b"" if at < 0 else encoded[at + len(name) : at + len(name) + size]


Test = Callable[[Candidate], bool]


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """All of these tests must hold; without tests every message is shown."""

    tests: tuple[Test, ...] = ()

    def matches(self, candidate: Candidate) -> bool:
        """Whether a message is shown."""
        return all(test(candidate) for test in self.tests)


def read_filter(form: Form) -> MessageFilter:
    """The filter of a search form: `text`, `where`, `state`, `after`, `before`. FormError with the field."""
    tests: list[Test] = []
    text = _bounded(form, "text", "Text", TEXT_CHARS_MAX)
    if text:
        tests.append(_has_text(text))
    if form.text("state"):
        tests.append(_has_state(form.choice("state", "State", (*STATES, LOCKED))))
    after, before = (_instant(form, name, label) for name, label in (("after", "After"), ("before", "Before")))
    if after is not None:
        tests.append(lambda candidate: candidate.enqueued_at >= after)
    if before is not None:
        tests.append(lambda candidate: candidate.enqueued_at < before)
    where = _bounded(form, "where", "SQL expression", SQL_CHARS_MAX)
    if where:
        tests.append(_satisfies(where))
    return MessageFilter(tuple(tests))


def _bounded(form: Form, name: str, label: str, chars_max: int) -> str:
    text = form.text(name)
    if len(text) > chars_max:
        raise FormError(f"{label}: {len(text)} characters; at most {chars_max} are allowed.", name)
    return text


def _has_text(text: str) -> Test:
    """Text anywhere in the message: body, names and values of properties. ASCII letters match in both cases."""
    wanted = text.encode(errors="replace").lower()
    return lambda candidate: wanted in candidate.seen.encoded.lower()


def _has_state(state: str) -> Test:
    if state == LOCKED:
        return lambda candidate: candidate.seen.locked_until_at is not None
    return lambda candidate: candidate.state == state


def _instant(form: Form, name: str, label: str) -> int | None:
    text = form.text(name)
    try:
        return parse_instant(text) if text else None
    except (ValueError, OverflowError):
        raise FormError(f"{label}: {quoted(text)} is not an instant such as 2030-01-01T12:00.", name) from None


def _satisfies(expression: str) -> Test:
    """A SQL expression as in a rule; a message on which it fails is not shown."""
    try:
        compiled = compile_filter(SqlFilter(expression))
    except FilterError as error:
        raise FormError(error.description, "where") from None

    def test(candidate: Candidate) -> bool:
        try:
            message = parse_message(candidate.seen.encoded)
            number, enqueued_at = candidate.seen.sequence_number, candidate.enqueued_at or None
            return compiled(MessageContext(message, sequence_number=number, enqueued_at=enqueued_at)) is True
        except (BrokerError, FilterException):
            return False

    return test
