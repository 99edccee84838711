"""How tests are spread over processes: `pytest --dist loadgroup` keeps all tests that need Spark in one of them.

Knows which files these are: those with the parameter `spark: SparkSession`. Starting Spark takes seconds and a
gigabyte, so it shall be started once. Every other test goes where there is room, as without `--dist`. (The marks by
which pytest-xdist would do the same reach its scheduler as part of test names, which newer versions of pytest don't let
it change.)
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadScopeScheduling

ROOT = Path(__file__).resolve().parents[1]


@functools.cache
def needs_spark(file: str) -> bool:
    """Whether tests of this file (relative to the repository) use the shared Spark session."""
    path = ROOT / file
    return path.is_file() and re.search(r"\bspark: SparkSession\b", path.read_text()) is not None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling | None:
    """The scheduler for `--dist loadgroup`; None leaves the others to xdist."""
    if config.getvalue("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class SparkTogether(LoadScopeScheduling):  # type: ignore[misc]  # xdist is untyped
        def _split_scope(self, nodeid: str) -> str:
            return "spark" if needs_spark(nodeid.partition("::")[0]) else nodeid

    return SparkTogether(config, log)
