"""Message selectors of JMS: the language, three-valued logic, header fields, and where a bad one is at fault."""

from __future__ import annotations

import uuid

import pytest

from emubus.broker.message.message import parse_message
from emubus.broker.model.descriptions import RuleDescription, SelectorFilter
from emubus.broker.model.profiles import Profile, limits_for
from emubus.broker.rules import FilterError, FilterException, MessageContext, Truth, check_rule, compile_filter
from emubus.codec.types import Int, Timestamp, Ubyte, Uint, Ulong

from .messages import APPLICATION, HEADER, PROPERTIES, section

USER = {"a": Int(1), "b": 2.5, "name": "John O'Hara", "urgent": True, "Done": False, "$x_1": "x", "ü": "u"}


def truth(
    selector: str, *, delivery_count: int = 0, fields: list[object] | None = None, header: object = None
) -> Truth:
    data = section(HEADER, header) if header is not None else b""
    if fields is not None:
        data += section(PROPERTIES, fields)
    message = parse_message(data + section(APPLICATION, USER))
    return compile_filter(SelectorFilter(selector))(MessageContext(message, delivery_count=delivery_count))


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        # identifiers
        ("a = 1", True),
        ("A = 1", None),
        ("$x_1 = 'x'", True),
        ("ü = 'u'", True),
        ('"a" = 1', True),
        ("missing = 1", None),
        # bare booleans
        ("urgent", True),
        ("NOT urgent", False),
        ("urgent AND NOT Done", True),
        ("(urgent)", True),
        ("a", False),
        ("missing", None),
        ("TRUE", True),
        ("false OR urgent", True),
        ("urgent = TRUE", True),
        ("urgent <> true", False),
        ("urgent > FALSE", False),
        # literals
        ("a = 1L AND a = 0x1 AND a = 01", True),
        ("8 = 010 AND 255 = 0xFF", True),
        ("7. = 7 AND .5 = 0.5 AND 7E3 = 7000 AND 2f = 2.0D", True),
        ("name = 'John O''Hara'", True),
        ("9223372036854775807 > 0", True),
        ("-9223372036854775808 < 0", True),
        # comparison
        ("b >= 2.5 AND b <= 2.5 AND b < 3 AND b > 2 AND b <> 2", True),
        ("name <> 'x'", True),
        ("name > 'A'", False),
        ("NOT name > 'A'", True),
        ("name = 1", False),
        ("name <> 1", False),
        ("NOT name = 1", True),
        ("missing <> 1", None),
        ("a = NULL", None),
        # arithmetic
        ("a + 1 = 2 AND a - 1 = 0 AND a * 3 = 3 AND 7 / 2 = 3 AND 7 % 2 = 1", True),
        ("-a = -1 AND +a = 1 AND - - a = 1", True),
        ("(a + 1) * 2 = 4", True),
        ("missing + 1 = 2", None),
        # between, in, like, null
        ("a BETWEEN 1 AND 2", True),
        ("a NOT BETWEEN 1 AND 2", False),
        ("a between 2 and 3 or b between 2 and 3", True),
        ("missing BETWEEN 1 AND 2", None),
        ("name IN ('x', 'John O''Hara')", True),
        ("name NOT IN ('x')", True),
        ("a IN ('1')", False),
        ("missing IN ('x')", None),
        ("missing NOT IN ('x')", None),
        ("name LIKE 'John%'", True),
        ("name NOT LIKE '_ohn%'", False),
        ("$x_1 LIKE '!%' ESCAPE '!'", False),
        ("missing LIKE '%'", None),
        ("missing IS NULL AND a IS NOT NULL", True),
        # three values
        ("missing = 1 OR a = 1", True),
        ("missing = 1 AND a = 2", False),
        ("missing = 1 AND a = 1", None),
        ("NOT missing = 1", None),
        # what Qpid JMS lets through
        ("a = 1 -- a comment", True),
        ("a /* another * one */ = 1", True),
    ],
)
def test_what_a_selector_says_to_a_message(selector: str, expected: Truth) -> None:
    assert truth(selector) is expected


