"""`emubus import`: entities of a live namespace or an ARM template, messages of a file."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..broker.errors import BrokerError
from ..broker.model.catalog import Description, path_of
from ..broker.model.descriptions import with_fields
from ..broker.model.profiles import LIMITS, Profile
from ..connection_string import ConnectionString, parse_connection_string
from ..exits import EXIT_OK, EXIT_USAGE, CommandError
from ..kit.answers import is_deeper
from ..options import ConfigError
from ..terminal import Progress, json_text, one_line, write_notes
from .client.address import (
    Address,
    add_server_options,
    address_of,
    ca_file_of,
)
from .client.output import add_json, show

if TYPE_CHECKING:
    from ..importing.messages import Copied

TEMPLATE_CHARS_MAX: Final = 16 << 20
"""The service takes 4 MB."""
TEMPLATE_DEPTH_MAX: Final = 100
_EMULATOR: Final = "usedevelopmentemulator=true"
_TARGETS: Final = ("forward_to", "forward_dead_letters_to")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("entity", nargs="?", metavar="ENTITY", help="with --lines: the queue or topic")
    parser.add_argument("--lines", type=Path, metavar="FILE", help="send messages of JSON Lines; -: stdin")
    parser.add_argument("--namespace", metavar="CS", help="connection string (Manage) of the namespace to read")
    parser.add_argument("--arm", type=Path, metavar="FILE", help="read an ARM template (`bicep build` makes one)")
    parser.add_argument("--parameters", type=Path, metavar="FILE", help="with --arm: the values of its parameters")
    parser.add_argument("--messages", action="store_true", help="with --namespace: also copy the messages of queues")
    parser.add_argument("--file", type=Path, metavar="FILE", help="write a Config.json instead of creating entities")
    add_json(parser)
    add_server_options(parser)
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Import; the exit code. ConfigError, CommandError."""
    if (parsed.entity is None) != (parsed.lines is None):
        raise ConfigError("give ENTITY and --lines together")
    if parsed.lines is not None:
        from .client.lines import import_messages

        if parsed.namespace is not None or parsed.arm is not None:
            raise ConfigError("--lines, --namespace and --arm exclude each other")
        return import_messages(parsed)
    if (parsed.namespace is None) == (parsed.arm is None):
        raise ConfigError("give either --namespace or --arm")
    if parsed.parameters is not None and parsed.arm is None:
        raise ConfigError("--parameters needs --arm")
    if parsed.messages and (parsed.arm is not None or parsed.file is not None):
        raise ConfigError("--messages needs --namespace, and goes with no --file")
    entities, found = _of_namespace(parsed) if parsed.arm is None else _of_template(parsed)
    passed_over, counts = [*found], dict[str, int]()
    if parsed.file is None:
        copied = _create(parsed, entities)
        done = [f"created {each.kind} {path_of(each)}" for each in entities]
        if copied is not None:
            passed_over += copied.passed_over
            counts = {path: count for path, count in copied.counts.items() if count}
            done += [f"copied {count} messages of {path}" for path, count in counts.items()]
    else:
        _write(parsed.file, entities)
        done = [f"wrote {len(entities)} entities to {parsed.file}"]
    write_notes(f"emubus: passed over: {one_line(each)}" for each in passed_over)
    answer = {"entities": [path_of(each) for each in entities], "messages": counts, "passed_over": passed_over}
    show(parsed, answer, done or ["there are no entities"])
    return EXIT_OK


def _of_namespace(parsed: argparse.Namespace) -> tuple[list[Description], Sequence[str]]:
    from ..importing.atom import read_namespace  # parses XML with the tables of the management API

    source, is_local, ca_file = _source_of(parsed)
    return read_namespace(source, tls=not is_local, ca_file=ca_file, limits=LIMITS[Profile.STANDARD])


def _source_of(parsed: argparse.Namespace) -> tuple[ConnectionString, bool, Path | None]:
    """The namespace to read, whether it is an emulator without TLS, and the CA to trust."""
    try:
        source = parse_connection_string(parsed.namespace)
    except ValueError as error:
        raise ConfigError(f"--namespace is (not shown); allowed is {error}") from error
    return source, _EMULATOR in parsed.namespace.lower().replace(" ", ""), ca_file_of(parsed)


