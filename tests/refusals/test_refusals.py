"""Each refusal of the table, provoked over each face that it has: condition, status and text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from docs.generate.refusals import PAGE, page
from emubus.broker import service_errors
from emubus.broker.errors import BrokerError
from emubus.conditions import texts
from emubus.conditions.table import TABLE

from .provoking import OPTIONS, PROFILES, PROVOKE
from .table import LEFT_OUT, ON_DEMAND, ROWS, Row
from .world import Face, Told, world

CASES = [(row, face) for row in ROWS for face in row.faces]
MAKERS: dict[str, Callable[[], BrokerError | str]] = {
    "a namespace beyond its credits (50009)": lambda: service_errors.throttled("ns"),
    "a node at its limit": lambda: texts.node_busy("ns", 50001),
    "a node in trouble": texts.internal,
    "a broker that does not answer in time": lambda: texts.timed_out(65_000),
    "an entity that metadata have lost": lambda: texts.missing_for_now("ns:Queue:q"),
    "a partition that is unloaded": texts.container_closing,
    "a receiver's link after ten idle minutes": lambda: texts.link_idle("link", 600_000, sends=False),
    "a sender's link after ten idle minutes": lambda: texts.link_idle("link", 600_000, sends=True),
    "a connection without links, since August 2024": lambda: texts.connection_without_links("c", 300_000),
    "a connection without links, before": lambda: texts.connection_inactive("LinkTracker", 300_000),
    "an address that a firewall refuses": texts.address_refused,
    "a token of administration with a wrong signature, in the words of a bad day": texts.admin_token_refused,
    "an entity that moves, for receivers": lambda: service_errors.link_closed("link"),
    "two changes of one entity": texts.conflict_running,
    "an entity that is still being removed": texts.conflict_cleanup,
    "a failure of the management front end": texts.admin_failed,
}
"""What makes the text of a row that only a condition of `docs/CONDITIONS.md` makes."""


def fits(row: Row, text: str) -> bool:
    """Whether a text is that of a row, with anything in its holes."""
    known, *more = row.text.split("*")
    pattern = re.sub(r"\\\{\w+\\\}", ".*?", re.escape(known)) + (".*" if more else "")
    return re.fullmatch(pattern, text, re.DOTALL) is not None


@pytest.mark.parametrize(("row", "face"), CASES, ids=[f"{row.name}, {face}" for row, face in CASES])
async def test_a_refusal_has_the_condition_the_status_and_the_words_of_the_service(
    tmp_path: Path, row: Row, face: Face
) -> None:
    async with world(tmp_path, PROFILES.get(row.name, "standard"), **OPTIONS.get(row.name, {})) as found:
        told = await PROVOKE[row.name, face](found)
    condition = None if face in (Face.CLAIMS, Face.REST, Face.ATOM) else row.condition
    assert told == Told(condition, row.faces[face], told.text)
    assert fits(row, told.text), f"{told.text!r} is not {row.text!r}"


@pytest.mark.parametrize("row", ON_DEMAND, ids=lambda row: row.name)
def test_what_a_condition_says_has_the_words_of_the_service(row: Row) -> None:
    said = MAKERS[row.name]()
    text = said if isinstance(said, str) else said.description
    assert (fits(row, text), "" if isinstance(said, str) else said.condition) == (True, row.condition)
    assert row.on_demand in {each.name for each in TABLE}


def test_each_row_has_a_source_and_is_made_on_a_face_on_demand_or_left_out_with_a_reason() -> None:
    assert max(Counter(row.name for row in ROWS).values()) == 1
    assert [row.name for row in ROWS if not row.source or not row.text] == []
    assert [row.name for row in ROWS if bool(row.faces) + bool(row.on_demand) + bool(row.left_out) != 1] == []
    assert {(row.name, face) for row, face in CASES} == set(PROVOKE)
    assert {row.name for row in ON_DEMAND} == set(MAKERS)
    assert all(row.left_out for row in LEFT_OUT)


def test_a_text_fits_its_own_row_only_and_not_when_a_blank_is_missing() -> None:
    row = next(each for each in ROWS if each.name.startswith("several ids"))
    told = service_errors.mixed_ids(7, "k", None, "m").description
    assert fits(row, told)
    assert not fits(row, told.replace("MessageId  is", "MessageId is"))
    assert not fits(row, service_errors.mixed_keys().description)


def test_the_page_is_that_of_the_table() -> None:
    assert PAGE.read_text() == page(), "run: python -m docs.generate.refusals"
