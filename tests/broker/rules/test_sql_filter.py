"""SQL filters: what every part of the language means [wire 10.9]."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from emubus.broker.message.message import parse_message
from emubus.broker.model.descriptions import PropertyValue, SqlFilter, TypedText
from emubus.broker.rules import FilterException, MessageContext, compile_filter
from emubus.codec.types import (
    Byte,
    Char,
    Decimal128,
    Described,
    Float,
    Int,
    Long,
    Short,
    Symbol,
    Timestamp,
    Ubyte,
    Uint,
    Ulong,
    Ushort,
)

from .messages import APPLICATION, context, encoded, message, section, truth

T, F, U = True, False, None
GUID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")

# `t` is a true condition, `f` a false one, `u` an UNKNOWN one in a message without properties.
CONDITIONS = {"t": "1 = 1", "f": "1 = 2", "u": "missing = 1"}
LOGIC = [
    ("t AND t", T),
    ("t AND f", F),
    ("f AND t", F),
    ("f AND f", F),
    ("u AND t", U),
    ("t AND u", U),
    ("u AND f", F),
    ("f AND u", F),
    ("u AND u", U),
    ("t OR t", T),
    ("t OR f", T),
    ("f OR t", T),
    ("f OR f", F),
    ("u OR t", T),
    ("t OR u", T),
    ("u OR f", U),
    ("f OR u", U),
    ("u OR u", U),
    ("NOT t", F),
    ("NOT f", T),
    ("NOT u", U),
    ("NOT NOT t", T),
    ("NOT NOT NOT t", F),
    ("t OR t AND f", T),
    ("(t OR t) AND f", F),
    ("f AND f OR t", T),
    ("f AND (f OR t)", F),
    ("NOT f AND f", F),
    ("NOT (f AND f)", T),
    ("NOT t OR t", T),
    ("t and not f Or u", T),
    ("((t))", T),
]


@pytest.mark.parametrize(("formula", "expected"), LOGIC)
def test_conditions_combine_in_three_valued_logic(formula: str, expected: bool | None) -> None:
    words = [CONDITIONS.get(word, word) for word in formula.replace("(", "( ").replace(")", " )").split()]
    assert truth(" ".join(words)) is expected


EXPRESSIONS: list[tuple[str, bool | None]] = [
    # constants
    ("1 = 1", T),
    ("1.5 = 1.5E0", T),
    (".5 = 0.5", T),
    ("5. = 5", T),
    ("15e-1 = 1.5", T),
    ("9223372036854775807 > 9223372036854775806", T),
    ("-9223372036854775808 < 0", T),
    ("'it''s' = 'it''s'", T),
    ("'' = ''", T),
    ("'grüße ''🚌''' LIKE 'gr__e ''%'", T),
    ("TRUE = true", T),
    ("TRUE = FALSE", F),
    ("NULL = NULL", U),
    ("n = NULL", U),
    # comparison
    ("n = 5", T),
    ("n <> 5", F),
    ("n != 6", T),
    ("n > 4", T),
    ("n >= 5", T),
    ("n < 5", F),
    ("n <= 5", T),
    ("5 = n", T),
    ("s = 'text'", T),
    ("s = 'TEXT'", F),
    ("s < 'texu'", T),
    ("s >= 'text'", T),
    ("'text' = s", T),
    ("b = TRUE", T),
    ("b <> FALSE", T),
    ("b > FALSE", U),
    ("b = 1", U),
    ("n = '5'", U),
    ("s = 5", U),
    ("s > 5", U),
    ("'5' = n", U),
    ("n = n", T),
    ("s = other", U),
    ("g = g", T),
    ("g > g", U),
    ("g = '00112233-4455-6677-8899-aabbccddeeff'", U),
    ("at = at", T),
    ("at > at", F),
    ("at = '2020-01-01'", U),
    ("bin = bin", U),
    ("missing = 1", U),
    ("missing <> 1", U),
    ("nothing = 1", U),
    # arithmetic
    ("1 + 2 * 3 = 7", T),
    ("(1 + 2) * 3 = 9", T),
    ("10 - 4 - 3 = 3", T),
    ("100 / 10 / 2 = 5", T),
    ("7 / 2 = 3", T),
    ("-7 / 2 = -3", T),
    ("7 / 2.0 = 3.5", T),
    ("7 % 3 = 1", T),
    ("-7 % 3 = -1", T),
    ("7 % -3 = 1", T),
    ("7.5 % 2 = 1.5", T),
    ("n * 2 = 10", T),
    ("n + 0.5 = 5.5", T),
    ("-n = -5", T),
    ("+n = 5", T),
    ("- - n = 5", T),
    ("-+-+n = 5", T),
    ("3 - -2 = 5", T),
    ("3-2 = 1", T),
    ("-s = 1", U),
    ("+s = 'text'", U),
    ("missing + 1 = 1", U),
    ("-missing = 1", U),
    ("b + 1 = 2", U),
    ("s - 'x' = 1", U),
    ("1.0 / 0 > 1E300", T),
    ("0.0 / 0 = 0.0 / 0", F),
    ("9223372036854775807 + 1 = -9223372036854775808", T),
    ("9223372036854775807 * 2 = -2", T),
    ("9007199254740993 = 9007199254740992.0", T),
    ("9007199254740993 = 9007199254740992", F),
    ("s + '-' + n = 'text-5'", T),
    ("'a' + TRUE = 'aTrue'", T),
    ("'a' + 1.50 = 'a1.5'", T),
    ("'a' + 2.0 = 'a2'", T),
    ("'a' + missing = 'a'", U),
    # IS NULL and EXISTS
    ("n IS NULL", F),
    ("n IS NOT NULL", T),
    ("missing IS NULL", T),
    ("missing IS NOT NULL", F),
    ("nothing IS NULL", T),
    ("bin IS NULL", F),
    ("sys.Label IS NULL", T),
    ("sys.To IS NOT NULL", F),
    ("EXISTS(n)", T),
    ("EXISTS ( user.n )", T),
    ("EXISTS(nothing)", T),
    ("EXISTS(missing)", F),
    ("NOT EXISTS(missing)", T),
    ("EXISTS(sys.Label)", F),
    ("EXISTS(sys.Size)", T),
    # IN
    ("n IN (1, 5)", T),
    ("n IN (1, 2)", F),
    ("n NOT IN (1, 2)", T),
    ("n NOT IN (5)", F),
    ("n IN (2 + 3)", T),
    ("n + 1 IN (6)", T),
    ("s IN ('a', 'text')", T),
    ("n IN ('a', 5)", T),
    ("n IN ('a', 6)", U),
    ("n NOT IN ('a', 6)", U),
    ("n IN (missing, 5)", T),
    ("n IN (NULL, 6)", U),
    ("missing IN (1)", U),
    ("missing NOT IN (1)", U),
    # LIKE
    ("s LIKE 'te%'", T),
    ("s LIKE 'T%'", F),
    ("s NOT LIKE 'x%'", T),
    ("s LIKE '_e_t'", T),
    ("s LIKE 't' + '%'", T),
    ("'100%' LIKE '100!%' ESCAPE '!'", T),
    ("'100x' LIKE '100!%' ESCAPE '!'", F),
    ("s LIKE s", T),
    ("n LIKE '5'", U),
    ("missing LIKE '%'", U),
    ("missing NOT LIKE '%'", U),
    ("s LIKE missing", U),
    ("s LIKE n", U),
    ("s LIKE NULL", U),
    ("s LIKE 'a' ESCAPE NULL", U),
    ("s LIKE 'te%' ESCAPE missing", U),
    ("s + 'x' LIKE 'textx'", T),
    # functions
    ("property('n') = 5", T),
    ("p('N') = 5", T),
    ("p('user.n') = 5", T),
    # Users of the service report that property() finds no system property (MicrosoftDocs/azure-docs, thread 87667).
    ("p('sys.Size') > 0", U),
    ("p('Size') > 0", U),
    ("p('sys.Mine') = 11", T),
    ("p('user.mine') = 12", T),
    ("p('s' + '') = 'text'", T),
    ("p(name) = 5", T),
    ("P(missing) = 5", U),
    ("p(n) = 5", U),
    ("p(5) = 5", U),
    ("p('gone') = 5", U),
    ("newid() = newid()", F),
    ("newid() <> newid()", T),
    ("NewID() = 'x'", U),
    # names
    ("user.n = 5", T),
    ("USER.N = 5", T),
    ("[n] = 5", T),
    ('"n" = 5', T),
    ("user.[N] = 5", T),
    ("[with space] = 1", T),
    ("[a]]b] = 2", T),
    ('"say ""x""" = 3', T),
    ("p = 4", T),
    ("grüße = 5", T),
    ("user . n = 5", T),
    ("set = 6", T),
    ("[in] = 7", T),
    # letters of a keyword at the beginning of a name
    ("index = 8 AND notes = 9 AND order1 = 10", T),
]
USER: dict[Any, object] = {
    "n": 5,
    "s": "text",
    "b": True,
    "g": GUID,
    "at": Timestamp(1_600_000_000_000),
    "bin": b"\0",
    "nothing": None,
    "name": "n",
    "with space": 1,
    "a]b": 2,
    'say "x"': 3,
    "p": 4,
    "grüße": 5,
    "set": 6,
    "in": 7,
    "index": 8,
    "notes": 9,
    "order1": 10,
    "sys.mine": 11,
    "user.mine": 12,
}


