"""The moving picture of the README is what pytest prints today."""

from __future__ import annotations

from xml.etree.ElementTree import fromstring

from docs.generate.moving_picture import CHARS_MAX, PICTURE, lines_of_a_run, picture

from ..building import ROOT


def test_the_picture_shows_a_run_of_today() -> None:
    lines = lines_of_a_run()
    assert any("rule 'large': amount > 1000 is false (amount is 50)." in each for each in lines), lines
    assert max(map(len, lines)) <= CHARS_MAX
    assert PICTURE.read_text() == picture(lines), "make moving-picture"
    fromstring(PICTURE.read_text())
    assert f"]({PICTURE.relative_to(ROOT).as_posix()})" in (ROOT / "README.md").read_text()
