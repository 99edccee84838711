"""Exit codes of the command line, and the error that ends a command.

3 for a server that does not answer lets a script start one and try again.
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
