"""The commands of the command line, one module per topic, and what they share: exit codes and options.

`table.py` lists them. A module adds the arguments of a command to a parser and sets its `run(parsed)`, which returns
the exit code. The module of the command that the user has named is imported, and no other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_NO_SERVER: Final = 3


class CommandError(Exception):
    """A command has failed; the text is one line for stderr, and so is each of `more`."""

    def __init__(self, text: str, exit_code: int = EXIT_FAILED, more: Sequence[str] = ()) -> None:
        super().__init__(text)
        self.exit_code = exit_code
        self.more = more
