"""The reader of others' JSON takes what the standard library takes within its limits, and says what is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emubus.web.json_reader import DEPTH_MAX, NUMBER_CHARS_MAX, SHORT_CHARS_MAX, JsonError, read_json
from emubus.web.json_writer import STRETCH_CHARS, json_pieces

from ..rounds import rounds

PADDING = " " * SHORT_CHARS_MAX
"""Makes a short text a long one, which the reader reads itself."""
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inside: st.lists(inside, max_size=5) | st.dictionaries(TEXTS, inside, max_size=5),
    max_leaves=20,
)
BITS = [*'"\\[]{},:1-e.0 ', "\n", "\\u", "d83d", "\\ude00", "true", "null", "a"]


def strict(text: str) -> object:
    """What the standard library reads, without what RFC 8259 does not have or leaves open. ValueError."""

    def refuse(what: object) -> object:
        raise ValueError(what)

    def whole(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found = dict(pairs)
        return found if len(found) == len(pairs) else refuse(pairs)  # type: ignore[return-value]

    value: object = json.loads(text, parse_constant=refuse, object_pairs_hook=whole)
    json.dumps(value, ensure_ascii=False, allow_nan=False).encode()  # no lone surrogate, no 1e999
    return value


def outcome(read: Callable[[str], object], text: str) -> str:
    """A value with its types, or that the text is refused."""
    try:
        return repr(read(text))
    except ValueError:
        return "refused"


@given(VALUES, st.booleans(), st.sampled_from([None, 1]), st.sampled_from(["", PADDING]))
def test_json_is_read_as_the_standard_library_reads_it(
    value: object, is_ascii: bool, indent: int | None, padding: str
) -> None:
    text = json.dumps(value, ensure_ascii=is_ascii, indent=indent) + padding
    assert repr(read_json(text)) == repr(read_json(text.encode())) == repr(json.loads(text))


@given(st.lists(st.sampled_from(BITS), max_size=12).map("".join), st.sampled_from(["", PADDING]))
def test_what_is_no_json_is_refused_as_the_standard_library_does(text: str, padding: str) -> None:
    assert outcome(read_json, text + padding) == outcome(strict, text)


@given(VALUES, st.data())
def test_mutated_json_is_refused_as_the_standard_library_does(value: object, data: st.DataObject) -> None:
    text = json.dumps(value)
    at = data.draw(st.integers(0, len(text)))
    text = text[:at] + data.draw(st.sampled_from(BITS)) + text[at + data.draw(st.integers(0, 2)) :]
    assert outcome(read_json, text) == outcome(read_json, text + PADDING) == outcome(strict, text)


@pytest.mark.parametrize("padding", ["", PADDING])
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[" * (DEPTH_MAX + 1), f"line 1, column {DEPTH_MAX + 1}: it is nested more than {DEPTH_MAX} deep"),
        ("[" * 300 + "]" * 300, f"nested more than {DEPTH_MAX} deep, which is the limit"),
        ('{"a":' * 300 + "1" + "}" * 300, f"nested more than {DEPTH_MAX} deep"),
        ("1" * (NUMBER_CHARS_MAX + 1), f"has more than {NUMBER_CHARS_MAX} characters, which is the limit"),
        ("1" * 100_000, f"has more than {NUMBER_CHARS_MAX} characters"),
        ("1." + "1" * NUMBER_CHARS_MAX, f"has more than {NUMBER_CHARS_MAX} characters"),
        ("[\n 1e999]", "line 2, column 2: the number '1e999' is larger than a double can be"),
        ('{"a": 1,\n "a": 2}', "line 2, column 2: the name 'a' is given twice"),
        ("NaN", "'NaN' is no value of JSON"),
        ("-Infinity", "'-Infinity' is no value of JSON"),
        ('"\\ud800"', "a lone surrogate is not a character"),
        ('{"\\udc00": 1}', "a lone surrogate is not a character"),
        ('"\ud800"', "a lone surrogate is not a character"),
        ('"\\x"', "this is no escape of JSON"),
        ('"a\tb"', "control character '\\t' must be escaped"),
        ("[1", '"," or "]" is expected'),
        ("[1]]", "nothing is expected behind the value"),
    ],
)
def test_a_refusal_names_the_place_and_the_limit(text: str, problem: str, padding: str) -> None:
    with pytest.raises(JsonError, match=r"^line \d+, column \d+: ") as refused:
        read_json(text + padding)
    assert problem in str(refused.value)


def test_what_is_not_utf_8_and_what_has_too_many_values_is_refused() -> None:
    with pytest.raises(JsonError, match=r"not UTF-8 text \(byte 1\)"):
        read_json(b'"\xff"')
    many = "[" + "1," * 40_000 + "1]"
    assert isinstance(read_json(many, 40_002), list)
    with pytest.raises(JsonError, match="more than 40001 values, which is the limit"):
        read_json(many, 40_001)


@pytest.mark.parametrize("depth", [DEPTH_MAX, 10])
@pytest.mark.parametrize("padding", ["", PADDING])
def test_the_limits_themselves_are_allowed(depth: int, padding: str) -> None:
    text = "[" * depth + "1" * NUMBER_CHARS_MAX + "]" * depth
    assert read_json(text + padding) == json.loads(text)


@given(
    st.lists(
        st.sampled_from(["a" * 3000, "\\n", "\\ud83d\\ude00", "é" * 2000, "\\u0041" * 1000]), max_size=rounds(40, 300)
    )
)
def test_long_strings_are_read_in_stretches(parts: list[str]) -> None:
    text = f'"{"".join(parts)}"'
    assert read_json(text + PADDING) == json.loads(text)


@given(VALUES, st.booleans())
def test_pieces_are_what_the_standard_library_writes(value: object, is_ascii: bool) -> None:
    expected = json.dumps(value, separators=(",", ":"), ensure_ascii=is_ascii).encode()
    assert b"".join(json_pieces(value, is_ascii=is_ascii)) == expected


@pytest.mark.parametrize("is_ascii", [True, False])
def test_long_strings_are_written_in_stretches(is_ascii: bool) -> None:
    value = {"text": '😀é"\n' * STRETCH_CHARS, "more": ["x" * STRETCH_CHARS * 2]}
    pieces = list(json_pieces(value, is_ascii=is_ascii))
    assert b"".join(pieces) == json.dumps(value, separators=(",", ":"), ensure_ascii=is_ascii).encode()
    assert max(map(len, pieces)) < 20 * STRETCH_CHARS


@pytest.mark.parametrize("value", [float("nan"), [float("inf")], {"a": -float("inf")}])
def test_a_number_that_json_lacks_is_not_written(value: object) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        list(json_pieces(value))
