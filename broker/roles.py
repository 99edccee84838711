"""Who may do what: roles of identities, and the principals that have them.

An identity is known by several texts: its client id, its object id, the id of its resource. A role may be assigned to
any of them, so that a test can use the one that its program is configured with. Does not know tokens (`tokens.py`) or
connections. Owned by the namespace's `Access`.

The rights of a role are those of the service's built-in ones [SB: service-bus-managed-service-identity]. The list is
replaced as a whole and kept before it counts: nothing is answered that a restart would take back.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from enum import StrEnum
from typing import Final
from unicodedata import category

from .address import parse_address
from .errors import BrokerError, Condition
from .keys import ALL_RIGHTS, Right
from .lazy_dataclass import dataclass
from .names import excerpt

ASSIGNMENTS_MAX: Final = 4_000
"""As in a subscription of Azure [docs: role-based-access-control, limits]."""


class Role(StrEnum):
    """A built-in role of the service, or of all of Azure: *Contributor* manages resources and opens no messages."""

    SENDER = "Azure Service Bus Data Sender"
    RECEIVER = "Azure Service Bus Data Receiver"
    OWNER = "Azure Service Bus Data Owner"
    CONTRIBUTOR = "Contributor"

    @property
    def rights(self) -> frozenset[Right]:
        return _RIGHTS[self]

    @property
    def short(self) -> str:
        """The word that people type: sender, receiver, owner, contributor."""
        return self.value.rpartition(" ")[2].lower()

    @property
    def definition_id(self) -> str:
        """The id of its definition, the same in all of Azure [docs: built-in-roles]."""
        return _DEFINITIONS[self]

    @classmethod
    def parse(cls, text: str) -> Role:
        """A role by its name, the last word of it, or the id of its definition, in any case. BrokerError."""
        wanted = text.strip().lower().rpartition("/")[2]
        for role in cls:
            if wanted in (role.value.lower(), f"data {role.short}", role.short, role.definition_id):
                return role
        raise BrokerError(
            Condition.ARGUMENT_ERROR,
            f"{excerpt(text)} is no role; the roles are {', '.join(f'{each.short} ({each})' for each in cls)}.",
        )


_RIGHTS: Final[Mapping[Role, frozenset[Right]]] = {
    Role.SENDER: frozenset({Right.SEND}),
    Role.RECEIVER: frozenset({Right.LISTEN}),
    Role.OWNER: ALL_RIGHTS,
    Role.CONTRIBUTOR: frozenset(),
}
"""What each may do with messages and by the administration of its namespace."""
_DEFINITIONS: Final[Mapping[Role, str]] = {
    Role.SENDER: "69a216fc-b8fb-44d8-bc22-1f3c2cd27a39",
    Role.RECEIVER: "4f6d3b9b-027b-4f4c-9142-0e5a2a2247e0",
    Role.OWNER: "090c5cfd-751d-490a-894a-3ce6f1109419",
    Role.CONTRIBUTOR: "b24988ac-6180-42a0-ab88-20f7382dd24c",
}
assert set(_RIGHTS) == set(_DEFINITIONS) == set(Role)


class Principal(str):
    """A client id, an object id or the id of a resource, in the form that is compared."""

    __slots__ = ()

    CHARS_MAX: Final = 400

    def __new__(cls, text: str) -> Principal:
        found = text.strip().lower()
        if not 1 <= len(found) <= cls.CHARS_MAX or any(
            each.isspace() or category(each) in ("Cc", "Cs", "Cf") for each in found
        ):
            raise BrokerError(
                Condition.ARGUMENT_ERROR,
                f"{excerpt(text)} can't name an identity: give its client id, such as "
                f"11111111-2222-3333-4444-555555555555, its object id or the id of its resource; a name has 1 to "
                f"{cls.CHARS_MAX} characters without blanks.",
            )
        return super().__new__(cls, found)


@dataclass(frozen=True, slots=True, order=True)
class RoleAssignment:
    """A role of a principal on an entity and what is below it; `entity` "" is the whole namespace."""

    principal: Principal
    role: Role
    entity: str = ""

    @classmethod
    def parse(cls, principal: str, role: str, entity: str | None = None) -> RoleAssignment:
        """Of texts as people write them. BrokerError (argument-error) for the first that is wrong."""
        return cls(Principal(principal), Role.parse(role), parse_address(entity or "").key)

    def covers(self, path: str) -> bool:
        """Whether it applies to an entity path in compared form."""
        return not self.entity or path == self.entity or path.startswith(f"{self.entity}/subscriptions/")


class Roles:
    """The assignments of a namespace.

    `keep(data)` stores the list durably, or raises BrokerError; `changed()` is called after each change. `exists(path)`
    says whether there is an entity: a role on a misspelt one would be noticed much later.
    """

    def __init__(
        self,
        assignments: Iterable[RoleAssignment] = (),
        *,
        keep: Callable[[bytes], Awaitable[None]] | None = None,
        changed: Callable[[], None] = lambda: None,
        exists: Callable[[str], bool] = lambda _: True,
    ) -> None:
        self._assignments = frozenset(assignments)
        self._by_principal = _by_principal(self._assignments)
        self._keep = keep
        self._changed = changed
        self._exists = exists
        self._turn = asyncio.Lock()

    def list(self) -> list[RoleAssignment]:
        """All assignments, by principal, role and entity."""
        return sorted(self._assignments)

    def held(self, principals: Collection[str], path: str) -> frozenset[Role]:
        """The roles of an identity on an entity path in compared form; "" is the namespace."""
        assigned = (each for principal in principals for each in self._by_principal.get(principal, ()))
        return frozenset(each.role for each in assigned if each.covers(path))

    def rights(self, principals: Collection[str], path: str) -> frozenset[Right]:
        """The rights of an identity on an entity path in compared form."""
        found: frozenset[Right] = frozenset()
        for role in self.held(principals, path):
            found |= role.rights
        return found

    def know(self, principals: Collection[str]) -> bool:
        """Whether an identity has any role that gives a right."""
        assigned = (each for principal in principals for each in self._by_principal.get(principal, ()))
        return any(each.role.rights for each in assigned)

    async def assign(self, assignment: RoleAssignment) -> bool:
        """Assign a role; whether that is new. BrokerError: not-found, resource-limit-exceeded, server-busy."""
        async with self._turn:
            if assignment in self._assignments:
                return False
            if assignment.entity and not self._exists(assignment.entity):
                raise BrokerError(
                    Condition.NOT_FOUND,
                    f"There is no queue, topic or subscription {excerpt(assignment.entity)} to assign a role on: "
                    "create it first, or leave the entity out for the whole namespace.",
                )
            if len(self._assignments) >= ASSIGNMENTS_MAX:
                raise BrokerError(
                    Condition.RESOURCE_LIMIT_EXCEEDED,
                    f"There are {len(self._assignments)} role assignments; allowed are {ASSIGNMENTS_MAX}: "
                    "remove one first.",
                )
            await self._replace(self._assignments | {assignment})
            return True

    async def remove(self, assignment: RoleAssignment) -> None:
        """Take a role away. BrokerError: not-found, server-busy."""
        async with self._turn:
            if assignment not in self._assignments:
                raise BrokerError(
                    Condition.NOT_FOUND,
                    f"{excerpt(assignment.principal)} does not have the role {assignment.role} on "
                    f"{excerpt(assignment.entity) if assignment.entity else 'the namespace'}; "
                    "`emubus role list` shows the roles that there are.",
                )
            await self._replace(self._assignments - {assignment})

    async def _replace(self, assignments: frozenset[RoleAssignment]) -> None:
        if self._keep is not None:
            await self._keep(written(assignments))
        self._assignments = assignments
        self._by_principal = _by_principal(assignments)
        self._changed()


def written(assignments: Iterable[RoleAssignment]) -> bytes:
    """Assignments as they are kept, which `read_assignments` reads back."""
    rows = [
        {"principal": each.principal, "role": each.role.value, "entity": each.entity} for each in sorted(assignments)
    ]
    return json.dumps({"roles": rows}, indent=1).encode()


def read_assignments(data: bytes) -> list[RoleAssignment]:
    """What `written` has made. ValueError if it is something else; no data are no assignments."""
    if not data:
        return []
    try:
        rows = json.loads(data)["roles"]
        return [RoleAssignment.parse(each["principal"], each["role"], each["entity"]) for each in rows]
    except (KeyError, TypeError, AttributeError, BrokerError, UnicodeDecodeError) as error:
        raise ValueError(str(error)) from error


def _by_principal(assignments: Iterable[RoleAssignment]) -> dict[str, list[RoleAssignment]]:
    found: dict[str, list[RoleAssignment]] = {}
    for each in assignments:
        found.setdefault(each.principal, []).append(each)
    return found
