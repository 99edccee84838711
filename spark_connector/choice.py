"""Which entities a source reads: those that are named, and those whose paths match a pattern.

Pure. Knows the values of the options `entities` and `entityPattern`. Does not know which entities there are
(`directory`). Paths are compared without regard to case, as the service does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

SUBSCRIPTIONS: Final = "/Subscriptions/"
_WILD: Final = {"*": "[^/]*", "?": "[^/]"}


@dataclass(frozen=True)
class EntityPattern:
    """A glob (`orders-*`), or a regular expression from ^ to $, for paths of queues and subscriptions."""

    text: str

    def matches(self, path: str) -> bool:
        """Whether the path of a queue, or of a subscription (`topic/Subscriptions/name`), matches."""
        return _pattern(self.text).fullmatch(path) is not None

    @property
    def asks_subscriptions(self) -> bool:
        """Whether it could match a subscription: then topics are looked at, too."""
        return self._is_regex or SUBSCRIPTIONS.lower() in self.text.lower()

    def matches_topic(self, topic: str) -> bool:
        """Whether a subscription of the topic could match."""
        if self._is_regex:
            return True
        of_topic = re.split(SUBSCRIPTIONS, self.text, maxsplit=1, flags=re.IGNORECASE)[0]
        return self.asks_subscriptions and _pattern(of_topic).fullmatch(topic) is not None

    @property
    def _is_regex(self) -> bool:
        return self.text.startswith("^")


def parse_pattern(text: str) -> EntityPattern:
    """The value of `entityPattern`; ValueError with the problem."""
    pattern = text.strip()
    if not pattern:
        raise ValueError("it is empty")
    if pattern.startswith("^") != pattern.endswith("$"):
        raise ValueError("a regular expression begins with ^ and ends with $")
    if "$DeadLetterQueue".lower() in pattern.lower():
        raise ValueError("the option subQueue chooses dead-letter queues")
    try:
        _pattern(pattern)
    except re.error as error:
        raise ValueError(str(error)) from None
    return EntityPattern(pattern)


@dataclass(frozen=True)
class EntityChoice:
    """The entities of a source: paths, and a pattern for further ones. `sub_queue` follows each path that matches."""

    paths: tuple[str, ...]
    pattern: EntityPattern | None
    sub_queue: str
    administration_port: int

    def names(self, path: str) -> bool:
        """Whether the path is one of those that are named."""
        return path.lower() in {each.lower() for each in self.paths}

    def has(self, path: str) -> bool:
        is_sub_queue = path.lower().endswith(self.sub_queue.lower())
        of_entity = path[: len(path) - len(self.sub_queue)]
        matches = self.pattern is not None and is_sub_queue and self.pattern.matches(of_entity)
        return matches or self.names(path)

    def __str__(self) -> str:
        like = [] if self.pattern is None else [f"{self.pattern.text}{self.sub_queue}"]
        return ", ".join([*self.paths, *like])


def _pattern(text: str) -> re.Pattern[str]:
    if not text.startswith("^"):
        text = "".join(_WILD.get(each) or re.escape(each) for each in text)
    return re.compile(text, re.IGNORECASE)
