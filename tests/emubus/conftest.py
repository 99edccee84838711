"""Data folders that several test files damage or open again."""

from __future__ import annotations

from pathlib import Path

import pytest

from .folders import small


@pytest.fixture(scope="module")
def small_folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`closed`: a small folder after a stop; `open`: the same one as a kill would have left it."""
    base = tmp_path_factory.mktemp("made")
    small.run(base / "closed", killed=base / "open")
    return base
