"""Reads what `pulumi stack export` prints: resources of Service Bus of the providers Azure Native and Azure Classic.

Azure Native has ARM's properties beside the names [1], Azure Classic those of Terraform's azurerm in camel case [2]. A
secret is readable with `--show-secrets` only; one that an entity's name holds leaves the entity out.

[1] pulumi.com/registry/packages/azure-native/api-docs/servicebus
[2] pulumi.com/registry/packages/azure/api-docs/servicebus
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from typing import Final, cast

from ..broker.model.descriptions import DEFAULT_RULE_NAME
from ..declared.resources import Declared, Kind, LeftOut, Origin, Resources
from .arm_ids import entity_name, parse_id
from .azurerm import SETTINGS, TYPES, jms_name, properties_of, snake

SIGNATURE: Final = "4dabf18193072939515e22adb298388d"
_SECRET: Final = "1b47061264138c4ac30d75fd1eb44270"
"""The key and its value that mark an object of an export as a secret (pulumi/pulumi, `sdk/go/common/resource/sig`)."""
_UNKNOWN: Final = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
"""What stands for a value that is not known yet (`plugin.UnknownStringValue`)."""
RESOURCES_MAX: Final = 20_000
_NATIVE: Final = re.compile(r"azure-native(?:_servicebus_v\w+)?:servicebus(?:/v\w+)?:(\w+)")
_CLASSIC: Final = re.compile(r"azure:servicebus/\w+:(\w+)")
_SHOW_SECRETS: Final = "`pulumi stack export --show-secrets` has it"
_NAMES: Final[Mapping[str, tuple[Kind, tuple[str, ...]]]] = {
    "Namespace": (Kind.NAMESPACE, ("namespaceName",)),
    "NamespaceNetworkRuleSet": (Kind.NETWORK_RULES, ("namespaceName",)),
    "NamespaceAuthorizationRule": (Kind.AUTHORIZATION_RULE, ("namespaceName", "authorizationRuleName")),
    "Queue": (Kind.QUEUE, ("namespaceName", "queueName")),
    "QueueAuthorizationRule": (Kind.AUTHORIZATION_RULE, ("namespaceName", "queueName", "authorizationRuleName")),
    "Topic": (Kind.TOPIC, ("namespaceName", "topicName")),
    "TopicAuthorizationRule": (Kind.AUTHORIZATION_RULE, ("namespaceName", "topicName", "authorizationRuleName")),
    "Subscription": (Kind.SUBSCRIPTION, ("namespaceName", "topicName", "subscriptionName")),
    "Rule": (Kind.RULE, ("namespaceName", "topicName", "subscriptionName", "ruleName")),
    "DefaultRule": (Kind.RULE, ("namespaceName", "topicName", "subscriptionName")),
}
"""Types of Azure Native, and the inputs with the names of a resource, from the outermost."""
_ALWAYS: Final = frozenset({"__defaults", "azureApiVersion", "id", "location", "name", "resourceGroupName", "type"})

JsonObject = Mapping[str, object]


class NotPulumi(Exception):  # noqa: N818 - it says what the file is instead
    """The file is no output of `pulumi stack export`; the text says what is wrong and what to do."""


class _Hidden:
    """A secret that the export does not show, or a value that is not known yet."""


HIDDEN: Final = _Hidden()


def read_pulumi(document: JsonObject, file: str) -> Resources:
    """The resources of a stack. NotPulumi."""
    deployment = document.get("deployment")
    given = deployment.get("resources") if isinstance(deployment, dict) else None
    if not isinstance(deployment, dict) or not isinstance(given, list | None):
        raise NotPulumi("it has no deployment with resources; give what `pulumi stack export` prints")
    reader = _Reader(file)
    for number, each in enumerate(cast("list[object]", given or [])):
        if number >= RESOURCES_MAX:
            raise NotPulumi(f"it has more than {RESOURCES_MAX} resources")
        if isinstance(each, dict) and not each.get("delete") and each.get("custom", True):
            reader.add({str(name): value for name, value in each.items()}, number)
    return Resources(tuple(reader.declared), tuple(reader.left_out), dict(reader.foreign))


class _Reader:
    def __init__(self, file: str) -> None:
        self._file = file
        self.declared: list[Declared] = []
        self.left_out: list[LeftOut] = []
        self.foreign: Counter[str] = Counter()

    def add(self, resource: JsonObject, number: int) -> None:
        kind = str(resource.get("type", ""))
        if kind.startswith("pulumi:"):
            return
        what = f"{kind}::{str(resource.get('urn', '')).rpartition('::')[2]}"
        origin = Origin(self._file, None, f"$.deployment.resources[{number}]")
        native, classic = _NATIVE.fullmatch(kind), _CLASSIC.fullmatch(kind)
        if native is not None:
            self._native(native[1], what, resource, origin)
        elif classic is not None:
            self._classic(classic[1], what, resource, origin)
        else:
            self.foreign[kind] += 1

    def _pass_over(self, what: str, why: str, origin: Origin, remedy: str = "", *, is_entity: bool = True) -> None:
        self.left_out.append(LeftOut(what, why, remedy, origin, is_entity))

    def _native(self, word: str, what: str, resource: JsonObject, origin: Origin) -> None:
        if word not in _NAMES:
            self._pass_over(what, "emubus has no such setting", origin, is_entity=False)
            return
        kind, names = _NAMES[word]
        inputs = _members_without_secrets(resource.get("inputs")) or {}
        outputs = _members_without_secrets(resource.get("outputs")) or {}
        placed = _place_by_id(resource, kind)
        if placed is None:
            found = [inputs.get(each, outputs.get(each)) for each in names]
            if word == "DefaultRule":
                found.append(DEFAULT_RULE_NAME)
            texts = [each for each in found if isinstance(each, str) and each]
            if len(texts) < len(found):
                self._pass_over(what, "its name is a secret or not known", origin, _SHOW_SECRETS)
                return
            placed = texts[0], () if kind is Kind.NETWORK_RULES else tuple(map(entity_name, texts[1:]))
        properties = self._without_secrets(
            {each: value for each, value in (inputs or outputs).items() if each not in names and each not in _ALWAYS},
            what,
            origin,
        )
        self.declared.append(Declared(kind, placed[1], properties, origin, placed[0]))

    def _classic(self, word: str, what: str, resource: JsonObject, origin: Origin) -> None:
        type_name = f"azurerm_servicebus_{snake(word)}"
        if type_name in SETTINGS or type_name not in TYPES:
            self._pass_over(what, "emubus has no such setting", origin, is_entity=False)
            return
        row = TYPES[type_name]
        outputs, inputs = (
            _members_without_secrets(resource.get("outputs")) or {},
            _members_without_secrets(resource.get("inputs")) or {},
        )
        given = {**{each: value for each, value in outputs.items() if each in ("primaryKey", "secondaryKey")}, **inputs}
        above_names = ("__defaults", "name", camel_name(row.parent))
        shown = self._without_secrets(
            {each: value for each, value in given.items() if each not in above_names}, what, origin
        )
        properties, unread = properties_of(
            row, {snake(each): _with_snake_names(value) for each, value in shown.items()}
        )
        for each in unread:
            self._pass_over(what, f"the property {each} is not read", origin, is_entity=False)
        placed = _place_by_id(resource, row.kind)
        if placed is None:
            name = inputs.get("name", outputs.get("name"))
            above = parse_id(str(inputs.get(camel_name(row.parent)) or ""))
            if not isinstance(name, str) or (above is None and row.kind not in (Kind.NAMESPACE, Kind.NETWORK_RULES)):
                self._pass_over(what, "its name, or what it is in, is a secret or not known", origin, _SHOW_SECRETS)
                return
            if above is None:
                placed = name, ()
            else:
                own = jms_name(name, properties) if row.kind is Kind.SUBSCRIPTION else name
                placed = above[1], (() if row.kind is Kind.NETWORK_RULES else (*above[2], entity_name(own)))
        self.declared.append(Declared(row.kind, placed[1], properties, origin, placed[0]))

    def _without_secrets(self, properties: JsonObject, what: str, origin: Origin) -> dict[str, object]:
        """The properties that can be read; each other one is named."""
        hidden: list[str] = []
        found = _readable(properties, "", hidden)
        for name in hidden:
            why = f"the property {name} is a secret or not known"
            self._pass_over(what, why, origin, _SHOW_SECRETS, is_entity=False)
        assert isinstance(found, dict), "an object stays one"
        return found


def _readable(value: object, path: str, hidden: list[str]) -> object:
    """The value without what can't be read, whose paths are noted."""
    if isinstance(value, Mapping):
        return {
            str(name): _readable(each, f"{path}.{name}".lstrip("."), hidden)
            for name, each in value.items()
            if not _is_hidden(each, f"{path}.{name}".lstrip("."), hidden)
        }
    if isinstance(value, list):
        return [_readable(each, path, hidden) for each in value if not _is_hidden(each, path, hidden)]
    return value


