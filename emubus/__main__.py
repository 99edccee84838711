"""The command line: `emubus COMMAND`.

Knows how a command is found and run, and the exit codes: 0 success, 1 failure, 2 invalid arguments or configuration,
3 no server answers, each with one line on stderr. Imports the module of a command only when it is asked for, so that
`--version` and the health check of a container stay fast.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from . import NO_WINDOWS
from .commands.declaring import COMPLETING, Parsed, plain
from .commands.table import COMMANDS
from .exits import EXIT_FAILED, EXIT_NO_SERVER, EXIT_OK, EXIT_USAGE, CommandError
from .options import ConfigError, variables_of_process
from .terminal import write_errors, write_lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    if sys.platform == "win32":
        write_errors([NO_WINDOWS])
        return EXIT_FAILED
    given = sys.argv[1:] if arguments is None else list(arguments)
    if given == ["--version"]:
        from .commands.version import version

        write_lines([version()])
        return EXIT_OK
    if COMPLETING in variables_of_process():
        from .commands.completion import complete

        return complete()
    parsed = parse(given)
    run: Callable[[Parsed], int] = parsed.run
    try:
        return run(parsed)
    except ConfigError as error:
        write_errors(str(error).split("\n"))  # each problem of a file has its line
        return EXIT_USAGE
    except CommandError as error:
        return _report_failure(error, error.exit_code, error.more)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of a pipe has seen enough, such as `head`
        sys.stderr.close()
        return EXIT_FAILED
    except UnicodeError as error:  # of a host or an argument, before anything is sent
        return _report_failure(ConfigError(f"an argument or address can't be used: {error}"), EXIT_USAGE)
    except MemoryError:
        return _report_failure(CommandError("there is not enough memory for this"), EXIT_FAILED)
    except Exception as error:
        from .kit.answers import AnswerError  # only now: the health check does not need it
        from .storage.contract import StoreError  # nor LMDB

        if isinstance(error, AnswerError):
            return _report_failure(CommandError(_no_emubus(parsed, error)), EXIT_NO_SERVER)
        if not isinstance(error, StoreError):
            raise
        return _report_failure(error, EXIT_FAILED)


def _report_failure(error: Exception, exit_code: int, more: Sequence[str] = ()) -> int:
    write_errors([str(error), *more])
    return exit_code


def _no_emubus(parsed: Parsed, error: Exception) -> str:
    from .commands.client.address import address_of

    url = address_of(parsed).url
    return f"what answers at {url} is no emubus, or one of another version: {error} (--url, EMUBUS_URL)"


def parse(given: Sequence[str]) -> Parsed:
    """The values of a line and the function of its command; SystemExit (2) with one line if they are wrong."""
    entry = COMMANDS.get(given[0]) if given else None
    if given and entry is not None and (found := plain(entry.command(given[0]), given[1:])) is not None:
        return found
    from .commands.all_commands import parse as parse_with_click  # takes longer to import than a health check may last

    return parse_with_click(given)


if __name__ == "__main__":
    sys.exit(main())
