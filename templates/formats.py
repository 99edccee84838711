"""Composite formats of .NET, as far as `format()` of a template uses them: `{0}`, `{1,8}`, `{0:D2}`, `{{`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from .values import Mixed, Unknown, Unresolved, quoted, short, text_from

_HOLE: Final = re.compile(r"\{\{|\}\}|\{(\d{1,4})(?:,(-?\d{1,6}))?(?::([^{}]*))?\}|[{}]")


def formatted(pattern: str | Mixed, given: Sequence[object], as_text: Callable[[object], str | Mixed]) -> str | Mixed:
    """The text with its holes filled; what is unknown stays a piece. Unresolved."""
    if isinstance(pattern, Mixed):
        return Mixed((pattern.first_unknown,))
    found: list[str | Unknown | Mixed] = []
    at = 0
    for match in _HOLE.finditer(pattern):
        found.append(pattern[at : match.start()])
        at = match.end()
        if match[1] is None:
            if len(match[0]) == 1:
                raise Unresolved(f"format() has a lone '{match[0]}' in {quoted(pattern)}")
            found.append(match[0][0])
            continue
        if int(match[1]) >= len(given):
            raise Unresolved(f"format() has no argument for {match[0]} in {quoted(pattern)}")
        found.append(_padded_to_width(given[int(match[1])], int(match[2] or 0), match[3] or "", as_text))
    return text_from([*found, pattern[at:]])


def _padded_to_width(value: object, width: int, spelling: str, as_text: Callable[[object], str | Mixed]) -> str | Mixed:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    text = number_text(value, spelling) if spelling and is_number else as_text(value)  # type: ignore[arg-type]
    if isinstance(text, Mixed):
        return text
    short(abs(width))
    return text.rjust(width) if width >= 0 else text.ljust(-width)


def number_text(value: float, spelling: str) -> str:
    """A number in a standard format (D, F, N, P, X and their digits) or a custom one of zeros. Unresolved."""
    match = re.fullmatch(r"([DdFfNnPpXxGg])(\d{0,2})", spelling)
    if match is None:
        return _custom(value, spelling)
    kind, digits = match[1].upper(), int(match[2] or -1)
    sign = "-" if value < 0 else ""
    if kind in "DX" and not isinstance(value, int):
        raise Unresolved(f"the format {quoted(spelling)} is for whole numbers")
    match kind:
        case "D":
            return sign + str(abs(value)).rjust(max(0, digits), "0")
        case "X":
            text = format(int(value) & ((1 << 64) - 1) if value < 0 else int(value), match[1])
            return text.rjust(max(0, digits), "0")
        case "F":
            return f"{value:.{2 if digits < 0 else digits}f}"
        case "N":
            return f"{value:,.{2 if digits < 0 else digits}f}"
        case "P":
            return f"{value * 100:,.{2 if digits < 0 else digits}f}%"
        case _:
            return str(value)


def _custom(value: float, spelling: str) -> str:
    if not re.fullmatch(r"[0#]+(?:\.[0#]+)?", spelling):
        raise Unresolved(f"the format {quoted(spelling)} of a number is not known")
    whole, _, part = spelling.partition(".")
    text = f"{abs(value):.{len(part)}f}"
    digits, _, fraction = text.partition(".")
    least = part.count("0")
    while len(fraction) > least and fraction.endswith("0"):
        fraction = fraction[:-1]
    joined = digits.rjust(whole.count("0"), "0") + (f".{fraction}" if fraction else "")
    return f"-{joined}" if value < 0 else joined
