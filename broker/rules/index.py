"""The index of all rules of one topic: it finds the matching rules and makes the copies of a message [wire 10.9].

A filter that requires one value of a property (a correlation filter, or SQL with `property = constant` in an AND) is in
a dict under that property and value, and only messages with that value evaluate the rest of it. Of several required
values the index takes the one with the fewest rules. Filters that are always TRUE are not evaluated, filters that are
always FALSE are not indexed, all others are evaluated for every message. The outcome equals an evaluation of all rules
in order.

Owned by its topic; used on the event-loop thread only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Final

import structlog

from ...codec.types import Char
from ..message.message import Message
from ..model.descriptions import RuleDescription
from .compiled import CompiledFilter, Equality, Space, Test
from .context import MessageContext
from .errors import FilterException
from .filters import compile_filter
from .numbers import integer_of
from .values import equality_key

if TYPE_CHECKING:
    from .sql.action import Action

log = structlog.get_logger(__name__)

STEP_RULES: Final = 32
LARGE_MESSAGE_BYTES: Final = 4 << 10
_RULES_MAX: Final = 1 << 32  # per subscription, ever: ranks of rules are integers in its range


class Match:
    """The result for one subscription: its copies, and the first error of its rules.

    `copies` begins with the message itself if a rule without action matched, then has one changed copy per rule with an
    action. After an error it has the copies of the other rules and may be empty.
    """

    __slots__ = ("copies", "error", "subscription")

    def __init__(self, subscription: str, copies: list[Message], error: FilterException | None = None) -> None:
        self.subscription = subscription
        self.copies = copies
        self.error = error

    def __repr__(self) -> str:
        return f"Match({self.subscription!r}, {len(self.copies)} copies, error={self.error!r})"


class _Rule:
    """One rule, compiled; `rank` orders all rules of the topic."""

    __slots__ = (
        "_is_known_to_fail",
        "action",
        "description",
        "equality",
        "filter",
        "name",
        "rank",
        "rest",
        "subscription",
    )

    def __init__(self, description: RuleDescription) -> None:
        self.description = description
        self.name = description.name
        self.filter: CompiledFilter = compile_filter(description.filter)
        self.action: Action | None = None
        if description.action is not None:
            from .sql.action import compile_action

            self.action = compile_action(description.action, parameters=description.action_parameters)
        self.subscription = ""
        self.rank = 0
        self.equality: Equality | None = None
        self.rest: Test | None = self.filter.test
        """The test that remains after an index hit; None if none remains."""
        self._is_known_to_fail = False

    def failure(self, error: Exception) -> FilterException:
        """Return the error of this rule for a message; a fault of this program is one, too, and is logged once.

        The message reaches the other subscriptions, and those that are stored in its batch are not kept waiting.
        """
        if isinstance(error, FilterException):
            return error
        if not self._is_known_to_fail:
            self._is_known_to_fail = True
            log.error("rule failed", subscription=self.subscription, rule=self.name, exc_info=error)
        return FilterException("The broker failed to evaluate the rule; see its log.")


class _Subscription:
    """The rules of a subscription by lower-case name, in order; `base` is the rank of the subscription."""

    __slots__ = ("base", "next_rank", "rules")

    def __init__(self, base: int) -> None:
        self.base = base
        self.next_rank = base
        self.rules: dict[str, _Rule] = {}


_Slots = dict[str, dict[object, dict[int, _Rule]]]  # property name -> key of the value -> rules by rank
_rank = attrgetter("rank")


class RuleIndex:
    """The rules of a topic's subscriptions.

    The topic gives each subscription a key; names of rules are case-insensitive. Matches come in the order in which the
    subscriptions were added; a replaced one keeps its rank.
    """

    def __init__(self) -> None:
        self._subscriptions: dict[str, _Subscription] = {}
        self._next_base = 0
        self._always: dict[int, _Rule] = {}
        self._evaluated: dict[int, _Rule] = {}
        self._slots: dict[Space, _Slots] = {space: {} for space in Space}
        # Number of indexed rules per property read: an unreadable message is matched without the index.
        self._system_names: Counter[str] = Counter()
        self._user_readers = 0
        self._evaluations_max: int | None = None  # None: not counted since the last change

    # ------------------------------------------------------------ changes

    def put_subscription(self, key: str, rules: Sequence[RuleDescription]) -> None:
        """Add a subscription or replace its rules. Raises FilterError, without a change, for an invalid rule."""
        compiled = [_Rule(rule) for rule in rules]
        subscription = self._subscriptions.get(key)
        if subscription is None:
            subscription = self._subscriptions[key] = _Subscription(self._next_base)
            self._next_base += _RULES_MAX
        for rule in subscription.rules.values():
            self._take_out(rule)
        subscription.rules.clear()
        for rule in compiled:
            self._put(key, subscription, rule)

    def change_subscription(self, key: str, rules: Sequence[RuleDescription]) -> None:
        """Change the rules of a subscription; compile only those that are new objects.

        Raises KeyError for an unknown subscription, and FilterError, without a change, for an invalid rule.
        """
        subscription = self._subscriptions[key]
        known = subscription.rules
        wanted = {rule.name.lower(): rule for rule in rules}
        gone = [name for name in known if name not in wanted]
        changed = [
            rule
            for name, rule in wanted.items()
            if name not in known or known[name].description is not rule  # 1 and True are equal: compare no values
        ]
        kept = (name for name in known if name in wanted)
        new = (name for name in wanted if name not in known)
        if [*kept, *new] != list(wanted):  # ranks follow the order of addition
            self.put_subscription(key, rules)
            return
        compiled = [_Rule(rule) for rule in changed]
        for name in gone:
            self._take_out(known.pop(name))
        for rule in compiled:
            self._put(key, subscription, rule)

    def remove_subscription(self, key: str) -> None:
        """Remove a subscription and its rules. Raises KeyError."""
        for rule in self._subscriptions.pop(key).rules.values():
            self._take_out(rule)

    def _put(self, key: str, subscription: _Subscription, rule: _Rule) -> None:
        """Insert or replace a rule.

        A replaced rule keeps its rank, because copies are made in the order of ranks. Of several equalities the rule is
        filed under the one with the fewest rules beside it: a message with that value has to evaluate them all.
        """
        known = subscription.rules.get(rule.name.lower())
        if known is None:
            rule.rank = subscription.next_rank
            subscription.next_rank += 1
        else:
            rule.rank = known.rank
            self._take_out(known)
        rule.subscription = key
        subscription.rules[rule.name.lower()] = rule
        self._evaluations_max = None
        compiled = rule.filter
        if compiled.always is not None:
            if compiled.always:
                self._always[rule.rank] = rule
        elif not compiled.equalities:
            self._evaluated[rule.rank] = rule
        else:
            rule.equality = equality = min(compiled.equalities, key=self._count_beside)
            rule.rest = compiled.rest(equality)
            self._slots[equality.space].setdefault(equality.name, {}).setdefault(equality.key, {})[rule.rank] = rule
            self._system_names.update(compiled.system_names)
            self._user_readers += compiled.reads_user

    def _count_beside(self, equality: Equality) -> int:
        return len(self._slots[equality.space].get(equality.name, {}).get(equality.key, ()))

    def _take_out(self, rule: _Rule) -> None:
        self._evaluations_max = None
        self._always.pop(rule.rank, None)
        self._evaluated.pop(rule.rank, None)
        equality = rule.equality
        if equality is None:
            return
        slots = self._slots[equality.space]
        by_key = slots[equality.name]
        del by_key[equality.key][rule.rank]
        if not by_key[equality.key]:
            del by_key[equality.key]
            if not by_key:
                del slots[equality.name]
        self._user_readers -= rule.filter.reads_user
        for name in rule.filter.system_names:
            self._system_names[name] -= 1
            if not self._system_names[name]:
                del self._system_names[name]

    # ------------------------------------------------------------ matching

    @property
    def evaluations_max(self) -> int:
        """How many filters and actions are evaluated for one message at most."""
        if self._evaluations_max is None:
            indexed = sum(
                max(map(len, by_key.values()), default=0) for slots in self._slots.values() for by_key in slots.values()
            )
            actions = sum(rule.action is not None for rule in self._always.values())
            self._evaluations_max = len(self._evaluated) + indexed + actions
        return self._evaluations_max

    def matches(self, context: MessageContext) -> list[Match]:
        """Return the result for each subscription that gets the message or whose rules fail; never raises."""
        hits: list[_Rule] = list(self._always.values())
        errors: list[tuple[_Rule, FilterException]] = []
        for rule, test in self._candidates(context):
            try:
                if test is None or test(context):
                    hits.append(rule)
            except Exception as error:
                errors.append((rule, rule.failure(error)))
        for rule in self._evaluated.values():
            try:
                if rule.filter.test(context):
                    hits.append(rule)
            except Exception as error:
                errors.append((rule, rule.failure(error)))
        hits.sort(key=_rank)
        matches: list[Match] = []
        ranks: list[int] = []
        for rule in hits:
            _add(rule, matches, ranks, errors, context)
        return _with_errors(matches, errors, ranks) if errors else matches

    def matching(self, context: MessageContext) -> Generator[None, None, list[Match]]:
        """Return what `matches` does, in steps of few rules; of a large message each has one.

        `matches` has no steps, which would cost a small topic a sixth of its time for a message. Rules may change
        between two steps: those of the beginning count.
        """
        rules_max = 1 if context.message.size_bytes > LARGE_MESSAGE_BYTES else STEP_RULES
        hits: list[_Rule] = list(self._always.values())
        errors: list[tuple[_Rule, FilterException]] = []
        evaluated = [(rule, rule.filter.test) for rule in self._evaluated.values()]
        for count, (rule, test) in enumerate([*self._candidates(context), *evaluated], 1):
            try:
                if test is None or test(context):
                    hits.append(rule)
            except Exception as error:
                errors.append((rule, rule.failure(error)))
            if not count % rules_max:
                yield
        hits.sort(key=_rank)
        matches: list[Match] = []
        ranks: list[int] = []
        for count, rule in enumerate(hits, 1):
            _add(rule, matches, ranks, errors, context)
            if not count % rules_max:
                yield
        return _with_errors(matches, errors, ranks) if errors else matches

    def _candidates(self, context: MessageContext) -> list[tuple[_Rule, Test | None]]:
        """Return the indexed rules that may match, each with its remaining test."""
        try:
            return [(rule, rule.rest) for rules in self._found(context) for rule in rules.values()]
        except Exception:  # evaluate all: each rule fails only if it needs the unreadable part
            return [
                (rule, rule.filter.test)
                for slots in self._slots.values()
                for by_key in slots.values()
                for rules in by_key.values()
                for rule in rules.values()
            ]

    def _found(self, context: MessageContext) -> list[dict[int, _Rule]]:
        found: list[dict[int, _Rule] | None] = []
        values = {name: context.system(name) for name in self._system_names}
        if self._user_readers:
            context.raw()
        for name, by_key in self._slots[Space.SYSTEM].items():
            found.append(by_key.get(equality_key(values[name])))
        folded = self._slots[Space.FOLDED]
        if folded:
            for name, value in context.folded().items():
                if name in folded:
                    found.append(folded[name].get(equality_key(value)))
                    if type(value) is Char:  # equals its text, and its number
                        found.append(folded[name].get(equality_key(integer_of(value))))
        return [rules for rules in found if rules is not None]


def _add(
    rule: _Rule,
    matches: list[Match],
    ranks: list[int],
    errors: list[tuple[_Rule, FilterException]],
    context: MessageContext,
) -> None:
    """Add the next matching rule to `matches`, by subscription, and run its action; `ranks` are the subscriptions'."""
    if not matches or matches[-1].subscription != rule.subscription:
        matches.append(Match(rule.subscription, []))
        ranks.append(rule.rank)
    match = matches[-1]
    if rule.action is None:
        message = context.message
        if not match.copies or match.copies[0] is not message:
            match.copies.insert(0, message)
        return
    try:
        match.copies.append(rule.action.apply(context, rule.name))
    except Exception as error:
        errors.append((rule, rule.failure(error)))


def _with_errors(matches: list[Match], errors: list[tuple[_Rule, FilterException]], ranks: list[int]) -> list[Match]:
    by_key = dict(zip((match.subscription for match in matches), zip(ranks, matches, strict=True), strict=True))
    for rule, error in sorted(errors, key=lambda each: each[0].rank):
        match = by_key.setdefault(rule.subscription, (rule.rank, Match(rule.subscription, [])))[1]
        if match.error is None:
            match.error = error
    return [match for _, match in sorted(by_key.values(), key=lambda each: each[0])]
