"""Connection strings of Service Bus.

Knows their keys [wire 1.6] and valid values. Does not know options and connections. Error texts never contain a secret.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from ..errors import Code, ConnectorError

_KNOWN: Final = {
    "endpoint": "Endpoint",
    "sharedaccesskeyname": "SharedAccessKeyName",
    "sharedaccesskey": "SharedAccessKey",
    "sharedaccesssignature": "SharedAccessSignature",
    "entitypath": "EntityPath",
    "usedevelopmentemulator": "UseDevelopmentEmulator",
}


@dataclass(frozen=True, slots=True)
class ConnectionString:
    """The values of a connection string; `port` None is the default of the transport. No secret is in its repr."""

    host: str
    port: int | None
    key_name: str | None
    key: str | None = field(repr=False)
    sas_token: str | None = field(repr=False)
    entity_path: str | None
    development_emulator: bool


def parse_connection_string(text: str) -> ConnectionString:
    """Parse a connection string; ConnectorError(OPTION_INVALID) names the missing or invalid part."""
    values = _values(text)
    host, port = _host_and_port(values.get("endpoint"))
    key_name, key = values.get("sharedaccesskeyname"), values.get("sharedaccesskey")
    token = values.get("sharedaccesssignature")
    if token is None:
        missing = [_KNOWN[name] for name in ("sharedaccesskeyname", "sharedaccesskey") if not values.get(name)]
        if len(missing) == 1:
            raise _invalid(f"it has no {missing[0]}")
    emulator = values.get("usedevelopmentemulator", "false").lower()
    if emulator not in ("true", "false"):
        raise _invalid(f"UseDevelopmentEmulator is '{emulator}', it must be true or false")
    return ConnectionString(
        host=host,
        port=port,
        key_name=key_name if token is None else None,
        key=key if token is None else None,
        sas_token=token,
        entity_path=values.get("entitypath") or None,
        development_emulator=emulator == "true",
    )


def _values(text: str) -> dict[str, str]:
    values: dict[str, str] = {}
    for number, part in enumerate(text.strip().split(";"), 1):
        if not part.strip():
            continue
        name, equals, value = part.strip().partition("=")
        key = name.strip().lower()
        if not equals or key not in _KNOWN:  # the part may be a piece of a secret: it isn't shown
            raise _invalid(f"part {number} is none of {', '.join(f'{known}=…' for known in _KNOWN.values())}")
        if key in values:
            raise _invalid(f"it has {_KNOWN[key]} twice")
        values[key] = value.strip()
    return values


def _host_and_port(endpoint: str | None) -> tuple[str, int | None]:
    if not endpoint:
        raise _invalid("it has no Endpoint")
    parts = urlsplit(endpoint if "://" in endpoint else f"sb://{endpoint}")
    if parts.username is not None:
        raise _invalid("its Endpoint has a user name")
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        raise _invalid(f"the port of its Endpoint '{endpoint}' is no number from 1 to 65535") from None
    if not host:
        raise _invalid(f"its Endpoint '{endpoint}' names no host, as sb://<namespace>.servicebus.windows.net/ would")
    return host, port


def _invalid(reason: str) -> ConnectorError:
    return ConnectorError(
        Code.OPTION_INVALID,
        f"connectionString can't be used: {reason}; it looks like Endpoint=sb://<host>/;SharedAccessKeyName=<name>;"
        "SharedAccessKey=<key>, or has SharedAccessSignature=<token> in place of name and key",
    )
