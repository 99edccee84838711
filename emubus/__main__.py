"""The command line: `emubus serve`, `check`, `route`, `ca`, `health`.

Knows arguments and exit codes: 0 success, 1 failure, 2 invalid arguments or configuration, with one line on stderr.
Does not know what the commands do; each imports what it needs when it runs, so that `--version` and the health check of
a container stay fast.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from . import __version__
from .broker.model.descriptions import QueueDescription, TopicDescription, entity_key
from .config import OPTIONS, OPTIONS_BY_NAME, Config, ConfigError, load_config, read_option
from .storage.contract import StoreError

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2

_PROPERTY_NAMES: Final = {
    "--session-id": "SessionId",
    "--partition-key": "PartitionKey",
    "--message-id": "MessageId (the key if duplicate detection is on)",
}
_ANY_ADDRESS: Final = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "": "127.0.0.1"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    parsed = _parser().parse_args(arguments)
    command: Callable[[argparse.Namespace], int] = parsed.command
    try:
        return command(parsed)
    except ConfigError as error:
        sys.stderr.write(f"emubus: error: {error}\n")
        return EXIT_USAGE
    except StoreError as error:
        sys.stderr.write(f"emubus: error: {error}\n")
        return EXIT_FAILED
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="emubus", description="A local stand-in for Azure Service Bus.")
    parser.add_argument("--version", action="version", version=f"emubus {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    serve = commands.add_parser(
        "serve",
        help="run the server",
        description="Run the server until SIGINT or SIGTERM. Each option can be set in the environment too.",
    )
    for option in OPTIONS:
        _add_option(serve, option.name)
    serve.set_defaults(command=_serve)

    check = commands.add_parser("check", help="check the data folder of a stopped server")
    check.add_argument("dir", type=Path, metavar="DIR", help="the data folder")
    check.set_defaults(command=_check)

    route = commands.add_parser(
        "route",
        help="print the partition that a message would go to",
        description="Print the partition that a message would go to, by its key or the properties that make the key.",
    )
    route.add_argument("entity", metavar="ENTITY", help="name of a queue or topic")
    route.add_argument("--key", metavar="K", help="the key of the message")
    for flag in ("--session-id", "--partition-key", "--message-id"):
        route.add_argument(flag, metavar="K", help=f"the message's {_PROPERTY_NAMES[flag]}")
    source = route.add_mutually_exclusive_group()
    _add_option(source, "config")
    source.add_argument("--data", type=Path, metavar="DIR", help="use the entities of a data folder instead")
    for name in ("profile", "premium_partitions"):
        _add_option(route, name)
    route.set_defaults(command=_route)

    authority = commands.add_parser("ca", help="print the path of the development CA and how to trust it in each SDK")
    _add_option(authority, "data")
    authority.set_defaults(command=_ca)

    health = commands.add_parser("health", help="check the health of a running server; exit code 0 or 1")
    for name in ("host", "http_port"):
        _add_option(health, name)
    health.add_argument("--timeout", type=float, default=3.0, metavar="S", help="seconds to wait (3)")
    health.set_defaults(command=_health)
    return parser


def _add_option(parser: argparse._ActionsContainer, name: str) -> None:
    option = OPTIONS_BY_NAME[name]
    notes = [] if option.default is None else [f"default {option.default}"]
    notes.append(f"env {', '.join(option.variables)}")
    text = f"{option.help} ({'; '.join(notes)})".replace("%", "%%")
    if option.is_switch:
        parser.add_argument(option.flag, dest=option.name, action="store_const", const="yes", help=text)
        return
    parser.add_argument(
        option.flag,
        dest=option.name,
        metavar=option.metavar,
        help=text,
    )


def _config(parsed: argparse.Namespace) -> Config:
    return load_config({option.name: getattr(parsed, option.name, None) for option in OPTIONS})


def _serve(parsed: argparse.Namespace) -> int:
    config = _config(parsed)
    from .logging import configure_logging
    from .server import run

    configure_logging(config.log_format, config.log_level)
    return run(config)


def _check(parsed: argparse.Namespace) -> int:
    directory: Path = parsed.dir
    if not directory.is_dir():
        raise ConfigError(f"there is no folder {directory}")
    from .server import check_data

    return check_data(directory)


def _ca(parsed: argparse.Namespace) -> int:
    from .tls import TlsError, ca_file, make_authority, trust_lines

    path = ca_file(read_option(OPTIONS_BY_NAME["data"], {"data": parsed.data}))
    try:
        make_authority(path.parent)  # clients can be set up before the first start of the server
    except TlsError as error:
        sys.stderr.write(f"emubus: error: {error}\n")
        return EXIT_FAILED
    sys.stdout.write("\n".join(trust_lines(path)) + "\n")
    return EXIT_OK


def _route(parsed: argparse.Namespace) -> int:
    directory: Path | None = parsed.data
    parsed.data = None
    config = _config(parsed)
    topology, partition_count = config.topology, config.limits.partition_count
    if directory is not None:
        from .broker.model.catalog import CatalogError
        from .server import read_namespace

        try:
            topology, partition_count = read_namespace(directory)
        except CatalogError as error:
            sys.stderr.write(f"emubus: error: {error}\n")
            return EXIT_FAILED
    entities: list[QueueDescription | TopicDescription] = [*topology.queues, *topology.topics]
    for entity in entities:
        if entity_key(entity.name) == entity_key(parsed.entity):
            sys.stdout.write(f"{_routed(parsed, entity, partition_count)}\n")
            return EXIT_OK
    where = directory or config.config_file or "the default configuration"
    sys.stderr.write(f"emubus: error: {where} has no queue or topic '{parsed.entity}'\n")
    return EXIT_FAILED


def _routed(parsed: argparse.Namespace, entity: QueueDescription | TopicDescription, partition_count: int) -> str:
    """The partition of a message as text; keys are tried in the order of [P8]."""
    from .broker.api import partition_for_key

    if not entity.enable_partitioning:
        return f"{entity.name}: partition 0 of 1 (not partitioned)"
    session_id, partition_key = parsed.session_id, parsed.partition_key
    if session_id is not None and partition_key is not None and session_id != partition_key:
        raise ConfigError("SessionId and PartitionKey differ: the message is refused")
    key = next((each for each in (parsed.key, session_id, partition_key) if each is not None), None)
    if key is None and entity.requires_duplicate_detection:
        key = parsed.message_id
    if key is None:
        return f"{entity.name}: any of {partition_count} partitions, round-robin (no key)"
    return f"{entity.name}: partition {partition_for_key(key, partition_count)} of {partition_count} (key '{key}')"


def _health(parsed: argparse.Namespace) -> int:
    import http.client
    import urllib.error
    import urllib.request

    arguments = {"host": parsed.host, "http_port": parsed.http_port}
    host = str(read_option(OPTIONS_BY_NAME["host"], arguments))
    port = int(read_option(OPTIONS_BY_NAME["http_port"], arguments))
    host = _ANY_ADDRESS.get(host, f"[{host}]" if ":" in host else host)
    # No proxy: HTTP_PROXY of a container is not for its own health check.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://{host}:{port}/health", timeout=parsed.timeout) as response:
            sys.stdout.write(response.read(10_000).decode(errors="replace") + "\n")
            return EXIT_OK if response.status == 200 else EXIT_FAILED
    except urllib.error.HTTPError as error:
        with error:
            sys.stderr.write(error.read(10_000).decode(errors="replace") + "\n")
    except (OSError, http.client.HTTPException) as error:
        sys.stderr.write(f"emubus: no answer from http://{host}:{port}/health: {error}\n")
    return EXIT_FAILED


if __name__ == "__main__":
    sys.exit(main())
