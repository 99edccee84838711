"""`emubus snapshot`: take, restore, list, delete, download and upload snapshots of the namespace."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ...broker.errors import BrokerError
from ...broker.names import SnapshotName
from ...exits import EXIT_OK
from ...kit.http_connection import CHUNK_BYTES
from ...options import ConfigError
from ..declaring import Command, Parsed
from .address import add_server_options
from .api import connect
from .output import add_json, add_yes, confirm, instant, show, table

ARCHIVE: Final = "application/x-tar"
_DONE: Final = {"take": "took", "restore": "restored", "delete": "deleted", "upload": "uploaded"}


def add_snapshot(parser: Command) -> None:
    parser.argument(
        "action",
        nargs="?",
        known=["list", "take", "restore", "delete", "download", "upload"],
        default="list",
        metavar="ACTION",
        help="list (default), take, restore, delete, download or upload",
    )
    parser.argument("name", nargs="?", metavar="NAME", help="name of the snapshot")
    parser.option("--file", convert=Path, metavar="FILE", help="the archive to write or read (NAME.tar)")
    add_yes(parser)
    add_json(parser)
    add_server_options(parser)
    parser.run = _snapshot


def _snapshot(parsed: Parsed) -> int:
    if (parsed.name is None) != (parsed.action == "list"):
        if parsed.action == "list":
            raise ConfigError(f"NAME is '{parsed.name}'; `emubus snapshot list` takes none, it lists all")
        raise ConfigError("every action but list needs the NAME of a snapshot")
    if parsed.action == "restore":
        confirm(parsed, f"Replace all entities and messages by those of {parsed.name}")
    elif parsed.action == "delete":
        confirm(parsed, f"Delete the snapshot {parsed.name}")
    at = "/snapshots" if parsed.name is None else f"/snapshots/{_name(parsed.name)}"
    with connect(parsed) as api:
        match parsed.action:
            case "list":
                answer = api.get(at)
                rows = [
                    [
                        each["name"],
                        instant(each.number("taken_at")),
                        each["entity_count"],
                        each["message_count"],
                        each["size_bytes"],
                    ]
                    for each in answer.parts("snapshots")
                ]
                show(parsed, answer, table(["SNAPSHOT", "TAKEN", "ENTITIES", "MESSAGES", "BYTES"], rows))
                return EXIT_OK
            case "download":
                file = parsed.file or Path(f"{parsed.name}.tar")
                _write(file, api.stream(f"{at}/archive", ARCHIVE))
                show(parsed, {"name": parsed.name, "file": str(file)}, [f"downloaded {parsed.name} to {file}"])
                return EXIT_OK
            case "take":
                answer = api.call("PUT", at)
            case "restore":
                answer = api.post(f"{at}/restore")
            case "delete":
                answer = api.call("DELETE", at)
            case _:
                api.upload(f"{at}/archive", _read(parsed.file or Path(f"{parsed.name}.tar")), ARCHIVE, "PUT")
                answer = api.get(at)
    show(parsed, answer, [f"{_DONE[parsed.action]} snapshot {answer['name']}"])
    return EXIT_OK


def _name(text: str) -> SnapshotName:
    try:
        return SnapshotName(text)
    except BrokerError as error:
        raise ConfigError(error.description) from None


def _read(file: Path) -> Iterator[bytes]:
    try:
        with file.open("rb") as opened:
            while chunk := opened.read(CHUNK_BYTES):
                yield chunk
    except OSError as error:
        raise ConfigError(f"{file} can't be read: {error.strerror}") from error


def _write(file: Path, chunks: Iterator[bytes]) -> None:
    try:
        with file.open("wb") as opened:
            for chunk in chunks:
                opened.write(chunk)
    except OSError as error:
        raise ConfigError(f"{file} can't be written: {error.strerror}") from error