@pytest.mark.parametrize(("expression", "expected"), EXPRESSIONS)
def test_an_expression_has_its_truth(expression: str, expected: bool | None) -> None:
    assert truth(expression, USER) is expected
    assert truth(f"NOT ({expression})", USER) is (None if expected is None else not expected)


@pytest.mark.parametrize(
    "value", [Byte(5), Short(5), Int(5), Long(5), Ubyte(5), Ushort(5), Uint(5), Ulong(5), Float(5), 5.0]
)
def test_all_widths_of_numbers_compare_by_value(value: object) -> None:
    assert truth("n = 5 AND n < 5.5 AND n + 1 = 6 AND n IN (5)", {"n": value}) is True


@pytest.mark.parametrize(
    ("value", "expression", "expected"),
    [
        (Symbol("x"), "v = 'x'", T),
        (Char("x"), "v = 'x'", T),
        (Float(0.1), "v = 0.1", F),
        (Ulong(2**64 - 1), "v > 9223372036854775807", T),
        (Decimal128(bytes(16)), "v = 0", T),
        ([1], "v = 1", U),
        (Described(Symbol("com.microsoft:uri"), "http://x/"), "v = 'http://x/'", T),
        (Described(Symbol("com.microsoft:timespan"), Long(5)), "v = v", T),
        (Described(Symbol("com.microsoft:timespan"), Long(5)), "v > 1", U),
        (Described(Symbol("com.microsoft:timespan"), "5"), "v = v", U),
        (Described(Symbol("com.microsoft:datetime-offset"), Long(637_134_336_000_000_000)), "v = v", T),
        (Described(Symbol("other"), 5), "v = 5", U),
        (Described(Ulong(5), 5), "v = 5", U),
    ],
)
def test_values_of_other_types_compare_with_their_own_kind(
    value: object, expression: str, expected: bool | None
) -> None:
    assert truth(expression, {"v": value}) is expected


