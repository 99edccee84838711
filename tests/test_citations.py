"""Every citation in code, tests and documentation has a target in docs/reference."""

from __future__ import annotations

from pathlib import Path

import pytest

from .citations import REFERENCE, Targets, targets, unresolved
from .test_tidy import ROOT, tracked

SUFFIXES = {".py", ".md", ".html", ".js", ".mjs", ".go", ".java", ".toml"}
KNOWN = targets()


def cited_in(path: Path) -> list[str]:
    """What has no target in a file. R and P numbers without brackets are looked at in Python and in the documents."""
    is_prose = path.suffix in {".py", ".md"}
    return unresolved(path.read_text(encoding="utf-8"), KNOWN, bare=is_prose)


def test_every_citation_has_a_target() -> None:
    files = [path for path in tracked() if path.suffix in SUFFIXES and path.name != Path(__file__).name]
    wrong = {str(path.relative_to(ROOT)): missing for path in files if (missing := cited_in(path))}
    assert wrong == {}


def test_the_requirements_and_the_rules_are_complete() -> None:
    wanted = {f"P{number}" for number in range(1, 33)} | {f"R{number}" for number in range(1, 10)}
    assert wanted == KNOWN.requirements


@pytest.mark.parametrize(
    "text",
    [
        "[wire 5.7]",
        "[wire 0, rule 1]",
        "[wire 4.5, 5.7, 9.3]",
        "[wire 1, 3 to 9, 11]",
        "[AMQP 5.3, wire 1.1, 1.2]",
        "[AMQP 2.8.15 to 2.8.18, 4.5.8]",
        "[http 2-4]",
        "[SB: topic-filters]",
        "[P2]-[P5]",
        "sent without a key (P13), durable first (R3)",
    ],
)
def test_a_citation_with_a_target_resolves(text: str) -> None:
    assert unresolved(text, KNOWN) == []


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("see [wire 5.77]", ["[wire 5.77]"]),
        ("[wire 4.5, 99.3]", ["[wire 4.5, 99.3]"]),
        ("[wire 0, rule 12]", ["[wire 0, rule 12]"]),
        ("[http 3, rule 1]", ["[http 3, rule 1]"]),
        ("[http 2-9]", ["[http 2-9]"]),
        ("[wire somewhere]", ["[wire somewhere]"]),
        ("[AMQP 2.8.15 to 2.8.99]", ["[AMQP 2.8.15 to 2.8.99]"]),
        ("[AMQP 5.3, wire 17]", ["[AMQP 5.3, wire 17]"]),
        ("[SB: no-such-page]", ["[SB: no-such-page]"]),
        ("[P2]-[P55]", ["[P55]"]),
        ("by P33 and R10", ["P33", "R10"]),
    ],
)
def test_a_citation_without_a_target_is_found(text: str, missing: list[str]) -> None:
    assert unresolved(text, KNOWN) == missing


def test_a_section_that_is_taken_out_of_a_document_is_missed(tmp_path: Path) -> None:
    for source in REFERENCE.glob("*.md"):
        text = source.read_text()
        (tmp_path / source.name).write_text(
            text.replace("### 5.7 Settlement\n", "") if source.name == "wire.md" else text
        )
    known = targets(tmp_path)
    assert unresolved("[wire 5.7]", known) == ["[wire 5.7]"]
    assert unresolved("[wire 5.8]", known) == []


def test_nothing_can_be_cited_from_documents_that_say_nothing() -> None:
    assert unresolved("[wire 1] and R1", Targets()) == ["[wire 1]", "R1"]
