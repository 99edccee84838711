"""Queues from a list such as `a,b?sessions&partitioned`, for a start without a file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ..broker.model.descriptions import QueueDescription, entity_key, with_fields
from ..broker.model.profiles import Limits
from ..broker.model.validation import queue_violations
from .cursor import suggestion

FLAGS: Final = {
    "sessions": "requires_session",
    "partitioned": "enable_partitioning",
    "duplicates": "requires_duplicate_detection",
}
"""Words behind the name of a queue, and the fields that they set."""


def queues_in(text: str, template: QueueDescription, limits: Limits) -> Iterator[QueueDescription]:
    """The queues of a list, each like `template` but for its name and flags. ValueError with one line."""
    names: set[str] = set()
    for each in text.split(","):
        name, _, words = each.strip().partition("?")
        flags = [word for word in words.split("&") if word]
        unknown = next((word for word in flags if word not in FLAGS), None)
        if unknown is not None:
            raise ValueError(f"has {unknown!r}; allowed is {', '.join(FLAGS)}{suggestion(unknown, FLAGS)}")
        queue = with_fields(template, {"name": name, **{FLAGS[word]: True for word in flags}})
        for violation in queue_violations(queue, limits):
            raise ValueError(f"has a queue whose {violation}")
        if entity_key(name) in names:
            raise ValueError(f"has the queue {name!r} twice; name it once, with all its flags")
        names.add(entity_key(name))
        yield queue
