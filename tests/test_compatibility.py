"""docs/COMPATIBILITY.md tells the truth about the tables in the code."""

from __future__ import annotations

import re
from pathlib import Path

from emubus.amqp.nodes.management import OPERATIONS
from emubus.broker.errors import Condition
from emubus.broker.model.profiles import Profile

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "docs" / "COMPATIBILITY.md").read_text()


def listed(title: str) -> set[str]:
    """The words in backquotes of the paragraph that begins with `title`."""
    (paragraph,) = [each for each in TEXT.split("\n\n") if each.startswith(f"{title}:")]
    return set(re.findall(r"`([^`]+)`", paragraph))


def test_every_management_operation_is_listed() -> None:
    assert listed("Management operations") == set(OPERATIONS)


def test_every_error_condition_is_listed() -> None:
    assert listed("Error conditions") == {condition.value for condition in Condition}


def test_every_outcome_is_listed() -> None:
    assert listed("Outcomes") == {"accepted", "released", "modified", "rejected"}


def test_every_profile_is_named() -> None:
    assert all(f"`{profile.value}`" in TEXT for profile in Profile)


def test_every_requirement_on_partitions_has_a_row() -> None:
    rows = re.findall(r"^\| (P\d+)", TEXT, re.MULTILINE)
    assert {f"P{number}" for number in range(1, 33)} <= set(rows)


def test_every_test_that_is_named_exists() -> None:
    named = re.findall(r"`(tests/[\w/.]+)(?:::(\w+))?`", TEXT)
    missing = [
        f"{path}::{name}"
        for path, name in named
        if not (ROOT / path).exists() or (name and f"def {name}(" not in (ROOT / path).read_text())
    ]
    assert (len(named) > 100, missing) == (True, [])


def test_every_line_of_the_acceptance_checklist_has_a_row_with_tests() -> None:
    (section,) = [part for part in TEXT.split("\n## ") if part.startswith("Acceptance checklist")]
    rows = re.findall(r"^\| (\d+)\. [^|]+ \| `tests/sdk/[^|]+` \|$", section, re.MULTILINE)
    assert rows == [str(number) for number in range(1, 21)]
