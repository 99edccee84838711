"""A topic's rules: which copies each subscription gets, and that the index finds what evaluating all would find."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from emubus.broker.message.message import Message, parse_message
from emubus.broker.model.descriptions import (
    CorrelationFilter,
    FalseFilter,
    Filter,
    RuleDescription,
    SqlFilter,
    SubscriptionDescription,
    TrueFilter,
    TypedText,
)
from emubus.broker.rules import (
    CompiledFilter,
    FilterError,
    FilterException,
    Match,
    MessageContext,
    RuleIndex,
    compile_filter,
)
from emubus.broker.rules import index as indexing
from emubus.broker.rules.sql.action import RULE_NAME_PROPERTY, compile_action
from emubus.codec import decimals
from emubus.codec.types import Char, Decimal128, Described, Float, Int, Long, Symbol, Timestamp, Ulong

from ...log_levels import every_level
from ...rounds import rounds
from ..counting import calls_of, peak_bytes
from .messages import context, encoded

Shown = tuple[str, list[bytes], str | None]


def shown(matches: list[Match]) -> list[Shown]:
    return [
        (
            match.subscription,
            [copy.located()[0] for copy in match.copies],
            None if match.error is None else str(match.error),
        )
        for match in matches
    ]


def index_of(**subscriptions: list[RuleDescription]) -> RuleIndex:
    index = RuleIndex()
    for key, rules in subscriptions.items():
        index.put_subscription(key, rules)
    return index


def rule(name: str, filter_: Filter | str | None = None, action: str | None = None) -> RuleDescription:
    if isinstance(filter_, str):
        filter_ = SqlFilter(filter_)
    return RuleDescription(name, filter_ or TrueFilter(), action)


def users(copies: list[Message]) -> list[dict[str, object]]:
    return [copy.application_properties() for copy in copies]


def in_steps(index: RuleIndex, seen: MessageContext) -> tuple[list[Match], int]:
    """What `matching` returns, and in how many steps."""
    steps, count = index.matching(seen), 1
    while True:
        try:
            next(steps)
            count += 1
        except StopIteration as end:
            matches: list[Match] = end.value
            return matches, count


# ---------------------------------------------------------------- copies


def test_a_subscription_without_rules_gets_nothing() -> None:
    assert index_of(a=[]).matches(context()) == []


def test_a_new_subscription_gets_everything() -> None:
    seen = context()
    index = index_of(a=list(SubscriptionDescription("t", "s").rules))
    assert [(match.subscription, match.copies) for match in index.matches(seen)] == [("a", [seen.message])]


def test_all_matching_rules_without_action_make_one_copy() -> None:
    seen = context({"a": 1, "b": 2})
    index = index_of(s=[rule("x", "a = 1"), rule("y"), rule("z", "b > 1"), rule("w", FalseFilter())])
    (match,) = index.matches(seen)
    assert match.copies == [seen.message]


def test_each_matching_rule_with_an_action_makes_a_copy_that_tells_the_rule() -> None:
    seen = context({"a": 1})
    rules = [rule("one", None, "SET a = 2"), rule("two", "a = 1", "SET b = a"), rule("no", "a = 2", "SET c = 1")]
    (match,) = index_of(s=rules).matches(seen)
    assert users(match.copies) == [{"a": 2, RULE_NAME_PROPERTY: "one"}, {"a": 1, "b": 1, RULE_NAME_PROPERTY: "two"}]


def test_rules_with_and_without_action_make_their_copies_side_by_side() -> None:
    seen = context({"a": 1})
    rules = [rule("one", None, "SET a = 2"), rule("plain"), rule("two", None, "SET a = 3"), rule("also", "a = 1")]
    (match,) = index_of(s=rules).matches(seen)
    assert match.copies[0] is seen.message
    assert [user["a"] for user in users(match.copies)] == [1, 2, 3]


def test_a_rule_that_fails_is_reported_next_to_the_copies_of_the_others() -> None:
    index = index_of(
        a=[rule("bad", "1 / a = 1"), rule("good", None, "SET b = 1")],
        b=[rule("bad", "1 / a = 1")],
        c=[rule("bad", None, "SET b = 1 / a")],
        d=[rule("fine", "a = 0")],
    )
    zero = "Attempted to divide by zero."
    assert [(m.subscription, len(m.copies), m.error and str(m.error)) for m in index.matches(context({"a": 0}))] == [
        ("a", 1, zero),
        ("b", 0, zero),
        ("c", 0, zero),
        ("d", 1, None),
    ]
    assert repr(index.matches(context({"a": 0}))[1]).startswith("Match('b', 0 copies, error=")


# ---------------------------------------------------------------- changes


def found(index: RuleIndex, user: dict[Any, object] | None = None, **options: Any) -> list[str]:
    return [match.subscription for match in index.matches(context(user, **options))]


def test_matches_come_in_the_order_in_which_subscriptions_were_added() -> None:
    index = index_of(
        c=[rule("r", "a = 1")], a=[rule("r")], b=[rule("r", "a > 0")], d=[rule("r", CorrelationFilter(label="l"))]
    )
    assert found(index, {"a": 1}, label="l") == ["c", "a", "b", "d"]
    index.put_subscription("c", [rule("r")])
    assert found(index, {"a": 1}, label="l") == ["c", "a", "b", "d"]
    index.remove_subscription("c")
    index.put_subscription("c", [rule("r")])
    assert found(index, {"a": 1}, label="l") == ["a", "b", "d", "c"]


def test_rules_come_and_go_one_by_one() -> None:
    index = index_of(s=[])
    for filter_ in ("a = 1", "a > 0", CorrelationFilter(properties={"a": 1}), TrueFilter()):
        index.change_subscription("s", [rule("R", filter_)])
        assert found(index, {"a": 1}) == ["s"]
        index.change_subscription("s", [])
        assert found(index, {"a": 1}) == []
    with pytest.raises(KeyError):
        index.change_subscription("unknown", [rule("r")])
    with pytest.raises(KeyError):
        index.remove_subscription("unknown")


def test_a_rule_is_replaced_by_one_of_the_same_name_in_any_case() -> None:
    other = rule("other", "a = 1", "SET b = 2")
    index = index_of(s=[rule("Rule", "a = 1", "SET b = 1"), other])
    index.change_subscription("s", [rule("RULE", "a = 1", "SET b = 3"), other])
    (match,) = index.matches(context({"a": 1}))
    assert [(user["b"], user["RuleName"]) for user in users(match.copies)] == [(3, "RULE"), (2, "other")]


def test_a_changed_order_of_rules_is_the_order_of_their_copies() -> None:
    one, two = rule("one", None, "SET b = 1"), rule("two", None, "SET b = 2")
    index = index_of(s=[one, two])
    index.change_subscription("s", [two, one])
    (match,) = index.matches(context())
    assert [user["RuleName"] for user in users(match.copies)] == ["two", "one"]


def test_true_in_the_place_of_1_is_another_rule() -> None:
    index = index_of(s=[rule("r", CorrelationFilter(properties={"a": 1}))])
    index.change_subscription("s", [rule("r", CorrelationFilter(properties={"a": True}))])
    assert found(index, {"a": True}) == ["s"]
    assert found(index, {"a": 1}) == []


def test_a_change_compiles_the_rules_that_differ() -> None:
    rules = [rule(f"r{number}", f"a = {number}") for number in range(300)]
    index = index_of(s=rules)
    assert calls_of(compile_filter, lambda: index.change_subscription("s", [*rules, rule("new", "a = 1")])) == 1
    assert calls_of(compile_filter, lambda: index.change_subscription("s", rules)) == 0
    assert calls_of(compile_filter, lambda: index.change_subscription("s", [rule("r0"), *rules[1:]])) == 1


@pytest.mark.parametrize(
    "make",
    [
        lambda count: CorrelationFilter(properties={f"p{number}": "x" for number in range(count)}),
        lambda count: SqlFilter(" AND ".join(f"p{number} = 'x'" for number in range(count))),
        lambda count: SqlFilter("a = @p0" + " AND a = @p1" * count, {f"p{number}": "x" for number in range(count)}),
    ],
    ids=["correlation", "sql", "parameters"],
)
def test_a_rule_takes_memory_in_proportion_to_its_size(make: Callable[[int], Filter]) -> None:
    index_of(s=[rule("r", make(2))])  # loads the parser
    small, large = (peak_bytes(lambda: index_of(s=[rule("r", make(count))])) for count in (400, 800))  # noqa: B023
    assert large < 3 * small


def test_a_rule_that_cannot_be_used_changes_nothing() -> None:
    index = index_of(s=[rule("r", "a = 1")])
    for bad in (rule("bad", "a ="), rule("bad", None, "SET")):
        with pytest.raises(FilterError):
            index.put_subscription("s", [rule("r"), bad])
        with pytest.raises(FilterError):
            index.put_subscription("t", [bad])
        with pytest.raises(FilterError):
            index.change_subscription("s", [bad])
    assert found(index, {"a": 1}) == ["s"]
    assert found(index, {"a": 2}) == []


# ---------------------------------------------------------------- with and without index


class Evaluations:
    """Counts the filters that are evaluated."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        plain = MessageContext.system

        def counted(seen: MessageContext, name: str) -> Any:
            self.count += 1
            return plain(seen, name)

        monkeypatch.setattr(MessageContext, "system", counted)


