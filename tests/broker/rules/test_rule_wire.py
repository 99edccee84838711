"""Rules in the AMQP forms of `add-rule` and `enumerate-rules` [wire 7.4]."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from emubus.broker.errors import BrokerError, Condition
from emubus.broker.model.descriptions import (
    CorrelationFilter,
    FalseFilter,
    Filter,
    RuleDescription,
    SqlFilter,
    TrueFilter,
    TypedText,
)
from emubus.broker.rules import rule_from_amqp, rule_to_amqp
from emubus.codec.decode import decode
from emubus.codec.encode import encode
from emubus.codec.types import Described, Int, Long, Symbol, Timestamp, Ulong

GUID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
SPAN = Described(Symbol("com.microsoft:timespan"), Long(600_000_000))


@pytest.mark.parametrize(
    ("description", "descriptor", "fields"),
    [
        (SqlFilter("a = 1"), 83483426822, ["a = 1", 20]),
        (TrueFilter(), 83483426823, []),
        (FalseFilter(), 83483426824, []),
        (CorrelationFilter(label="l"), 83483426825, [None, None, None, None, "l", None, None, None, {}]),
        (
            CorrelationFilter("ct", "ci", "l", "mi", "rt", "rs", "si", "to", {"a": "x", "n": 2}),
            83483426825,
            ["ci", "mi", "to", "rt", "l", "si", "rs", "ct", {"a": "x", "n": 2}],
        ),
    ],
)
def test_a_filter_has_the_descriptor_and_the_fields_that_clients_read(
    description: Filter, descriptor: int, fields: list[object]
) -> None:
    rule = rule_to_amqp(RuleDescription("r", description, created_at=1_767_225_600_000))
    decoded, _ = decode(encode(rule))
    assert decoded == Described(
        Ulong(1335734829060),
        [
            Described(Ulong(descriptor), fields),
            Described(Ulong(1335734829061), []),
            "r",
            Timestamp(1_767_225_600_000),
        ],
    )
    assert isinstance(decoded, Described)
    assert type(decoded.descriptor) is Ulong


def test_an_action_is_a_described_text() -> None:
    rule = rule_to_amqp(RuleDescription("r", action="SET a = 1"))
    assert isinstance(rule.value, list)
    assert rule.value[1] == Described(Ulong(1335734829062), ["SET a = 1", 20])
    assert type(rule.value[1].value[1]) is Int


def test_the_properties_of_a_filter_have_amqp_types() -> None:
    properties: dict[str, Any] = {
        "int": 5,
        "long": 2**40,
        "ulong": 2**63,
        "double": 0.5,
        "bool": True,
        "at": TypedText("dateTime", "2020-07-05T11:12:13"),
        "ttl": TypedText("duration", "PT1M"),
        "guid": TypedText("guid", str(GUID)),
        "odd": TypedText("dateTime", "soon"),
        "unknown": TypedText("anyURI", "x"),
    }
    rule = rule_to_amqp(RuleDescription("r", CorrelationFilter(properties=properties)))
    assert isinstance(rule.value, list)
    sent = rule.value[0].value[8]
    expected = {
        "int": Int(5),
        "long": Long(2**40),
        "ulong": Ulong(2**63),
        "double": 0.5,
        "bool": True,
        "at": Timestamp(1_593_947_533_000),
        "ttl": SPAN,
        "guid": GUID,
        "odd": "soon",
        "unknown": "x",
    }
    assert sent == expected
    assert [type(value) for value in sent.values()] == [type(value) for value in expected.values()]
    encode(rule)


@pytest.mark.parametrize(
    ("mapping", "rule"),
    [
        ({}, RuleDescription("r")),
        ({"sql-filter": None, "correlation-filter": None, "sql-rule-action": None}, RuleDescription("r")),
        ({"sql-filter": {"expression": "a = 1"}, "rule-name": "x"}, RuleDescription("r", SqlFilter("a = 1"))),
        (
            {Symbol("sql-filter"): {Symbol("expression"): "1=1"}, "sql-rule-action": {"expression": "SET a = 1"}},
            RuleDescription("r", SqlFilter("1=1"), "SET a = 1"),
        ),
        ({"sql-rule-action": {"expression": None}}, RuleDescription("r")),
        ({"correlation-filter": {"label": "l"}}, RuleDescription("r", CorrelationFilter(label="l"))),
        (
            {
                "correlation-filter": {
                    "correlation-id": "ci",
                    "message-id": "mi",
                    "to": "to",
                    "reply-to": "rt",
                    "label": None,
                    "session-id": "si",
                    "reply-to-session-id": "rs",
                    "content-type": Symbol("ct"),
                    "properties": {
                        "a": "x",
                        "n": Int(2),
                        "f": 0.5,
                        "b": True,
                        "at": Timestamp(1_593_947_533_000),
                        "ttl": SPAN,
                        "g": GUID,
                        "none": None,
                    },
                }
            },
            RuleDescription(
                "r",
                CorrelationFilter(
                    content_type="ct",
                    correlation_id="ci",
                    message_id="mi",
                    reply_to="rt",
                    reply_to_session_id="rs",
                    session_id="si",
                    to="to",
                    properties={
                        "a": "x",
                        "n": 2,
                        "f": 0.5,
                        "b": True,
                        "at": TypedText("dateTime", "2020-07-05T11:12:13Z"),
                        "ttl": TypedText("duration", "PT1M"),
                        "g": TypedText("guid", str(GUID)),
                        "none": None,
                    },
                ),
            ),
        ),
    ],
)
def test_the_map_of_add_rule_is_a_rule(mapping: dict[Any, object], rule: RuleDescription) -> None:
    read = rule_from_amqp("r", mapping)
    assert read == rule
    assert RuleDescription.from_json(read.to_json()) == read


@pytest.mark.parametrize(
    ("mapping", "field"),
    [
        ({"sql-filter": "a = 1"}, "sql-filter"),
        ({"sql-filter": {}}, "sql-filter.expression"),
        ({"sql-filter": {"expression": 5}}, "sql-filter.expression"),
        ({"sql-rule-action": []}, "sql-rule-action"),
        ({"sql-rule-action": {"expression": b"x"}}, "sql-rule-action.expression"),
        ({"correlation-filter": 5}, "correlation-filter"),
        ({"correlation-filter": {"message-id": GUID}}, "correlation-filter.message-id"),
        ({"correlation-filter": {"properties": "x"}}, "correlation-filter.properties"),
        ({"correlation-filter": {"properties": {5: "x"}}}, "correlation-filter.properties"),
        ({"correlation-filter": {"properties": {"p": b"x"}}}, "correlation-filter.properties['p']"),
        ({"correlation-filter": {"properties": {"p": Timestamp(2**62)}}}, "correlation-filter.properties['p']"),
        (
            {"correlation-filter": {"properties": {"p": Described(Symbol("x"), 1)}}},
            "correlation-filter.properties['p']",
        ),
        ({"sql-filter": {"expression": "1=1"}, "correlation-filter": {"to": "x"}}, "rule-description"),
    ],
)
def test_a_map_that_is_no_rule_is_refused_by_the_name_of_the_field(mapping: dict[Any, object], field: str) -> None:
    with pytest.raises(BrokerError) as caught:
        rule_from_amqp("r", mapping)
    assert caught.value.condition is Condition.ARGUMENT_ERROR
    assert f"The field {field} cannot be used: " in caught.value.description