def _of_template(parsed: argparse.Namespace) -> tuple[list[Description], Sequence[str]]:
    """The entities of an ARM template, judged by the reader of Config.json with every feature allowed."""
    from ..config_file.cursor import ConfigFileError
    from ..config_file.reading import parse_config
    from ..importing.arm import parameters_in, read_template
    from ..importing.expressions import TooMuch, Unresolved

    read: Path = parsed.parameters or parsed.arm
    try:
        parameters = {} if parsed.parameters is None else parameters_in(_json(parsed.parameters))
        read = parsed.arm
        found = read_template(_json(parsed.arm), parameters)
    except (Unresolved, TooMuch) as error:
        raise CommandError(f"{read}: {error}", EXIT_USAGE) from error
    except RecursionError:
        raise CommandError(f"{read}: its values are nested too deeply", EXIT_USAGE) from None
    try:
        limits = replace(LIMITS[Profile.STANDARD], jms=True)  # the server refuses what it has not
        topology = parse_config(json.dumps(found.config()), limits, str(parsed.arm)).topology
    except ConfigFileError as error:
        first, *more = (f"{parsed.arm}: {each.text}" for each in error.problems)
        raise CommandError(first, EXIT_USAGE, more) from error
    return [*topology.queues, *topology.topics, *topology.subscriptions], found.passed_over


def _json(path: Path) -> dict[str, object]:
    try:
        with path.open(encoding="utf-8-sig") as file:
            text = file.read(TEMPLATE_CHARS_MAX + 1)
        if len(text) > TEMPLATE_CHARS_MAX:
            raise ConfigError(f"{path} has more than {TEMPLATE_CHARS_MAX} characters; that is no template")
        found: object = json.loads(text)
        if is_deeper(found, TEMPLATE_DEPTH_MAX):
            raise RecursionError
    except RecursionError:
        raise ConfigError(f"{path} is nested more than {TEMPLATE_DEPTH_MAX} levels deep") from None
    except OSError as error:
        raise ConfigError(f"{path} can't be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{path} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise ConfigError(f"{path} is not a JSON object")
    members: dict[str, object] = found
    return members


def _write(path: Path, entities: Sequence[Description]) -> None:
    from ..config_file.writing import config_json

    try:
        path.write_text(json_text(config_json("sbemulatorns", entities)) + "\n")
    except OSError as error:
        raise ConfigError(f"{path} can't be written: {error.strerror}") from error


def _create(parsed: argparse.Namespace, entities: Sequence[Description]) -> Copied | None:
    """Create entities over the administration protocol; their targets once all of them exist. CommandError.

    Messages are copied before, so that none is forwarded.
    """
    from ..broker.access import DEFAULT_KEY
    from ..kit.http_connection import CaError
    from ..kit.remote import RemoteEmubus

    address = address_of(parsed)
    try:
        server = RemoteEmubus(
            address.url, key_name=address.key_name, key=address.key or DEFAULT_KEY, ca_file=address.ca_file
        )
    except (ValueError, CaError) as error:
        raise ConfigError(str(error)) from error
    progress, path = Progress("created", len(entities)), ""
    try:
        for number, each in enumerate(entities, 1):
            path = path_of(each)
            server.create(with_fields(each, {name: None for name in _TARGETS if hasattr(each, name)}))
            progress.step(number)
        progress.end()
        copied = _copy_messages(parsed, address, entities) if parsed.messages else None
        for each in entities:
            if getattr(each, "forward_to", None) or getattr(each, "forward_dead_letters_to", None):
                path = path_of(each)
                server.update(each)
    except BrokerError as error:
        raise CommandError(f"{path}: {error.description}") from error
    except ConnectionError as error:
        raise CommandError(str(error), 3) from error
    finally:
        progress.end()
    return copied


def _copy_messages(parsed: argparse.Namespace, address: Address, entities: Sequence[Description]) -> Copied:
    from ..broker.access import DEFAULT_KEY
    from ..importing.messages import Peer, copy_messages  # loads an AMQP client
    from ..spark_connector.wire import Endpoint, SasKey, default_port

    source, is_local, ca_file = _source_of(parsed)
    own = None if ca_file is None else str(ca_file)
    # An endpoint of the service has no port, and a certificate of a CA that everybody knows.
    port = source.port or default_port(tls=not is_local, transport="amqp")
    given = Endpoint(source.host, port, tls=not is_local, ca_file=None if source.port is None else own)
    target = Endpoint(address.host, address.port, tls=address.scheme == "https", ca_file=own)
    return copy_messages(
        Peer(given, SasKey(source.key_name, source.key)),
        Peer(target, SasKey(address.key_name, address.key or DEFAULT_KEY)),
        entities,
    )
