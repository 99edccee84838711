"""Draws twenty functions, to see whether path and name say what they do: `python bench/draw.py [SEED]`.

Reading them is the measure of names that no tool has: say of each, from its path, class and name alone, what it does,
then look. Eighteen of twenty should be right; what was wrong gets another name. With `--show` the sources follow, for
looking. Every function and method of the product has the same chance, but for special methods, whose names are fixed.
"""

from __future__ import annotations

import argparse
import ast
import random
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
FOLDERS: Final = (
    *("amqp", "broker", "codec", "conditions", "declared", "emubus", "spark_connector", "storage", "story"),
    *("telemetry", "templates", "web"),
)
DRAWN: Final = 20


class Drawn(NamedTuple):
    """A function or method: its file below the root, its line, its qualified name, and its source."""

    file: str
    line: int
    name: str
    source: str


def functions(root: Path = ROOT) -> list[Drawn]:
    """All functions of the product, in the order of their files."""
    found: list[Drawn] = []
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*.py")):
            if any(each.is_symlink() for each in path.parents):  # `emubus` has links to the other folders
                continue
            text = path.read_text(encoding="utf-8")
            found += _below(ast.parse(text), "", path.relative_to(root).as_posix(), text.split("\n"))
    return found


def _below(node: ast.AST, owner: str, file: str, lines: list[str]) -> Iterator[Drawn]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            yield from _below(child, f"{child.name}.", file, lines)
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) and not child.name.startswith("__"):
            yield Drawn(
                file, child.lineno, owner + child.name, dedent("\n".join(lines[child.lineno - 1 : child.end_lineno]))
            )


def drawn(seed: int, root: Path = ROOT) -> list[Drawn]:
    """The functions of a draw, each once."""
    return random.Random(seed).sample(functions(root), DRAWN)


def main() -> None:
    """Print a draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seed", type=int, nargs="?", help="repeats a draw; without it, a new one is drawn and named")
    parser.add_argument("--show", action="store_true", help="print the sources, too")
    arguments = parser.parse_args()
    seed = random.randrange(10_000) if arguments.seed is None else arguments.seed
    print(f"seed {seed}")
    for each in drawn(seed):
        print(f"{each.file}:{each.line} {each.name}")
        if arguments.show:
            print(each.source + "\n")


if __name__ == "__main__":
    main()