@pytest.mark.parametrize(
    ("selector", "position"),
    [
        ("a = = 1", (1, 5)),
        ("a =", (1, 4)),
        ("(a = 1", (1, 7)),
        ("a = 'x", (1, 5)),
        ("sys.Label = 'x'", (1, 4)),
        ("a != 1", (1, 3)),
        ("a =\n@p", (2, 1)),
        ("a = 09", (1, 5)),
        ("a = 9223372036854775809", (1, 5)),
        ("a IN (1)", (1, 1)),
        ("a LIKE b", (1, 1)),
        ("1 IN ('x')", (1, 1)),
        ("a + 1", (1, 1)),
        ("'text'", (1, 1)),
        ("(a = 1) = 1", (1, 1)),
        ("-(a = 1) = 1", (1, 1)),
        ('"" = 1', (1, 1)),
        ("name LIKE 'x' ESCAPE 'ab'", (1, 6)),
        ("", (1, 1)),
    ],
)
def test_a_bad_selector_is_refused_with_the_place_of_its_fault(selector: str, position: tuple[int, int]) -> None:
    with pytest.raises(FilterError, match="Selector: ") as caught:
        compile_filter(SelectorFilter(selector))
    assert (caught.value.line, caught.value.column) == position


def test_header_fields_have_the_values_that_qpid_jms_shows() -> None:
    fields: list[object] = [
        *("ID:1", b"me", None, "kind", None, "corr", None, None, None, Timestamp(1_700_000_000_123), "group", Uint(7)),
    ]
    own = "JMSMessageID = 'ID:1' AND JMSXUserID = 'me' AND JMSType = 'kind' AND JMSCorrelationID = 'corr'"
    assert truth(own, fields=fields)
    assert truth("JMSTimestamp = 1700000000123 AND JMSXGroupID = 'group' AND JMSXGroupSeq = 7", fields=fields)
    assert truth("JMSXDeliveryCount = 3", delivery_count=2)
    assert truth("JMSPriority = 9 AND JMSDeliveryMode = 'PERSISTENT'", header=[True, Ubyte(9)])
    assert truth("JMSPriority = 4 AND JMSDeliveryMode = 'NON_PERSISTENT'")
    absent = "JMSMessageID IS NULL AND JMSTimestamp IS NULL AND JMSXUserID IS NULL AND JMSCorrelationID IS NULL"
    assert truth(absent)
    assert truth("jmspriority = 4") is None


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("mine", "ID:AMQP_NO_PREFIX:mine"),
        ("ID:AMQP_UUID:1", "ID:AMQP_STRING:ID:AMQP_UUID:1"),
        (uuid.UUID(int=1), "ID:AMQP_UUID:00000000-0000-0000-0000-000000000001"),
        (Ulong(5), "ID:AMQP_ULONG:5"),
        (b"\xab", "ID:AMQP_BINARY:AB"),
    ],
)
def test_a_message_id_of_another_client_is_compared_as_qpid_jms_shows_it(raw: object, shown: str) -> None:
    assert truth(f"JMSMessageID = '{shown}'", fields=[raw])


def test_a_division_by_zero_is_an_error_of_the_evaluation() -> None:
    with pytest.raises(FilterException, match="divide by zero"):
        truth("a / 0 = 1")


@pytest.mark.parametrize("name", ["JMSType", "JMSMessageID", "JMSCorrelationID", "JMSXGroupID"])
def test_a_header_field_that_can_t_be_read_is_an_error_of_the_evaluation(name: str) -> None:
    field = b"\xa1\x01\xff"
    at = {"JMSMessageID": 0, "JMSType": 3, "JMSCorrelationID": 5, "JMSXGroupID": 10}[name]
    items = b"\x40" * at + field
    message = parse_message(b"\x00\x53\x73\xc0" + bytes((len(items) + 1, at + 1)) + items)
    with pytest.raises(FilterException, match=f"The header field {name} cannot be read"):
        compile_filter(SelectorFilter(f"{name} = 'x'"))(MessageContext(message))


def test_a_selector_is_kept_as_one_and_obeys_the_limits_of_rules() -> None:
    rule = RuleDescription("$Default", SelectorFilter("urgent"))
    assert RuleDescription.from_json(rule.to_json()) == rule
    assert type(RuleDescription.from_json(rule.to_json()).filter) is SelectorFilter
    limits = limits_for(Profile.PREMIUM)
    check_rule(rule, limits)
    with pytest.raises(FilterError, match="characters long"):
        check_rule(RuleDescription("$Default", SelectorFilter("a = 1 OR " * 1000 + "a = 1")), limits)
