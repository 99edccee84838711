"""Endpoints for messaging stores and their outages (P18).

Knows the JSON of a store and of an outage. Does not know what an outage does.
"""

from __future__ import annotations

from typing import Final

from ...broker.admin import figures
from ...broker.admin.figures import MessagingStoreReport
from ...broker.api import Outage, OutageKind
from .endpoints import ControlCall, Endpoint
from .message_json import NUMBER_MAX
from .schema import DURATION_MS_MAX, array, choice, default, integer, named, nullable, record, text

STORES_MAX: Final = 64
OUTAGE_FIELDS: Final = {
    "kind": choice(
        "down: it answers nothing; slow: commits take longer; failing: commits fail; full: it takes no more.",
        OutageKind,
    ),
    "delay_ms": default(integer("slow: added duration of a commit.", 0, DURATION_MS_MAX), 1_000),
    "duration_ms": default(nullable(integer("Duration; null: until it is ended.", 1, DURATION_MS_MAX)), None),
}
_STORE_NUMBER: Final = integer("A messaging store.", 0, STORES_MAX - 1)
STORE: Final = named(
    "Store",
    record(
        "A messaging store.",
        {
            "store": _STORE_NUMBER,
            "health": choice("Health of the store.", ["available", *OutageKind]),
            "cause": nullable(text("Of health failing without a simulated outage: what its disk says.")),
            "delay_ms": nullable(integer("slow: added duration of a commit.", 0, DURATION_MS_MAX)),
            "commit_count": integer("Commits since the start.", 0, NUMBER_MAX),
            "failed_commit_count": integer("Failed commits.", 0, NUMBER_MAX),
        },
    ),
)
STORES: Final = named("Stores", record("Messaging stores.", {"stores": array("Ordered by number.", STORE)}))


def _store(report: MessagingStoreReport) -> dict[str, object]:
    outage = report.outage
    return {
        "store": report.store,
        "health": report.health,
        "cause": None if report.failure is None else report.failure.cause,
        "delay_ms": outage.delay_ms if outage is not None and outage.kind is OutageKind.SLOW else None,
        "commit_count": report.commit_count,
        "failed_commit_count": report.failed_commit_count,
    }


async def list_stores(call: ControlCall) -> object:
    return {"stores": [_store(each) for each in figures.stores(call.services.broker.namespace)]}


def _begin(call: ControlCall, numbers: list[int]) -> None:
    kind = OutageKind(call.body.one("kind", str))
    outage = Outage(kind, call.body.one("delay_ms", int) if kind is OutageKind.SLOW else 0)
    call.services.broker.outages.check_stores(numbers)
    for each in numbers:
        call.services.broker.outages.begin(each, outage, call.body.optional("duration_ms", int))


async def begin_outages(call: ControlCall) -> object:
    _begin(call, call.body.list_of("stores", int))
    return await list_stores(call)


async def begin_outage(call: ControlCall) -> object:
    index = call.path.one("store", int)
    _begin(call, [index])
    return _store(figures.store(call.services.broker.namespace, index))


async def end_outages(call: ControlCall) -> object:
    for each in figures.stores(call.services.broker.namespace):
        call.services.broker.outages.end(each.store)
    return await list_stores(call)


async def end_outage(call: ControlCall) -> object:
    index = call.path.one("store", int)
    call.services.broker.outages.end(index)
    return _store(figures.store(call.services.broker.namespace, index))


ENDPOINTS: Final = (
    Endpoint("GET", "/stores", "The messaging stores and their health", list_stores, STORES),
    Endpoint(
        "POST",
        "/outages",
        "Begin an outage of messaging stores, for a time or until it is ended (P18)",
        begin_outages,
        STORES,
        body=record(
            "The stores and the outage.",
            {
                "stores": array("The stores.", _STORE_NUMBER, count_min=1, count_max=STORES_MAX),
                **OUTAGE_FIELDS,
            },
        ),
        errors=(404,),
        example={"stores": [3], "kind": "slow", "delay_ms": 2_000, "duration_ms": 60_000},
    ),
    Endpoint("DELETE", "/outages", "End all outages", end_outages, STORES),
    Endpoint(
        "PUT",
        "/stores/{store}/outage",
        "Begin an outage of one messaging store",
        begin_outage,
        STORE,
        at={"store": _STORE_NUMBER},
        body=record("The outage.", OUTAGE_FIELDS),
        example={"kind": "slow", "delay_ms": 1_000, "duration_ms": 60_000},
    ),
    Endpoint(
        "DELETE",
        "/stores/{store}/outage",
        "End the outage of one messaging store",
        end_outage,
        STORE,
        at={"store": _STORE_NUMBER},
    ),
)
