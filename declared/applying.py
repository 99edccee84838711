"""Gives a namespace what resources declare, as Resource Manager's PUT does: creates what is missing, updates the rest.

A property that a resource does not name has the default of the namespace [1], but what is fixed at creation stays. Each
resource is judged alone: one that is refused leaves the others, and has a line that says so. What it forwards to is set
when every entity is there, and only then: the order in which a template names them does not count. A second run finds
nothing to change.

Entities come before their authorization rules, topics before subscriptions, these before rules. No await stands between
what is found and what is changed by it, so that requests of others may come between two resources and not within one.

[1] "Properties that aren't included in the template are reset to the default values": azure-resource-manager/templates/
deployment-modes, *Incremental mode*.
[2] Both providers have got a switch that deletes it, proved against Azure: pulumi/pulumi-azure-native#4799, and
hashicorp/terraform-provider-azurerm#32452. One report says otherwise (hashicorp/terraform-provider-azurerm#20718).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, Protocol

from ..broker import service_errors
from ..broker.errors import BrokerError
from ..broker.keys import Right
from ..broker.model.catalog import FIXED_FIELDS, Description, path_of
from ..broker.model.descriptions import (
    DEFAULT_RULE_NAME,
    AuthorizationRule,
    EntityDescription,
    FalseFilter,
    QueueDescription,
    RuleDescription,
    SelectorFilter,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
    entity_key,
    is_same,
    with_fields,
)
from ..broker.model.profiles import KIB, Limits, Profile, defaults_of, size_mb_from_client
from ..broker.model.properties import PROPERTIES_OF, Property, Value
from ..broker.model.validation import (
    Violation,
    is_rule_name,
    queue_violations,
    rule_violations,
    subscription_violations,
    topic_violations,
)
from ..codec.durations import format_duration
from .reading import Reading, camel, fields_in, jms_in, rights_in, rule_in
from .resources import Declared, Kind, Origin, Resources

_TARGETS: Final = ("forward_to", "forward_dead_letters_to")
_WAYS: Final[Mapping[str, str]] = {
    "forward_to": "auto forwarding",
    "forward_dead_letters_to": "dead letter forwarding",
}
"""The service's words for what an entity forwards."""
_USUAL_SIZE_MB: Final = 1024
_FIXED_REMEDY: Final = "declare the value that it has, or delete it first; its messages go with it"
_CLASSES: Final[Mapping[Kind, type[EntityDescription]]] = {
    Kind.QUEUE: QueueDescription,
    Kind.TOPIC: TopicDescription,
    Kind.SUBSCRIPTION: SubscriptionDescription,
}
_ORDER: Final = (
    *(Kind.NAMESPACE, Kind.NETWORK_RULES, Kind.QUEUE, Kind.TOPIC, Kind.AUTHORIZATION_RULE, Kind.SUBSCRIPTION),
    Kind.RULE,
)
assert set(_ORDER) == set(Kind), "a kind of resource is never applied"


class Status(StrEnum):
    """What became of a resource."""

    CREATED = "created"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    REMOVED = "removed"
    REFUSED = "refused"
    LEFT_OUT = "left out"
    PASSED_OVER = "passed over"
    """A setting that emubus has no use for: nothing of the entities is lost."""


FAILURES: Final = frozenset({Status.REFUSED, Status.LEFT_OUT})
"""What makes the exit code 1."""


@dataclass(frozen=True, slots=True)
class Result:
    """One line: what became of a resource, and why or in what it changed. `notes` are its parts that were not read.

    `error` is the refusal in the service's words, which name one mistake where `why` has all.
    """

    status: Status
    what: str
    why: str = ""
    origin: Origin = field(default=Origin(), compare=False)
    notes: tuple[str, ...] = ()
    path: str = ""
    """The entity's path; "" for what is no queue, topic or subscription."""
    error: BrokerError | None = field(default=None, compare=False)

    def __str__(self) -> str:
        place = f" ({self.origin})" if self.status in FAILURES and str(self.origin) else ""
        return f"{self.status} {self.what}{f': {self.why}' if self.why else ''}{place}"


