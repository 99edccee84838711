"""The command of Click of all commands: what reads a line that is not plain, and what a shell completes from."""

from __future__ import annotations

from collections.abc import Sequence

import click

from .declaring import Parsed
from .parsing import Completing, overview, parse_line, root
from .table import COMMANDS
from .version import version


def click_command(completing: Completing | None = None) -> click.Group:
    """All commands; each is declared when it is asked for. `completing` answers a shell."""

    def text() -> str:
        rows = {name: (entry.group, entry.help) for name, entry in COMMANDS.items()}
        return overview("A local stand-in for Azure Service Bus.", rows)

    return root([*COMMANDS], lambda name: COMMANDS[name].command(name), text, version, completing)


def parse(given: Sequence[str]) -> Parsed:
    """The values of a line and the function of its command. SystemExit: 0 after help, 2 with one line on stderr."""
    return parse_line(click_command(), given)
