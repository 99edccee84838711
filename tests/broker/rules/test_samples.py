"""The samples of Microsoft's pages on filters and actions do what the pages say.

[SB: service-bus-filter-examples], [SB: topic-filters], [SB: service-bus-messaging-sql-filter],
[SB: service-bus-messaging-sql-rule-action].
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

import pytest

from emubus.broker.model.descriptions import (
    CorrelationFilter,
    PropertyValue,
    RuleDescription,
    SqlFilter,
    TrueFilter,
    TypedText,
)
from emubus.broker.rules import FilterError, MessageContext, RuleIndex, compile_filter
from emubus.broker.rules.sql.action import compile_action
from emubus.codec.types import Int, Long, Timestamp

from .messages import context, message, truth
from .operators import span

CRM = "http://schemas.microsoft.com/xrm/2011/Claims/EntityLogicalName"
STORES = ", ".join(f"'Store{number}'" for number in range(1, 9))
NOT_THERE = f"sys.To NOT IN ({STORES}) OR StoreId NOT IN ({STORES})"
HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("expression", "takes", "leaves"),
    [
        ("sys.label LIKE '%bus%'", {"label": "a bus stop"}, {"label": "a train"}),
        ("sys.messageid = 'xxxx'", {"message_id": "xxxx"}, {"message_id": "xxx"}),
        ("sys.correlationid like 'abc-%'", {"correlation_id": "abc-1"}, {"correlation_id": "abcd"}),
        ("sys.To IN ('Store5','Store6','Store7') OR StoreId = 'Store8'", {"to": "Store6"}, {"to": "Store8"}),
        (NOT_THERE, {"to": "Store9"}, {"to": "Store1"}),
        ("sys.Subject = 's'", {"label": "s"}, {"label": "t"}),
        ("sys.TransactionPartitionKey IS NOT NULL OR sys.To = 'x'", {"to": "x"}, {"to": "y"}),
        ("sys.ScheduledEnqueueTime IS NOT NULL", {"scheduled_at": 5}, {}),
    ],
)
def test_a_sample_on_system_properties(expression: str, takes: dict[str, Any], leaves: dict[str, Any]) -> None:
    assert truth(expression, **takes) is True
    assert truth(expression, **leaves) is not True


@pytest.mark.parametrize(
    ("expression", "takes", "leaves"),
    [
        ("MessageProperty = 'A'", {"MessageProperty": "A"}, {"MessageProperty": "a"}),
        ("user.SuperHero like 'SuperMan%'", {"superhero": "SuperMan 2"}, {"SuperHero": "Batman"}),
        (f"\"{CRM}\" = 'account'", {CRM: "account"}, {CRM: "contact"}),
        ("MessageProperty = 1", {"MessageProperty": Int(1)}, {"MessageProperty": "1"}),
        ("MessageProperty > 1", {"MessageProperty": Int(2)}, {"MessageProperty": 1.0}),
        ("MessageProperty > 2.08", {"MessageProperty": Int(3)}, {"MessageProperty": 2.08}),
        (
            "MessageProperty = 1 AND MessageProperty2 = 3",
            {"MessageProperty": 1, "MessageProperty2": 3},
            {"MessageProperty": 1},
        ),
        ("MessageProperty = 1 OR MessageProperty2 = 3", {"MessageProperty2": 3}, {"MessageProperty": 3}),
        ("StoreId IN('Store1', 'Store2', 'Store3')", {"StoreId": "Store2"}, {"StoreId": "Store4"}),
        ("sys.To IN ('Store5','Store6','Store7') OR StoreId = 'Store8'", {"StoreId": "Store8"}, {"StoreId": "Store5"}),
        (NOT_THERE, {"StoreId": "Store9"}, {"StoreId": "Store3"}),
        ("sys.Label LIKE '%bus%' OR user.tag IN ('queue', 'topic', 'subscription')", {"tag": "topic"}, {"tag": "hub"}),
        ("color='blue' AND quantity=10", {"color": "blue", "quantity": Int(10)}, {"color": "blue", "quantity": Int(5)}),
        ("[Property With Space] = 1 AND [HR-EmployeeID] = 2", {"Property With Space": 1, "HR-EmployeeID": 2}, {}),
        ('"Contoso & Northwind" = 1', {"Contoso & Northwind": 1}, {"Contoso": 1}),
        (r"property LIKE 'ABC\%' ESCAPE '\'", {"property": "ABC%"}, {"property": "ABCD"}),
        ("n = 1894 OR n = 2 OR n = 1894.1204 OR n = 2.0", {"n": 1894.1204}, {"n": 3}),
        ("n = 101.5E5 OR n = 0.5E-2", {"n": 10_150_000}, {"n": 0.05}),
        ("b = TRUE AND NOT c = FALSE", {"b": True, "c": True}, {"b": True, "c": False}),
        ("property('na' + 'me') = p('name') AND name = 'it''s'", {"name": "it's"}, {"name": "its"}),
        ("newid() <> id AND EXISTS(id)", {"id": uuid.UUID(int=1)}, {}),
        ("größe_1 IS NOT NULL AND nothing IS NULL", {"GRÖßE_1": 1, "nothing": None}, {"nothing": 1}),
        ("quantity / 2 + quantity % 3 * -1 - +1 = 3", {"quantity": Int(10)}, {"quantity": Int(11)}),
    ],
)
def test_a_sample_on_application_properties(expression: str, takes: dict[str, Any], leaves: dict[str, Any]) -> None:
    assert truth(expression, takes) is True
    assert truth(expression, leaves) is not True


@pytest.mark.parametrize(
    ("expression", "value", "outcome"),
    [
        ("DateTimeMp < @dtParam", TypedText("dateTime", "2024-05-01T12:00:00Z"), True),
        ("DateTimeMp > @dtParam", TypedText("dateTime", "2024-05-01T12:00:00Z"), False),
        ("(DateTimeMp2-DateTimeMp) <= @dtParam", TypedText("duration", "PT30M"), True),
        ("DateTimeMp2-DateTimeMp <= @dtParam", TypedText("duration", "PT30M"), True),
        ("DateTimeMp2-DateTimeMp <= @dtParam", TypedText("duration", "PT29M59.9999999S"), False),
        ("DateTimeMp - DateTimeMp2 = @dtParam", TypedText("duration", "-PT30M"), True),
        ("DateTimeMp + @dtParam = DateTimeMp2", TypedText("duration", "00:30:00"), True),
        ("DateTimeMp2 - @dtParam - @dtParam < DateTimeMp", TypedText("duration", "PT20M"), True),
        ("Span + @dtParam = @dtParam * 2", TypedText("duration", "PT30M"), True),
        ("source = @dtParam", "orders", True),
    ],
)
def test_a_sample_with_a_parameter(expression: str, value: PropertyValue, outcome: bool) -> None:
    noon = 1_714_564_800_000
    user = {
        "DateTimeMp": Timestamp(noon - HOUR_MS),
        "DateTimeMp2": Timestamp(noon - HOUR_MS // 2),
        "Span": span(1_800),
        "source": "orders",
    }
    assert compile_filter(SqlFilter(expression, {"@dtParam": value}))(context(user)) is outcome


def test_the_correlation_filter_that_is_equivalent_to_a_condition() -> None:
    correlation = CorrelationFilter(label="Important", reply_to="johndoe@contoso.com", properties={"color": "Red"})
    sql = SqlFilter("sys.ReplyTo = 'johndoe@contoso.com' AND sys.Label = 'Important' AND color = 'Red'")
    same: Mapping[str, Any] = {"label": "Important", "reply_to": "johndoe@contoso.com"}
    for user, fields, matches in (
        ({"color": "Red"}, same, True),
        ({"color": "red"}, same, False),
        ({"COLOR": "Red"}, same, True),
        ({"color": "Red"}, {"label": "Important"}, False),
    ):
        for description in (correlation, sql):
            assert (compile_filter(description)(context(user, **fields)) is True) is matches
    assert compile_filter(CorrelationFilter(correlation_id="Contoso"))(context(correlation_id="Contoso")) is True


def test_the_program_of_orders() -> None:
    """Four subscriptions and thirteen orders; an order without values has null properties."""
    action = "SET quantity = quantity / 2; REMOVE priority;SET sys.CorrelationId = 'low';"
    index = RuleIndex()
    for name, rule in {
        "AllOrders": RuleDescription("AllOrders", TrueFilter()),
        "ColorBlueSize10Orders": RuleDescription("b", SqlFilter("color='blue' AND quantity=10")),
        "ColorRed": RuleDescription("RedOrdersWithAction", SqlFilter("user.color='red'"), action),
        "HighPriorityRedOrders": RuleDescription("h", CorrelationFilter(label="red", correlation_id="high")),
    }.items():
        index.put_subscription(name, [rule])
    orders: list[tuple[str | None, int, str | None]] = [
        (None, 0, None),
        *(("blue", 5, "low"), ("red", 10, "high"), ("yellow", 5, "low"), ("blue", 10, "low"), ("blue", 5, "high")),
        *(("blue", 10, "low"), ("red", 5, "low"), ("red", 10, "low"), ("red", 5, "low"), ("yellow", 10, "high")),
        *(("yellow", 5, "low"), ("yellow", 10, "low")),
    ]
    got: dict[str, list[tuple[Mapping[str, object], object]]] = {}
    for color, quantity, priority in orders:
        sent = message(
            {"color": color, "quantity": Int(quantity), "priority": priority}, label=color, correlation_id=priority
        )
        for match in index.matches(MessageContext(sent)):
            assert match.error is None
            got.setdefault(match.subscription, []).extend(
                (copy.application_properties(), MessageContext(copy).system("CorrelationId")) for copy in match.copies
            )
    assert {name: len(copies) for name, copies in got.items()} == {
        "AllOrders": 13,
        "ColorRed": 4,
        "ColorBlueSize10Orders": 2,
        "HighPriorityRedOrders": 1,
    }
    for user, correlation_id in got["ColorRed"]:
        assert correlation_id == "low"
        assert {*user} == {"color", "quantity", "RuleName"}
        assert type(user["quantity"]) is Int
    assert sorted(int(str(user["quantity"])) for user, _ in got["ColorRed"]) == [2, 2, 5, 5]


def test_the_program_of_colors() -> None:
    """Four subscriptions and nine messages, as the samples of .NET and JavaScript have them."""
    index = RuleIndex()
    for name, rule in {
        "NoFilter": RuleDescription("$Default", TrueFilter()),
        "Red": RuleDescription("RedSqlRule", SqlFilter("Color = 'Red'")),
        "Blue": RuleDescription("BlueSqlRule", SqlFilter("Color = 'Blue'"), "SET Color = 'BlueProcessed'"),
        "Important": RuleDescription("i", CorrelationFilter(label="Red", correlation_id="important")),
    }.items():
        index.put_subscription(name, [rule])
    got: dict[str, list[object]] = {}
    for color in ("Red", "Blue", "Green"):
        for correlation_id in (None, "important", "notimportant"):
            for match in index.matches(context({"Color": color}, label=color, correlation_id=correlation_id)):
                copies = [copy.application_properties()["Color"] for copy in match.copies]
                got.setdefault(match.subscription, []).extend(copies)
    assert sorted(map(str, got.pop("NoFilter"))) == ["Blue"] * 3 + ["Green"] * 3 + ["Red"] * 3
    assert got == {"Red": ["Red"] * 3, "Blue": ["BlueProcessed"] * 3, "Important": ["Red"]}


def test_five_matching_rules_two_of_them_with_an_action_make_three_messages() -> None:
    index = RuleIndex()
    plain = [RuleDescription(f"plain{number}", SqlFilter(f"n < {number}")) for number in (5, 6, 7)]
    acting = [RuleDescription(f"acting{number}", SqlFilter("n = 1"), "SET n = n + 1") for number in (1, 2)]
    index.put_subscription("s", [*plain, *acting])
    (match,) = index.matches(context({"n": 1}))
    names = [copy.application_properties().get("RuleName") for copy in match.copies]
    assert names == [None, "acting1", "acting2"]


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("SET source='routedOrders'", {"source": "routedOrders", "n": Int(7)}),
        ("SET made = TRUE", {"source": "x", "n": Int(7), "made": True}),
        ("SET n = '12'", {"source": "x", "n": Int(12)}),
        ("SET n = 2.5", {"source": "x", "n": 2.5}),
        ("REMOVE source REMOVE missing", {"n": Int(7)}),
        ("SET n = 1, REMOVE source, SET m = n + 1;", {"n": Int(1), "m": 2}),
        ("SET made = missing", {"source": "x", "n": Int(7)}),
        ("SET made = missing + 1; SET made = 'a' + missing", {"source": "x", "n": Int(7)}),
        ("SET source = user.[source] + '-' + n", {"source": "x-7", "n": Int(7)}),
    ],
)
def test_a_statement_of_the_page_of_actions(text: str, after: dict[str, object]) -> None:
    copy = compile_action(text).apply(MessageContext(message({"source": "x", "n": Int(7)})))
    found = copy.application_properties()
    assert {name: (type(value), value) for name, value in found.items()} == {
        name: (Long if type(value) is int else type(value), value) for name, value in after.items()
    }


@pytest.mark.parametrize("text", ["sys.Nothing = 1", "in = 1", "a = 1 AND", "1", "a LIKE", "_a = 1", "EXISTS(1)"])
def test_what_the_page_of_filters_excludes_is_refused(text: str) -> None:
    with pytest.raises(FilterError):
        compile_filter(SqlFilter(text))


@pytest.mark.parametrize(
    "text", ["SET sys.Nothing = 1", "SET a = sys.Nothing", "SET a", "a = 1", "SET a = 1,", ", SET a = 1"]
)
def test_what_the_page_of_actions_excludes_is_refused(text: str) -> None:
    with pytest.raises(FilterError):
        compile_action(text)
