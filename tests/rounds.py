"""How much tests of chance try: little in the suite, much in `make test-long`, which sets EMUBUS_TEST_LONG=1."""

from __future__ import annotations

import os
from typing import Final, TypeVar

IS_LONG: Final = os.environ.get("EMUBUS_TEST_LONG") == "1"

T = TypeVar("T")


def rounds(usual: T, long: T) -> T:
    """How often, or for how long, this run tries."""
    return long if IS_LONG else usual
