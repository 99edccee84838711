"""Entity addresses: what clients write, and the normal form that the broker compares.

Knows scheme and authority (dropped), leading slashes, percent-encoding, upper and lower case, the sub-queues and the
`$management` node [wire 4.1, 5.1]. Does not know which entities exist.
"""

from __future__ import annotations

import re
from enum import StrEnum
from functools import lru_cache
from typing import Final
from urllib.parse import unquote

from .lazy_dataclass import dataclass

ADDRESSES_KEPT_MAX: Final = 1024
"""Clients name the same entities in each request; so many addresses are parsed once."""

KEPT_CHARS_MAX: Final = 512
"""Longer than the address of any entity: what a client makes up is not kept."""


class SubQueue(StrEnum):
    """The three message queues of a queue or subscription."""

    ACTIVE = ""
    DEAD_LETTER = "$DeadLetterQueue"
    TRANSFER_DEAD_LETTER = "$Transfer/$DeadLetterQueue"


@dataclass(frozen=True, slots=True)
class Address:
    """A parsed address: `entity` keeps the client's spelling, `key` is its lower-case form for look-ups."""

    entity: str
    sub_queue: SubQueue = SubQueue.ACTIVE
    management: bool = False

    @property
    def key(self) -> str:
        """The entity path for comparisons."""
        return self.entity.lower()

    @property
    def path(self) -> str:
        """Entity and sub-queue, as error texts name them."""
        return f"{self.entity}/{self.sub_queue.value}" if self.sub_queue else self.entity


_SUFFIXES: tuple[tuple[tuple[str, ...], SubQueue], ...] = (
    (("$transfer", "$deadletterqueue"), SubQueue.TRANSFER_DEAD_LETTER),
    (("$deadletterqueue",), SubQueue.DEAD_LETTER),
)


_AUTHORITY = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*://[^/]*").match
"""Scheme and authority of a URL [RFC 3986]; other characters before `://` make it a path."""


def strip_authority(text: str) -> str:
    """The path of an address: scheme, authority, surrounding slashes and percent-encoding removed."""
    authority = _AUTHORITY(text)
    if authority is not None:
        text = text[authority.end() :]
    return unquote(text).strip("/")


def listed_name(path: str) -> str:
    """The path of an entity as lists and `x-opt-deadletter-source` show it: queues and topics in lower case.

    The service keeps the spelling of names of subscriptions [http 3].
    """
    at = path.lower().find("/subscriptions/")
    return path.lower() if at < 0 else path[:at].lower() + path[at:]


def parse_address(text: str) -> Address:
    """Split an address into entity, sub-queue and `$management`; any text gives an `Address`."""
    return _parse(text) if len(text) > KEPT_CHARS_MAX else _parse_once(text)


def _parse(text: str) -> Address:
    parts = strip_authority(text).split("/")
    management = len(parts) > 1 and parts[-1].lower() == "$management"
    if management:
        parts.pop()
    lowered = tuple(part.lower() for part in parts)
    if _repeats_subscription(lowered):
        parts, lowered = parts[:-2], lowered[:-2]
    for suffix, sub_queue in _SUFFIXES:
        if len(parts) > len(suffix) and lowered[-len(suffix) :] == suffix:
            return Address("/".join(parts[: -len(suffix)]), sub_queue, management)
    return Address("/".join(parts), SubQueue.ACTIVE, management)


def _repeats_subscription(parts: tuple[str, ...]) -> bool:
    """Whether lower-case parts end like `t/subscriptions/s/$deadletterqueue/subscriptions/s`.

    JavaScript's SDK 1.x makes such a path: its dead-letter path of a subscription serves as the topic of a subscription
    client (createSubscriptionClient with TopicClient.getDeadLetterTopicPath in its tests).
    """
    if parts[-3:-1] != ("$deadletterqueue", "subscriptions"):
        return False
    above = parts[:-4] if parts[-4:-3] == ("$transfer",) else parts[:-3]
    return len(above) > 2 and above[-2:] == ("subscriptions", parts[-1])


_parse_once = lru_cache(ADDRESSES_KEPT_MAX)(_parse)
