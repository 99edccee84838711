"""Verbs of the test kit that are requests to the control API, wherever the emubus runs, and those made of others.

Knows the words of requests, and how a test waits. Does not know how a request gets there: `in_process.py` and
`remote.py` do.
"""

from __future__ import annotations

import base64
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property, partial
from threading import Event
from time import perf_counter
from typing import Final
from urllib.parse import quote, urlencode

from ..broker.errors import BrokerError, Condition
from ..conditions.behaviour import Value
from ..conditions.engine import no_condition
from ..conditions.presets import PRESETS
from ..story.sentences import event_line, refusal_text
from .answers import Answer
from .condition_names import ConditionName
from .conditions import ConditionReport, Exercise, RunningCondition
from .exercise import Step, steps
from .values import (
    MessageCounts,
    MessageSession,
    PeekedMessage,
    RefusedCall,
    StoryEvent,
    SubscriptionVerdict,
    counts_in,
    event_in,
    in_ms,
    refusal_in,
    report_in,
    session_in,
    unix_ms,
)

EVENTS_MAX: Final = 1_000
WAIT_S: Final = 30.0
POLL_S: Final = 0.01
MINUTE_MS: Final = 60_000
UNKNOWN_HOST: Final = "emubus.invalid"
"""A name that is never given an address [RFC 6761 6.4]."""


