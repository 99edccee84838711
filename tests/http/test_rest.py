"""REST messaging, request by request: what each operation answers, as Microsoft documents it."""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import time
import urllib.parse
import uuid
from datetime import timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiveMode

from emubus.testing import (
    Auth,
    AuthorizationRule,
    EmubusServer,
    EntityStatus,
    Profile,
    QueueDescription,
    Right,
    SharedKey,
)

from .rest import BATCH, Rest

LOCK_MS = 60_000


def test_a_sent_message_is_received_with_its_body_type_and_properties(rest: Rest) -> None:
    sent = rest.send(
        "plain", b"\x00\xff raw", [("Content-Type", "text/x-mine; a=b"), ("Priority", '"High"')], Label="M1"
    )
    assert (sent.status, sent.content) == (201, b"")
    got = rest.receive("plain")
    assert (got.status, got.content, got.headers["Content-Type"]) == (200, b"\x00\xff raw", "text/x-mine; a=b")
    assert (got.broker["Label"], got.custom) == ("M1", {"Priority": '"High"'})
    assert rest.receive("plain").status == 204


def test_a_locked_message_tells_where_it_is_settled(rest: Rest) -> None:
    rest.send("plain", b"x")
    locked = rest.peek_lock("plain")
    number, token = locked.broker["SequenceNumber"], locked.broker["LockToken"]
    assert locked.status == 201
    assert locked.headers["Location"] == f"http://{rest.host}/plain/messages/{number}/{token}"
    assert rest.peek_lock("plain").status == 204
    assert rest.complete(locked.path) == 200
    assert rest.receive("plain").status == 204


def test_a_message_without_id_is_given_one(rest: Rest) -> None:
    for _ in range(2):
        rest.send("plain")
    first, second = (rest.receive("plain").broker["MessageId"] for _ in range(2))
    assert uuid.UUID(first).hex == first
    assert first != second


def test_an_unlocked_message_comes_again_and_is_counted(rest: Rest) -> None:
    rest.send("plain", b"x")
    locked = rest.peek_lock("plain")
    assert locked.broker["DeliveryCount"] == 1
    assert rest.unlock(locked.path) == 200
    again = rest.peek_lock("plain")
    assert (again.content, again.broker["DeliveryCount"]) == (b"x", 2)


def test_a_renewed_lock_lasts_from_now(bus: EmubusServer, rest: Rest) -> None:
    bus.freeze()
    rest.send("plain", b"x")
    locked = rest.peek_lock("plain")
    bus.advance(LOCK_MS - 1)
    renewed = rest.renew(locked.path)
    assert (renewed.status, renewed.path) == (200, locked.path)
    assert renewed.broker["LockedUntilUtc"] > locked.broker["LockedUntilUtc"]
    bus.advance(LOCK_MS - 1)
    assert rest.complete(locked.path) == 200


def test_a_lock_that_is_over_or_settled_or_unknown_is_not_found(bus: EmubusServer, rest: Rest) -> None:
    rest.send("plain", b"x")
    expired = rest.peek_lock("plain")
    bus.advance(LOCK_MS)
    settled = rest.peek_lock("plain")
    assert settled.broker["DeliveryCount"] == 2
    assert rest.complete(settled.path) == 200
    unknown = f"/plain/messages/1/{uuid.UUID(int=7)}"
    for path in (expired.path, settled.path, unknown, "/plain/messages/1/nonsense"):
        assert rest.ask("POST", path).status == 404
    for path in (expired.path, settled.path, unknown):
        assert (rest.unlock(path), rest.complete(path)) == (404, 404)
    assert "The lock supplied is invalid." in rest.ask("DELETE", settled.path).detail


def test_the_message_id_may_stand_for_the_number_in_the_address_of_a_lock(rest: Rest) -> None:
    rest.send("plain", b"x", MessageId="my/own id")
    locked = rest.peek_lock("plain")
    assert rest.complete(f"/plain/messages/my%2Fown%20id/{locked.lock_token}") == 200


def test_paths_may_end_with_a_slash(rest: Rest) -> None:
    """As ServiceBusJavaScriptSdk writes them."""
    for text in (b"1", b"2", b"3"):
        assert rest.ask("POST", "/plain/messages/?timeout=60", text).status == 201
    assert rest.ask("DELETE", "/plain/messages/head/?timeout=0").content == b"1"
    locked = rest.ask("POST", "/plain/messages/head/?timeout=0")
    assert (locked.status, locked.content) == (201, b"2")
    assert rest.renew(f"{locked.path}/").status == 200
    assert rest.unlock(f"{locked.path}/") == 200
    again = rest.ask("POST", "/plain/messages/head/?timeout=0")
    assert rest.complete(f"{again.path}/") == 200
    assert rest.receive("plain").content == b"3"
    assert rest.receive("plain").status == 204


