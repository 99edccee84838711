"""Correlation filters [wire 10.9]."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from emubus.broker.message.message import parse_message
from emubus.broker.model.descriptions import CorrelationFilter, TypedText
from emubus.broker.rules import FilterException, MessageContext, compile_filter
from emubus.broker.rules.correlation import FIELDS
from emubus.codec.types import Described, Float, Int, Long, Symbol, Timestamp, Ubyte, Ulong

from .messages import context, encoded

GUID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")


def matches(correlation: CorrelationFilter, user: dict[Any, object] | None = None, **options: Any) -> bool | None:
    return compile_filter(correlation)(context(user, **options))


@pytest.mark.parametrize("field", sorted(FIELDS))
def test_a_field_must_be_equal_with_case_and_be_there(field: str) -> None:
    same: dict[str, Any] = {field: "Value"}
    other_case: dict[str, Any] = {field: "value"}
    others: dict[str, Any] = {other: "Value" for other in FIELDS if other != field}
    asked = CorrelationFilter(**same)
    assert matches(asked, **same) is True
    assert matches(asked, **other_case) is False
    assert matches(asked) is False
    assert matches(asked, {field: "Value"}, **others) is False


def test_all_that_is_given_must_be_equal() -> None:
    asked = CorrelationFilter(label="l", to="t", properties={"a": "x", "b": 2})
    assert matches(asked, {"a": "x", "b": 2, "c": 3}, label="l", to="t", reply_to="r") is True
    assert matches(asked, {"a": "x", "b": 2}, label="l") is False
    assert matches(asked, {"a": "x", "b": 3}, label="l", to="t") is False
    assert matches(asked, {"a": "y", "b": 2}, label="l", to="t") is False
    assert matches(asked, {"b": 2}, label="l", to="t") is False


def test_an_identifier_that_is_no_string_is_compared_by_its_text() -> None:
    assert matches(CorrelationFilter(message_id="7"), message_id=Ulong(7)) is True
    assert matches(CorrelationFilter(correlation_id=str(GUID)), correlation_id=GUID) is True


@pytest.mark.parametrize(
    ("expected", "value", "outcome"),
    [
        ("2", "2", True),
        ("2", Symbol("2"), True),
        ("2", 2, False),
        (2, "2", False),
        (2, Int(2), True),
        (2, Ubyte(2), True),
        (2, 2.0, True),
        (2.0, Long(2), True),
        (0.5, Float(0.5), True),
        (2, 3, False),
        (True, True, True),
        (True, 1, False),
        (1, True, False),
        (True, "True", False),
        ("x", None, False),
        ("x", b"x", False),
        (TypedText("dateTime", "2020-07-05T11:12:13"), Timestamp(1_593_947_533_000), True),
        (TypedText("dateTime", "2020-07-05T11:12:13Z"), Timestamp(1_593_947_533_001), False),
        (TypedText("dateTime", "2020-07-05T11:12:13"), "2020-07-05T11:12:13", False),
        (TypedText("duration", "PT1M"), Described(Symbol("com.microsoft:timespan"), Long(600_000_000)), True),
        (TypedText("guid", str(GUID)), GUID, True),
        (9007199254740993, 9007199254740992, False),
    ],
)
def test_a_property_is_compared_with_its_kind(expected: Any, value: object, outcome: bool) -> None:
    assert matches(CorrelationFilter(properties={"p": expected}), {"p": value}) is outcome


@pytest.mark.parametrize(("asked", "sent"), [("Color", "color"), ("color", "COLOR"), ("Größe", "GRÖSSE"), ("ÅR", "år")])
def test_names_of_properties_have_no_case(asked: str, sent: str) -> None:
    outcome = asked.lower() == sent.lower()  # as in SQL: ß is no SS
    assert matches(CorrelationFilter(properties={asked: "red"}), {sent: "red"}) is outcome
    assert matches(CorrelationFilter(properties={asked: "red"}), {sent: "RED"}) is False


def test_of_properties_that_differ_in_case_only_the_first_counts() -> None:
    assert matches(CorrelationFilter(properties={"colour": "red"}), {"Colour": "red", "colour": "blue"}) is True
    assert matches(CorrelationFilter(properties={"colour": "blue"}), {"Colour": "red", "colour": "blue"}) is False
    assert matches(CorrelationFilter(properties={"Colour": "red", "colour": "red"}), {"COLOUR": "red"}) is True


def test_what_is_none_is_not_compared() -> None:
    assert matches(CorrelationFilter(label="l", properties={"p": None}), label="l") is True
    assert compile_filter(CorrelationFilter()).always is True


def test_a_field_that_cannot_be_read_fails_the_filter_that_compares_it() -> None:
    data = encoded(label="xy").replace(b"\xa1\x02xy", b"\xa1\x02\xff\xff")
    seen = MessageContext(parse_message(data))
    with pytest.raises(FilterException, match="The property Label cannot be read"):
        compile_filter(CorrelationFilter(label="xy"))(seen)
    assert compile_filter(CorrelationFilter(to="xy"))(seen) is False