class Port(Protocol):
    """A namespace as this needs it. Every verb may raise BrokerError, and has changed nothing then."""

    @property
    def name(self) -> str: ...

    @property
    def limits(self) -> Limits: ...

    def find(self, path: str) -> Description | None: ...

    def create(self, description: Description) -> None:
        """Create an entity; a subscription with its rules."""
        ...

    def update(self, description: Description) -> None:
        """Change an entity; its targets exist."""
        ...

    def add_rule(self, path: str, rule: RuleDescription) -> None: ...

    def replace_rule(self, path: str, rule: RuleDescription) -> None: ...

    def remove_rule(self, path: str, name: str) -> None: ...

    def new_key(self) -> str: ...

    def namespace_rules(self) -> Sequence[AuthorizationRule]: ...

    async def replace_namespace_rules(self, rules: Sequence[AuthorizationRule]) -> None: ...

    async def turn(self) -> None:
        """Let others go on: stands between two resources."""
        ...


class _Refused(Exception):  # noqa: N818 - a verdict on one resource, not a fault of the program
    """Why a resource is not applied."""

    def __init__(self, why: str, status: Status = Status.REFUSED, error: BrokerError | None = None) -> None:
        super().__init__(why)
        self.why = why
        self.status = status
        self.error = error

    @classmethod
    def by(cls, violations: Sequence[Violation]) -> _Refused:
        """For what the profile forbids."""
        return cls("; ".join(map(str, violations)), error=next((each.refusal for each in violations), None))


async def apply(
    resources: Resources, port: Port, *, whole_rules: bool = False, sets_targets: bool = True
) -> list[Result]:
    """Apply resources; the results as they were declared, then those of what readers left out.

    `whole_rules`: a subscription whose rules are declared has no others afterwards, as in a copy of a namespace.
    Without it ARM's way: a rule that nobody declares stays, also `$Default`, which a new subscription has [2].
    `sets_targets=False` leaves what entities forward to as it is, so that messages may be copied first.
    """
    applier = _Applier(port, resources.declared, sets_targets)
    results: list[list[Result]] = [[] for _ in resources.declared]
    numbered = list(enumerate(resources.declared))
    for kind in _ORDER:
        for number, declared in numbered:
            if declared.kind is kind:
                results[number].append(await applier.one(declared))
                await port.turn()
    if whole_rules:
        for number, result in applier.without_others(numbered):
            is_new = results[number][0].status is Status.CREATED
            if result.status is not Status.REMOVED or not is_new:  # nobody knew `$Default` of a new one
                results[number].append(result)
            await port.turn()
    for number, declared in numbered:
        if applier.is_pending(declared):
            results[number] = [applier.forwarding(declared, results[number][0]), *results[number][1:]]
            await port.turn()
    return [*(result for each in results for result in each), *left_out(resources)]


def left_out(resources: Resources) -> list[Result]:
    """The results of what readers could not make a resource of."""
    return [
        Result(
            Status.LEFT_OUT if each.is_entity else Status.PASSED_OVER,
            each.what,
            f"{each.why}; {each.remedy}" if each.remedy else each.why,
            each.origin,
        )
        for each in resources.left_out
    ]


