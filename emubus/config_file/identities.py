"""Identities and their roles in a Config.json: an extension beside the shared keys of the namespace.

Knows their properties, reads and writes them. Does not know what a role opens (`broker/roles.py`), or when a secret is
asked for (`broker/directory.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from typing import Final

from ..broker.directory import KnownIdentity, certificate_problem
from ..broker.errors import BrokerError
from ..broker.roles import Principal, Role, RoleAssignment
from .cursor import ConfigFileError, Cursor, Members, items_of, json_of

IDENTITIES: Final = "Identities"
"""The member of the namespace."""
PROPERTIES: Final = ("ClientId", "ObjectId", "ResourceId", "Secret", "Certificate", "Roles")
ROLE_PROPERTIES: Final = ("Role", "Entity")


class IdentityReader:
    """Reads the identities of a namespace; `check` comes when all entities are known."""

    def __init__(self) -> None:
        self.identities: list[KnownIdentity] = []
        self.roles: list[RoleAssignment] = []
        self._entities: list[tuple[Cursor, RoleAssignment]] = []

    def read(self, members: Members) -> None:
        """Note every mistake and keep the rest."""
        for cursor in items_of(members, IDENTITIES):
            with suppress(ConfigFileError):  # it is noted
                self._identity(cursor)

    def check(self, paths: Collection[str]) -> None:
        """Note the entities of roles that are not among the paths of entities, in compared form."""
        for cursor, role in self._entities:
            if role.entity not in paths:
                hint = cursor.hint(role.entity, paths)
                cursor.note(f"is {json_of(cursor.text())}; there is no queue, topic or subscription of that name{hint}")

    def _identity(self, cursor: Cursor) -> None:
        parts = cursor.members(PROPERTIES, required=["ClientId"])
        client_id = _principal(parts["ClientId"])
        if any(each.client_id.lower() == client_id for each in self.identities):
            parts["ClientId"].fail(f"is {json_of(parts['ClientId'].text())}; another identity has that client id")
        ids = {name: _principal(parts[name]) for name in ("ObjectId", "ResourceId") if name in parts}
        secret = parts["Secret"].optional_text() if "Secret" in parts else None
        certificate = parts["Certificate"].optional_text() if "Certificate" in parts else None
        if certificate is not None:
            problem = certificate_problem(certificate)
            if problem is not None:
                parts["Certificate"].fail(problem)
        self.identities.append(
            KnownIdentity(client_id, secret, certificate, ids.get("ObjectId"), ids.get("ResourceId"))
        )
        for each in items_of(parts, "Roles"):
            with suppress(ConfigFileError):
                self._role(each, client_id)

    def _role(self, cursor: Cursor, client_id: Principal) -> None:
        parts = cursor.members(ROLE_PROPERTIES, required=["Role"])
        try:
            role = Role.parse(parts["Role"].text())
        except BrokerError as error:
            parts["Role"].fail(error.description)
        entity = parts["Entity"].text() if "Entity" in parts else ""
        found = RoleAssignment.parse(client_id, role, entity)
        self.roles.append(found)
        if found.entity:
            self._entities.append((parts["Entity"], found))


def _principal(cursor: Cursor) -> Principal:
    try:
        return Principal(cursor.text())
    except BrokerError as error:
        cursor.fail(error.description)


def identities_json(identities: Sequence[KnownIdentity], roles: Iterable[RoleAssignment]) -> list[dict[str, object]]:
    """Identities and roles as `IdentityReader` reads them; a role of somebody else makes an identity."""
    by_principal: dict[str, list[RoleAssignment]] = {}
    for each in roles:
        by_principal.setdefault(each.principal, []).append(each)
    found: list[dict[str, object]] = []
    for known in identities:
        own = [each for name in known.identity().principals for each in by_principal.pop(name, ())]
        values = (known.client_id, known.object_id, known.resource_id, known.secret, known.certificate)
        written: dict[str, object] = {
            name: value for name, value in zip(PROPERTIES, values, strict=False) if value is not None
        }
        found.append({**written, **_roles_json(own)})
    for principal, own in by_principal.items():
        found.append({"ClientId": principal, **_roles_json(own)})
    return found


def _roles_json(roles: Iterable[RoleAssignment]) -> dict[str, object]:
    rows = [{"Role": each.role.value, **({"Entity": each.entity} if each.entity else {})} for each in sorted(roles)]
    return {"Roles": rows} if rows else {}
