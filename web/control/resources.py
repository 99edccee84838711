"""The endpoint that applies declared resources, as `emubus import` sends them.

Knows their JSON. Does not know what becomes of one (`declared/applying.py`).
"""

from __future__ import annotations

from typing import Final

from ...declared.applying import Result, Status
from ...declared.resources import PATH_LENGTHS, Declared, Kind, LeftOut, Origin, Resources
from ..applying import apply_resources
from ..json_object import JsonObject
from .endpoints import ControlCall, Endpoint
from .message_json import NUMBER_MAX
from .schema import anything, array, boolean, choice, default, integer, mapping, named, nullable, record, text

BYTES_MAX: Final = 16 << 20
"""Ten thousand entities with everything they may have: user metadata of a kilobyte, rules."""
VALUES_MAX: Final = 1_000_000
"""Ten thousand entities with a hundred values each: two seconds of reading on a thread."""
_NAME_CHARS_MAX: Final = 1_024

_ORIGIN: Final = named(
    "Origin",
    record(
        "Where a resource is written, for messages.",
        {
            "file": text("The file."),
            "line": nullable(integer("Its line.", 1, NUMBER_MAX)),
            "path": text("The JSON path within it.", chars_max=4_096),
        },
    ),
)
_RESOURCE: Final = named(
    "DeclaredResource",
    record(
        "A resource as ARM has it.",
        {
            "kind": choice("What it is.", Kind),
            "path": array(
                "Its names within the namespace: of a rule those of topic, subscription and rule.",
                text("A name.", chars_min=1, chars_max=_NAME_CHARS_MAX),
            ),
            "properties": mapping("The properties of ARM's resource; null is absent.", anything("A value.")),
            "namespace": default(text("The name of its namespace, if it is known."), ""),
            "origin": _ORIGIN,
        },
        optional=("origin",),
    ),
)
_RESULT: Final = named(
    "AppliedResource",
    record(
        "What became of a resource.",
        {
            "status": choice("What was done.", Status),
            "what": text("Kind and path.", chars_max=BYTES_MAX),
            "path": text("The path of a queue, topic or subscription; empty of the others.", chars_max=BYTES_MAX),
            "why": text("In what it changed, or why it was not applied.", chars_max=BYTES_MAX),
            "origin": text("Where it is written.", chars_max=BYTES_MAX),
            "notes": array("Its parts that have no meaning here.", text("A part.", chars_max=BYTES_MAX)),
        },
    ),
)
APPLIED: Final = named("AppliedResources", record("What was done.", {"results": array("In their order.", _RESULT)}))
BODY: Final = record(
    "Resources.",
    {
        "resources": array("In any order.", _RESOURCE),
        "whole_rules": default(
            boolean("Whether a subscription whose rules are declared has no others afterwards."), False
        ),
        "sets_targets": default(
            boolean("Whether to set what entities forward to; else it stays, or is none of new ones."), True
        ),
    },
)


def resource_json(declared: Declared) -> dict[str, object]:
    origin = {"file": declared.origin.file, "line": declared.origin.line, "path": declared.origin.path}
    return {
        "kind": declared.kind.value,
        "path": list(declared.path),
        "properties": dict(declared.properties),
        "namespace": declared.namespace,
        "origin": origin,
    }


def result_json(result: Result) -> dict[str, object]:
    return {
        "status": result.status.value,
        "what": result.what,
        "path": result.path,
        "why": result.why,
        "origin": str(result.origin),
        "notes": list(result.notes),
    }


def _resource_in(given: JsonObject) -> Declared | LeftOut:
    """The resource, or why it is none: its path has another number of names."""
    kind, path = Kind(given.one("kind", str)), tuple(given.list_of("path", str))
    place = given.object_of("origin")
    origin = Origin(place.optional("file", str) or "", place.optional("line", int), place.optional("path", str) or "")
    if len(path) in PATH_LENGTHS[kind]:
        return Declared(kind, path, given.object_of("properties"), origin, given.one("namespace", str))
    allowed = " or ".join(map(str, PATH_LENGTHS[kind]))
    what = f"{kind} {'/'.join(path)}".rstrip()
    return LeftOut(what, f"its path has {len(path)} names; it must have {allowed}", origin=origin)


async def apply_declared(call: ControlCall) -> object:
    read = [_resource_in(each) for each in call.body.objects_of("resources")]
    results = await apply_resources(
        call.services,
        f"import from {call.request.remote}",
        Resources(
            tuple(each for each in read if isinstance(each, Declared)),
            tuple(each for each in read if isinstance(each, LeftOut)),
        ),
        whole_rules=call.body.one("whole_rules", bool),
        sets_targets=call.body.one("sets_targets", bool),
    )
    return {"results": [result_json(each) for each in results]}


ENDPOINTS: Final = (
    Endpoint(
        "POST",
        "/resources",
        "Create or update what resources of ARM declare; each has a result, and is judged alone",
        apply_declared,
        APPLIED,
        body=BODY,
        body_bytes_max=BYTES_MAX,
        body_values_max=VALUES_MAX,
        example={"resources": [{"kind": "queue", "path": ["orders"], "properties": {"maxDeliveryCount": 5}}]},
    ),
)