class _Applier:
    """Applies one resource after the other; knows which targets are still to be set."""

    def __init__(self, port: Port, declared: Sequence[Declared], sets_targets: bool) -> None:
        self._port = port
        self._sets_targets = sets_targets
        tops = (each.path[0] for each in declared if each.kind in (Kind.QUEUE, Kind.TOPIC))
        self._declared_tops = frozenset(map(entity_key, tops))
        self._pending: dict[int, tuple[Description, Description | None]] = {}
        self._failed: set[str] = set()
        self._namespaces: dict[tuple[Kind, str], str] = {}

    async def one(self, declared: Declared) -> Result:
        reading, error = Reading.of(declared.properties), None
        try:
            self._refuse_a_second_namespace(declared)
            status, why = await self._applied(declared, reading)
        except _Refused as refused:
            status, why, error = refused.status, refused.why, refused.error
        except BrokerError as refused:
            status, why, error = Status.REFUSED, refused.description, refused
        if status in FAILURES:
            self._failed.add(entity_key(declared.entity_path))
        path = declared.entity_path if declared.kind in _CLASSES else ""
        notes = tuple(f"{declared.label}: the property {each}" for each in reading.unread)
        return Result(status, declared.label, why, declared.origin, notes, path, error)

    async def _applied(self, declared: Declared, reading: Reading) -> tuple[Status, str]:
        match declared.kind:
            case Kind.NAMESPACE:
                return self._namespace(reading)
            case Kind.NETWORK_RULES:
                return Status.PASSED_OVER, "emubus has no firewall: every address may connect"
            case Kind.AUTHORIZATION_RULE:
                return await self._authorization_rule(declared, reading)
            case Kind.RULE:
                return self._rule(declared, reading)
            case _:
                return self._entity(declared, reading)

    def _refuse_a_second_namespace(self, declared: Declared) -> None:
        """An entity of another namespace with the same path would replace the first one."""
        if not declared.namespace or declared.kind in (Kind.NAMESPACE, Kind.NETWORK_RULES):
            return
        key = declared.kind, entity_key(declared.entity_path)
        first = self._namespaces.setdefault(key, declared.namespace)
        if entity_key(first) != entity_key(declared.namespace):
            raise _Refused(
                f"the namespace '{declared.namespace}' declares it, and so does '{first}'; apply each of them to a "
                "namespace of its own",
                Status.LEFT_OUT,
            )

    # ---- the namespace

    def _namespace(self, reading: Reading) -> tuple[Status, str]:
        """Its settings are those that the server was started with."""
        sku = reading.part("sku")
        tier = None if sku is None else (sku.texts("name") or sku.texts("tier"))
        reading.unread.clear()
        profile = self._port.limits.profile
        if tier is not None and tier.lower() == Profile.PREMIUM != profile:
            return Status.UNCHANGED, (
                f"it is declared as {tier}, and the server has the limits of the profile {profile}; "
                "`emubus serve --profile premium` has those of Premium"
            )
        return Status.UNCHANGED, ""

    # ---- entities

    def _entity(self, declared: Declared, reading: Reading) -> tuple[Status, str]:
        kind = _CLASSES[declared.kind]
        topic = self._topic(declared) if kind is SubscriptionDescription else None
        known = self._port.find(declared.entity_path)
        if known is not None and type(known) is not kind:
            raise _Refused(f"'{declared.entity_path}' is a {known.kind}, not a {kind.kind}.")
        given = fields_in(reading, kind)
        jms = jms_in(reading) if kind is SubscriptionDescription else None
        if reading.problems:
            raise _Refused("; ".join(reading.problems))
        wanted = self._wanted_description(declared, kind, known, given)
        if isinstance(wanted, SubscriptionDescription):
            assert topic is not None, "a subscription without its topic was refused"
            wanted = replace(wanted, topic_name=topic.name)
            if isinstance(known, SubscriptionDescription):
                wanted = replace(wanted, rules=known.rules, jms=known.jms)
            else:
                wanted = replace(wanted, jms=jms)
        self._judge(wanted, known)
        held = with_fields(wanted, {each: getattr(known, each, None) for each in _TARGETS if hasattr(wanted, each)})
        if known is None:
            self._port.create(held)
        elif not is_same(known, held):
            self._port.update(held)
        if not is_same(held, wanted):
            self._pending[id(declared)] = wanted, known
        return _change(known, held)

    def _topic(self, declared: Declared) -> TopicDescription:
        name = declared.path[0]
        found = self._port.find(name)
        if isinstance(found, TopicDescription):
            return found
        if entity_key(name) in self._failed:
            raise _Refused(f"its topic '{name}' was not applied", Status.LEFT_OUT)
        raise _Refused(
            f"its topic '{name}' is neither declared nor in the namespace; declare it, or create it first",
            Status.LEFT_OUT,
        )

    def _wanted_description(
        self, declared: Declared, kind: type[EntityDescription], known: Description | None, given: Mapping[str, object]
    ) -> Description:
        limits = self._port.limits
        stays = {} if known is None else {each.field: getattr(known, each.field) for each in _kept_properties(kind)}
        values: dict[str, object] = {**defaults_of(kind, limits), **stays, **given}
        _bring_within(values, given, limits)
        if values.get("forward_to") is not None:
            values["auto_delete_on_idle_ms"] = None  # as `_never_idle` in `web/atom/descriptions.py`
        name = declared.path[-1] if known is None else known.name
        if kind is SubscriptionDescription:
            return SubscriptionDescription.from_json({**values, "topic_name": declared.path[0], "name": name})
        assert kind in (QueueDescription, TopicDescription), "there is no other kind"
        if kind is QueueDescription:
            made: QueueDescription | TopicDescription = QueueDescription.from_json({**values, "name": name})
        else:
            made = TopicDescription.from_json({**values, "name": name})
        before = known if isinstance(known, QueueDescription | TopicDescription) else None
        size_mb = size_mb_from_client(
            made.max_size_mb, made.enable_partitioning, limits, None if before is None else before.max_size_mb
        )
        return replace(
            made, max_size_mb=size_mb, authorization_rules=() if before is None else before.authorization_rules
        )

    def _judge(self, wanted: Description, known: Description | None) -> None:
        """Refuse what the profile, the present entity or missing targets forbid, before anything is changed."""
        if known is not None:
            for name, title in FIXED_FIELDS.items():
                if getattr(known, name, None) != getattr(wanted, name, None):
                    error = service_errors.fixed_at_creation(title, wanted.kind)
                    why = f"{error.description.rstrip()} {_FIXED_REMEDY[0].upper()}{_FIXED_REMEDY[1:]}"
                    raise _Refused(why, error=error)
        found = self._violations(wanted, is_new=known is None)
        if found:
            raise _Refused.by(found)
        for name, way in _WAYS.items():
            target: str | None = getattr(wanted, name, None)
            if target is not None and target != getattr(known, name, None) and not self._will_exist(target):
                missing = service_errors.forward_target_missing(way, target)
                raise _Refused(missing.description, error=missing)

    def _violations(self, wanted: Description, *, is_new: bool) -> list[Violation]:
        limits = self._port.limits
        match wanted:
            case QueueDescription():
                return queue_violations(wanted, limits, is_new=is_new)
            case TopicDescription():
                return topic_violations(wanted, limits, is_new=is_new)
            case SubscriptionDescription():
                return subscription_violations(wanted, limits, is_new=is_new)

    def _will_exist(self, target: str) -> bool:
        return entity_key(target) in self._declared_tops or self._is_target(target)

    def _is_target(self, path: str) -> bool:
        """Whether messages can be forwarded to it: a queue or topic that is there."""
        return isinstance(self._port.find(path), QueueDescription | TopicDescription)

    # ---- targets

    def is_pending(self, declared: Declared) -> bool:
        """Whether what it forwards to is still to be set."""
        return self._sets_targets and id(declared) in self._pending

    def forwarding(self, declared: Declared, before: Result) -> Result:
        """Set what an entity forwards to; `before` is its result so far, which is part of the new one."""
        wanted, known = self._pending[id(declared)]
        try:
            present = self._port.find(path_of(wanted))
            if present is None:
                raise _Refused("somebody has deleted it since it was applied")
            # Keys and rules may have come in between.
            kept = {each: getattr(wanted, each) for each in _TARGETS}
            if wanted.auto_delete_on_idle_ms is None:
                kept["auto_delete_on_idle_ms"] = None
            for name, way in _WAYS.items():
                target: str | None = kept[name]
                if target is not None and not self._is_target(target):
                    missing = service_errors.forward_target_missing(way, target)
                    raise _Refused(missing.description, error=missing)
            self._port.update(with_fields(present, kept))
        except (_Refused, BrokerError) as error:
            why, said = (error.why, error.error) if isinstance(error, _Refused) else (error.description, error)
            state = "it is there" if known is None else "the rest of it is as declared"
            why = f"{state}, without what it forwards to: {why}"
            return replace(before, status=Status.REFUSED, why=why, error=said)
        status, why = _change(known, wanted)
        return replace(before, status=status, why=why)

    # ---- rules

    def _rule(self, declared: Declared, reading: Reading) -> tuple[Status, str]:
        topic, name, rule_name = declared.path
        path = f"{topic}/Subscriptions/{name}"
        subscription = self._port.find(path)
        if not isinstance(subscription, SubscriptionDescription):
            if entity_key(path) in self._failed:
                raise _Refused("its subscription was not applied", Status.LEFT_OUT)
            raise _Refused(
                f"its subscription '{path}' is neither declared nor in the namespace; declare it, or create it first",
                Status.LEFT_OUT,
            )
        rule = _of_subscription(subscription, rule_in(reading, rule_name))
        if reading.problems:
            raise _Refused("; ".join(reading.problems))
        limits = self._port.limits
        violations = rule_violations(rule, limits)
        if not violations and not is_rule_name(rule_name, limits):
            violations = [Violation("Name", repr(rule_name), "letters, digits and . - _ ~ $")]
        if violations:
            raise _Refused.by(violations)
        known = next((each for each in subscription.rules if entity_key(each.name) == entity_key(rule_name)), None)
        if _is_no_default(subscription, rule):
            if known is None:
                return Status.UNCHANGED, ""
            self._port.remove_rule(subscription.path, known.name)
            return Status.REMOVED, "it is declared to match nothing"
        if known is None:
            self._port.add_rule(subscription.path, rule)
            return Status.CREATED, ""
        rule = replace(rule, name=known.name)
        if is_same(known, rule):
            return Status.UNCHANGED, ""
        self._port.replace_rule(subscription.path, rule)
        parts = [word.partition("_")[0] for word, one, other in _rule_parts(known, rule) if one != other]
        return Status.CHANGED, " and ".join(dict.fromkeys(parts))

    def without_others(self, numbered: Sequence[tuple[int, Declared]]) -> list[tuple[int, Result]]:
        """Remove the rules of declared subscriptions that are not declared."""
        wanted: dict[str, set[str]] = {}
        for _, each in numbered:
            if each.kind is Kind.RULE:
                wanted.setdefault(entity_key("/Subscriptions/".join(each.path[:2])), set()).add(
                    entity_key(each.path[2])
                )
        found: list[tuple[int, Result]] = []
        for number, each in numbered:
            subscription = self._port.find(each.entity_path) if each.kind is Kind.SUBSCRIPTION else None
            if not isinstance(subscription, SubscriptionDescription):
                continue
            names = wanted.get(entity_key(each.entity_path), set())
            for rule in subscription.rules:
                if names and entity_key(rule.name) not in names:
                    what = f"rule {subscription.path}/Rules/{rule.name}"
                    try:
                        self._port.remove_rule(subscription.path, rule.name)
                        found.append((number, Result(Status.REMOVED, what)))
                    except BrokerError as error:
                        found.append((number, Result(Status.REFUSED, what, error.description)))
        return found

    # ---- authorization rules

    async def _authorization_rule(self, declared: Declared, reading: Reading) -> tuple[Status, str]:
        *of, name = declared.path
        rights = rights_in(reading)
        keys = reading.texts("primaryKey"), reading.texts("secondaryKey")
        if reading.problems:
            raise _Refused("; ".join(reading.problems))
        if not of:
            rules, status, why = self._with_rule(self._port.namespace_rules(), name, rights, keys)
            if rules is not None:
                await self._port.replace_namespace_rules(rules)
            return status, why
        entity = self._port.find(of[0])
        if not isinstance(entity, QueueDescription | TopicDescription):
            if entity_key(of[0]) in self._failed:
                raise _Refused(f"'{of[0]}' was not applied", Status.LEFT_OUT)
            raise _Refused(
                f"the namespace has no queue or topic '{of[0]}', and none is declared; declare it, or create it first",
                Status.LEFT_OUT,
            )
        rules, status, why = self._with_rule(entity.authorization_rules, name, rights, keys)
        if rules is not None:
            changed = replace(entity, authorization_rules=rules)
            violations = self._violations(changed, is_new=False)
            if violations:
                raise _Refused.by(violations)
            self._port.update(changed)
        return status, why

    def _with_rule(
        self,
        known: Sequence[AuthorizationRule],
        name: str,
        rights: Sequence[Right],
        keys: tuple[str | None, str | None],
    ) -> tuple[tuple[AuthorizationRule, ...] | None, Status, str]:
        """The rules with this one, None if they are the same; a key that nobody names stays, or is made."""
        old = next((each for each in known if entity_key(each.key_name) == entity_key(name)), None)
        first = keys[0] or (self._port.new_key() if old is None else old.primary_key)
        second = keys[1] or (self._port.new_key() if old is None else old.secondary_key)
        if old is None:
            return (*known, AuthorizationRule(name, tuple(rights), first, second)), Status.CREATED, ""
        new = replace(old, rights=tuple(rights), primary_key=first, secondary_key=second)
        changes: list[str] = []
        if set(old.rights) == set(rights):
            new = replace(new, rights=old.rights)
        else:
            before, after = (", ".join(each for each in Right if each in given) for given in (old.rights, rights))
            changes.append(f"rights {before} → {after}")
        if (old.primary_key, old.secondary_key) != (first, second):
            changes.append("keys (not shown)")
        if not changes:
            return None, Status.UNCHANGED, ""
        return tuple(new if each is old else each for each in known), Status.CHANGED, "; ".join(changes)


