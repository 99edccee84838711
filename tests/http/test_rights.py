"""What a token for one entity does not open over HTTP: other entities, by way of addresses and of forwarding."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from emubus.broker.clock import Clock
from emubus.server import Server

from .administering import NOW, Raw, Reply, entry, raw, running
from .test_connections import WAIT_S, WEBSOCKET, line
from .test_management_rules import ROOT, key, token, with_keys


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[Server]:
    async with running(tmp_path, Clock(start_at=NOW, frozen=True), auth="sas") as server:
        yield server


@pytest.fixture
async def http(guarded: Server) -> AsyncIterator[Raw]:
    """A namespace with the queues qa, whose key is "a", and qb, and the topic t with its subscription s."""
    root = token("https://h/", *ROOT)
    async with raw(guarded) as client:
        for path, inside in (
            ("/qa", with_keys("QueueDescription", key("k", "Manage", "Send", "Listen", keys=("a", "a2")))),
            ("/qb", with_keys("QueueDescription", key("k", "Send", keys=("b", "b2")))),
            ("/t", with_keys("TopicDescription", key("k", "Manage", "Send", "Listen", keys=("t", "t2")))),
            ("/t/subscriptions/s", "<SubscriptionDescription/>"),
        ):
            assert (await client.put(path, inside, token=root)).status == 201
        yield client


async def change(http: Raw, path: str, description: str, own: str, **headers: str) -> Reply:
    return await http("PUT", path, entry(description), If_Match="*", Authorization=own, **headers)


FORWARDS = [
    ("ForwardTo", "ServiceBusSupplementaryAuthorization"),
    ("ForwardDeadLetteredMessagesTo", "ServiceBusDlqSupplementaryAuthorization"),
]


@pytest.mark.parametrize(("name", "header"), FORWARDS)
@pytest.mark.parametrize(("path", "kind"), [("/qa", "Queue"), ("/t/Subscriptions/s", "Subscription")])
async def test_who_may_not_send_to_an_entity_cannot_have_messages_forwarded_to_it(
    http: Raw, guarded: Server, path: str, kind: str, name: str, header: str
) -> None:
    own = token(f"https://h{path}", *ROOT)
    wanted = f"<{kind}Description><{name}>sb://h/qb</{name}></{kind}Description>"
    kept = guarded.broker.namespace.find(path)[0].description
    for given in ({}, {header: own}, {header: token("https://h/qb", "k", "wrong")}):
        refused = await change(http, path, wanted, own, **given)
        text = f"SubCode=40100. Unauthorized. Send claim is required on the forwarding target 'sb://h/qb' ({header})."
        assert (refused.status, refused.detail.partition(" TrackingId:")[0]) == (401, text)
    assert guarded.broker.namespace.find(path)[0].description == kept
    to_target = {header: token("sb://h/qb", "k", "b")}
    assert (await change(http, path, wanted, own, **to_target)).status == 200
    assert (await change(http, path, wanted, own)).status == 200  # nothing changes


async def test_a_sender_needs_no_right_on_the_target_of_forwarding(http: Raw) -> None:
    root = token("https://h/", *ROOT)
    forward = "<ForwardTo>sb://h/qb</ForwardTo></QueueDescription>"
    forwards = with_keys("QueueDescription", key("k", "Send", keys=("a", "a2"))).replace("</QueueDescription>", forward)
    changed = await change(http, "/qa", forwards, root, ServiceBusSupplementaryAuthorization=root)
    assert changed.status == 200
    own = token("https://h/qa", "k", "a")
    assert (await http("POST", "/qb/messages", "x", Authorization=own)).status == 401
    assert (await http("POST", "/qa/messages", "x", Authorization=own)).status == 201


@pytest.mark.parametrize(("name", "header"), FORWARDS)
async def test_a_token_for_the_namespace_covers_the_target_of_forwarding(http: Raw, name: str, header: str) -> None:
    root = token("https://h/", *ROOT)
    wanted = f"<QueueDescription><{name}>qb</{name}></QueueDescription>"
    assert (await http.put("/new", wanted, token=root)).status == 201
    own = token("https://h/newer", *ROOT)
    assert (await http.put("/newer", wanted, token=own)).status == 401
    assert (
        await http("PUT", "/newer", entry(wanted), Authorization=own, **{header: token("h:80", *ROOT)})
    ).status == 201


@pytest.mark.parametrize("path", ["/qa://h/qb/messages", "/a://h/qb/messages", "/a%3A//h/qb/messages"])
async def test_a_path_that_looks_like_a_url_is_no_other_entity(http: Raw, path: str) -> None:
    opened = token(f"http://h{path.partition('//')[0]}", *ROOT)
    refused = await http("POST", path, "m", Authorization=opened)
    assert refused.status == 410  # there is no such entity


# ---------------------------------------------------------------- masks

PLAIN_SASL = b"AMQP\x03\x01\x00\x00"
MASK = b"\x01\x02\x03\x04"
MASKED_SASL = b"\x82\x88" + MASK + bytes(each ^ MASK[at % 4] for at, each in enumerate(PLAIN_SASL))
UPGRADE = (
    f"GET {WEBSOCKET} HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: AMQPWSB10\r\n\r\n"
).encode()


@pytest.mark.parametrize("pieces", [1, 3, 1_000], ids=["at once", "in pieces", "byte by byte"])
@pytest.mark.parametrize(
    "frame",
    [b"\x82\x08" + PLAIN_SASL, b"\x89\x00", MASKED_SASL + b"\x82\x08" + PLAIN_SASL, b"\x82\x7e"],
    ids=["message", "ping", "behind a masked one", "long"],
)
async def test_a_websocket_frame_that_is_not_masked_ends_the_connection(
    guarded: Server, frame: bytes, pieces: int
) -> None:
    async with line(guarded) as client:
        client.say(UPGRADE)
        head = await client.reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101 ")
        size = -(-len(frame) // pieces)
        for at in range(0, len(frame), size):
            client.say(frame[at : at + size])
            await client.writer.drain()
        *_, close = (await client.rest()).rpartition(b"\x88")
        assert int.from_bytes(close[1:3], "big") == aiohttp.WSCloseCode.PROTOCOL_ERROR


@pytest.mark.parametrize("size", [4, 7, 125, 126, 70_000])
async def test_masked_frames_of_every_length_pass(guarded: Server, size: int) -> None:
    url = f"http://localhost:{guarded.http_port}{WEBSOCKET}"
    async with aiohttp.ClientSession() as client, client.ws_connect(url, protocols=("AMQPWSB10",)) as tunnel:
        await tunnel.ping(b"x" * min(size, 125))
        for at in range(0, len(PLAIN_SASL), 3):
            await tunnel.send_bytes(PLAIN_SASL[at : at + 3])
        assert (await tunnel.receive_bytes(timeout=WAIT_S))[:8] == PLAIN_SASL
        await tunnel.send_bytes(bytes(size))
        assert (await tunnel.receive(timeout=WAIT_S)).type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.BINARY)


async def test_the_feed_of_public_services_needs_no_token(tmp_path: Path) -> None:
    async with running(tmp_path, Clock(start_at=NOW, frozen=True), auth="sas") as server, raw(server) as http:
        assert (await http("GET", "/")).status == 200
        assert (await http("PUT", "/", "")).status == 400
        assert (await http("GET", "/$Resources/queues")).status == 401
