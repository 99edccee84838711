"""How messages that are under way come to rest: which of several copies an entity takes that drops duplicates.

Knows the ways between entities and what these remember. Does not know what an entity does with a message (`model.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain, product

from .items import UNDER_WAY, Item, Possibility, is_given
from .memory import DuplicateMemory, Identity
from .shapes import Shape

POSSIBILITIES_MAX = 256


@dataclass(frozen=True)
class Time:
    """When messages arrive: now, or at some time `since` then; `is_certain` if one after the other."""

    since: int
    now: int
    is_certain: bool


class Arrivals:
    """`place` says where a message is, or goes, that an entity has taken."""

    def __init__(
        self, shapes: Mapping[str, Shape], memory: DuplicateMemory, place: Callable[[Item], list[Item]]
    ) -> None:
        self._shapes = shapes
        self._memory = memory
        self._place = place

    def identity(self, item: Item) -> Identity | None:
        """As what an entity that drops duplicates remembers a message."""
        shape = self._shapes[item.path]
        if not shape.duplicates or item.id is None:
            return None
        return item.path, item.id, item.partition_key if shape.partitioned else None

    def possibilities(self, items: Iterable[Item], time: Time, *, is_single: bool) -> list[Possibility]:
        """Where a message and its copies are in the end: all that may be, by which of several copies come first.

        `is_single` if there are no other copies.
        """
        moving: list[Item] = []
        resting: list[Item] = []
        for item in items:
            (moving if item.home == UNDER_WAY else resting).append(item)
        if not moving:
            return [Possibility(resting)]
        is_single = is_single and len(moving) + len(resting) == 1
        path = self._next_stop(moving)
        resting += [item for item in moving if item.path != path]
        found: list[Possibility] = []
        arriving = [item for item in moving if item.path == path]
        for taken, identities in self._takings(path, arriving, time, is_single=is_single):
            placed = chain.from_iterable(map(self._place, taken))
            for each in self.possibilities([*resting, *placed], time, is_single=is_single):
                found.append(replace(each, identities=each.identities | identities))
        if len(found) > 1:
            found = list({repr(each.looks()): each for each in reversed(found)}.values())[::-1]
        assert len(found) <= POSSIBILITIES_MAX, "copies of a message meet too often"
        return found

    def _next_stop(self, moving: Iterable[Item]) -> str:
        """Where messages are let in next: where duplicates are dropped after all other places that lead there."""
        paths = sorted({item.path for item in moving})
        paths.sort(key=lambda path: self._shapes[path].duplicates)
        return next((path for path in paths if not any(path in self._behind(each) for each in paths)), paths[0])

    def _behind(self, path: str) -> set[str]:
        """The entities to which messages may go from this one."""
        found: set[str] = set()
        for shape in self._shapes.values():
            if path in (shape.path, shape.topic):
                for target in (shape.forward_to, shape.forward_dead_letters_to):
                    if target is not None and target in self._shapes and target not in found:
                        found |= {target, *self._behind(target)}
        return found

    def _takings(
        self, path: str, arriving: list[Item], time: Time, *, is_single: bool
    ) -> list[tuple[list[Item], dict[Identity, bool]]]:
        """Which of the copies that arrive at an entity it takes: all, or one of each identity, whichever comes first.

        With them the identities that it remembers for that.
        """
        if not self._shapes[path].duplicates:
            return [(arriving, {})]
        groups: dict[Identity | None, list[Item]] = {}
        for item in arriving:
            groups.setdefault(self.identity(item), []).append(item)
        identities = {
            identity: any("taken" not in item.doubts for item in group)
            for identity, group in groups.items()
            if identity is not None
        }
        if not time.is_certain:
            return [(self._perhaps_taken(groups, time, is_single=is_single), identities)]
        choices: list[list[Item]] = []
        for identity, group in groups.items():
            had = identity is not None and self._memory.has(identity, time.since, time.now)
            if had is True:
                continue
            trail = tuple(chain.from_iterable(sorted({item.trail for item in group}, key=repr)))
            rank = min(item.rank for item in group)
            doubts = {"taken"} if had is None else set()
            choices.append([item.but(trail=trail, rank=rank, doubts=item.doubts | doubts) for item in group])
        return [(list(taken), identities) for taken in product(*choices)]

    def _perhaps_taken(
        self, groups: Mapping[Identity | None, list[Item]], time: Time, *, is_single: bool
    ) -> list[Item]:
        """Each message, in doubt if another one may have come before it, or may come."""
        taken: list[Item] = []
        for identity, group in groups.items():
            had = identity is not None and self._memory.has(identity, time.since, time.now)
            is_alone = is_single and is_given(group[0]) and had is False
            taken += group if is_alone else [item.but(doubts={"taken"}) for item in group]
        return taken
