"""Connection strings as clients and the portal write them [http 1]: taken apart."""

from __future__ import annotations

from typing import Final, NamedTuple
from urllib.parse import urlsplit

KEY_NAME: Final = "RootManageSharedAccessKey"


class ConnectionString(NamedTuple):
    """The parts of a connection string; `port` is None if the endpoint has none."""

    host: str
    port: int | None
    key_name: str
    key: str


def parse_connection_string(text: str) -> ConnectionString:
    """The parts of a connection string. ValueError says what is allowed."""
    parts = {name.strip().lower(): value for name, _, value in (each.partition("=") for each in text.split(";"))}
    try:
        endpoint = urlsplit(parts.get("endpoint", ""))
        scheme, host, port = endpoint.scheme, endpoint.hostname, endpoint.port
    except ValueError:
        scheme, host, port = "", None, None
    if scheme != "sb" or not host:
        raise ValueError("Endpoint=sb://HOST;SharedAccessKeyName=NAME;SharedAccessKey=KEY")
    return ConnectionString(
        host, port, parts.get("sharedaccesskeyname") or KEY_NAME, parts.get("sharedaccesskey") or ""
    )
