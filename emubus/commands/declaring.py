"""What a command declares of its line: arguments, options, switches and actions, one row each.

`parsing.py` makes a command of Click of it. A line of options and values alone is read here (`plain`), because Click
takes longer to import than a health check may last. Knows neither the commands nor Click.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ..options import file_path

if TYPE_CHECKING:
    from ..options import Option

COMPLETING: Final = "_EMUBUS_COMPLETE"
"""The variable that the completion scripts of Click set."""
ENTITY, FILE, FOLDER = "entity", "file", "folder"
"""What a shell completes in place of known values: paths of entities, files, folders."""
_COMPLETED: Final = {"ENTITY": ENTITY, "SUBSCRIPTION": ENTITY, "FILE": FILE, "DIR": FOLDER}

_NEVER_EMPTY: Final = frozenset({"ENTITY", "SUBSCRIPTION", "MESSAGE-ID", "RULE", "SQL", "PORT", "ACTION"})
"""An empty one comes of a script's unset variable: it would mean all messages, or another server than was meant."""


def _converter(convert: Callable[[str], object], metavar: str) -> Callable[[str], object]:
    if convert is str and metavar.removesuffix(" …") in _NEVER_EMPTY:
        return _non_empty
    return _path if convert is Path else convert


def _path(text: str) -> Path:
    return file_path(_non_empty(text, "a non-empty path"))


def _non_empty(text: str, allowed: str = "a non-empty text") -> str:
    if not text.strip():
        raise ValueError(f"is {text!r}; allowed is {allowed}")
    return text


class Parsed:
    """The values of a line by the names of their parameters, and `run`, the function of the command."""

    def __init__(self, values: Mapping[str, object]) -> None:
        self.__dict__.update(values)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


class Parameter(NamedTuple):
    """An argument (`flags` is empty), an option, or a switch, which has the value `const` where it is given.

    `convert` raises ValueError with what stands behind the name of the parameter: "is 'x'; allowed is …". `nargs` is
    that of an argument: one, perhaps one (?), any number (*) or at least one (+). `known` are all allowed values,
    `completes` those that a shell offers, or what kind of thing it shall look for.
    """

    name: str
    flags: tuple[str, ...] = ()
    metavar: str = ""
    help: str = ""
    convert: Callable[[str], object] = str
    known: tuple[str, ...] = ()
    default: object = None
    nargs: str = ""
    const: object = None
    repeats: bool = False
    joins: bool = False
    """Whether the values of a repeated option are one text with commas."""
    is_hidden: bool = False
    completes: str | Callable[[], Iterable[str]] | None = None

    @property
    def label(self) -> str:
        """How people know it: the long flag, or the name of an argument."""
        return self.flags[-1] if self.flags else self.metavar


