"""JSON as the Azure CLI sends a deployment: the template without quotes around its name, and as its file is.

The CLI writes `…, template:{` and the text of the file behind it (azure-cli, `JsonCTemplatePolicy`). Templates may have
comments, line breaks within texts, and commas behind the last item. Pure.
"""

from __future__ import annotations

import re
from typing import Final

from ..json_reader import JsonError, read_json

VALUES_MAX: Final = 1_000_000
"""Values of a body of 4 MiB, the longest template."""
_PIECE: Final = re.compile(
    r"""(?P<text>"(?:[^"\\]|\\.)*")|(?P<comment>//[^\n\r]*|/\*.*?\*/)|(?P<comma>,(?=(?:\s|//[^\n\r]*|/\*.*?\*/)*[}\]]))"""
    r"|(?P<name>\btemplate\b)(?=\s*:\s*\{)",
    re.DOTALL,
)
_BREAKS: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def read_deployment(data: bytes) -> object:
    """The value of a body, strict or loose. JsonError, for the strict reading where the body is not loose either."""
    try:
        return read_json(data, VALUES_MAX)
    except JsonError:
        return read_json(_as_strict_json(data.decode("utf-8-sig", errors="replace")), VALUES_MAX)


def _as_strict_json(text: str) -> str:
    """A text as JSON: without comments and commas that nothing follows, line breaks in texts as escapes."""

    def clean(found: re.Match[str]) -> str:
        if found["text"] is not None:
            return "".join(_BREAKS.get(each, each) for each in found[0])
        if found["name"] is not None:
            return '"template"'
        return " " if found["comment"] is not None else ""

    return _PIECE.sub(clean, text)
