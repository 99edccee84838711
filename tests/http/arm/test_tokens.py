"""Tokens of identities at the endpoint: which are believed, and what each role opens."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlencode

import pytest

from emubus.broker.roles import Role, RoleAssignment
from emubus.testing import Auth, EmubusServer, QueueDescription, SubscriptionDescription, TopicDescription
from emubus.web.arm.calls import Operation
from emubus.web.arm.rights import ACTIONS, action_of
from emubus.web.arm.table import OPERATIONS

from .client import NAMESPACES, ROOT, WAIT_S, Arm
from .test_namespaces import GROUPS, ROOT_KEY
from .test_requests import path_of

ARM_RESOURCE = "https://management.azure.com/"
FIRST = f"{ROOT}/resourceGroups/emubus/providers/Microsoft.ServiceBus/namespaces/sbemulatorns"
ENTITIES = (QueueDescription("q"), QueueDescription("q2"), TopicDescription("t"), SubscriptionDescription("t", "s"))


def token_of(server: EmubusServer, client_id: str = "me", resource: str = ARM_RESOURCE, key: str = "any") -> str:
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=WAIT_S)
    query = urlencode({"resource": resource, "client_id": client_id, "api-version": "2019-08-01"})
    connection.request("GET", f"/msi/token?{query}", headers={"X-IDENTITY-HEADER": key})
    answer = json.loads(connection.getresponse().read())
    connection.close()
    return str(answer["access_token"])


def arm_of(server: EmubusServer, client_id: str, resource: str = ARM_RESOURCE) -> Arm:
    return Arm(server.http_port, f"Bearer {token_of(server, client_id, resource)}")


# ---------------------------------------------------------------- which are believed


@pytest.fixture(scope="module")
def locked() -> Iterator[EmubusServer]:
    with EmubusServer(ENTITIES, auth=Auth.SAS) as running:
        yield running


@pytest.mark.parametrize(
    "resource",
    [
        "https://management.azure.com/",
        "https://management.core.windows.net/",
        "http://127.0.0.1:1",
        "https://127.0.0.1/",
    ],
)
def test_a_token_that_this_server_has_signed_is_believed(locked: EmubusServer, resource: str) -> None:
    with arm_of(locked, "me", resource) as arm:
        assert arm("GET", f"{FIRST}/queues/q")[0] == 200
        assert arm("PUT", f"{FIRST}/queues/made", {})[0] == 200
        assert arm("DELETE", f"{FIRST}/queues/made")[0] == 200
        assert arm("GET", "/subscriptions", version=GROUPS)[0] == 200


Header = Callable[[EmubusServer], str | None]
EXPIRED = "The access token expiry UTC time '"


def forged(server: EmubusServer) -> str:
    head, claims, _ = token_of(server).split(".")
    return f"Bearer {head}.{claims}.{'A' * 342}"


def of_another(_: EmubusServer) -> str:
    with EmubusServer() as other:
        return f"Bearer {token_of(other)}"


BAD: dict[str, tuple[Header, str, str]] = {
    "nothing": (lambda _: None, "AuthenticationFailed", "The 'Authorization' header is missing."),
    "another scheme": (lambda _: "Digest x", "AuthenticationFailedInvalidHeader", "in an invalid format."),
    "no token": (lambda _: "Bearer", "AuthenticationFailedInvalidHeader", "in an invalid format."),
    "no JSON": (lambda _: "Bearer a.b.c", "InvalidAuthenticationToken", "The access token is invalid. "),
    "a bad signature": (forged, "InvalidAuthenticationToken", "The access token is invalid. InvalidSignature"),
    "of another server": (of_another, "InvalidAuthenticationToken", "The access token is invalid. InvalidIssuer"),
    "for messages": (
        lambda server: f"Bearer {token_of(server, resource='https://servicebus.azure.net')}",
        "InvalidAuthenticationTokenAudience",
        "for wrong audience or resource 'https://servicebus.azure.net'. It should exactly match",
    ),
    "a key that is none": (lambda _: "Basic Um9vdDpY", "AuthenticationFailed", "InvalidSignature"),
    "a signature that is none": (
        lambda _: "SharedAccessSignature sr=x&sig=x&se=9999999999&skn=x",
        "AuthenticationFailed",
        "InvalidSignature",
    ),
}


@pytest.mark.parametrize(("header", "code", "words"), BAD.values(), ids=BAD)
def test_what_is_not_believed_is_refused_in_the_service_s_words(
    locked: EmubusServer, header: Header, code: str, words: str
) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", locked.http_port, timeout=WAIT_S)
    shown = header(locked)
    sent = {} if shown is None else {"Authorization": shown}
    connection.request("GET", f"{FIRST}/queues/q?api-version=2021-11-01", headers=sent)
    answer = connection.getresponse()
    error = json.loads(answer.read())["error"]
    connection.close()
    assert (answer.status, error["code"]) == (401, code)
    assert words in error["message"]
    challenge = answer.headers["WWW-Authenticate"]
    uri, kind, why = challenge.removeprefix("Bearer ").split(", ", 2)
    assert uri == f'authorization_uri="http://127.0.0.1:{locked.http_port}/00000000-0000-0000-0000-00000000e0b5"'
    assert kind == 'error="invalid_token"'
    missing = "The authentication failed because of missing 'Authorization' header."
    assert why == f'error_description="{missing if shown is None else error["message"]}"'


def test_a_token_ends_by_the_broker_s_clock() -> None:
    with EmubusServer(auth=Auth.SAS) as server, arm_of(server, "me") as arm:
        assert arm("GET", FIRST)[0] == 200
        server.advance(timedelta(hours=25))
        status, code, text = arm.refused("GET", FIRST)
        assert (status, code) == (401, "ExpiredAuthenticationToken")
        assert text.startswith(EXPIRED)


def test_a_token_is_good_after_a_restart_and_needs_no_name_of_a_host(tmp_path: Path) -> None:
    with EmubusServer(data_dir=tmp_path, auth=Auth.SAS) as server:
        token = token_of(server)
    with EmubusServer(data_dir=tmp_path, auth=Auth.SAS) as server, Arm(server.http_port, f"Bearer {token}") as arm:
        assert arm("GET", FIRST, headers={"Host": "emubus"})[0] == 200


# ---------------------------------------------------------------- roles

LISTED = ("/queues", "/queues/{queue}", "/topics", "/topics/{topic}", "/subscriptions", "/{subscription_name}")


def may(role: str, row: Operation) -> bool:
    """What roles open in the service [docs: built-in-roles], said in another way than by patterns."""
    is_read = row.method == "GET" and row.path.endswith(LISTED) and "/namespaces/" in row.path
    return {
        "contributor": True,
        "owner": "Microsoft.ServiceBus" in row.path,
        "sender": is_read,
        "receiver": is_read,
        "nobody": False,
    }[role] or row.path in ("tenants", "subscriptions")


WHO = ("nobody", *(each.short for each in Role))


@pytest.fixture(scope="module")
def roles() -> Iterator[EmubusServer]:
    given = [
        *(RoleAssignment.parse(each, each) for each in WHO[1:]),
        *(RoleAssignment.parse(f"{each}-of-q", each, "q") for each in WHO[1:]),
        *(RoleAssignment.parse(f"{each}-of-s", each, "t/subscriptions/s") for each in WHO[1:]),
    ]
    with EmubusServer(ENTITIES, auth=Auth.RBAC, roles=given) as running:
        yield running


@pytest.mark.parametrize("role", WHO)
def test_a_role_opens_the_operations_that_it_has_in_the_service(roles: EmubusServer, role: str) -> None:
    with arm_of(roles, role) as arm:
        for row in OPERATIONS:
            if row.is_public:
                continue
            status, answer = arm(row.method, path_of(row.path), version="2021-11-01")
            assert (status != 403) == may(role, row), f"{row.method} {row.path}: {status} {answer}"
            if status == 403 and row.method != "HEAD":
                error = answer["error"]
                assert error["code"] == "AuthorizationFailed"
                assert f"The client '{role}' with object id '" in error["message"]
                assert f"does not have authorization to perform action '{action_of(row)}' over" in error["message"]


SCOPES = {
    "the queue itself": ("receiver-of-q", "GET", "/queues/q", 200),
    "another queue": ("receiver-of-q", "GET", "/queues/q2", 403),
    "all queues": ("receiver-of-q", "GET", "/queues", 403),
    "a change": ("receiver-of-q", "PUT", "/queues/q", 403),
    "a change by its owner": ("owner-of-q", "PUT", "/queues/q", 200),
    "keys by its owner": ("owner-of-q", "GET", "/queues/q/authorizationRules", 200),
    "the namespace": ("owner-of-q", "GET", "", 403),
    "a subscription": ("owner-of-s", "GET", "/topics/t/subscriptions/s/rules", 200),
    "its topic": ("owner-of-s", "GET", "/topics/t", 403),
    "in other case": ("receiver-of-q", "GET", "/queues/Q", 200),
}


@pytest.mark.parametrize(("who", "method", "path", "status"), SCOPES.values(), ids=SCOPES)
def test_a_role_on_an_entity_opens_that_entity(
    roles: EmubusServer, who: str, method: str, path: str, status: int
) -> None:
    with arm_of(roles, who) as arm:
        assert arm(method, f"{FIRST}{path}", {} if method == "PUT" else None)[0] == status


def test_a_role_is_of_its_namespace_but_a_contributor_of_the_first_has_all(roles: EmubusServer) -> None:
    other = f"{NAMESPACES}/other"
    with Arm(roles.http_port, ROOT_KEY) as admin:
        assert admin("PUT", other, {"location": "x"})[0] in (200, 201)
    with arm_of(roles, "owner") as arm:
        assert arm("GET", f"{other}/queues")[0] == 403
        assert arm("PUT", f"{NAMESPACES}/another", {"location": "x"})[0] == 201
    with arm_of(roles, "contributor") as arm:
        assert arm("GET", f"{other}/queues")[0] == 200


def test_a_contributor_sends_and_receives_nothing(roles: EmubusServer) -> None:
    token = token_of(roles, "contributor", "https://servicebus.azure.net")
    connection = http.client.HTTPConnection("127.0.0.1", roles.http_port, timeout=WAIT_S)
    for method, path in (("POST", "/q/messages"), ("DELETE", "/q/messages/head?timeout=0"), ("GET", "/q")):
        connection.request(method, path, b"x" if method == "POST" else None, {"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 401, path
    connection.close()


def test_each_operation_has_an_action_that_a_role_of_azure_could_name() -> None:
    actions = {action_of(each) for each in OPERATIONS}
    assert {each.split("/")[0] for each in actions} == {"Microsoft.ServiceBus", "Microsoft.Resources"}
    assert {each.rpartition("/")[2] for each in actions} == {"read", "write", "delete", "action"}
    assert "Microsoft.ServiceBus/namespaces/authorizationRules/listKeys/action" in actions
    assert "Microsoft.Resources/deployments/write" in actions
    assert "Microsoft.Resources/subscriptions/resourceGroups/read" in actions
    assert set(ACTIONS) == set(Role)
