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
    file_path,
    non_empty,
    option_with_source,
    read_default,
    read_option,
    variables_of_process,
)
from ..declaring import Command, Parsed

DEFAULT_HOST: Final = "localhost"
MEANT: Final = "of_namespace"
"""Where a command keeps the namespace: commands may have another `namespace`."""
KEY_VARIABLE: Final = "EMUBUS_SAS_KEY"
DEFAULT_DATA: Final = "emubus-data"
LOCAL_HOSTS: Final = {"localhost", "127.0.0.1", "::1"}
SERVERS_SHOWN: Final = 5


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
    is_named: bool = True
    """Whether the options or the environment name the server."""
    amqp_port: int | None = None
    """Its port for AMQP, if the server has told."""

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
    file_path,
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
    """What is typed comes before all variables: a URL before a connection string, of which it then has the key only."""
    typed = {"url": parsed.url, "connection_string": parsed.connection_string}
    is_typed = any(each is not None for each in typed.values())  # an empty one must not mean another server
    variables = {} if is_typed else variables_of_process()
    url = read_option(URL._replace(default=None), typed, variables)
    given = read_option(CONNECTION_STRING, typed, variables)
    ca_file = ca_file_of(parsed)
    key_name, key = KEY_NAME, variables_of_process().get(KEY_VARIABLE) or None
    if given is not None:
        key_name, key = given.key_name, given.key or key
    if url is None and given is None:
        return _found_here()._replace(key_name=key_name, key=key, ca_file=ca_file)
    if url is None:
        assert given is not None
        port = given.port or read_default(HTTP_PORT, {})
        return Address("http", given.host, port, key_name, key, ca_file)
    parts = urlsplit(url)
    host = parts.hostname or DEFAULT_HOST
    if given is not None and _host_key(given.host) != _host_key(host):
        one, other = (option_with_source(each, typed, variables)[0] for each in (URL, CONNECTION_STRING))
        raise ConfigError(f"{one} names the server {host}, and {other} names {given.host}: give the one that is meant")
    if given is None and key is None and (known := read_option(CONNECTION_STRING, {})) is not None:
        # The key of a variable is for the server that it names.
        key_name, key = (known.key_name, known.key) if _host_key(known.host) == _host_key(host) else (key_name, key)
    try:
        port = parts.port or DEFAULT_PORTS[parts.scheme]
    except ValueError as error:
        source = option_with_source(URL, typed, variables)[0]
        raise ConfigError(f"{source} is {url!r}; allowed is a port from 0 to 65535") from error
    return Address(parts.scheme, host, port, key_name, key, ca_file)


def _host_key(host: str) -> str:
    return DEFAULT_HOST if host.lower() in LOCAL_HOSTS else host.lower()


def _found_here() -> Address:
    """The server of a command that names none: by its port in the environment, by what servers leave, or the default.

    ConfigError: several run, and nothing tells which is meant.
    """
    default = Address("http", DEFAULT_HOST, read_default(HTTP_PORT, {}), KEY_NAME, None, None, is_named=False)
    if option_with_source(HTTP_PORT, {})[1] is not None:
        return default
    from ...running import nearest, servers  # only for a command that names no server

    found = servers()
    if not found:
        return default
    data = Path(variables_of_process().get("EMUBUS_DATA") or DEFAULT_DATA)
    own = nearest(found, data, default.port)
    if own is None:
        shown = ", ".join(map(str, found[:SERVERS_SHOWN])) + (", …" if len(found) > SERVERS_SHOWN else "")
        raise ConfigError(f"{len(found)} servers run here: {shown}; name one with --url or EMUBUS_URL")
    parts = urlsplit(own.url)
    return default._replace(host=parts.hostname or DEFAULT_HOST, port=own.http_port, amqp_port=own.amqp_port)


def ca_file_of(parsed: Parsed) -> Path | None:
    """The CA that the options or the environment name."""
    return read_option(CA, {"ca": parsed.ca})


def text_of(text: str) -> str:
    """An argument that must not be empty. ValueError."""
    try:
        return non_empty(text)
    except ValueError as error:
        raise ValueError(f"is empty; allowed is {error}") from error
