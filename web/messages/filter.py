"""Which peeked messages are meant: text, SQL expression, state and time.

Knows what can be asked of a message and evaluates it, the cheapest first. Does not know where messages come from
(`search`), and whether a form or a request asked. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ...broker.errors import BrokerError
from ...broker.message.message import Message, parse_message
from ...broker.model.descriptions import SqlFilter
from ...broker.rules.context import MessageContext
from ...broker.rules.errors import FilterError, FilterException
from ...broker.rules.filters import compile_filter
from ...broker.rules.names import SYSTEM_PROPERTIES, Section
from .candidate import STATES, Candidate

LOCKED: Final = "locked"
STATES_ASKED: Final = (*STATES, LOCKED)
TEXT_CHARS_MAX: Final = 200
SQL_CHARS_MAX: Final = 1024
OF_THE_HEAD: Final = re.compile(
    "|".join(name for name, known in SYSTEM_PROPERTIES.items() if known.section is not Section.PROPERTIES),
    re.IGNORECASE,
)
"""System properties that are read from the header or the annotations, or known only to the broker."""
Test = Callable[[Candidate], bool]


class FilterRefusal(Exception):  # noqa: N818 - the answer to a request
    """A filter that can't be used; `field` is the one of `Criteria` that is wrong."""

    def __init__(self, field: str, text: str) -> None:
        super().__init__(text)
        self.field = field
        self.text = text


@dataclass(frozen=True, slots=True)
class Criteria:
    """What is asked of a message; empty texts and None ask nothing. Enqueued from `after` on and before `before`
    (Unix ms); `state` is one of `STATES_ASKED`; `where` is a SQL expression as in a rule."""

    text: str = ""
    where: str = ""
    state: str = ""
    after: int | None = None
    before: int | None = None


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """All of these tests must hold; without tests every message is meant."""

    tests: tuple[Test, ...] = ()

    def matches(self, candidate: Candidate) -> bool:
        """Whether a message is meant."""
        for test in self.tests:  # noqa: SIM110 - no generator: this runs for each message of a queue
            if not test(candidate):
                return False
        return True


def filter_of(criteria: Criteria) -> MessageFilter:
    """The filter that asks for all criteria. FilterRefusal."""
    tests: list[Test] = []
    if criteria.text:
        _check_length("text", "Text", criteria.text, TEXT_CHARS_MAX)
        tests.append(_has_text(criteria.text))
    if criteria.state:
        tests.append(_has_state(criteria.state))
    after, before = criteria.after, criteria.before
    if after is not None:
        tests.append(lambda candidate: candidate.enqueued_at >= after)
    if before is not None:
        tests.append(lambda candidate: candidate.enqueued_at < before)
    if criteria.where:
        _check_length("where", "SQL expression", criteria.where, SQL_CHARS_MAX)
        tests.append(_satisfies(criteria.where))
    return MessageFilter(tuple(tests))


def _check_length(field: str, label: str, text: str, chars_max: int) -> None:
    if len(text) > chars_max:
        raise FilterRefusal(field, f"{label}: {len(text)} characters; at most {chars_max} are allowed.")


def _has_text(text: str) -> Test:
    """Text anywhere in the message: body, names and values of properties. ASCII letters match in both cases."""
    wanted = text.encode(errors="replace").lower()
    return lambda candidate: wanted in candidate.seen.encoded.lower()


def _has_state(state: str) -> Test:
    if state == LOCKED:
        return lambda candidate: candidate.seen.locked_until_at is not None
    return lambda candidate: candidate.state == state


def _satisfies(expression: str) -> Test:
    """A SQL expression as in a rule; a message on which it fails is not meant."""
    try:
        compiled = compile_filter(SqlFilter(expression))
    except FilterError as error:
        raise FilterRefusal("where", error.description) from None

    parse = parse_message if OF_THE_HEAD.search(expression) else Message.without_head
    reads_time = "enqueuedtimeutc" in expression.lower()

    def test(candidate: Candidate) -> bool:
        try:
            message = parse(candidate.seen.encoded)
            enqueued_at = candidate.enqueued_at or None if reads_time else None
            number = candidate.seen.sequence_number
            return compiled(MessageContext(message, sequence_number=number, enqueued_at=enqueued_at)) is True
        except (BrokerError, FilterException):
            return False

    return test
