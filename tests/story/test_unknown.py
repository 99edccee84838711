"""Why a condition or a value of an action is unknown, in words."""

from __future__ import annotations

from typing import Any

import pytest

from emubus.broker.model.descriptions import CorrelationFilter, PropertyValue, RuleDescription, SqlFilter, TypedText
from emubus.codec.types import Int, Timestamp
from emubus.story.verdicts import rule_verdict

from ..broker.rules.messages import context
from ..broker.rules.operators import decimal_128, span

USER: dict[Any, object] = {
    "n": Int(5),
    "s": "text",
    "b": True,
    "nothing": None,
    "at": Timestamp(0),
    "ttl": span(1.5),
    "price": decimal_128("19.90"),
    "bin": b"x",
}
PARAMETERS: dict[str, PropertyValue] = {"@none": None, "@span": TypedText("duration", "PT1M")}


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("n > 6", "n > 6 is false (n is 5)"),
        ("missing > 6", "missing > 6 is unknown (missing is not set)"),
        ("nothing > 6", "nothing > 6 is unknown (nothing is null)"),
        ("n > NULL", "n > NULL is unknown (n is 5): NULL is null"),
        ("n > @none", "n > @none is unknown (n is 5): @none is null"),
        ("n = s", "n = s is unknown (n is 5, s is 'text'): there is no = for a number and a string"),
        ("price = '19.90'", "price = '19.90' is unknown (price is 19.90): there is no = for a decimal and a string"),
        ("b > FALSE", "b > FALSE is unknown (b is true): there is no > for a boolean and a boolean"),
        (
            "at - n < @span",
            "(at - n) < @span is unknown (at is 1970-01-01T00:00:00Z, n is 5): there is no - for a date and a number",
        ),
        ("-s = 1", "-s = 1 is unknown (s is 'text'): there is no - for a string"),
        ("+b = 1", "+b = 1 is unknown (b is true): there is no + for a boolean"),
        (
            "n + 1 * ttl > 1",
            "(n + (1 * ttl)) > 1 is unknown (n is 5, ttl is 00:00:01.5000000): "
            "there is no + for a number and a time span",
        ),
        ("n IN ('a', 'b')", "n IN ('a', 'b') is unknown (n is 5): there is no = for a number and a string"),
        ("NOT (n = 'a')", "NOT n = 'a' is unknown (n is 5): there is no = for a number and a string"),
        (
            "NOT (n = 5 AND n = 'a')",
            "NOT (n = 5 AND n = 'a') is unknown (n is 5): there is no = for a number and a string",
        ),
        ("n LIKE '5'", "n LIKE '5' is unknown (n is 5): LIKE takes strings, and n is a number"),
        ("s LIKE n", "s LIKE n is unknown (s is 'text', n is 5): LIKE takes strings, and n is a number"),
        (
            "s LIKE 'a' ESCAPE b",
            "s LIKE 'a' ESCAPE b is unknown (s is 'text', b is true): LIKE takes strings, and b is a boolean",
        ),
        (
            "property('sys.Label') = 'l'",
            "property('sys.Label') = 'l' is unknown: "
            "property() reads no system property, and no application property is named 'sys.Label'",
        ),
        ("property('x') = 'l'", "property('x') = 'l' is unknown: no application property 'x' is set"),
        (
            "property(n) = 'l'",
            "property(n) = 'l' is unknown (n is 5): property() takes a string, and n is a number",
        ),
        (
            "bin = bin",
            "bin = bin is unknown (bin is a value without operators): "
            "there is no = for a value without operators and a value without operators",
        ),
        ("newid() = 'x'", "newid() = 'x' is unknown: there is no = for a GUID and a string"),
    ],
)
def test_a_condition_says_why_it_is_not_true(expression: str, reason: str) -> None:
    rule = RuleDescription("r", SqlFilter(expression, PARAMETERS))
    verdict = rule_verdict(rule, context(USER, label="l"))
    assert (verdict.matches, verdict.reason) == (False, reason)


def test_a_correlation_filter_says_which_values_no_operator_compares() -> None:
    filter_ = CorrelationFilter(properties={"N": "5", "price": 20, "gone": TypedText("duration", "PT1M")})
    verdict = rule_verdict(RuleDescription("r", filter_), context(USER))
    assert verdict.reason == (
        "N must be '5', and is 5: there is no = for a number and a string; price must be 20, and is 19.90; "
        "gone must be 00:01:00, and is not set"
    )


@pytest.mark.parametrize(
    ("action", "reason"),
    [
        ("SET a = n + 1", ""),
        ("SET a = NULL; SET s = NULL", ""),
        ("SET a = at + at", "SET a = at + at is unknown: there is no + for a date and a date"),
        ("SET sys.Label = missing", "SET sys.Label = missing is unknown: missing is not set"),
        (
            "SET a = property('sys.Label') + '.x'",
            "SET a = property('sys.Label') + '.x' is unknown: "
            "property() reads no system property, and no application property is named 'sys.Label'",
        ),
        ("SET a = 1; SET b = a * price; REMOVE a; SET c = a", "SET c = a is unknown: a is not set"),
    ],
)
def test_an_action_says_which_of_its_values_is_unknown(action: str, reason: str) -> None:
    verdict = rule_verdict(RuleDescription("r", SqlFilter("n = 5"), action), context(USER, label="l"))
    assert (verdict.matches, verdict.reason) == (True, reason)


def test_an_action_that_fails_says_so() -> None:
    verdict = rule_verdict(RuleDescription("r", SqlFilter("n = 5"), "SET a = n / 0"), context(USER))
    assert (verdict.matches, verdict.reason) == (None, "Attempted to divide by zero.")
