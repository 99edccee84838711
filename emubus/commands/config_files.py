"""`emubus config`: check a Config.json, export the running namespace as one, print its JSON Schema."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..exits import EXIT_OK, EXIT_USAGE
from ..options import ConfigError, read_options
from ..terminal import json_text, write_json, write_lines, write_notes
from .client.address import add_server_options
from .client.output import add_json, show
from .declaring import Command, Parsed

if TYPE_CHECKING:
    from ..config_file.cursor import Problem


def add_arguments(parser: Command) -> None:
    check = parser.action("check", "print all errors of a file", _CHECK)
    check.argument("file", convert=Path, metavar="FILE", help="the Config.json")
    _add_profile(check)
    check.switch("--json", help="print JSON")
    check.run = _check
    export = parser.action("export", "print the running namespace", _EXPORT)
    export.option("--file", convert=Path, metavar="FILE", help="write it to this file")
    add_json(export)
    add_server_options(export)
    export.run = _export
    schema = parser.action("schema", "print the JSON Schema of the file", _SCHEMA)
    add_json(schema)
    schema.run = _schema


_CHECK = "Print each error of a Config.json with its place; exit code 2 if it has one."
_EXPORT = "Print entities, rules and keys of the running namespace as a Config.json."
_SCHEMA = "Print the JSON Schema of Config.json, for editors."


def _add_profile(parser: Command) -> None:
    from ..config import OPTIONS_BY_NAME

    for name in ("profile", "premium_partitions"):
        parser.setting(OPTIONS_BY_NAME[name])


def _check(parsed: Parsed) -> int:
    from ..broker.model.profiles import Profile
    from ..config import OPTIONS_BY_NAME, limits_of
    from ..config_file.cursor import ConfigFileError
    from ..config_file.reading import read_config_file

    errors: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    summary = ""
    try:
        names = ("profile", "premium_partitions")
        values = read_options([OPTIONS_BY_NAME[name] for name in names], vars(parsed))
        limits = limits_of(values.of("profile", Profile), values.maybe("premium_partitions", int))
        found = read_config_file(parsed.file, limits)
        warnings, topology = found.warnings, found.topology
        counts = (len(topology.queues), len(topology.topics), len(topology.subscriptions))
        summary = "{} queues, {} topics, {} subscriptions".format(*counts)
    except ConfigFileError as error:
        errors, warnings = error.problems, error.warnings
    if parsed.json:
        answer = {"errors": [*map(_as_json, errors)], "warnings": [*map(_as_json, warnings)]}
        write_json(answer)
    else:
        write_notes(each.with_column for each in errors)
        write_notes(f"{each.with_column} (warning)" for each in warnings)
        write_lines([] if errors else [f"{parsed.file}: {summary}"])
    return EXIT_USAGE if errors else EXIT_OK


def _as_json(problem: Problem) -> dict[str, object]:
    return {"line": problem.line, "column": problem.column, "message": problem.text}


def _export(parsed: Parsed) -> int:
    from .client.api import connect

    with connect(parsed) as api:
        found = api.get("/config")
        found.part("UserConfig")
    if parsed.file is None:
        write_json(found)
        return EXIT_OK
    try:
        parsed.file.write_text(json_text(found) + "\n")
    except OSError as error:
        raise ConfigError(f"{parsed.file} can't be written: {error.strerror}") from error
    show(parsed, {"file": str(parsed.file)}, [f"exported to {parsed.file}"])
    return EXIT_OK


def _schema(parsed: Parsed) -> int:
    from ..config_file.json_schema import schema

    del parsed
    write_json(schema())
    return EXIT_OK