def test_of_properties_that_differ_in_case_only_the_first_counts() -> None:
    assert truth("COLOUR = 'red'", {"Colour": "red", "colour": "blue"}) is True


SYSTEM: list[tuple[str, dict[str, Any], bool | None]] = [
    ("sys.ContentType = 'text/plain'", {"content_type": Symbol("text/plain")}, T),
    ("sys.CorrelationId = 'c'", {"correlation_id": "c"}, T),
    ("sys.CorrelationId = '7'", {"correlation_id": Ulong(7)}, T),
    ("sys.Label = 'l' AND sys.Subject = 'l'", {"label": "l"}, T),
    ("SYS.label = 'l' AND sys.[Label] = 'l'", {"label": "l"}, T),
    ("sys.Label = 'L'", {"label": "l"}, F),
    ("sys.Label = 'l'", {}, U),
    ("sys.MessageId = 'm'", {"message_id": "m"}, T),
    (f"sys.MessageId = '{GUID}'", {"message_id": GUID}, T),
    ("sys.MessageId = '00ff'", {"message_id": b"\x00\xff"}, T),
    ("sys.To LIKE 'queue%'", {"to": "queue-1"}, T),
    ("sys.ReplyTo = 'r'", {"reply_to": "r"}, T),
    ("sys.SessionId = 's'", {"session_id": "s"}, T),
    ("sys.ReplyToSessionId = 'rs'", {"reply_to_session_id": "rs"}, T),
    ("sys.PartitionKey = 'k'", {"partition_key": "k"}, T),
    ("sys.ViaPartitionKey IS NULL", {}, T),
    ("sys.ForcePersistence = TRUE", {"ttl_ms": 5}, T),
    ("sys.TimeToLive IS NULL", {}, T),
    ("sys.TimeToLive IS NOT NULL", {"ttl_ms": 5}, T),
    ("sys.ExpiresAtUtc > sys.EnqueuedTimeUtc", {"ttl_ms": 5}, T),
    ("sys.ScheduledEnqueueTimeUtc > sys.EnqueuedTimeUtc", {"scheduled_at": 2_000_000}, T),
    ("sys.EnqueuedTimeUtc IS NOT NULL AND sys.SequenceNumber = 7", {}, T),
    ("sys.EnqueuedSequenceNumber IS NULL AND sys.DeadLetterSource IS NULL", {}, T),
    ("sys.LockToken IS NULL AND sys.LockedUntilUtc IS NULL", {}, T),
    ("sys.DeliveryCount = 0 AND sys.State = 0", {}, T),
    ("sys.Size > 10 AND sys.Size < 1000", {}, T),
]


