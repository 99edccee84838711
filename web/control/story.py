"""Endpoints for the story of a message: what happened to it, found by message id, sequence number or session.

Knows the JSON of an event. Does not know how events are kept and found (`story/`).
"""

from __future__ import annotations

from typing import Final

from ...broker.api import EventKind
from ...story.search import Place
from ...story.tracing import trace
from .endpoints import ControlCall, Endpoint
from .message_json import NUMBER_MAX
from .paging import NEXT_PAGE, deprecated
from .schema import array, boolean, choice, default, integer, named, nullable, record, text

EVENTS_MAX: Final = 1_000
_RULE: Final = named(
    "RuleVerdict",
    record(
        "A rule of a subscription.",
        {
            "name": text("Name of the rule."),
            "matches": nullable(boolean("Whether it matches; null: it failed.")),
            "reason": nullable(
                text(
                    "The part of the filter that is not true, what the action could not calculate, or the error.",
                    chars_max=100_000,
                )
            ),
        },
    ),
)
_VERDICT: Final = named(
    "SubscriptionVerdict",
    record(
        "What the rules of a subscription say of the message.",
        {
            "subscription": text("Path of the subscription."),
            "takes": boolean("Whether it takes the message."),
            "rules": array("Its rules.", _RULE),
        },
    ),
)
EVENT: Final = named(
    "TraceEvent",
    record(
        "What happened to a message.",
        {
            "at": integer("When.", 0, NUMBER_MAX),
            "event": choice("What.", EventKind),
            "entity": text("Path of the entity."),
            "partition_id": nullable(integer("The partition; null: the entity has none.", 0, 65535)),
            "sequence_number": nullable(integer("The number of the message there; null: it has none.", 0, NUMBER_MAX)),
            "message_id": nullable(text("Its id, in events of an arrival.")),
            "by": nullable(text("The client, if one did it.")),
            "struck_by": nullable(text("The condition or fault, of a strike.")),
            "text": text("A sentence.", chars_max=100_000),
            "is_bad": boolean("Whether the sender may not expect it."),
            "verdicts": array("What the subscriptions of a topic say.", _VERDICT),
        },
    ),
)
STATE_FIELDS: Final = {
    "is_on": boolean("Whether events are kept."),
    "message_count": integer("Events that are kept, each of one message.", 0, NUMBER_MAX),
    "forgotten_count": integer("Events that were kept and are forgotten.", 0, NUMBER_MAX),
}
STATE: Final = named("StoryState", record("The story.", STATE_FIELDS))
STORY: Final = named(
    "Story",
    record(
        "The story, and the events that were asked for. The next page has earlier ones.",
        {**STATE_FIELDS, "events": array("In order.", EVENT), "next_page": NEXT_PAGE},
    ),
)


def _state(call: ControlCall) -> dict[str, object]:
    story = call.services.story
    return {
        "is_on": story.is_switched_on,
        "message_count": story.message_count,
        "forgotten_count": story.forgotten_count,
    }


async def show_story(call: ControlCall) -> object:
    """The events of a message, or the last events."""
    query = call.query
    count, page = query.one("count" if query["top"] is None else "top", int), query.optional("page", str)
    found = await trace(
        call.services.story,
        call.aside,
        path=query.optional("entity", str),
        sequence_number=query.optional("sequence_number", int),
        message_id=query.optional("message_id", str),
        session_id=query.optional("session_id", str),
        count_max=count + 1,
        before=None if page is None else _place(page),
    )
    events = found[-count:]
    following = "{}.{}".format(*events[0].found.place) if len(found) > count else None
    return {**_state(call), "events": [each.to_json() for each in events], "next_page": following}


def _place(page: str) -> Place:
    number, _, position = page.partition(".")
    return int(number), int(position)


async def switch_story(call: ControlCall) -> object:
    """Keep events from now on, or no more."""
    call.services.story.switch(is_on=call.body.one("is_on", bool))
    return _state(call)


async def clear_story(call: ControlCall) -> object:
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
            "count": default(integer("At most so many events, the last ones.", 1, EVENTS_MAX), 200),
            "page": text(
                "The next_page of the last answer: events before those.", pattern="[0-9]{1,15}[.]-?[0-9]{1,9}"
            ),
            "top": deprecated(integer("As count.", 1, EVENTS_MAX)),
        },
        answers={
            "is_on": True,
            "message_count": 1,
            "forgotten_count": 0,
            "events": [
                {
                    "at": 1_893_456_000_000,
                    "event": "sent",
                    "entity": "orders",
                    "partition_id": 3,
                    "sequence_number": 844_424_930_131_969,
                    "message_id": "order-7",
                    "by": "azsdk-python-servicebus 7.14.3 at 127.0.0.1:40000",
                    "struck_by": None,
                    "text": "Sent, to partition 3: that of its session id, 's1'",
                    "is_bad": False,
                    "verdicts": [],
                }
            ],
            "next_page": None,
        },
    ),
    Endpoint(
        "PUT",
        "/story",
        "Keep events of messages from now on, or no more",
        switch_story,
        STATE,
        body=record("The switch.", {"is_on": boolean("Whether events are kept.")}),
        example={"is_on": True},
    ),
    Endpoint("DELETE", "/story", "Forget all events of messages", clear_story, STATE),
)
