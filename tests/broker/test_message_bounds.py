"""What is too large in a message that is sent: keys, one property, all properties; and what just fits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from emubus.broker.entities.namespace import message_bounds
from emubus.broker.errors import BrokerError, Condition
from emubus.broker.message.bounds import IDENTIFIER_CHARS_MAX, MessageBounds
from emubus.broker.message.message import parse_sent
from emubus.broker.model.profiles import LIMITS, Profile
from emubus.codec.types import Symbol, Ulong

from .test_message import APPLICATION, DATA, DELIVERY, FOOTER, PROPERTIES, annotate, section

KIB = 1024
STANDARD = message_bounds(LIMITS[Profile.STANDARD])
SMALL = MessageBounds(properties_bytes_max=200, property_bytes_max=100, key_length_max=8, forward_hops_max=4)
TOO_LONG = "x" * (IDENTIFIER_CHARS_MAX + 1)

KEYS_TOO_LONG = {
    "message-id": section(PROPERTIES, [TOO_LONG]),
    "message-id of bytes": section(PROPERTIES, [TOO_LONG.encode()]),
    "group-id": section(PROPERTIES, ["m", *[None] * 9, TOO_LONG]),
    "x-opt-partition-key": annotate({"x-opt-partition-key": TOO_LONG}),
    "x-opt-via-partition-key": annotate({"x-opt-via-partition-key": TOO_LONG}),
}


def refusal(data: bytes, bounds: MessageBounds = STANDARD) -> tuple[Condition, str]:
    with pytest.raises(BrokerError) as refused:
        parse_sent(data, bounds)
    return refused.value.condition, refused.value.description


@pytest.mark.parametrize("name", KEYS_TOO_LONG)
def test_a_key_that_is_too_long_is_refused(name: str) -> None:
    assert refusal(KEYS_TOO_LONG[name] + section(DATA, b"body")) == (
        Condition.ARGUMENT_OUT_OF_RANGE,
        f"The {name.split()[0]} of the message has 129 characters; it must not have more than 128.",
    )


def test_a_key_of_128_characters_of_several_bytes_each_is_taken() -> None:
    key = "\N{SNOWMAN}" * IDENTIFIER_CHARS_MAX
    message = parse_sent(annotate({"x-opt-partition-key": key}) + section(PROPERTIES, [key, *[None] * 9, key]))
    assert (message.message_id, message.session_id, message.partition_key) == (key, key, key)


def test_the_length_of_a_key_is_that_of_the_profile() -> None:
    data = section(PROPERTIES, ["123456789"])
    assert refusal(data, SMALL)[0] is Condition.ARGUMENT_OUT_OF_RANGE
    assert parse_sent(data, replace(SMALL, key_length_max=9)).message_id == "123456789"
    assert parse_sent(KEYS_TOO_LONG["group-id"], message_bounds(LIMITS[Profile.RELAXED])).session_id == TOO_LONG


def test_the_bounds_of_a_message_are_those_of_the_standard_tier() -> None:
    assert MessageBounds() == STANDARD


LARGE = {
    "a text": (section(APPLICATION, {"large": "x" * (32 * KIB + 1)}), "The application property 'large': 32769 bytes"),
    "bytes": (section(APPLICATION, {"large": b"x" * 40_000}), "The application property 'large': 40000 bytes"),
    "behind others": (
        section(APPLICATION, {"a": 1, "b": Ulong(1), "large": "x" * 33_000}),
        "The application property 'large': 33000 bytes",
    ),
    "a subject": (
        section(PROPERTIES, ["m", None, None, "x" * 33_000]),
        "Field 3 of the message's properties: 33000 bytes",
    ),
}


@pytest.mark.parametrize("name", LARGE)
def test_a_property_that_is_too_large_is_refused_with_the_words_of_the_service(name: str) -> None:
    data, what = LARGE[name]
    condition, text = refusal(data + section(DATA, b"body"))
    assert condition is Condition.INTERNAL_ERROR
    assert text == (
        "The service was unable to process the request; please retry the operation. For more information on exception "
        "types and proper exception handling, please refer to http://go.microsoft.com/fwlink/?LinkId=761101 "
        f". {what}; at most 32768 are allowed. Shorten it, or send it in the body."
    )


def test_all_properties_together_are_counted_with_annotations_and_without_body_and_footer() -> None:
    third = "x" * 22_000
    properties = section(PROPERTIES, ["m", None, third]) + section(APPLICATION, {"a": third})
    around = section(DELIVERY, {Symbol("d"): 1}), section(DATA, b"b" * 100_000) + section(FOOTER, {Symbol("f"): third})
    parse_sent(around[0] + properties + around[1])
    condition, text = refusal(around[0] + annotate({"other": third}) + properties + around[1])
    assert condition is Condition.INTERNAL_ERROR
    assert "All properties of the message: 66" in text
    assert "at most 65536 are allowed" in text


@pytest.mark.parametrize(
    "data",
    [
        section(APPLICATION, {"a": "x" * 32 * KIB}),
        section(PROPERTIES, ["m"]) + section(DATA, b"x" * 200 * KIB),
        section(APPLICATION, {str(number): "x" * 600 for number in range(100)}),
        section(APPLICATION, {5: "no name"}) + section(DATA, b"x" * 40_000),
    ],
    ids=["one property", "a body", "many properties", "a property without a name"],
)
def test_what_just_fits_is_taken(data: bytes) -> None:
    assert parse_sent(data).size_bytes == len(data)


def test_the_sizes_of_properties_are_those_of_the_profile() -> None:
    one = section(APPLICATION, {"a": "x" * 101})
    assert refusal(one, SMALL)[0] is Condition.INTERNAL_ERROR
    assert refusal(section(APPLICATION, {"a": "x" * 99, "b": "x" * 99}), SMALL)[0] is Condition.INTERNAL_ERROR
    assert parse_sent(one, replace(SMALL, property_bytes_max=101)).size_bytes == len(one)
