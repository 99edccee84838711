"""Endpoints for fault injection: set, list and clear faults; drop connections and links.

Knows the JSON of a fault. Does not know what a fault does to a connection.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...broker.amounts import Times
from ...broker.errors import Condition
from ...conditions.faults import DELAYING, STRIKES, Fault, FaultKind, FaultOperation
from ..json_object import JsonObject
from .endpoints import ControlCall, ControlRefusal, Endpoint
from .message_json import NUMBER_MAX
from .paging import NEXT_PAGE, NUMBER_PAGE, page_of
from .schema import (
    DURATION_MS_MAX,
    array,
    choice,
    default,
    integer,
    named,
    nullable,
    number,
    record,
    text,
    without_default,
)

CONNECTIONS_MAX: Final = 1_000
_ENTITY: Final = default(
    nullable(text("Path of an entity, with its sub-queues; null: all entities.", chars_min=1, chars_max=400)), None
)
_KINDS: Final = "; ".join(f"{kind} applies to {', '.join(operations)}" for kind, operations in STRIKES.items())
FAULT_FIELDS: Final = {
    "kind": choice(f"Kind of fault: {_KINDS}.", FaultKind),
    "entity": _ENTITY,
    "operations": default(
        array(
            "Operations that it applies to; empty: all that the kind can apply to.",
            choice("An operation.", FaultOperation),
            count_max=len(FaultOperation),
        ),
        [],
    ),
    "count": default(nullable(integer("Number of times it applies; null: until it is cleared.", 1, Times.MOST)), None),
    "probability": default(number("Probability, each time.", 0, 1), 1),
    "delay_ms": default(integer(f"{', '.join(DELAYING)}: delay of the confirmation.", 0, DURATION_MS_MAX), 1_000),
}
FAULT: Final = named(
    "Fault",
    record(
        "A fault.",
        {
            "id": integer("Its number.", 1, NUMBER_MAX),
            **{name: without_default(field) for name, field in FAULT_FIELDS.items()},
            "hit_count": integer("How often it was applied.", 0, NUMBER_MAX),
        },
    ),
)
FAULTS: Final = named("Faults", record("Faults.", {"faults": array("The oldest first.", FAULT)}))
CLEARED: Final = named(
    "ClearedFaults", record("Cleared faults.", {"cleared_count": integer("Number of faults cleared.", 0, NUMBER_MAX)})
)
DROPPED: Final = named(
    "Dropped", record("Dropped connections or links.", {"dropped_count": integer("Number dropped.", 0, NUMBER_MAX)})
)
CONNECTIONS: Final = named(
    "Connections",
    record(
        "AMQP connections.",
        {
            "connections": array(
                "The oldest first.",
                named(
                    "Connection",
                    record(
                        "A connection, as the client introduces itself.",
                        {
                            "number": integer("Its number, as in the log.", 1, NUMBER_MAX),
                            "since": integer("When it was opened.", 0, NUMBER_MAX),
                            "peer": text("Address of the client; empty if it is not known."),
                            "container": text("Container id of the client.", chars_max=10_000),
                            "product": text("Product of the client.", chars_max=10_000),
                            "version": text("Its version.", chars_max=10_000),
                            "application": text(
                                "What the program calls itself in its user agent; empty if it does not.",
                                chars_max=10_000,
                            ),
                            "links": array(
                                "Its links.",
                                named(
                                    "Link",
                                    record(
                                        "A link.",
                                        {
                                            "address": text("Address of the node.", chars_max=10_000),
                                            "role": choice("What the client does.", ["sender", "receiver"]),
                                            "name": text("Name of the link.", chars_max=10_000),
                                            "credit": integer(
                                                "Deliveries that its receiver still takes.", 0, NUMBER_MAX
                                            ),
                                            "in_flight": integer("Deliveries that are not settled.", 0, NUMBER_MAX),
                                        },
                                    ),
                                ),
                            ),
                        },
                    ),
                ),
            ),
            "next_page": NEXT_PAGE,
        },
    ),
)
_ENTITY_ONLY: Final = named("OfEntity", record("Which ones.", {"entity": _ENTITY}))


def _fault(fault: Fault) -> dict[str, object]:
    return {
        "id": fault.number,
        "kind": fault.kind.value,
        "entity": fault.entity,
        "operations": [each.value for each in fault.operations],
        "count": fault.left,
        "probability": fault.probability,
        "delay_ms": fault.delay_ms,
        "hit_count": fault.hit_count,
    }


async def list_faults(call: ControlCall) -> object:
    return {"faults": [_fault(each) for each in call.services.conditions.faults()]}


async def add_fault(call: ControlCall) -> object:
    body = call.body
    kind = FaultKind(body.one("kind", str))
    operations = [FaultOperation(each) for each in body.list_of("operations", str)]
    impossible = [each.value for each in operations if each not in STRIKES[kind]]
    if impossible:
        raise ControlRefusal(
            409, f"{kind} can't apply to {', '.join(impossible)}; it applies to {', '.join(STRIKES[kind])}."
        )
    fault = call.services.conditions.set_fault(
        kind,
        entity=body.optional("entity", str),
        operations=operations,
        count=body.optional("count", int),
        probability=body.number("probability"),
        delay_ms=body.one("delay_ms", int),
    )
    return _fault(fault)


async def clear_fault(call: ControlCall) -> object:
    number = call.path.one("id", int)
    if not call.services.conditions.clear_fault(number):
        raise ControlRefusal(404, f"No fault {number} is set; it may have been used up.")
    return {"cleared_count": 1}


async def clear_faults(call: ControlCall) -> object:
    return {"cleared_count": call.services.conditions.clear_faults()}


async def list_connections(call: ControlCall) -> object:
    found = sorted(((_key(each), each) for each in call.services.connections()), key=lambda pair: pair[0])
    page, following = page_of(
        found, lambda pair: pair[0], call.query.optional("page", str), call.query.one("count", int)
    )
    return {"connections": [each for _, each in page], "next_page": following}


def _key(connection: Mapping[str, object]) -> str:
    """The place of a connection among all: its number, written so that texts have the order of numbers."""
    return f"{JsonObject(connection).one('number', int):019}"


async def drop_connections(call: ControlCall) -> object:
    return {"dropped_count": call.services.faults.drop_connections_of(call.body.optional("entity", str))}


async def drop_links(call: ControlCall) -> object:
    condition = Condition(call.body.one("condition", str))
    return {"dropped_count": call.services.faults.drop_links_of(call.body.optional("entity", str), condition)}


ENDPOINTS: Final = (
    Endpoint("GET", "/faults", "All faults", list_faults, FAULTS),
    Endpoint(
        "POST",
        "/faults",
        "Set a fault for operations of clients",
        add_fault,
        FAULT,
        body=record("The fault.", FAULT_FIELDS),
        example={"kind": "server-busy", "entity": "orders", "operations": ["send"], "count": 3},
        status=201,
        errors=(409,),
    ),
    Endpoint("DELETE", "/faults", "Clear all faults", clear_faults, CLEARED),
    Endpoint(
        "DELETE",
        "/faults/{id}",
        "Clear a fault",
        clear_fault,
        CLEARED,
        at={"id": integer("Its number.", 1, NUMBER_MAX)},
    ),
    Endpoint(
        "GET",
        "/connections",
        "The AMQP connections with their links",
        list_connections,
        CONNECTIONS,
        query={
            "count": default(integer("Maximum number of connections.", 1, CONNECTIONS_MAX), CONNECTIONS_MAX),
            "page": NUMBER_PAGE,
        },
        answers={
            "connections": [
                {
                    "number": 1,
                    "since": 1_893_456_000_000,
                    "peer": "127.0.0.1:40000",
                    "container": "python-1",
                    "product": "azsdk-python-servicebus",
                    "version": "7.14.3",
                    "application": "shop",
                    "links": [
                        {"address": "orders", "role": "sender", "name": "sender-1", "credit": 1_000, "in_flight": 0}
                    ],
                }
            ],
            "next_page": None,
        },
    ),
    Endpoint(
        "POST",
        "/connections/drop",
        "Drop AMQP connections now: all, or those with a link to an entity",
        drop_connections,
        DROPPED,
        body=_ENTITY_ONLY,
        example={"entity": "orders"},
    ),
    Endpoint(
        "POST",
        "/links/drop",
        "Detach AMQP links now: all, or those of an entity",
        drop_links,
        DROPPED,
        body=record(
            "Which links, and the reason.",
            {
                "entity": _ENTITY,
                "condition": default(choice("The AMQP condition.", Condition), Condition.DETACH_FORCED.value),
            },
        ),
        example={"entity": "orders", "condition": Condition.DETACH_FORCED.value},
    ),
)
