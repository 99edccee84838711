"""Finds citations in texts and resolves them against docs/reference.

A citation is a reference in brackets, such as `[wire 5.7, 9.3]`, `[AMQP 2.8.15 to 2.8.18]` or `[SB: topic-filters]`,
or a bare R3 or P17. `targets` reads the documents for everything that may be cited; `unresolved` returns the citations
of a text that have no target.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

REFERENCE = Path(__file__).resolve().parent.parent / "docs" / "reference"
DOCUMENTS = ("wire", "http", "spark")
CITATION = re.compile(r"\[((?:(?:wire|http|spark|AMQP) (?!for )|SB: |[PR]\d{1,2}\b)[^\]\[]*)\]")
BARE = re.compile(r"(?<![\w.\[`-])([RP]\d{1,2})(?![\w.-])")
HEADING = re.compile(r"^#+ (\d+(?:\.\d+)*)\.? ", re.MULTILINE)
ROW = re.compile(r"^\| `?([\w.-]+)`? \|", re.MULTILINE)
REQUIREMENT = re.compile(r"^\* \*\*([RP]\d+)\b", re.MULTILINE)
RULE_OF_WIRE = re.compile(r"^(\d+)\. ", re.MULTILINE)
PART = re.compile(r"(?:(wire|http|spark|AMQP) )?(?:(rule) )?(\d+(?:\.\d+)*)(?:(?:-| to )(\d+(?:\.\d+)*))?|([RP]\d+)")


@dataclass
class Targets:
    """What may be cited: sections per document, pages of the service's documentation, requirements and rules."""

    sections: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    wire_rules: set[str] = field(default_factory=set[str])
    pages: set[str] = field(default_factory=set[str])
    requirements: set[str] = field(default_factory=set[str])


def targets(folder: Path = REFERENCE) -> Targets:
    """Everything that the documents of `folder` offer to be cited."""
    found = Targets()
    for name in DOCUMENTS:
        found.sections[name] = set(HEADING.findall((folder / f"{name}.md").read_text()))
    wire = (folder / "wire.md").read_text()
    found.wire_rules = set(RULE_OF_WIRE.findall(wire.partition("\n## 0. ")[2].partition("\n## ")[0]))
    found.sections["AMQP"] = set(ROW.findall((folder / "README.md").read_text().partition("## Sections")[2]))
    found.pages = set(ROW.findall((folder / "sources.md").read_text())) - {"Page"}
    for name in ("partitioning", "rules"):
        found.requirements |= set(REQUIREMENT.findall((folder / f"{name}.md").read_text()))
    return found


def unresolved(text: str, known: Targets, *, bare: bool = True) -> list[str]:
    """The citations of a text that have no target, as they are written; with `bare` also R and P without brackets."""
    wrong = [f"[{inside}]" for inside in CITATION.findall(text) if not _resolves(inside, known)]
    if bare:
        wrong += [name for name in BARE.findall(text) if name not in known.requirements]
    return wrong


def _resolves(inside: str, known: Targets) -> bool:
    if inside.startswith("SB"):
        return inside.removeprefix("SB: ") in known.pages
    parts = list(_parts(inside))
    document = ""
    for part in parts:
        if part is None:
            return False
        name, rule, first, last, requirement = part
        document = name or document
        if requirement:
            if requirement not in known.requirements:
                return False
        elif rule:
            if document != "wire" or first not in known.wire_rules:
                return False
        elif not {first, last or first} <= known.sections.get(document, set()):
            return False
    return bool(parts)


def _parts(inside: str) -> Iterator[tuple[str, ...] | None]:
    """The references between commas and `and`; None for text that is no reference."""
    for text in re.split(r", | and ", inside):
        match = PART.fullmatch(text)
        yield None if match is None else tuple(group or "" for group in match.groups())