@pytest.mark.parametrize("kind", ["correlation", "sql"])
def test_the_cost_of_a_message_does_not_grow_with_the_subscriptions_that_it_is_not_for(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = RuleIndex()
    for number in range(1_000):
        wanted: Filter = SqlFilter(f"sys.Size > 0 AND sys.Label = 'l{number}' AND sys.To = 'everybody'")
        if kind == "correlation":
            wanted = CorrelationFilter(to="everybody", label=f"l{number}")
        index.put_subscription(str(number), [RuleDescription("r", wanted)])
    evaluations = Evaluations(monkeypatch)
    assert found(index, to="everybody", label="l500") == ["500"]
    assert evaluations.count < 20


def brute_force(subscriptions: dict[str, list[RuleDescription]], seen: MessageContext) -> list[Shown]:
    """What the documentation says, rule by rule."""
    outcome: list[Shown] = []
    for key, rules in subscriptions.items():
        plain, changed = False, []
        failures: list[str] = []
        for each in rules:
            try:
                if compile_filter(each.filter)(seen) is not True:
                    continue
                if each.action is None:
                    plain = True
                else:
                    changed.append(compile_action(each.action).apply(seen, each.name).located()[0])
            except FilterException as error:
                failures.append(str(error))
        copies = ([seen.message.located()[0]] if plain else []) + changed
        if copies or failures:
            outcome.append((key, copies, failures[0] if failures else None))
    return outcome


EACH_VALUE: list[Any] = ["x", "y", 1, 1.0, True, 0, 2**53, 2**53 + 1, float(2**53), None]
VALUES: Any = st.sampled_from(EACH_VALUE)
TEXTS = st.none() | st.sampled_from(["x", "y"])
TYPED: Any = st.sampled_from(
    [
        TypedText(*each)
        for each in (("decimal", "1.00"), ("decimal", "0.5"), ("duration", "PT0S"), ("dateTime", "1970-01-01"))
    ]
)
CORRELATIONS = st.builds(
    CorrelationFilter,
    label=TEXTS,
    to=TEXTS,
    message_id=TEXTS,
    properties=st.dictionaries(st.sampled_from("abA"), st.one_of(VALUES, TYPED), max_size=2),
)


def literal(value: object) -> str:
    return "NULL" if value is None else f"'{value}'" if isinstance(value, str) else str(value).upper()


CONDITIONS = st.one_of(
    st.builds(lambda name, value: f"{name} = {literal(value)}", st.sampled_from(["a", "user.B", "A"]), VALUES),
    st.builds(lambda value, name: f"{literal(value)} = {name}", VALUES, st.sampled_from(["a", "b"])),
    st.builds(lambda name, value: f"sys.{name} = {literal(value)}", st.sampled_from(["Label", "to"]), VALUES),
    st.sampled_from(
        ["a > 0", "b IS NULL", "1 / a = 1", "a + b = 2", "sys.Label LIKE 'x%'", "1=1", "1=0", "a = b", "a = @p"]
    ),
    st.just("(a = 1 OR b = 'x')"),
)
SQL = st.lists(CONDITIONS, min_size=1, max_size=3).map(lambda parts: SqlFilter(" AND ".join(parts), {"@p": "x"}))
FILTERS = st.one_of(st.just(TrueFilter()), st.just(FalseFilter()), CORRELATIONS, CORRELATIONS, SQL, SQL)
ACTIONS = st.sampled_from([None, None, None, "SET a = 'new'", "SET sys.Label = 1 / a", "REMOVE b"])
RULES = st.lists(st.tuples(FILTERS, ACTIONS), max_size=3).map(
    lambda each: [RuleDescription(f"r{place}", filter_, action) for place, (filter_, action) in enumerate(each)]
)
STEPS = st.lists(st.tuples(st.sampled_from("pqrst"), st.none() | RULES), max_size=8)
OTHER_KINDS: Any = st.sampled_from(
    [
        *(Int(1), Ulong(2**64 - 1), Float(0.5), Char("x"), Char("\x01"), Timestamp(0), [1], b"x"),
        *(Decimal128(decimals.from_text(text, 16)) for text in ("1.0", "0.5", "1E+3", "Infinity")),
        *(Described(Symbol(f"com.microsoft:{name}"), Long(0)) for name in ("timespan", "datetime-offset")),
        Described(Symbol("com.microsoft:uri"), "x"),
    ]
)
USERS = st.fixed_dictionaries({}, optional={name: st.one_of(VALUES, OTHER_KINDS) for name in "abA"})
MESSAGES = st.builds(
    lambda user, fields, broken: _broken(encoded(user, **fields), broken),
    USERS,
    st.dictionaries(st.sampled_from(["label", "to", "message_id"]), st.sampled_from(["x", "y", "broken"])),
    st.sampled_from([False, False, False, True]),
)


def _broken(data: bytes, is_broken: bool) -> bytes:
    """The message, with text that is no UTF-8 in place of "broken" and (sometimes) "y"."""
    data = data.replace(b"broken", b"\xff" * 6)
    return data.replace(b"\xa1\x01y", b"\xa1\x01\xff") if is_broken else data


@pytest.mark.parametrize("expected", EACH_VALUE)
@pytest.mark.parametrize("value", EACH_VALUE)
@pytest.mark.parametrize("kind", ["property", "properties", "sql", "parameter"])
def test_the_index_knows_equal_values_from_similar_ones(kind: str, expected: Any, value: Any) -> None:
    filters: dict[str, Filter] = {
        "property": CorrelationFilter(properties={"a": expected}),
        "properties": CorrelationFilter(properties={"a": expected, "c": 1}),
        "sql": SqlFilter(f"{literal(expected)} = a"),
        "parameter": SqlFilter("a = @p AND sys.Label = 'x'", {"p": expected}),
    }
    subscriptions = {"s": [RuleDescription("r", filters[kind])]}
    seen = context({"a": value, "c": 1}, label="x")
    assert shown(index_of(**subscriptions).matches(seen)) == brute_force(subscriptions, seen)


@pytest.mark.parametrize("expression", ["b = 'x' AND 1 / a = 1", "1 / a = 1 AND b = 'x'", "b = 'x' AND p(c) = 1"])
@pytest.mark.parametrize("user", [{"b": "x"}, {"b": "y"}, {}])
def test_the_index_hides_no_failure(expression: str, user: dict[str, object]) -> None:
    subscriptions = {"s": [rule("r", expression)]}
    seen = context({**user, "a": 0, "c": "sys.nothing"})
    assert shown(index_of(**subscriptions).matches(seen)) == brute_force(subscriptions, seen)


@given(STEPS, st.lists(MESSAGES, min_size=1, max_size=4))
@settings(max_examples=rounds(200, 5_000))
def test_the_index_finds_what_evaluating_every_rule_finds(
    steps: list[tuple[str, list[RuleDescription] | None]], messages: list[bytes]
) -> None:
    index, subscriptions = RuleIndex(), dict[str, list[RuleDescription]]()
    for key, rules in steps:
        if rules is not None:
            index.put_subscription(key, rules)
            subscriptions[key] = rules
        elif key in subscriptions:
            last = subscriptions[key][-1:]
            if last:
                subscriptions[key] = subscriptions[key][:-1]
                index.change_subscription(key, subscriptions[key])
            else:
                index.remove_subscription(key)
                del subscriptions[key]
    for data in messages:
        outcome = shown(index.matches(MessageContext(parse_message(data))))
        assert outcome == brute_force(subscriptions, MessageContext(parse_message(data)))
        assert shown(in_steps(index, MessageContext(parse_message(data)))[0]) == outcome


@pytest.mark.parametrize(("body", "steps_min"), [(b"", 2 * 300 // indexing.STEP_RULES), (bytes(10_000), 2 * 300)])
def test_rules_are_evaluated_in_steps_and_those_of_a_large_message_one_by_one(body: bytes, steps_min: int) -> None:
    index = index_of(
        evaluated=[rule(f"{number}", f"a LIKE '%{number}_'") for number in range(300)],
        indexed=[rule(f"{number}", f"b = 1 AND a LIKE '%{number}_'") for number in range(200)],
        changed=[rule(f"{number}", None, f"SET c = {number}") for number in range(100)],
    )
    assert index.evaluations_max == 600
    seen = MessageContext(parse_message(encoded({"a": "17x", "b": 1}, body=body)))
    matches, steps = in_steps(index, seen)
    assert [(match.subscription, len(match.copies)) for match in matches] == [
        ("evaluated", 1),
        ("indexed", 1),
        ("changed", 100),
    ]
    assert steps_min <= steps <= steps_min + 10
    index.remove_subscription("indexed")
    assert index.evaluations_max == 400


@given(STEPS)
@settings(max_examples=rounds(25, 500))
def test_an_index_from_which_all_is_removed_holds_nothing(
    steps: list[tuple[str, list[RuleDescription] | None]],
) -> None:
    index = RuleIndex()
    keys = {key for key, rules in steps if rules is not None}
    for key, rules in steps:
        if rules is not None:
            index.put_subscription(key, rules)
    for key in keys:
        index.remove_subscription(key)
    assert not any(index._slots.values())
    assert not any((index._always, index._evaluated, index._system_names, index._user_readers, index._subscriptions))


def test_a_fault_of_the_program_is_the_error_of_its_rule_for_its_message_and_is_logged_once() -> None:
    def fails(context: MessageContext) -> bool:
        raise ZeroDivisionError(context)

    index = RuleIndex()
    sql = SqlFilter("a > 0")
    index.put_subscription("good", [RuleDescription("r", sql)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(indexing, "compile_filter", lambda _: CompiledFilter(fails))
        index.put_subscription("bad", [RuleDescription("r", sql), RuleDescription("other", sql)])
    with every_level(), capture_logs() as logs:
        for _ in range(3):
            good, bad = index.matches(context({"a": 1}))
            assert (good.subscription, len(good.copies), good.error) == ("good", 1, None)
            assert (bad.subscription, bad.copies) == ("bad", [])
            assert str(bad.error) == "The broker failed to evaluate the rule; see its log."
    assert [(each["event"], each["subscription"], each["rule"]) for each in logs] == [
        ("rule failed", "bad", "r"),
        ("rule failed", "bad", "other"),
    ]
