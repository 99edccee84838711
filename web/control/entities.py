"""Endpoints for entities: reports, partitions (P31), messages, routing (P32), purge.

Knows the JSON of the reports. Does not know how they are made (`broker.admin`).
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Final

from ...broker.address import SubQueue
from ...broker.admin.figures import HOME_NAMES
from ...broker.admin.overview import Overview, PartitionReport
from ...broker.api import Entity, OutageKind
from ...broker.message.bounds import IDENTIFIER_CHARS_MAX
from ...broker.model.descriptions import TopicDescription
from ..long_work import Pace
from .endpoints import ControlCall, ControlRefusal, Endpoint, answer_of_list
from .message_json import MESSAGES, NUMBER_MAX, message_json
from .paging import NEXT_PAGE, NUMBER_PAGE, PAGE, deprecated, number_of_page, page_of
from .schema import Schema, array, boolean, choice, counts, default, fields_of, integer, named, nullable, record, text

PAGE_MAX: Final = 1_000
SESSIONS_MAX: Final = 10_000
PATH_CHARS_MAX: Final = 400
"""Longest path: a topic has 260 characters, a subscription 50."""
MESSAGES_MAX: Final = 250
MESSAGES_BYTES_MAX: Final = 4 << 20
"""Encoded messages of one page; as JSON they are a few times as large."""

# A subscription's slashes may be written as they are; other slashes in names must be %2F.
ENTITY_AT: Final = r"{entity:[^/]+(?:/[Ss]ubscriptions/[^/]+)?}"
NO_SESSIONS: Final = (
    "'{}' does not require message sessions: delete it, and create it anew with RequiresSession "
    "(requires_session) true."
)
NO_MESSAGES: Final = "The topic '{0}' holds no messages: its subscriptions do, such as {0}/NAME."
SUB_QUEUES: Final = {
    "active": SubQueue.ACTIVE,
    "dead-letter": SubQueue.DEAD_LETTER,
    "transfer-dead-letter": SubQueue.TRANSFER_DEAD_LETTER,
}


def _identifier(about: str) -> Schema:
    return text(about, chars_max=IDENTIFIER_CHARS_MAX)


ENTITY_PATH: Final = text("Path of an entity, slashes as %2F.", chars_min=1, chars_max=PATH_CHARS_MAX)
_AT: Final = {"entity": ENTITY_PATH}
_COUNTS: Final = named("Counts", counts("Messages by state.", HOME_NAMES))
_INSTANT: Final = nullable(integer("Time of last use; null if not used since the start.", 0, NUMBER_MAX))

PARTITION: Final = named(
    "Partition",
    record(
        "A partition; its figures are null while its messaging store can't be reached.",
        {
            "partition_id": integer("The partition id, also the top 16 bits of its sequence numbers.", 0, 65535),
            "store": integer("The messaging store of the partition.", 0, 65535),
            "health": choice("Health of the store.", ["available", *OutageKind]),
            "messages": nullable(_COUNTS),
            "size_bytes": nullable(integer("Size of its messages.", 0, NUMBER_MAX)),
            "locked_count": nullable(integer("Messages locked by receivers.", 0, NUMBER_MAX)),
            "first_sequence_number": nullable(
                integer("The lowest sequence number present; null if empty.", 0, NUMBER_MAX)
            ),
            "next_sequence_number": nullable(integer("The next sequence number to be assigned.", 0, NUMBER_MAX)),
            "last_activity_at": _INSTANT,
        },
    ),
)
ENTITY: Final = named(
    "Entity",
    record(
        "An entity with its counts.",
        {
            "path": text("Path.", chars_max=10_000),
            "kind": choice("Kind of entity.", ["queue", "topic", "subscription"]),
            "status": text("Active, Disabled, SendDisabled or ReceiveDisabled."),
            "is_partitioned": boolean("Whether it has several partitions."),
            "partition_count": integer("Number of partitions.", 1, 65535),
            "requires_session": boolean("Whether it requires message sessions."),
            "is_limited": boolean("Whether a partition can't be reached; its messages are then not counted (P17)."),
            "messages": _COUNTS,
            "size_bytes": integer("Size of its messages.", 0, NUMBER_MAX),
            "size_bytes_max": integer("Maximum size of its messages.", 0, NUMBER_MAX),
            "locked_count": integer("Messages locked by receivers.", 0, NUMBER_MAX),
            "link_count": integer("Attached AMQP links.", 0, NUMBER_MAX),
            "last_activity_at": _INSTANT,
        },
    ),
)
ENTITIES: Final = named(
    "Entities",
    record(
        "Entities by path.",
        {
            "entities": array("The entities.", ENTITY),
            "total": integer("Total number of entities.", 0, NUMBER_MAX),
            "next_page": NEXT_PAGE,
        },
    ),
)
ENTITY_WITH_PARTITIONS: Final = named(
    "EntityWithPartitions",
    record(
        "An entity with its partitions.",
        {**fields_of(ENTITY), "partitions": array("Ordered by number.", PARTITION)},
    ),
)
PARTITIONS: Final = named("Partitions", record("Partitions.", {"partitions": array("Ordered by number.", PARTITION)}))
ROUTE: Final = named(
    "Route",
    record(
        "Where a message would go; without a key partitions are used round-robin, and `partition_id` is null.",
        {
            "key": nullable(text("The key that decides.")),
            "key_source": nullable(choice("Origin of the key.", ["key", "session-id", "partition-key", "message-id"])),
            "partition_count": integer("Number of partitions of the entity.", 1, 65535),
            "partition_id": nullable(integer("The partition.", 0, 65535)),
            "store": nullable(integer("The messaging store of the partition.", 0, 65535)),
            "is_available": boolean("Whether the message would be accepted now."),
        },
    ),
)
PURGED: Final = named(
    "Purged", record("Removed messages.", {"message_count": integer("Number of messages removed.", 0, NUMBER_MAX)})
)

SESSIONS: Final = named(
    "Sessions",
    record(
        "Message sessions with active messages or a state.",
        {
            "sessions": array(
                "By name.",
                named(
                    "Session",
                    record(
                        "A message session.",
                        {
                            "session_id": text("Its id.", chars_max=10_000),
                            "partition_id": integer("Its partition.", 0, 65535),
                            "message_count": integer("Active messages, counted up to 10000.", 0, NUMBER_MAX),
                            "state_bytes": nullable(integer("Size of its state; null: it has none.", 0, NUMBER_MAX)),
                            "locked_until_at": nullable(
                                integer("End of its lock, if a receiver holds it.", 0, NUMBER_MAX)
                            ),
                            "holder": nullable(text("The client that holds it; empty: not known.", chars_max=10_000)),
                            "oldest_at": nullable(
                                integer("When its first active message was enqueued.", 0, NUMBER_MAX)
                            ),
                        },
                    ),
                ),
            ),
            "next_page": NEXT_PAGE,
        },
    ),
)


def entity_with_messages(call: ControlCall) -> Entity:
    """The queue or subscription of a request. BrokerError; ControlRefusal (409) for a topic."""
    entity = Overview(call.services.broker.namespace).entity(call.path.one("entity", str))
    if isinstance(entity.description, TopicDescription):
        raise ControlRefusal(409, NO_MESSAGES.format(entity.path))
    return entity


async def list_entities(call: ControlCall) -> object:
    overview = Overview(call.services.broker.namespace)
    found = sorted(call.services.broker.namespace.entities(), key=lambda each: each.path.lower())
    query = call.query
    count = query.one("top" if query["count"] is None else "count", int)
    page, following = page_of(
        found[query.one("skip", int) :], lambda each: each.path.lower(), query.optional("page", str), count
    )
    pace = Pace()
    reports = []
    for each in page:
        await pace.step()
        if call.services.broker.namespace.entity(each.path) is each:  # it may have been deleted since
            reports.append(asdict(overview.report(each)))
    return {
        "entities": reports,
        "total": len(found),
        "next_page": following,
    }


async def show_entity(call: ControlCall) -> object:
    overview = Overview(call.services.broker.namespace)
    entity = overview.entity(call.path.one("entity", str))
    partitions = [_partition(each) for each in overview.partitions(entity)]
    return {**asdict(overview.report(entity)), "partitions": partitions}


async def list_partitions(call: ControlCall) -> object:
    overview = Overview(call.services.broker.namespace)
    found = overview.partitions(overview.entity(call.path.one("entity", str)))
    return {"partitions": [_partition(each) for each in found]}


def _partition(report: PartitionReport) -> dict[str, object]:
    return asdict(report)


async def show_route(call: ControlCall) -> object:
    """Where a message would go."""
    overview = Overview(call.services.broker.namespace)
    given = {name: call.query.optional(name, str) for name in call.query}
    route = overview.route(
        overview.entity(call.path.one("entity", str)),
        session_id=given.pop("session_id"),
        partition_key=given.pop("partition_key"),
        **given,
    )
    return asdict(route)


async def list_messages(call: ControlCall) -> object:
    overview, query = Overview(call.services.broker.namespace), call.query
    page = await overview.messages(
        overview.entity(call.path.one("entity", str)),
        SUB_QUEUES[query.one("sub_queue", str)],
        first=max(query.one("from_sequence_number", int), number_of_page(query.optional("page", str))),
        count=query.one("count", int),
        bytes_max=MESSAGES_BYTES_MAX,
        session_id=query.optional("session_id", str),
        partition_id=query.optional("partition_id", int),
    )
    following = page.next_sequence_number
    more = {"next_sequence_number": following, "next_page": None if following is None else str(following)}
    return await answer_of_list(call, "messages", page.messages, message_json, lambda seen: len(seen.encoded), more)


async def list_sessions(call: ControlCall) -> object:
    entity = Overview(call.services.broker.namespace).entity(call.path.one("entity", str))
    if not entity.requires_session:
        raise ControlRefusal(409, NO_SESSIONS.format(entity.path))
    found = await Overview(call.services.broker.namespace).sessions(entity)
    page, following = page_of(
        found, lambda each: each.session_id, call.query.optional("page", str), call.query.one("count", int)
    )
    return {"sessions": [asdict(each) for each in page], "next_page": following}


async def purge_entity(call: ControlCall) -> object:
    Overview(call.services.broker.namespace).entity(call.path.one("entity", str))
    return {"message_count": call.services.broker.maintenance.purge(call.path.one("entity", str))}


ENDPOINTS: Final = (
    Endpoint(
        "GET",
        "/entities",
        "All queues, topics and subscriptions with their counts",
        list_entities,
        ENTITIES,
        query={
            "count": integer(f"Maximum number of entities; {PAGE_MAX} without it.", 1, PAGE_MAX),
            "page": PAGE,
            "skip": deprecated(default(integer("Number of entities to skip.", 0, 1_000_000), 0)),
            "top": deprecated(default(integer("Maximum number of entities.", 1, PAGE_MAX), PAGE_MAX)),
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
            "message_id": _identifier("The message's MessageId, the key if duplicate detection is on."),
            "key": _identifier("A key of any origin."),
        },
        errors=(409,),
    ),
    Endpoint(
        "GET",
        f"/entities/{ENTITY_AT}/messages",
        "Peek messages (does not lock, does not reset AutoDeleteOnIdle)",
        list_messages,
        MESSAGES,
        at=_AT,
        query={
            "sub_queue": default(choice("Sub-queue of the entity.", SUB_QUEUES), "active"),
            "from_sequence_number": default(integer("Start at this sequence number.", 0, NUMBER_MAX), 0),
            "count": default(integer("Maximum number of messages.", 1, MESSAGES_MAX), 50),
            "page": NUMBER_PAGE,
            "session_id": _identifier("Only messages of this message session."),
            "partition_id": integer("Only messages of this partition.", 0, 65535),
        },
    ),
    Endpoint(
        "GET",
        f"/entities/{ENTITY_AT}/sessions",
        "The message sessions of an entity: messages, state, lock",
        list_sessions,
        SESSIONS,
        at=_AT,
        query={"count": default(integer("Maximum number of sessions.", 1, SESSIONS_MAX), SESSIONS_MAX), "page": PAGE},
        errors=(409,),
        answers={
            "sessions": [
                {
                    "session_id": "s1",
                    "partition_id": 0,
                    "message_count": 12,
                    "state_bytes": None,
                    "locked_until_at": 1_893_456_000_000,
                    "holder": "azsdk-python-servicebus 7.14.3",
                    "oldest_at": 1_893_455_940_000,
                }
            ],
            "next_page": None,
        },
    ),
    Endpoint(
        "POST",
        f"/entities/{ENTITY_AT}/purge",
        "Purge an entity: remove all messages and session states (of a topic: of its subscriptions) and detach links",
        purge_entity,
        PURGED,
        at=_AT,
    ),
    Endpoint(
        "GET", f"/entities/{ENTITY_AT}", "An entity with its partitions", show_entity, ENTITY_WITH_PARTITIONS, at=_AT
    ),
)
