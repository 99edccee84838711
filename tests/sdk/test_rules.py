"""Rules: which messages a subscription gets, how many copies, and what actions make of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from emubus.broker.model.descriptions import CorrelationFilter, FalseFilter, RuleDescription, SqlFilter, TrueFilter

from .client import Message, Sdk
from .conftest import MakeSubscription, MakeTopic
from .driver import SdkError
from .features import WRITES_DECIMALS, clients_with, only_clients, partitioned_only

pytestmark = [pytest.mark.sdk, partitioned_only]

# Typed as every SDK can send it: strings, booleans and fractions; whole numbers where they are compared by value.
MESSAGES: tuple[dict[str, Any], ...] = (
    {"body": "red 1.5", "subject": "paint", "properties": {"colour": "red", "size": {"type": "double", "value": 1.5}}},
    {
        "body": "blue 2.5",
        "subject": "paint",
        "properties": {"colour": "blue", "size": {"type": "double", "value": 2.5}},
    },
    {"body": "red 7", "correlation_id": "c7", "properties": {"colour": "red", "count": {"type": "int", "value": 7}}},
    {"body": "red text", "to": "there", "properties": {"colour": "red", "count": "7", "note": "100% off"}},
    {"body": "plain"},
)

# Filter → the bodies of the messages that it lets through.
FILTERS: Mapping[str, tuple[Any, set[str]]] = {
    "everything": (TrueFilter(), {"red 1.5", "blue 2.5", "red 7", "red text", "plain"}),
    "nothing": (FalseFilter(), set()),
    "equal": (SqlFilter("colour = 'red'"), {"red 1.5", "red 7", "red text"}),
    "not-equal": (SqlFilter("colour <> 'red'"), {"blue 2.5"}),
    "not": (SqlFilter("NOT colour = 'red'"), {"blue 2.5"}),
    "and": (SqlFilter("colour = 'red' AND size > 1"), {"red 1.5"}),
    "or": (SqlFilter("size > 2 OR count = 7"), {"blue 2.5", "red 7"}),
    "in": (SqlFilter("colour IN ('green', 'blue')"), {"blue 2.5"}),
    "like": (SqlFilter("colour LIKE 're_'"), {"red 1.5", "red 7", "red text"}),
    "like-escape": (SqlFilter("note LIKE '100!% %' ESCAPE '!'"), {"red text"}),
    "is-null": (SqlFilter("colour IS NULL"), {"plain"}),
    "is-not-null": (SqlFilter("size IS NOT NULL"), {"red 1.5", "blue 2.5"}),
    "exists": (SqlFilter("EXISTS(note)"), {"red text"}),
    "system": (SqlFilter("sys.Label = 'paint' AND user.colour = 'red'"), {"red 1.5"}),
    "arithmetic": (SqlFilter("size * 2 + 1 = 4"), {"red 1.5"}),
    "function": (SqlFilter("property('COL' + 'OUR') = 'blue'"), {"blue 2.5"}),
    "function-of-system": (SqlFilter("property('sys.Label') = 'paint'"), set()),
    "by-other-case": (CorrelationFilter(properties={"Colour": "blue"}), {"blue 2.5"}),
    "by-colour": (CorrelationFilter(properties={"colour": "blue"}), {"blue 2.5"}),
    "by-subject": (CorrelationFilter(label="paint", properties={"colour": "red"}), {"red 1.5"}),
    "by-correlation": (CorrelationFilter(correlation_id="c7"), {"red 7"}),
    "by-to": (CorrelationFilter(to="there"), {"red text"}),
    "by-text": (CorrelationFilter(properties={"count": "7"}), {"red text"}),
}


def bodies(messages: list[Message]) -> list[str]:
    return sorted(message.body or "" for message in messages)


def test_a_filter_lets_through_what_it_matches(
    sdk: Sdk, make_topic: MakeTopic, make_subscription: MakeSubscription
) -> None:
    topic = make_topic()
    # A rule with an action makes a copy of its own that carries the rule's name: one subscription shows them all.
    rules = [RuleDescription(name, rule_filter, "SET seen = TRUE") for name, (rule_filter, _) in FILTERS.items()]
    make_subscription(topic, rules=tuple(rules))
    sdk.send(topic, *MESSAGES)
    expected = {(name, body) for name, (_, passing) in FILTERS.items() for body in passing}
    receiver = sdk.receiver(topic, "receive-and-delete", subscription="all")
    copies = receiver.receive_all(len(expected))
    assert {(copy.properties["RuleName"], copy.body) for copy in copies} == expected
    assert receiver.peek_all() == []


def test_an_action_changes_the_copy_and_the_rule_leaves_its_name(
    sdk: Sdk, make_topic: MakeTopic, make_subscription: MakeSubscription
) -> None:
    topic = make_topic()
    paint = RuleDescription("paint", SqlFilter("1=1"), "SET colour = 'green'; REMOVE note; SET sys.Label = 'painted'")
    make_subscription(topic, "changed", rules=(paint,))
    make_subscription(topic, "unchanged")
    sent = {"body": "x", "message_id": "m", "subject": "raw", "properties": {"colour": "red", "note": "old"}}
    sdk.send(topic, sent)
    changed = sdk.receiver(topic, subscription="changed").receive_one()
    assert changed.as_sent() == {
        **sent,
        "subject": "painted",
        "properties": {"colour": "green", "RuleName": "paint"},
    }
    assert sdk.receiver(topic, subscription="unchanged").receive_one().as_sent() == sent


def test_rules_without_action_make_one_copy_and_each_rule_with_action_its_own(
    sdk: Sdk, make_topic: MakeTopic, make_subscription: MakeSubscription
) -> None:
    topic = make_topic()
    rules = (
        RuleDescription("plain one", TrueFilter()),
        RuleDescription("plain two", SqlFilter("colour = 'red'")),
        RuleDescription("first action", SqlFilter("colour = 'red'"), "SET size = 'large'"),
        RuleDescription("second action", TrueFilter(), "SET size = 'small'"),
        RuleDescription("not matching", FalseFilter(), "SET size = 'none'"),
    )
    make_subscription(topic, rules=rules)
    sdk.send(topic, {"body": "x", "properties": {"colour": "red"}})
    copies = sdk.receiver(topic, "receive-and-delete", subscription="all").receive_all(3)
    assert sorted((copy.properties.get("RuleName", ""), copy.properties.get("size", "")) for copy in copies) == [
        ("", ""),
        ("first action", "large"),
        ("second action", "small"),
    ]


def test_a_subscription_without_rules_gets_nothing(
    sdk: Sdk, make_topic: MakeTopic, make_subscription: MakeSubscription
) -> None:
    topic = make_topic()
    make_subscription(topic, "none", rules=())
    sdk.send(topic, {"body": "x"})
    assert sdk.receiver(topic, subscription="none").peek_all() == []


@clients_with("rules")
def test_p24_p25_rules_are_added_listed_and_removed(
    sdk: Sdk, make_topic: MakeTopic, make_subscription: MakeSubscription
) -> None:
    topic = make_topic()
    make_subscription(topic)
    assert list(sdk.rules(topic, "all")) == ["$Default"]
    correlation = {"subject": "paint", "correlation_id": "c", "properties": {"colour": "red"}}
    sdk.add_rule(topic, "all", "sql", {"sql": "colour = 'red'"}, "SET size = 'large'")
    sdk.add_rule(topic, "all", "correlation", {"correlation": correlation})
    sdk.add_rule(topic, "all", "nothing", {"false": True})
    sdk.remove_rule(topic, "all", "$Default")
    rules = sdk.rules(topic, "all")
    assert rules["sql"] == ({"sql": "colour = 'red'"}, "SET size = 'large'")
    assert rules["correlation"] == ({"correlation": correlation}, None)
    assert rules["nothing"] in [({"false": True}, None), ({"sql": "1=0"}, None)]
    assert len(rules) == 3


@clients_with("rules")
def test_p25_an_added_rule_decides_about_the_next_message(
    sdk: Sdk, make_topic: MakeTopic, make_subscription: MakeSubscription
) -> None:
    topic = make_topic()
    make_subscription(topic)
    red, blue = ({"body": colour, "properties": {"colour": colour}} for colour in ("red", "blue"))
    sdk.add_rule(topic, "all", "red", {"sql": "colour = 'red'"})
    sdk.remove_rule(topic, "all", "$Default")
    sdk.send(topic, red, blue)
    sdk.add_rule(topic, "all", "blue", {"correlation": {"properties": {"colour": "blue"}}})
    sdk.send(topic, red, blue)
    assert bodies(sdk.receiver(topic, subscription="all").peek_all()) == ["blue", "red", "red"]


@only_clients(*WRITES_DECIMALS)
def test_decimals_are_compared_and_calculated(
    sdk: Sdk, make_topic: MakeTopic, make_subscription: MakeSubscription
) -> None:
    topic = make_topic()
    rules = (
        RuleDescription("dear", SqlFilter("price > 12.34")),
        RuleDescription("double", SqlFilter("price * 2 = 24.68"), "SET price = price + price"),
    )
    make_subscription(topic, rules=rules)
    for price in ("12.34", "12.345", "1"):
        sdk.send(topic, {"body": price, "properties": {"price": {"type": "decimal", "value": price}}})
    copies = sdk.receiver(topic, "receive-and-delete", subscription="all").receive_all(2)
    seen = [(copy.body, copy.properties["price"]) for copy in copies]
    assert sorted(seen) == [
        ("12.34", {"type": "decimal", "value": "24.68"}),
        ("12.345", {"type": "decimal", "value": "12.345"}),
    ]


@clients_with("rules")
def test_a_rule_that_cannot_be_is_refused_with_its_reason(
    sdk: Sdk, make_topic: MakeTopic, make_subscription: MakeSubscription
) -> None:
    topic = make_topic()
    make_subscription(topic)
    with pytest.raises(SdkError) as broken:
        sdk.add_rule(topic, "all", "broken", {"sql": "colour = = 'red'"})
    with pytest.raises(SdkError) as unknown:
        sdk.add_rule(topic, "all", "unknown", {"sql": "sys.NoSuchProperty = 1"})
    with pytest.raises(SdkError) as twice:
        sdk.add_rule(topic, "all", "$Default", {"true": True})
    with pytest.raises(SdkError) as missing:
        sdk.remove_rule(topic, "all", "missing")
    errors = (broken, unknown, twice, missing)
    assert [error.value.kind for error in errors] == ["argument", "argument", "exists", "not-found"]
    assert list(sdk.rules(topic, "all")) == ["$Default"]
