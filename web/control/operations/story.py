"""Endpoints for the story of a message: what happened to it, found by message id, sequence number or session.

Knows the JSON of an event. Does not know how events are kept and found (`story/`).
"""

from __future__ import annotations

from typing import Final

from ....broker.api import EventKind
from ....story.tracing import trace
from ..endpoints import ControlCall, Endpoint
from ..message_json import NUMBER_MAX
from ..schema import array, boolean, choice, default, integer, nullable, record, text

EVENTS_MAX: Final = 1_000
_RULE: Final = record(
    "A rule of a subscription.",
    {
        "name": text("Name of the rule."),
        "matches": nullable(boolean("Whether it matches; null: it failed.")),
        "reason": nullable(text("The part of the filter that is not true, or the error.", chars_max=100_000)),
    },
)
_VERDICT: Final = record(
    "What the rules of a subscription say of the message.",
    {
        "subscription": text("Path of the subscription."),
        "takes": boolean("Whether it takes the message."),
        "rules": array("Its rules.", _RULE),
    },
)
EVENT: Final = record(
    "What happened to a message.",
    {
        "at": integer("When.", 0, NUMBER_MAX),
        "event": choice("What.", EventKind),
        "entity": text("Path of the entity."),
        "partition_id": nullable(integer("The partition; null: the entity has none.", 0, 65535)),
        "sequence_number": nullable(integer("The number of the message there; null: it has none.", 0, NUMBER_MAX)),
        "message_id": nullable(text("Its id, in events of an arrival.")),
        "by": nullable(text("The client, if one did it.")),
        "text": text("A sentence.", chars_max=100_000),
        "is_bad": boolean("Whether the sender may not expect it."),
        "verdicts": array("What the subscriptions of a topic say.", _VERDICT),
    },
)
STATE_FIELDS: Final = {
    "is_on": boolean("Whether events are kept."),
    "message_count": integer("Events that are kept, each of one message.", 0, NUMBER_MAX),
    "forgotten_count": integer("Events that were kept and are forgotten.", 0, NUMBER_MAX),
}
STATE: Final = record("The story.", STATE_FIELDS)
STORY: Final = record(
    "The story, and the events that were asked for.", {**STATE_FIELDS, "events": array("In order.", EVENT)}
)


def _state(call: ControlCall) -> dict[str, object]:
    story = call.services.story
    return {
        "is_on": story.is_on,
        "message_count": story.message_count,
        "forgotten_count": story.forgotten_count,
    }


async def show_story(call: ControlCall) -> object:
    """The events of a message, or the last events."""
    query = call.query
    found = await trace(
        call.services.story,
        path=query.optional("entity", str),
        sequence_number=query.optional("sequence_number", int),
        message_id=query.optional("message_id", str),
        session_id=query.optional("session_id", str),
        count_max=query.one("top", int),
    )
    return {**_state(call), "events": [each.to_json() for each in found]}


async def switch_story(call: ControlCall) -> object:
    """Keep events from now on, or no more."""
    call.services.story.switch(is_on=call.body.one("is_on", bool))
    return _state(call)


async def clear_story(call: ControlCall) -> object:
    """Forget all events."""
    call.services.story.forget()
    return _state(call)


ENDPOINTS: Final = (
    Endpoint(
        "GET",
        "/story",
        "What happened to a message, from its sending to its end; without a criterion the last events",
        show_story,
        STORY,
        query={
            "entity": text("Path of an entity that the message was in."),
            "sequence_number": integer("Its number there.", 0, NUMBER_MAX),
            "message_id": text("Its id."),
            "session_id": text("Its session."),
            "top": default(integer("At most so many events, the last ones.", 1, EVENTS_MAX), 200),
        },
    ),
    Endpoint(
        "PUT",
        "/story",
        "Keep events of messages from now on, or no more",
        switch_story,
        STATE,
        body=record("The switch.", {"is_on": boolean("Whether events are kept.")}),
    ),
    Endpoint("DELETE", "/story", "Forget all events of messages", clear_story, STATE),
)