@pytest.mark.parametrize(("expression", "options", "expected"), SYSTEM)
def test_a_system_property_is_that_of_the_message(
    expression: str, options: dict[str, Any], expected: bool | None
) -> None:
    seen = MessageContext(message(**options), enqueued_at=1_000_000, sequence_number=7)
    assert compile_filter(SqlFilter(expression))(seen) is expected


def test_parameters_are_constants_with_their_types() -> None:
    parameters: dict[str, PropertyValue] = {
        "@text": "x",
        "number": 5,
        "@Flag": True,
        "@at": TypedText("dateTime", "2020-07-05T11:12:13"),
        "@ttl": TypedText("duration", "PT1M"),
        "@none": None,
    }
    user = {"s": "x", "n": Int(5), "b": True, "at": Timestamp(1_593_947_533_000)}

    def says(expression: str) -> bool | None:
        return compile_filter(SqlFilter(expression, parameters))(context(user, ttl_ms=60_000))

    assert says("s = @text AND n = @number AND b = @flag AND at = @at AND sys.TimeToLive = @ttl") is True
    assert says("at >= @AT AND sys.TimeToLive <= @ttl AND n IN (@number)") is True
    assert says("s = @number") is None
    assert says("s = @none") is None


@pytest.mark.parametrize("expression", ["1 = 1", " 1=1 ", "2 > 1", "NOT 1 = 0", "1=1 AND 'a' LIKE 'a'"])
def test_a_filter_that_is_always_true_is_known_to_be(expression: str) -> None:
    assert compile_filter(SqlFilter(expression)).always is True


@pytest.mark.parametrize("expression", ["1 = 0", "1=0", "1 = 'a'", "NULL = NULL", "1=0 OR 2=3"])
def test_a_filter_that_is_never_true_is_known_to_be(expression: str) -> None:
    assert compile_filter(SqlFilter(expression)).always is False


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("1 / n = 1", "Attempted to divide by zero."),
        ("1 % n = 1", "Attempted to divide by zero."),
        ("1 / 0 = 1", "Attempted to divide by zero."),
        ("missing = 1 AND 1 / n = 1", "Attempted to divide by zero."),
        ("-9223372036854775808 / (n - 1) = 1", "Arithmetic operation resulted in an overflow."),
        ("'a' LIKE '%' ESCAPE long", "LIKE: the ESCAPE of LIKE must be one character, not 2"),
        ("'a' LIKE bang ESCAPE bang", "LIKE: a LIKE pattern must not end with its escape character"),
        ("big + big = 'x'", "A string of 40000 characters is longer than 32768."),
    ],
)
def test_a_filter_that_cannot_be_evaluated_says_why(expression: str, problem: str) -> None:
    user = {"n": 0, "long": "ab", "bang": "!", "big": "x" * 20_000}
    with pytest.raises(FilterException) as caught:
        truth(expression, user)
    assert str(caught.value) == problem


def test_what_settles_the_result_first_keeps_the_rest_from_failing() -> None:
    assert truth("n <> 0 AND 1 / n = 1", {"n": 0}) is False
    assert truth("n = 0 OR 1 / n = 1", {"n": 0}) is True
    assert truth("n IN (0, 1 / n)", {"n": 0}) is True


def test_application_properties_that_cannot_be_decoded_fail_only_the_rules_that_ask_for_them() -> None:
    broken = encoded().replace(section(0x75, b"body"), section(APPLICATION, {"a": "xy"}) + section(0x75, b"body"))
    broken = broken.replace(b"\xa1\x02xy", b"\xa1\x02\xff\xff")
    seen = MessageContext(parse_message(broken))
    assert compile_filter(SqlFilter("sys.Size > 0"))(seen) is True
    with pytest.raises(FilterException, match="application properties cannot be read"):
        compile_filter(SqlFilter("a = 'x'"))(seen)


def test_a_field_that_cannot_be_decoded_fails_only_the_rules_that_ask_for_it() -> None:
    seen = MessageContext(parse_message(encoded(label="xy", to="t").replace(b"\xa1\x02xy", b"\xa1\x02\xff\xff")))
    assert compile_filter(SqlFilter("sys.To = 't'"))(seen) is True
    with pytest.raises(FilterException, match="The property Label cannot be read"):
        compile_filter(SqlFilter("sys.Label = 'x'"))(seen)
