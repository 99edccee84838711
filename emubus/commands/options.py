"""One option of the command line and the environment, and the two that name a server's HTTP address.

Knows how an option is named, read and refused. The only reader of `os.environ`. The other options are in
`emubus/config.py`, which has to import what they choose from; the health check of a container needs only these two, so
this module imports little.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple


class ConfigError(Exception):
    """The settings cannot be used; the text is one line for stderr."""


class Option(NamedTuple):
    """One setting. `parse` raises ValueError with what is allowed; `variables` in the order of precedence.

    `help` describes it in the documentation, `brief` in the help of a command, where a line has room for 50 characters.
    A switch has no value on the command line; in the environment it is `yes` or `no`.
    """

    name: str
    parse: Callable[[str], Any]
    metavar: str
    help: str
    default: str | None = None
    more_variables: tuple[str, ...] = ()
    is_switch: bool = False
    is_secret: bool = False
    brief: str = ""
    is_hidden: bool = False

    @property
    def flag(self) -> str:
        """The option on the command line, e.g. `--amqp-port`."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def variables(self) -> tuple[str, ...]:
        """The environment variables that set it."""
        return (f"EMUBUS_{self.name.upper()}", *self.more_variables)


def port(text: str) -> int:
    """A port number. ValueError."""
    if not (text.isascii() and text.isdecimal() and int(text[:6]) <= 65535):
        raise ValueError("0 to 65535 (0 for a free port)")
    return int(text)


def names(text: str) -> tuple[str, ...]:
    """Names, separated by commas. ValueError."""
    found = tuple(part.strip() for part in text.split(","))
    if not all(found):
        raise ValueError("names, separated by commas")
    return found


def whole(text: str) -> int:
    """A whole number of up to 15 digits. ValueError."""
    if not (text.isascii() and text.isdecimal() and len(text) <= 15):
        raise ValueError("a whole number of up to 15 digits")
    return int(text)


def non_empty(text: str) -> str:
    """A text with something in it. ValueError."""
    if not text.strip():
        raise ValueError("a non-empty text")
    return text


HOST: Final = Option(
    "host",
    non_empty,
    "HOST",
    "address to listen on; 0.0.0.0 for all",
    "127.0.0.1",
    brief="address to listen on; 0.0.0.0: all (127.0.0.1)",
)
HTTP_PORT: Final = Option(
    "http_port",
    port,
    "PORT",
    "port for management, health and web page, 0 for a free one",
    "5300",
    ("EMULATOR_HTTP_PORT",),
    brief="port for HTTP and the page; 0: a free one (5300)",
)


def add_option(parser: argparse._ActionsContainer, option: Option) -> None:
    """Let `parser` accept the option; its value is a text, or None if it is not given."""
    text = (option.brief or option.help).replace("%", "%%") if not option.is_hidden else argparse.SUPPRESS
    if option.is_switch:
        parser.add_argument(option.flag, dest=option.name, action="store_const", const="yes", help=text)
        return
    parser.add_argument(option.flag, dest=option.name, metavar=option.metavar, help=text)


def variables_of_process() -> Mapping[str, str]:
    """The environment of this process."""
    return os.environ


def read_option(
    option: Option, arguments: Mapping[str, str | None], environment: Mapping[str, str] | None = None
) -> Any:
    """The value of one option; None if it is not set and has no default. ConfigError if it is not allowed."""
    variables = variables_of_process() if environment is None else environment
    source, text = option.flag, arguments.get(option.name)
    for variable in option.variables:
        if text is None and variables.get(variable) and not _is_service_link(option, variables[variable]):
            source, text = variable, variables[variable]
    if text is None:
        text = option.default
    if text is None:
        return None
    try:
        return option.parse(text)
    except ValueError as error:
        shown = "(not shown)" if option.is_secret else repr(text)
        raise ConfigError(f"{source} is {shown}; allowed is {error}") from error


def _is_service_link(option: Option, text: str) -> bool:
    # Kubernetes sets EMUBUS_AMQP_PORT=tcp://10.0.0.1:5672 in every pod beside a Service named emubus-amqp.
    return option.parse is port and text.startswith(("tcp://", "udp://"))
