"""The tails of errors, as the service writes them: what is left of a text without its own."""

from __future__ import annotations

import re
from typing import Final

_GUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_HEX = "[0-9a-f]{32}"
_REST = r"SystemTracker:(?P<system>[^,]*), Timestamp:\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d"
_FRONT = r"SystemTracker:gateway\d+, Timestamp:\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d"
FORMS: Final = {
    "gateway": rf"TrackingId:{_HEX}_G\d+, {_REST}",
    "broker": rf"TrackingId:{_HEX}_G\d+_B\d+, {_REST}",
    "both": rf"TrackingId:{_GUID}_B\d+, {_REST} TrackingId:{_HEX}_G\d+, {_FRONT}",
    "operation": rf"Reference:{_GUID}, TrackingId:{_HEX}_G\d+_B\d+, {_REST}",
    "request": rf"Reference:{_GUID}, TrackingId:{_GUID}_B\d+, {_REST}",
    "http": rf"TrackingId:{_GUID}_G\d+, {_REST}",
}


def taken_apart(text: str) -> tuple[str, str, str]:
    """The text of an error without its tail, the form of the tail, and the system that it names."""
    for form, pattern in FORMS.items():
        found = re.fullmatch(rf"(?P<text>.*?) {pattern}", text, re.DOTALL)
        if found is not None and "TrackingId:" not in found["text"] and not found["text"].endswith(("Reference:", ",")):
            return found["text"], form, found["system"]
    raise AssertionError(f"no tail of the service: {text!r}")


def untracked(text: str) -> str:
    """The text of an error without its tail."""
    return taken_apart(text)[0]
