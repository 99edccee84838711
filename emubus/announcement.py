"""What a server tells once it is ready: page, connection strings, configuration, entities; as text and as JSON.

Knows the form of connection strings [http 1]. Does not know the server: `serve` passes the ports.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, TypedDict

from .broker.access import DEFAULT_KEY, DEFAULT_SHARED_KEY
from .broker.keys import Right, SharedKey
from .config import JSON_VARIABLE, Auth, Config, Durability, Tls
from .options import ConfigError

LOCAL: Final = frozenset({"", "0.0.0.0", "::", "127.0.0.1", "::1"})
NAMES_SHOWN: Final = 6


class Facts(TypedDict):
    """What scripts read from the ready file."""

    pid: int
    url: str
    amqp_port: int
    http_port: int
    more_ports: list[int]
    connection_string: str
    admin_connection_string: str
    tls_connection_string: str | None
    ca_file: str | None
    identity_variables: dict[str, str]
    """What gives programs a managed identity, where they could use one."""
    authority_variables: dict[str, str]
    """What leads applications with a secret, a certificate or a federated token here; libraries ask over TLS only."""
    config_file: str | None
    entities: list[str]


def facts(config: Config, ports: Mapping[str, int], ca_file: Path | None, entities: Sequence[tuple[str, str]]) -> Facts:
    """Ports and connection strings of a ready server. `ports` by name; `entities` are pairs of kind and path."""
    host = "localhost" if config.host in LOCAL else config.host
    host = f"[{host}]" if ":" in host else host
    key = _key(config)
    has_tls = config.tls is not Tls.OFF or config.tls_files is not None

    def connection_string(port: int, ending: str) -> str:
        return f"Endpoint=sb://{host}:{port};SharedAccessKeyName={key.name};SharedAccessKey={key.key};{ending}"

    plain = "UseDevelopmentEmulator=true;"
    return {
        "pid": os.getpid(),
        "url": f"http://{host}:{ports['http']}",
        "amqp_port": ports["amqp"],
        "http_port": ports["http"],
        "more_ports": [port for name, port in ports.items() if name not in ("amqp", "http")],
        "connection_string": connection_string(ports["amqp"], plain),
        "admin_connection_string": connection_string(ports["http"], plain),
        "tls_connection_string": connection_string(ports["amqp"], "") if has_tls else None,
        "ca_file": None if ca_file is None else str(ca_file),
        "identity_variables": _identity_variables(config, f"http://{host}:{ports['http']}", has_tls=has_tls),
        "authority_variables": {"AZURE_AUTHORITY_HOST": f"https://{host}:{ports['http']}/"} if has_tls else {},
        "config_file": None if config.config_file is None else str(config.config_file),
        "entities": [path for _, path in entities],
    }


def _key(config: Config) -> SharedKey:
    if config.auth is Auth.NONE:
        return DEFAULT_SHARED_KEY
    return next((each for each in config.keys if Right.MANAGE in each.rights), DEFAULT_SHARED_KEY)


def _identity_variables(config: Config, url: str, *, has_tls: bool) -> dict[str, str]:
    """SDKs use a credential over TLS only."""
    if not has_tls and config.auth is not Auth.RBAC:
        return {}
    header = "emubus" if config.gives_tokens_to_all else _key(config).key
    return {"IDENTITY_ENDPOINT": f"{url}/msi/token", "IDENTITY_HEADER": header}


SURVIVES: Final[Mapping[Durability, str]] = {
    Durability.FULL: "what is acknowledged survives kill -9 and a power cut",
    Durability.SECOND: "what is acknowledged survives kill -9, and a power cut but for the last second",
    Durability.PROCESS: "what is acknowledged survives kill -9; a power cut may damage the data folder",
    Durability.NONE: "in memory, ends with the server",
}


def banner(found: Facts, config: Config, entities: Sequence[tuple[str, str]]) -> list[str]:
    """The lines for people; a key that is not the default one is not shown."""
    secret = f"SharedAccessKey={_key(config).key};"

    def shown(text: str) -> str:
        return text if _key(config).key == DEFAULT_KEY else text.replace(secret, "SharedAccessKey=(not shown);")

    rows = [
        ("Page", found["url"]),
        ("Connection string", shown(found["connection_string"])),
        ("Administration", shown(found["admin_connection_string"])),
    ]
    if found["tls_connection_string"] is not None:
        rows.append(("TLS", shown(found["tls_connection_string"])))
    if found["ca_file"] is not None:
        rows.append(("CA", found["ca_file"]))
    if found["identity_variables"]:
        values = found["identity_variables"]
        hidden = {} if config.gives_tokens_to_all else {"IDENTITY_HEADER": "(not shown)"}
        rows.append(("Managed identity", " ".join(f"{name}={value}" for name, value in {**values, **hidden}.items())))
    if found["authority_variables"]:
        rows.append(
            ("Application", " ".join(f"{name}={value}" for name, value in found["authority_variables"].items()))
        )
    rows += [("Configuration", config.entities_from or f"no file (--config, --queues, {JSON_VARIABLE})")]
    rows += [("Entities", _summary(entities))]
    rows += [("Durability", f"{config.durability.value}: {SURVIVES[config.durability]}")]
    return [f"  {name:<18} {value}" for name, value in rows]


def _summary(entities: Sequence[tuple[str, str]]) -> str:
    counts = Counter(kind for kind, _ in entities)
    words = [f"{count} {kind}{'s' * (count != 1)}" for kind, count in sorted(counts.items())]
    names = [path for _, path in entities]
    more = ", …" if len(names) > NAMES_SHOWN else ""
    return f"{', '.join(words)}: {', '.join(names[:NAMES_SHOWN])}{more}" if names else "none"


def forget_ready_file(path: Path, flag: str = "--ready-file") -> None:
    """Remove the file of an earlier run, which says nothing of this one. ConfigError: this run can't write its own.

    `flag` is the option or variable that names it.
    """
    if path.is_dir():
        raise ConfigError(f"{flag} {path} is a folder; name a file in it")
    if not path.parent.is_dir():
        raise ConfigError(f"{flag} {path} can't be written: there is no folder {path.parent}; make it first")
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(f"{flag} {path} can't be written: {error.strerror}") from error


def write_ready_file(path: Path, found: Mapping[str, object], flag: str = "--ready-file") -> None:
    """Write the facts as JSON, readable by the owner alone, as it may hold a key. ConfigError.

    The file appears whole: a script may wait for it.
    """
    beginning = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beginning.touch(0o600)
        beginning.write_text(json.dumps(found, indent=2) + "\n")
        beginning.replace(path)
    except OSError as error:
        raise ConfigError(f"{flag} {path} can't be written: {error.strerror}") from error
