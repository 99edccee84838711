"""Messages as JSON Lines: what is exported and imported is the same again, but for what the broker assigns."""

from __future__ import annotations

import json
import uuid
from typing import Any
from urllib.parse import quote

from emubus.broker.api import OutageKind
from emubus.broker.message.builder import NewMessage
from emubus.broker.model.descriptions import QueueDescription
from emubus.codec.encode import encode
from emubus.codec.types import (
    Array,
    Byte,
    Char,
    Decimal128,
    Described,
    Float,
    Int,
    Long,
    MapItems,
    Symbol,
    Timestamp,
    Ubyte,
    Uint,
    Ulong,
)
from emubus.testing import EmubusServer
from emubus.web.control import ROOT
from emubus.web.messages.transfer import JSON_LINES
from emubus.web.single_send import send_each

from ...web.namespace import counts, lock, send
from .client import Http
from .conftest import PARTS, PLAIN, SESSIONS

VALUES = (
    *(None, True, "text", "é\n\u2028", b"\0\xff", uuid.UUID(int=7), 1.5, float("inf"), Float(0.1), Char("x")),
    *(Symbol("s"), Ubyte(1), Uint(2), Ulong(1 << 63), Byte(-1), Int(-2), Long(1 << 62), Timestamp(-5)),
    *(Decimal128(bytes(range(16))), Array(0x71, (Int(1),)), [1, [None, "x"]], Described(Symbol("d"), "v")),
    MapItems([("a", 1), (Symbol("a"), 2), (Long(3), [True])]),
)


def section(code: int, value: object) -> bytes:
    return bytes((0, 0x53, code)) + encode(value)


def bodies() -> list[bytes]:
    """Encoded messages: each kind of body, and everything else that a message may have."""
    found = [section(0x77, value) for value in VALUES]
    found += [section(0x75, b"one") + section(0x75, b"\xfftwo"), section(0x75, b""), section(0x75, "é".encode())]
    found += [section(0x76, [1, "a"]) + section(0x76, []), section(0x77, {"type": "x", "value": 1})]
    found.append(b"\x00\x53\x77\xc1\x03\x02\xa1\xff")  # a map whose key is cut off
    whole = section(0x70, [True, Ubyte(9), Uint(90_000), True]) + section(0x71, {Symbol("x-own"): Int(1)})
    whole += section(0x72, MapItems([(Symbol("x-mine"), Uint(1)), (Symbol("x-opt-partition-key"), "k")]))
    whole += section(0x73, ["id", b"user", "to", "subject", "reply", "corr", Symbol("text/plain")])
    whole += section(0x74, {"n": Int(1), "s": "x", "type": "t", "value": "v"}) + section(0x75, b"x")
    return [*found, whole + section(0x78, {Symbol("f"): b"\x01"})]


def export(control: Http, path: str, **query: Any) -> list[dict[str, Any]]:
    words = "&".join(f"{name}={quote(str(value))}" for name, value in query.items())
    answer = control.send("GET", f"{ROOT}/entities/{path}/messages/lines?{words}")
    assert (answer.status, answer.headers["Content-Type"]) == (200, JSON_LINES), answer.content
    return [json.loads(line) for line in answer.content.splitlines()]


def load(control: Http, path: str, content: bytes) -> Any:
    return control.done(
        control.send("POST", f"{ROOT}/entities/{path}/messages/lines", content, Content_Type=JSON_LINES)
    )


def text_of(lines: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(each).encode() + b"\n" for each in lines)


def kept(lines: list[dict[str, Any]]) -> list[Any]:
    """The messages without what the broker assigned: here the instant at which one expires."""
    for each in lines:
        each["message"].get("properties", {}).pop("absolute_expiry_time", None)
    return [(each["state"], each["message"]) for each in lines]


def test_every_body_and_type_comes_back_as_it_was(server: EmubusServer, control: Http) -> None:
    server.create(QueueDescription("again"))

    async def fill() -> None:
        broker = server.server.broker
        sent = await send_each(broker, broker.namespace.find(PLAIN)[0], bodies())
        assert all(isinstance(each, int) for each in sent), sent

    server.run(fill())
    later = server.call(server.clock.now_ms) + 3_600_000
    send(server, PLAIN, NewMessage(b"x", scheduled_enqueue_at=later))
    control.post("/jobs", {"verb": "defer", "entity": PLAIN, "sequence_numbers": [1, 2], "wait_ms": 9_000})
    first = export(control, PLAIN)
    assert load(control, "again", text_of(first)) == {"sent_count": len(first), "failed_count": 0, "failures": []}
    second = export(control, "again")
    assert kept(second) == kept(first)
    assert {each["message"]["body"]["kind"] for each in first} == {"data", "value", "sequence", "malformed"}
    assert counts(server, "again") == counts(server, PLAIN)


def test_an_export_is_of_what_matches_and_of_a_sub_queue(server: EmubusServer, control: Http) -> None:
    send(server, PARTS, *(NewMessage(b"x", {"subject": "s"}, {"n": n}) for n in range(130)))
    assert len(export(control, PARTS)) == 130
    assert len(export(control, PARTS, where="n < 7")) == 7
    lock(server, PARTS, 2, reason="why")
    (one, _) = export(control, PARTS, sub_queue="dead-letter")
    assert one["message"]["application_properties"]["DeadLetterReason"] == "why"
    server.begin_outage([0], OutageKind.DOWN)
    assert control.send("GET", f"{ROOT}/entities/{PARTS}/messages/lines").status == 503


def test_a_line_that_is_no_message_leaves_the_others_alone(server: EmubusServer, control: Http) -> None:
    good = {"message": {"body": {"kind": "data", "text": "x"}}}
    bad: list[Any] = [
        [],
        {"message": {"moon": 1}},
        {"message": {"header": {"durable": 1}}},
        {"message": {"header": {"ttl_ms": -1}}},
        {"message": {"properties": {"moon": 1}}},
        {"message": {"annotations": {"a": {}}}},
        {"message": {"application_properties": []}},
        {"message": {"body": {"kind": "moon"}}},
        {"message": {"body": {"kind": "data", "base64": "?"}}},
        {"message": {"body": {"kind": "sequence", "sections": [1]}}},
        {"message": {"body": {"kind": "value", "value": {"type": "ubyte", "value": 256}}}},
    ]
    content = b"\n".join([json.dumps(good).encode(), b"{", b"", *(json.dumps(each).encode() for each in bad)])
    answer = load(control, PLAIN, content + b"\n" + json.dumps(good).encode())
    assert (answer["sent_count"], answer["failed_count"]) == (2, len(bad) + 1)
    assert [each["line"] for each in answer["failures"][:2]] == [2, 4]
    assert counts(server, PLAIN) == {"active": 2}


def test_what_an_entity_refuses_is_a_failure(control: Http, topic: str) -> None:
    answer = load(control, SESSIONS, text_of([{"message": {}}, {"message": {"properties": {"session_id": "s"}}}]))
    assert (answer["sent_count"], answer["failed_count"]) == (1, 1)
    assert load(control, topic, text_of([{"message": {}, "state": "deferred"}]))["sent_count"] == 1
    assert control.ask("GET", f"/entities/{topic}/messages/lines").status == 409
    refused = control.send(
        "POST", f"{ROOT}/entities/{topic}/Subscriptions/a/messages/lines", b"", Content_Type=JSON_LINES
    )
    assert refused.status == 409
