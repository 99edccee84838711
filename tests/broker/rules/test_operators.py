"""Every operator over every kind of value, as the tables of `operators` say; the page shows the same tables."""

from __future__ import annotations

import json
from typing import Any

import pytest

from docs.generate.operators import PAGE, page
from emubus.broker.errors import BrokerError
from emubus.broker.model.descriptions import (
    CorrelationFilter,
    Filter,
    PropertyValue,
    RuleDescription,
    SqlFilter,
    TypedText,
)
from emubus.broker.rules import MessageContext, RuleIndex, compile_filter, rule_from_amqp, rule_to_amqp
from emubus.broker.rules.sql.action import compile_action
from emubus.codec.encode import encode
from emubus.codec.types import Described
from emubus.story.verdicts import why_not

from .messages import message
from .operators import (
    ARITHMETIC,
    COMPARISONS,
    KEPT,
    KINDS,
    TEXTS,
    TRUTHS,
    UNARY,
    Kind,
    arithmetic,
    comparisons,
    expected,
)

COMPARED = comparisons()


def made(text: str, user: dict[Any, object]) -> dict[str, object]:
    """The application properties after an action."""
    copy = compile_action(text).apply(MessageContext(message(user)))
    return copy.application_properties()


def amqp_type(value: object) -> object:
    return value.descriptor if isinstance(value, Described) else type(value)


def typed(value: object) -> tuple[type, object]:
    return type(value), value


@pytest.mark.parametrize("operator", ARITHMETIC)
@pytest.mark.parametrize("left", KINDS.values(), ids=lambda kind: kind.name)
def test_arithmetic_gives_what_the_table_says(operator: str, left: Kind) -> None:
    table = arithmetic(operator)
    for right in KINDS.values():
        result = table[left.name, right.name].result
        found = made(f"SET r = a {operator} b", {"a": left.seven, "b": right.two})
        if result is None:
            assert "r" not in found, right.name
        else:
            assert typed(found["r"]) == typed(expected(operator, left, right, result)), right.name


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
def test_a_sign_gives_what_the_table_says(kind: Kind) -> None:
    minus, plus = UNARY.get(kind.name, (None, None))
    found = made("SET m = -a; SET p = +a", {"a": kind.seven})
    assert ("m" in found, "p" in found) == (minus is not None, plus is not None)
    if minus is not None and plus is not None:
        assert type(found["m"]) is type(KINDS[minus.rstrip("?")].seven)
        assert type(found["p"]) is type(KINDS[plus].seven)
        seen = MessageContext(message({**found, "a": kind.seven}))
        assert compile_filter(SqlFilter("m + a = a - a AND p = a"))(seen) is True


def related(left: Kind, right: Kind, relation: str) -> str:
    """How 7 or 2 of one kind is to that of another: a char is compared with a string by its text."""
    if (left.name == "char") == (right.name == "char") or not {left.name, right.name} & {*TEXTS}:
        return relation
    return "L" if left.name == "char" else "G"


@pytest.mark.parametrize("operator", COMPARISONS)
@pytest.mark.parametrize("left", KINDS.values(), ids=lambda kind: kind.name)
def test_a_comparison_says_what_the_table_says(operator: str, left: Kind) -> None:
    compiled = compile_filter(SqlFilter(f"a {operator} b"))
    for right in KINDS.values():
        which = COMPARED[left.name, right.name].result
        has = which == "all" or (which is not None and operator in ("=", "<>", "!="))
        for relation, first, second in (
            ("E", left.seven, right.seven),
            ("G", left.seven, right.two),
            ("L", left.two, right.seven),
        ):
            truth = (related(left, right, relation) in TRUTHS[operator]) if has else None
            assert compiled(MessageContext(message({"a": first, "b": second}))) is truth, (right.name, relation)


@pytest.mark.parametrize("left", KINDS.values(), ids=lambda kind: kind.name)
def test_in_compares_as_equality_does(left: Kind) -> None:
    compiled = compile_filter(SqlFilter("a IN (b)"))
    for right in KINDS.values():
        has = COMPARED[left.name, right.name].result is not None
        equal = related(left, right, "E") == "E"
        assert compiled(MessageContext(message({"a": left.seven, "b": right.seven}))) is (equal if has else None)
        assert compiled(MessageContext(message({"a": left.seven, "b": right.two}))) is (False if has else None)


