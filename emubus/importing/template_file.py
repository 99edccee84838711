"""Reads a template from a file: ARM JSON as `az` takes it, or Bicep through its compiler, with a file of parameters.

Knows files, text and processes; `templates/` knows what a template means. JSON may have comments, trailing commas and
texts of several lines, as `az deployment` allows. What a resource is left out for has the line of the file.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ..config_file.json_text import JsonNode, JsonTextError, parse_json
from ..declared.resources import Origin
from ..exits import EXIT_USAGE, CommandError
from ..options import ConfigError
from ..templates.reading import Evaluated, evaluate, parameters_in
from ..templates.values import TooMuch, Unresolved
from .other_files import remedy_for

TEMPLATE_CHARS_MAX: Final = 16 << 20
"""The service takes 4 MB."""
COMPILE_S_MAX: Final = 120
"""A first run of the compiler restores modules of a registry."""
_BICEP: Final = (".bicep", ".bicepparam")


def read_template_file(path: Path, parameters: Path | None) -> Evaluated:
    """What the template declares. ConfigError, CommandError: one line for each mistake."""
    source = path
    try:
        given: Mapping[str, object] = {}
        if parameters is not None:
            source = parameters
            given = parameters_in(_parameters(parameters))
        source = path
        root = _json_of_file(path)
        found = evaluate(
            _require_object(plain(root), path),
            given,
            stand_ins=True,
            locate=lambda at: Origin(str(path), line_of(root, at) if path.suffix not in _BICEP else None, at),
            linked=lambda relative: _linked_template(path.parent / relative),
        )
    except (Unresolved, TooMuch) as error:
        raise CommandError(f"{source}: {error}", EXIT_USAGE) from error
    if found.problems:
        first, *more = (f"{parameters or path}: {each}" for each in found.problems)
        raise CommandError(first, EXIT_USAGE, more)
    return found


def _parameters(path: Path) -> Mapping[str, object]:
    found = _require_object(plain(_json_of_file(path)), path)
    inner = found.get("parametersJson") if path.suffix == ".bicepparam" else None
    return found if inner is None else _require_object(json.loads(str(inner)), path)


def _linked_template(path: Path) -> Mapping[str, object] | None:
    return _require_object(plain(_json_of_file(path)), path) if path.is_file() else None


def _require_object(value: object, path: Path) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise ConfigError(f"{path} is not a JSON object; {remedy_for(path, 'arm')}")
    members: dict[str, object] = value
    return members


def _json_of_file(path: Path) -> JsonNode:
    text = _compile_bicep(path) if path.suffix in _BICEP else _read_text(path)
    if len(text) > TEMPLATE_CHARS_MAX:
        raise ConfigError(f"{path} has more than {TEMPLATE_CHARS_MAX} characters; that is no template")
    try:
        return parse_json(text, multiline=True)
    except JsonTextError as error:
        place = f"{path}:{error.line}:{error.column}"
        raise ConfigError(f"{place}: is not JSON: {error}; {remedy_for(path, 'arm')}") from error


def _read_text(path: Path) -> str:
    try:
        with path.open(encoding="utf-8-sig") as file:
            return file.read(TEMPLATE_CHARS_MAX + 1)
    except OSError as error:
        raise ConfigError(f"{path} can't be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not JSON: it is no UTF-8 ({error.reason} at byte {error.start})") from error


def _compile_bicep(path: Path) -> str:
    """The JSON of a Bicep file, by the compiler that is on PATH."""
    if not path.is_file():
        raise ConfigError(f"{path} can't be read: there is no such file")
    verb = "build-params" if path.suffix == ".bicepparam" else "build"
    bicep, az = shutil.which("bicep"), shutil.which("az")
    if bicep is not None:
        command = [bicep, verb, "--stdout", str(path)]
    elif az is not None:
        command = [az, "bicep", verb, "--stdout", "--file", str(path)]
    else:
        raise ConfigError(
            f"{path} needs the Bicep compiler, and neither `bicep` nor `az` is on PATH; install one of them, or give "
            f"the JSON that `bicep {verb}` makes"
        )
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="replace",
            timeout=COMPILE_S_MAX,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ConfigError(f"{path}: `{Path(command[0]).name}` did not end within {COMPILE_S_MAX} s") from None
    except OSError as error:
        raise ConfigError(f"{path}: `{command[0]}` can't be started: {error.strerror}") from error
    if done.returncode:
        lines = [each for each in done.stderr.splitlines() if each.strip()] or [f"exit code {done.returncode}"]
        errors = [each for each in lines if "error" in each.lower()] or lines
        raise CommandError(f"{path} does not compile: {errors[0].strip()}", EXIT_USAGE, [e.strip() for e in errors[1:]])
    return done.stdout


def plain(node: JsonNode) -> object:
    """The value of a tree without its positions."""
    match node.value:
        case dict() as members:
            return {name: plain(each) for name, each in members.items()}
        case list() as items:
            return [plain(each) for each in items]
        case value:
            return value


def line_of(root: JsonNode, path: str) -> int:
    """The line of what a JSON path such as `$.resources[3].properties` names, or of the nearest value around it."""
    node, rest = root, path.removeprefix("$")
    while rest:
        found: JsonNode | None = None
        if rest.startswith("[") and isinstance(node.value, list):
            number, _, rest = rest[1:].partition("]")
            found = node.value[int(number)] if number.isdigit() and int(number) < len(node.value) else None
        elif rest.startswith(".") and isinstance(node.value, dict):
            names = [
                each for each in node.value if rest[1:].startswith(each) and rest[len(each) + 1 :][:1] in ("", ".", "[")
            ]
            if names:
                name = max(names, key=len)
                found, rest = node.value[name], rest[len(name) + 1 :]
        if found is None:
            break
        node = found
    return node.line
