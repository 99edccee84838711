"""Names that people give: which texts are one, and what is said of the others."""

from __future__ import annotations

import copy
import pickle
import string
from dataclasses import asdict, dataclass

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from emubus.broker.errors import BrokerError, Condition
from emubus.broker.names import SnapshotName

LETTERS = string.ascii_letters + string.digits
NO_NAMES = [
    *(
        "",
        " ",
        ".",
        "..",
        "...",
        ".hidden",
        "-x",
        "_x",
        "a b",
        " a",
        "a/b",
        "/a",
        "a/",
        "../a",
        "a/../b",
        "a\\b",
        "C:a",
    ),
    *("a\n", "a\0", "a\x1b[2J", "..\x00", "\u202ea", "ä", "a\u0301", "\uff41", "a%2fb", "~", "$HOME", "*", "n" * 65),
]


@pytest.mark.parametrize("text", NO_NAMES)
def test_a_text_that_is_no_name_is_refused_with_the_value_the_rule_and_a_remedy(text: str) -> None:
    with pytest.raises(BrokerError) as refused:
        SnapshotName(text)
    assert refused.value.condition is Condition.ARGUMENT_ERROR
    said = refused.value.description
    assert ascii(text)[:60] in said
    assert "begins with a letter or a digit" in said
    assert "Choose another" in said
    assert said.isprintable()


@given(st.text())
@example("a" * 64)
def test_a_name_is_one_part_of_a_path(text: str) -> None:
    try:
        name = SnapshotName(text)
    except BrokerError:
        assert not (text[:1] in {*LETTERS} and set(text) <= {*LETTERS, *"._-"} and 1 <= len(text) <= 64)
    else:
        assert name == text
        assert text[0] in LETTERS
        assert set(text) <= {*LETTERS, *"._-"}
        assert len(text) <= 64


@dataclass
class Holder:
    name: SnapshotName


def test_a_name_stays_one_when_it_is_copied() -> None:
    name = SnapshotName("a.b")
    for copied in (copy.deepcopy(name), pickle.loads(pickle.dumps(name)), asdict(Holder(name))["name"]):
        assert (type(copied), copied) == (SnapshotName, "a.b")
