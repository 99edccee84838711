"""A value of a Config.json together with its JSON path and line: typed reading, with errors that say where.

Knows JSON types, the spellings of durations and names, and the one-line form of an error. Does not know the schema.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final, NoReturn, TypeVar

from ..broker.model.descriptions import (
    TEXT_TYPE_NAMES,
    EntityStatus,
    JmsSubscription,
    PropertyValue,
    TypedText,
    entity_key,
)
from ..broker.model.profiles import KIB
from ..broker.model.properties import PROPERTIES
from ..codec.durations import parse_duration, parse_limit
from .json_text import JsonNode

_T = TypeVar("_T")

SUGGESTIONS_MAX = 20
"""Errors that name what may be meant."""
EXACT_MAX = 2**53
"""A real number below it names one whole number."""
COMPARED_MAX = 1_000
"""Names that a misspelt one is compared with: 20 ms."""


OTHER_NAMES: Final[Mapping[str, str]] = {
    **{other: row.name for row in PROPERTIES for other in row.others},
    "subject": "Label",
    "loggingconfig": "Logging",
    "expression": "SqlExpression",
    "applicationproperties": "Properties",
    "userproperties": "Properties",
    "filters": "Rules",
}
"""What other interfaces (the SDKs, the emulator of Event Hubs, portal, azurerm) call a property, in lower case."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A mistake in a file, or what is passed over: line and column (from 1; 0: the file as a whole), and why."""

    file: str
    line: int
    column: int
    text: str

    def __str__(self) -> str:
        """One line, as errors have it."""
        return f"{self.file}:{self.line}: {self.text}" if self.line else f"{self.file}: {self.text}"

    @property
    def with_column(self) -> str:
        """One line with the column, as editors understand it."""
        return f"{self.file}:{self.line}:{self.column}: {self.text}" if self.line else str(self)


class ConfigFileError(Exception):
    """The file cannot be used; the text says where and why the first problem is, in one line."""

    def __init__(self, *problems: Problem, warnings: Sequence[Problem] = ()) -> None:
        super().__init__(str(problems[0]))
        self.problems = problems
        self.warnings = tuple(warnings)


@dataclass(frozen=True, slots=True)
class Findings:
    """What the reading of a file has found so far."""

    errors: list[Problem] = field(default_factory=list[Problem])
    warnings: list[Problem] = field(default_factory=list[Problem])