def test_paths_are_known_in_any_case_and_lock_tokens_in_any_form(rest: Rest) -> None:
    assert rest.ask("POST", "/PLAIN/Messages", b"x").status == 201
    locked = rest.ask("POST", "/Plain/Messages/Head?timeout=0")
    assert locked.status == 201
    token = locked.lock_token
    assert rest.ask("POST", f"/plain/MESSAGES/1/{str(token).upper()}").status == 200
    assert rest.ask("DELETE", f"/plain/messages/1/{token.hex}").status == 200


@pytest.mark.parametrize("subscriptions", ["subscriptions", "Subscriptions"])
def test_a_subscription_gives_copies_of_what_its_topic_is_sent(rest: Rest, subscriptions: str) -> None:
    assert rest.send("topic", b"x").status == 201
    locked = rest.peek_lock(f"topic/{subscriptions}/one")
    assert locked.content == b"x"
    assert locked.path == f"/topic/subscriptions/one/messages/{locked.broker['SequenceNumber']}/{locked.lock_token}"
    assert rest.complete(locked.path) == 200


@pytest.mark.parametrize("queue", ["$DeadLetterQueue", "$deadletterqueue", "%24DeadLetterQueue"])
def test_dead_letters_are_received_with_the_reason(rest: Rest, queue: str) -> None:
    path = "topic/subscriptions/one"
    rest.send("topic", b"x")
    for _ in range(2):
        assert rest.unlock(rest.peek_lock(path).path) == 200
    assert rest.peek_lock(path).status == 204
    dead = rest.peek_lock(f"{path}/{queue}")
    assert (dead.status, dead.custom["DeadLetterReason"]) == (201, '"MaxDeliveryCountExceeded"')
    assert (rest.complete(dead.path), rest.receive(f"{path}/{queue}").status) == (200, 204)


def test_the_transfer_dead_letter_queue_has_a_path_too(rest: Rest) -> None:
    assert rest.receive("plain/$Transfer/$DeadLetterQueue").status == 204


def test_a_message_is_scheduled(bus: EmubusServer, rest: Rest) -> None:
    bus.freeze()
    at = bus.now_ms() // 1000 + 3600
    date = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(at))
    assert rest.send("parts", b"later", ScheduledEnqueueTimeUtc=date).status == 201
    assert rest.receive("parts").status == 204
    bus.advance(3_600_000)
    got = rest.receive("parts")
    assert (got.content, got.broker["ScheduledEnqueueTimeUtc"]) == (b"later", date)


def test_a_message_lives_for_its_time(bus: EmubusServer, rest: Rest) -> None:
    bus.freeze()
    rest.send("plain", b"x", TimeToLive=10)
    rest.send("plain", b"y", TimeToLive="20.5")
    locked = rest.peek_lock("plain")
    assert (locked.content, locked.broker["TimeToLive"]) == (b"x", 10)
    rest.unlock(locked.path)
    bus.advance(10_000)
    got = rest.receive("plain")
    assert (got.content, got.broker["TimeToLive"]) == (b"y", 20.5)


def test_a_time_to_live_beyond_the_49_days_of_a_header_is_kept_and_shown(bus: EmubusServer, rest: Rest) -> None:
    bus.freeze()
    rest.send("plain", b"x", TimeToLive=100 * 86_400)
    bus.advance(60 * 86_400_000)
    locked = rest.peek_lock("plain")
    assert (locked.content, locked.broker["TimeToLive"]) == (b"x", 100 * 86_400)
    rest.unlock(locked.path)
    (seen,) = bus.peek("plain")
    assert seen.header["ttl_ms"] == 100 * 86_400_000
    bus.advance(40 * 86_400_000)
    assert rest.receive("plain").status == 204


# ---- batches


def test_a_batch_is_stored_as_the_messages_that_it_describes(rest: Rest) -> None:
    sent = rest.send_batch(
        "plain",
        {"Body": "This is the first", "BrokerProperties": {"Label": "M1", "TimeToLiveTimeSpan": "0.00:00:40"}},
        {"Body": "AP8=", "IsBodyBase64": True, "BrokerProperties": {"ContentType": "x/y", "MessageId": "2"}},
        {"UserProperties": {"Priority": "Medium", "n": 3, "f": 0.5, "yes": True, "nothing": None}},
    )
    assert (sent.status, sent.content) == (201, b"")
    first, second, third = (rest.receive("plain") for _ in range(3))
    assert (first.content, first.broker["Label"], first.broker["TimeToLive"]) == (b"This is the first", "M1", 40)
    assert (second.content, second.headers["Content-Type"], second.broker["MessageId"]) == (b"\x00\xff", "x/y", "2")
    assert (third.content, third.custom) == (b"", {"Priority": '"Medium"', "n": "3", "f": "0.5", "yes": "true"})
    assert rest.receive("plain").status == 204