@pytest.mark.parametrize("left", KINDS.values(), ids=lambda kind: kind.name)
def test_like_takes_texts_only(left: Kind) -> None:
    compiled = compile_filter(SqlFilter("a LIKE b"))
    texts = (*TEXTS, "char")
    for right in KINDS.values():
        has = left.name in texts and right.name in texts
        same = left.texts[0] == right.texts[0]
        assert compiled(MessageContext(message({"a": left.seven, "b": right.seven}))) is (same if has else None)


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
def test_only_null_is_null_and_all_that_is_there_exists(kind: Kind) -> None:
    seen = MessageContext(message({"a": kind.seven}))
    assert compile_filter(SqlFilter("a IS NULL"))(seen) is (kind.name == "null")
    assert compile_filter(SqlFilter("a IS NOT NULL"))(seen) is (kind.name != "null")
    assert compile_filter(SqlFilter("EXISTS(a) AND NOT EXISTS(b)"))(seen) is True
    assert compile_filter(SqlFilter("property('A') = a OR a IS NULL"))(seen) is (
        True if kind.name == "null" or COMPARED[kind.name, kind.name].result else None
    )


FILTER_VALUES: dict[str, PropertyValue] = {
    "string": "7",
    "int": 7,
    "long": TypedText("long", "7"),
    "double": 7.0,
    "bool": True,
    "decimal": TypedText("decimal", "7.0"),
    "DateTime": TypedText("dateTime", "1970-01-01T00:00:07"),
    "TimeSpan": TypedText("duration", "PT7S"),
    "Guid": TypedText("guid", str(KINDS["Guid"].seven)),
}


@pytest.mark.parametrize("name", FILTER_VALUES)
def test_a_correlation_filter_is_equality_with_and_without_the_index(name: str) -> None:
    """So is a parameter of SQL; the index must not lose a message that the filter takes."""
    filters: dict[str, Filter] = {
        "correlation": CorrelationFilter(properties={"A": FILTER_VALUES[name]}),
        "sql": SqlFilter("a = @v", {"@v": FILTER_VALUES[name]}),
    }
    for how, description in filters.items():
        index = RuleIndex()
        index.put_subscription("s", [RuleDescription("r", description)])
        for kind in KINDS.values():
            has = COMPARED[kind.name, name].result is not None and related(kind, KINDS[name], "E") == "E"
            for value, matches in ((kind.seven, has), (kind.two, False)):
                seen = MessageContext(message({"a": value}))
                assert (compile_filter(description)(seen) is True) is matches, (how, kind.name)
                assert bool(index.matches(seen)) is matches, (how, kind.name)


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
def test_a_correlation_filter_over_amqp_takes_the_same_value_of_every_kind(kind: Kind) -> None:
    """Also after it was stored, and made again from what `enumerate-rules` shows."""
    if COMPARED[kind.name, kind.name].result is None and kind.name != "null":
        with pytest.raises(BrokerError, match="cannot be compared"):
            rule_from_amqp("r", {"correlation-filter": {"properties": {"P": kind.seven}}})
        return
    made = rule_from_amqp("r", {"correlation-filter": {"label": "l", "properties": {"P": kind.seven}}})
    listed = rule_to_amqp(made).value
    assert isinstance(listed, list)
    shown = listed[0].value[-1]
    again = rule_from_amqp("r", {"correlation-filter": {"label": "l", "properties": shown}})
    encode(rule_to_amqp(made))
    for rule in (made, RuleDescription.from_json(json.loads(json.dumps(made.to_json()))), again):
        compiled = compile_filter(rule.filter)
        assert compiled(MessageContext(message({"p": kind.seven}, label="l"))) is True
        # null is not compared; a char is kept as its text
        assert (compiled(MessageContext(message({"p": kind.two}, label="l"))) is True) is (kind.name == "null")


@pytest.mark.parametrize("old", KINDS.values(), ids=lambda kind: kind.name)
def test_set_keeps_the_type_of_a_property_where_nothing_is_lost(old: Kind) -> None:
    kept = {(first, second) for olds, news in KEPT for first in olds for second in news}
    for new in KINDS.values():
        if new.name == "null":
            continue
        found = made("SET a = b", {"a": old.two, "b": new.seven})["a"]
        wanted = old if (old.name, new.name) in kept else new
        assert amqp_type(found) == amqp_type(wanted.seven), new.name


@pytest.mark.parametrize("left", KINDS.values(), ids=lambda kind: kind.name)
def test_the_story_says_why_a_condition_is_unknown(left: Kind) -> None:
    tables = {**{operator: arithmetic(operator) for operator in ARITHMETIC}, "<": COMPARED}
    for operator, table in tables.items():
        for right in KINDS.values():
            which = table[left.name, right.name].result
            if which is None or (operator == "<" and which == "= <>"):
                text = f"a {operator} b" + (" = 1" if operator != "<" else "")
                reason = why_not(SqlFilter(text), MessageContext(message({"a": left.seven, "b": right.two})))
                if "null" in (left.name, right.name):
                    assert "a is null" in reason or "b is null" in reason, (text, reason)
                else:
                    assert f": there is no {operator} for {left.words} and {right.words}" in reason, (text, reason)


def test_the_page_shows_the_tables() -> None:
    assert PAGE.read_text() == page(), "run python -m docs.generate.operators"
