"""`emubus import`: entities of a live namespace, an ARM template, Terraform or Pulumi; messages of a file."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..broker.errors import BrokerError
from ..broker.model.catalog import Description
from ..broker.model.profiles import LIMITS, Profile
from ..connection_string import ConnectionString, parse_connection_string
from ..exits import EXIT_FAILED, EXIT_OK, EXIT_USAGE, CommandError
from ..kit.answers import is_deeper
from ..options import ConfigError
from ..terminal import json_text, one_line, write_errors, write_notes
from .client.address import (
    MEANT,
    Address,
    add_server_options,
    address_of,
    ca_file_of,
)
from .client.output import add_json, show
from .declaring import Command, Parsed

if TYPE_CHECKING:
    from ..declared.applying import Result
    from ..declared.resources import Resources
    from ..importing.messages import Copied
    from ..kit.remote import RemoteEmubus

STATE_CHARS_MAX: Final = 64 << 20
"""A plan of a landscape with its configuration and prior state; a stack with all outputs."""
STATE_DEPTH_MAX: Final = 100
_EMULATOR: Final = "usedevelopmentemulator=true"
_SOURCES: Final = ("namespace", "arm", "terraform", "pulumi")


def add_arguments(parser: Command) -> None:
    parser.argument("entity", nargs="?", metavar="ENTITY", help="with --lines: the queue or topic")
    parser.option("--lines", convert=Path, metavar="FILE", help="send messages of JSON Lines; -: stdin")
    parser.option("--namespace", metavar="CS", help="connection string (Manage) of the namespace to read")
    parser.option("--arm", convert=Path, metavar="FILE", help="read an ARM template: JSON, or Bicep with its compiler")
    parser.option("--parameters", convert=Path, metavar="FILE", help="with --arm: the values of its parameters")
    parser.option("--terraform", convert=Path, metavar="FILE", help="read what `terraform show -json` prints")
    parser.option("--pulumi", convert=Path, metavar="FILE", help="read what `pulumi stack export` prints")
    parser.switch("--messages", help="with --namespace: also copy the messages of queues")
    parser.option("--file", convert=Path, metavar="FILE", help="write a Config.json instead of creating entities")
    add_json(parser)
    parser.option("--into", name=MEANT, metavar="NAME", help="another namespace of the server than the first")
    add_server_options(parser, names_namespace=False)
    parser.run = run


@dataclass(slots=True)
class _Done:
    """What became of resources and messages, and what else was passed over, a line each."""

    results: list[Result]
    counts: dict[str, int] = field(default_factory=dict[str, int])
    passed_over: list[str] = field(default_factory=list[str])


def run(parsed: Parsed) -> int:
    """Import; the exit code: 1 if an entity was left out or refused. ConfigError, CommandError."""
    from ..declared.applying import FAILURES, Status

    sources = [each for each in _SOURCES if getattr(parsed, each) is not None]
    options = ", ".join(f"--{each}" for each in _SOURCES)
    if (parsed.entity is None) != (parsed.lines is None):
        raise ConfigError("give ENTITY and --lines together")
    if parsed.lines is not None:
        from .client.lines import import_messages

        if sources:
            raise ConfigError(f"--lines, {options} exclude each other")
        return import_messages(parsed)
    if len(sources) != 1:
        raise ConfigError(f"give one of {options}")
    if parsed.parameters is not None and parsed.arm is None:
        raise ConfigError("--parameters needs --arm")
    if parsed.messages and (parsed.namespace is None or parsed.file is not None):
        raise ConfigError("--messages needs --namespace, and goes with no --file")
    resources, entities, passed_over = _read(parsed)
    if parsed.namespace is None and not resources.declared and not resources.left_out:
        raise _nothing_in(parsed, sources[0], resources)
    done = _into_file(parsed, resources) if parsed.file is not None else _into_server(parsed, resources, entities)
    notes = [note for each in done.results for note in each.notes]
    notes += [
        str(each).partition(" ")[2].removeprefix("over ") for each in done.results if each.status is Status.PASSED_OVER
    ]
    done.passed_over[:0] = [*passed_over, *notes, *filter(None, (resources.foreign_line(),))]
    return _tell(parsed, done, [each for each in done.results if each.status in FAILURES])


def _nothing_in(parsed: Parsed, source: str, resources: Resources) -> CommandError:
    """The error for a file that declares nothing of Service Bus; a live namespace may be empty."""
    from ..importing.other_files import remedy_for

    path: Path = getattr(parsed, source)
    has = f", but {foreign}" if (foreign := resources.foreign_line()) else ""
    return CommandError(f"{path} declares nothing of Service Bus{has}; {remedy_for(path, source)}", EXIT_USAGE)


def _tell(parsed: Parsed, done: _Done, failed: Sequence[Result]) -> int:
    """Print the results; the exit code."""
    from ..declared.applying import Status

    shown = [each for each in done.results if each not in failed and each.status is not Status.PASSED_OVER]
    entities = [each.path for each in shown if each.path]
    lines = [f"{one_line(str(each))}" for each in shown]
    if parsed.file is not None:
        lines = [f"wrote {len(entities)} entities to {parsed.file}"]
    lines += [f"copied {count} messages of {path}" for path, count in done.counts.items()]
    write_notes(f"emubus: passed over: {one_line(each)}" for each in done.passed_over)
    answer = {
        "entities": entities,
        "results": [
            {"status": each.status.value, "what": each.what, "why": each.why, "origin": str(each.origin)}
            for each in done.results
        ],
        "messages": done.counts,
        "passed_over": done.passed_over,
    }
    show(parsed, answer, lines or ["there are no entities"])
    if not failed:
        return EXIT_OK
    write_errors(str(each) for each in failed)
    counts = Counter(each.status for each in failed)
    said = " and ".join(f"{count} {status}" for status, count in counts.items())
    write_errors([f"{said} of {len(done.results)} resources; what the other lines say is done"])
    return EXIT_FAILED


# ---------------------------------------------------------------- reading


def _read(parsed: Parsed) -> tuple[Resources, list[Description], Sequence[str]]:
    """The resources of the source, of a live namespace also its entities, and what it passes over."""
    if parsed.namespace is not None:
        return _of_namespace(parsed)
    if parsed.arm is not None:
        return _of_template(parsed), [], ()
    return _of_terraform(parsed.terraform) if parsed.pulumi is None else _of_pulumi(parsed.pulumi), [], ()


def _of_namespace(parsed: Parsed) -> tuple[Resources, list[Description], Sequence[str]]:
    from ..declared.describing import declared_of
    from ..declared.resources import Origin, Resources
    from ..importing.atom import read_namespace  # parses XML with the tables of the management API

    source, is_local, ca_file = _source_of(parsed)
    found, passed_over = read_namespace(source, tls=not is_local, ca_file=ca_file, limits=LIMITS[Profile.STANDARD])
    declared = [each for entity in found for each in declared_of(entity, Origin(source.host))]
    return Resources(tuple(declared)), found, passed_over


def _source_of(parsed: Parsed) -> tuple[ConnectionString, bool, Path | None]:
    """The namespace to read, whether it is an emulator without TLS, and the CA to trust."""
    try:
        source = parse_connection_string(parsed.namespace)
    except ValueError as error:
        raise ConfigError(f"--namespace is (not shown); allowed is {error}") from error
    return source, _EMULATOR in parsed.namespace.lower().replace(" ", ""), ca_file_of(parsed)


def _of_template(parsed: Parsed) -> Resources:
    """The resources of an ARM template or a Bicep file; what stands for parameters without a value is said."""
    from ..importing.template_file import read_template_file  # loads the evaluator of templates

    found = read_template_file(parsed.arm, parsed.parameters)
    write_notes(f"emubus: {one_line(each)}; give it with --parameters" for each in found.notes)
    return found.resources


def _of_terraform(path: Path) -> Resources:
    from ..importing.terraform import NotTerraform, read_terraform

    try:
        return read_terraform(_json(path, STATE_CHARS_MAX, "terraform"), str(path))
    except NotTerraform as error:
        raise _foreign(path, "terraform", error) from None


def _of_pulumi(path: Path) -> Resources:
    from ..importing.pulumi import NotPulumi, read_pulumi

    try:
        return read_pulumi(_json(path, STATE_CHARS_MAX, "pulumi"), str(path))
    except NotPulumi as error:
        raise _foreign(path, "pulumi", error) from None


def _foreign(path: Path, option: str, error: Exception) -> CommandError:
    """The error for a file that is not what its option reads; of a neighbour it says what takes it."""
    from ..importing.other_files import REMEDIES, remedy_for

    remedy = remedy_for(path, option)
    own = str(error) if remedy == REMEDIES[option] else f"{str(error).partition(';')[0]}; {remedy}"
    return CommandError(f"{path}: {own}", EXIT_USAGE)


def _json(path: Path, chars_max: int, option: str) -> dict[str, object]:
    from ..importing.other_files import remedy_for

    try:
        with path.open(encoding="utf-8-sig") as file:
            text = file.read(chars_max + 1)
        if len(text) > chars_max:
            raise ConfigError(f"{path} has more than {chars_max} characters; that is no template")
        found: object = json.loads(text)
        if is_deeper(found, STATE_DEPTH_MAX):
            raise RecursionError
    except RecursionError:
        raise ConfigError(f"{path} is nested more than {STATE_DEPTH_MAX} levels deep") from None
    except OSError as error:
        raise ConfigError(f"{path} can't be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{path} is not JSON: {error}; {remedy_for(path, option)}") from error
    if not isinstance(found, dict):
        raise ConfigError(f"{path} is not a JSON object; {remedy_for(path, option)}")
    members: dict[str, object] = found
    return members


# ---------------------------------------------------------------- applying


def _into_file(parsed: Parsed, resources: Resources) -> _Done:
    """Write a Config.json of what can be applied."""
    from ..config_file.writing import config_json
    from ..declared.applying import apply
    from ..declared.future import NAME, FutureNamespace
    from ..importing.to_file import limits_for_file

    future = FutureNamespace(limits_for_file(resources))
    results = asyncio.run(apply(resources, future, whole_rules=parsed.namespace is not None))
    try:
        parsed.file.write_text(json_text(config_json(NAME, future.entities, future.keys)) + "\n")
    except OSError as error:
        raise ConfigError(f"{parsed.file} can't be written: {error.strerror}") from error
    return _Done(results)


def _into_server(parsed: Parsed, resources: Resources, entities: Sequence[Description]) -> _Done:
    """Apply to the running server. Messages are copied before targets are set, so that none is forwarded."""
    from ..broker.access import DEFAULT_KEY
    from ..kit.http_connection import CaError
    from ..kit.remote import RemoteEmubus

    address = address_of(parsed)
    try:
        server = RemoteEmubus(
            address.url,
            key_name=address.key_name,
            key=address.key or DEFAULT_KEY,
            ca_file=address.ca_file,
            namespace=address.namespace,
        )
    except (ValueError, CaError) as error:
        raise ConfigError(str(error)) from error
    try:
        done = _Done(_apply(server, resources, sets_targets=not parsed.messages, whole_rules=bool(entities)))
        if parsed.messages:
            copied = _copy_messages(parsed, address, entities)
            done.passed_over += copied.passed_over
            done.counts = {path: count for path, count in copied.counts.items() if count}
            later = _apply(server, resources, sets_targets=True, whole_rules=bool(entities))
            done.results = [_merged_result(*pair) for pair in zip(done.results, later, strict=False)]
    except BrokerError as error:
        raise CommandError(error.description) from error
    except ConnectionError as error:
        remedy = "what was applied before stays; the same command again goes on"
        raise CommandError(f"{error}; {remedy}", 3) from error
    return done


def _apply(server: RemoteEmubus, resources: Resources, *, sets_targets: bool, whole_rules: bool) -> list[Result]:
    from ..declared.applying import left_out

    results = server.apply(resources.declared, whole_rules=whole_rules, sets_targets=sets_targets)
    return [*results, *left_out(resources)]


def _merged_result(first: Result, second: Result) -> Result:
    """The result of both rounds: the second one only sets targets."""
    from ..declared.applying import Status

    if second.status is Status.CHANGED and first.status in (Status.CREATED, Status.CHANGED):
        return first if first.status is Status.CREATED else replace(first, why=f"{first.why}; {second.why}")
    return first if second.status is Status.UNCHANGED else second


def _copy_messages(parsed: Parsed, address: Address, entities: Sequence[Description]) -> Copied:
    from ..broker.access import DEFAULT_KEY
    from ..importing.messages import Peer, copy_messages  # loads an AMQP client
    from ..spark_connector.wire import Endpoint, SasKey, default_port
    from .client.access import host_named

    source, is_local, ca_file = _source_of(parsed)
    own = None if ca_file is None else str(ca_file)
    # An endpoint of the service has no port, and a certificate of a CA that everybody knows.
    port = source.port or default_port(tls=not is_local, transport="amqp")
    given = Endpoint(source.host, port, tls=not is_local, ca_file=None if source.port is None else own)
    named = "" if address.namespace is None else host_named(address)
    target = Endpoint(address.host, address.port, tls=address.scheme == "https", ca_file=own, address_host=named)
    return copy_messages(
        Peer(given, SasKey(source.key_name, source.key)),
        Peer(target, SasKey(address.key_name, address.key or DEFAULT_KEY)),
        entities,
    )
