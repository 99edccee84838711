"""The page without a browser: who gets it, escaping, headers of every answer, requests from elsewhere, bad input."""

from __future__ import annotations

import base64
import io
from collections.abc import AsyncIterator, Iterator
from urllib.parse import quote

import aiohttp
import pytest

from emubus.broker.keys import Right
from emubus.broker.message.builder import NewMessage
from emubus.broker.model.descriptions import (
    AuthorizationRule,
    QueueDescription,
    RuleDescription,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
)
from emubus.broker.model.profiles import Profile
from emubus.config import Auth
from emubus.testing import EmubusServer

from .namespace import counts, lock, send

PAGE = "/emubus/page"
HTML = {"Accept": "text/html,application/xhtml+xml"}
EVIL = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def server() -> Iterator[EmubusServer]:
    with EmubusServer(profile=Profile.RELAXED) as running:
        yield running


@pytest.fixture
async def client(server: EmubusServer) -> AsyncIterator[aiohttp.ClientSession]:
    base = f"http://localhost:{server.http_port}"
    async with aiohttp.ClientSession(base) as session:
        yield session


def own(server: EmubusServer) -> dict[str, str]:
    """The headers of a form on the page itself."""
    return {**HTML, "Origin": f"http://localhost:{server.http_port}"}


async def post(
    client: aiohttp.ClientSession, server: EmubusServer, action: str, fields: object, **headers: str
) -> tuple[int, str]:
    """Send a form as the page does; the status and the text of the answer."""
    async with client.post(
        f"{PAGE}/{action}", data=fields, headers={**own(server), **headers}, allow_redirects=False
    ) as answer:
        return answer.status, await answer.text()


async def get(client: aiohttp.ClientSession, path: str) -> tuple[int, str]:
    async with client.get(path, headers=HTML) as answer:
        return answer.status, await answer.text()


# ---- who gets it


async def test_only_who_asks_for_html_gets_the_page_at_the_root(client: aiohttp.ClientSession) -> None:
    async with client.get("/", headers=HTML) as answer:
        assert (answer.status, answer.content_type) == (200, "text/html")
    for accepted in ("*/*", "application/xml, application/atom+xml", ""):
        async with client.get("/", headers={"Accept": accepted}) as answer:
            assert (answer.status, answer.content_type) == (200, "application/atom+xml")


async def test_every_answer_forbids_foreign_and_inline_scripts(client: aiohttp.ClientSession) -> None:
    for path in ("/", f"{PAGE}/namespace", f"{PAGE}/nothing", f"{PAGE}/assets/script.js", f"{PAGE}/entity?path=no"):
        async with client.get(path, headers=HTML) as answer:
            policy = answer.headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy
            assert "script-src 'self'" in policy
            assert "frame-ancestors 'none'" in policy
            assert "unsafe" not in policy
            assert answer.headers["X-Content-Type-Options"] == "nosniff"


async def test_the_page_names_nothing_outside_this_server(client: aiohttp.ClientSession) -> None:
    texts = [(await get(client, path))[1] for path in ("/", f"{PAGE}/assets/script.js", f"{PAGE}/assets/style.css")]
    for text in texts:
        assert "http://" not in text
        assert "https://" not in text
        assert 'style="' not in text
        assert "onclick" not in text


async def test_what_the_page_does_not_know_is_reported_as_html(client: aiohttp.ClientSession) -> None:
    status, text = await get(client, f"{PAGE}/nothing")
    assert status == 404
    assert "There is no page for &#39;GET&#39; at &#39;/emubus/page/nothing&#39;." in text


# ---- escaping


async def test_nothing_that_a_client_wrote_becomes_markup(client: aiohttp.ClientSession, server: EmubusServer) -> None:
    server.create(QueueDescription(EVIL, user_metadata=EVIL))
    server.create(TopicDescription("t"))
    rule = RuleDescription(f"r{EVIL}".replace("/", ""), SqlFilter(f"a = '{EVIL}'"), f"SET b = '{EVIL}'")
    server.create(SubscriptionDescription("t", "s<b>", rules=(rule,)))
    message = NewMessage(EVIL.encode(), {"message-id": EVIL, "subject": EVIL}, {EVIL: EVIL}, partition_key=EVIL)
    send(server, EVIL, message, message)
    lock(server, EVIL, 1, reason=EVIL)
    at = quote(EVIL, safe="")
    for path in (
        "/",
        f"/?find={at}",
        f"{PAGE}/entity?path={at}",
        f"{PAGE}/messages?path={at}",
        f"{PAGE}/messages?path={at}&session={at}",
        f"{PAGE}/messages?path={at}&queue=dead-letter",
        f"{PAGE}/messages?path={at}&queue={at}",
        f"{PAGE}/send?path={at}",
        f"{PAGE}/rules?path=t/Subscriptions/s%3Cb%3E",
        f"{PAGE}/create?kind=subscription&topic={at}",
        f"{PAGE}/entity?path=no{at}",
        f"{PAGE}/{at}",
    ):
        _, text = await get(client, path)
        assert EVIL not in text, path
        assert "<b>" not in text, path
    _, text = await get(client, f"{PAGE}/messages?path={at}")
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text


