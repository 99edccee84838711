"""The checkpoint of a source that reads several entities: the offset of each, under its path.

Pure. Knows only that an offset of one entity is a JSON object that names it (`source.offsets`). A checkpoint of one
entity is one of several that has only this one, so a query can go on with more entities than it began with.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ...errors import Code, ConnectorError

VERSION: Final = 1
KEY: Final = "entities"
Json = dict[str, Any]


def joined(offsets: Mapping[str, Json]) -> Json:
    """One offset of the offsets by path; the same text for the same progress."""
    return {"v": VERSION, KEY: {path: offsets[path] for path in sorted(offsets)}}


def separated(raw: Mapping[str, Any]) -> dict[str, Json]:
    """The offsets by path; ConnectorError(CHECKPOINT_MISMATCH) if it is none of this connector."""
    if KEY not in raw:
        return {str(raw["e"]): dict(raw)} if "e" in raw else _mismatch("can't be read")
    if raw.get("v") != VERSION:
        _mismatch(f"has version {raw.get('v')!r}, this connector's is {VERSION}")
    offsets = raw[KEY]
    if not isinstance(offsets, Mapping) or not all(isinstance(each, Mapping) for each in offsets.values()):
        _mismatch("can't be read")
    return {str(path): dict(each) for path, each in offsets.items()}


def _mismatch(what: str) -> Any:
    raise ConnectorError(
        Code.CHECKPOINT_MISMATCH,
        f"the checkpoint holds an offset that {what}: start with a new checkpointLocation",
    )
