"""`emubus completion`: the completion script of bash, zsh or fish, and what it asks for at each key.

The script is Click's: it runs `emubus` with a variable set, which completes commands, options and values from the
declarations of the installed version, names of entities from the running server, and files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from click.shell_completion import CompletionItem, get_completion_class, shell_complete

from ..exits import EXIT_OK, CommandError
from ..options import ConfigError, variables_of_process
from ..terminal import write_json, write_lines
from .all_commands import click_command
from .declaring import COMPLETING, ENTITY, FILE, FOLDER, Command, Parameter, Parsed

SHELLS: Final = ("bash", "zsh", "fish")
WAIT_S: Final = 2.0
"""For the names of entities: a server that is slower is no help at a key."""


def add_arguments(parser: Command) -> None:
    parser.argument("shell", known=SHELLS, metavar="SHELL", help=", ".join(SHELLS))
    parser.switch("--json", help="print JSON")
    parser.run = run


def run(parsed: Parsed) -> int:
    """Print the script; the exit code."""
    shell = get_completion_class(parsed.shell)
    assert shell is not None, "Click knows all of SHELLS"
    script = shell(click_command(completed), {}, "emubus", COMPLETING)
    # Not `source()`: that of bash starts bash to learn its version.
    text = script.source_template % script.source_vars()
    if parsed.json:
        write_json({"shell": parsed.shell, "script": text.strip("\n") + "\n"})
    else:
        write_lines(text.strip("\n").splitlines())
    return EXIT_OK


def complete() -> int:
    """Answer the script of a shell, which has set the variable; the exit code."""
    return shell_complete(click_command(completed), {}, "emubus", COMPLETING, variables_of_process()[COMPLETING])


def completed(parameter: Parameter, values: Mapping[str, object], beginning: str) -> list[CompletionItem[str]]:
    """What a shell offers for a value that begins so; `values` are those of the line before it."""
    if parameter.completes == FILE:
        return [CompletionItem(beginning, type="file")]
    if parameter.completes == FOLDER:
        return [CompletionItem(beginning, type="dir")]
    if parameter.completes == ENTITY:
        known: Iterable[str] = _entities(values)
    elif callable(parameter.completes):
        known = parameter.completes()
    else:
        known = parameter.known
    before, comma, last = beginning.rpartition(",")  # of a list, the last one is completed
    return [CompletionItem(f"{before}{comma}{each}") for each in known if each.lower().startswith(last.lower())]


def _entities(values: Mapping[str, object]) -> list[str]:
    """The paths of the running server's entities; none if nobody answers."""
    from ..kit.answers import AnswerError
    from .client.address import MEANT
    from .client.api import connect

    names = ("url", "connection_string", "ca", MEANT)
    try:
        given = {name: values.get(name) for name in names}
        known = {name: value if isinstance(value, str) else None for name, value in given.items()}
        with connect(Parsed(known), WAIT_S) as api:
            return [each.text("path").replace("/Subscriptions/", "/") for each in api.entities()]
    except (CommandError, ConfigError, AnswerError):
        return []