class Verbs(ABC):
    """Send, wait, ask what happened, begin a bad day."""

    @abstractmethod
    def start_condition(
        self,
        name: ConditionName | str,
        *,
        seed: int = 0,
        entity: str | None = None,
        duration_ms: int | None = None,
        count: int | None = None,
        **values: Value,
    ) -> ConditionReport:
        """Start a preset or a single behaviour."""

    @abstractmethod
    def condition(self, number: int) -> ConditionReport:
        """A condition with what struck so far."""

    @abstractmethod
    def end_condition(self, number: int) -> None:
        """End a condition; nothing if it has ended."""

    @abstractmethod
    def _entity_count(self) -> int:
        """How many entities there are."""

    @property
    @abstractmethod
    def connection_string(self) -> str:
        """The connection string, for data and administration clients."""

    @abstractmethod
    def message_counts(self, path: str) -> MessageCounts:
        """Messages of an entity by state, as attributes or keys: `active`, `scheduled`, `dead_letter`, …"""

    @abstractmethod
    def peek(self, path: str, sub_queue: str | None = "active") -> list[PeekedMessage]:
        """All messages of an entity, by peeking: does not lock, does not reset AutoDeleteOnIdle."""

    @abstractmethod
    def _control(self, method: str, path: str, body: object = None) -> Answer:
        """The answer of the control API; BrokerError if it refuses."""

    def send(
        self,
        path: str,
        body: str | bytes | Mapping[str, object] | Sequence[object] = "",
        *,
        message_id: str | None = None,
        session_id: str | None = None,
        partition_key: str | None = None,
        subject: str | None = None,
        correlation_id: str | None = None,
        content_type: str | None = None,
        to: str | None = None,
        reply_to: str | None = None,
        reply_to_session_id: str | None = None,
        application_properties: Mapping[str, object] | None = None,
        time_to_live: timedelta | int | None = None,
        scheduled_enqueue_time: datetime | int | None = None,
    ) -> int | None:
        """Send a message to a queue or topic without an SDK; its sequence number, None for a duplicate.

        A body that is no text and no bytes is sent as JSON. The properties have the names of Python's SDK; a time to
        live may be in milliseconds, and an instant in Unix ms. BrokerError if the broker refuses the message.
        """
        given: dict[str, object] = {}
        if isinstance(body, bytes):
            given["body_base64"] = base64.b64encode(body).decode()
        elif isinstance(body, str):
            given["body"] = body
        else:
            given["body"], content_type = json.dumps(body), content_type or "application/json"
        message: dict[str, object] = {
            **given,
            "message_id": message_id,
            "session_id": session_id,
            "partition_key": partition_key,
            "subject": subject,
            "correlation_id": correlation_id,
            "content_type": content_type,
            "to": to,
            "reply_to": reply_to,
            "reply_to_session_id": reply_to_session_id,
            "application_properties": dict(application_properties or {}),
            "ttl_ms": None if time_to_live is None else in_ms(time_to_live),
            "scheduled_at": None if scheduled_enqueue_time is None else unix_ms(scheduled_enqueue_time),
        }
        answer = self._control("POST", f"/entities/{quote(path, safe='')}/messages", {"messages": [message]})
        (sent,) = answer.parts("results")
        return sent.number_or_none("sequence_number")

    def entities(self) -> dict[str, MessageCounts]:
        """All queues, topics and subscriptions by path, with their counts."""
        found: dict[str, MessageCounts] = {}
        page: str | None = ""
        while page is not None:
            answer = self._control("GET", f"/entities?count=1000{f'&page={quote(page)}' if page else ''}")
            found |= {each.text("path"): counts_in(each.part("messages")) for each in answer.parts("entities")}
            page = answer.text_or_none("next_page")
        return found

    def sessions(self, path: str) -> list[MessageSession]:
        """The message sessions of an entity that have active messages or a state. BrokerError if it requires none."""
        answer = self._control("GET", f"/entities/{quote(path, safe='')}/sessions?count=10000")
        return [session_in(each) for each in answer.parts("sessions")]

    def wait_for(
        self,
        path: str,
        *,
        active: int | None = None,
        scheduled: int | None = None,
        deferred: int | None = None,
        dead_letter: int | None = None,
        transfer_dead_letter: int | None = None,
        timeout_s: float = WAIT_S,
    ) -> MessageCounts:
        """Wait until an entity has these counts of messages; returns all its counts. AssertionError after `timeout_s`.

        Locked messages are active: one that a receiver has and has not completed counts.
        """
        wanted = {
            "active": active,
            "scheduled": scheduled,
            "deferred": deferred,
            "dead_letter": dead_letter,
            "transfer_dead_letter": transfer_dead_letter,
        }
        asked = {name: count for name, count in wanted.items() if count is not None}
        if not asked:
            text = f"Nothing to wait for on '{path}': give a count, such as active=3, of: {', '.join(wanted)}."
            raise BrokerError(Condition.ARGUMENT_ERROR, text)
        ends, pause = perf_counter() + timeout_s, Event()
        while True:
            counts = self.message_counts(path)
            seen = {name: counts[name] for name in asked}
            if seen == asked:
                return counts
            if perf_counter() > ends:
                raise AssertionError(
                    f"'{path}' has {_counts_text(seen)} after {timeout_s:g} s; awaited: {_counts_text(asked)}"
                )
            pause.wait(POLL_S)

    # ---- what happened

    def refusals(self) -> list[RefusedCall]:
        """What clients were refused since the last reset, the oldest first, with the remedy that the log names."""
        return [refusal_in(each) for each in self._control("GET", "/refusals").parts("refusals")]

    def running_conditions(self) -> list[ConditionReport]:
        """The conditions that are on, with what struck so far."""
        return [report_in(each) for each in self._control("GET", "/conditions").parts("conditions")]

    def keep_story(self, *, is_on: bool = True) -> None:
        """Keep events of messages from now on, or no more; the fixtures of pytest do."""
        self._control("PUT", "/story", {"is_on": is_on})

    def story(
        self,
        message: object = None,
        *,
        path: str | None = None,
        sequence_number: int | None = None,
        session_id: str | None = None,
    ) -> list[StoryEvent]:
        """What happened to a message since the last reset, in order: sent, routed, locked, completed, …

        `message` is a message id, a message of an SDK, or one that was peeked; a sequence number needs the `path` of
        its entity. Without any of them these are the last events of all messages. BrokerError if none are kept.
        """
        number, message_id = _number_and_id(message)
        asked = {
            "entity": path,
            "sequence_number": number if sequence_number is None else sequence_number,
            "message_id": message_id,
            "session_id": session_id,
        }
        if message_id is not None and path is None:
            asked["sequence_number"] = sequence_number  # numbers are of one entity, ids of all
        given = {name: value for name, value in asked.items() if value is not None}
        answer = self._control("GET", f"/story?{urlencode({**given, 'count': EVENTS_MAX}, errors='surrogatepass')}")
        if not answer.flag("is_on") and not answer.parts("events"):
            text = "Events of messages are not kept: call keep_story() first, or start EmubusServer(story=True)."
            raise BrokerError(Condition.NOT_ALLOWED, text)
        return [event_in(each) for each in answer.parts("events")]

    def why_not(self, message: object, path: str | None = None) -> str:
        """Why a message is not where it is expected, as text: which rule did not match, who took it, what ended it.

        `message` as for `story`; `path` is the entity where it is missed.
        """
        events = self.story(message)
        if not events:
            refused = dict.fromkeys(f"\n{each.entity}: {each.remedy or each.reason}" for each in self.refusals())
            also = f" Clients were refused:{''.join(refused)}" if refused else ""
            return f"No such message has arrived since the last reset.{also}"
        if path is None:
            return "\n".join(line_of(each) for each in events)
        here = [each for each in events if _same(each.entity, path)]
        verdicts = [each for event in events for each in event.verdicts if _same(each.subscription, path)]
        if here:
            return "\n".join(line_of(each) for each in here)
        if verdicts:
            return "\n".join(verdict_text(each) for each in verdicts)
        places = ", ".join(dict.fromkeys(each.entity for each in events))
        return f"The message was never in '{path}'; it was in: {places}. Last: {line_of(events[-1])}"

    @cached_property
    def started_conditions(self) -> list[int]:
        """The numbers of the conditions that were started by this object since its last reset."""
        return []

    @property
    def unresolved_connection_string(self) -> str:
        """The connection string with a host that has no address, in place of the emubus's: `name-unknown`."""
        return re.sub(r"(?<=Endpoint=sb://)(\[.*?\]|[^:;]*)", UNKNOWN_HOST, self.connection_string, count=1)

    def conditions(
        self,
        name: ConditionName | str,
        *,
        seed: int = 0,
        entity: str | None = None,
        duration_ms: int | None = None,
        count: int | None = None,
        **values: Value,
    ) -> RunningCondition:
        """A condition for a `with` block, with the arguments of `start_condition`."""
        start = partial(self.start_condition, name, seed=seed, entity=entity, duration_ms=duration_ms, count=count)
        return RunningCondition(partial(start, **values), self.condition, self.end_condition)

    def exercise(
        self, *, minutes: float = 10.0, seed: int = 0, presets: Sequence[str] = (), entity: str | None = None
    ) -> Exercise:
        """All presets, or these, one after the other in the order of the seed: a turn of a loop for each.

        Each is on while the body of the loop runs, at most for its share of `minutes` by the broker's clock, and its
        times are shortened to fit. BrokerError (not-found) for a name that is no preset.
        """
        unknown = [each for each in presets if each not in PRESETS]
        if unknown:
            text = no_condition("preset", unknown[0], PRESETS)
            raise BrokerError(Condition.NOT_FOUND, text)
        entity_count = 1 if entity is not None else self._entity_count()
        planned = steps(int(minutes * MINUTE_MS), seed, presets or tuple(PRESETS), entity_count)

        def condition_of(step: Step) -> RunningCondition:
            start = partial(self.start_condition, step.name, seed=seed, entity=entity, duration_ms=step.on_ms)
            values = {each.replace("-", "_").replace(".", "__"): value for each, value in step.values.items()}
            return RunningCondition(partial(start, **values), self.condition, self.end_condition)

        return Exercise(planned, condition_of)


