"""How tests are spread over processes: `pytest --dist loadgroup` keeps all tests that need Spark in one of them.

The same for those that drive a browser. Knows which files these are: those with the parameter `spark: SparkSession`,
or `tab: Tab`. Starting Spark takes seconds and a gigabyte, a browser nearly as much, so each shall be started in one
process only. Every other test goes where there is room, as without `--dist`. (The marks by which pytest-xdist would do
the same reach its scheduler as part of test names, which newer versions of pytest don't let it change.)
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadScopeScheduling

ROOT = Path(__file__).resolve().parents[1]
TOGETHER: Final = {"spark": re.compile(r"\bspark: SparkSession\b"), "browser": re.compile(r"\btab: Tab\b")}
"""What is started once for all tests that need it, and the parameter by which their files are known."""


@functools.cache
def group_of(file: str) -> str | None:
    """What the tests of this file (relative to the repository) share with those of others, if anything."""
    path = ROOT / file
    text = path.read_text() if path.is_file() else ""
    return next((name for name, parameter in TOGETHER.items() if parameter.search(text)), None)


def needs_spark(file: str) -> bool:
    """Whether tests of this file (relative to the repository) use the shared Spark session."""
    return group_of(file) == "spark"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling | None:
    """The scheduler for `--dist loadgroup`; None leaves the others to xdist."""
    if config.getvalue("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class Together(LoadScopeScheduling):  # type: ignore[misc]  # xdist is untyped
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid.partition("::")[0]) or nodeid

    return Together(config, log)
