"""The endpoint of what clients were refused lately, and what to do about it.

Knows the JSON of a refusal. Does not know why there are refusals (`broker/admin/refusal_log.py`).
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Final

from ...broker.admin.refusal_log import REASON_CHARS_MAX, RECENT_MAX
from .endpoints import ControlCall, Endpoint
from .entities import ENTITY_PATH
from .message_json import NUMBER_MAX
from .schema import array, default, integer, named, nullable, record, text

REFUSAL: Final = named(
    "Refusal",
    record(
        "What a client was refused. The same refusal of the same client is one, with its count.",
        {
            "number": integer("Its number; of several the last one's.", 1, NUMBER_MAX),
            "at": integer("When (Unix ms); of several the last one.", 0, NUMBER_MAX),
            "client": text("The client and its address."),
            "entity": text("Path of the entity that it named."),
            "code": text("The error condition of AMQP, or a status of HTTP."),
            "reason": text("The error's text that the client got.", chars_max=REASON_CHARS_MAX),
            "remedy": nullable(text("What to do about it; null: nothing is known.")),
            "count": integer("How often.", 1, NUMBER_MAX),
        },
    ),
)
REFUSALS: Final = named(
    "Refusals",
    record(
        "The last refusals.",
        {
            "last_number": integer("The number of the last refusal; ask for those after it.", 0, NUMBER_MAX),
            "refusals": array("The oldest first.", REFUSAL),
        },
    ),
)


async def list_refusals(call: ControlCall) -> object:
    query, refusals = call.query, call.services.broker.refusals
    entity = query.optional("entity", str)
    found = [
        {**asdict(each), "remedy": each.remedy or None}
        for each in refusals.recent
        if each.number > query.one("after", int) and (entity is None or each.entity.lower() == entity.lower())
    ]
    return {"last_number": refusals.last_number, "refusals": found[-query.one("count", int) :]}


ENDPOINTS: Final = (
    Endpoint(
        "GET",
        "/refusals",
        "What clients were refused lately, with the remedy that the log names",
        list_refusals,
        REFUSALS,
        query={
            "after": default(integer("Only those after this number.", 0, NUMBER_MAX), 0),
            "entity": ENTITY_PATH,
            "count": default(integer("At most so many, the last ones.", 1, RECENT_MAX), RECENT_MAX),
        },
        answers={
            "last_number": 1,
            "refusals": [
                {
                    "number": 1,
                    "at": 1_893_456_000_000,
                    "client": "azsdk-python-servicebus 7.15.0 at 127.0.0.1:40000",
                    "entity": "queue1",
                    "code": "amqp:not-found",
                    "reason": "The messaging entity 'sb://sbemulatorns/queue1' could not be found.",
                    "remedy": "no queue, topic or subscription 'queue1'; did you mean 'queue.1'?",
                    "count": 1,
                }
            ],
        },
    ),
)
