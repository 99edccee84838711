"""Rights by operation, client and entity: over HTTP, on `$management`, and at every kind of attach."""

from __future__ import annotations

import http.client
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace

import pytest

from emubus.amqp.links.attach import LINK_KINDS
from emubus.amqp.nodes.management import OPERATIONS, management_answer
from emubus.amqp.nodes.requests import ReplyRoom
from emubus.amqp.nodes.requests import Request as NodeRequest
from emubus.amqp.past_links import PastLinks
from emubus.broker.access import Access
from emubus.broker.admin.jms import TopicConsumer
from emubus.broker.broker import Broker
from emubus.broker.errors import BrokerError, Condition
from emubus.broker.keys import Right, SharedKey
from emubus.broker.model.descriptions import JmsSubscription
from emubus.codec.types import Described, Symbol, Ulong
from emubus.testing import Auth, EmubusServer
from emubus.web.server import HttpServer

from ..amqp.jms_client import JmsClient, premium_broker, symbols
from ..amqp.wire import COORDINATOR, DETACH, Frame
from ..broker.test_jms import ALL
from .faces import CLIENTS, ENTITIES, RIGHTS, ROOT_CLIENT, ROUTES, Client, Request, requests

WAIT_S = 60.0
PLACES = {"mine": ("mine", "tmine"), "other": ("other", "tother"), "missing": ("missing", "tmissing")}
"""A queue and a topic each: with keys of their own, without, and none."""
TRACKING = re.compile(rb"TrackingId:[^<]*|[0-9a-f-]{36}|\d{4}-\d\d-\d\d[T ][\d:.Z]+")


@pytest.fixture(scope="module")
def server() -> Iterator[EmubusServer]:
    with EmubusServer(ENTITIES, auth=Auth.SAS) as running:
        yield running


