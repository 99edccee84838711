"""The command line: `emubus COMMAND`.

Knows how a command is found and run, and the exit codes: 0 success, 1 failure, 2 invalid arguments or configuration,
3 no server answers, each with one line on stderr. Imports the module of a command only when it is asked for, so that
`--version` and the health check of a container stay fast.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from . import NO_WINDOWS, __version__
from .commands.parsing import Parser, row, suggestion
from .commands.table import COMMANDS
from .exits import EXIT_FAILED, EXIT_NO_SERVER, EXIT_USAGE, CommandError
from .options import ConfigError
from .terminal import write_errors


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    if sys.platform == "win32":
        write_errors([NO_WINDOWS])
        return EXIT_FAILED
    given = sys.argv[1:] if arguments is None else list(arguments)
    parsed = parse(given)
    run: Callable[[argparse.Namespace], int] = parsed.run
    try:
        return run(parsed)
    except ConfigError as error:
        write_errors(str(error).split("\n"))  # each problem of a file has its line
        return EXIT_USAGE
    except CommandError as error:
        return _failed(error, error.exit_code, error.more)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of a pipe has seen enough, such as `head`
        sys.stderr.close()
        return EXIT_FAILED
    except UnicodeError as error:  # of a host or an argument, before anything is sent
        return _failed(ConfigError(f"an argument or address can't be used: {error}"), EXIT_USAGE)
    except MemoryError:
        return _failed(CommandError("there is not enough memory for this"), EXIT_FAILED)
    except Exception as error:
        from .kit.answers import AnswerError  # only now: the health check does not need it
        from .storage.contract import StoreError  # nor LMDB

        if isinstance(error, AnswerError):
            return _failed(CommandError(_no_emubus(parsed, error)), EXIT_NO_SERVER)
        if not isinstance(error, StoreError):
            raise
        return _failed(error, EXIT_FAILED)


def _failed(error: Exception, exit_code: int, more: Sequence[str] = ()) -> int:
    write_errors([str(error), *more])
    return exit_code


def _no_emubus(parsed: argparse.Namespace, error: Exception) -> str:
    from .commands.client.address import address_of

    url = address_of(parsed).url
    return f"what answers at {url} is no emubus, or one of another version: {error} (--url, EMUBUS_URL)"


def _functions() -> str:
    """Whether this installation has the functions in C (`codec/native.py`). Looks for their file: imports are slow."""
    folder = Path(__file__).parent / "amqp" / "wire"
    return "functions in C" if any(folder.glob("_delivery_loops.*.so")) else "pure Python"


def parse(given: Sequence[str]) -> argparse.Namespace:
    """The arguments of the command that is given; SystemExit (2) with one line if they are wrong."""
    parser = root_parser([each for each in given if not each.startswith("-")][:1])
    parsed, unknown = parser.parse_known_args(given)
    if unknown:
        known = [each for each in parser.words() if each.startswith("--")]
        hint = next((found for found in (suggestion(each.partition("=")[0], known) for each in unknown) if found), "")
        parser.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
    return parsed


class RootParser(Parser):
    """The parser of all commands; its help lists them by group."""

    def format_help(self) -> str:
        """Usage, and a row for each command."""
        lines = ["usage: emubus COMMAND [OPTIONS]", str(self.description)]
        for group in dict.fromkeys(entry.group for entry in COMMANDS.values()):
            lines += ["", f"{group}:"]
            for name, entry in COMMANDS.items():
                lines += row(name, entry.help) if entry.group == group else []
        return "\n".join([*lines, "", "`emubus COMMAND --help` describes a command."]) + "\n"


def root_parser(names: Sequence[str]) -> Parser:
    """The parser of all commands, with the arguments of those that are named: no option comes before a command."""
    parser = RootParser(prog="emubus", description="A local stand-in for Azure Service Bus.")
    parser.add_argument("--version", action="version", version=f"emubus {__version__} ({_functions()})")
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=Parser)
    for name, entry in COMMANDS.items():
        subparser = commands.add_parser(
            name, help=entry.help, description=entry.description or f"{_sentence(entry.help)}"
        )
        if name in names:
            entry.add_arguments(subparser)
    return parser


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


if __name__ == "__main__":
    sys.exit(main())
