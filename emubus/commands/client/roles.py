"""`emubus role`: list, assign and remove the roles of identities."""

from __future__ import annotations

from urllib.parse import urlencode

from ...broker.errors import BrokerError
from ...broker.roles import Role, RoleAssignment
from ...exits import EXIT_OK
from ...options import ConfigError
from ..declaring import Command, Parsed
from .address import add_server_options
from .api import connect
from .output import add_json, show, table

NOT_COUNTED = "Clients need no roles: the server runs without --auth rbac."


def add_role(parser: Command) -> None:
    parser.argument(
        "action",
        nargs="?",
        known=["list", "assign", "remove"],
        default="list",
        metavar="ACTION",
        help="list (default), assign or remove",
    )
    parser.argument("identity", nargs="?", metavar="IDENTITY", help="client id, object id or id of the resource")
    parser.argument("role", nargs="?", metavar="ROLE", help=", ".join(each.short for each in Role))
    parser.argument("entity", nargs="?", metavar="ENTITY", help="default: the whole namespace")
    add_json(parser)
    add_server_options(parser)
    parser.run = _role


def _role(parsed: Parsed) -> int:
    if (parsed.role is None) != (parsed.action == "list") or (parsed.action == "list" and parsed.identity is not None):
        raise ConfigError("`emubus role assign` and `emubus role remove` need an IDENTITY and a ROLE; list has neither")
    if parsed.action == "list":
        with connect(parsed) as api:
            answer = api.get("/roles")
        rows = [[each["identity"], each["role"], each["entity"] or "(the namespace)"] for each in answer.parts("roles")]
        lines = table(["IDENTITY", "ROLE", "ENTITY"], rows)
        show(parsed, answer, lines if answer["count_for_clients"] else [*lines, NOT_COUNTED])
        return EXIT_OK
    assert parsed.identity is not None, "a role stands behind an identity"
    try:
        asked = RoleAssignment.parse(parsed.identity, parsed.role, parsed.entity)
    except BrokerError as error:
        raise ConfigError(error.description) from None
    values = {"identity": parsed.identity, "role": parsed.role, **({"entity": parsed.entity} if parsed.entity else {})}
    with connect(parsed) as api:
        if parsed.action == "assign":
            answer = api.post("/roles", values)
        else:
            answer = api.call("DELETE", f"/roles?{urlencode(values)}")
    where = asked.entity or "the whole namespace"
    what = "has the role" if parsed.action == "assign" else "no longer has the role"
    show(parsed, answer, [f"{asked.principal} {what} {asked.role} on {where}"])
    return EXIT_OK
