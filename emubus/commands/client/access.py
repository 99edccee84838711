"""`emubus token` and `connection-string`: what clients and scripts need to connect. Neither asks the server."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from ...broker.access import DEFAULT_KEY, sign
from ...broker.clock import Clock
from ...exits import EXIT_OK
from ...options import ConfigError, Option, option_with_source, port, read_default
from ..declaring import Command, Parsed
from .address import Address, add_server_options, address_of
from .output import add_json, show, span_ms, span_text

AMQP_PORT: Final = Option("amqp_port", port, "PORT", "port for AMQP", "5672", brief="port for AMQP (5672)")
DEFAULT_LIFE_MS: Final = 3_600_000
LIFE_MS_MAX: Final = 36_500 * 86_400_000


def add_token(parser: Command) -> None:
    parser.argument("entity", nargs="?", default="", metavar="ENTITY", help="for this entity only")
    parser.option("--life", convert=span_ms, default=DEFAULT_LIFE_MS, metavar="SPAN", help="how long it is valid (1h)")
    add_json(parser)
    add_server_options(parser)
    parser.run = _token


def _token(parsed: Parsed) -> int:
    if not 0 < parsed.life <= LIFE_MS_MAX:
        raise ConfigError(f"--life is {span_text(parsed.life)}; allowed is 1ms to {span_text(LIFE_MS_MAX)}")
    address = address_of(parsed)
    expires_at = (Clock().now_ms() + parsed.life) // 1000
    resource = quote(f"sb://{host_named(address)}:{address.port}/{parsed.entity}", safe="")
    signature = quote(sign(resource, str(expires_at), address.key or DEFAULT_KEY), safe="")
    name = quote(address.key_name, safe="")
    token = f"SharedAccessSignature sr={resource}&sig={signature}&se={expires_at}&skn={name}"
    show(parsed, {"token": token, "expires_at": expires_at * 1000}, [token])
    return EXIT_OK


def add_connection_string(parser: Command) -> None:
    parser.option("--entity", metavar="ENTITY", help="add EntityPath for this entity")
    parser.switch("--admin", help="for administration clients: with the port of HTTP")
    parser.switch("--tls", help="for TLS: without UseDevelopmentEmulator")
    parser.setting(AMQP_PORT)
    add_json(parser)
    add_server_options(parser)
    parser.run = _connection_string


def _connection_string(parsed: Parsed) -> int:
    address = address_of(parsed)
    number = address.port if parsed.admin else _amqp_port(parsed, address)
    text = written(address, number, tls=parsed.tls)
    if parsed.entity:
        text += f"EntityPath={parsed.entity};"
    show(parsed, {"connection_string": text}, [text])
    return EXIT_OK


def _amqp_port(parsed: Parsed, address: Address) -> int:
    """What is typed, what the environment says, what the server has told, or the default."""
    given = {"amqp_port": parsed.amqp_port}
    if address.amqp_port is not None and option_with_source(AMQP_PORT, given)[1] is None:
        return address.amqp_port
    return read_default(AMQP_PORT, given)


def host_named(address: Address) -> str:
    """The host in an address for clients, by which they mean the namespace, too."""
    if address.namespace is not None:
        return f"{address.namespace.lower()}.localhost"
    return f"[{address.host}]" if ":" in address.host else address.host


def written(address: Address, number: int, *, tls: bool) -> str:
    """The connection string for a port of a server."""
    host = host_named(address)
    ending = "" if tls else "UseDevelopmentEmulator=true;"
    return (
        f"Endpoint=sb://{host}:{number};SharedAccessKeyName={address.key_name};"
        f"SharedAccessKey={address.key or DEFAULT_KEY};{ending}"
    )
