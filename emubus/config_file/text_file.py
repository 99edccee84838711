"""The text of a file, in whichever encoding an editor has saved it.

Knows byte order marks (RFC 3629, RFC 2781), and what a JSON text without one looks like in UTF-16 and UTF-32: its first
two characters are ASCII, so the zero bytes give the encoding away (RFC 4627, section 3). What is not UTF-8 either is
taken for Windows-1252, as Windows' older editors save it; the caller says so, as no file names its code page.
"""

from __future__ import annotations

import codecs
import re
from typing import Final, NamedTuple

_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_ZEROS: Final[dict[tuple[bool, ...], str]] = {
    (True, True, True, False): "utf-32-be",
    (False, True, True, True): "utf-32-le",
    (True, False, True, False): "utf-16-be",
    (False, True, False, True): "utf-16-le",
}
_CODE_PAGE: Final = "cp1252"
# What no text has: with one of these a file that is not UTF-8 is a binary one.
_BINARY: Final = re.compile(r"[\x00-\x08\x0e-\x1f]")


class NotTextError(Exception):
    """The bytes are no text; the message ends a sentence that begins with the file."""


class Text(NamedTuple):
    """A text without its mark; `doubt` says where its encoding was guessed, as the end of a sentence."""

    text: str
    doubt: str | None = None


def text_of(data: bytes) -> Text:
    """The text of a file's bytes. NotTextError if they are none."""
    mark, encoding = next(((mark, name) for mark, name in _MARKS if data.startswith(mark)), (b"", ""))
    if not encoding:
        first = data[:4]
        zeros = tuple(byte == 0 for byte in (first if len(first) == 4 else first + b"xxxx"[len(first) :]))
        encoding = _ZEROS.get(zeros, "utf-8")
        if len(data) in (2, 3) and 0 in data:
            encoding = "utf-16-be" if data[0] == 0 else "utf-16-le"
    try:
        return Text(data[len(mark) :].decode(encoding))
    except UnicodeDecodeError as error:
        at = len(mark) + error.start  # the error itself has all bytes, and this frame
    if encoding != "utf-8" or mark:
        raise NotTextError(f"begins as {encoding.upper()} text, and byte {at} is none: save it as UTF-8")
    try:
        text = data.decode(_CODE_PAGE)
    except UnicodeDecodeError:
        raise NotTextError(f"is not text (byte {at}): save it as UTF-8") from None
    if _BINARY.search(text):
        raise NotTextError(f"is not text (byte {at}): save it as UTF-8")
    line = data.count(b"\n", 0, at) + 1
    return Text(text, f"is not UTF-8 (line {line}, byte {at}): it is read as Windows-1252; save it as UTF-8")
