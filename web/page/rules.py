"""The rules of a subscription: list, add, delete, and which of them would match a message.

Does not know what a filter means; `broker.rules` does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from ...broker.admin.rule_trial import Verdict, try_rules
from ...broker.errors import BrokerError
from ...broker.message.message import parse_message
from ...broker.model.descriptions import (
    CorrelationFilter,
    FalseFilter,
    Filter,
    RuleDescription,
    SqlFilter,
    SubscriptionDescription,
    TrueFilter,
    TypedText,
)
from ...broker.model.properties import CORRELATION_NAMES
from ...broker.rules import MessageContext
from ...broker.rules.values import OPAQUE, Value, kind_text, to_text
from ...story.verdicts import rule_verdict
from .flashes import Flash
from .forms import REFUSALS, Failed, Form, FormError, quoted, read_form
from .message_form import FIELDS, PROPERTY_TYPES, encoded, message_in
from .overview import row_of
from .rendering import value_text
from .site import Site, address

FILTER_KINDS: Final = ("sql", "correlation", "true", "false")
CORRELATION_FIELDS: Final[Mapping[str, str]] = {**CORRELATION_NAMES, "label": "Subject (Label)"}
VALUE_KINDS: Final = ("string", "long", "double", "boolean")
_KINDS: Final = (("string", str), ("boolean", bool), ("long", int), ("double", float))
CHANGED: Final = ("Label", "CorrelationId", "MessageId", "To", "ReplyTo", "SessionId", "ContentType", "PartitionKey")


@dataclass(frozen=True, slots=True)
class RuleVerdict:
    """A rule's verdict for the page: `changes` are the properties that its action set on the copy.

    `text` says whether and why, as the story does.
    """

    verdict: Verdict
    changes: Sequence[tuple[str, str]]
    text: str


async def show(
    site: Site,
    request: web.Request,
    failed: Failed | None = None,
    path: str = "",
    verdicts: Sequence[RuleVerdict] | None = None,
) -> web.Response:
    entity = site.entity(path) if path else site.entity_of(request)
    rules = site.broker.administration.rules(entity.path)
    edited = request.query.get("edit", "") if failed is None else ""
    if edited:
        failed = Failed("add", _values_of(_rule_named(rules, edited)))
    return site.render(
        request,
        "rules.html",
        failed=failed,
        live_path=address("rules", path=entity.path),
        row=row_of(site, entity),
        entity=entity,
        rules=[(rule, filter_text(rule.filter)) for rule in rules],
        verdicts={each.verdict.rule.name: each for each in verdicts or ()},
        is_tried=verdicts is not None,
        fields=FIELDS,
        correlation_fields=CORRELATION_FIELDS,
        property_types=list(PROPERTY_TYPES),
        value_kinds=VALUE_KINDS,
        filter_kinds=FILTER_KINDS,
    )


def _rule_named(rules: Sequence[RuleDescription], name: str) -> RuleDescription:
    found = next((each for each in rules if each.name == name), None)
    if found is None:
        raise FormError(f"There is no rule {quoted(name)}; it may have been deleted.", "name", status=404)
    return found


def _values_of(rule: RuleDescription) -> dict[str, list[str]]:
    """What the form has for a rule that is edited. FormError for one that a form can't hold."""
    values = {"name": [rule.name], "edit": [rule.name], "action": [rule.action or ""], "filter": [rule.filter.kind]}
    match rule.filter:
        case SqlFilter() if rule.filter.parameters or rule.action_parameters:
            raise FormError(f"The rule {quoted(rule.name)} has parameters, which this form does not: use the API.")
        case SqlFilter():
            values["expression"] = [rule.filter.expression]
        case CorrelationFilter():
            values |= {f"by_{name}": [getattr(rule.filter, name) or ""] for name in CORRELATION_FIELDS}
            for name, value in rule.filter.properties.items():
                kind = next((each for each, of in _KINDS if type(value) is of), "")
                if not kind:
                    raise FormError(f"The rule {quoted(rule.name)} has the value '{name}' of a type that is not here.")
                values.setdefault("value_name", []).append(name)
                values.setdefault("value_kind", []).append(kind)
                values.setdefault("value", []).append(str(value).lower() if isinstance(value, bool) else str(value))
        case _:
            pass
    return values


