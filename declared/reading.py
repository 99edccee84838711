"""Reads the properties of a resource as ARM's JSON has them: names in any case, numbers and booleans also as text.

Knows how each kind of value is spelled; which names there are is the table of `broker/model/properties.py`. Does not
know which values are allowed. All mistakes of a resource are found at once, each with its value and what it must be.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from ..broker.address import strip_authority
from ..broker.keys import Right
from ..broker.model.descriptions import (
    TEXT_TYPE_NAMES,
    CorrelationFilter,
    EntityDescription,
    EntityStatus,
    FalseFilter,
    Filter,
    JmsSubscription,
    PropertyValue,
    RuleDescription,
    SqlFilter,
    TrueFilter,
    TypedText,
)
from ..broker.model.profiles import KIB
from ..broker.model.properties import CORRELATION_NAMES, PROPERTIES_OF, Value
from ..codec.durations import TICKS_PER_MS, UNLIMITED_FROM_MS, clock_ticks, iso_ticks

NUMBER_DIGITS_MAX: Final = 18
_SHOWN_CHARS: Final = 80
_CONSTANT_FILTERS: Final[Mapping[str, type[TrueFilter | FalseFilter]]] = {"1=1": TrueFilter, "1=0": FalseFilter}
"""What ARM writes for a filter that matches every message or none: it has no types for them."""
_FILTER_PARTS: Final = ("sqlFilter", "correlationFilter")
_WITHOUT_EFFECT: Final = frozenset({"compatibilitylevel", "requirespreprocessing"})
"""Parts of filters and actions that only the service reads."""
READ_ONLY: Final = frozenset(
    {
        *("accessedat", "countdetails", "createdat", "messagecount", "provisioningstate", "sizeinbytes"),
        *("subscriptioncount", "updatedat"),
    }
)
"""What answers of the service have, and exports repeat; a request that has them does not set anything."""


class _Wrong(Exception):  # noqa: N818 - it says what a value must be, and never leaves this file
    """What the value must be."""


def camel(name: str) -> str:
    """The name in ARM's JSON of what the service calls `name`."""
    return name[0].lower() + name[1:]


@dataclass(slots=True)
class Reading:
    """The members of an object by their names in lower case; `problems` and `unread` grow while they are read.

    `unread` names members that nothing here knows. `prefix` is the path of an object within the properties.
    """

    members: dict[str, tuple[str, object]]
    prefix: str = ""
    problems: list[str] = field(default_factory=list[str])
    unread: list[str] = field(default_factory=list[str])

    @classmethod
    def of(cls, properties: Mapping[str, object]) -> Reading:
        """The reading of a resource's properties; null is absent."""
        return cls({name.lower(): (name, value) for name, value in properties.items() if value is not None})

    def value(self, name: str, read: Callable[[object], object]) -> object | None:
        """What `read` makes of a member; None if it is absent, or wrong, which is noted."""
        if name.lower() not in self.members:
            return None
        _, given = self.members[name.lower()]
        try:
            return read(given)
        except _Wrong as wrong:
            self.problems.append(f"{self.prefix}{name} is {shown(given)}; it must be {wrong}")
            return None

    def has(self, name: str) -> bool:
        return name.lower() in self.members

    def part(self, name: str) -> Reading | None:
        """The reading of an object within; None for one that is absent, empty or none, which is noted."""
        found = self.value(name, _require_object)
        if not isinstance(found, dict) or not found:
            return None
        members = {str(each).lower(): (str(each), value) for each, value in found.items() if value is not None}
        return Reading(members, f"{self.prefix}{name}.", self.problems, self.unread)

    def texts(self, name: str) -> str | None:
        found = self.value(name, _text)
        return found if isinstance(found, str) and found else None

    def flag(self, name: str, *, default: bool) -> bool:
        found = self.value(name, _boolean)
        return found if isinstance(found, bool) else default

    def leave(self, known: frozenset[str]) -> None:
        """Note the members beside `known` (in lower case)."""
        self.unread += [f"{self.prefix}{name}" for low, (name, _) in self.members.items() if low not in known]


def shown(value: object) -> str:
    """A value as JSON, cut to what a message can bear."""
    text = json.dumps(value, ensure_ascii=True, default=str)
    return text if len(text) <= _SHOWN_CHARS else f"{text[: _SHOWN_CHARS - 1]}…"


# ---------------------------------------------------------------- values


def _require_object(value: object) -> object:
    if not isinstance(value, dict):
        raise _Wrong("an object")
    return value


def _boolean(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    raise _Wrong("true or false")


def _count(value: object) -> int:
    if isinstance(value, float) and value.is_integer() and abs(value) < 10**NUMBER_DIGITS_MAX:
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str):
        digits = value.strip()
        if digits.isascii() and digits.isdecimal() and len(digits) <= NUMBER_DIGITS_MAX:
            return int(digits)
    raise _Wrong("a whole number")


def _duration(value: object) -> int:
    """Milliseconds of ISO 8601, or of a TimeSpan as .NET writes it."""
    if isinstance(value, str):
        ticks = iso_ticks(value.strip())
        ticks = clock_ticks(value) if ticks is None else ticks
        if ticks is not None:
            return ticks // TICKS_PER_MS
    raise _Wrong('an ISO 8601 duration such as "PT1M" or "P14D"')


def _limit(value: object) -> int | None:
    ms = _duration(value)
    return None if ms >= UNLIMITED_FROM_MS else ms


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    raise _Wrong("a text")


