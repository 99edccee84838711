"""Endpoints for the roles of identities.

Knows the JSON of an assignment. Does not know what a role opens, or when roles count (`broker/access.py`).
"""

from __future__ import annotations

from typing import Final

from ...broker.roles import Principal, Role, RoleAssignment
from .endpoints import ControlCall, ControlRefusal, Endpoint
from .schema import array, boolean, choice, default, named, nullable, record, text

_ASKED: Final = {
    "identity": text(
        "Client id, object id or id of the resource of an identity.",
        chars_min=1,
        chars_max=Principal.CHARS_MAX,
        pattern="[!-~]+",
    ),
    "role": choice("Name of the role, or the last word of it.", [*Role, *(each.short for each in Role)]),
    "entity": default(
        nullable(text("Path of a queue, topic or subscription; null: the whole namespace.", chars_max=400)), None
    ),
}
ASSIGNMENT: Final = named(
    "RoleAssignment",
    record(
        "A role of an identity.",
        {
            "identity": text("The identity, in lower case.", chars_max=Principal.CHARS_MAX),
            "role": choice("The role.", [*Role]),
            "entity": nullable(text("The entity, in lower case; null: the whole namespace.")),
        },
    ),
)
ASSIGNMENTS: Final = named(
    "RoleAssignments",
    record(
        "Roles of identities.",
        {
            "count_for_clients": boolean("Whether clients need them: with --auth rbac."),
            "roles": array("By identity, role and entity.", ASSIGNMENT),
        },
    ),
)


def _role_json(each: RoleAssignment) -> dict[str, object]:
    return {"identity": str(each.principal), "role": each.role.value, "entity": each.entity or None}


async def list_roles(call: ControlCall) -> object:
    services = call.services
    return {
        "count_for_clients": services.access.roles is not None,
        "roles": [_role_json(each) for each in services.roles.list()],
    }


async def assign_role(call: ControlCall) -> object:
    asked = call.body
    found = RoleAssignment.parse(asked.one("identity", str), asked.one("role", str), asked.optional("entity", str))
    await call.services.roles.assign(found)
    return _role_json(found)


async def remove_role(call: ControlCall) -> object:
    asked = call.query
    identity, role = asked.optional("identity", str), asked.optional("role", str)
    if identity is None or role is None:
        raise ControlRefusal(400, "The query needs identity and role: whose role, and which, is taken away.")
    found = RoleAssignment.parse(identity, role, asked.optional("entity", str))
    await call.services.roles.remove(found)
    return _role_json(found)


ENDPOINTS: Final = (
    Endpoint("GET", "/roles", "The roles of identities", list_roles, ASSIGNMENTS),
    Endpoint(
        "POST",
        "/roles",
        "Assign a role to an identity; nothing changes if it has it",
        assign_role,
        ASSIGNMENT,
        body=record("Who, what and where.", _ASKED),
        errors=(404, 409),
        example={"identity": "11111111-2222-3333-4444-555555555555", "role": "sender", "entity": "orders"},
    ),
    Endpoint(
        "DELETE",
        "/roles",
        "Take a role away; links that need it are detached",
        remove_role,
        ASSIGNMENT,
        query=_ASKED,
        errors=(404,),
    ),
)