def filter_text(description: Filter) -> str:
    match description:
        case SqlFilter():
            given = ", ".join(f"{name} = {_value_text(value)}" for name, value in description.parameters.items())
            return f"{description.expression}  [{given}]" if given else description.expression
        case CorrelationFilter():
            pairs = [(label, getattr(description, name)) for name, label in CORRELATION_FIELDS.items()]
            texts = [f"{label} = '{value}'" for label, value in pairs if value is not None]
            texts += [f"{name} = {_value_text(value)}" for name, value in description.properties.items()]
            return ", ".join(texts)
        case TrueFilter():
            return "every message"
        case FalseFilter():
            return "no message"


def _value_text(value: object) -> str:
    if isinstance(value, TypedText):
        return f"{value.text} ({value.type})"
    return f"'{value}'" if isinstance(value, str) else value_text(value)


async def add(site: Site, request: web.Request) -> web.Response:
    form = await read_form(request)
    path = site.entity(form.text("path")).path
    try:
        name = form.text("name")
        rule = RuleDescription(name, _filter_in(form), form.optional("action"))
        if form.text("edit"):
            if name != form.text("edit"):
                raise FormError(f"Name: a rule keeps its name, which is {quoted(form.text('edit'))}.", "name")
            site.broker.administration.replace_rule(path, rule)
            return site.redirect(address("rules", path=path), Flash(f"The rule '{name}' was changed."))
        site.broker.administration.add_rule(path, rule)
    except REFUSALS as error:
        return await show(site, request, form.failed("add", error), path)
    return site.redirect(address("rules", path=path), Flash(f"The rule '{name}' was added."))


def _filter_in(form: Form) -> Filter:
    match form.choice("filter", "Filter", FILTER_KINDS):
        case "true":
            return TrueFilter()
        case "false":
            return FalseFilter()
        case "sql":
            if not form.text("expression"):
                raise FormError("SQL filter: the expression must not be empty.", "expression")
            return SqlFilter(form.text("expression"))
    texts = {name: form.optional(f"by_{name}") for name in CORRELATION_FIELDS}
    properties: dict[str, str | int | float | bool | None] = {}
    rows = zip(form.all("value_name"), form.all("value_kind"), form.all("value"), strict=False)
    for name, kind, text in rows:
        if name.strip():
            properties[name.strip()] = _property_value(name.strip(), kind, text)
    return CorrelationFilter(**texts, properties=properties)


def _property_value(name: str, kind: str, text: str) -> str | int | float | bool:
    read, allowed = PROPERTY_TYPES[kind] if kind in VALUE_KINDS else PROPERTY_TYPES["string"]
    try:
        value = read(text if kind == "string" else text.strip())
    except (ValueError, KeyError):
        raise FormError(f"Property '{name[:60]}': '{text[:60]}' is not {allowed}.", "value") from None
    if isinstance(value, bool | float):
        return value
    return int(value) if isinstance(value, int) else str(value)


async def delete(site: Site, request: web.Request) -> web.Response:
    form = await read_form(request)
    path, name = site.entity(form.text("path")).path, form.text("name")
    try:
        site.broker.administration.remove_rule(path, name)
    except BrokerError as error:
        return await show(site, request, form.failed("delete-rule", error), path)
    return site.redirect(address("rules", path=path), Flash(f"The rule '{name}' was deleted."))


async def try_message(site: Site, request: web.Request) -> web.Response:
    """The page of rules, each with its verdict on the message."""
    form = await read_form(request)
    entity = site.entity(form.text("path"))
    now = site.services.clock.now_ms()
    try:
        rules = site.broker.administration.rules(entity.path)
        message = parse_message(encoded(message_in(form, now)))
        context = MessageContext(message, enqueued_at=now)
        verdicts = [
            RuleVerdict(each, _changes(each, context), rule_verdict(each.rule, context).text)
            for each in try_rules(rules, message, now)
        ]
    except REFUSALS as error:
        return await show(site, request, form.failed("try", error), entity.path)
    assert isinstance(entity.description, SubscriptionDescription)
    return await show(site, request, Failed("try", form.values), entity.path, verdicts)


def _text(value: Value) -> str:
    return kind_text(value) if value is OPAQUE else to_text(value)


def _changes(verdict: Verdict, before: MessageContext) -> list[tuple[str, str]]:
    if verdict.copy is None or verdict.rule.action is None:
        return []
    after = MessageContext(verdict.copy)
    changes = [
        (name, "(removed)" if after.system(name) is None else str(after.system(name)))
        for name in CHANGED
        if after.system(name) != before.system(name)
    ]
    old, new = before.named(), after.named()
    changes += [(name, _text(value)) for name, value in new.items() if name not in old or old[name] != value]
    return changes + [(name, "(removed)") for name in old if name not in new]
