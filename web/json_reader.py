"""JSON that others wrote, read within limits: the one reader of every face.

A text must be JSON as RFC 8259 has it: UTF-8, no NaN, no name twice in an object, no half of a surrogate pair. It is
refused where it is nested too deep, where a number is too long or too large for a double, and where it has too many
values; the refusal names the line, the column and the limit.

Short texts, which are nearly all, are read by the standard library's parser. It is written in C and holds the
interpreter until it ends, and it says nothing about limits. So a long text, and each text that it refuses or that
looks odd, is read by the reader here, which is slower and stops the interpreter for no longer than a piece takes: on a
thread it leaves the event loop its turns (`long_work`). Does not know what a text means.
"""

from __future__ import annotations

import json
import math
import re
from typing import Final, NoReturn

SHORT_CHARS_MAX: Final = 64 << 10
"""Longest text that is read in one piece: 2 ms at most, whatever it holds (64 KiB of `1,1,1,…`)."""
DEPTH_MAX: Final = 256
"""Deepest nesting. An AMQP value may be nested 64 deep, and JSON Lines write each level of a map as three."""
NUMBER_CHARS_MAX: Final = 300
"""Longest number: a double needs 25 characters, and more digits than these may be beyond the largest double."""
VALUES_MAX: Final = 100_000
"""Most values in a text, names not counted: 0.2 s of reading, 10 MiB. A hundred messages with a thousand properties."""
_PAIRED: Final = "utf-16-le"

_NEXT: Final = re.compile(r"[ \t\n\r]*([\[\]{},:\"]?)")
_SIMPLE: Final = re.compile(r'([^"\\\x00-\x1f]{0,1000})"')
_STRETCH: Final = re.compile(r'(?:[^"\\\x00-\x1f]{1,1024}|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})){0,64}')
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,300})((?:\.[0-9]{1,300})?(?:[eE][+-]?[0-9]{1,300})?)", re.ASCII)
_WORD: Final = re.compile(r"[A-Za-z0-9_$.+-]{1,301}")
_SURROGATE_ESCAPE: Final = re.compile(r"\\u[dD][89a-fA-F]")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_CONSTANTS: Final[dict[str, bool | None]] = {"true": True, "false": False, "null": None}
_EXCERPT_CHARS: Final = 40


class JsonError(ValueError):
    """A text is no JSON, or beyond a limit; the message says what and where."""


def read_json(data: bytes | str, values_max: int = VALUES_MAX) -> object:
    """The value of a JSON text. JsonError."""
    text = data if isinstance(data, str) else utf8_text(data)
    if len(text) <= SHORT_CHARS_MAX:
        try:
            return _within_limits(text, _SHORT.decode(text))
        except (ValueError, RecursionError):
            pass  # the reader finds the place, and the words
    return _Reader(text, values_max).document()


