"""A run from a seed, a run from a list of commands, and how a failing one is written down."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass

from .commands import Command, Together
from .generator import Generator, namespace
from .rules import BrokenRuleError
from .shapes import Shape
from .steps import Run
from .world import Row

Namespaces = Callable[[random.Random], tuple[Shape, ...]]


@dataclass(frozen=True)
class Failure:
    """A rule that was broken by the last of these commands."""

    rule: str
    seen: str
    shapes: tuple[Shape, ...]
    commands: tuple[Command, ...]
    seed: int | None = None

    @property
    def command_count(self) -> int:
        """How many commands it took; deliveries that are under way together count one by one."""
        return sum(map(weight, self.commands))


def weight(command: Command) -> int:
    """How many commands one is."""
    return len(command.sends) if isinstance(command, Together) else 1


class SeededRun:
    """Random commands from one seed: a namespace, what was done to it, and what is in it at the end."""

    def __init__(self, seed: int, muted: Collection[str] = (), shapes: Namespaces = namespace) -> None:
        chance = random.Random(seed)
        self.seed = seed
        self.shapes = shapes(chance)
        self.done: list[Command] = []
        self._run = Run(self.shapes, muted)
        self._generator = Generator(chance, self._run)

    def go(self, command_count: int) -> Failure | None:
        """So many commands, or until a rule is broken."""
        run = self._run
        count = 0
        with run.world.running():
            try:
                run.world.start()
                while count < command_count:
                    command = self._generator.next()
                    self.done.append(command)
                    count += weight(command)
                    run.do(command)
            except BrokenRuleError as broken:
                return Failure(broken.rule, broken.seen, self.shapes, tuple(self.done), self.seed)
        return None

    def rows(self) -> list[Row]:
        """What the stores hold."""
        return self._run.world.rows()


def run_seed(
    seed: int, command_count: int, muted: Collection[str] = (), shapes: Namespaces = namespace
) -> Failure | None:
    """So many random commands against a random namespace; what they found, if anything."""
    return SeededRun(seed, muted, shapes).go(command_count)


def replay(shapes: tuple[Shape, ...], commands: Sequence[Command], muted: Collection[str] = ()) -> Failure | None:
    """These commands against this namespace."""
    run = Run(shapes, muted)
    done: list[Command] = []
    with run.world.running():
        try:
            run.world.start()
            for command in commands:
                done.append(command)
                run.do(command)
        except BrokenRuleError as broken:
            return Failure(broken.rule, broken.seen, shapes, tuple(done))
    return None


def written(failure: Failure) -> str:
    """A failure as Python, to be pasted into `cases.py`."""
    shapes = "".join(f"        {source(shape)},\n" for shape in failure.shapes)
    commands = "".join(f"        {source(command)},\n" for command in failure.commands)
    seen = f"# {failure.rule}: {failure.seen}"
    return f'{seen}\nCase(\n    "{failure.rule}",\n    (\n{shapes}    ),\n    (\n{commands}    ),\n)'


def source(value: object) -> str:
    """A value as Python, without the fields that have their defaults."""
    if isinstance(value, tuple):
        inner = ", ".join(map(source, value))
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if not is_dataclass(value):
        return repr(value)
    said: list[str] = []
    for each in fields(value):
        mine = getattr(value, each.name)
        if each.default is MISSING:
            said.append(source(mine))
        elif mine != each.default:
            said.append(f"{each.name}={source(mine)}")
    return f"{type(value).__name__}({', '.join(said)})"