def test_headers_of_a_batch_are_not_those_of_its_messages(rest: Rest) -> None:
    headers = [("Content-Type", BATCH), ("Color", '"red"'), ("BrokerProperties", '{"Label":"all"}')]
    assert rest.ask("POST", "/plain/messages", b'[{"Body":"x"}]', headers).status == 201
    got = rest.receive("plain")
    assert (got.content, got.custom, "Label" in got.broker) == (b"x", {}, False)


def test_with_a_parameter_in_its_type_a_batch_is_one_message(rest: Rest) -> None:
    content_type = f"{BATCH}; charset=utf-8"
    assert rest.send("plain", b'[{"Body":"x"}]', [("Content-Type", content_type)]).status == 201
    got = rest.receive("plain")
    assert (got.content, got.headers["Content-Type"]) == (b'[{"Body":"x"}]', content_type)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "The batch can't be read as JSON: line 1, column 1: a value is expected, and the text ends."),
        (b"{}", "The batch is no JSON array of messages, or it is empty."),
        (b"[]", "The batch is no JSON array of messages, or it is empty."),
        (b"[" * 100_000, "The batch can't be read as JSON: line 1, column 257: it is nested more than 256 deep"),
        (
            b'[{"Body":"a","Body":"b"}]',
            "The batch can't be read as JSON: line 1, column 14: the name 'Body' is given twice",
        ),
        (b'[{"Body":"good"},1]', "Message 2 of the batch is invalid: it is no JSON object."),
        (b'[{"Body":{"a":1}}]', "Message 1 of the batch is invalid: 'Body' is of type dict; it must be a string."),
        (b'[{"Body":"?","IsBodyBase64":true}]', "Message 1 of the batch is invalid: 'Body' is not base64"),
        (b'[{"Body":"","IsBodyBase64":"yes"}]', "Message 1 of the batch is invalid: 'IsBodyBase64' is 'yes'"),
        (b'[{"UserProperties":{"a":[]}}]', "Message 1 of the batch is invalid: The user property 'a' is an object"),
        (b'[{"BrokerProperties":[]}]', "Message 1 of the batch is invalid: 'BrokerProperties' is no JSON object."),
        (
            b'[{"Body":"\\ud800"}]',
            "The batch can't be read as JSON: line 1, column 10: a lone surrogate is not a character",
        ),
    ],
)
def test_a_batch_that_is_none_is_refused_whole(rest: Rest, content: bytes, problem: str) -> None:
    answer = rest.ask("POST", "/plain/messages", content, [("Content-Type", BATCH)])
    assert answer.status == 400
    assert answer.detail.startswith(problem), answer.detail
    assert rest.receive("plain").status == 204


# ---- refusals


def test_what_is_not_there_is_gone(rest: Rest) -> None:
    answer = rest.send("nope", b"x")
    assert answer.status == 410
    assert answer.headers["Content-Type"] == "application/xml; charset=utf-8"
    assert answer.detail.startswith(
        "The messaging entity 'sb://sbemulatorns.servicebus.windows.net/nope' could not be found."
    )
    for path in ("nope", "topic/subscriptions/two", "plain/subscriptions/one"):
        assert rest.peek_lock(path).status == rest.receive(path).status == 410
        assert rest.complete(f"/{path}/messages/1/{uuid.UUID(int=1)}") == 410


def test_an_entity_that_does_not_do_such_a_thing_says_so(rest: Rest) -> None:
    refused = {
        "sent to a subscription": rest.send("topic/subscriptions/one", b"x"),
        "sent to dead letters": rest.send("plain/$DeadLetterQueue", b"x"),
        "received from a topic": rest.peek_lock("topic"),
        "received from what forwards": rest.receive("forwarding"),
        "received without a session": rest.peek_lock("sessions"),
        "sent without a session": rest.send("sessions", b"x"),
    }
    assert {name: answer.status for name, answer in refused.items()} == dict.fromkeys(refused, 405)
    assert refused["received without a session"].detail.startswith(
        "It is not possible for an entity that requires sessions to create a non-sessionful message receiver."
    )
    assert refused["sent without a session"].detail.startswith("The SessionId was not set on a message")