async def test_a_refused_form_comes_back_escaped_with_the_error(
    client: aiohttp.ClientSession, server: EmubusServer
) -> None:
    fields = {"kind": "queue", "name": "q", "lock_duration": f'"{EVIL}', "forward_to": EVIL, "user_metadata": EVIL}
    status, text = await post(client, server, "create", fields)
    assert status == 400
    assert EVIL not in text
    assert "Lock duration: &#39;&#34;&lt;script&gt;" in text
    assert 'value="&#34;&lt;script&gt;alert(1)&lt;/script&gt;"' in text


# ---- requests from elsewhere

FOREIGN: tuple[dict[str, str], ...] = (
    {},
    {"Origin": "http://evil.example"},
    {"Origin": "null"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "none"},
    {"Sec-Fetch-Site": "cross-site", "Origin": "OWN"},
)
ACTIONS = ("create", "delete", "purge", "outage", "act", "stop", "send", "where", "add-rule", "delete-rule")


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
async def test_a_form_that_is_not_the_pages_own_changes_nothing(
    client: aiohttp.ClientSession, server: EmubusServer, headers: dict[str, str]
) -> None:
    sent = {name: value.replace("OWN", own(server)["Origin"]) for name, value in headers.items()}
    fields = {"path": "q", "name": "made-by-another", "kind": "queue", "do": "freeze", "to": "config"}
    for action in (*ACTIONS, "try-rules", "clock", "reset"):
        async with client.post(f"{PAGE}/{action}", data=fields, headers={**HTML, **sent}) as answer:
            assert answer.status == 403, action
    assert server.call(lambda: server.server.broker.namespace.entity("made-by-another")) is None
    assert not server.clock.is_frozen


async def test_the_pages_own_form_is_taken(client: aiohttp.ClientSession, server: EmubusServer) -> None:
    fields = {"kind": "queue", "name": "by-origin"}
    assert (await post(client, server, "create", fields))[0] == 303
    async with client.post(
        f"{PAGE}/create",
        data={**fields, "name": "by-fetch-site"},
        headers={**HTML, "Sec-Fetch-Site": "same-origin"},
        allow_redirects=False,
    ) as answer:
        assert answer.status == 303
        assert answer.headers["Location"].startswith(f"{PAGE}/entity?path=by-fetch-site&flash=")


# ---- keys


async def test_with_auth_sas_the_page_wants_the_root_key() -> None:
    with EmubusServer(auth=Auth.SAS) as server:
        rule = AuthorizationRule("all-of-it", (Right.MANAGE, Right.SEND, Right.LISTEN), "its-key")
        server.create(QueueDescription("q", authorization_rules=(rule,)))
        base = f"http://localhost:{server.http_port}"
        async with aiohttp.ClientSession(base, headers=HTML) as client:
            for credentials in (
                None,
                "Basic x",
                "Bearer abc",
                basic("RootManageSharedAccessKey", "wrong"),
                basic("all-of-it", "its-key"),
            ):
                headers = {} if credentials is None else {"Authorization": credentials}
                for path in ("/", f"{PAGE}/namespace", f"{PAGE}/nothing"):
                    async with client.get(path, headers=headers) as answer:
                        assert answer.status == 401
                        assert answer.headers["WWW-Authenticate"].startswith("Basic ")
                        assert "its-key" not in await answer.text()
            headers = {"Authorization": basic("RootManageSharedAccessKey", "SAS_KEY_VALUE")}
            async with client.get("/", headers=headers) as answer:
                assert answer.status == 200
                assert "SharedAccessKey=SAS_KEY_VALUE" in await answer.text()