@dataclass(frozen=True, slots=True, eq=False)
class Cursor:
    """A JSON value with its path in the file; readers fail with ConfigFileError if the value is not of their type.

    All cursors of a file share its `findings`.
    """

    node: JsonNode
    path: str
    file: str
    findings: Findings = field(default_factory=Findings)

    def child(self, node: JsonNode, path: str) -> Cursor:
        """The cursor of a value inside this one."""
        return Cursor(node, f"{self.path}{path}", self.file, self.findings)

    def fail(self, message: str) -> NoReturn:
        """Note an error (file, place, path, then the message) and raise ConfigFileError: the value can't be read."""
        self.note(message)
        raise ConfigFileError(self.findings.errors[-1])

    def note(self, message: str) -> None:
        """Note an error, and go on."""
        self.findings.errors.append(self._problem(message))

    def warn(self, message: str) -> None:
        """Note what is passed over."""
        self.findings.warnings.append(self._problem(message))

    def warn_instead(self) -> None:
        """Make the last error a warning: what it is about has no effect."""
        error = self.findings.errors.pop()
        self.findings.warnings.append(replace(error, text=f"{error.text}: it is passed over"))

    def _problem(self, message: str) -> Problem:
        return Problem(self.file, self.node.line, self.node.column, f"{self.path} {message}")

    def hint(self, written: str, known: Iterable[str]) -> str:
        """ "; did you mean ...?" with the known name closest to `written`, or nothing; only for the first problems."""
        found = self.findings
        return suggestion(written, known) if len(found.errors) + len(found.warnings) < SUGGESTIONS_MAX else ""

    def mistyped(self, expected: str) -> NoReturn:
        """Fail because the value is not of the `expected` type."""
        value = self.node.value
        self.fail(f"is {json_of(value)}; it must be {expected}")

    def members(
        self, known: Collection[str], required: Iterable[str] = (), *, inner: Collection[str] = ()
    ) -> dict[str, Cursor]:
        """The members of an object under their proper names; null and {} count as absent.

        Unknown names are warnings: Microsoft's emulator passes them over. Where one may be meant for a required name
        that is missing, it is the error. `inner`: names of the member `Properties`, for those beside it by mistake.
        """
        members = self.node.value
        if not isinstance(members, dict):
            self.mistyped("an object")
        proper = {name.lower(): name for name in known}
        deeper = {name.lower(): name for name in inner}
        found: dict[str, Cursor] = {}
        unknown: list[tuple[Cursor, str]] = []
        seen: set[str] = set()
        for written, node in members.items():
            child = self.child(node, f".{written}")
            name = proper.get(written.lower())
            if name is None:
                inside = deeper.get(written.lower())
                hint = f"; did you mean Properties.{inside}?" if inside else self.hint(written, known)
                unknown.append((child, hint))
            elif name in seen:
                child.note("is given twice")
            else:
                seen.add(name)
                if node.value is not None and node.value != {}:
                    found[name] = child
        missing = [name for name in required if name not in found]
        meant = {f"; did you mean {name}?" for name in missing}
        for child, hint in unknown:
            if hint in meant:
                child.note(f"is not a known property{hint}")
            else:
                child.warn(f"is not a known property: it is passed over{hint}")
        if any(hint in meant for _, hint in unknown):
            raise ConfigFileError(self.findings.errors[-1])
        if missing:
            self.fail(f"has no {missing[0]}; it is required")
        return found

    def entries(self) -> dict[str, Cursor]:
        """The members of an object with names chosen by the user."""
        members = self.node.value
        if not isinstance(members, dict):
            self.mistyped("an object")
        return {name: self.child(node, f".{name}") for name, node in members.items()}

    def items(self) -> list[Cursor]:
        items = self.node.value
        if not isinstance(items, list):
            self.mistyped("an array")
        return [self.child(node, f"[{index}]") for index, node in enumerate(items)]

    def text(self) -> str:
        value = self.node.value
        if not isinstance(value, str):
            self.mistyped("a text")
        return value

    def optional_text(self) -> str | None:
        """A text, with "" as None: Microsoft's samples write what is not set that way."""
        return self.text() or None

    def boolean(self) -> bool:
        value = self.node.value
        if not isinstance(value, bool):
            self.mistyped("true or false")
        return value

    def integer(self) -> int:
        value = self.node.value
        if isinstance(value, float) and value.is_integer() and abs(value) < EXACT_MAX:
            return int(value)  # 3.0 is whole in JSON Schema
        if isinstance(value, bool) or not isinstance(value, int):
            self.mistyped("a whole number")
        return value

    def kilobytes(self) -> int:
        """A number of KiB, in bytes."""
        return self.integer() * KIB

    def duration(self) -> int:
        """An ISO 8601 duration, in ms."""
        return self._parsed(parse_duration)

    def limit(self) -> int | None:
        """An ISO 8601 duration in ms; None for the one that means "never"."""
        return self._parsed(parse_limit)

    def choice(self, *allowed: str) -> str:
        """One of some texts, in any case; returned as it is in `allowed`."""
        text = self.text()
        chosen = {each.lower(): each for each in allowed}.get(text.lower())
        if chosen is None:
            self.fail(f"is {json_of(text)}; allowed is {', '.join(allowed)}{self.hint(text, allowed)}")
        return chosen

    def status(self) -> EntityStatus:
        return EntityStatus(self.choice(*EntityStatus))

    def jms_subscription(self) -> JmsSubscription:
        """What marks a subscription that JMS has made; a start keeps only durable ones."""
        parts = self.members(("ClientId", "IsDurable", "IsShared"))
        if "IsDurable" in parts and not parts["IsDurable"].boolean():
            parts["IsDurable"].fail("is false; allowed is true: other subscriptions end with their consumers")
        client_id = parts["ClientId"].text() if "ClientId" in parts else ""
        is_shared = parts["IsShared"].boolean() if "IsShared" in parts else True
        return JmsSubscription(client_id, is_durable=True, is_shared=is_shared)

    def property_value(self) -> PropertyValue:
        """The value of an application property: string, number, true, false, null, or an object with Type and Value."""
        value = self.node.value
        if isinstance(value, dict) and {name.lower() for name in value} == {"type", "value"}:
            parts = self.members(("Type", "Value"), required=("Type", "Value"))
            return TypedText(parts["Type"].choice(*TEXT_TYPE_NAMES), parts["Value"].text())
        if isinstance(value, dict | list):
            self.mistyped("a text, a number, true or false")
        return value

    def _parsed(self, parse: Callable[[str], _T]) -> _T:
        value = self.node.value
        if not isinstance(value, str):
            self.mistyped('an ISO 8601 duration such as "PT1M"')
        try:
            parsed = parse(value)
        except ValueError as error:
            self.fail(str(error))
        return parsed


def json_of(value: object) -> str:
    """A JSON value as the file spells it, cut to a length that an error message can bear."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "an array"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:77]}..."


def suggestion(written: str, known: Iterable[str]) -> str:
    """ "; did you mean ...?" with the known name closest to `written`, or nothing."""
    proper = {name.lower(): name for name in islice(known, COMPARED_MAX)}
    own = written.lower()
    other = OTHER_NAMES.get(own, "").lower()
    close = [other] if other in proper else difflib.get_close_matches(own, proper, n=1)
    return f"; did you mean {proper[close[0]]}?" if close else ""


Members = Mapping[str, Cursor]


def items_of(members: Members, name: str) -> list[Cursor]:
    """The items of the array `name`; none if the object has no such member."""
    return members[name].items() if name in members else []


def refuse_duplicates(cursors: Iterable[Cursor], names: Iterable[str], what: str) -> None:
    """Note an error at the second object of a name; `names` belong to `cursors`, `what` is the kind of object."""
    seen: dict[str, Cursor] = {}
    for cursor, name in zip(cursors, names, strict=True):
        first = seen.setdefault(entity_key(name), cursor)
        if first is not cursor:
            cursor.note(
                f"is named {json_of(name)}; line {first.node.line} has another {what} of that name "
                "(upper and lower case are the same)"
            )
