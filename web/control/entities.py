"""Endpoints about entities: what there is, partitions (P31), messages, where one would go (P32), emptying.

Knows the shape of what is shown. Does not know how it is found out (`broker.inspection`, `broker.maintenance`).
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final

from ...broker.address import SubQueue
from ...broker.admin.overview import HOME_NAMES, Inspection, PartitionReport
from ...broker.api import OutageKind
from ...broker.message.bounds import IDENTIFIER_CHARS_MAX
from .endpoints import Call, Endpoint
from .message_json import MESSAGES, NUMBER_MAX, message_json
from .schema import Schema, array, boolean, choice, counts, default, integer, nullable, record, text

PAGE_MAX: Final = 1_000
PATH_CHARS_MAX: Final = 400
"""Of an entity: a topic has 260 characters, a subscription 50."""
MESSAGES_MAX: Final = 250
MESSAGES_BYTES_MAX: Final = 4 << 20
"""Of the messages of one page, encoded; decoded they are a few times as large."""

# A subscription may be written with its slashes as they are; other names that hold slashes have them as %2F.
ENTITY_AT: Final = r"{entity:[^/]+(?:/[Ss]ubscriptions/[^/]+)?}"
SUB_QUEUES: Final = {
    "active": SubQueue.ACTIVE,
    "dead-letter": SubQueue.DEAD_LETTER,
    "transfer-dead-letter": SubQueue.TRANSFER_DEAD_LETTER,
}


def _identifier(about: str) -> Schema:
    return text(about, chars_max=IDENTIFIER_CHARS_MAX)


_AT: Final = {"entity": text("Path of an entity, slashes as %2F.", chars_min=1, chars_max=PATH_CHARS_MAX)}
_COUNTS: Final = counts("Messages by where they are.", HOME_NAMES)
_INSTANT: Final = nullable(integer("When it was last used; null if not since the start.", 0, NUMBER_MAX))

PARTITION: Final = record(
    "A partition; its figures are null while its messaging store can't be reached.",
    {
        "partition_id": integer("Its number, the topmost 16 bits of its sequence numbers.", 0, 65535),
        "store": integer("The messaging store that it is in.", 0, 65535),
        "health": choice("How the store is.", ["available", *OutageKind]),
        "messages": nullable(_COUNTS),
        "size_bytes": nullable(integer("Size of its messages.", 0, NUMBER_MAX)),
        "locked_count": nullable(integer("Messages in receivers' hands.", 0, NUMBER_MAX)),
        "first_sequence_number": nullable(integer("The lowest that is there; null: empty.", 0, NUMBER_MAX)),
        "next_sequence_number": nullable(integer("The next that is given out.", 0, NUMBER_MAX)),
        "last_activity_at": _INSTANT,
    },
)
ENTITY: Final = record(
    "An entity at a glance.",
    {
        "path": text("Its path.", chars_max=10_000),
        "kind": choice("What it is.", ["queue", "topic", "subscription"]),
        "status": text("Active, Disabled, SendDisabled or ReceiveDisabled."),
        "is_partitioned": boolean("Whether it has several partitions."),
        "partition_count": integer("How many.", 1, 65535),
        "requires_session": boolean("Whether it is received from by message sessions."),
        "is_limited": boolean("Whether a partition can't be reached; it is missing in the figures then (P17)."),
        "messages": _COUNTS,
        "size_bytes": integer("Size of its messages.", 0, NUMBER_MAX),
        "size_bytes_max": integer("The most that it takes.", 0, NUMBER_MAX),
        "locked_count": integer("Messages in receivers' hands.", 0, NUMBER_MAX),
        "link_count": integer("Links that are attached to it.", 0, NUMBER_MAX),
        "last_activity_at": _INSTANT,
    },
)
ENTITIES: Final = record(
    "Entities by path.",
    {"entities": array("The entities.", ENTITY), "total": integer("How many there are in all.", 0, NUMBER_MAX)},
)
ENTITY_WITH_PARTITIONS: Final = record(
    "An entity with its partitions.",
    {**ENTITY["properties"], "partitions": array("In the order of their numbers.", PARTITION)},
)
PARTITIONS: Final = record("Partitions.", {"partitions": array("In the order of their numbers.", PARTITION)})
ROUTE: Final = record(
    "Where a message would go; without a key the partitions take turns, and `partition_id` is null.",
    {
        "key": nullable(text("The key in force.")),
        "key_source": nullable(choice("Which it is.", ["key", "session-id", "partition-key", "message-id"])),
        "partition_count": integer("How many partitions the entity has.", 1, 65535),
        "partition_id": nullable(integer("The partition.", 0, 65535)),
        "store": nullable(integer("The messaging store that the partition is in.", 0, 65535)),
        "is_available": boolean("Whether it would be taken now."),
    },
)
PURGED: Final = record("What was removed.", {"message_count": integer("So many messages.", 0, NUMBER_MAX)})


async def list_entities(call: Call) -> object:
    """A page of all entities."""
    inspection = Inspection(call.services.broker)
    found = sorted(call.services.broker.entities(), key=lambda each: each.path.lower())
    page = found[call.query["skip"] :][: call.query["top"]]
    return {"entities": [asdict(inspection.report(each)) for each in page], "total": len(found)}


async def show_entity(call: Call) -> object:
    """One entity."""
    inspection = Inspection(call.services.broker)
    entity = inspection.entity(call.path["entity"])
    partitions = [_partition(each) for each in inspection.partitions(entity)]
    return {**asdict(inspection.report(entity)), "partitions": partitions}


async def list_partitions(call: Call) -> object:
    """The partitions of an entity."""
    inspection = Inspection(call.services.broker)
    found = inspection.partitions(inspection.entity(call.path["entity"]))
    return {"partitions": [_partition(each) for each in found]}


def _partition(report: PartitionReport) -> dict[str, Any]:
    return asdict(report)


async def show_route(call: Call) -> object:
    """Where a message would go."""
    inspection = Inspection(call.services.broker)
    return asdict(inspection.route(inspection.entity(call.path["entity"]), **call.query))


async def list_messages(call: Call) -> object:
    """A page of messages."""
    inspection = Inspection(call.services.broker)
    page = await inspection.messages(
        inspection.entity(call.path["entity"]),
        SUB_QUEUES[call.query["sub_queue"]],
        first=call.query["from_sequence_number"],
        count=call.query["count"],
        bytes_max=MESSAGES_BYTES_MAX,
        session_id=call.query["session_id"],
        partition_id=call.query["partition_id"],
    )
    return {
        "messages": [message_json(each) for each in page.messages],
        "next_sequence_number": page.next_sequence_number,
    }


async def purge_entity(call: Call) -> object:
    """Empty an entity."""
    Inspection(call.services.broker).entity(call.path["entity"])
    return {"message_count": call.services.broker.maintenance.purge(call.path["entity"])}


ENDPOINTS: Final = (
    Endpoint(
        "GET",
        "/entities",
        "All queues, topics and subscriptions with their counts",
        list_entities,
        ENTITIES,
        query={
            "skip": default(integer("How many to pass over.", 0, 1_000_000), 0),
            "top": default(integer("How many at most.", 1, PAGE_MAX), PAGE_MAX),
        },
    ),
    Endpoint(
        "GET",
        f"/entities/{ENTITY_AT}/partitions",
        "The partitions of an entity: depth, locks, sequence range, last activity, health (P31)",
        list_partitions,
        PARTITIONS,
        at=_AT,
    ),
    Endpoint(
        "GET",
        f"/entities/{ENTITY_AT}/route",
        "Where a message would go, without sending it (P32)",
        show_route,
        ROUTE,
        at=_AT,
        query={
            "session_id": _identifier("The message's SessionId."),
            "partition_key": _identifier("The message's PartitionKey."),
            "message_id": _identifier("The message's MessageId, a key where duplicates are detected."),
            "key": _identifier("A key, whatever it comes from."),
        },
        errors=(409,),
    ),
    Endpoint(
        "GET",
        f"/entities/{ENTITY_AT}/messages",
        "Look at messages without locking them and without counting as use, page by page",
        list_messages,
        MESSAGES,
        at=_AT,
        query={
            "sub_queue": default(choice("Which queue of the entity.", SUB_QUEUES), "active"),
            "from_sequence_number": default(integer("The lowest number.", 0, NUMBER_MAX), 0),
            "count": default(integer("How many at most.", 1, MESSAGES_MAX), 50),
            "session_id": _identifier("Only messages of this message session."),
            "partition_id": integer("Only messages of this partition.", 0, 65535),
        },
    ),
    Endpoint(
        "POST",
        f"/entities/{ENTITY_AT}/purge",
        "Remove all messages and session states of an entity, of a topic with its subscriptions; links are detached",
        purge_entity,
        PURGED,
        at=_AT,
    ),
    Endpoint(
        "GET", f"/entities/{ENTITY_AT}", "An entity with its partitions", show_entity, ENTITY_WITH_PARTITIONS, at=_AT
    ),
)
