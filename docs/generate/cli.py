"""Writes `docs/CLI.md` from the parsers of the commands: `python -m docs.generate.cli`."""

from __future__ import annotations

from typing import Final

from docs import DOCS
from emubus.commands.parsing import help_text
from emubus.commands.table import COMMANDS
from emubus.config import JSON_VARIABLE, OPTIONS

PAGE: Final = DOCS / "CLI.md"
HEAD: Final = """# The command line

`python -m docs.generate.cli` writes this page from the commands themselves.

`emubus serve` runs a server; most other commands are clients of a running one, over its control API. They ask the
server of `--url` or `--connection-string`, or of the variables `EMUBUS_URL` and `EMUBUS_CONNECTION_STRING`. What is
typed comes before variables; two different servers at once are refused. Without any, they find the server that runs:
each leaves its address (no key) in `XDG_RUNTIME_DIR`, or in a folder of its user in the temporary folder. Of several,
that with the data folder of this place is meant, else that at port 5300; `http://localhost:5300` is asked if none is
found. A server with `--auth sas` needs a key with the Manage right: that of the connection string,
or `EMUBUS_SAS_KEY` for `RootManageSharedAccessKey`. To a server with `--tls dev` they speak HTTPS with
`--url https://localhost:5300 --ca FILE` (or `EMUBUS_CA`); `emubus ca` prints the file.

A subscription is named `topic/name`. A span is `500ms`, `30s`, `5m`, `1h`, `2d` or an ISO 8601 duration. `--json`
prints what the control API answers. Colours and progress are for terminals, unless `NO_COLOR` or `FORCE_COLOR` is set.

| Exit code | Meaning |
|---|---|
| 0 | success |
| 1 | the server refuses, a check fails, or `receive` finds no message |
| 2 | invalid arguments or configuration |
| 3 | no server answers in time, or what answers is no emubus |
| 130 | interrupted |

An error is one line on stderr that begins with `emubus: error:`. Control characters (C0, C1) and marks that override
the direction of text never reach the terminal, whatever messages and servers contain: they are shown as `�`, and in
JSON they are escaped, so that its values are whole. `emubus export` writes messages in this way.

Options stand before or behind arguments. `emubus completion bash` prints the completion script of a shell, also of zsh
and fish, which the shell's start-up file can read: it completes commands, options, their values, files, and the names
of the running server's entities.
"""
MARK: Final = "<!-- checked by tests/commands/test_help.py::test_the_page_describes_the_commands_as_they_are -->"
SETTINGS: Final = """## Settings of the server

Each option of `emubus serve` can be set in the environment; an option on the command line comes first. The text of a
Config.json can be given in `{variable}`.

| Option | Variables | Default | Meaning |
|---|---|---|---|
"""


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for group in dict.fromkeys(entry.group for entry in COMMANDS.values()):
        parts.append(f"## {group}\n")
        for name, entry in COMMANDS.items():
            if entry.group == group:
                helps = [help_text(each).rstrip() for each in entry.command(name).commands()]
                parts += [f"### emubus {name}\n", *(f"{MARK}\n```text\n{each}\n```\n" for each in helps)]
    parts.append(SETTINGS.format(variable=JSON_VARIABLE) + _settings())
    return "\n".join(parts)


def _settings() -> str:
    rows = []
    for option in OPTIONS:
        cells = (
            f"`{option.flag}`",
            ", ".join(f"`{each}`" for each in option.variables),
            "" if option.default is None else f"`{option.default}`",
            option.help.replace("|", "\\|"),
        )
        rows.append(f"| {' | '.join(cells)} |\n")
    return "".join(rows)


if __name__ == "__main__":
    PAGE.write_text(page())
