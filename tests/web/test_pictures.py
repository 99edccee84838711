"""The pictures of the documentation: there, small, shown, made by a command. What they look like is not compared."""

from __future__ import annotations

import re
from pathlib import Path

from playwright.sync_api import Browser

from emubus.testing import EmubusServer

from ..building import ROOT
from .pictures import BYTES_MAX, FOLDER, PICTURES, take

PAGES = ("README.md", "docs/PAGE.md")


def test_the_command_takes_every_picture_that_is_kept(server: EmubusServer, browser: Browser, tmp_path: Path) -> None:
    take(server, browser, tmp_path)
    for folder in (tmp_path, FOLDER):
        found = {path.stem: path.read_bytes() for path in folder.iterdir()}
        assert found.keys() == PICTURES.keys()
        for name, data in found.items():
            assert data.startswith(b"\x89PNG\r\n"), name
            assert 2_000 < len(data) <= BYTES_MAX, name


def test_every_picture_is_shown_with_words_for_who_can_not_see_it() -> None:
    shown = {
        name: words
        for page in PAGES
        for words, name in re.findall(r"!\[([^\]]*)\]\([a-z/]*pictures/([a-z]+)\.png\)", (ROOT / page).read_text())
    }
    assert shown.keys() == PICTURES.keys()
    assert all(len(words) > 20 for words in shown.values())
