"""Which peeked messages are meant: text, SQL expression, state and time.

Knows what can be asked of messages and evaluates it over many at a time, the cheapest first: a search looks at all
messages of a queue. Does not know where messages come from (`search`), and whether a form or a request asked. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from ...broker.admin.overview import Seen
from ...broker.errors import BrokerError
from ...broker.message import peeked
from ...broker.message.message import Message, parse_message
from ...broker.model.descriptions import SqlFilter
from ...broker.rules.compiled import Equality
from ...broker.rules.context import MessageContext
from ...broker.rules.errors import FilterError, FilterException
from ...broker.rules.filters import compile_filter
from ...broker.rules.names import SYSTEM_PROPERTIES, Section
from ...broker.rules.values import Value, normalise
from ..long_work import Pace
from .annotations import STATES, enqueued_at, state_of

LOCKED: Final = "locked"
STATES_ASKED: Final = (*STATES, LOCKED)
RUN_COUNT: Final = 40
RUN_BYTES_MAX: Final = 1 << 18
TEXT_CHARS_MAX: Final = 200
SQL_CHARS_MAX: Final = 1024
OF_THE_HEAD: Final = frozenset(
    {"ExpiresAtUtc", "ScheduledEnqueueTimeUtc"}
    | {name for name, known in SYSTEM_PROPERTIES.items() if known.section in (Section.HEADER, Section.ANNOTATIONS)}
)
"""System properties that are read from the header or the annotations."""
_ANNOTATIONS_OF_SENDERS: Final = (b"partition-key", b"scheduled-enqueue-time")
"""Parts of the names of all annotations that SQL expressions know, `x-opt-partition-key` for instance."""
_UNREAD: Final = Message(b"", 0, None, None, None, -1)
_IS_AS_SENT: Final = re.compile(r"\A(?!(?:True|False)\Z)(?=..)(?=.*[^-0-9a-f])[^\ud800-\udfff]*\Z", re.DOTALL)
"""Texts that only strings and symbols have as their value. Numbers, GUIDs, binaries and booleans in the properties
section have one, too, and a character is not encoded as text."""
Sieve = Callable[[Seen], bool]
"""Whether a message is meant."""


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
    """Messages that pass all sieves; without sieves every message is meant."""

    sieves: tuple[Sieve, ...] = ()

    async def chosen(self, messages: Sequence[Seen], pace: Pace) -> Sequence[Seen]:
        """Those of the messages that are meant, in their order; the event loop goes on between two runs of them."""
        if not self.sieves:
            return messages
        found: list[Seen] = []
        for run in runs(messages):
            for sieve in self.sieves:
                run = [seen for seen in run if sieve(seen)]
            found += run
            await pace.step()
        return found


def runs(messages: Sequence[Seen]) -> Iterator[Sequence[Seen]]:
    """The messages in runs that take about half a piece of time to look at: of so many messages and bytes at most."""
    start = run_bytes = 0
    for at, seen in enumerate(messages):
        if at - start == RUN_COUNT or run_bytes + len(seen.encoded) > RUN_BYTES_MAX:
            yield messages[start:at]
            start, run_bytes = at, 0
        run_bytes += len(seen.encoded)
    yield messages[start:]


def filter_of(criteria: Criteria) -> MessageFilter:
    """The filter that asks for all criteria. FilterRefusal."""
    sieves: list[Sieve] = []
    if criteria.state:
        sieves.append(_has_state(criteria.state))
    after, before = criteria.after, criteria.before
    if after is not None:
        sieves.append(lambda seen: enqueued_at(seen.encoded) >= after)
    if before is not None:
        sieves.append(lambda seen: enqueued_at(seen.encoded) < before)
    if criteria.text:
        _check_length("text", "Text", criteria.text, TEXT_CHARS_MAX)
        sieves.append(_has_text(criteria.text))
    if criteria.where:
        _check_length("where", "SQL expression", criteria.where, SQL_CHARS_MAX)
        sieves += _satisfies(criteria.where)
    return MessageFilter(tuple(sieves))


def _check_length(field: str, label: str, text: str, chars_max: int) -> None:
    if len(text) > chars_max:
        raise FilterRefusal(field, f"{label}: {len(text)} characters; at most {chars_max} are allowed.")


def _has_text(text: str) -> Sieve:
    """Text anywhere in the message: body, names and values of properties. ASCII letters match in both cases."""
    wanted = text.encode(errors="replace").lower()
    return lambda seen: wanted in seen.encoded.lower()


def _has_state(state: str) -> Sieve:
    if state == LOCKED:
        return lambda seen: seen.locked_until_at is not None
    return lambda seen: state_of(seen.encoded) == state


def _satisfies(expression: str) -> list[Sieve]:
    """A SQL expression as in a rule; a message on which it fails is not meant."""
    try:
        compiled = compile_filter(SqlFilter(expression))
    except FilterError as error:
        raise FilterRefusal("where", error.description) from None

    reads_head = compiled.system_names & OF_THE_HEAD
    parse = _with_head if reads_head else partial(Message.without_annotations, reads_header=False)
    reads_time = "enqueuedtimeutc" in expression.lower()

    def satisfies(seen: Seen) -> bool:
        try:
            at = enqueued_at(seen.encoded) or None if reads_time else None
            return compiled(_Searched(seen, parse, at)) is True
        except (BrokerError, FilterException):
            return False

    needed = _texts_needed(compiled.equalities)
    # Looking for bytes that the expression needs takes a tenth of the time of decoding.
    return [*([lambda seen: all(text in seen.encoded for text in needed)] if needed else []), satisfies]


class _Searched(MessageContext):
    """A message of which an expression reads what it asks for: few do for more than one or two properties."""

    __slots__ = ("_encoded", "_parse")

    def __init__(self, seen: Seen, parse: Callable[[bytes], Message], at: int | None) -> None:
        super().__init__(_UNREAD, sequence_number=seen.sequence_number, enqueued_at=at)
        self._encoded = seen.encoded
        self._parse = parse

    def system(self, name: str) -> Value:
        if self.message is _UNREAD:
            self.message = self._parse(self._encoded)
        return super().system(name)

    def folded(self) -> Mapping[str, Value]:
        return _Folded(self._encoded)


class _Folded(Mapping[str, Value]):
    """The application properties of a message by lower-case name, each read as it is asked for."""

    __slots__ = ("_encoded",)

    def __init__(self, encoded: bytes) -> None:
        self._encoded = encoded

    def _find(self, name: str) -> tuple[bool, Value]:
        is_there, value = peeked.application_property(self._encoded, name, is_folded=True)
        return is_there, value if type(value) is str else normalise(value)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._find(name)[0]

    def __getitem__(self, name: str) -> Value:
        is_there, value = self._find(name)
        if not is_there:
            raise KeyError(name)
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(each.lower() for each in parse_message(self._encoded).application_properties()))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _with_head(encoded: bytes) -> Message:
    """A message with all that an expression may ask of it; its annotations are read if a sender gave one of these."""
    if any(name in encoded for name in _ANNOTATIONS_OF_SENDERS):
        return parse_message(encoded)
    return Message.without_annotations(encoded, reads_header=True)


def _texts_needed(equalities: Sequence[Equality]) -> list[bytes]:
    """Bytes that every message has which an expression is TRUE for."""
    keys = [each.key for each in equalities]
    return [key.encode() for key in keys if isinstance(key, str) and _IS_AS_SENT.search(key)]
