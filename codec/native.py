"""Finds the functions in C that stand beside slower ones in Python, where they were built and are wanted.

Knows how a user asks for Python alone. Does not know what any function does.
"""

from __future__ import annotations

import os
from importlib import import_module
from types import ModuleType
from typing import Final

PURE_PYTHON_VARIABLE: Final = "EMUBUS_PURE_PYTHON"
"""Environment variable: with any text but the empty one, nothing in C is used."""


def native_module(name: str) -> ModuleType | None:
    """Return the extension module `name`; None where it was not built, or is not wanted."""
    if os.environ.get(PURE_PYTHON_VARIABLE):
        return None
    try:
        return import_module(name)
    except ImportError:
        return None
