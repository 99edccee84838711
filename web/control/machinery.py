"""Endpoints about what the server stands on: messaging stores and their outages (P18), faults on the wire, the clock.

Knows the shape of what is shown and asked. Does not know what an outage or a fault does.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from ...broker.admin import figures
from ...broker.admin.fault_table import STRIKES, Fault, FaultKind, FaultOperation
from ...broker.admin.figures import StoreReport
from ...broker.api import Outage, OutageKind
from ...broker.errors import Condition
from .endpoints import Call, Endpoint, Refused
from .message_json import NUMBER_MAX
from .schema import array, boolean, choice, default, integer, nullable, number, record, text, without_default

DURATION_MS_MAX: Final = 366 * 24 * 3_600_000
ADVANCE_MS_MAX: Final = 10 * DURATION_MS_MAX
CLOCK_MS_MAX: Final = 32_503_680_000_000
"""The year 3000: far from where dates of clients end."""
STORES_MAX: Final = 64

# ---- stores

OUTAGE_FIELDS: Final = {
    "kind": choice("down: answers nothing; slow: commits take longer; failing: commits fail; full.", OutageKind),
    "delay_ms": default(integer("slow: how much longer a commit takes.", 0, DURATION_MS_MAX), 1_000),
    "duration_ms": default(nullable(integer("How long it lasts; null: until it is lifted.", 1, DURATION_MS_MAX)), None),
}
_STORE_NUMBER: Final = integer("A messaging store.", 0, STORES_MAX - 1)
STORE: Final = record(
    "A messaging store.",
    {
        "store": _STORE_NUMBER,
        "health": choice("How it is.", ["available", *OutageKind]),
        "delay_ms": nullable(integer("slow: how much longer a commit takes.", 0, DURATION_MS_MAX)),
        "commit_count": integer("Commits since the start.", 0, NUMBER_MAX),
        "failed_commit_count": integer("Commits that failed.", 0, NUMBER_MAX),
    },
)
STORES: Final = record("Messaging stores.", {"stores": array("In the order of their numbers.", STORE)})


def _store(report: StoreReport) -> dict[str, Any]:
    outage = report.outage
    return {
        "store": report.store,
        "health": report.health,
        "delay_ms": outage.delay_ms if outage is not None and outage.kind is OutageKind.SLOW else None,
        "commit_count": report.commit_count,
        "failed_commit_count": report.failed_commit_count,
    }


async def list_stores(call: Call) -> object:
    """All messaging stores."""
    return {"stores": [_store(each) for each in figures.stores(call.services.broker)]}


def _known_stores(call: Call, numbers: list[int]) -> list[int]:
    count = len(figures.stores(call.services.broker))
    for each in numbers:
        if each >= count:
            raise Refused(404, f"There is no messaging store {each}: there are {count}, counted from 0.")
    return numbers


def _begin(call: Call, numbers: list[int]) -> None:
    body = call.body
    outage = Outage(OutageKind(body["kind"]), body["delay_ms"] if body["kind"] == OutageKind.SLOW else 0)
    for each in _known_stores(call, numbers):
        call.services.broker.begin_outage(each, outage, body["duration_ms"])


async def begin_outages(call: Call) -> object:
    """Let stores be out."""
    _begin(call, call.body["stores"])
    return await list_stores(call)


async def begin_outage(call: Call) -> object:
    """Let one store be out."""
    _begin(call, [call.path["store"]])
    return _store(figures.store(call.services.broker, call.path["store"]))


async def end_outages(call: Call) -> object:
    """Let all stores work again."""
    for each in figures.stores(call.services.broker):
        call.services.broker.end_outage(each.store)
    return await list_stores(call)


async def end_outage(call: Call) -> object:
    """Let one store work again."""
    (index,) = _known_stores(call, [call.path["store"]])
    call.services.broker.end_outage(index)
    return _store(figures.store(call.services.broker, index))


# ---- faults

_ENTITY: Final = default(
    nullable(text("Path of an entity, with its sub-queues; null: all.", chars_min=1, chars_max=400)), None
)
_KINDS: Final = "; ".join(f"{kind} strikes {', '.join(operations)}" for kind, operations in STRIKES.items())
FAULT_FIELDS: Final = {
    "kind": choice(f"What goes wrong: {_KINDS}.", FaultKind),
    "entity": _ENTITY,
    "operations": default(
        array(
            "What it strikes; empty: all that the kind can strike.",
            choice("An operation.", FaultOperation),
            count_max=len(FaultOperation),
        ),
        [],
    ),
    "count": default(nullable(integer("So many times; null: until it is cleared.", 1, 1_000_000)), None),
    "probability": default(number("How probable it is each time.", 0, 1), 1),
    "delay_ms": default(integer("delayed-confirmation: after how long it is told.", 0, DURATION_MS_MAX), 1_000),
}
FAULT: Final = record(
    "A fault that is set.",
    {
        "id": integer("Its number.", 1, NUMBER_MAX),
        **{name: without_default(field) for name, field in FAULT_FIELDS.items()},
        "hit_count": integer("How often it has struck.", 0, NUMBER_MAX),
    },
)
FAULTS: Final = record("Faults that are set.", {"faults": array("The oldest first.", FAULT)})
CLEARED: Final = record("What was cleared.", {"cleared_count": integer("So many faults.", 0, NUMBER_MAX)})
DROPPED: Final = record("What was dropped.", {"dropped_count": integer("So many.", 0, NUMBER_MAX)})
_ENTITY_ONLY: Final = record("Whom it hits.", {"entity": _ENTITY})


def _fault(fault: Fault) -> dict[str, Any]:
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


async def list_faults(call: Call) -> object:
    """All faults that are set."""
    return {"faults": [_fault(each) for each in call.services.faults.table.list()]}


async def add_fault(call: Call) -> object:
    """Set a fault."""
    body = call.body
    kind, operations = FaultKind(body["kind"]), [FaultOperation(each) for each in body["operations"]]
    impossible = [each.value for each in operations if each not in STRIKES[kind]]
    if impossible:
        raise Refused(409, f"{kind} can't strike {', '.join(impossible)}; it strikes {', '.join(STRIKES[kind])}.")
    fault = call.services.faults.table.add(
        kind,
        entity=body["entity"],
        operations=operations,
        count=body["count"],
        probability=body["probability"],
        delay_ms=body["delay_ms"] if kind is FaultKind.DELAYED_CONFIRMATION else 0,
    )
    return _fault(fault)


async def clear_fault(call: Call) -> object:
    """Clear one fault."""
    if not call.services.faults.table.remove(call.path["id"]):
        raise Refused(404, f"No fault {call.path['id']} is set; it may have struck for the last time.")
    return {"cleared_count": 1}


async def clear_faults(call: Call) -> object:
    """Clear all faults."""
    return {"cleared_count": call.services.faults.table.clear()}


async def drop_connections(call: Call) -> object:
    """Cut connections now."""
    return {"dropped_count": call.services.faults.drop_connections_of(call.body["entity"])}


async def drop_links(call: Call) -> object:
    """Detach links now."""
    condition = Condition(call.body["condition"])
    return {"dropped_count": call.services.faults.drop_links_of(call.body["entity"], condition)}


# ---- clock

CLOCK: Final = record(
    "The clock that all of the broker follows: locks, times to live, schedules, windows, sessions, idle deletion.",
    {
        "now_ms": integer("The instant.", 0, NUMBER_MAX),
        "offset_ms": integer("How far it is ahead of the machine's.", -NUMBER_MAX, NUMBER_MAX),
        "is_frozen": boolean("Whether it stands still."),
    },
)


async def show_clock(call: Call) -> object:
    """The clock."""
    clock = call.services.clock
    return {"now_ms": clock.now_ms(), "offset_ms": clock.offset_ms, "is_frozen": clock.is_frozen}


async def advance_clock(call: Call) -> object:
    """Move the clock forward."""
    ms = call.body["ms"]
    if call.services.clock.now_ms() + ms > CLOCK_MS_MAX:
        raise Refused(409, "The clock can't be moved beyond the year 3000.")
    call.services.clock.advance(ms)
    return await show_clock(call)


async def set_frozen(call: Call, *, frozen: bool) -> object:
    """Stop the clock, or let it go on."""
    (call.services.clock.freeze if frozen else call.services.clock.thaw)()
    return await show_clock(call)


ENDPOINTS: Final = (
    Endpoint("GET", "/stores", "The messaging stores and their health", list_stores, STORES),
    Endpoint(
        "POST",
        "/outages",
        "Let messaging stores be out, for a time or until it is lifted (P18)",
        begin_outages,
        STORES,
        body=record(
            "Which stores, and how.",
            {
                "stores": array("The stores.", _STORE_NUMBER, count_min=1, count_max=STORES_MAX),
                **OUTAGE_FIELDS,
            },
        ),
        errors=(404,),
    ),
    Endpoint("DELETE", "/outages", "Let all messaging stores work again", end_outages, STORES),
    Endpoint(
        "PUT",
        "/stores/{store}/outage",
        "Let one messaging store be out",
        begin_outage,
        STORE,
        at={"store": _STORE_NUMBER},
        body=record("How it is out.", OUTAGE_FIELDS),
    ),
    Endpoint(
        "DELETE",
        "/stores/{store}/outage",
        "Let one messaging store work again",
        end_outage,
        STORE,
        at={"store": _STORE_NUMBER},
    ),
    Endpoint("GET", "/faults", "The faults on the wire that are set", list_faults, FAULTS),
    Endpoint(
        "POST",
        "/faults",
        "Set a fault that strikes when clients do something",
        add_fault,
        FAULT,
        body=record("The fault.", FAULT_FIELDS),
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
        "POST",
        "/connections/drop",
        "Cut AMQP connections now, of all clients or of those with a link to an entity",
        drop_connections,
        DROPPED,
        body=_ENTITY_ONLY,
    ),
    Endpoint(
        "POST",
        "/links/drop",
        "Detach AMQP links now, all or those to an entity",
        drop_links,
        DROPPED,
        body=record(
            "Whom it hits, and why.",
            {
                "entity": _ENTITY,
                "condition": default(choice("The AMQP condition.", Condition), Condition.DETACH_FORCED.value),
            },
        ),
    ),
    Endpoint("GET", "/clock", "The clock", show_clock, CLOCK),
    Endpoint(
        "POST",
        "/clock/advance",
        "Move the clock forward; what falls due happens at once",
        advance_clock,
        CLOCK,
        body=record("How far.", {"ms": integer("Milliseconds.", 0, ADVANCE_MS_MAX)}),
        errors=(409,),
    ),
    Endpoint("POST", "/clock/freeze", "Stop the clock; it can still be moved", partial(set_frozen, frozen=True), CLOCK),
    Endpoint(
        "POST", "/clock/thaw", "Let the clock go on from where it stands", partial(set_frozen, frozen=False), CLOCK
    ),
)
