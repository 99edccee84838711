"""Resources of Service Bus as a template, a plan or a state declares them: evaluated, in ARM's terms, not yet judged.

Readers produce these values; `origin` tells where a mistake belongs. What a reader can't make a resource of is a
`LeftOut`, never silence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final


class Kind(StrEnum):
    """The kinds of resources, as messages name them."""

    NAMESPACE = "namespace"
    NETWORK_RULES = "network rules"
    AUTHORIZATION_RULE = "authorization rule"
    QUEUE = "queue"
    TOPIC = "topic"
    SUBSCRIPTION = "subscription"
    RULE = "rule"


PATH_LENGTHS: Final[Mapping[Kind, tuple[int, ...]]] = {
    Kind.NAMESPACE: (0,),
    Kind.NETWORK_RULES: (0,),
    Kind.AUTHORIZATION_RULE: (1, 2),
    Kind.QUEUE: (1,),
    Kind.TOPIC: (1,),
    Kind.SUBSCRIPTION: (2,),
    Kind.RULE: (3,),
}
"""How many names the path of a resource has."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where something is written: the file as the user named it, its line, and the JSON path within it."""

    file: str = ""
    line: int | None = None
    path: str = ""

    def __str__(self) -> str:
        """`main.json:12 $.resources[3]`, as far as known."""
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return " ".join(filter(None, (place, self.path)))


@dataclass(frozen=True, slots=True)
class Declared:
    """A resource to create or update.

    `path` has its names within the namespace, as entities spell them (`a/b` is one name): of a rule those of topic,
    subscription and rule, of an authorization rule those of its queue or topic, if any, and its own. `properties` are
    those of ARM's resource, in camel case, evaluated; None is absent. A namespace has `sku` among them, from a template
    also `location`, `tags` and `identity`; an authorization rule may have `primaryKey` and `secondaryKey`.
    `namespace` is "" if the name is not known.
    """

    kind: Kind
    path: tuple[str, ...]
    properties: Mapping[str, object]
    origin: Origin = field(default=Origin(), compare=False)
    namespace: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        assert len(self.path) in PATH_LENGTHS[self.kind], f"a {self.kind} has no path {self.path}"

    @property
    def entity_path(self) -> str:
        """The path that the server has it under, such as `topic/Subscriptions/name/Rules/rule`."""
        words = ("", "/Subscriptions/", "/Rules/") if self.kind is not Kind.AUTHORIZATION_RULE else ("", "/")
        return "".join(word + name for word, name in zip(words, self.path, strict=False))

    @property
    def label(self) -> str:
        """Kind and path, as messages name it."""
        return " ".join(filter(None, (self.kind.value, self.entity_path)))


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What a reader could not make a resource or a property of, why, and what the user can do about it.

    `is_entity` is False for what only a property or a setting of a resource is: it costs no entity, and no exit code.
    """

    what: str
    why: str
    remedy: str = ""
    origin: Origin = field(default=Origin(), compare=False)
    is_entity: bool = True

    def __str__(self) -> str:
        """One line."""
        place = f" ({self.origin})" if str(self.origin) else ""
        return f"{self.what}: {self.why}{f'; {self.remedy}' if self.remedy else ''}{place}"


@dataclass(frozen=True, slots=True)
class Resources:
    """What a reader has found in written order; `foreign` counts resources of other services by their types."""

    declared: tuple[Declared, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    foreign: Mapping[str, int] = field(default_factory=dict[str, int])

    def foreign_line(self) -> str:
        """One line about the resources of other services, "" without any."""
        count = sum(self.foreign.values())
        if not count:
            return ""
        types = sorted(self.foreign, key=lambda each: (-self.foreign[each], each))
        shown = ", ".join(types[:_TYPES_SHOWN]) + (", …" if len(types) > _TYPES_SHOWN else "")
        return f"{count} resource{'s' * (count > 1)} of other services: {shown}"


_TYPES_SHOWN: Final = 4
"""Types in the line of other services: a template of a whole landscape has dozens, and the line has to be read."""


def joined(parts: Iterable[Resources]) -> Resources:
    """The resources of several readings, such as of the modules of a template."""
    declared: list[Declared] = []
    left_out: list[LeftOut] = []
    foreign: dict[str, int] = {}
    for part in parts:
        declared += part.declared
        left_out += part.left_out
        for kind, count in part.foreign.items():
            foreign[kind] = foreign.get(kind, 0) + count
    return Resources(tuple(declared), tuple(left_out), foreign)