def utf8_text(data: bytes | bytearray) -> str:
    """JSON as text. JsonError if it is not UTF-8."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise JsonError(f"it is not UTF-8 text (byte {error.start})") from None


# ---------------------------------------------------------------- short texts


def _object_of_unique_names(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name is given twice")
    return found


def _short_integer(written: str) -> int:
    if len(written) > NUMBER_CHARS_MAX:
        raise ValueError("a number is too long")
    return int(written)


def _real(written: str) -> float:
    found = float(written)
    if len(written) > NUMBER_CHARS_MAX or not math.isfinite(found):
        raise ValueError("a number is too large")
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


_SHORT: Final = json.JSONDecoder(
    object_pairs_hook=_object_of_unique_names, parse_int=_short_integer, parse_float=_real, parse_constant=_no_constant
)


def _within_limits(text: str, value: object) -> object:
    """The value, if it is within what the parser does not check. ValueError."""
    if text.count("[") + text.count("{") > DEPTH_MAX or _SURROGATE_ESCAPE.search(text) or not _is_whole(text):
        _check(value)
    return value


def _check(value: object) -> None:
    level, depth = [value], 0
    while level:
        inside: list[object] = []
        for each in level:
            if isinstance(each, str):
                if not _is_whole(each):
                    raise ValueError("a lone surrogate")
            elif isinstance(each, list):
                inside += each
            elif isinstance(each, dict):
                inside += each.values()
                if not all(map(_is_whole, each)):
                    raise ValueError("a lone surrogate")
        depth += any(isinstance(each, list | dict) for each in level)
        if depth > DEPTH_MAX:
            raise ValueError("nested too deep")
        level = inside


def _is_whole(text: str) -> bool:
    """Whether a text has no half of a surrogate pair."""
    return text.isascii() or _SURROGATE.search(text) is None


# ---------------------------------------------------------------- long texts, and what is wrong in short ones


class _Reader:
    """Reads one text from its beginning to its end, without recursion."""

    def __init__(self, text: str, values_max: int) -> None:
        self._text = text
        self._at = 0
        self._values_max = values_max
        self._values_left = values_max
        self._open: list[list[object] | dict[str, object]] = []
        self._names: list[str] = []  # of the members of open objects whose values are read

    def document(self) -> object:
        """The value. JsonError."""
        while True:
            mark = self._mark()  # a value begins here
            self._values_left -= 1
            if self._values_left < 0:
                self._fail(f"it has more than {self._values_max} values, which is the limit")
            value: object
            if mark in ("[", "{"):
                if self._opened(mark):
                    continue
                value = [] if mark == "[" else {}
            elif mark == '"':
                value = self._string()
            elif mark:
                self._fail(f"a value is expected, not {mark!r}", self._at - 1)
            else:
                value = self._number_or_constant()
            value, is_last = self._place_value(value)
            if is_last:
                mark = self._mark()
                if mark or self._at < len(self._text):
                    self._fail("nothing is expected behind the value", self._at - len(mark))
                return value

    def _opened(self, mark: str) -> bool:
        """Open a list or an object; whether it has values, the first of which begins then."""
        if len(self._open) == DEPTH_MAX:
            self._fail(f"it is nested more than {DEPTH_MAX} deep, which is the limit", self._at - 1)
        next_one = _NEXT.match(self._text, self._at)
        assert next_one is not None, "the pattern matches everywhere"
        if next_one[1] == ("]" if mark == "[" else "}"):
            self._at = next_one.end()
            return False
        if mark == "[":
            self._open.append([])
        else:
            self._open.append({})
            self._names.append(self._name({}))
        return True

    def _place_value(self, value: object) -> tuple[object, bool]:
        """Put a value where it belongs, and so each list and object that ends with it; the value of the whole text, if
        that ends here."""
        while self._open:
            holder = self._open[-1]
            is_list = isinstance(holder, list)
            if isinstance(holder, list):
                holder.append(value)
            else:
                holder[self._names[-1]] = value
            mark = self._mark()
            if mark == ",":
                if isinstance(holder, dict):
                    self._names[-1] = self._name(holder)
                return None, False
            if mark != ("]" if is_list else "}"):
                self._fail(f'"," or "{"]" if is_list else "}"}" is expected', self._at - len(mark))
            self._open.pop()
            if not is_list:
                self._names.pop()
            value = holder
        return value, True

    def _mark(self) -> str:
        """The next sign, behind spaces; "" if none of JSON's is there."""
        found = _NEXT.match(self._text, self._at)
        assert found is not None, "the pattern matches everywhere"
        self._at = found.end()
        return found[1]

    def _name(self, holder: dict[str, object]) -> str:
        """The name of the next member and its colon."""
        mark = self._mark()
        if mark != '"':
            self._fail("a name in double quotes is expected", self._at - len(mark))
        start = self._at - 1
        name = self._string()
        if name in holder:
            self._fail(f"the name {_excerpt(name)} is given twice", start)
        mark = self._mark()
        if mark != ":":
            self._fail(f'":" is expected behind the name {_excerpt(name)}', self._at - len(mark))
        return name

    def _string(self) -> str:
        """The string whose quotation mark was read."""
        simple = _SIMPLE.match(self._text, self._at)
        if simple is not None:
            self._at = simple.end()
            if not _is_whole(simple[1]):
                self._fail("a lone surrogate is not a character", simple.start())
            return simple[1]
        start, pieces, has_halves = self._at - 1, list[str](), False
        while True:
            stretch = _STRETCH.match(self._text, self._at)
            if stretch is None or not stretch[0]:
                break
            piece = stretch[0]
            self._at = stretch.end()
            if "\\" in piece:
                has_halves = has_halves or _SURROGATE_ESCAPE.search(piece) is not None
                piece = _STRINGS.decode(f'"{piece}"')
            has_halves = has_halves or not _is_whole(piece)
            pieces.append(piece)
        end = self._text[self._at : self._at + 1]
        if end != '"':
            self._fail(_problem_of_string(end), start if not end else self._at)
        self._at += 1
        found = "".join(pieces)
        if not has_halves:
            return found
        try:
            return found.encode(_PAIRED, "surrogatepass").decode(_PAIRED)  # joins the halves of two pieces
        except UnicodeDecodeError:
            self._fail("a lone surrogate is not a character", start)

    def _number_or_constant(self) -> object:
        """A word up to the next separator: true, false, null or a number.

        Its length is limited, because `int` takes quadratic time.
        """
        text, at = self._text, self._at
        word = _WORD.match(text, at)
        if word is None:
            self._fail(f"a value is expected, not {_excerpt(text[at : at + 1])}" if at < len(text) else _ENDS)
        if word[0] in _CONSTANTS:
            self._at = word.end()
            return _CONSTANTS[word[0]]
        number = _NUMBER.match(text, at)
        if len(word[0]) > NUMBER_CHARS_MAX and number is not None:
            self._fail(
                f"the number {_excerpt(word[0])} has more than {NUMBER_CHARS_MAX} characters, which is the limit"
            )
        if number is None or number.end() != word.end():
            self._fail(f"{_excerpt(word[0])} is no value of JSON")
        self._at = word.end()
        if not number[1]:
            return int(word[0])
        found = float(word[0])
        if not math.isfinite(found):
            self._fail(f"the number {_excerpt(word[0])} is larger than a double can be", at)
        return found

    def _fail(self, problem: str, at: int | None = None) -> NoReturn:
        at = self._at if at is None else at
        line = self._text.count("\n", 0, at) + 1
        column = at - (self._text.rfind("\n", 0, at) + 1) + 1
        raise JsonError(f"line {line}, column {column}: {problem}")


_STRINGS: Final = json.JSONDecoder()
_ENDS: Final = "a value is expected, and the text ends"


def _problem_of_string(end: str) -> str:
    if not end:
        return "the string that begins here does not end"
    if end == "\\":
        return "this is no escape of JSON"
    return f"the control character {_excerpt(end)} must be escaped in a string"


def _excerpt(text: str) -> str:
    shown = ascii(text[:_EXCERPT_CHARS])
    return shown if len(text) <= _EXCERPT_CHARS else f"{shown[:-1]}…'"
