"""From a failing run to the shortest list of commands that breaks the same rule, over the smallest namespace."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

from .commands import Command, Rest, Schedule, Send, Spec, Together
from .running import Failure, replay
from .shapes import Shape

TRIES_MAX = 3_000


class Shrinking:
    """Smaller and smaller versions of one failure."""

    def __init__(self, failure: Failure, muted: Collection[str] = ()) -> None:
        self._best = failure
        self._muted = muted
        self._tries = 0

    def smallest(self) -> Failure:
        """What is left when nothing more can be taken away."""
        while self._tries < TRIES_MAX:
            before = self._best
            self._drop_commands()
            self._drop_shapes()
            self._simplify()
            if self._best == before:
                break
        return self._best

    def _still_fails(self, shapes: Sequence[Shape], commands: Sequence[Command]) -> bool:
        """Whether the same rule is broken; if so, it is the best version from now on."""
        self._tries += 1
        try:
            found = replay(tuple(shapes), commands, self._muted)
        except Exception:  # a namespace that can't be, say: a subscription without its topic
            return False
        if found is None or found.rule != self._best.rule:
            return False
        self._best = replace(found, seed=self._best.seed)
        return True

    def _drop_commands(self) -> None:
        size = max(1, len(self._best.commands) // 2)
        while size and self._tries < TRIES_MAX:
            start = 0
            while start < len(self._best.commands):
                commands = self._best.commands
                if not self._still_fails(self._best.shapes, commands[:start] + commands[start + size :]):
                    start += size
            size //= 2

    def _drop_shapes(self) -> None:
        for shape in list(self._best.shapes):
            left = tuple(each for each in self._best.shapes if each is not shape and each.topic != shape.path)
            self._still_fails(left, self._best.commands)

    def _simplify(self) -> None:
        for index in range(len(self._best.shapes)):
            for simpler in _simpler(self._best.shapes[index], ("path", "kind")):
                self._still_fails(_with(self._best.shapes, index, simpler), self._best.commands)
        index = 0
        while index < len(self._best.commands) and self._tries < TRIES_MAX:
            for simpler in _simpler_commands(self._best.commands[index]):
                commands = _with(self._best.commands, index, simpler)
                if self._still_fails(self._best.shapes, commands):
                    break
            index += 1


def _with(values: Sequence[Any], index: int, value: Any) -> tuple[Any, ...]:
    return (*values[:index], value, *values[index + 1 :])


def _simpler(value: Any, kept: Collection[str]) -> Iterator[Any]:
    """The value with one of its fields at its default."""
    for name, field in type(value).__dataclass_fields__.items():
        if name not in kept and getattr(value, name) != field.default:
            yield replace(value, **{name: field.default})


def _simpler_commands(command: Command) -> Iterator[Command]:
    if isinstance(command, Together):
        count = len(command.sends)
        for size in (count // 2, 1):
            for start in range(0, count, max(1, size)):
                yield replace(command, sends=command.sends[:start] + command.sends[start + size :])
    if isinstance(command, Send | Schedule):
        for index, spec in enumerate(command.specs):
            if len(command.specs) > 1:
                yield replace(command, specs=command.specs[:index] + command.specs[index + 1 :])
            for simpler in _simpler(spec, ("label", "after_ms")):
                assert isinstance(simpler, Spec)
                yield replace(command, specs=_with(command.specs, index, simpler))
    elif not isinstance(command, Rest | Together):
        yield from _simpler(command, _needed(command))


def _needed(command: Command) -> set[str]:
    names = {
        "via",
        "parts",
        "shape",
        "name",
        "page",
        "commands",
        "after",
        "store",
        "kind",
        "fate",
        "ms",
        "label",
        "of",
        "to",
        "labels",
        "count",
        "outcome",
    }
    return {name for name in type(command).__dataclass_fields__ if name in names}
