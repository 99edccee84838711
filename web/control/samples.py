"""The endpoint for figures over time."""

from __future__ import annotations

from typing import Final

from ...broker.admin.overview import Overview
from ...telemetry.sampler import OF_NAMESPACE
from ...telemetry.series import SPANS
from .endpoints import ControlCall, Endpoint
from .schema import array, choice, default, integer, mapping, named, nullable, record, text

FIGURE: Final = nullable({"type": "number", "description": "A figure; null: there is no sample."})
SAMPLES: Final = named(
    "Samples",
    record(
        "Samples, the oldest first; the last one is of now.",
        {
            "span": choice("The time that they cover.", SPANS),
            "slot_s": integer("Seconds from one sample to the next.", 1, 3_600),
            "figures": mapping(
                f"Samples by figure: {', '.join(OF_NAMESPACE)}. Empty for an entity that was not used lately.",
                array("The samples.", FIGURE),
            ),
        },
    ),
)


async def show_samples(call: ControlCall) -> object:
    """The samples of the namespace or of an entity."""
    path, span, sampler = call.query.optional("entity", str), call.query.one("span", str), call.services.sampler
    if path is not None:
        path = Overview(call.services.broker.namespace).entity(path).path
    return {"span": span, "slot_s": SPANS[span].slot_s, "figures": sampler.samples(path, span)}


ENDPOINTS: Final = (
    Endpoint(
        "GET",
        "/samples",
        "Messages in and out, depth, refusals, expired locks and commit times over time",
        show_samples,
        SAMPLES,
        query={
            "entity": text("Path of an entity; without it the samples are those of the namespace.", chars_min=1),
            "span": default(choice("The time to look back.", SPANS), "5m"),
        },
        errors=(404,),
        answers={"span": "5m", "slot_s": 1, "figures": {"in": [None, 0, 120.5], "out": [None, 0, 118]}},
    ),
)