def _kept_properties(kind: type[EntityDescription]) -> list[Property]:
    """What an update keeps where it names no value: what is fixed, and what older versions of the API do not have."""
    return [row for row in PROPERTIES_OF[kind] if row.is_fixed or row.since]


def _bring_within(values: dict[str, object], given: Mapping[str, object], limits: Limits) -> None:
    """Lower what tools write unasked to the profile's maximum, as for SDKs (`web/atom/descriptions.py`).

    azurerm and az write 1024 MB and no limit of the time to live; Microsoft's emulator has 100 MB and an hour.
    """
    if given.get("max_size_mb") == _USUAL_SIZE_MB and limits.max_size_mb.stop is not None:
        values["max_size_mb"] = min(_USUAL_SIZE_MB, limits.max_size_mb.stop)
    if "default_ttl_ms" in given and given["default_ttl_ms"] is None:
        values["default_ttl_ms"] = limits.ttl_ms.stop


def _of_subscription(subscription: SubscriptionDescription, rule: RuleDescription) -> RuleDescription:
    """A subscription of JMS has its selector in `$Default`, written as a SQL filter [jms 4]."""
    if subscription.jms is None or entity_key(rule.name) != entity_key(DEFAULT_RULE_NAME):
        return rule
    own = rule.filter
    return replace(rule, filter=SelectorFilter(own.expression)) if type(own) is SqlFilter else rule


