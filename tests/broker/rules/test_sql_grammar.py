"""What is no SQL filter or SQL action is refused with its place; whatever the text, nothing worse happens."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from emubus.broker.errors import BrokerError, Condition
from emubus.broker.model.descriptions import CorrelationFilter, RuleDescription, SqlFilter, TypedText
from emubus.broker.model.profiles import LIMITS, Profile
from emubus.broker.rules import FilterError, FilterException, check_rule, compile_filter
from emubus.broker.rules.sql.action import compile_action
from emubus.broker.rules.sql.compiler import NESTING_MAX

from ...programs import PROGRAM_S_MAX
from ...rounds import rounds
from .messages import context, truth

REFUSED = [
    ("", "SQL filter: the text is empty", 1, 1, ""),
    (" \n", "SQL filter: the text is empty", 1, 1, ""),
    ("a =", "SQL filter: unexpected the end of the text; expected a value", 1, 4, ""),
    ("a = = 5", "SQL filter: unexpected '='; expected a value", 1, 5, "="),
    ("a = 'x", "SQL filter: a string is not closed", 1, 5, "'"),
    ("[a = 1", "SQL filter: a name in brackets is not closed", 1, 1, "["),
    ('a = "x', "SQL filter: a quoted name is not closed", 1, 5, '"'),
    ("a = 1 #", "SQL filter: unexpected character '#'", 1, 7, "#"),
    ("(a = 1", "SQL filter: unexpected the end of the text; expected ')'", 1, 7, ""),
    ("a = 1)", "SQL filter: unexpected ')'; expected the end", 1, 6, ")"),
    ("a = 1 2", "SQL filter: unexpected '2'; expected AND, OR or the end", 1, 7, "2"),
    ("a = 5abc", "SQL filter: unexpected 'abc'; expected AND, OR or the end", 1, 6, "abc"),
    ("a\n  IS 5", "SQL filter: unexpected '5'; expected NULL or NOT", 2, 6, "5"),
    ("a IN 5", "SQL filter: unexpected '5'; expected '('", 1, 6, "5"),
    ("a NOT 5", "SQL filter: unexpected '5'; expected IN or LIKE", 1, 7, "5"),
    ("a IN ()", "SQL filter: unexpected ')'; expected a value", 1, 7, ")"),
    ("a = 1 AND", "SQL filter: unexpected the end of the text; expected a value", 1, 10, ""),
    ("EXISTS(5)", "SQL filter: unexpected '5'; expected a property", 1, 8, "5"),
    ("a = in", "SQL filter: unexpected 'in'; expected a value", 1, 5, "in"),
    ("a = 1; b = 2", "SQL filter: unexpected character ';'", 1, 6, ";"),
    ("[] = 1", "SQL filter: the name of a property is empty", 1, 1, "[]"),
    ("foo.a = 1", "SQL filter: there is no scope 'foo', only sys and user", 1, 1, "foo"),
    ("nwid() = a", "SQL filter: there is no function 'nwid'; did you mean newid()?", 1, 1, "nwid"),
    ("zzzzz(1) = a", "SQL filter: there is no function 'zzzzz'", 1, 1, "zzzzz"),
    ("a = newid(1)", "SQL filter: newid() takes no argument", 1, 5, "newid"),
    ("p() = 1", "SQL filter: p() takes one argument", 1, 1, "p"),
    ("a = 9223372036854775808", "SQL filter: '9223372036854775808' does not fit a 64-bit integer", 1, 5, None),
    ("a = -9223372036854775809", "SQL filter: '9223372036854775809' does not fit a 64-bit integer", 1, 6, None),
    ("a = 1E999", "SQL filter: '1E999' does not fit a double", 1, 5, "1E999"),
    ("a = @p", "SQL filter: the parameter @p has no value", 1, 5, "@p"),
    ("a LIKE 5", "SQL filter: the pattern of LIKE must be a string", 1, 3, "LIKE"),
    ("a LIKE 'x' ESCAPE 5", "SQL filter: the ESCAPE of LIKE must be a string", 1, 3, "LIKE"),
    ("a LIKE 'x' ESCAPE ''", "SQL filter: the ESCAPE of LIKE must be one character, not 0", 1, 3, "LIKE"),
    ("a LIKE 'x!' ESCAPE '!'", "SQL filter: a LIKE pattern must not end with its escape character", 1, 3, "LIKE"),
    ("sys.Lable = 'x'", "SQL filter: there is no system property 'Lable'; did you mean sys.Label?", 1, 5, "Lable"),
    ("a = 1 OR\nsys.[Subjet] = 'x'", None, 2, 5, "[Subjet]"),
    ("sys.Xyzzy = 1", "SQL filter: there is no system property 'Xyzzy'", 1, 5, "Xyzzy"),
]


@pytest.mark.parametrize(("text", "problem", "line", "column", "token"), REFUSED)
def test_a_text_that_is_no_filter_is_refused_with_its_place(
    text: str, problem: str | None, line: int, column: int, token: str | None
) -> None:
    with pytest.raises(FilterError) as caught:
        compile_filter(SqlFilter(text))
    error = caught.value
    assert error.condition is Condition.ARGUMENT_ERROR
    assert (error.line, error.column) == (line, column)
    assert problem is None or error.description == f"{problem} (line {line}, column {column})"
    assert token is None or error.token == token


@pytest.mark.parametrize("text", ["a", "enabled AND b = 1", "(a)", "NOT enabled", "a + 1"])
def test_a_value_alone_is_no_condition(text: str) -> None:
    with pytest.raises(FilterError, match="a value alone is no condition"):
        compile_filter(SqlFilter(text))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "the text is empty (line 1, column 1)"),
        ("a = 1", "unexpected 'a'; expected SET or REMOVE (line 1, column 1)"),
        ("SET a", "unexpected the end of the text; expected '=' (line 1, column 6)"),
        ("SET a = b = 1", "unexpected '='; expected ',', ';', SET, REMOVE or the end (line 1, column 11)"),
        ("SET a = 1;; SET b = 2", "unexpected ';'; expected SET, REMOVE or the end (line 1, column 11)"),
        ("REMOVE 5", "unexpected '5'; expected a property (line 1, column 8)"),
        ("SET sys.Lable = 'x'", "there is no system property 'Lable'; did you mean sys.Label? (line 1, column 9)"),
        ("SET a = 1 REMOVE sys.Size", "sys.Size cannot be changed by an action (line 1, column 22)"),
        ("SET sys.SequenceNumber = 1", "sys.SequenceNumber cannot be changed by an action (line 1, column 9)"),
        ("SET a = @p", "the parameter @p has no value (line 1, column 9)"),
        ("SET sys.TimeToLive = 'soon'", None),
        ("SET sys.TimeToLive = 5", "SET sys.TimeToLive: '5' is no time span above zero (line 1, column 1)"),
        (
            "SET sys.TimeToLive = '-' + '00:01:00'",
            "SET sys.TimeToLive: '-00:01:00' is no time span above zero (line 1, column 1)",
        ),
        ("SET sys.ForcePersistence = 1", "SET sys.ForcePersistence: the value is no boolean (line 1, column 1)"),
        ("SET sys.ContentType = 'ä'", "SET sys.ContentType: 'ä' is not ASCII (line 1, column 1)"),
    ],
)
def test_a_text_that_is_no_action_is_refused_with_its_place(text: str, problem: str | None) -> None:
    with pytest.raises(FilterError) as caught:
        compile_action(text)
    assert problem is None or caught.value.description == f"SQL action: {problem}"


def test_an_action_has_so_many_statements_and_no_more() -> None:
    text = "SET a = 1;\n" * 32
    assert len(compile_action(text, statements_max=32).steps) == 32
    with pytest.raises(FilterError, match="33 statements are more than 32") as caught:
        compile_action(text + "SET a = 1", statements_max=32)
    assert (caught.value.line, caught.value.column) == (33, 1)
    with pytest.raises(FilterError, match="10 characters are more than 9"):
        compile_action("SET a = 12", length_max=9)


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        (RuleDescription("r", SqlFilter("a =")), "SQL filter: unexpected the end"),
        (RuleDescription("r", SqlFilter("a = '" + "x" * 1024 + "'")), "SqlExpression is 1030 characters long"),
        (RuleDescription("r", CorrelationFilter()), "CorrelationFilter is empty"),
        (RuleDescription("r", action="SET a = 1;" * 33), "33 statements are more than 32"),
        (RuleDescription("r", action="SET a = 1;" * 103), "Action is 1030 characters long"),
        (RuleDescription("r", SqlFilter("a = @p", {"p": 2**70})), "the parameter @p: 1180591620717411303424 does not"),
        (RuleDescription("r", SqlFilter("a = @p", {"p": TypedText("dateTime", "x")})), "the parameter @p"),
        (RuleDescription("r", SqlFilter("a = @p", {"p": TypedText("anyURI", "x")})), "values of type 'anyURI' cannot"),
        (RuleDescription("r", CorrelationFilter(properties={"a": TypedText("x", "y")})), "property 'a': values of"),
    ],
)
def test_a_rule_is_checked_against_the_limits_and_the_language(rule: RuleDescription, problem: str) -> None:
    limits = LIMITS[Profile.STANDARD]
    with pytest.raises(BrokerError) as caught:
        check_rule(rule, limits)
    assert caught.value.condition is Condition.ARGUMENT_ERROR
    assert problem in caught.value.description
    check_rule(RuleDescription("fine", SqlFilter("a = 1"), "SET b = 2"), limits)


DEEP = [
    "(" * 20_000 + "a = 1" + ")" * 20_000,
    "(" * 20_000 + "a" + ")" * 20_000 + " = 1",
    "NOT " * 10_000 + "a = 1",
    "-" * 20_000 + "a = 1",
    "a = 1" + " OR a = 1" * 5_000,
    "a = 1" + " AND a = 1" * 5_000,
    "a = 1" + " + 1" * 10_000,
    "a IN (1" + ", 1" * 10_000 + ")",
]
TOO_DEEP = [
    "1 + (" * 10_000 + "1" + ")" * 10_000 + " = 1",
    "NOT (a = 1 AND " * 5_000 + "a = 1" + ")" * 5_000,
    "p(" * 10_000 + "a" + ")" * 10_000 + " = 1",
    "(1=2 OR " * (NESTING_MAX * 2) + "1=1 AND a=1" + ")" * (NESTING_MAX * 2),
]


@pytest.mark.parametrize("text", DEEP, ids=range(len(DEEP)))
def test_length_and_parentheses_that_mean_nothing_are_no_obstacle(
    text: str, cpu_limit: Callable[[float], AbstractContextManager[None]]
) -> None:
    with cpu_limit(10):
        truth(text, {"a": 1})


@pytest.mark.parametrize("text", TOO_DEEP, ids=range(len(TOO_DEEP)))
def test_an_expression_that_is_nested_too_deep_is_refused(text: str) -> None:
    with pytest.raises(FilterError, match=f"nested deeper than {NESTING_MAX} levels"):
        compile_filter(SqlFilter(text))


def test_an_expression_may_be_nested_as_deep_as_is_allowed() -> None:
    levels = NESTING_MAX - 2
    assert truth("1 + (" * levels + "n" + ")" * levels + f" = {levels}", {"n": 0}) is True


WORDS = st.sampled_from(
    [
        *("a", "b1", "sys.", "user.", "sys.Label", "sys.Lable", "[x]", '"y"', "'s'", "''", "1", "2.5", "1E3"),
        *("9223372036854775808", "TRUE", "FALSE", "NULL", "@p", "newid()", "property(", "p(", "(", ")", ","),
        *("=", "<>", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "AND", "OR", "NOT", "IS", "IN", "LIKE"),
        *("ESCAPE", "EXISTS", "SET", "REMOVE", ";", ".", "'", "[", '"', "#", "ü", "\n", ""),
    ]
)
TEXTS = st.one_of(st.text(max_size=60), st.lists(WORDS, max_size=25).map(" ".join), st.lists(WORDS).map("".join))


@given(TEXTS)
@example("a = '\ud800'")
@example("\ud800 = 1")
@example("a LIKE '%\ud800'")
@settings(max_examples=rounds(160, 4_000))
def test_any_text_is_a_filter_or_is_refused(text: str) -> None:
    try:
        compiled = compile_filter(SqlFilter(text, {"p": "x"}))
    except FilterError as refused:
        place = (refused.line, refused.column)
        assert min(place) >= 1
        return
    try:
        assert compiled(context({"a": 1, "b1": "s"}, label="l")) in (True, False, None)
    except FilterException:
        pass


@given(TEXTS.map(lambda text: text.replace("\n", " SET a = ")))
@example("SET a = '\ud800'")
@example("SET \ud800 = 1")
@example("SET sys.Label = '\ud800'")
@example("REMOVE \ud800")
@settings(max_examples=rounds(160, 4_000))
def test_any_text_is_an_action_or_is_refused(text: str) -> None:
    for each in (text, f"SET {text}", f"SET a = {text}", f"REMOVE {text}"):
        try:
            action = compile_action(each)
        except FilterError:
            continue
        try:
            action.apply(context({"a": 1, "b1": "s"}, label="l"), "rule")
        except FilterException:
            pass


def test_rules_without_sql_do_not_load_the_parser() -> None:
    script = (
        "import sys\n"
        "from emubus.broker.model.descriptions import *\n"
        "from emubus.broker.rules import RuleIndex\n"
        "rules = [RuleDescription('a'), RuleDescription('b', SqlFilter('1=1')), RuleDescription('c', SqlFilter('1=0')),"
        " RuleDescription('d', CorrelationFilter(label='x'))]\n"
        "RuleIndex().put_subscription('s', rules)\n"
        "assert not {'lark', 'emubus.broker.rules.sql'} & sys.modules.keys()\n"
    )
    subprocess.run([sys.executable, "-P", "-c", script], check=True, timeout=PROGRAM_S_MAX)
