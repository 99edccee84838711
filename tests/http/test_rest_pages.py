"""What pages of the service let a program do by hand: the tutorial of REST [SB: service-bus-brokered-tutorial-rest] and
tokens as each language of a page makes them [SB: generate-sas-token]. A whole server that verifies tokens."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import uuid
from collections.abc import Callable, Iterator
from urllib.parse import quote, quote_plus
from xml.etree.ElementTree import Element, fromstring

import pytest

from emubus.testing import Auth, EmubusServer, QueueDescription

from .rest import Answer, Headers, Rest

ATOM = "{http://www.w3.org/2005/Atom}"
CONNECT = "{http://schemas.microsoft.com/netservices/2010/10/servicebus/connect}"
KEY_NAME, KEY = "RootManageSharedAccessKey", "SAS_KEY_VALUE"
HOUR_S = 3_600


@pytest.fixture(scope="module")
def server() -> Iterator[EmubusServer]:
    with EmubusServer([QueueDescription("q")], auth=Auth.SAS) as server:
        yield server


def signature_of(signed: str, key: str = KEY) -> str:
    """The signature in base64, as every language of the pages makes it."""
    return base64.b64encode(hmac.new(key.encode(), signed.encode(), hashlib.sha256).digest()).decode()


def small_hex(text: str) -> str:
    """The escapes of a text with small letters, as HttpUtility of .NET writes them."""
    return re.sub("%[0-9A-F]{2}", lambda found: found[0].lower(), text)


def in_seconds(server: EmubusServer, seconds: int) -> int:
    """An instant by the server's clock, in Unix seconds."""
    return server.now_ms() // 1_000 + seconds


# ---- the tutorial


class Tutorial:
    """The functions of the tutorial's program, over one token of the namespace for an hour."""

    def __init__(self, server: EmubusServer) -> None:
        self.base = f"http://127.0.0.1:{server.http_port}/"
        resource, expiry = quote_plus(self.base), in_seconds(server, HOUR_S)
        signature = quote_plus(signature_of(f"{resource}\n{expiry}"))
        self.token = f"SharedAccessSignature sr={resource}&sig={signature}&se={expiry}&skn={KEY_NAME}"
        self.rest = Rest(server.http_port, [("Authorization", self.token)])

    def put(self, path: str, kind: str) -> Answer:
        """Create an entity of a kind without any element."""
        inner = f'<{kind} xmlns:i="http://www.w3.org/2001/XMLSchema-instance" xmlns="{CONNECT[1:-1]}" />'
        title = f'<title type="text">{path}</title>'
        content = f'<content type="application/xml">{inner}</content>'
        entry = f'<entry xmlns="{ATOM[1:-1]}">{title}{content}</entry>'
        return self.rest.ask("PUT", f"/{path}", entry.encode())

    def send(self, path: str, body: str, headers: Headers = ()) -> Answer:
        return self.rest.ask("POST", f"/{path}/messages?timeout=60&api-version=2013-08", body.encode(), headers)

    def receive_and_delete(self, path: str) -> Answer:
        return self.rest.ask("DELETE", f"/{path}/messages/head?timeout=60", b"")

    def resources(self, path: str) -> Element:
        """A feed."""
        answer = self.rest.ask("GET", f"/{path}")
        assert answer.status == 200, answer
        return fromstring(answer.content)

    def titles(self, path: str) -> list[str]:
        return [each.findtext(f"{ATOM}title") or "" for each in self.resources(path).iter(f"{ATOM}entry")]

    def delete(self, path: str) -> Answer:
        return self.rest.ask("DELETE", f"/{path}", b"")


@pytest.fixture
def tutorial(server: EmubusServer) -> Iterator[Tutorial]:
    tutorial = Tutorial(server)
    with tutorial.rest:
        yield tutorial


def name_of(kind: str) -> str:
    """A name as the tutorial makes it."""
    return f"{kind}{uuid.uuid4()}"


def queue_of(tutorial: Tutorial) -> str:
    name = name_of("Queue")
    assert tutorial.put(name, "QueueDescription").status == 201
    return name