def _target(value: object) -> str | None:
    """The path of a target: an address of the service has the host of the namespace that this one stands for."""
    return strip_authority(_text(value)) or None


def _status(value: object) -> EntityStatus:
    found = {each.lower(): each for each in EntityStatus}.get(value.lower()) if isinstance(value, str) else None
    if found is None:
        raise _Wrong(f"one of {', '.join(EntityStatus)}")
    return found


_READ: Final[Mapping[Value, Callable[[object], object]]] = {
    Value.BOOLEAN: _boolean,
    Value.COUNT: _count,
    Value.BYTES: lambda value: _count(value) * KIB,
    Value.DURATION: _duration,
    Value.LIMIT: _limit,
    Value.TEXT: lambda value: _text(value) or None,
    Value.TARGET: _target,
    Value.STATUS: _status,
}
assert set(_READ) == set(Value), "a kind of value has no spelling here"


# ---------------------------------------------------------------- resources


def fields_in(reading: Reading, kind: type[EntityDescription]) -> dict[str, object]:
    """The values that properties set, by the fields of a description of this kind."""
    found: dict[str, object] = {}
    known = set(READ_ONLY)
    for row in PROPERTIES_OF[kind]:
        name = camel(row.name)
        known.add(name.lower())
        if reading.has(name):
            found[row.field] = reading.value(name, _READ[row.value])
    reading.leave(frozenset(known | {"isclientaffine", "clientaffineproperties"}))
    return found


def jms_in(reading: Reading) -> JmsSubscription | None:
    """What marks a subscription of JMS; only consumers make those that are not durable."""
    parts = reading.part("clientAffineProperties")
    if not reading.flag("isClientAffine", default=reading.has("clientAffineProperties")):
        return None
    if parts is None:
        return JmsSubscription("", is_durable=True, is_shared=True)
    return JmsSubscription(
        parts.texts("clientId") or "", is_durable=True, is_shared=parts.flag("isShared", default=True)
    )


def rule_in(reading: Reading, name: str) -> RuleDescription:
    """The rule that properties describe; without a filter it matches every message."""
    action = reading.part("action")
    text: str | None = None
    parameters: dict[str, PropertyValue] = {}
    if action is not None:
        text = action.texts("sqlExpression")
        parameters = _properties(action, "parameters") if text else {}
        action.leave(_WITHOUT_EFFECT | {"sqlexpression", "parameters"})
    found = RuleDescription(name, _filter_in(reading), text, action_parameters=parameters)
    reading.leave(READ_ONLY | {"action", "filtertype", *map(str.lower, _FILTER_PARTS)})
    return found


def _filter_in(reading: Reading) -> Filter:
    """The filter of the type that is named, else the one that is there."""
    named = reading.value("filterType", _filter_type)
    correlation, sql = reading.part("correlationFilter"), reading.part("sqlFilter")
    if named == "correlationfilter" or (named is None and correlation is not None and sql is None):
        return CorrelationFilter() if correlation is None else _correlation_in(correlation)
    if sql is None:
        return TrueFilter()
    sql.leave(_WITHOUT_EFFECT | {"sqlexpression", "parameters"})
    expression = sql.texts("sqlExpression")
    if expression is None:
        return TrueFilter()
    constant = _CONSTANT_FILTERS.get(expression.replace(" ", ""))
    return SqlFilter(expression, _properties(sql, "parameters")) if constant is None else constant()


def _filter_type(value: object) -> str:
    low = value.lower() if isinstance(value, str) else ""
    if low not in ("sqlfilter", "correlationfilter"):
        raise _Wrong("SqlFilter or CorrelationFilter")
    return low


def _correlation_in(reading: Reading) -> CorrelationFilter:
    texts = {field: reading.texts(camel(name)) for field, name in CORRELATION_NAMES.items()}
    reading.leave(_WITHOUT_EFFECT | {"properties", *(name.lower() for name in CORRELATION_NAMES.values())})
    return CorrelationFilter(**texts, properties=_properties(reading, "properties"))


def _properties(reading: Reading, name: str) -> dict[str, PropertyValue]:
    """The values of an object whose names users choose: their case counts."""
    given = reading.value(name, _require_object)
    found: dict[str, PropertyValue] = {}
    for each, value in given.items() if isinstance(given, dict) else ():
        match value:
            case None | bool() | int() | float() | str():
                found[str(each)] = value
            case {"type": str(kind), "value": str(text)} if kind in TEXT_TYPE_NAMES:
                found[str(each)] = TypedText(kind, text)
            case _:
                what = f"{reading.prefix}{name}.{each}"
                reading.problems.append(f"{what} is {shown(value)}; it must be a text, a number, true or false")
    return found


def rights_in(reading: Reading) -> tuple[Right, ...]:
    """The rights of an authorization rule."""
    given = reading.value("rights", _rights)
    if not reading.has("rights"):
        reading.problems.append(f"rights is missing; it must be a list of {', '.join(Right)}")
    reading.leave(READ_ONLY | {"rights", "primarykey", "secondarykey"})
    return tuple(dict.fromkeys(given)) if isinstance(given, tuple) else ()


def _rights(value: object) -> tuple[Right, ...]:
    known = {each.lower(): each for each in Right}
    wrong = _Wrong(f"a list of {', '.join(Right)}")
    if not isinstance(value, list | tuple):
        raise wrong
    found = [known.get(each.lower()) if isinstance(each, str) else None for each in value]
    if None in found:
        raise wrong
    return tuple(each for each in found if each is not None)
