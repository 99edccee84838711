"""The commands of the command line, one module each, and what they share: exit codes and options.

A command is a module with `add_arguments(parser)` and `run(parsed)`. `emubus/__main__.py` imports the one that the user
has named.
"""

from __future__ import annotations

from typing import Final

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
