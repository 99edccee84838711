"""Roles of identities: their names, what they cover, how they are kept and refused."""

from __future__ import annotations

import pytest

from emubus.broker.errors import BrokerError, Condition
from emubus.broker.keys import ALL_RIGHTS, Right
from emubus.broker.roles import Principal, Role, RoleAssignment, Roles, read_assignments, written

OWNER = RoleAssignment.parse("a", "owner")


@pytest.mark.parametrize("role", Role)
def test_a_role_has_several_names(role: Role) -> None:
    definition = f"/subscriptions/s/providers/Microsoft.Authorization/roleDefinitions/{role.definition_id}"
    for text in (role.value, role.value.upper(), role.short, f"Data {role.short}", role.definition_id, definition):
        assert Role.parse(text) is role


@pytest.mark.parametrize("text", ["", "reader", "Owner of all", "Azure Event Hubs Data Owner"])
def test_what_is_no_role_is_refused_with_those_that_there_are(text: str) -> None:
    with pytest.raises(
        BrokerError, match=r"is no role; the roles are sender \(Azure Service Bus Data Sender\), receiver"
    ):
        Role.parse(text)


def test_the_rights_of_a_role_are_those_of_the_service() -> None:
    assert {role.short: role.rights for role in Role} == {
        "sender": {Right.SEND},
        "receiver": {Right.LISTEN},
        "owner": ALL_RIGHTS,
        "contributor": set(),
    }


@pytest.mark.parametrize("text", ["", " ", "a b", "a\nb", "x" * 401, "a\u202eb", "\ud800"])
def test_what_can_t_name_an_identity_is_refused(text: str) -> None:
    with pytest.raises(BrokerError, match="can't name an identity: give its client id") as raised:
        Principal(text)
    assert raised.value.condition is Condition.ARGUMENT_ERROR


@pytest.mark.parametrize(
    ("entity", "covered", "not_covered"),
    [
        (None, ["", "q", "t/subscriptions/s"], []),
        ("sb://h/Q/", ["q"], ["", "q2", "q/more"]),
        ("t", ["t", "t/subscriptions/s"], ["t2", "t2/subscriptions/s"]),
        ("t/Subscriptions/S", ["t/subscriptions/s"], ["t", "t/subscriptions/s2"]),
    ],
)
def test_a_role_covers_an_entity_and_its_subscriptions(
    entity: str | None, covered: list[str], not_covered: list[str]
) -> None:
    found = RoleAssignment.parse("A", "owner", entity)
    assert [path for path in (*covered, *not_covered) if found.covers(path)] == covered


async def test_assignments_are_kept_before_they_count() -> None:
    kept: list[bytes] = []
    changes: list[None] = []

    async def keep(data: bytes) -> None:
        assert len(roles.list()) == len(kept)  # it does not count yet
        kept.append(data)

    roles = Roles(keep=keep, changed=lambda: changes.append(None))
    assert await roles.assign(OWNER)
    assert not await roles.assign(RoleAssignment.parse(" A ", "Azure Service Bus Data Owner", "/"))  # it is the same
    assert (len(kept), len(changes)) == (1, 1)
    assert read_assignments(kept[0]) == roles.list() == [OWNER]
    roles = Roles(read_assignments(kept[0]), keep=None)
    await roles.remove(OWNER)
    assert roles.list() == []


async def test_an_assignment_that_can_t_be_kept_does_not_count() -> None:
    async def keep(data: bytes) -> None:
        raise BrokerError(Condition.SERVER_BUSY, "roles.json can't be written: No space left on device.")

    roles = Roles([OWNER], keep=keep)
    for change in (roles.remove(OWNER), roles.assign(RoleAssignment.parse("b", "sender"))):
        with pytest.raises(BrokerError, match="No space left"):
            await change
    assert roles.list() == [OWNER]


async def test_what_can_t_be_assigned_or_removed_is_named() -> None:
    roles = Roles(exists=lambda path: path == "q")
    await roles.assign(RoleAssignment.parse("a", "sender", "Q"))
    with pytest.raises(BrokerError, match="no queue, topic or subscription 'q2' to assign a role on") as raised:
        await roles.assign(RoleAssignment.parse("a", "sender", "q2"))
    assert raised.value.condition is Condition.NOT_FOUND
    with pytest.raises(BrokerError, match="'a' does not have the role Azure Service Bus Data Owner on the namespace"):
        await roles.remove(OWNER)


async def test_there_are_as_many_assignments_as_in_a_subscription_of_azure() -> None:
    roles = Roles(RoleAssignment.parse(f"id-{number}", "owner") for number in range(4_000))
    with pytest.raises(
        BrokerError, match="There are 4000 role assignments; allowed are 4000: remove one first"
    ) as raised:
        await roles.assign(OWNER)
    assert raised.value.condition is Condition.RESOURCE_LIMIT_EXCEEDED


@pytest.mark.parametrize(
    "data", [b"[]", b"{}", b"{", b"\xff", b'{"roles": [{}]}', written([OWNER]).replace(b"Owner", b"X")]
)
def test_a_damaged_file_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        read_assignments(data)
