"""SQL actions: what they change, and that they change nothing else [wire 10.9]."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

import pytest

from emubus.broker.message.message import Message, parse_message
from emubus.broker.model.profiles import DAY_MS
from emubus.broker.rules import FilterException, MessageContext
from emubus.broker.rules.sql.action import compile_action
from emubus.codec.encode import encode
from emubus.codec.sections import APPLICATION_PROPERTIES, HEADER, MESSAGE_ANNOTATIONS, PROPERTIES
from emubus.codec.types import (
    Byte,
    Char,
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

from .messages import APPLICATION, FIELDS, context, encoded, section

GUID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
SPAN = Described(Symbol("com.microsoft:timespan"), Long(600_000_000))


def applied(text: str, user: Mapping[Any, object] | None = None, **options: Any) -> Message:
    return compile_action(text).apply(context(user, **options))


def user_after(text: str, user: Mapping[Any, object] | None = None, **options: Any) -> dict[str, object]:
    return applied(text, user, **options).application_properties()


def typed(values: Mapping[str, object]) -> dict[str, tuple[type, object]]:
    """The values with their types, which `==` does not look at."""
    return {name: (type(value), value) for name, value in values.items()}


@pytest.mark.parametrize(
    ("text", "before", "after"),
    [
        ("SET a = 1", {}, {"a": Long(1)}),
        ("SET user.a = 'x'; SET b = TRUE;", {}, {"a": "x", "b": True}),
        ("set [a b] = 1.5", {}, {"a b": 1.5}),
        ("SET a = 2", {"a": Long(1), "b": "x"}, {"a": Long(2), "b": "x"}),
        ("SET A = 2", {"a": Long(1)}, {"a": Long(2)}),
        ("SET a = b + 1", {"b": Int(4)}, {"b": Int(4), "a": Long(5)}),
        ("SET a = b", {"b": Int(4)}, {"b": Int(4), "a": Int(4)}),
        ("SET a = B", {"b": b"raw"}, {"b": b"raw", "a": b"raw"}),
        ("SET a = b", {"b": ["list"]}, {"b": ["list"], "a": ["list"]}),
        ("SET a = a + 1 SET b = a\nSET a = 0", {"a": Int(1)}, {"a": Int(0), "b": Int(2)}),
        ("SET a = missing", {}, {}),
        ("SET a = missing + 1", {"a": Int(1)}, {"a": None}),
        ("SET a = NULL", {"a": Int(1)}, {"a": None}),
        ("SET a = 1; SET a = NULL", {}, {"a": None}),
        ("SET a = 5", {"a": None}, {"a": Long(5)}),
        ("REMOVE a", {"a": 1, "b": Long(2)}, {"b": Long(2)}),
        ("REMOVE A; REMOVE missing", {"a": 1, "b": Long(2)}, {"b": Long(2)}),
        ("REMOVE a", {"a": 1, "A": 2}, {}),
        ("SET a = b; REMOVE b", {"b": "x"}, {"a": "x"}),
        ("REMOVE b; SET a = b", {"b": "x"}, {}),
        ("REMOVE a SET a = 5", {"a": "text"}, {"a": Long(5)}),
        ("SET a = 'n' + 1", {}, {"a": "n1"}),
        ("SET a = property('b')", {"b": Int(4)}, {"b": Int(4), "a": Int(4)}),
        ("SET a = sys.Label + '!'", {}, {"a": "label!"}),
        ("SET a = 1; SET sys.Label = 'new'; SET b = sys.Label", {}, {"a": Long(1), "b": "new"}),
        ("REMOVE sys.Label; SET b = sys.Label", {}, {}),
    ],
)
def test_an_action_changes_application_properties(
    text: str, before: dict[Any, object], after: dict[str, object]
) -> None:
    assert typed(user_after(text, before, label="label")) == typed(after)


@pytest.mark.parametrize(
    ("replaced", "value", "outcome"),
    [
        *((make(1), "200 - 195", make(5)) for make in (Byte, Short, Int, Long, Ubyte, Ushort, Uint, Ulong)),
        (Byte(1), "200", Long(200)),
        (Ubyte(1), "-1", Long(-1)),
        (Int(1), "'7'", Int(7)),
        (Int(1), "'seven'", "seven"),
        (Int(1), "'1_0'", "1_0"),
        (Int(1), "7.0", Int(7)),
        (Int(1), "7.5", 7.5),
        (Int(1), "TRUE", True),
        (1.5, "2", 2.0),
        (1.5, "'2.5'", 2.5),
        (Float(1.5), "2", Float(2)),
        (Float(1.5), "1E300", 1e300),
        ("text", "5", "5"),
        ("text", "2.0", "2"),
        ("text", "TRUE", "True"),
        (Symbol("text"), "'new'", Symbol("new")),
        (Symbol("text"), "'ä'", "ä"),
        (Char("t"), "'x'", Char("x")),
        (Char("t"), "'xy'", "xy"),
        (True, "'FALSE'", False),
        (True, "0", Long(0)),
        (Timestamp(1), "'2020-07-05T11:12:13Z'", Timestamp(1_593_947_533_000)),
        (Timestamp(1), "'soon'", "soon"),
        (Timestamp(1), "5", Long(5)),
        (GUID, f"'{GUID.hex}'", GUID),
        (GUID, "'x'", "x"),
        (SPAN, "'00:02:00'", Described(Symbol("com.microsoft:timespan"), Long(1_200_000_000))),
        (SPAN, "'PT2M'", Described(Symbol("com.microsoft:timespan"), Long(1_200_000_000))),
        (SPAN, "5", Long(5)),
        (b"raw", "5", Long(5)),
    ],
)
def test_set_keeps_the_type_that_is_there_if_the_value_fits_it(replaced: object, value: str, outcome: object) -> None:
    assert typed(user_after(f"SET a = {value}", {"a": replaced})) == typed({"a": outcome})


SYSTEM_SETTERS = {
    "CorrelationId": "correlation_id",
    "Label": "label",
    "Subject": "label",
    "MessageId": "message_id",
    "ReplyTo": "reply_to",
    "ReplyToSessionId": "reply_to_session_id",
    "SessionId": "session_id",
    "To": "to",
}


@pytest.mark.parametrize("name", sorted(SYSTEM_SETTERS))
@pytest.mark.parametrize("old", [None, "old"])
def test_an_action_sets_and_clears_a_field(name: str, old: str | None) -> None:
    field = SYSTEM_SETTERS[name]
    options: dict[str, Any] = {} if old is None else {field: old}
    changed = applied(f"SET sys.{name} = 'n' + 5", **options)
    assert changed.field(FIELDS[field]) == "n5"
    assert applied(f"REMOVE sys.{name}", **options).field(FIELDS[field]) is None
    assert applied(f"SET sys.{name} = missing", **options).field(FIELDS[field]) is None


def test_numbers_and_other_values_become_the_text_of_a_system_property() -> None:
    user = {"g": GUID, "at": Timestamp(1_593_947_533_000), "t": SPAN}
    text = "SET sys.Label = 5 SET sys.To = g SET sys.ReplyTo = at SET sys.CorrelationId = t SET sys.SessionId = TRUE"
    changed = applied(text, user)
    fields = [changed.field(FIELDS[name]) for name in ("label", "to", "reply_to", "correlation_id", "session_id")]
    assert fields == ["5", str(GUID), "2020-07-05T11:12:13Z", "00:01:00", "True"]


def test_the_content_type_is_a_symbol() -> None:
    changed = applied("SET sys.ContentType = 'text/plain'")
    assert type(changed.field(FIELDS["content_type"])) is Symbol
    assert changed.field(FIELDS["content_type"]) == "text/plain"


def test_an_action_sets_keys_and_time_to_live() -> None:
    changed = applied("SET sys.PartitionKey = 'k'; SET sys.TimeToLive = '00:01:00'; SET sys.ForcePersistence = 'true'")
    assert (changed.partition_key, changed.ttl_ms, changed.durable) == ("k", 60_000, True)
    cleared = applied(
        "REMOVE sys.PartitionKey REMOVE sys.TimeToLive REMOVE sys.ForcePersistence", partition_key="k", ttl_ms=5
    )
    assert (cleared.partition_key, cleared.ttl_ms, cleared.durable) == (None, None, False)
    assert applied("SET sys.TimeToLive = 'P100D'").ttl_ms == 0xFFFF_FFFF


@pytest.mark.parametrize(
    ("sent", "ttl_ms", "expiry"),
    [
        (
            {"absolute_expiry_time": Timestamp(1_005), "creation_time": Timestamp(1_000)},
            100 * DAY_MS,
            100 * DAY_MS + 1_000,
        ),
        ({"absolute_expiry_time": Timestamp(1_005)}, 0xFFFF_FFFF, None),
        ({"creation_time": Timestamp(1_000)}, 0xFFFF_FFFF, None),
    ],
)
def test_a_time_to_live_that_is_set_moves_the_expiry_of_the_sender(
    sent: dict[str, Any], ttl_ms: int, expiry: int | None
) -> None:
    changed = applied("SET sys.TimeToLive = 'P100D'", ttl_ms=5, **sent)
    assert (changed.ttl_ms, changed.times()[0]) == (ttl_ms, expiry)
    cleared = applied("REMOVE sys.TimeToLive", ttl_ms=5, **sent)
    assert (cleared.ttl_ms, cleared.times()[0]) == (None, None)


def test_the_session_id_of_the_copy_is_the_one_that_was_set() -> None:
    assert applied("SET sys.SessionId = 'other'", session_id="mine").session_id == "other"


def test_a_scheduled_enqueue_time_can_be_set_without_effect() -> None:
    before = context({"a": 1}, scheduled_at=1_000)
    action = compile_action("SET sys.ScheduledEnqueueTimeUtc = '2030-01-01'; REMOVE sys.ScheduledEnqueueTimeUtc")
    assert action.apply(before).located()[0] == before.message.located()[0]


def test_a_copy_tells_the_rule_that_made_it() -> None:
    copy = compile_action("SET a = 1").apply(context({"RuleName": Long(7)}), "mine")
    assert typed(copy.application_properties()) == typed({"RuleName": "mine", "a": Long(1)})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("SET sys.Label = bin", "SET sys.Label: this value has no text"),
        ("SET sys.MessageId = long", "SET sys.MessageId: 129 characters are more than 128"),
        ("SET sys.SessionId = long", "SET sys.SessionId: 129 characters are more than 128"),
        ("SET sys.PartitionKey = long", "SET sys.PartitionKey: 129 characters are more than 128"),
        ("SET sys.ContentType = umlaut", "SET sys.ContentType: 'ä' is not ASCII"),
        ("SET sys.TimeToLive = umlaut", "SET sys.TimeToLive: 'ä' is not an ISO 8601 duration such as 'PT1M' or 'P14D'"),
        ("SET sys.TimeToLive = bin", "SET sys.TimeToLive: 'a value' is no time span above zero"),
        ("SET sys.ForcePersistence = umlaut", "SET sys.ForcePersistence: the value is no boolean"),
        ("SET sys.To = far", "An instant lies outside the years 1 to 9999."),
        ("SET a = property('b' + 'in')", "SET: a list, a map or a binary value can't be computed"),
        ("SET a = 1 / zero", "Attempted to divide by zero."),
        ("SET a = long + long" + " SET a = a + a" * 20, "A string of 33024 characters is longer than 32768."),
    ],
)
def test_an_action_that_cannot_be_run_says_why(text: str, problem: str) -> None:
    user = {"bin": b"x", "long": "x" * 129, "umlaut": "ä", "zero": 0, "far": Timestamp(2**62)}
    with pytest.raises(FilterException) as caught:
        applied(text, user)
    assert str(caught.value) == problem


# ---------------------------------------------------------------- what is not touched keeps its bytes


def sections_of(message: Message) -> list[bytes]:
    data, at = message.located()
    return [data[at[rank] : at[rank + 7]] if at[rank + 7] else b"" for rank in range(7)]


WHOLE: dict[str, Any] = {"ttl_ms": 5, "partition_key": "k", "label": "l", "to": "t", "message_id": GUID}


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        ("SET a = 2", {APPLICATION_PROPERTIES}),
        ("SET sys.Label = 'x'", {PROPERTIES}),
        ("SET sys.PartitionKey = 'x'", {MESSAGE_ANNOTATIONS}),
        ("SET sys.TimeToLive = 'PT1S'", {HEADER}),
        ("SET a = 2 REMOVE sys.To", {APPLICATION_PROPERTIES, PROPERTIES}),
    ],
)
def test_sections_that_are_not_named_keep_their_bytes(text: str, ranks: set[int]) -> None:
    before = context({"a": 1, "b": [1, {"deep": b"\0"}]}, **WHOLE)
    after = compile_action(text).apply(before)
    pairs = zip(sections_of(before.message), sections_of(after), strict=True)
    assert {rank for rank, (old, new) in enumerate(pairs) if old != new} == ranks
    assert after.size_bytes == len(after.located()[0])


def test_entries_and_fields_that_are_not_named_keep_unusual_encodings() -> None:
    long_number = b"\x81" + (5).to_bytes(8, "big")  # a long in nine bytes that would fit two
    entries = b"\xb1\x00\x00\x00\x01k" + long_number + encode("gone") + encode("x") + encode(Symbol("s")) + b"\x56\x01"
    user = b"\x00\x53\x74\xd1" + (len(entries) + 4).to_bytes(4, "big") + (6).to_bytes(4, "big") + entries
    fields = b"\x40\x40\xb1\x00\x00\x00\x02to\xb1\x00\x00\x00\x03old"
    properties = b"\x00\x53\x73\xd0" + (len(fields) + 4).to_bytes(4, "big") + (4).to_bytes(4, "big") + fields
    body = section(0x75, b"body")
    before = MessageContext(parse_message(properties + user + body))
    after = compile_action("REMOVE gone; SET n = 'v'; SET sys.Label = 'new'; SET S = FALSE").apply(before)
    kept = b"\xb1\x00\x00\x00\x01k" + long_number + encode(Symbol("s")) + b"\x42" + encode("n") + encode("v")
    items = b"\x40\x40\xb1\x00\x00\x00\x02to" + encode("new")
    expected = b"\x00\x53\x73\xc0" + bytes((len(items) + 1, 4)) + items
    expected += b"\x00\x53\x74\xc1" + bytes((len(kept) + 1, 6)) + kept + body
    assert after.located()[0] == expected


def test_sections_that_are_not_there_are_made() -> None:
    before = MessageContext(parse_message(section(0x75, b"body")))
    text = "SET a = 1; SET sys.To = 't'; SET sys.PartitionKey = 'k'; SET sys.TimeToLive = 'PT1S'"
    after = compile_action(text).apply(before)
    header, _, annotations, properties, user, body, _ = sections_of(after)
    assert header == section(0x70, [None, None, Uint(1000)])
    assert annotations == section(0x72, {Symbol("x-opt-partition-key"): "k"})
    assert properties == section(0x73, [None, None, "t"])
    assert user == section(APPLICATION, {"a": 1})
    assert body == section(0x75, b"body")


def test_the_message_itself_stays_as_it_is() -> None:
    data = encoded({"a": 1}, label="l")
    before = MessageContext(parse_message(data))
    compile_action("SET a = 2; SET sys.Label = 'x'; REMOVE b").apply(before, "rule")
    assert before.message.located()[0] == data
    assert before.folded() == {"a": 1}
    assert before.system("Label") == "l"
