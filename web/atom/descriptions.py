"""Reads descriptions of queues, topics and subscriptions from XML [http 2].

Knows that elements may come in any order, which ones are ignored, what an absent one means, and that clients send back
what they have read. Does not know which values are allowed (`broker/model/profiles.py`). An element that can't be read
is an `HttpRefusal` with status 400 that names it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final
from xml.etree.ElementTree import Element

from ...broker.ids import new_shared_key
from ...broker.model.catalog import Description
from ...broker.model.descriptions import JmsSubscription, QueueDescription, SubscriptionDescription, TopicDescription
from ...broker.model.profiles import Limits, defaults_of, size_mb_from_client
from ...broker.model.properties import PROPERTIES_OF, Property
from ..errors import excerpt
from .fields import FIELDS, READ, boolean
from .keys import keys_in
from .parsing import bad, child, children, local_name, text_of
from .rules import rule_of

_CLASSES: Final = {kind.kind.element: kind for kind in FIELDS}
_BY_NAME: Final = {
    kind: {field.name: (position, field) for position, field in enumerate(fields)} for kind, fields in FIELDS.items()
}
SDK_SIZE_MB: Final = 1024


@dataclass(frozen=True, slots=True)
class ReadContext:
    """The context of a request's description: the limits that give the defaults, and the api-version."""

    limits: Limits
    version: str


def kind_of(node: Element) -> type[Description]:
    """The kind of entity that a description is for; HttpRefusal (400)."""
    kind = _CLASSES.get(local_name(node))
    if kind is None:
        raise bad(f"The description is a '{excerpt(local_name(node))}'; allowed is {', '.join(_CLASSES)}.")
    return kind


def top_level_in(
    node: Element, name: str, known: Description | None, context: ReadContext
) -> QueueDescription | TopicDescription:
    """The queue or topic `name` as the client describes it; `known` is the present one, for an update."""
    kind = kind_of(node)
    if issubclass(kind, SubscriptionDescription):
        raise bad(f"The description is a SubscriptionDescription; '{excerpt(name)}' is no path of a subscription.")
    given, late = _values(node, kind, context.version)
    asked = top_level_of(kind, given, name, known, context.limits, late)
    keys = child(node, "AuthorizationRules")
    if keys is None:
        return asked
    before = () if known is None or isinstance(known, SubscriptionDescription) else known.authorization_rules
    return replace(asked, authorization_rules=keys_in(keys, before, new_shared_key))


def top_level_of(
    kind: type[QueueDescription] | type[TopicDescription],
    given: Mapping[str, object],
    name: str,
    known: Description | None,
    limits: Limits,
    late: Collection[str] = (),
) -> QueueDescription | TopicDescription:
    """The queue or topic that the given values of fields make, without keys; `late` came too late in their order."""
    values: dict[str, object] = {**defaults_of(kind, limits), **_stays(kind, known), **given}
    _bring_within(values, given, limits)
    # The service shows an element that comes too late in the order, as the Python SDK sends this one, and does not obey
    # it [recorded]: a value that it would refuse in the right place has no effect here.
    if "forward_to" in late and values.get("requires_session"):
        values["shown_forward_to"] = values.pop("forward_to")
    _never_idle(values, late)
    asked = kind.from_json({**values, "name": name})
    known_mb = None if known is None or isinstance(known, SubscriptionDescription) else known.max_size_mb
    size_mb = size_mb_from_client(asked.max_size_mb, asked.enable_partitioning, limits, known_mb)
    return replace(asked, max_size_mb=size_mb)


def subscription_in(
    node: Element, topic_name: str, name: str, known: Description | None, context: ReadContext
) -> SubscriptionDescription:
    """A subscription as the client describes it, with its first rule, or the rules that it has."""
    kind = kind_of(node)
    if kind is not SubscriptionDescription:
        raise bad(f"The description is a {kind.kind.element} and not a SubscriptionDescription.")
    given, late = _values(node, kind, context.version)
    asked = subscription_of(given, topic_name, name, known, context.limits, late)
    if isinstance(known, SubscriptionDescription):
        return asked
    asked = replace(asked, jms=_client_affine_in(node))
    rule = child(node, "DefaultRuleDescription")
    return asked if rule is None else replace(asked, rules=(rule_of(asked, rule),))


