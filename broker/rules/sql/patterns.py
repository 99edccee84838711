r"""LIKE patterns: `%` any run, `_` one character, an escape character before either takes it literally [wire 10.9].

Matches without backtracking: `%` splits a pattern into pieces of fixed length. The first must begin the text, the last
must end it, the others follow each other, each as early as possible. The time is linear in the text for every pattern.
Matching is case-sensitive, and a line break is a character.
Patterns are immutable.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import groupby
from typing import Final

from .remembering import remembered

_STEPS_MAX: Final = 1_000_000
"""Above this product of lengths a bit search replaces the others, whose worst case is the product."""

_REGEXES_MAX: Final = 100
"""Regexes of one pattern. They search fastest, but each takes 50 us to compile, and a message may bring a pattern of
thousands of pieces that is used once: those are searched by their texts, without preparation."""


class _Piece:
    """Literal characters and `_` (None) in a row; `literal` is None with a `_`."""

    __slots__ = ("_characters", "_regex", "_runs", "length", "literal")

    def __init__(self, characters: list[str | None], *, compiles: bool) -> None:
        self._characters = characters
        self.length = len(characters)
        self.literal = None if None in characters else "".join(filter(None, characters))
        self._regex: re.Pattern[str] | None = None
        self._runs: list[tuple[int, str]] = []
        """The texts between each `_`, and where they begin; the longest first. Empty if there is a regex."""
        if self.literal is None and compiles:
            source = "".join("." if each is None else re.escape(each) for each in characters)
            self._regex = re.compile(source, re.DOTALL)
        elif self.literal is None:
            begin = 0
            for has_text, run in groupby(characters, key=lambda each: each is not None):
                texts = list(run)
                if has_text:
                    self._runs.append((begin, "".join(filter(None, texts))))
                begin += len(texts)
            self._runs.sort(key=lambda run: -len(run[1]))

    def is_at(self, text: str, position: int) -> bool:
        if self.literal is not None:
            return text.startswith(self.literal, position)
        if self._regex is not None:
            return self._regex.match(text, position) is not None
        return position + self.length <= len(text) and self._has_runs(text, position)

    def _has_runs(self, text: str, position: int) -> bool:
        return all(text.startswith(run, position + offset) for offset, run in self._runs)

    def find(self, text: str, start: int, stop: int) -> int:
        """Return the first position of the piece between `start` and `stop`, or -1."""
        if self.literal is not None:
            return text.find(self.literal, start, stop)
        if (stop - start) * self.length > _STEPS_MAX:
            return self._find_by_bits(text, start, stop)
        if self._regex is None:
            return self._find_by_runs(text, start, stop)
        found = self._regex.search(text, start, stop)
        return -1 if found is None else found.start()

    def _find_by_runs(self, text: str, start: int, stop: int) -> int:
        """Like `find`: the longest text is searched, and the others are looked for where it is."""
        last = stop - self.length
        if not self._runs:
            return start if start <= last else -1
        offset, longest = self._runs[0]
        position = start
        while (found := text.find(longest, position + offset, last + offset + len(longest))) >= 0:
            position = found - offset
            if self._has_runs(text, position):
                return position
            position += 1
        return -1

    def _find_by_bits(self, text: str, start: int, stop: int) -> int:
        """Like `find`: bit i of `state` is set if the last i + 1 characters match the first i + 1 of the piece."""
        anywhere = sum(1 << position for position, each in enumerate(self._characters) if each is None)
        masks: dict[str, int] = {}
        for position, each in enumerate(self._characters):
            if each is not None:
                masks[each] = masks.get(each, anywhere) | 1 << position
        state, last = 0, 1 << self.length - 1
        for position in range(start, stop):
            state = (state << 1 | 1) & masks.get(text[position], anywhere)
            if state & last:
                return position + 1 - self.length
        return -1


class Pattern:
    """A compiled pattern; made by `like_pattern`. `matches(text)` says whether it matches the whole text."""

    __slots__ = ("_first", "_last", "_length_min", "_middle", "matches")

    def __init__(self, pieces: list[_Piece]) -> None:
        self._first = pieces[0]
        self._last = pieces[-1] if len(pieces) > 1 else None
        self._middle = [piece for piece in pieces[1:-1] if piece.length]
        self._length_min = sum(piece.length for piece in pieces)
        self.matches: Callable[[str], bool] = _test_of_text(pieces) or self._matches_pieces

    def _matches_pieces(self, text: str) -> bool:
        length, start = len(text), self._first.length
        if length < self._length_min or not self._first.is_at(text, 0):
            return False
        if self._last is None:
            return length == start
        stop = length - self._last.length
        if not self._last.is_at(text, stop):
            return False
        for piece in self._middle:
            position = piece.find(text, start, stop)
            if position < 0:
                return False
            start = position + piece.length
        return True


def _test_of_text(pieces: list[_Piece]) -> Callable[[str], bool] | None:
    """The test of a pattern that is a text with a `%` before it, behind it, or both; None for all others."""
    texts = [piece.literal for piece in pieces]
    match texts:
        case [str(whole)]:
            return whole.__eq__
        case [str(start), ""]:
            return lambda text: text.startswith(start)
        case ["", str(end)]:
            return lambda text: text.endswith(end)
        case ["", str(part), ""]:
            return lambda text: part in text
    return None


@remembered
def like_pattern(pattern: str, escape: str | None) -> Pattern:
    """Compile a pattern. Raises ValueError for an escape that is not one character, or one at the end."""
    if escape is not None and len(escape) != 1:
        raise ValueError(f"the ESCAPE of LIKE must be one character, not {len(escape)}")
    pieces: list[list[str | None]] = [[]]
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            literal = next(characters, None)
            if literal is None:
                raise ValueError("a LIKE pattern must not end with its escape character")
            pieces[-1].append(literal)
        elif character == "%":
            pieces.append([])
        else:
            pieces[-1].append(None if character == "_" else character)
    compiles = len(pieces) <= _REGEXES_MAX
    return Pattern([_Piece(piece, compiles=compiles) for piece in pieces])