def _is_hidden(value: object, path: str, hidden: list[str]) -> bool:
    if value is HIDDEN:
        hidden.append(path)
    return value is HIDDEN


def _place_by_id(resource: JsonObject, kind: Kind) -> tuple[str, tuple[str, ...]] | None:
    """Namespace and path by the resource's id."""
    known = parse_id(str(resource.get("id") or ""))
    return None if known is None or known[0] is not kind else (known[1], known[2])


def _members_without_secrets(value: object) -> dict[str, object] | None:
    """The members of an object with secrets opened, if the export shows them."""
    opened = _without_secret_mark(value)
    return {str(name): each for name, each in opened.items()} if isinstance(opened, dict) else None


def _without_secret_mark(value: object) -> object:
    if value == _UNKNOWN:
        return HIDDEN
    if isinstance(value, list):
        return [_without_secret_mark(each) for each in value]
    if not isinstance(value, dict):
        return value
    if value.get(SIGNATURE) != _SECRET:
        return {name: _without_secret_mark(each) for name, each in value.items()}
    text = value.get("plaintext")
    if not isinstance(text, str):
        return HIDDEN
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError):
        return HIDDEN
    return found


def _with_snake_names(value: object) -> object:
    """The members of a block by Terraform's names; those that users choose, below `properties`, stay."""
    if isinstance(value, list):
        return [_with_snake_names(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {snake(str(name)): each for name, each in value.items()}


def camel_name(attribute: str) -> str:
    """`lockDuration` of `lock_duration`."""
    first, *others = attribute.split("_")
    return first + "".join(map(str.capitalize, others))
