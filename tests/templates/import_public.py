"""How many of the public templates in a folder are read whole: `python -m tests.templates.import_public FOLDER`.

Each `*.json` below the folder that is a deployment template and declares an entity of Service Bus counts. It is whole
if none of them is left out. First nothing is given; then each parameter that a message names gets a value of its type,
as somebody who reads the message would do. Prints a line for each template that is not whole, then both shares; fails
below 80 % and 95 %. Templates are not kept here: collect them from repositories that publish them.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from emubus.config_file.json_text import parse_json
from emubus.declared.resources import Kind, LeftOut
from emubus.exits import CommandError
from emubus.importing.template_file import plain, read_template_file
from emubus.options import ConfigError

WITHOUT_MIN: Final = 0.80
WITH_MIN: Final = 0.95
ROUNDS_MAX: Final = 8
ENTITIES: Final = frozenset({Kind.QUEUE, Kind.TOPIC, Kind.SUBSCRIPTION, Kind.RULE})
_NAMED: Final = re.compile(r"give the parameter '([^']+)' a value")


def left_out(template: Path, parameters: Path | None) -> tuple[int, list[str], list[LeftOut]]:
    """Entities that are declared, what is wrong with the others, and these."""
    try:
        found = read_template_file(template, parameters)
    except (ConfigError, CommandError) as error:
        return 1, [str(error)], []
    count = sum(each.kind in ENTITIES for each in found.resources.declared)
    lost = [each for each in found.resources.left_out if each.is_entity]
    return count + len(lost), [str(each) for each in lost], lost


def value_for(template: Path, name: str) -> object:
    """A value that somebody might give for a parameter."""
    root = plain(parse_json(template.read_text("utf-8-sig"), multiline=True))
    assert isinstance(root, dict)
    raw: Mapping[str, object] = next(e for own, e in root["parameters"].items() if own.lower() == name.lower())
    allowed = raw.get("allowedValues")
    if isinstance(allowed, list) and allowed:
        return allowed[0]
    kind = str(raw.get("type", "string")).lower()
    return {"int": raw.get("minValue", 1), "bool": True, "array": ["first", "second"], "object": {}}.get(
        kind, f"{name}1"[:40]
    )


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    counts = [0, 0, 0]
    repositories: set[str] = set()
    for template in sorted(folder.rglob("*.json")):
        text = template.read_text("utf-8-sig", errors="replace")
        if "deploymenttemplate.json" not in text.lower() or "microsoft.servicebus/namespaces" not in text.lower():
            continue
        declared, wrong, lost = left_out(template, None)
        if not declared:
            continue
        repositories.add(template.relative_to(folder).parts[0])
        counts[0] += 1
        counts[1] += not wrong
        for each in wrong:
            say(f"without parameters  {template.relative_to(folder)}: {each[:200]}")
        given: dict[str, object] = {}
        file = folder / ".given-parameters"
        for _ in range(ROUNDS_MAX):
            names = {match[1] for each in lost for match in _NAMED.finditer(each.remedy)} - given.keys()
            if not names:
                break
            given |= {name: value_for(template, name) for name in names}
            file.write_text(json.dumps(given))
            _, wrong, lost = left_out(template, file)
        file.unlink(missing_ok=True)
        counts[2] += not wrong
        for each in wrong:
            say(f"with parameters     {template.relative_to(folder)}: {each[:200]}")
    total, without, given_all = counts
    if not total:
        sys.exit(f"there is no template with entities in {folder}")
    say(f"{total} templates of {len(repositories)} repositories")
    say(f"whole without parameters  {without} ({without / total:.0%}; at least {WITHOUT_MIN:.0%})")
    say(f"whole with parameters     {given_all} ({given_all / total:.0%}; at least {WITH_MIN:.0%})")
    return int(without < WITHOUT_MIN * total or given_all < WITH_MIN * total)


if __name__ == "__main__":
    sys.exit(main())