class Command:
    """A command or one of its actions; `run(parsed)` returns the exit code."""

    def __init__(self, prog: str, description: str = "") -> None:
        self.prog = prog
        self.description = description
        self.parameters: list[Parameter] = []
        self.actions: dict[str, tuple[str, Command]] = {}
        self.run: Callable[[Parsed], int] | None = None

    def argument(
        self,
        name: str,
        *,
        metavar: str,
        help: str,  # noqa: A002 - as in every library for command lines
        nargs: str = "",
        convert: Callable[[str], object] = str,
        known: Iterable[str] = (),
        default: object = None,
        completes: str | Callable[[], Iterable[str]] | None = None,
    ) -> None:
        """Add an argument; without a default an optional one is None, a list of none is empty."""
        if nargs in ("*", "+"):
            default = []
        found = completes or _COMPLETED.get(metavar.removesuffix(" …"))
        self.parameters.append(
            Parameter(
                name, (), metavar, help, _converter(convert, metavar), tuple(known), default, nargs, completes=found
            )
        )

    def option(
        self,
        *flags: str,
        name: str | None = None,
        metavar: str,
        help: str = "",  # noqa: A002
        convert: Callable[[str], object] = str,
        known: Iterable[str] = (),
        default: object = None,
        repeats: bool = False,
        completes: str | Callable[[], Iterable[str]] | None = None,
    ) -> None:
        """Add an option with a value; one that repeats has a list of values."""
        own = name or flags[-1].lstrip("-").replace("-", "_")
        found = completes or (FILE if convert is Path and metavar != "DIR" else _COMPLETED.get(metavar))
        value: object = [] if repeats else default
        self.parameters.append(
            Parameter(
                own,
                flags,
                metavar,
                help,
                _converter(convert, metavar),
                tuple(known),
                value,
                repeats=repeats,
                completes=found,
            )
        )

    def switch(
        self,
        *flags: str,
        name: str | None = None,
        help: str = "",  # noqa: A002
        const: object = True,
        default: object = False,
        is_hidden: bool = False,
    ) -> None:
        """Add an option without a value."""
        own = name or flags[-1].lstrip("-").replace("-", "_")
        self.parameters.append(Parameter(own, flags, "", help, default=default, const=const, is_hidden=is_hidden))

    def setting(self, option: Option[object], completes: Callable[[], Iterable[str]] | None = None) -> None:
        """Add an option of `emubus/options.py`: its value is a text, or None if it is not given."""
        text = option.brief or option.help
        if option.is_switch:
            const = "no" if option.is_on_anyway else "yes"
            self.switch(option.flag, name=option.name, help=text, const=const, default=None, is_hidden=option.is_hidden)
            if option.is_on_anyway:  # scripts ask for what is on
                self.switch(f"--{option.name}", name=option.name, const="yes", default=None, is_hidden=True)
            return
        file = None if option.parse is not file_path else FOLDER if option.metavar == "DIR" else FILE
        self.parameters.append(
            Parameter(
                *(option.name, (option.flag,), option.metavar, text),
                repeats=option.is_list,
                joins=option.is_list,
                is_hidden=option.is_hidden,
                completes=completes or file or (lambda: option.values),
            )
        )

    def action(self, name: str, help: str, description: str) -> Command:  # noqa: A002
        """Add an action, which is a command below this one."""
        found = Command(f"{self.prog} {name}", description)
        self.actions[name] = help, found
        return found

    def commands(self) -> list[Command]:
        """The commands of its actions; itself if it has none."""
        return [each for _, each in self.actions.values()] or [self]

    def parsed(self, values: dict[str, object]) -> Parsed:
        """The values of a line, with the defaults of what it does not have."""
        found: dict[str, object] = {"run": self.run, "prog": self.prog}
        for each in self.parameters:
            given = values.get(each.name)
            if each.name in found and given is None:
                continue
            if each.joins:
                parts: Sequence[object] = given if isinstance(given, list) else ()
                found[each.name] = ",".join(map(str, parts)) if parts else None
            else:
                found[each.name] = each.default if given is None else given
        return Parsed(found)


def plain(command: Command, words: Sequence[str]) -> Parsed | None:
    """A line that has nothing but options and values that are right; None for any other, which Click shall read."""
    by_flag = {flag: each for each in command.parameters for flag in each.flags}
    if command.actions or any(not each.flags and each.nargs in ("", "+") for each in command.parameters):
        return None
    values: dict[str, object] = {}
    left = iter(words)
    for word in left:
        flag, equals, text = word.partition("=")
        own = by_flag.get(flag)
        if own is None or not flag.startswith("--") or (own.name in values and not own.repeats):
            return None
        if own.const is not None:
            if equals:
                return None
            values[own.name] = own.const
            continue
        if not equals:
            text = next(left, "-")
        if text.startswith("-") or (own.known and text not in own.known):
            return None
        try:
            value = own.convert(text)
        except ValueError:
            return None
        if own.repeats:
            kept = values.setdefault(own.name, [])
            assert isinstance(kept, list)
            kept.append(value)
        else:
            values[own.name] = value
    return command.parsed(values)
