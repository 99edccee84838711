"""The keys of a namespace after somebody has changed them while it ran, as the bytes of a small file.

The configuration says which keys there are at the start. What was changed later holds on, until the configuration says
something else about the same key than it did then: a file that was edited, or another `--sas-key`, wins.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from .keys import Right, SharedKey


def written(configured: Iterable[SharedKey], keys: Iterable[SharedKey]) -> bytes:
    """The file for these keys, changed over those that were configured."""
    found = {"configured": [_json(each) for each in configured], "keys": [_json(each) for each in keys]}
    return json.dumps(found, separators=(",", ":")).encode()


def keys_after(configured: Sequence[SharedKey], data: bytes) -> tuple[SharedKey, ...]:
    """The keys of a start: the configured ones as a file has changed them. ValueError for what is no such file."""
    if not data:
        return tuple(configured)
    try:
        read = json.loads(data)
        before = {each.name: each for each in map(_key, read["configured"])}
        kept = {each.name: each for each in map(_key, read["keys"])}
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"it can't be read ({type(error).__name__}: {error!s:.100})") from None
    now = {each.name: each for each in configured}
    found = [kept.get(name) if before.get(name) == each else each for name, each in now.items()]
    made = [each for name, each in kept.items() if name not in now and name not in before]
    return (*(each for each in found if each is not None), *made)


def _json(key: SharedKey) -> dict[str, object]:
    return {"name": key.name, "key": key.key, "secondary_key": key.secondary_key, "rights": sorted(key.rights)}


def _key(value: Mapping[str, object]) -> SharedKey:
    rights, second = value["rights"], value["secondary_key"]
    if not isinstance(rights, list) or not isinstance(second, str | None):
        raise TypeError("a key has other members")
    return SharedKey(str(value["name"]), str(value["key"]), frozenset(map(Right, rights)), None, second)
