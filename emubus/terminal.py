"""What commands write: lines, JSON, errors, notes, progress. No command writes to stdout or stderr itself.

Text comes from messages, from servers, and from arguments, and a terminal obeys what it is sent: control characters
move the cursor, set the title and the clipboard, and marks of direction reorder what people read. So all text is made
safe here, and colours are added here, to what is already safe. Text in JSON keeps its value: such characters are
escaped.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator
from typing import Final, TextIO

from .colors import has_colors

LINE_CHARS_MAX: Final = 4_000
"""Of an error or a note: what is longer is no sentence, and pushes what matters off the screen."""

# Controls C0 but tab and line feed, DEL, C1; embeddings, overrides and isolates of direction (UAX 9, 2.1 to 2.4);
# surrogates, which have no encoding.
_UNSAFE: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
# Of JSON that is streamed, a carriage return may stand between values.
_UNSAFE_JSON: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"
_ERASE_LINE: Final = "\x1b[K"


class Heading(str):
    """A line that is bold where colours are allowed."""

    __slots__ = ()


def safe(text: str) -> str:
    """The text with a replacement character for each one that a terminal may obey."""
    return _UNSAFE.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n"))


def one_line(text: str, chars: int = LINE_CHARS_MAX) -> str:
    """The beginning of a text, on one line."""
    flat = " ".join(text[: 4 * chars].split())
    return flat if len(flat) <= chars else f"{flat[: chars - 1]}…"


def reason_of(error: BaseException) -> str:
    """What the system says of an error, without its number, which says nothing to people."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__


def safe_json(text: str) -> str:
    """JSON of the same value, with an escape for each character that a terminal may obey."""
    return _UNSAFE_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def json_text(value: object, *, indent: int | None = 2) -> str:
    """A value as JSON that is safe to print."""
    return safe_json(json.dumps(value, indent=indent, ensure_ascii=False))


def safe_json_pieces(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """JSON in UTF-8 that comes in pieces, made safe; bytes that are no UTF-8 become replacement characters."""
    import codecs

    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for piece in pieces:
        yield safe_json(decoder.decode(piece)).encode()
    yield safe_json(decoder.decode(b"", final=True)).encode()


def write_lines(lines: Iterable[str]) -> None:
    """Write lines for people to stdout."""
    is_colored = has_colors(sys.stdout)
    written = (
        f"{_BOLD}{safe(line)}{_PLAIN}" if is_colored and isinstance(line, Heading) else safe(line) for line in lines
    )
    _write(sys.stdout, "".join(f"{line}\n" for line in written))


def flush() -> None:
    """Let a reader of a pipe have what is written so far."""
    sys.stdout.flush()


def write_json(value: object) -> None:
    """Write a value as JSON to stdout."""
    _write(sys.stdout, json_text(value) + "\n")


def write_json_pieces(pieces: Iterable[bytes]) -> None:
    """Write JSON that comes in pieces to stdout."""
    for piece in safe_json_pieces(pieces):
        sys.stdout.buffer.write(piece)


def is_terminal() -> bool:
    """Whether people can be asked: questions go to stderr."""
    return sys.stderr.isatty()


def write_errors(texts: Iterable[str]) -> None:
    """Write one line about each failure to stderr."""
    write_notes(f"emubus: error: {one_line(text)}" for text in texts)


def write_notes(lines: Iterable[str]) -> None:
    """Write lines for people to stderr, where they do not mix with the result."""
    _write(sys.stderr, "".join(f"{safe(line)}\n" for line in lines))


def _write(stream: TextIO, text: str) -> None:
    """Write a text; what the stream's encoding lacks becomes an escape."""
    encoding = stream.encoding or "utf-8"
    stream.write(text.encode(encoding, "backslashreplace").decode(encoding))


class Progress:
    """The progress of long work on stderr, if that is a terminal; `step` is called after each part."""

    def __init__(self, what: str, total: int) -> None:
        self._what = safe(what)
        self._total = total
        self._is_shown = sys.stderr.isatty()

    def step(self, done: int) -> None:
        """Show how much is done."""
        if self._is_shown:
            share = f" ({100 * done // self._total} %)" if self._total else ""
            sys.stderr.write(f"\r{self._what}: {done} of {self._total}{share}{_ERASE_LINE}")
            sys.stderr.flush()

    def end(self) -> None:
        """Remove the line."""
        if self._is_shown:
            sys.stderr.write(f"\r{_ERASE_LINE}")
            sys.stderr.flush()
