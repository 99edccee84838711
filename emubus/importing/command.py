"""`emubus import`: entities of a live namespace or an ARM template, into the running server or a Config.json."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from ..broker.errors import BrokerError
from ..broker.model.catalog import Description, path_of
from ..broker.model.profiles import LIMITS, Profile
from ..commands import EXIT_OK, EXIT_USAGE, CommandError
from ..commands.client.address import add_server_options, address_of, ca_file_of, parse_connection_string
from ..commands.client.output import Progress, add_json, show
from ..commands.options import ConfigError

_EMULATOR: Final = "usedevelopmentemulator=true"
_TARGETS: Final = ("forward_to", "forward_dead_letters_to")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("--namespace", metavar="CS", help="connection string (Manage) of the namespace to read")
    parser.add_argument("--arm", type=Path, metavar="FILE", help="read an ARM template (`bicep build` makes one)")
    parser.add_argument("--parameters", type=Path, metavar="FILE", help="with --arm: the values of its parameters")
    parser.add_argument("--file", type=Path, metavar="FILE", help="write a Config.json instead of creating entities")
    add_json(parser)
    add_server_options(parser)
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Import; the exit code. ConfigError, CommandError."""
    if (parsed.namespace is None) == (parsed.arm is None):
        raise ConfigError("give either --namespace or --arm")
    if parsed.parameters is not None and parsed.arm is None:
        raise ConfigError("--parameters needs --arm")
    entities, passed_over = _of_namespace(parsed) if parsed.arm is None else _of_template(parsed)
    if parsed.file is None:
        _create(parsed, entities)
        done = [f"created {each.kind} {path_of(each)}" for each in entities]
    else:
        _write(parsed.file, entities)
        done = [f"wrote {len(entities)} entities to {parsed.file}"]
    for each in passed_over:
        sys.stderr.write(f"emubus: passed over: {each}\n")
    answer = {"entities": [path_of(each) for each in entities], "passed_over": list(passed_over)}
    show(parsed, answer, done or ["there are no entities"])
    return EXIT_OK


def _of_namespace(parsed: argparse.Namespace) -> tuple[list[Description], Sequence[str]]:
    from .atom import read_namespace  # parses XML with the tables of the management API

    try:
        source = parse_connection_string(parsed.namespace)
    except ValueError as error:
        raise ConfigError(f"--namespace is (not shown); allowed is {error}") from error
    is_local = _EMULATOR in parsed.namespace.lower().replace(" ", "")
    limits = LIMITS[Profile.STANDARD]
    return read_namespace(source, tls=not is_local, ca_file=ca_file_of(parsed), limits=limits), ()


def _of_template(parsed: argparse.Namespace) -> tuple[list[Description], Sequence[str]]:
    from ..config_file.cursor import ConfigFileError
    from ..config_file.reading import parse_config
    from .arm import parameters_in, read_template

    parameters = {} if parsed.parameters is None else parameters_in(_json(parsed.parameters))
    found = read_template(_json(parsed.arm), parameters)
    try:
        topology = parse_config(json.dumps(found.config()), LIMITS[Profile.STANDARD], str(parsed.arm)).topology
    except ConfigFileError as error:
        raise CommandError("\n".join(f"{parsed.arm}: {each.text}" for each in error.problems), EXIT_USAGE) from error
    return [*topology.queues, *topology.topics, *topology.subscriptions], found.passed_over


def _json(path: Path) -> Any:
    try:
        found = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"{path} can't be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{path} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise ConfigError(f"{path} is not a JSON object")
    return found


def _write(path: Path, entities: Sequence[Description]) -> None:
    from ..config_file.writing import config_json

    try:
        path.write_text(json.dumps(config_json("sbemulatorns", entities), indent=2, ensure_ascii=False) + "\n")
    except OSError as error:
        raise ConfigError(f"{path} can't be written: {error.strerror}") from error


def _create(parsed: argparse.Namespace, entities: Sequence[Description]) -> None:
    """Create entities over the administration protocol; their targets once all of them exist. CommandError."""
    from ..broker.access import DEFAULT_KEY
    from ..http_connection import CaError
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
            without: dict[str, Any] = {name: None for name in _TARGETS if hasattr(each, name)}
            path = path_of(each)
            server.create(replace(each, **without))
            progress.step(number)
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
