"""`emubus completion`: the completion script of bash, zsh or fish.

The words come from the parsers, so that a script completes what the installed version has: commands, their options,
their actions and choices.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import Final

from ..exits import EXIT_OK
from ..terminal import write_lines
from .parsing import Parser
from .table import COMMANDS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=[*SCRIPTS], metavar="SHELL", help=", ".join(SCRIPTS))
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Print the script; the exit code."""
    write_lines(SCRIPTS[parsed.shell](words()).splitlines())
    return EXIT_OK


def words() -> dict[str, list[str]]:
    """The words that may follow each command: options, actions and choices."""
    found: dict[str, list[str]] = {}
    for name, entry in COMMANDS.items():
        parser = Parser(prog=name)
        entry.add_arguments(parser)
        found[name] = parser.words()
    return found


def _bash(known: Mapping[str, list[str]]) -> str:
    cases = "\n".join(f'        {name}) words="{" ".join(own)}" ;;' for name, own in known.items())
    return f"""_emubus() {{
    local words="{" ".join(known)} --version --help"
    case "${{COMP_WORDS[1]}}" in
{cases}
    esac
    [ "$COMP_CWORD" -eq 1 ] && words="{" ".join(known)} --version --help"
    COMPREPLY=($(compgen -W "$words" -- "${{COMP_WORDS[COMP_CWORD]}}"))
}}
complete -o default -F _emubus emubus
"""


def _zsh(known: Mapping[str, list[str]]) -> str:
    cases = "\n".join(f"        {name}) compadd -- {' '.join(own)} ;;" for name, own in known.items())
    return f"""#compdef emubus
_emubus() {{
    if (( CURRENT == 2 )); then
        compadd -- {" ".join(known)} --version --help
        return
    fi
    case "$words[2]" in
{cases}
    esac
    _files
}}
compdef _emubus emubus
"""


def _fish(known: Mapping[str, list[str]]) -> str:
    lines = ["complete -c emubus -f -n __fish_use_subcommand -l version", ""]
    for name, own in known.items():
        lines.append(f"complete -c emubus -f -n __fish_use_subcommand -a {name}")
        seen = f"'__fish_seen_subcommand_from {name}'"
        lines += (f"complete -c emubus -n {seen} -l {each[2:]}" for each in own if each.startswith("--"))
        actions = [each for each in own if not each.startswith("-")]
        if actions:
            lines.append(f"complete -c emubus -n {seen} -a '{' '.join(actions)}'")
    return "\n".join(lines) + "\n"


SCRIPTS: Final[Mapping[str, Callable[[Mapping[str, list[str]]], str]]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
