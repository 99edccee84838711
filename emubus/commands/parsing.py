"""The parser of every command: short help, no abbreviations, suggestions for misspelt words, one line per error.

Knows argparse. Does not know the commands.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Iterator
from typing import Final, NoReturn

from ..exits import EXIT_USAGE
from ..terminal import one_line, write_notes

HELP_COLUMN: Final = 26
HELP_WIDTH: Final = 80
_CHOICE: Final = re.compile(r"invalid choice: '(?P<given>.*)' \(choose from (?P<known>.*)\)", re.DOTALL)


class Parser(argparse.ArgumentParser):
    """A parser for one command."""

    def __init__(self, prog: str | None = None, description: str | None = None, *, color: bool = False) -> None:
        super().__init__(prog, description=description, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        """Print one line with a suggestion, and exit with code 2."""
        found = _CHOICE.search(message)
        if found is not None:
            known = re.findall(r"'([^']*)'", found["known"])
            message = f"{message[: found.start()]}'{found['given']}' is none of {', '.join(known)}"
            message += suggestion(found["given"], known)
        write_notes([f"{self.prog}: error: {one_line(message)} (see {self.prog} --help)"])
        sys.exit(EXIT_USAGE)

    def format_help(self) -> str:
        """Usage, description, and a row for each argument: little enough for a screen."""
        parts = [f"usage: {self.usage_line()}", *([self.description] if self.description else []), ""]
        for name, text in self.rows():
            parts += row(name, text)
        return "\n".join([*parts, *(["", self.epilog] if self.epilog else [])]) + "\n"

    def usage_line(self) -> str:
        """The command with its positional arguments."""
        words = [self.prog, "[OPTIONS]"]
        for action in self._actions:
            if not action.option_strings:
                name = str(action.metavar or action.dest)
                words.append({"?": f"[{name}]", "*": f"[{name} …]", "+": f"{name} …"}.get(str(action.nargs), name))
        return " ".join(words)

    def rows(self) -> Iterator[tuple[str, str]]:
        """Each argument with its help; of a command with actions each action."""
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                yield from ((str(each.dest), str(each.help)) for each in action._choices_actions)
            elif action.help != argparse.SUPPRESS and not isinstance(action, argparse._HelpAction):
                name = action.option_strings[-1] if action.option_strings else str(action.metavar or action.dest)
                value = f" {action.metavar}" if action.option_strings and action.metavar and action.nargs != 0 else ""
                yield f"{name}{value}", (action.help or "").replace("%%", "%")

    def words(self) -> list[str]:
        """The long options and choices of this parser and of its commands."""
        found: list[str] = []
        for action in self._actions:
            found += (each for each in action.option_strings if each.startswith("--"))
            if not action.option_strings:
                found += map(str, action.choices or ())
            if isinstance(action.choices, dict):
                for each in action.choices.values():
                    found += each.words() if isinstance(each, Parser) else []
        return list(dict.fromkeys(found))

    def commands(self) -> Iterator[Parser]:
        """The parsers of its actions; itself if it has none."""
        found = [
            each for action in self._actions if isinstance(action.choices, dict) for each in action.choices.values()
        ]
        yield from (each for each in found if isinstance(each, Parser))
        if not found:
            yield self


def row(name: str, text: str) -> list[str]:
    """A row of the help: the name, and its text beside it."""
    import textwrap  # only for help

    lines = textwrap.wrap(text, HELP_WIDTH - HELP_COLUMN) or [""]
    if len(name) > HELP_COLUMN - 4:
        return [f"  {name}", *(f"{'':{HELP_COLUMN}}{each}" for each in lines)]
    first = f"  {name:{HELP_COLUMN - 2}}{lines[0]}".rstrip()
    return [first, *(f"{'':{HELP_COLUMN}}{each}" for each in lines[1:])]


def suggestion(given: str, known: Iterable[str]) -> str:
    """ "; did you mean …?" with the nearest known word, or nothing."""
    from difflib import get_close_matches  # only for a mistake

    close = get_close_matches(given, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""
