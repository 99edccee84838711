"""Ids of resources in Resource Manager: which namespace and which names within it one means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ..declared.resources import Kind

PROVIDER: Final = "microsoft.servicebus"
KINDS: Final[Mapping[tuple[str, ...], Kind]] = {
    (): Kind.NAMESPACE,
    ("networkrulesets",): Kind.NETWORK_RULES,
    ("authorizationrules",): Kind.AUTHORIZATION_RULE,
    ("queues",): Kind.QUEUE,
    ("queues", "authorizationrules"): Kind.AUTHORIZATION_RULE,
    ("topics",): Kind.TOPIC,
    ("topics", "authorizationrules"): Kind.AUTHORIZATION_RULE,
    ("topics", "subscriptions"): Kind.SUBSCRIPTION,
    ("topics", "subscriptions", "rules"): Kind.RULE,
}
"""Kinds by their types below a namespace, in lower case."""


def entity_name(segment: str) -> str:
    """The name that a segment of an id stands for: a slash in a name is `~` there."""
    return segment.replace("~", "/")


def parse_id(text: str) -> tuple[Kind, str, tuple[str, ...]] | None:
    """Kind, namespace and path of what an id names; None for an id of something else, or no id."""
    segments = [each for each in text.split("/") if each]
    lowered = [each.lower() for each in segments]
    if PROVIDER not in lowered:
        return None
    rest = segments[lowered.index(PROVIDER) + 1 :]
    if len(rest) < 2 or len(rest) % 2 or rest[0].lower() != "namespaces":
        return None
    kind = KINDS.get(tuple(each.lower() for each in rest[2::2]))
    if kind is None:
        return None
    return kind, rest[1], path_in(kind, rest[3::2])


def path_in(kind: Kind, names: Sequence[str]) -> tuple[str, ...]:
    """The path of a resource whose names below its namespace are these."""
    return () if kind is Kind.NETWORK_RULES else tuple(map(entity_name, names))