class Asking:
    """One connection, on which requests are sent as they are."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
        self._own = {"Origin": f"http://127.0.0.1:{port}", "Accept": "text/html"}

    def __call__(self, request: Request, place: str, headers: dict[str, str]) -> tuple[int, bytes]:
        body = None if request.method in ("GET", "DELETE") else b"{}"
        more = {"Content-Type": "application/json", **self._own, **headers}
        self._connection.request(request.method, request.at(*PLACES[place]), body, more)
        answer = self._connection.getresponse()
        content = answer.read()
        return answer.status, content

    def close(self) -> None:
        self._connection.close()


@pytest.fixture
def ask(server: EmubusServer) -> Iterator[Asking]:
    asking = Asking(server.http_port)
    yield asking
    asking.close()


def state(server: EmubusServer) -> object:
    """All that a request could have changed."""

    def seen() -> object:
        running = server.server
        broker = running.broker
        entities = sorted(
            (each.path, repr(each.description), each.totals_now().messages) for each in broker.namespace.entities()
        )
        return (
            entities,
            [each.outage for each in broker.namespace.workers],
            running.amqp.conditions.faults(),
            running.amqp.conditions.list(),
            running.snapshots.list(),
            running.roles.list(),
            server.clock.is_frozen,
        )

    return server.call(seen)


def test_every_route_has_its_right(server: EmubusServer) -> None:
    lazy = server.server._http
    assert lazy is not None
    app = server.call(lambda: HttpServer(lazy._services)).first.app
    routes = {
        (route.method, route.resource.canonical)
        for route in app.router.routes()
        if route.resource is not None and route.method != "HEAD"
    }
    assert routes == set(ROUTES)


def may(client: Client, request: Request, place: str) -> bool:
    """Whether the table gives a client a request."""
    if client == ROOT_CLIENT:
        return True
    own = () if client.is_late else RIGHTS.get(client.name, ())
    return not request.needs.of_namespace and place == "mine" and request.needs.right in own


def same(answered: tuple[int, bytes], place: str) -> tuple[int, bytes]:
    """An answer without what differs by the name that was asked for."""
    status, content = answered
    return status, TRACKING.sub(b"", content.replace(place.encode(), b"NAME"))


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: f"{client.name}-{client.key}-{client.is_late}")
def test_what_a_client_may_not_do_is_refused_and_tells_nothing_of_what_there_is(
    server: EmubusServer, ask: Asking, client: Client
) -> None:
    wrong: list[object] = []
    before = state(server)
    for request in requests():
        of_entity = [place for place in PLACES if not request.needs.of_namespace or "{" in request.path]
        for place in of_entity or ["mine"]:
            if may(client, request, place):
                continue
            target = PLACES[place]["{topic}" in request.path] if not request.needs.of_namespace else ""
            for headers in client.headers(target):
                status, _ = answered = ask(request, place, dict(headers))
                if status != 401:
                    wrong.append((request.method, request.path, place, status))
                elif place == "other":
                    missing = ask(request, "missing", dict(headers))
                    names = (PLACES[each]["{topic}" in request.path] for each in ("other", "missing"))
                    there, absent = (same(*each) for each in zip((answered, missing), names, strict=True))
                    if there != absent:
                        wrong.append((request.method, request.path, there, absent))
    assert wrong == []
    assert state(server) == before


@pytest.mark.parametrize("client", [ROOT_CLIENT, *CLIENTS[3:]], ids=lambda client: client.name)
def test_what_a_client_may_do_is_not_refused_for_its_rights(server: EmubusServer, ask: Asking, client: Client) -> None:
    wrong = []
    for request in requests():
        # of reads alone: the others would take away what the next one needs
        if may(client, request, "mine") and request.method == "GET" and "/events" not in request.path:
            target = PLACES["mine"]["{topic}" in request.path] if client != ROOT_CLIENT else ""
            is_page = "/page" in request.path or request.path == "/"
            status, content = ask(request, "mine", dict(list(client.headers(target))[is_page]))
            if status == 401 or status >= 500:
                wrong.append((request.method, request.path, status, content[:200]))
    assert wrong == []


# ---- $management

NODE_RIGHTS = {
    Right.SEND: {"com.microsoft:schedule-message", "com.microsoft:cancel-scheduled-message"},
    Right.LISTEN: {
        "com.microsoft:renew-lock",
        "com.microsoft:peek-message",
        "com.microsoft:receive-by-sequence-number",
        "com.microsoft:update-disposition",
        "com.microsoft:batch-delete-messages",
        "com.microsoft:renew-session-lock",
        "com.microsoft:set-session-state",
        "com.microsoft:get-session-state",
        "com.microsoft:get-message-sessions",
        "com.microsoft:add-rule",
        "com.microsoft:remove-rule",
        "com.microsoft:enumerate-rules",
        "emubus:get-partitions",
        "emubus:list-sequence-numbers",
        "emubus:delete-messages-before",
        "emubus:delete-messages",
        "emubus:claim-messages",
        "emubus:delete-deferred-messages",
    },
}


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("missing", Right)
async def test_an_operation_of_management_asks_for_its_right_before_it_looks_at_anything(
    name: str, missing: Right
) -> None:
    (needed,) = [right for right, names in NODE_RIGHTS.items() if name in names]
    asked: list[Right] = []

    def require(right: Right) -> None:
        asked.append(right)
        if right is missing:
            raise BrokerError(Condition.UNAUTHORIZED_ACCESS, "no")

    async with premium_broker() as broker:
        client = JmsClient(broker)
        answer = management_answer(broker, "q", require, client.wire.server.context.tracker, PastLinks())
        response = await answer(NodeRequest(properties={"operation": name}), ReplyRoom(1 << 20, nullcontext))
        client.wire.lose()
    assert asked == [needed]
    assert response is not None
    assert (response.properties["statusCode"] == 401) is (needed is missing)


# ---- attaches

Attach = Callable[[JmsClient, str, str], list[Frame]]
"""An attach to a queue, or to a topic."""
SESSION = {Symbol("com.microsoft:session-filter"): None}
SELECTOR = {Symbol("jms-selector"): Described(Ulong(0x468C00000004), "a = 1")}
DESTINATION = "com.microsoft:transfer-destination-address"


def dynamic(client: JmsClient, queue: str, topic: str) -> list[Frame]:
    del queue, topic
    target = [None, None, None, None, True, None, symbols("temporary-queue")]
    return client.attach("dynamic", [], target, receives=False)


def browse(client: JmsClient, queue: str, topic: str) -> list[Frame]:
    del topic
    return client.attach("browser", [queue, *([None] * 5), Symbol("copy")], [], receives=True)


ATTACHES: dict[str, tuple[str, tuple[Right, ...], str, Attach]] = {
    # kind and variant: the kind, one of the rights that it needs, where, and how it is asked for
    "coordinator": (
        "coordinator",
        (),
        "",
        lambda client, *_: client.wire.attach_sender(target=Described(Ulong(COORDINATOR), [])),
    ),
    "dynamic node": ("dynamic node", (Right.MANAGE,), "namespace", dynamic),
    "unsubscription": ("unsubscription", (Right.MANAGE,), "topic", lambda client, *_: client.unsubscribe("name")),
    "cbs": ("cbs", (), "", lambda client, *_: client.wire.attach_sender("$cbs")),
    "management": (
        "management",
        (Right.SEND, Right.LISTEN),
        "queue",
        lambda client, queue, _: client.wire.attach_sender(f"{queue}/$management"),
    ),
    "unknown filter": (
        "unknown filter",
        (Right.LISTEN,),
        "queue",
        lambda client, queue, _: client.wire.attach_receiver(queue, filter={Symbol("f"): 5}),
    ),
    "selector in a message session": (
        "selector in a message session",
        (Right.LISTEN,),
        "queue",
        lambda client, queue, _: client.wire.attach_receiver(queue, filter={**SESSION, **SELECTOR}),
    ),
    "message session": (
        "message session",
        (Right.LISTEN,),
        "queue",
        lambda client, queue, _: client.wire.attach_receiver(queue, filter=SESSION),
    ),
    "sender": ("sender", (Right.SEND,), "queue", lambda client, queue, _: client.wire.attach_sender(queue)),
    "sender by way of mine": (
        "sender",
        (Right.SEND,),
        "queue",
        lambda client, queue, _: client.wire.attach_sender("mine", properties={Symbol(DESTINATION): queue}),
    ),
    "browser": ("browser", (Right.LISTEN,), "queue", browse),
    "receiver": ("receiver", (Right.LISTEN,), "queue", lambda client, queue, _: client.wire.attach_receiver(queue)),
    "receiver of dead letters": (
        "receiver",
        (Right.LISTEN,),
        "queue",
        lambda client, queue, _: client.wire.attach_receiver(f"{queue}/$DeadLetterQueue"),
    ),
    "consumer of a subscription": (
        "receiver",
        (Right.LISTEN,),
        "topic",
        lambda client, _, topic: client.wire.attach_receiver(f"{topic}/Subscriptions/s"),
    ),
    "subscriber": ("receiver", (Right.MANAGE,), "topic", lambda client, _, topic: client.subscribe("new", topic)),
}


def refusal(frames: list[Frame]) -> tuple[str, str] | None:
    """Condition and text with which an attach was refused, if it was."""
    for each in frames:
        if each.code == DETACH and each.get(2) is not None:
            condition, text, _ = each.get(2).value
            return str(condition), TRACKING.sub(b"", str(text).encode()).decode().partition(" Tracking")[0]
    return None


def test_every_kind_of_attach_has_its_rights() -> None:
    assert {kind for kind, *_ in ATTACHES.values()} == {kind.name for kind in LINK_KINDS}


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with premium_broker() as broker:
        for each in ENTITIES:
            broker.administration.create(each)
        broker.jms.subscribe(TopicConsumer("tother", "name", JmsSubscription("client", True, False)), ALL)
        yield broker


@pytest.mark.parametrize("name", ATTACHES)
async def test_an_attach_needs_its_right_and_a_refusal_tells_nothing_of_what_there_is(
    name: str, broker: Broker
) -> None:
    _, rights, where, attach = ATTACHES[name]
    access = Access([SharedKey("root", "root")], verify=True, entity_keys=broker.namespace.entity_keys)
    for client in ("", *RIGHTS, "root"):
        answers: dict[str, tuple[str, str] | None] = {}
        for place, (queue, topic) in PLACES.items():
            asking = JmsClient(broker, "client", access=access)
            if client:
                claim = access.claim_of_key(client, client)
                for path in ("",) if client == "root" else ("mine", "tmine"):
                    asking.wire.server.context.claims.keep(replace(claim, path=path))
            before = {each.path for each in broker.namespace.entities()}
            answers[place] = refusal(attach(asking, queue, topic))
            asking.wire.lose()
            held = {*RIGHTS.get(client, ()), *(Right if client == "root" else ())}
            is_own = client == "root" or place == "mine" or where == ""
            allowed = not rights or (is_own and where != "namespace" and bool(held & {*rights, Right.MANAGE}))
            allowed = allowed or client == "root"
            told = answers[place]
            if name == "unsubscription":
                # what it does not see is not there: a client with any right gets not-found, and never a refusal
                assert (told is not None and told[0] == "amqp:unauthorized-access") is (client == ""), (client, told)
            else:
                is_refused = told is not None and told[0] == "amqp:unauthorized-access"
                assert is_refused is not allowed, (client, place, told)
            if not allowed:
                assert {each.path for each in broker.namespace.entities()} == before
        if client != "root" and where:
            there, absent = (
                None if told is None else (told[0], told[1].replace(place, "NAME"))
                for place, told in answers.items()
                if place != "mine"
            )
            assert there == absent, client
