"""LIKE patterns against a plain reading of what they mean, and against time."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emubus.broker.rules.sql import patterns
from emubus.broker.rules.sql.patterns import like_pattern


def plainly_matches(text: str, pattern: str, escape: str | None) -> bool:
    """The definition, character by character."""

    @cache
    def rest(at: int, place: int) -> bool:
        if place == len(pattern):
            return at == len(text)
        character = pattern[place]
        if character == escape:
            return at < len(text) and text[at] == pattern[place + 1] and rest(at + 1, place + 2)
        if character == "%":
            return rest(at, place + 1) or (at < len(text) and rest(at + 1, place))
        return at < len(text) and character in ("_", text[at]) and rest(at + 1, place + 1)

    return rest(0, 0)


@pytest.mark.parametrize(
    ("text", "pattern", "expected"),
    [
        ("", "", True),
        ("", "%", True),
        ("", "_", False),
        ("abc", "abc", True),
        ("abc", "ABC", False),
        ("abc", "a%", True),
        ("abc", "%c", True),
        ("abc", "%b%", True),
        ("abc", "_b_", True),
        ("abc", "____", False),
        ("abab", "ab%ab", True),
        ("aba", "ab%ba", False),
        ("a\nb", "a_b", True),
        ("a\nb", "a%b", True),
        ("a.c", "a.c", True),
        ("abc", "a.c", False),
        ("😀", "_", True),
    ],
)
def test_a_pattern_matches_the_whole_text(text: str, pattern: str, expected: bool) -> None:
    assert like_pattern(pattern, None).matches(text) is expected


def test_an_escaped_character_stands_for_itself() -> None:
    assert like_pattern("100!%!_!!%", "!").matches("100%_! and more")
    assert not like_pattern("100!%", "!").matches("1000")
    assert like_pattern("%%", "%").matches("%")


@pytest.mark.parametrize(("pattern", "escape"), [("a!", "!"), ("a", ""), ("a", "ab")])
def test_an_escape_that_makes_no_sense_is_refused(pattern: str, escape: str) -> None:
    with pytest.raises(ValueError, match=r"ESCAPE|escape"):
        like_pattern(pattern, escape)


CHARACTERS = st.text("ab_%", max_size=12)


@given(CHARACTERS, CHARACTERS, st.sampled_from([None, "a", "%", "_"]), st.booleans())
def test_a_pattern_matches_what_its_definition_says(text: str, pattern: str, escape: str | None, bits: bool) -> None:
    try:
        ready = like_pattern(pattern, escape)
    except ValueError:
        assert escape is not None
        return
    assert ready.matches(text) is plainly_matches(text, pattern, escape)


@given(CHARACTERS, CHARACTERS)
def test_a_search_with_bits_finds_what_a_search_with_a_regex_finds(text: str, pattern: str) -> None:
    ready = like_pattern(pattern, None)
    by_regex = ready.matches(text)
    limit, patterns._STEPS_MAX = patterns._STEPS_MAX, 0  # type: ignore[misc]
    try:
        assert ready.matches(text) is by_regex
    finally:
        patterns._STEPS_MAX = limit  # type: ignore[misc]


MANY = "%" * (patterns._REGEXES_MAX + 1)


@given(CHARACTERS, CHARACTERS)
def test_a_pattern_of_many_pieces_matches_what_one_of_few_matches(text: str, pattern: str) -> None:
    for few, many in (("%" + pattern, MANY + pattern), (pattern + "%", pattern + MANY)):
        assert like_pattern(many, None).matches(text) is like_pattern(few, None).matches(text)


def test_a_pattern_of_thousands_of_pieces_is_ready_without_thousands_of_regexes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its regexes took 0.3 s of the loop on a slow machine, for a message that brought the pattern."""
    monkeypatch.setattr(re, "compile", lambda *_: pytest.fail("a regex for a piece"))
    pieces = [f"{number:04}_x" for number in range(6_000)]
    ready = like_pattern("%".join(pieces), None)
    assert ready.matches("".join(pieces))
    assert not ready.matches("".join(reversed(pieces)))


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("a" * 100_000, "%a" * 500 + "%b%a%"),
        ("a" * 100_000, "%" + "a_" * 500 + "b%"),
        ("a" * 100_000, "%a_" * 300 + "b"),
        ("ab" * 50_000, "%" + "a_" * 400 + "aa%"),
    ],
)
def test_no_pattern_takes_long(
    text: str, pattern: str, cpu_limit: Callable[[float], AbstractContextManager[None]]
) -> None:
    with cpu_limit(2):
        assert not like_pattern(pattern, None).matches(text)
