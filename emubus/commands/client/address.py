"""Which server a command asks, and with which key: options, environment, or the defaults of a local server.

Does not send requests.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from ...broker.errors import BrokerError
from ...broker.names import NamespaceName
from ...connection_string import KEY_NAME, parse_connection_string
from ...kit.http_connection import DEFAULT_PORTS
from ...options import (
    HTTP_PORT,
    ConfigError,
    Option,
    non_empty,
    read_default,
    read_option,
    variables_of_process,
)
from ..declaring import Command, Parsed

DEFAULT_HOST: Final = "localhost"
MEANT: Final = "of_namespace"
"""Where a command keeps the namespace: commands may have another `namespace`."""
KEY_VARIABLE: Final = "EMUBUS_SAS_KEY"


class Address(NamedTuple):
    """A server and the key for it; a `key` of None sends no credentials.

    `ca_file` is trusted besides the system's CAs.
    """

    scheme: str
    host: str
    port: int
    key_name: str
    key: str | None
    ca_file: Path | None
    namespace: str | None = None
    """The namespace that is meant, if it is not the one that the host and the port mean."""

    @property
    def url(self) -> str:
        """The URL of the server, without a slash at its end."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


def _url(text: str) -> str:
    try:
        parts = urlsplit(text)
        is_known = parts.scheme in DEFAULT_PORTS and bool(parts.hostname)
    except ValueError:  # brackets that are no address of IPv6
        is_known = False
    if not is_known:
        raise ValueError("http://HOST:PORT or https://HOST:PORT")
    return text


URL: Final = Option(
    "url",
    _url,
    "URL",
    "the server; any of its ports",
    "http://localhost:5300",
    brief="the server (EMUBUS_URL; http://localhost:5300)",
)
CONNECTION_STRING: Final = Option(
    "connection_string",
    parse_connection_string,
    "CS",
    "the server and a key with Manage, as a connection string",
    is_secret=True,
    brief="server and key (EMUBUS_CONNECTION_STRING)",
)


CA: Final = Option(
    "ca",
    Path,
    "FILE",
    "with https: the certificate of a CA to trust besides those of the system, such as that of `emubus ca`",
    brief="with https: trust this CA, too (EMUBUS_CA)",
)


def add_server_options(parser: Command, *, names_namespace: bool = True) -> None:
    """Add what names the server and, unless the command has another use of the word, the namespace."""
    if names_namespace:
        help_text = "another namespace than the first"
        parser.option("--namespace", name=MEANT, metavar="NAME", help=help_text)
    parser.setting(URL)
    parser.setting(CONNECTION_STRING)
    parser.setting(CA)


def address_of(parsed: Parsed) -> Address:
    """The server that the options or the environment name, and the namespace of a command that has one. ConfigError."""
    return _server_of(parsed)._replace(namespace=named_namespace(parsed))


def named_namespace(parsed: Parsed) -> NamespaceName | None:
    """The namespace that an option names. ConfigError."""
    name = getattr(parsed, MEANT, None)
    try:
        return None if name is None else NamespaceName(name)
    except BrokerError as error:
        raise ConfigError(f"the name of the namespace: {error.description}") from error


def _server_of(parsed: Parsed) -> Address:
    given = read_option(CONNECTION_STRING, {"connection_string": parsed.connection_string})
    key = variables_of_process().get(KEY_VARIABLE) or None
    key_name = KEY_NAME
    if given is not None:
        key_name, key = given.key_name, given.key or key
    ca_file = ca_file_of(parsed)
    url = parsed.url or variables_of_process().get("EMUBUS_URL")
    if url:
        parts = urlsplit(read_default(URL, {"url": url}))
        try:
            port = parts.port
        except ValueError as error:
            raise ConfigError(f"--url is {url!r}; allowed is a port from 0 to 65535") from error
        port = port or DEFAULT_PORTS[parts.scheme]
        return Address(parts.scheme, parts.hostname or DEFAULT_HOST, port, key_name, key, ca_file)
    port = read_default(HTTP_PORT, {})
    if given is not None:
        return Address("http", given.host, given.port or port, key_name, key, ca_file)
    return Address("http", DEFAULT_HOST, port, key_name, key, ca_file)


def ca_file_of(parsed: Parsed) -> Path | None:
    """The CA that the options or the environment name."""
    return read_option(CA, {"ca": parsed.ca})


def text_of(text: str) -> str:
    """An argument that must not be empty. ValueError."""
    try:
        return non_empty(text)
    except ValueError as error:
        raise ValueError(f"is empty; allowed is {error}") from error