def subscription_of(tutorial: Tutorial) -> tuple[str, str]:
    topic, subscription = name_of("Topic"), name_of("Subscription")
    assert tutorial.put(topic, "TopicDescription").status == 201
    assert tutorial.put(f"{topic}/Subscriptions/{subscription}", "SubscriptionDescription").status == 201
    return topic, subscription


@pytest.mark.parametrize("kind", ["Queue", "Topic"])
def test_an_entity_is_made_by_a_put_of_an_empty_description(kind: str, tutorial: Tutorial) -> None:
    name = name_of(kind)
    answer = tutorial.put(name, f"{kind}Description")
    entry = fromstring(answer.content)
    assert (answer.status, entry.findtext(f"{ATOM}title")) == (201, name)
    description = entry.find(f"{ATOM}content/{CONNECT}{kind}Description")
    assert description is not None
    assert description.findtext(f"{CONNECT}MaxSizeInMegabytes") == "1024"
    assert tutorial.put(name, f"{kind}Description").status == 409


def test_a_subscription_is_made_below_its_topic(tutorial: Tutorial) -> None:
    topic, subscription = subscription_of(tutorial)
    assert tutorial.titles(f"{topic}/Subscriptions") == [subscription]


def test_a_message_that_is_sent_is_received_and_deleted(tutorial: Tutorial) -> None:
    queue = queue_of(tutorial)
    assert tutorial.send(queue, "msg1").status == 201
    answer = tutorial.receive_and_delete(queue)
    assert (answer.status, answer.content) == (200, b"msg1")
    assert tutorial.rest.receive(queue).status == 204


def test_time_to_live_and_label_are_properties_in_json(tutorial: Tutorial) -> None:
    queue = queue_of(tutorial)
    properties = '{ "TimeToLive":30, "Label":"M1"}'
    assert tutorial.send(queue, "msg1", [("BrokerProperties", properties)]).status == 201
    found = tutorial.receive_and_delete(queue).broker
    assert (found["TimeToLive"], found["Label"]) == (30, "M1")


def test_a_property_that_is_not_known_is_ignored(tutorial: Tutorial) -> None:
    queue = queue_of(tutorial)
    assert tutorial.send(queue, "x", [("BrokerProperties", '{"Label": "M1", "Future": 1}')]).status == 201
    found = tutorial.receive_and_delete(queue).broker
    assert (found["Label"], "Future" in found) == ("M1", False)


def test_each_property_of_the_program_is_a_header(tutorial: Tutorial) -> None:
    queue = queue_of(tutorial)
    # The page has High without quotes, which the service refuses (azure-sdk-for-php 406) as no value of JSON.
    assert tutorial.send(queue, "msg1", [("Priority", '"High"'), ("Customer", "12345")]).status == 201
    received = tutorial.receive_and_delete(queue).custom
    assert received == {"Priority": '"High"', "Customer": "12345"}
    assert tutorial.send(queue, "msg1", [("Grade", "High")]).status == 400


def test_what_a_topic_is_sent_is_received_from_its_subscription(tutorial: Tutorial) -> None:
    topic, subscription = subscription_of(tutorial)
    assert tutorial.send(topic, "msg2").status == 201
    assert tutorial.receive_and_delete(f"{topic}/Subscriptions/{subscription}").content == b"msg2"


def test_feeds_have_the_queues_and_the_topics_of_the_namespace(tutorial: Tutorial) -> None:
    queue, (topic, _) = queue_of(tutorial), subscription_of(tutorial)
    queues, topics = tutorial.titles("$Resources/Queues"), tutorial.titles("$Resources/Topics")
    assert (queue.lower() in queues, topic.lower() in queues) == (True, False)
    assert (queue.lower() in topics, topic.lower() in topics) == (False, True)


def test_a_feed_has_the_rules_of_a_subscription(tutorial: Tutorial) -> None:
    topic, subscription = subscription_of(tutorial)
    feed = tutorial.resources(f"{topic}/Subscriptions/{subscription}/Rules")
    (rule,) = feed.iter(f"{CONNECT}RuleDescription")
    assert (rule.findtext(f"{CONNECT}Name"), rule.findtext(f"{CONNECT}Filter/{CONNECT}SqlExpression")) == (
        "$Default",
        "1=1",
    )


