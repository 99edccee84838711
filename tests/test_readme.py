"""tests/README.md names a place for every behaviour, and the files that are there."""

from __future__ import annotations

import re

from .test_tidy import ROOT, python_files

README = ROOT / "tests" / "README.md"


def test_every_test_file_or_its_folder_has_a_row() -> None:
    named = set(re.findall(r"`(tests/[\w/.-]+)`", README.read_text().partition("|---")[2]))
    assert [each for each in sorted(named) if not (ROOT / each).exists()] == []
    names = [path.relative_to(ROOT).as_posix() for path in python_files()]
    files = {name for name in names if re.fullmatch(r"tests/(.*/)?test_\w+\.py", name)}
    folders = tuple(each for each in named if each.endswith("/"))
    assert sorted(each for each in files - named if not each.startswith(folders)) == []
