"""The resource that the path of a management request names [http 2].

Knows the forms of paths; names in them may hold slashes and be percent-encoded. Does not know entities. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final
from urllib.parse import quote, unquote

from ..broker.address import SubQueue, parse_address

RESERVED: Final = "emubus"
"""The first path segment of our own HTTP endpoints; entities below that name can be used over AMQP only."""


class ResourceKind(Enum):
    NAMESPACE = auto()
    QUEUES = auto()
    TOPICS = auto()
    ENTITY = auto()  # a queue or topic
    SUB_QUEUE = auto()  # of a queue or subscription
    SUBSCRIPTIONS = auto()
    SUBSCRIPTION = auto()
    RULES = auto()
    RULE = auto()
    ROOT = auto()
    NOTHING = auto()


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource: `entity` is the queue or topic. `path` is the decoded path as the client wrote it, without slashes
    at its ends; `is_open` if it ended with a slash, which only lists may."""

    kind: ResourceKind
    path: str
    entity: str = ""
    subscription: str = ""
    rule: str = ""
    is_open: bool = False

    @property
    def subscription_path(self) -> str:
        return f"{self.entity}/Subscriptions/{self.subscription}"

    @property
    def address(self) -> str:
        """The entity on which rights are needed; empty for the namespace."""
        if self.subscription:
            return self.subscription_path
        return self.entity


_LISTS: Final = {"queues": ResourceKind.QUEUES, "topics": ResourceKind.TOPICS}


def resource_of(raw_path: str) -> Resource:
    """The resource at a percent-encoded path; `ResourceKind.NOTHING` for a path that names none."""
    decoded = unquote(raw_path).removeprefix("/")
    path = decoded.removesuffix("/")
    is_open = path != decoded
    parts = path.split("/")
    words = [part.lower() for part in parts]
    if words[0].startswith("$"):
        if words == ["$namespaceinfo"]:
            return Resource(ResourceKind.NAMESPACE, path, is_open=is_open)
        if len(words) == 2 and words[0] == "$resources" and words[1] in _LISTS:
            return Resource(_LISTS[words[1]], path, is_open=is_open)
        return Resource(ResourceKind.NOTHING, path)
    if not decoded:
        return Resource(ResourceKind.ROOT, path)
    if not path or words[0] == RESERVED:
        return Resource(ResourceKind.NOTHING, path)
    if (address := parse_address(quote(path))).sub_queue is not SubQueue.ACTIVE:
        return replace(resource_of(quote(address.entity)), kind=ResourceKind.SUB_QUEUE, path=path, is_open=is_open)
    # From the right: the name of a topic may have any number of segments.
    if len(words) >= 5 and words[-2] == "rules" and words[-4] == "subscriptions":
        return Resource(ResourceKind.RULE, path, "/".join(parts[:-4]), parts[-3], parts[-1], is_open)
    if len(words) >= 4 and words[-1] == "rules" and words[-3] == "subscriptions":
        return Resource(ResourceKind.RULES, path, "/".join(parts[:-3]), parts[-2], is_open=is_open)
    if len(words) >= 3 and words[-2] == "subscriptions":
        return Resource(ResourceKind.SUBSCRIPTION, path, "/".join(parts[:-2]), parts[-1], is_open=is_open)
    if len(words) >= 2 and words[-1] == "subscriptions":
        return Resource(ResourceKind.SUBSCRIPTIONS, path, "/".join(parts[:-1]), is_open=is_open)
    return Resource(ResourceKind.ENTITY, path, path, is_open=is_open)
