"""SQL actions: statements that change a rule's copy of a message [wire 10.9].

Knows SET and REMOVE; a statement sees the changes of earlier ones. An action is immutable; each run has its own draft.

Decisions where Service Bus publishes nothing: SET with an UNKNOWN value makes an existing application property null,
adds no missing one, and clears a system property. Names of application properties are case-insensitive; SET keeps the
existing spelling, REMOVE removes all spellings. ScheduledEnqueueTimeUtc can be set, without effect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from ...message.message import Message
from ...model.descriptions import PropertyValue
from ..context import Draft, MessageContext
from ..conversion import system_value, user_value
from ..editing import changed_message
from ..errors import FilterError, FilterException
from ..names import SYSTEM_PROPERTIES, Section
from . import syntax
from .compiler import Compiler
from .grammar import parse_action

RULE_NAME_PROPERTY: Final = "RuleName"
"""The application property with the name of the rule that made a copy."""

_Step = Callable[[Draft], None]


@dataclass(frozen=True, slots=True)
class Action:
    """The compiled statements of an action."""

    steps: tuple[_Step, ...]

    def apply(self, context: MessageContext, rule_name: str | None = None) -> Message:
        """Return the changed copy, with `RuleName` if `rule_name` is given; the message of `context` stays unchanged.

        Raises FilterException.
        """
        draft = Draft(context)
        for step in self.steps:
            step(draft)
        if rule_name is not None:
            draft.user_changes[RULE_NAME_PROPERTY] = rule_name
        changes = draft.user_changes
        removed = [name for name, raw in changes.items() if raw is Draft.REMOVED]
        given = {name: raw for name, raw in changes.items() if raw is not Draft.REMOVED}
        return changed_message(context.message, draft.system_changes, given, removed)


def compile_action(
    text: str,
    *,
    parameters: Mapping[str, PropertyValue] | None = None,
    statements_max: int | None = None,
    length_max: int | None = None,
) -> Action:
    """Compile a SQL action. Raises FilterError, also for too many statements or characters."""
    if length_max is not None and len(text) > length_max:
        raise FilterError(f"SQL action: {len(text)} characters are more than {length_max}")
    statements = parse_action(text)
    if statements_max is not None and len(statements) > statements_max:
        surplus = statements[statements_max]
        raise FilterError(
            f"SQL action: {len(statements)} statements are more than {statements_max}",
            line=surplus.line,
            column=surplus.column,
        )
    try:
        return Action(tuple(_step(statement, parameters or {}) for statement in statements))
    except FilterError as error:
        raise FilterError(
            f"SQL action: {error.problem}", line=error.line, column=error.column, token=error.token
        ) from None


def _step(statement: syntax.Statement, parameters: Mapping[str, PropertyValue]) -> _Step:
    name = statement.property
    if isinstance(name, syntax.SystemName) and SYSTEM_PROPERTIES[name.name].section is Section.BROKER:
        raise FilterError(
            f"sys.{name.name} cannot be changed by an action", line=name.line, column=name.column, token=name.name
        )
    if isinstance(statement, syntax.Set):
        return _set(statement, parameters)
    if isinstance(name, syntax.SystemName):
        cleared = name.name
        return lambda draft: draft.set_system(cleared, None)
    return _remove_user(name.name)


def _remove_user(name: str) -> _Step:
    def step(draft: Draft) -> None:
        for each in draft.names_of(name):
            draft.set_user(each, Draft.REMOVED)

    return step


def _set(statement: syntax.Set, parameters: Mapping[str, PropertyValue]) -> _Step:
    target = statement.property
    value = Compiler(parameters).compile(statement.expression)
    read = value.evaluate
    if isinstance(target, syntax.UserName):
        source = statement.expression.name if isinstance(statement.expression, syntax.UserName) else None
        return lambda draft: _set_user(draft, target.name, source, read(draft))
    known = SYSTEM_PROPERTIES[target.name]
    if known.section is Section.IGNORED:
        return lambda draft: read(draft) and None  # evaluated, for its errors
    if value.is_constant:
        try:
            fixed = system_value(known, read(None))  # type: ignore[arg-type]
        except FilterException as error:
            raise FilterError(str(error), line=statement.line, column=statement.column, token=known.name) from None
        return lambda draft: draft.set_system(known.name, fixed)
    return lambda draft: draft.set_system(known.name, system_value(known, read(draft)))


def _set_user(draft: Draft, name: str, source: str | None, value: object) -> None:
    """SET an application property; `source` names the property if the expression is a plain copy."""
    spelt = draft.names_of(name)
    if value is None:
        if spelt:
            draft.set_user(spelt[0], None)
        return
    raw = draft.raw()[draft.names_of(source)[0]] if source is not None else None
    replaced = draft.raw()[spelt[0]] if spelt else None
    draft.set_user(spelt[0] if spelt else name, user_value(value, raw, replaced))  # type: ignore[arg-type]
