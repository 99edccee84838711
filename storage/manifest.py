"""`emubus.json`: the parts of a data folder, to detect missing, foreign and outdated ones.

The file has the format version, the release that wrote it last, the namespace's id, the journal's id, and for each
store (a part) its id and last known transaction. A part also has its id inside, as its mark. After a clean stop the
file also has the size of each part and, for small ones, its checksum. Does not know the contents of parts.
The file is replaced atomically: written under another name, synced, renamed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from .contract import FORMAT_VERSION, FORMAT_VERSION_OLDEST
from .copying import replace_file

MANIFEST_FILE: Final = "emubus.json"
NEW_MANIFEST_FILE: Final = "emubus.json.new"
_BYTES_MAX: Final = 1 << 20


class FolderState(StrEnum):
    """The use of the folder when its manifest was written."""

    MAKING = "making"
    """Its parts are being made for the first time: nothing is stored yet."""
    EMPTYING = "emptying"
    """Its parts are being deleted and recreated, as the user has asked."""
    UPGRADING = "upgrading"
    """Its parts, of an older format, are being marked."""
    OPEN = "open"
    """A server uses it, or was killed."""
    CLOSED = "closed"
    """The server has stopped: the parts are exactly as in the manifest."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Part:
    """One store. `size_bytes` and `crc32` are known after a clean stop; `crc32` not of large folders."""

    id: str
    transaction: int = 0
    size_bytes: int | None = None
    crc32: int | None = None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Manifest:
    """The whole file; `parts` by the names of their folders, `release` is the version of emubus that wrote it.

    `journal` is the id of the journal with rows that the parts may lack, None without one. `version` is that of the
    folder's format; `write_manifest` writes this release's.
    """

    namespace_id: str
    state: FolderState
    parts: Mapping[str, Part]
    release: str
    journal: str | None = None
    version: int = FORMAT_VERSION

    def mark(self, name: str, *, whole: bool) -> bytes:
        """Return the mark of a part; with `whole` it lists all parts, for the one part that names the others."""
        mark: dict[str, object] = {"namespace_id": self.namespace_id, "part": name, "id": self.parts[name].id}
        if whole:
            mark["parts"] = {each: part.id for each, part in self.parts.items()}
        return json.dumps(mark, sort_keys=True).encode()


def read_manifest(folder: Path) -> Manifest | None:
    """Return the manifest of a data folder, None without one. ValueError: the problem of the file. OSError."""
    try:
        with (folder / MANIFEST_FILE).open("rb") as file:
            content = file.read(_BYTES_MAX + 1)
    except FileNotFoundError:
        return None
    try:
        values = json.loads(content)
        version = values["format"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError("it is damaged: it holds no JSON object with a format version") from None
    if type(version) is not int or not FORMAT_VERSION_OLDEST <= version <= FORMAT_VERSION:
        raise ValueError(
            f"the folder has format version {version!r} and this emubus reads versions up to {FORMAT_VERSION}: "
            f"use the release that wrote it ({values.get('release')!r})"
        )
    try:
        return _manifest(values)
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"it is damaged: {type(error).__name__} {error}") from None


def _manifest(values: Mapping[str, object]) -> Manifest:
    parts = {name: _part_in(_require_object(part)) for name, part in _require_object(values["parts"]).items()}
    journal = values.get("journal")  # format version 2 has none
    return Manifest(
        _require_text(values["namespace_id"]),
        FolderState(_require_text(values["state"])),
        parts,
        _require_text(values["release"]),
        None if journal is None else _require_id(journal),
        _require_count(values["format"]),
    )


def _part_in(values: Mapping[str, object]) -> Part:
    return Part(
        _require_text(values["id"]),
        _require_count(values["transaction"]),
        _require_count_or_none(values["size_bytes"]),
        _require_count_or_none(values["crc32"]),
    )


def _require_object(value: object) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise TypeError(f"{value!r} is not an object")
    return value


def _require_text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise TypeError(f"{value!r} is not a text")
    return value


def _require_id(value: object) -> str:
    text = _require_text(value)
    if not text.isalnum():  # it is part of a file's name
        raise ValueError(f"{value!r} is not an id")
    return text


def _require_count(value: object) -> int:
    if type(value) is not int or value < 0:
        raise TypeError(f"{value!r} is not a number")
    return value


def _require_count_or_none(value: object) -> int | None:
    return None if value is None else _require_count(value)


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Replace the manifest, durably, or leave the old one. OSError."""
    parts = {
        name: {"id": part.id, "transaction": part.transaction, "size_bytes": part.size_bytes, "crc32": part.crc32}
        for name, part in manifest.parts.items()
    }
    values = {
        "format": FORMAT_VERSION,
        "release": manifest.release,
        "namespace_id": manifest.namespace_id,
        "state": manifest.state.value,
        "journal": manifest.journal,
        "parts": parts,
    }
    replace_file(folder / MANIFEST_FILE, json.dumps(values, indent=1).encode() + b"\n")