def test_what_is_deleted_is_in_no_feed_and_a_topic_takes_its_subscriptions_along(tutorial: Tutorial) -> None:
    queue, (topic, subscription) = queue_of(tutorial), subscription_of(tutorial)
    assert (tutorial.delete(queue).status, tutorial.delete(topic).status) == (200, 200)
    assert queue.lower() not in tutorial.titles("$Resources/Queues")
    assert topic.lower() not in tutorial.titles("$Resources/Topics")
    assert tutorial.rest.receive(queue).status == 410
    assert tutorial.rest.receive(f"{topic}/Subscriptions/{subscription}").status == 410


# ---- tokens


def of_php(uri: str) -> str:
    return quote(uri.lower(), safe="").lower()


LANGUAGES: dict[str, tuple[Callable[[str], str], Callable[[str], str]]] = {
    # how the resource is encoded, and how the signature is
    "Node.js": (lambda uri: quote(uri, safe="!'()*"), lambda signature: quote(signature, safe="!'()*")),
    "Java": (quote_plus, quote_plus),
    "PHP": (of_php, lambda signature: quote(signature, safe="")),
    "PowerShell": (lambda uri: small_hex(quote_plus(uri)), lambda signature: small_hex(quote_plus(signature))),
    "C#": (lambda uri: small_hex(quote_plus(uri)), lambda signature: small_hex(quote_plus(signature))),
    "Bash": (lambda uri: quote(uri, safe=""), lambda signature: quote(signature, safe="")),
    "Python": (quote_plus, quote),  # `/` and `=` of the signature: the first stays, the second does not
}


def token_of(language: str, uri: str, expiry: int, key: str = KEY) -> str:
    resource_of, encoded_signature = LANGUAGES[language]
    resource = resource_of(uri)
    signature = encoded_signature(signature_of(f"{resource}\n{expiry}", key))
    return f"SharedAccessSignature sr={resource}&sig={signature}&se={expiry}&skn={KEY_NAME}"


def status_of(server: EmubusServer, token: str, path: str = "/q/messages") -> int:
    with Rest(server.http_port, [("Authorization", token)]) as rest:
        return rest.ask("POST", path, b"x").status


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("path", ["", "/", "/q", "/q/messages", "/Q/"])
def test_a_token_as_a_language_of_the_page_makes_it_opens_what_it_names(
    language: str, path: str, server: EmubusServer
) -> None:
    week = in_seconds(server, 168 * HOUR_S)
    for scheme in ("https", "http", "sb", "amqp"):
        for attempt in range(20):  # signatures with `+`, `/` and without
            token = token_of(language, f"{scheme}://127.0.0.1:{server.http_port}{path}", week + attempt)
            assert status_of(server, token) == 201, token


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_token_of_another_key_or_another_entity_or_of_yesterday_opens_nothing(
    language: str, server: EmubusServer
) -> None:
    uri, expiry = f"https://127.0.0.1:{server.http_port}", in_seconds(server, HOUR_S)
    assert status_of(server, token_of(language, uri, expiry, "another key")) == 401
    assert status_of(server, token_of(language, f"{uri}/other", expiry)) == 401
    assert status_of(server, token_of(language, uri, in_seconds(server, -24 * HOUR_S))) == 401


def test_what_was_signed_must_be_what_the_token_says(server: EmubusServer) -> None:
    uri, expiry = f"https://127.0.0.1:{server.http_port}/q", in_seconds(server, HOUR_S)
    token = token_of("C#", uri, expiry)
    assert status_of(server, token) == 201
    assert status_of(server, token.replace(f"se={expiry}", f"se={expiry + 1}")) == 401
    assert status_of(server, token.replace("%2fq", "%2fr")) == 401
    assert status_of(server, token.replace(KEY_NAME, "Unknown")) == 401