def subscription_of(
    given: Mapping[str, object],
    topic_name: str,
    name: str,
    known: Description | None,
    limits: Limits,
    late: Collection[str] = (),
) -> SubscriptionDescription:
    """The subscription that the given values of fields make; it keeps the rules of `known`."""
    kind = SubscriptionDescription
    values = {**defaults_of(kind, limits), **_stays(kind, known), **given}
    _bring_within(values, given, limits)
    _never_idle(values, late)
    asked = SubscriptionDescription.from_json({**values, "topic_name": topic_name, "name": name})
    return replace(asked, rules=known.rules, jms=known.jms) if isinstance(known, SubscriptionDescription) else asked


def _client_affine_in(node: Element) -> JmsSubscription | None:
    """The mark of a new subscription of JMS. It is always durable: only a consumer makes the others [jms 4]."""
    flag, parts = child(node, "IsClientAffine"), child(node, "ClientAffineProperties")
    if flag is None or not _boolean(flag):
        return None
    found = {} if parts is None else {local_name(part): part for part in children(parts)}
    client_id = text_of(found["ClientId"]) if "ClientId" in found else ""
    is_shared = _boolean(found["IsShared"]) if "IsShared" in found else True
    return JmsSubscription(client_id, is_durable=True, is_shared=is_shared)


def _boolean(node: Element) -> bool:
    try:
        return boolean(text_of(node).strip())
    except ValueError as error:
        raise bad(f"Bad Request. The value of '{local_name(node)}' can't be used: {excerpt(str(error))}.") from None


def _values(node: Element, kind: type[Description], version: str) -> tuple[dict[str, object], set[str]]:
    """The fields that a description sets, and those whose element came too late in the order."""
    values: dict[str, object] = {}
    late: set[str] = set()
    reached = 0
    for part in children(node):
        position, field = _BY_NAME[kind].get(local_name(part), (reached, None))
        row = None if field is None else field.own
        if row is None or row.field in values:
            continue
        values[row.field] = _read(part, row, version)
        if position < reached:
            late.add(row.field)
        reached = max(reached, position)
    return values, late


def _read(part: Element, row: Property, version: str) -> object:
    if row.since > version:
        raise bad(f"The element '{row.name}' is not known in api-version {version}; it came with {row.since}.")
    text = text_of(part).strip()
    try:
        return READ[row.value](text)
    except ValueError as error:
        problem = excerpt(str(error)) if text else "it is empty"
        raise bad(f"Bad Request. The value of '{row.name}' can't be used: {problem}.") from None


def _never_idle(values: dict[str, object], late: Collection[str]) -> None:
    """Take away the idle time of an entity with ForwardTo, which receives for ever.

    The service sets AutoDeleteOnIdle to the greatest value then (service-bus-auto-forwarding), unless ForwardTo comes
    too late: Python's live tests find the value that they sent.
    """
    if values.get("forward_to") is not None and "forward_to" not in late:
        values["auto_delete_on_idle_ms"] = None


def _bring_within(values: dict[str, object], given: Mapping[str, object], limits: Limits) -> None:
    """Lower the values that SDKs send without being asked to the profile's maximum.

    .NET and Java create queues and topics of 1024 MB, Java also without a limit of the time to live, whatever their
    users ask for; the profile of Microsoft's emulator has 100 MB and an hour.
    """
    size_mb_max, ttl_ms_max = limits.max_size_mb.stop, limits.ttl_ms.stop
    if given.get("max_size_mb") == SDK_SIZE_MB and size_mb_max is not None:
        values["max_size_mb"] = min(SDK_SIZE_MB, size_mb_max)
    if "default_ttl_ms" in given and given["default_ttl_ms"] is None:
        values["default_ttl_ms"] = ttl_ms_max


def _stays(kind: type[Description], known: Description | None) -> dict[str, object]:
    """The values that an update keeps when it does not name them: what is fixed, and what older api-versions lack."""
    if type(known) is not kind:
        return {}
    return {row.field: getattr(known, row.field) for row in PROPERTIES_OF[kind] if row.is_fixed or row.since}
