"""Answers of a server: members are read by their type, and refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from emubus.kit.answers import DEPTH_MAX, Answer, AnswerError, parse_answer

TEXT = '{"a": "x", "n": 1, "f": 0.5, "on": true, "none": null, "o": {"b": 2}, "l": [{"c": 3}], "t": ["y"]}'


def test_members_are_read_by_their_type_at_every_depth() -> None:
    answer = parse_answer(TEXT)

    assert (answer.text("a"), answer.number("n"), answer.flag("on")) == ("x", 1, True)
    assert (answer.fraction("f"), answer.fraction("n")) == (0.5, 1)
    assert (answer.part("o").number("b"), [each.number("c") for each in answer.parts("l")]) == (2, [3])
    assert answer.texts("t") == ["y"]


def test_null_is_none_where_a_member_may_be_null() -> None:
    answer = parse_answer(TEXT)

    assert [answer.text_or_none("none"), answer.number_or_none("none"), answer.part_or_none("none")] == [None] * 3
    assert (answer.text_or_none("a"), answer.number_or_none("n")) == ("x", 1)
    assert answer.part_or_none("o") == {"b": 2}


def test_an_answer_is_written_as_it_was_read() -> None:
    assert json.dumps(parse_answer(TEXT)) == TEXT


@pytest.mark.parametrize(
    ("read", "member"),
    [
        (Answer.text, "n"),
        (Answer.text_or_none, "n"),
        (Answer.number, "a"),
        (Answer.number_or_none, "f"),
        (Answer.fraction, "a"),
        (Answer.flag, "none"),
        (Answer.part, "l"),
        (Answer.part_or_none, "a"),
        (Answer.parts, "t"),
        (Answer.texts, "l"),
    ],
)
def test_a_member_of_another_type_is_refused_by_name(read: Callable[[Answer, str], object], member: str) -> None:
    with pytest.raises(AnswerError, match=f"^{member} "):
        read(parse_answer(TEXT), member)
    with pytest.raises(AnswerError, match=r"^missing is missing$"):
        read(parse_answer(TEXT), "missing")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[1]", "the JSON is list; it must be an object"),
        ("<html>", "it is not JSON"),
        (b'{"a": "\xff"}', "it is not JSON"),
        ('{"a": ' + "9" * 5_000 + "}", "it is not JSON"),
        ('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}", "the JSON is nested too deeply"),
        ('{"a": ' + "[" * DEPTH_MAX + "]" * DEPTH_MAX + "}", "the JSON is nested more than 256 levels deep"),
    ],
)
def test_what_is_no_answer_is_refused(text: str | bytes, why: str) -> None:
    with pytest.raises(AnswerError, match=why):
        parse_answer(text)


def test_an_answer_of_the_greatest_depth_can_be_printed() -> None:
    text = '{"a": ' + "[" * (DEPTH_MAX - 1) + "]" * (DEPTH_MAX - 1) + "}"
    assert json.loads(json.dumps(parse_answer(text), indent=2)) == json.loads(text)