def line_of(event: StoryEvent) -> str:
    """An event as a line, with the subscriptions whose rules said no below it."""
    refused = [verdict_text(each) for each in event.verdicts if not each.takes]
    return event_line(event.at, event.entity, event.text, refused)


def verdict_text(verdict: SubscriptionVerdict) -> str:
    """What the rules of a subscription say, as a sentence."""
    if verdict.takes:
        return f"'{verdict.subscription}' takes the message."
    return refusal_text(verdict.subscription, verdict.rules)


def _number_and_id(message: object) -> tuple[int | None, str | None]:
    """The sequence number and the id by which a message is found."""
    if message is None or isinstance(message, str):
        return None, message
    if isinstance(message, PeekedMessage):
        return message.sequence_number, None if message.message_id is None else str(message.message_id)
    number, message_id = getattr(message, "sequence_number", None), getattr(message, "message_id", None)
    if number is None and message_id is None:
        text = f"The message is {message!r}; give its message id, or a message that has one."
        raise BrokerError(Condition.ARGUMENT_ERROR, text)
    return number if isinstance(number, int) else None, None if message_id is None else str(message_id)


def _same(path: str, other: str) -> bool:
    """Whether two paths are of one entity; a subscription may be written `topic/name`."""
    first, second = (each.lower().replace("/subscriptions/", "/") for each in (path, other))
    return first == second


def _counts_text(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items())