def _is_no_default(subscription: SubscriptionDescription, rule: RuleDescription) -> bool:
    """Whether a rule stands for a default rule that is not wanted.

    The service makes `$Default` with each subscription, and a template can't delete it: azurerm and azure-native have a
    resource or an option of their own for that (terraform-provider-azurerm#32430, pulumi-azure-native#4489). The export
    as a template writes one that matches nothing, and so do people. Taken away, the same messages match.
    """
    is_default = entity_key(rule.name) == entity_key(DEFAULT_RULE_NAME) and subscription.jms is None
    return is_default and type(rule.filter) is FalseFilter and rule.action is None


def _rule_parts(one: RuleDescription, other: RuleDescription) -> list[tuple[str, object, object]]:
    """What a rule consists of, as both have it."""
    before, after = one.to_json(), other.to_json()
    return [("filter", before["filter"], after["filter"]), *((each, before[each], after[each]) for each in _OF_ACTION)]


_OF_ACTION: Final = ("action", "action_parameters")


# ---------------------------------------------------------------- what changed


def _change(known: Description | None, made: Description) -> tuple[Status, str]:
    if known is None:
        return Status.CREATED, ""
    changes = [
        f"{camel(row.name)} {_value_text(row.value, before)} → {_value_text(row.value, after)}"
        for row in PROPERTIES_OF[type(made)]
        if (before := getattr(known, row.field)) != (after := getattr(made, row.field))
    ]
    return (Status.CHANGED, "; ".join(changes)) if changes else (Status.UNCHANGED, "")


def _value_text(kind: Value, value: object) -> str:
    match kind, value:
        case Value.LIMIT, None:
            return "never"
        case Value.BYTES, None:
            return "the profile's"
        case _, None:
            return "none"
        case _, bool():
            return str(value).lower()
        case ((Value.LIMIT | Value.DURATION), int()):
            return format_duration(value)
        case Value.BYTES, int():
            return str(value // KIB)
        case _:
            return f"{value!s:.80}"
