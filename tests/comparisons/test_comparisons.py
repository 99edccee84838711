"""Every cell of the table, asked of a server; and the page that is made of it."""

from __future__ import annotations

import hmac
import re
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from docs.generate.comparisons import PAGE, page
from emubus.testing import Auth, EmubusServer, QueueDescription, Right, SharedKey

from ..http.rest import Rest
from .probes import PROBES, Asker, RefusedError, takes
from .table import HELD_ELSEWHERE, OTHER, REFUSED, ROWS, SAME, Cell, Row, Way, differing

ROOT = Path(__file__).parent.parent.parent
CELLS = [(row, way, cell) for row in ROWS for way, cell in row.cells.items()]
OF_TWO = [each for each in CELLS if each[1] is not Way.LENGTH]
LENGTHS = [(row, int(cell.verdict)) for row, way, cell in CELLS if way is Way.LENGTH]


def name_of(each: object) -> str:
    """How a test's argument is shown."""
    return each.name if isinstance(each, Row) else each.verdict if isinstance(each, Cell) else str(each)


@pytest.fixture(scope="module")
def asker() -> Iterator[Asker]:
    with EmubusServer() as server:
        asker = Asker(server)
        yield asker
        asker.close()


@pytest.mark.parametrize(("row", "way", "cell"), OF_TWO, ids=name_of)
def test_two_texts_are_compared_as_the_table_says(asker: Asker, row: Row, way: Way, cell: Cell) -> None:
    one, other = differing(row.base, way)
    try:
        found = SAME if PROBES[row.probe](asker, one, other, *row.fixed) else OTHER
    except RefusedError:
        found = REFUSED
    assert found == cell.verdict


@pytest.mark.parametrize(("row", "chars"), LENGTHS, ids=name_of)
def test_a_text_is_as_long_as_the_table_says(asker: Asker, row: Row, chars: int) -> None:
    assert takes(asker, row.probe, "x" * chars)
    assert not takes(asker, row.probe, "x" * (chars + 1))


def test_the_name_of_a_key_has_case() -> None:
    keys = [SharedKey("Reader", "key", frozenset({Right.LISTEN}))]
    with EmubusServer([QueueDescription("q")], auth=Auth.SAS, keys=keys) as server, Rest(server.http_port) as rest:
        statuses = [rest.ask("DELETE", "/q/messages/head?timeout=0", headers=[signed(each)]).status for each in NAMES]
    assert statuses == [204, 401, 401, 401]


NAMES = ("Reader", "reader", " Reader", "Reader ")


def signed(name: str) -> tuple[str, str]:
    """The header of a token that is signed with the reader's key."""
    audience, expiry = quote("http://localhost/q", safe=""), 4_000_000_000
    digest = hmac.digest(b"key", f"{audience}\n{expiry}".encode(), "sha256")
    signature = quote(b64encode(digest), safe="")
    return "Authorization", f"SharedAccessSignature sr={audience}&sig={signature}&se={expiry}&skn={quote(name)}"


def test_the_name_of_a_snapshot_has_case(tmp_path: Path) -> None:
    with EmubusServer([QueueDescription("q")], data_dir=tmp_path) as server:
        assert [server.snapshot(name).name for name in ("Before", "before")] == ["Before", "before"]
        assert sorted(each.name for each in (tmp_path / "snapshots").iterdir()) == ["Before", "before"]


def test_the_page_agrees_with_the_table() -> None:
    assert page() == PAGE.read_text(), "run: python -m docs.generate.comparisons"


def test_every_row_has_a_probe_and_what_other_tests_hold_is_there() -> None:
    assert {row.probe for row in ROWS} == set(PROBES)
    for each in HELD_ELSEWHERE:
        path, _, name = each.test.partition("::")
        assert re.search(rf"def {name}\(", (ROOT / path).read_text()), each.test
