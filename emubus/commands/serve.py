"""`emubus serve`: run the server."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from ..config import OPTIONS, load_config
from .declaring import Command, Parsed

UNUSED: Final = "rich"


def add_arguments(parser: Command) -> None:
    for option in OPTIONS:
        parser.setting(option, _conditions if option.name == "conditions" else None)
    parser.run = run


def _conditions() -> list[str]:
    from ..conditions.presets import PRESETS  # for a shell that completes
    from ..conditions.table import BEHAVIOURS

    return [*PRESETS, *BEHAVIOURS]


def run(parsed: Parsed) -> int:
    """Serve until a signal; the exit code. ConfigError."""
    config = load_config({option.name: getattr(parsed, option.name) for option in OPTIONS})
    with _quick_imports():
        from ..logging import configure_logging
        from ..server import run as run_server

    configure_logging(config.log_format, config.log_level)
    return run_server(config)


@contextmanager
def _quick_imports() -> Iterator[None]:
    """Import without what only takes time: garbage collections, as modules are none, and rich.

    structlog imports rich if it is installed, for tracebacks in a format that we do not use.
    """
    is_hidden = UNUSED not in sys.modules
    if is_hidden:
        sys.modules[UNUSED] = None  # type: ignore[assignment] # the import system takes it for "there is none"
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        if is_hidden:
            del sys.modules[UNUSED]
