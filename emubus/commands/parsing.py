"""Commands of Click, made of what commands declare: help that fits a screen, suggestions, one line per error.

Knows Click, which only this module and the completion import. Does not know the commands.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NoReturn

import click
from click.exceptions import Exit

from ..exits import EXIT_USAGE
from ..terminal import one_line, write_errors, write_lines
from .declaring import Command, Parameter, Parsed

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

HELP_COLUMN: Final = 26
HELP_WIDTH: Final = 80
Completing = Callable[[Parameter, Mapping[str, object], str], "list[CompletionItem[str]]"]
"""What a shell offers for a parameter, by the values before it and the beginning of the word."""


# ---------------------------------------------------------------- help


def help_text(command: Command) -> str:
    """Usage, description, and a row for each argument: little enough for a screen."""
    parts = [f"usage: {usage(command)}", *([command.description] if command.description else []), ""]
    for name, text in rows(command):
        parts += row(name, text)
    return "\n".join(parts) + "\n"


def usage(command: Command) -> str:
    """The command with its arguments."""
    words = [command.prog, "[OPTIONS]", *(["ACTION"] if command.actions else [])]
    for each in command.parameters:
        if not each.flags:
            name = each.metavar
            words.append({"?": f"[{name}]", "*": f"[{name} …]", "+": f"{name} …"}.get(each.nargs, name))
    return " ".join(words)


def rows(command: Command) -> Iterator[tuple[str, str]]:
    """Each argument with its help; of a command with actions each action."""
    yield from ((name, text) for name, (text, _) in command.actions.items())
    for each in command.parameters:
        if not each.is_hidden:
            value = f" {each.metavar}" if each.flags and each.const is None else ""
            yield f"{each.label}{value}", each.help


def overview(description: str, commands: Mapping[str, tuple[str, str]]) -> str:
    """Usage, and a row for each command: name -> its group and its help."""
    lines = ["usage: emubus COMMAND [OPTIONS]", description]
    for group in dict.fromkeys(group for group, _ in commands.values()):
        lines += ["", f"{group}:"]
        for name, (of, text) in commands.items():
            lines += row(name, text) if of == group else []
    return "\n".join([*lines, "", "`emubus COMMAND --help`, or `emubus help COMMAND`, describes a command."]) + "\n"


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


# ---------------------------------------------------------------- Click


class _Type(click.ParamType[object]):
    """The values of a parameter: Click has no type whose errors name what is allowed and what was perhaps meant."""

    def __init__(self, parameter: Parameter) -> None:
        self.name = parameter.metavar
        self._parameter = parameter

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> object:
        if not isinstance(value, str):
            return value
        own = self._parameter
        if own.known and value not in own.known:
            raise click.UsageError(
                f"{own.label}: '{value}' is none of {', '.join(own.known)}{suggestion(value, own.known)}", ctx
            )
        try:
            return own.convert(value)
        except ValueError as error:
            kind = {int: "a whole number", float: "a number"}.get(own.convert)  # type: ignore[call-overload]
            text = str(error) if kind is None else f"is {value!r}; allowed is {kind}"
            raise click.UsageError(f"{own.label} {text}", ctx) from None


class _Made(click.Command):
    """A command of Click, of a declaration."""

    def __init__(self, declared: Command, completing: Completing | None) -> None:
        params = [_param(each, completing) for each in declared.parameters]
        settings = {"help_option_names": ["--help", "-h"], "allow_extra_args": True}
        super().__init__(declared.prog.rpartition(" ")[2], params=params, context_settings=settings)
        self.declared = declared

    def get_help(self, ctx: click.Context) -> str:
        return help_text(self.declared).rstrip("\n")


class _Group(click.Group):
    """A command with actions, or that of all commands; `find` makes a command by its name."""

    def __init__(
        self, prog: str, names: Sequence[str], find: Callable[[str], click.Command], text: Callable[[], str]
    ) -> None:
        settings = {"help_option_names": ["--help", "-h"]}
        super().__init__(prog, no_args_is_help=False, context_settings=settings)
        self._names = names
        self._find = find
        self._text = text

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self._names]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return self._find(cmd_name) if cmd_name in self._names else None

    def get_help(self, ctx: click.Context) -> str:
        return self._text().rstrip("\n")


def _param(own: Parameter, completing: Completing | None) -> click.Parameter:
    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
        del param
        return [] if completing is None else completing(own, ctx.params, incomplete)

    kind = _Type(own)
    if own.flags:
        names = [own.name, *own.flags]
        if own.const is not None:
            return click.Option(names, is_flag=True, flag_value=own.const, default=None, hidden=own.is_hidden)
        return click.Option(
            names,
            type=kind,
            multiple=own.repeats,
            default=None,
            help=own.help,
            hidden=own.is_hidden,
            shell_complete=complete,
        )
    return click.Argument(
        [own.name],
        type=kind,
        nargs=-1 if own.nargs in ("*", "+") else 1,
        required=own.nargs in ("", "+"),
        metavar=own.metavar,
        shell_complete=complete,
    )


def made(declared: Command, completing: Completing | None = None) -> click.Command:
    """The command of Click of a declaration."""
    if not declared.actions:
        return _Made(declared, completing)
    actions = {name: own for name, (_, own) in declared.actions.items()}
    return _Group(
        declared.prog.rpartition(" ")[2],
        [*actions],
        lambda name: made(actions[name], completing),
        lambda: help_text(declared),
    )


def root(
    names: Sequence[str],
    find: Callable[[str], Command],
    text: Callable[[], str],
    version: Callable[[], str],
    completing: Completing | None = None,
) -> click.Group:
    """The command of all commands; `find` declares one, `text` is the help of all."""

    def tell(ctx: click.Context, param: click.Parameter, value: bool) -> None:
        del param
        if value and not ctx.resilient_parsing:
            write_lines([version()])
            ctx.exit()

    found = _Group("emubus", names, lambda name: made(find(name), completing), text)
    found.params.append(click.Option(["--version"], is_flag=True, is_eager=True, expose_value=False, callback=tell))
    return found


def parse_line(command: click.Group, given: Sequence[str]) -> Parsed:
    """The values of a line, and the function of its command. SystemExit: 0 after help, 2 with one line on stderr."""
    ctx: click.Context | None = None
    own: click.Command = command
    words, prog = list(given), "emubus"
    if words[:1] == ["help"]:  # as git, docker and kubectl have it
        words = [*(each for each in words if each != "help"), "--help"]
    try:
        while True:
            ctx = own.make_context(prog.rpartition(" ")[2], words, parent=ctx)
            if not isinstance(own, click.Group):
                break
            words = [*ctx._protected_args, *ctx.args]
            names = own.list_commands(ctx)
            what, known = ("COMMAND", "see the help") if own is command else ("ACTION", ", ".join(names))
            if not words:
                raise click.UsageError(f"{what} is missing: {known}")
            name = words.pop(0)
            below = own.get_command(ctx, name)
            if below is None:
                raise click.UsageError(f"there is no {what.lower()} '{name}'{suggestion(name, names)}")
            prog, own = f"{prog} {name}", below
        assert isinstance(own, _Made)
        if ctx.args:
            raise click.UsageError(f"{_words_in_quotes(ctx.args)} is more than `{usage(own.declared)}` takes")
    except Exit as ended:
        raise SystemExit(ended.exit_code) from None
    except click.UsageError as error:
        _fail(prog, own, error)
    many = {each.name for each in own.declared.parameters if each.repeats or each.nargs in ("*", "+")}
    given_values = {name: value for name, value in ctx.params.items() if value is not None and value != ()}
    return own.declared.parsed({name: [*value] if name in many else value for name, value in given_values.items()})


def _words_in_quotes(words: Sequence[str]) -> str:
    return " ".join(f"'{each}'" for each in words)


def _fail(prog: str, own: click.Command, error: click.UsageError) -> NoReturn:
    """One line that names what is wrong and the help of the command that failed."""
    text = error.message
    if isinstance(error, click.NoSuchOption):
        ctx = error.ctx or click.Context(own)
        known = [flag for each in own.get_params(ctx) if not getattr(each, "hidden", False) for flag in each.opts]
        text = f"there is no option {error.option_name}{suggestion(error.option_name, known)}"
        if error.option_name[1:2].isdigit():
            text = f"'{error.option_name}…' is no option, and no value here is negative"
    elif isinstance(error, click.MissingParameter) and error.param is not None:
        text = f"{error.param.make_metavar(error.ctx or click.Context(own))} is missing"
        if isinstance(own, _Made):
            declared = next(each for each in own.declared.parameters if each.name == error.param.name)
            text = f"{declared.label} is missing: {declared.help}"
    elif isinstance(error, click.BadOptionUsage):
        text = f"{error.option_name} {_lack(own, error.option_name)}"
    write_errors([f"{one_line(text)} (see {prog} --help)"])
    sys.exit(EXIT_USAGE)


def _lack(own: click.Command, flag: str) -> str:
    """What is wrong of an option that Click says is used in a wrong way: a value too few or too many."""
    parameters = own.declared.parameters if isinstance(own, _Made) else ()
    found = next((each for each in parameters if flag in each.flags), None)
    return "takes no value" if found is None or found.const is not None else f"needs a value: {found.metavar}"
