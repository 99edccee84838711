"""JSON with comments, and with the line of every value.

Knows strict JSON plus what editors accept in a Config.json: `//` and `/* */` comments and trailing commas. Does not
know what the values mean. The standard library's parser has neither positions nor comments; here both matter more than
speed.
"""

from __future__ import annotations

import bisect
import json
import re
from dataclasses import dataclass
from typing import Final, NoReturn

_DEPTH_MAX: Final = 64
_SPACE = re.compile(r"(?:[ \t\r\n]+|//[^\r\n]*|/\*.*?\*/)*", re.DOTALL)
_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,300})(?P<real>(?:\.\d{1,300})?(?:[eE][+-]?\d{1,4})?)", re.ASCII)
_WORD = re.compile(r"[A-Za-z0-9_$.+-]+")
_HALF_PAIR = re.compile(r"[\ud800-\udfff]")
_STRINGS: Final = json.JSONDecoder()
_TEXTS: Final = json.JSONDecoder(strict=False)
"""Takes line breaks in a text, as templates of ARM have them."""
_CONSTANTS: Final[dict[str, bool | None]] = {"true": True, "false": False, "null": None}


@dataclass(frozen=True, slots=True)
class JsonNode:
    """A value, and the line and column (from 1) where it begins."""

    value: dict[str, JsonNode] | list[JsonNode] | str | int | float | bool | None
    line: int
    column: int


class JsonTextError(Exception):
    """The text is not JSON; `line` and `column` count from 1."""

    def __init__(self, message: str, line: int, column: int) -> None:
        super().__init__(message)
        self.line = line
        self.column = column


def parse_json(text: str, *, multiline: bool = False) -> JsonNode:
    """The tree of a text; JsonTextError with the position of the first error. `multiline`: texts may have line ends."""
    return _Parser(text, _TEXTS if multiline else _STRINGS).document()


class _Parser:
    def __init__(self, text: str, strings: json.JSONDecoder) -> None:
        self._text = text
        self._strings = strings
        self._at = 0
        self._line_starts = [0, *(match.end() for match in re.finditer(r"\r\n|\r|\n", text))]

    def document(self) -> JsonNode:
        root = self._value(0)
        self._skip_space()
        if self._at < len(self._text):
            self._fail("unexpected text after the closing bracket")
        return root

    def _value(self, depth: int) -> JsonNode:
        self._skip_space()
        at = self._at
        line = self._line(at)
        column = at - self._line_starts[line - 1] + 1
        first = self._text[self._at : self._at + 1]
        if depth > _DEPTH_MAX:
            self._fail(f"nested more than {_DEPTH_MAX} deep")
        if first == "{":
            return JsonNode(self._object(depth), line, column)
        if first == "[":
            return JsonNode(self._array(depth), line, column)
        if first == '"':
            return JsonNode(self._string(), line, column)
        return JsonNode(self._number_or_constant(), line, column)

    def _object(self, depth: int) -> dict[str, JsonNode]:
        members: dict[str, JsonNode] = {}
        self._at += 1
        while not self._take("}"):
            if self._text[self._at : self._at + 1] != '"':
                self._fail('expected a property name in double quotes, or "}"')
            name_at = self._at
            name = self._string()
            if name in members:
                self._fail(f'"{name}" is given twice', name_at)
            if not self._take(":"):
                self._fail(f'expected ":" after "{name}"')
            members[name] = self._value(depth + 1)
            if not self._take(",") and not self._is_next("}"):
                self._fail('expected "," or "}"')
        return members

    def _array(self, depth: int) -> list[JsonNode]:
        items: list[JsonNode] = []
        self._at += 1
        while not self._take("]"):
            items.append(self._value(depth + 1))
            if not self._take(",") and not self._is_next("]"):
                self._fail('expected "," or "]"')
        return items

    def _string(self) -> str:
        start = self._at
        try:
            text: str
            text, self._at = self._strings.raw_decode(self._text, self._at)
        except json.JSONDecodeError as error:
            self._fail(error.msg[:1].lower() + error.msg[1:], error.pos)
        if not text.isascii() and _HALF_PAIR.search(text):
            self._fail("a lone surrogate (\\ud800 to \\udfff) is not a character", start)
        return text

    def _number_or_constant(self) -> int | float | bool | None:
        number = _NUMBER.match(self._text, self._at)
        word = _WORD.match(self._text, self._at)
        if word is not None and word.group() in _CONSTANTS:
            self._at = word.end()
            return _CONSTANTS[word.group()]
        if number is None or word is None or number.end() != word.end():
            found = repr(word.group()) if word is not None else repr(self._text[self._at : self._at + 1])
            self._fail(f"expected a value, found {found if self._at < len(self._text) else 'the end of the text'}")
        self._at = number.end()
        return float(number.group()) if number.group("real") else int(number.group())

    def _take(self, character: str) -> bool:
        if self._is_next(character):
            self._at += 1
            self._skip_space()
            return True
        return False

    def _is_next(self, character: str) -> bool:
        self._skip_space()
        return self._text.startswith(character, self._at)

    def _skip_space(self) -> None:
        match = _SPACE.match(self._text, self._at)
        self._at = match.end() if match else self._at
        if self._text.startswith("/*", self._at):
            self._fail('a comment begins with "/*" and does not end')

    def _line(self, position: int) -> int:
        return bisect.bisect_right(self._line_starts, position)

    def _fail(self, message: str, position: int | None = None) -> NoReturn:
        at = self._at if position is None else position
        line = self._line(at)
        raise JsonTextError(message, line, at - self._line_starts[line - 1] + 1)