def test_a_disabled_entity_is_forbidden(bus: EmubusServer, rest: Rest) -> None:
    bus.update(QueueDescription("plain", status=EntityStatus.SEND_DISABLED))
    assert (rest.send("plain", b"x").status, rest.receive("plain").status) == (403, 204)
    bus.update(QueueDescription("plain", status=EntityStatus.RECEIVE_DISABLED))
    assert (rest.send("plain", b"x").status, rest.receive("plain").status) == (201, 403)


@pytest.mark.parametrize("text", ["x", "-1", "1e3", "0x10", "%C2%B2", "1;2", "9999999999"])
def test_a_timeout_that_is_no_number_of_seconds_is_refused(rest: Rest, text: str) -> None:
    for method in ("POST", "DELETE"):
        answer = rest.ask(method, f"/plain/messages/head?timeout={text}")
        assert answer.status == 400
        assert answer.detail.startswith("The timeout is '")


def test_a_message_above_the_limit_is_forbidden_before_it_is_read(bus: EmubusServer, rest: Rest) -> None:
    largest = (256 << 10) - 200  # and its properties
    assert rest.send("plain", bytes(largest)).status == 201
    assert len(rest.receive("plain").content) == largest
    assert rest.send("plain", bytes(256 << 10)).status == 403  # with its properties it is too large
    connection = http.client.HTTPConnection("127.0.0.1", bus.http_port, timeout=20)
    connection.putrequest("POST", "/plain/messages")
    connection.putheader("Content-Length", str(1 << 40))
    connection.endheaders()
    answer = connection.getresponse()
    assert (answer.status, b"at most 262144 are allowed" in answer.read()) == (403, True)
    connection.close()
    assert rest.receive("plain").status == 204


def test_a_body_without_length_is_bounded_too(bus: EmubusServer, rest: Rest) -> None:
    def chunked(size: int) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", bus.http_port, timeout=20)
        parts = (bytes(min(1 << 14, size - start)) for start in range(0, size, 1 << 14))
        connection.request(
            "POST", "/plain/messages", parts, encode_chunked=True, headers={"Transfer-Encoding": "chunked"}
        )
        status = connection.getresponse().status
        connection.close()
        return status

    assert chunked(100_000) == 201
    assert len(rest.receive("plain").content) == 100_000
    assert chunked((256 << 10) + 1) == 403


def test_a_batch_above_the_limit_is_forbidden(rest: Rest) -> None:
    half = {"Body": "x" * (130 << 10)}
    assert rest.send_batch("plain", half).status == 201
    assert rest.send_batch("plain", half, half).status == 403
    assert rest.ask("POST", "/plain/messages", b" " * ((1 << 20) + 1), [("Content-Type", BATCH)]).status == 403


def test_a_larger_message_is_taken_where_the_entity_takes_it() -> None:
    large = QueueDescription("large", max_message_bytes=4 << 20)
    with EmubusServer([large], profile=Profile.PREMIUM) as bus, Rest(bus.http_port) as rest:
        assert rest.send("large", bytes(3 << 20)).status == 201
        assert len(rest.receive("large").content) == 3 << 20
        assert rest.send("large", bytes((4 << 20) + 1)).status == 403


def test_a_full_entity_is_a_quota_that_is_exceeded(bus: EmubusServer, rest: Rest) -> None:
    entity = bus.call(lambda: bus.server.broker.namespace.entity("plain"))
    assert entity is not None
    entity.partitions[0].size_bytes_max = 1000
    answer = rest.send("plain", bytes(2000))
    assert answer.status == 403
    assert answer.detail.startswith(
        "The maximum entity size has been reached or exceeded for Queue: 'sbemulatorns:Queue:plain'."
    )


def test_a_connection_goes_on_after_every_kind_of_refusal(rest: Rest) -> None:
    for _ in range(3):
        assert rest.send("nope", b"body that nobody reads").status == 410
        assert rest.send("plain", b"x", [("Broken", "no quotes")]).status == 400
        assert rest.send("plain", b"x").status == 201
        assert rest.receive("plain").content == b"x"


def test_what_looks_like_a_lock_but_is_an_entity_is_left_to_management(rest: Rest) -> None:
    answer = rest.ask("PUT", "/chat/messages/eu/inbound", b"<entry/>")
    assert answer.detail.startswith("SubCode=40000. The body is not an Atom entry with a description")


# ---- rights


def token(host: str, path: str, name: str, key: str, expires_at: int = 4_000_000_000) -> tuple[str, str]:
    resource = urllib.parse.quote(f"https://{host}/{path}", safe="").lower()
    digest = hmac.new(key.encode(), f"{resource}\n{expires_at}".encode(), hashlib.sha256).digest()
    signature = urllib.parse.quote(base64.b64encode(digest), safe="")
    return "Authorization", f"SharedAccessSignature sr={resource}&sig={signature}&se={expires_at}&skn={name}"


