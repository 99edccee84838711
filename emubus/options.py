"""One option of the command line and the environment, and the two that name a server's HTTP address.

Knows how an option is named, read and refused. The only reader of `os.environ`. The other options are in
`emubus/config.py`, which has to import what they choose from; the health check of a container needs only these two, so
this module imports little.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, Generic, NamedTuple, TypeVar

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class ConfigError(Exception):
    """The settings cannot be used; the text is one line for stderr."""


class Option(NamedTuple, Generic[T_co]):
    """One setting. `parse` raises ValueError with what is allowed; `variables` in the order of precedence.

    `help` describes it in the documentation, `brief` in the help of a command, where a line has room for 50 characters.
    A switch has no value on the command line, where one that is on without it is `--no-…`; in the environment it is
    `yes` or `no`.
    """

    name: str
    parse: Callable[[str], T_co]
    metavar: str
    help: str
    default: str | None = None
    more_variables: tuple[str, ...] = ()
    is_switch: bool = False
    is_secret: bool = False
    brief: str = ""
    is_hidden: bool = False
    values: tuple[str, ...] = ()
    """Those that a shell offers; `parse` knows what is allowed."""
    is_list: bool = False
    """Whether it may be repeated: its text has all values, separated by commas."""

    @property
    def flag(self) -> str:
        """The option on the command line, e.g. `--amqp-port`."""
        return f"--{'no-' if self.is_on_anyway else ''}{self.name.replace('_', '-')}"

    @property
    def is_on_anyway(self) -> bool:
        """Whether it is a switch that is on unless it is switched off."""
        return self.is_switch and self.default == "yes"

    @property
    def variables(self) -> tuple[str, ...]:
        return (f"EMUBUS_{self.name.upper()}", *self.more_variables)


def port(text: str) -> int:
    """A port number. ValueError."""
    if not (text.isascii() and text.isdecimal() and int(text[:6]) <= 65535):
        raise ValueError("0 to 65535 (0 for a free port)")
    return int(text)


def ports(text: str) -> tuple[int, ...]:
    """Port numbers, separated by commas. ValueError."""
    try:
        return tuple(port(part.strip()) for part in text.split(","))
    except ValueError:
        raise ValueError("ports from 0 to 65535, separated by commas") from None


def file_path(text: str) -> Path:
    """The path of a file or folder. ValueError."""
    if not text.strip():  # `Path("")` is the working folder
        raise ValueError("a non-empty path")
    return Path(text)


def switch(text: str) -> bool:
    """Yes or no. ValueError."""
    values = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}
    if text.lower() not in values:
        raise ValueError("yes or no")
    return values[text.lower()]


def names(text: str) -> tuple[str, ...]:
    """Names, separated by commas. ValueError."""
    found = tuple(part.strip() for part in text.split(","))
    if not all(found):
        raise ValueError("names, separated by commas")
    if len(set(found)) < len(found):
        raise ValueError("names, separated by commas, each once")
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


def url(text: str) -> str:
    """An address of HTTP. ValueError."""
    if not text.startswith(("http://", "https://")) or not text.partition("://")[2].strip("/"):
        raise ValueError("a URL such as http://localhost:4318")
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


OTLP: Final = Option(
    "otlp",
    url,
    "URL",
    "send traces and metrics to this OpenTelemetry collector; needs the extra emubus[otel] (docs/METRICS.md)",
    None,
    ("OTEL_EXPORTER_OTLP_ENDPOINT",),
    brief="OpenTelemetry collector: http://localhost:4318",
)


def variables_of_process() -> Mapping[str, str]:
    return os.environ


def option_with_source(
    option: Option[object], arguments: Mapping[str, str | None], environment: Mapping[str, str] | None = None
) -> tuple[str, str | None]:
    """The flag or variable that sets an option, and its text; the flag and None if nothing does."""
    variables = variables_of_process() if environment is None else environment
    if (given := arguments.get(option.name)) is not None:
        return option.flag, given
    for variable in option.variables:
        if variables.get(variable) and not _is_service_link(option, variables[variable]):
            return variable, variables[variable]
    return option.flag, None


def read_option(
    option: Option[T], arguments: Mapping[str, str | None], environment: Mapping[str, str] | None = None
) -> T | None:
    """The value of one option; None if it is not set and has no default. ConfigError if it is not allowed."""
    source, text = option_with_source(option, arguments, environment)
    if text is None:
        text = option.default
    if text is None:
        return None
    try:
        return option.parse(text)
    except ValueError as error:
        shown = "(not shown)" if option.is_secret else repr(text)
        raise ConfigError(f"{source} is {shown}; allowed is {error}") from error


def read_default(option: Option[T], arguments: Mapping[str, str | None]) -> T:
    """As `read_option`, for an option that has a default."""
    found = read_option(option, arguments)
    assert found is not None, f"{option.flag} has no default"
    return found


class Values(dict[str, object]):
    """The values of options by name; who reads one knows the type that the option's `parse` gives."""

    def of(self, name: str, kind: type[T]) -> T:
        """A value that is set, or has a default."""
        value = self[name]
        assert isinstance(value, kind), f"{name} is {value!r}"
        return value

    def maybe(self, name: str, kind: type[T]) -> T | None:
        """A value, or None if it is not set."""
        return None if self[name] is None else self.of(name, kind)


def read_options(
    options: Iterable[Option[object]],
    arguments: Mapping[str, str | None],
    environment: Mapping[str, str] | None = None,
) -> Values:
    """The values of several options, as `read_option` reads each."""
    return Values({option.name: read_option(option, arguments, environment) for option in options})


def _is_service_link(option: Option[object], text: str) -> bool:
    # Kubernetes sets EMUBUS_AMQP_PORT=tcp://10.0.0.1:5672 in every pod beside a Service named emubus-amqp.
    return option.parse is port and text.startswith(("tcp://", "udp://"))
