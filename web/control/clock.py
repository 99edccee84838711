"""Endpoints for the broker's clock.

Knows the JSON of the clock. Does not know what moves with it.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from .endpoints import ControlCall, Endpoint
from .message_json import NUMBER_MAX
from .schema import (
    DURATION_MS_MAX,
    boolean,
    integer,
    named,
    record,
)

ADVANCE_MS_MAX: Final = 10 * DURATION_MS_MAX
CLOCK: Final = named(
    "Clock",
    record(
        "The broker's clock. Locks, TTL, schedules, duplicate detection, sessions and AutoDeleteOnIdle follow it.",
        {
            "now_ms": integer("The current instant.", 0, NUMBER_MAX),
            "offset_ms": integer("How far it is ahead of the machine's clock.", -NUMBER_MAX, NUMBER_MAX),
            "is_frozen": boolean("Whether it is frozen."),
        },
    ),
)


async def show_clock(call: ControlCall) -> object:
    clock = call.services.clock
    return {"now_ms": clock.now_ms(), "offset_ms": clock.offset_ms, "is_frozen": clock.is_frozen}


async def advance_clock(call: ControlCall) -> object:
    call.services.clock.advance_instants(call.body.one("ms", int))
    return await show_clock(call)


async def set_frozen(call: ControlCall, *, frozen: bool) -> object:
    (call.services.clock.freeze if frozen else call.services.clock.thaw)()
    return await show_clock(call)


ENDPOINTS: Final = (
    Endpoint("GET", "/clock", "The clock", show_clock, CLOCK),
    Endpoint(
        "POST",
        "/clock/advance",
        "Move the clock forward; timers that fall due run at once",
        advance_clock,
        CLOCK,
        body=record("How far.", {"ms": integer("Milliseconds.", 0, ADVANCE_MS_MAX)}),
        errors=(409,),
        example={"ms": 60_000},
    ),
    Endpoint(
        "POST",
        "/clock/freeze",
        "Freeze the clock; it can still be advanced",
        partial(set_frozen, frozen=True),
        CLOCK,
        id="freeze_clock",
    ),
    Endpoint(
        "POST",
        "/clock/thaw",
        "Thaw the clock; it goes on from where it stands",
        partial(set_frozen, frozen=False),
        CLOCK,
        id="thaw_clock",
    ),
)