def test_without_a_valid_token_nothing_is_done() -> None:
    with EmubusServer([QueueDescription("q")], auth=Auth.SAS) as bus, Rest(bus.http_port) as rest:
        good = [token(rest.host, "q", "RootManageSharedAccessKey", "SAS_KEY_VALUE")]
        assert rest.ask("POST", "/q/messages", b"x", good).status == 201
        bad = {
            "none": [],
            "wrong key": [token(rest.host, "q", "RootManageSharedAccessKey", "other")],
            "expired": [token(rest.host, "q", "RootManageSharedAccessKey", "SAS_KEY_VALUE", 1_000_000_000)],
            "of another queue": [token(rest.host, "other", "RootManageSharedAccessKey", "SAS_KEY_VALUE")],
        }
        for name, headers in bad.items():
            for method, path in (("POST", "/q/messages"), ("POST", "/q/messages/head"), ("DELETE", "/q/messages/head")):
                assert rest.ask(method, path, b"", headers).status == 401, name
            assert rest.ask("PUT", f"/q/messages/1/{uuid.UUID(int=1)}", b"", headers).status == 401, name
        assert rest.ask("DELETE", "/q/messages/head?timeout=0", None, good).content == b"x"


def test_sending_needs_send_and_receiving_and_settling_need_listen() -> None:
    keys = [SharedKey("sender", "k1", frozenset({Right.SEND})), SharedKey("listener", "k2", frozenset({Right.LISTEN}))]
    own = AuthorizationRule("own", (Right.LISTEN,), "k3", "k4")
    queue = QueueDescription("q", authorization_rules=(own,))
    with EmubusServer([queue, QueueDescription("r")], auth=Auth.SAS, keys=keys) as bus, Rest(bus.http_port) as rest:
        sender, listener = ([token(rest.host, "", name, key)] for name, key in (("sender", "k1"), ("listener", "k2")))
        own_listener = [token(rest.host, "q", "own", "k3")]
        assert rest.ask("POST", "/q/messages", b"x", listener).status == 401
        assert rest.ask("POST", "/q/messages", b"x", sender).status == 201
        assert rest.ask("POST", "/q/messages/head", b"", sender).status == 401
        locked = rest.ask("POST", "/q/messages/head", b"", own_listener)
        assert locked.status == 201
        assert [rest.ask(method, locked.path, b"", sender).status for method in ("POST", "PUT", "DELETE")] == [401] * 3
        assert rest.ask("DELETE", locked.path, b"", listener).status == 200
        assert rest.ask("POST", "/r/messages/head", b"", own_listener).status == 401


PAIRED: list[dict[str, Any]] = [
    {},
    {"SessionId": "s"},
    {"SessionId": "s", "PartitionKey": "s", "TimeToLive": 4_000_000},
    {"PartitionKey": "k", "TimeToLive": 90},
]


@pytest.mark.parametrize("given", [*PAIRED, {"TimeToLive": 100 * 86_400}, {"TimeToLive": 90.25}])
def test_values_of_two_fields_that_rest_sends_are_received_over_amqp(
    rest: Rest, sdk: ServiceBusClient, given: dict[str, Any]
) -> None:
    """Python's SDK shows the times as they are; other SDKs read their difference."""
    rest.send("plain", b"x", **given)
    with sdk.get_queue_receiver("plain", receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE) as receiver:
        (message,) = receiver.receive_messages(max_wait_time=20)
        times = message.raw_amqp_message.properties
        assert times is not None
        created, expires = times.creation_time, times.absolute_expiry_time
        difference_ms = None if created is None or expires is None else expires - created
        assert difference_ms == (given["TimeToLive"] * 1000 if "TimeToLive" in given else None)
        assert (message.session_id, message.partition_key) == (given.get("SessionId"), given.get("PartitionKey"))


@pytest.mark.parametrize("given", PAIRED)
def test_values_of_two_fields_that_amqp_sends_are_received_over_rest(
    rest: Rest, sdk: ServiceBusClient, given: dict[str, Any]
) -> None:
    ttl = timedelta(seconds=given["TimeToLive"]) if "TimeToLive" in given else None
    message = ServiceBusMessage(
        b"y", time_to_live=ttl, session_id=given.get("SessionId"), partition_key=given.get("PartitionKey")
    )
    with sdk.get_queue_sender("plain") as sender:
        sender.send_messages(message)
    shown = rest.receive("plain").broker
    assert {name: shown.get(name) for name in given} == given