def basic(name: str, key: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{key}".encode()).decode()


# ---- bad input

REFUSED: tuple[tuple[str, dict[str, str], int, str], ...] = (
    ("create", {"kind": "planet", "name": "x"}, 400, "Kind: 'planet' is none of queue, topic, subscription."),
    ("create", {"kind": "queue", "name": ""}, 400, "Name: must not be empty."),
    ("create", {"kind": "queue", "name": "a?b"}, 400, "Name"),
    ("create", {"kind": "queue", "name": "bad"}, 409, "already exists"),
    ("create", {"kind": "subscription", "name": "x", "topic": "no"}, 404, "could not be found"),
    ("create", {"kind": "queue", "name": "x", "max_delivery_count": "0"}, 400, "Max delivery count: '0' is not"),
    ("create", {"kind": "queue", "name": "x", "max_delivery_count": "9" * 400}, 400, "Max delivery count: '999"),
    ("create", {"kind": "queue", "name": "x", "lock_duration": "never"}, 400, "Lock duration: 'never'"),
    ("create", {"kind": "queue", "name": "x", "default_ttl": "soon"}, 400, "Default time to live: 'soon' is not"),
    ("delete", {"path": "no"}, 404, "could not be found"),
    ("delete", {}, 404, "could not be found"),
    ("purge", {"path": "no"}, 404, "could not be found"),
    ("outage", {"store": "99", "kind": "down"}, 400, "Store: '99' is not a whole number from 0 to 15."),
    ("outage", {"store": "0", "kind": "gone"}, 400, "Outage: 'gone' is none of"),
    ("outage", {"store": "0", "kind": "slow", "delay": "9h", "path": "bad"}, 400, "Delay: '9h' is not"),
    ("outage", {"store": "0", "kind": "slow", "for": "never", "path": "bad"}, 400, "Duration: 'never' is not"),
    ("send", {"path": "bad", "body": "zz", "body_form": "hex"}, 400, "Body: 'zz' is not bytes in hexadecimal"),
    ("send", {"path": "bad", "body": "é", "body_form": "base64"}, 400, "Body: 'é' is not bytes in base64."),
    ("send", {"path": "bad", "body_form": "smoke"}, 400, "Body as: 'smoke' is none of text, hex, base64."),
    ("send", {"path": "bad", "ttl": "0s"}, 400, "Time to live: '0s' is not"),
    ("send", {"path": "bad", "ttl": "9999999d"}, 400, "Time to live: '9999999d' is not"),
    ("send", {"path": "bad", "scheduled": "soon"}, 400, "Scheduled for: 'soon' is not"),
    ("send", {"path": "bad", "content_type": "tëxt"}, 400, "ContentType: 'tëxt' is not ASCII text."),
    ("send", {"path": "bad", "session_id": "a", "partition_key": "b"}, 400, "must be equal to the SessionId"),
    ("send", {"path": "bad", "session_id": "s" * 65_537}, 400, "group-id of the message has 65537 characters"),
    ("send", {"path": "bad", "property_name": "n"}, 400, "each with name, type and value"),
    ("send", {"path": "bad-topic/Subscriptions/s"}, 400, "Messages are sent to the topic"),
    (
        "send",
        {"path": "bad", "property_name": "n", "property_type": "long", "property_value": "1.5"},
        400,
        "Application property 'n': '1.5' is not a whole number of 64 bits, from",
    ),
    (
        "send",
        {"path": "bad", "property_name": "", "property_type": "string", "property_value": "v"},
        400,
        "the value 'v' has no name",
    ),
    ("where", {"path": "bad", "session_id": "a", "partition_key": "b"}, 400, "must be equal to the SessionId"),
    ("act", {"path": "bad", "queue": "dead-letter", "verb": "resubmit"}, 400, "No message is selected."),
    ("act", {"path": "bad", "queue": "active", "verb": "delete", "number": "x"}, 400, "Sequence number: 'x' is not"),
    ("act", {"path": "bad-topic", "verb": "resubmit-all"}, 400, "holds no messages"),
    (
        "act",
        {"path": "bad", "queue": "active", "verb": "resubmit", "number": "1"},
        400,
        "Action: 'resubmit' is none of",
    ),
    (
        "act",
        {"path": "bad", "queue": "active", "verb": "job", "job_verb": "copy", "target": "no"},
        400,
        "No message is",
    ),
    ("add-rule", {"path": "bad", "name": "r", "filter": "true"}, 400, "has no rules"),
    (
        "add-rule",
        {"path": "bad-topic/Subscriptions/s", "name": "r", "filter": "sql"},
        400,
        "the expression must not be empty",
    ),
    (
        "add-rule",
        {"path": "bad-topic/Subscriptions/s", "name": "r", "filter": "sql", "expression": "a = = 1"},
        400,
        "line 1, column 5",
    ),
    ("add-rule", {"path": "bad-topic/Subscriptions/s", "name": "r", "filter": "correlation"}, 400, "at least one"),
    ("add-rule", {"path": "bad-topic/Subscriptions/s", "name": "$Default", "filter": "true"}, 409, "already exists"),
    ("delete-rule", {"path": "bad-topic/Subscriptions/s", "name": "no"}, 404, "could not be found"),
    ("clock", {"do": "advance", "by": "-5s"}, 400, "Advance by: '-5s' is not"),
    ("clock", {"do": "advance", "by": "never"}, 400, "Advance by: 'never' is not"),
    ("clock", {"do": "advance", "by": "999999999d"}, 400, "Advance by: '999999999d' is not"),
    ("clock", {"do": "stop"}, 400, "Clock: 'stop' is none of advance, freeze, go-on."),
    ("reset", {"to": "moon"}, 400, "Reset: 'moon' is none of empty, config."),
)


@pytest.fixture(scope="module")
def victim(server: EmubusServer) -> EmubusServer:
    """The server with what the table of bad input names."""
    server.create(QueueDescription("bad", enable_partitioning=True))
    server.create(TopicDescription("bad-topic"))
    server.create(SubscriptionDescription("bad-topic", "s"))
    return server


@pytest.mark.parametrize(("action", "fields", "status", "sentence"), REFUSED, ids=lambda each: str(each)[:40])
async def test_bad_input_is_reported_and_nothing_is_done(
    client: aiohttp.ClientSession,
    victim: EmubusServer,
    action: str,
    fields: dict[str, str],
    status: int,
    sentence: str,
) -> None:
    assert not victim.clock.is_frozen
    found, text = await post(client, victim, action, fields)
    assert found == status
    shown = text.replace("&#39;", "'").replace("&#34;", '"')
    assert sentence in shown
    assert counts(victim, "bad") == {}
    assert not victim.clock.is_frozen
    assert victim.call(lambda: [each.outage for each in victim.server.broker.namespace.workers]) == [None] * 16


QUERIES = (
    (f"{PAGE}/entity", 400, "The address has no entity"),
    (f"{PAGE}/entity?path=none", 404, "could not be found"),
    (f"{PAGE}/messages?path=bad&from=x", 400, "From sequence number: 'x' is not a whole number"),
    (f"{PAGE}/messages?path=bad&from=-1", 400, "From sequence number: '-1' is not a whole number"),
    (f"{PAGE}/messages?path=bad&partition=16", 400, "Partition: '16' is not a whole number from 0 to 15."),
    (f"{PAGE}/messages?path=bad&queue=third", 400, "Queue: 'third' is none of"),
    (f"{PAGE}/messages?path=bad-topic", 400, "holds no messages"),
    (f"{PAGE}/rules?path=bad", 400, "has no rules"),
    (f"{PAGE}/create?kind=planet", 400, "Kind: 'planet' is none of"),
    ("/?first=x", 400, "first: 'x' is not a whole number"),
)


@pytest.mark.parametrize(("path", "status", "sentence"), QUERIES, ids=lambda each: str(each)[:40])
async def test_a_bad_address_is_reported(
    client: aiohttp.ClientSession, victim: EmubusServer, path: str, status: int, sentence: str
) -> None:
    found, text = await get(client, path)
    assert (found, sentence in text.replace("&#39;", "'")) == (status, True)


async def test_a_body_that_is_no_form_is_refused(client: aiohttp.ClientSession, victim: EmubusServer) -> None:
    status, text = await post(client, victim, "purge", b'{"path": "bad"}', **{"Content-Type": "application/json"})
    assert (status, "a form is application/x-www-form-urlencoded" in text) == (415, True)
    kind = "application/x-www-form-urlencoded; charset=no-such-code"
    status, text = await post(client, victim, "purge", b"path=bad", **{"Content-Type": kind})
    assert (status, "can&#39;t be read as &#39;no-such-code&#39;" in text) == (400, True)


async def test_an_oversized_form_is_refused(client: aiohttp.ClientSession, victim: EmubusServer) -> None:
    body = io.BytesIO(b"path=bad&body=" + b"x" * ((1 << 20) + 4096))
    kind = "application/x-www-form-urlencoded"
    status, text = await post(client, victim, "send", body, **{"Content-Type": kind})
    assert (status, "The form is too large" in text) == (413, True)
    assert counts(victim, "bad") == {}


async def test_pages_are_bounded(client: aiohttp.ClientSession, victim: EmubusServer) -> None:
    victim.create(QueueDescription("large"))
    send(victim, "large", *(NewMessage(b"y" * 200_000) for _ in range(30)))
    _, text = await get(client, f"{PAGE}/messages?path=large")
    assert text.count("<pre") <= 25
    assert len(text) < 25 * (80 << 10)
    assert "more characters" in text
