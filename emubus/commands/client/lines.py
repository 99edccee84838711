"""`emubus export`, and the messages of `emubus import`: messages as JSON Lines."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final
from urllib.parse import urlencode

from ...exits import EXIT_FAILED, EXIT_OK
from ...kit.answers import Answer
from ...options import ConfigError
from ...terminal import safe_json_pieces, write_errors, write_json_pieces
from ..declaring import Command, Parsed
from .address import add_server_options
from .api import connect
from .bulk import add_filter, failures_of, filter_of
from .output import add_json, show

JSON_LINES: Final = "application/jsonl"
CHUNK_BYTES: Final = 64 << 10


def add_export(parser: Command) -> None:
    parser.argument("entity", metavar="ENTITY", help="path of a queue or subscription (topic/name)")
    parser.option("--file", convert=Path, metavar="FILE", help="write to this file instead of stdout")
    add_filter(parser)
    add_json(parser)
    add_server_options(parser)
    parser.run = _export


def _export(parsed: Parsed) -> int:
    query = urlencode({"sub_queue": parsed.sub_queue, **filter_of(parsed)})
    with connect(parsed) as api:
        at = f"{api.entity(parsed.entity)}/messages/lines?{query}"
        if parsed.file is None:
            write_json_pieces(api.stream(at, JSON_LINES))
            return EXIT_OK
        try:
            with parsed.file.open("wb") as file:
                for piece in safe_json_pieces(api.stream(at, JSON_LINES)):
                    file.write(piece)
        except OSError as error:
            raise ConfigError(f"{parsed.file} can't be written: {error.strerror}") from error
    show(parsed, {"file": str(parsed.file)}, [f"exported to {parsed.file}"])
    return EXIT_OK


def import_messages(parsed: Parsed) -> int:
    """Send the messages of the file `parsed.lines` (-: stdin) to `parsed.entity`. ConfigError."""
    try:
        file = sys.stdin.buffer if str(parsed.lines) == "-" else parsed.lines.open("rb")
        with file, connect(parsed) as api:
            at = f"{api.entity(parsed.entity)}/messages/lines"
            answer = api.upload(at, _chunks(file), JSON_LINES)
    except OSError as error:
        raise ConfigError(f"--lines {parsed.lines} can't be read: {error.strerror}") from error
    return _show_sent(parsed, answer)


def _chunks(file: BinaryIO) -> Iterator[bytes]:
    while chunk := file.read(CHUNK_BYTES):
        yield chunk


def _show_sent(parsed: Parsed, answer: Answer) -> int:
    errors = failures_of(answer.parts("failures"), "line")
    show(parsed, answer, [f"sent {answer['sent_count']} messages, {answer['failed_count']} failed"])
    write_errors(f"line {each}" for each in errors)
    return EXIT_FAILED if answer["failed_count"] else EXIT_OK
