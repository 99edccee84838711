"""The command line: `emubus serve`, `check`, `route`, `ca`, `health`.

Knows the names of the commands, and exit codes: 0 success, 1 failure, 2 invalid arguments or configuration, with one
line on stderr. Imports the module of a command only when it is asked for, so that `--version` and the health check of
a container stay fast.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from . import NO_WINDOWS, __version__
from .commands import EXIT_FAILED, EXIT_USAGE
from .commands.options import ConfigError


class Command(Protocol):
    """A module of `commands/`."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments."""
        ...

    def run(self, parsed: argparse.Namespace) -> int:
        """Run it; the exit code. ConfigError, StoreError."""
        ...


def _serve() -> Command:
    from .commands import serve

    return serve


def _check() -> Command:
    from .commands import check

    return check


def _route() -> Command:
    from .commands import route

    return route


def _ca() -> Command:
    from .commands import ca

    return ca


def _health() -> Command:
    from .commands import health

    return health


class Entry(NamedTuple):
    """A command in `emubus --help`, the function that imports it, and its text in its own help."""

    help: str
    load: Callable[[], Command]
    description: str | None = None


COMMANDS: Final = {
    "serve": Entry(
        "run the server",
        _serve,
        "Run the server until SIGINT or SIGTERM. Each option can be set in the environment too.",
    ),
    "check": Entry("check the data folder of a stopped server", _check),
    "route": Entry(
        "print the partition that a message would go to",
        _route,
        "Print the partition that a message would go to, by its key or the properties that make the key.",
    ),
    "ca": Entry("print the path of the development CA and how to trust it in each SDK", _ca),
    "health": Entry("check the health of a running server; exit code 0 or 1", _health),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    if sys.platform == "win32":
        sys.stderr.write(f"emubus: error: {NO_WINDOWS}\n")
        return EXIT_FAILED
    given = sys.argv[1:] if arguments is None else list(arguments)
    parsed = _parsed(given)
    run: Callable[[argparse.Namespace], int] = parsed.run
    try:
        return run(parsed)
    except ConfigError as error:
        sys.stderr.write(f"emubus: error: {error}\n")
        return EXIT_USAGE
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        from .storage.contract import StoreError  # only now: the health check does not need LMDB

        if not isinstance(error, StoreError):
            raise
        sys.stderr.write(f"emubus: error: {error}\n")
        return EXIT_FAILED


def _parsed(given: Sequence[str]) -> argparse.Namespace:
    """The arguments of the command that is given; SystemExit if they are wrong, or if help was asked for."""
    return _parser(given).parse_args(given)


def _functions() -> str:
    """Whether this installation has the functions in C (`codec/native.py`). Looks for their file: imports are slow."""
    folder = Path(__file__).parent / "amqp" / "wire"
    return "functions in C" if any(folder.glob("_delivery_loops.*.so")) else "pure Python"


def _parser(given: Sequence[str]) -> argparse.ArgumentParser:
    """The parser of all commands, with the arguments of the one that is given: no option comes before its name."""
    parser = argparse.ArgumentParser(prog="emubus", description="A local stand-in for Azure Service Bus.")
    parser.add_argument("--version", action="version", version=f"emubus {__version__} ({_functions()})")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, entry in COMMANDS.items():
        if name != next((each for each in given if not each.startswith("-")), None):
            commands.add_parser(name, help=entry.help)
            continue
        command = entry.load()
        subparser = commands.add_parser(name, help=entry.help, description=entry.description)
        command.add_arguments(subparser)
        subparser.set_defaults(run=command.run)
    return parser


if __name__ == "__main__":
    sys.exit(main())
