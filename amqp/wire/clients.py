"""What SDKs of certain versions need, known by the `open` of their connections.

Knows product names and versions. Does not know how a need is met: the connection does. Every need has its reason
here, since the frames do not show it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

PYTHON_PRODUCT: Final = "azsdk-python-servicebus"
JAVASCRIPT_PRODUCT: Final = "MSJSClient"
_VERSION: Final = re.compile(r"(\d+)\.(\d+)\.(\d+)")


def wants_padding(properties: Mapping[str, object]) -> bool:
    """Whether a client needs every field of every frame: Python before 7.15 takes them by position [wire 0, rule 1]."""
    return _is_before(properties, PYTHON_PRODUCT, (7, 15, 0))


def wants_pause(properties: Mapping[str, object]) -> bool:
    """Whether a refusal's detach must not come together with its attach.

    JavaScript before 7.9.2 hands an attached link to the program in a later turn of its event loop. A detach in the
    same read closes the link before that, and its error is lost: the program sees an internal error without a code.
    Since 7.9.2 the SDK looks for the detach 1 ms after the attach: there both must come together [wire 9.4].
    """
    return _is_before(properties, JAVASCRIPT_PRODUCT, (7, 9, 2))


SDK: Final = "azsdk-"
"""How the names of all SDKs begin."""


def _is_before(properties: Mapping[str, object], product: str, version: tuple[int, int, int]) -> bool:
    """Whether a client is of a product and older than a version; one without a version counts as new."""
    found = _VERSION.match(str(properties.get("version")))
    if properties.get("product") != product or found is None:
        return False
    major, minor, patch = (int(part) for part in found.groups())
    return (major, minor, patch) < version


def application_of(properties: Mapping[str, object]) -> str:
    """What a program calls itself to its SDK, which says it before its own name in `user-agent`; "" if it does not.

    So it is in azure-servicebus for Python (`user_agent=`), whose own name follows as `azsdk-python-servicebus/…`.
    """
    told = properties.get("user-agent")
    words = str.__str__(told).split(" ", 2) if isinstance(told, str) else []
    return words[0] if len(words) > 1 and words[1].startswith(SDK) else ""
