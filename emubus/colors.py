"""Whether text on a stream may have colours: NO_COLOR and FORCE_COLOR come before what the stream is."""

from __future__ import annotations

from typing import TextIO

from .options import variables_of_process


def has_colors(stream: TextIO) -> bool:
    """Whether to write colours to `stream`."""
    variables = variables_of_process()
    if variables.get("NO_COLOR"):
        return False
    return bool(variables.get("FORCE_COLOR")) or stream.isatty()
