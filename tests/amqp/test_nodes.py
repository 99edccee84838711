"""`$cbs` and `$management`: requests in, responses out, types kept."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from emubus.amqp.limits import Limits
from emubus.broker.access import Access, sign
from emubus.broker.api import Abandon, Complete, DeadLetter, Defer, Outcome
from emubus.broker.keys import SharedKey
from emubus.codec.decode import decode
from emubus.codec.encode import encode, encode_described
from emubus.codec.types import Array, Described, Int, Long, Symbol, Timestamp, Ubyte, Uint, Ulong

from ..tracking import untracked
from .fakes import token
from .wire import ATTACH, DETACH, DISPOSITION, END, FLOW, TRANSFER, Frame, Wire, accepted

ID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
TAG = bytes.fromhex("33221100554477668899aabbccddeeff")
LOCK_TOKENS = Array(0x98, (ID,))


def sections(payload: bytes) -> dict[int, Any]:
    found: dict[int, Any] = {}
    position = 0
    while position < len(payload):
        section, position = decode(payload, position)
        assert isinstance(section, Described)
        assert isinstance(section.descriptor, int)
        found[section.descriptor] = section.value
    return found


def request(properties: dict[str, object], body: object, message_id: object = "id-1", reply_to: object = None) -> bytes:
    return b"".join(
        (
            encode_described(Ulong(0x73), encode([message_id, None, None, None, reply_to])),
            encode_described(Ulong(0x74), encode(properties)),
            encode_described(Ulong(0x77), encode(body)),
        )
    )


class Asker:
    """A requester (handle 0) and a replier (handle 1) on one node; the server has them as 1 and 0."""

    def __init__(self, wire: Wire, address: str, *, credit: int = 100, **more: Any) -> None:
        self.wire = wire
        self.frames = wire.attach_receiver(address, 1, target=more.pop("target", address), credit=credit, **more)
        self.frames += wire.attach_sender(address, 0)

    async def ask(self, data: bytes, *, settled: bool = False) -> list[Frame]:
        self.wire.write(self.wire.transfer(data, settled=settled))
        return await self.wire.turn(6)

    async def answer(self, properties: dict[str, object], body: object, message_id: object = "id-1") -> dict[int, Any]:
        frames = await self.ask(request(properties, body, message_id))
        assert sorted(each.code for each in frames) == [TRANSFER, DISPOSITION]
        (disposition,) = [each for each in frames if each.code == DISPOSITION]
        assert disposition.get(4) == accepted
        payload = b"".join(each.payload for each in frames if each.code == TRANSFER)
        answer = sections(payload)
        assert answer[0x70][4] == 0  # the delivery-count
        assert answer[0x73][5] == message_id
        assert type(answer[0x73][5]) is type(message_id)
        return answer


# ---- $cbs


async def test_a_connection_has_one_sender_to_cbs_at_a_time(wire: Wire) -> None:
    wire.begin(1)
    assert [each.code for each in wire.attach_sender("$cbs", 0)] == [ATTACH, FLOW]
    attach, detach = wire.attach_sender("$cbs", 0, channel=1)
    assert (attach.get(5), attach.get(6)) == (None, None)
    condition, text, _ = detach.fields[2].value
    assert (condition, untracked(text)) == (
        "amqp:not-allowed",
        "A connection has one sender to '$cbs': close the first one.",
    )
    assert [each.code for each in wire.attach_receiver("$cbs", 1, channel=1)] == [ATTACH]
    wire.send(0, DETACH, [Uint(0), True])
    assert [each.code for each in wire.attach_sender("$cbs", 2)] == [DETACH, ATTACH, FLOW]
    wire.send(0, END, [])
    assert [each.code for each in wire.attach_sender("$cbs", 3, channel=1)] == [END, ATTACH, FLOW]


def sas(key: str, resource: str = "sb%3a%2f%2fhost%2fq", expiry: str = "9999999999") -> str:
    from urllib.parse import quote

    return f"SharedAccessSignature sr={resource}&sig={quote(sign(resource, expiry, key))}&se={expiry}&skn=name"


PUT_TOKEN: dict[str, object] = {"operation": "put-token", "type": "jwt", "name": "sb://host/q"}


@pytest.mark.parametrize("message_id", [ID, "text", Ulong(7), b"binary"])
async def test_a_token_is_taken_with_202_and_an_id_of_the_same_type(wire: Wire, message_id: object) -> None:
    answer = await Asker(wire, "$cbs").answer(PUT_TOKEN, "any token", message_id)
    assert answer[0x74] == {"status-code": 202, "status-description": "Accepted"}
    assert type(answer[0x74]["status-code"]) is Int
    assert answer[0x77] is None


async def test_a_presettled_request_is_answered_with_the_response_only(wire: Wire) -> None:
    frames = await Asker(wire, "$CBS", snd=Ubyte(1)).ask(request(PUT_TOKEN, "token"), settled=True)
    assert [each.code for each in frames] == [TRANSFER]
    assert frames[0].get(4) is True


@pytest.mark.parametrize(("address", "operation"), [("$cbs", "put-token"), ("q/$management", "peek")])
async def test_the_outcome_of_a_request_comes_before_the_response(wire: Wire, address: str, operation: str) -> None:
    asker = Asker(wire, address)
    frames = await asker.ask(request({"operation": operation}, {}))
    assert [each.code for each in frames] == [DISPOSITION, TRANSFER]  # uAMQP takes the other order for a failure


async def test_a_client_that_takes_no_responses_loses_its_link_for_them() -> None:
    wire = Wire(limits=Limits(replies_max=3))
    problem = "4 responses of 344 bytes in all wait for credit on the link."
    wire.open()
    asker = Asker(wire, "$cbs", credit=0)
    for _ in range(3):
        assert [each.code for each in await asker.ask(request(PUT_TOKEN, "token"))] == [DISPOSITION]
    _, detach = await asker.ask(request(PUT_TOKEN, "token"))
    condition, text, _ = detach.fields[2].value
    assert (condition, untracked(text)) == ("amqp:resource-limit-exceeded", problem)
    assert [each.code for each in await asker.ask(request(PUT_TOKEN, "token"))] == [DISPOSITION]
    wire.lose()


async def test_the_reply_to_chooses_among_several_response_links(wire: Wire) -> None:
    asker = Asker(wire, "$cbs", target="first")
    wire.attach_receiver("$cbs", 2, target="second", name="cbs-name", credit=10)
    for reply_to, handle in (("first", 0), ("second", 2), ("cbs-name", 2), ("nobody", 2), (None, 2)):
        frames = await asker.ask(request(PUT_TOKEN, "token", reply_to=reply_to))
        assert [each.fields[0] for each in frames if each.code == TRANSFER] == [handle]


async def test_javascripts_response_link_has_no_target_address_and_the_reply_to_is_its_name(wire: Wire) -> None:
    wire.attach_receiver("$cbs", 2, target="other", credit=10)
    wire.attach_receiver("$cbs", 1, target=None, name="cbs-1", credit=10)
    wire.attach_sender("$cbs", 0)
    wire.write(wire.transfer(request(PUT_TOKEN, "token", reply_to="cbs-1")))
    assert [each.fields[0] for each in await wire.turn(6) if each.code == TRANSFER] == [1]


@pytest.mark.parametrize(
    ("properties", "body", "status", "condition"),
    [
        ({"operation": "delete-token", "name": "sb://host/q"}, "token", 501, "amqp:not-implemented"),
        ({"name": "sb://host/q"}, "token", 501, "amqp:not-implemented"),
        ({"operation": "put-token"}, "token", 400, "com.microsoft:argument-error"),
        (PUT_TOKEN, None, 400, "com.microsoft:argument-error"),
        (PUT_TOKEN, 5, 400, "com.microsoft:argument-error"),
    ],
)
async def test_what_is_no_put_token_is_refused_in_words(
    wire: Wire, properties: dict[str, object], body: object, status: int, condition: str
) -> None:
    answer = (await Asker(wire, "$cbs").answer(properties, body))[0x74]
    assert (answer["status-code"], answer["errorCondition"]) == (status, condition)
    assert answer["status-description"]


async def test_an_accepted_token_is_answered_without_a_condition(wire: Wire) -> None:
    """Python takes the presence of an error condition for a failure, whatever the status."""
    answer = (await Asker(wire, "$cbs").answer(PUT_TOKEN, "token"))[0x74]
    assert answer == {"status-code": 202, "status-description": "Accepted"}


async def test_a_request_without_properties_is_answered_without_an_id(wire: Wire) -> None:
    frames = await Asker(wire, "$cbs").ask(encode_described(Ulong(0x77), encode("token")))
    (transfer,) = [each for each in frames if each.code == TRANSFER]
    assert sections(transfer.payload)[0x74]["status-code"] == 501


@pytest.mark.parametrize("data", [b"", b"\xff", b"\x00\x53\x77", encode([1, 2]), b"\x00\x53\x73\x40"])
async def test_a_request_that_is_no_message_is_rejected_or_answered_but_never_breaks_anything(
    wire: Wire, data: bytes
) -> None:
    asker = Asker(wire, "$cbs")
    await asker.ask(data)
    assert (await asker.answer(PUT_TOKEN, "token"))[0x74]["status-code"] == 202


async def test_a_verified_token_opens_the_entity_and_a_wrong_one_does_not() -> None:
    wire = Wire(access=Access([SharedKey("name", "key")], verify=True))
    wire.open()
    asker = Asker(wire, "$cbs")
    _, detach = wire.attach_sender("q", 5)
    condition, text, _ = detach.fields[2].value
    assert condition == "amqp:unauthorized-access"
    assert text.startswith("Unauthorized access. 'Send' claim(s) are required to perform this operation. Resource:")
    _, detach = wire.attach_receiver("q", 6)
    assert "'Listen' claim(s)" in detach.fields[2].value[1]
    _, detach = wire.attach_receiver("q/$management", 7)
    assert detach.fields[2].value[0] == "amqp:unauthorized-access"
    refused = (await asker.answer(PUT_TOKEN, sas("wrong")))[0x74]
    assert {**refused, "status-description": untracked(refused["status-description"])} == {
        "status-code": 401,
        "status-description": "InvalidSignature: The token has an invalid signature.",
        "errorCondition": "amqp:unauthorized-access",
    }
    wire.send(0, DETACH, [Uint(5), True])
    assert (await asker.answer(PUT_TOKEN, sas("key")))[0x74]["status-code"] == 202
    assert [each.code for each in wire.attach_sender("q", 8)] == [0x12, 0x13]
    assert [each.code for each in wire.attach_receiver("q/$management", 9)] == [0x12]
    wire.lose()


# ---- $management


def manage(operation: str, **more: object) -> dict[str, object]:
    return {"operation": f"com.microsoft:{operation}", **more}


@pytest.fixture
async def asker(wire: Wire) -> Asker:
    wire.broker.queues["q/$deadletterqueue"] = type(wire.broker.q)()
    return Asker(wire, "q/$management")


@pytest.mark.parametrize("message_id", [ID, "entity-mgmt12", Ulong(7)])
async def test_peeked_messages_are_a_list_of_maps(asker: Asker, message_id: object) -> None:
    asker.wire.broker.q.put(b"one", b"two", b"three")
    answer = await asker.answer(
        manage("peek-message"), {"from-sequence-number": Long(2), "message-count": Int(5)}, message_id
    )
    assert answer[0x74]["statusCode"] == 200
    assert type(answer[0x74]["statusCode"]) is Int
    assert answer[0x74]["status-code"] == 200
    assert answer[0x77] == {"messages": [{"message": b"two"}, {"message": b"three"}]}


async def test_a_peek_of_nothing_is_204(asker: Asker) -> None:
    answer = await asker.answer(manage("peek-message"), {"from-sequence-number": Long(0), "message-count": Int(1)})
    assert answer[0x74]["statusCode"] == 204
    assert answer[0x77] == {}


async def test_a_peek_gives_no_more_than_the_clients_link_takes(wire: Wire) -> None:
    asker = Asker(wire, "q/$management", size=Ulong(100_000))
    wire.broker.q.put(*[bytes(30_000)] * 10)
    frames = await asker.ask(request(manage("peek-message"), {"message-count": Int(10)}))
    payload = b"".join(each.payload for each in frames if each.code == TRANSFER)
    assert len(payload) <= 100_000
    assert len(sections(payload)[0x77]["messages"]) == 3


async def test_renewed_locks_are_an_array_of_timestamps(asker: Asker) -> None:
    asker.wire.broker.q.locked[TAG] = b"message"
    answer = await asker.answer(manage("renew-lock"), {"lock-tokens": LOCK_TOKENS})
    assert answer[0x77] == {"expirations": Array(0x83, (Timestamp(asker.wire.broker.now_ms + 60_000),))}


async def test_a_lost_lock_is_410_with_a_symbol(asker: Asker) -> None:
    for operation, body in (
        ("renew-lock", {"lock-tokens": LOCK_TOKENS}),
        ("update-disposition", {"disposition-status": "completed", "lock-tokens": LOCK_TOKENS}),
    ):
        answer = await asker.answer(manage(operation), body)
        assert answer[0x74]["statusCode"] == 410
        assert answer[0x74]["statusDescription"].startswith("The lock supplied is invalid.")
        assert type(answer[0x74]["errorCondition"]) is Symbol
        assert answer[0x74]["errorCondition"] == "com.microsoft:message-lock-lost"


@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        ({"disposition-status": "completed"}, Complete()),
        ({"disposition-status": "abandoned", "properties-to-modify": {"a": Int(1)}}, Abandon({"a": Int(1)})),
        ({"disposition-status": "defered"}, Defer()),
        ({"disposition-status": "deferred"}, Defer()),
        (
            {"disposition-status": "suspended", "deadletter-reason": "", "deadletter-description": ""},
            DeadLetter(None, None),
        ),
        (
            {"disposition-status": "suspended", "deadletter-reason": "why", "deadletter-description": "more"},
            DeadLetter("why", "more"),
        ),
    ],
)
@pytest.mark.parametrize("tokens", [LOCK_TOKENS, [ID], ID])
async def test_settling_by_lock_token(asker: Asker, body: dict[str, object], outcome: Outcome, tokens: object) -> None:
    asker.wire.broker.q.locked[TAG] = b"message"
    answer = await asker.answer(manage("update-disposition"), {**body, "lock-tokens": tokens})
    assert answer[0x74]["statusCode"] == 200
    assert asker.wire.broker.q.settled == [(TAG, outcome)]


@pytest.mark.parametrize("mode", [Uint(1), Ubyte(1), Int(1), None])
async def test_deferred_messages_come_with_their_lock_tokens(asker: Asker, mode: object) -> None:
    asker.wire.broker.q.deferred = {7: b"seven", 9: b"nine"}
    answer = await asker.answer(
        manage("receive-by-sequence-number"),
        {"sequence-numbers": Array(0x81, (Long(7), Long(9))), "receiver-settle-mode": mode},
    )
    assert answer[0x77] == {
        "messages": [
            {"message": b"seven", "lock-token": uuid.UUID(bytes_le=token(7))},
            {"message": b"nine", "lock-token": uuid.UUID(bytes_le=token(9))},
        ]
    }


async def test_deferred_messages_that_are_removed_come_without_lock_tokens(asker: Asker) -> None:
    asker.wire.broker.q.deferred = {7: b"seven"}
    answer = await asker.answer(
        manage("receive-by-sequence-number"), {"sequence-numbers": [Long(7)], "receiver-settle-mode": Uint(0)}
    )
    assert answer[0x77] == {"messages": [{"message": b"seven"}]}


async def test_deferred_messages_that_are_missing_are_404(asker: Asker) -> None:
    answer = await asker.answer(manage("receive-by-sequence-number"), {"sequence-numbers": Array(0x81, (Long(5),))})
    assert answer[0x74]["statusCode"] == 404
    assert answer[0x74]["errorCondition"] == "com.microsoft:message-not-found"


@pytest.mark.parametrize(
    ("operation", "body", "named"),
    [
        ("peek-message", None, "map"),
        ("peek-message", {"from-sequence-number": Long(0)}, "message-count"),
        ("peek-message", {"message-count": True}, "message-count"),
        ("peek-message", {"message-count": Int(0)}, "message-count"),
        ("renew-lock", {}, "lock-tokens"),
        ("renew-lock", {"lock-tokens": []}, "lock-tokens"),
        ("renew-lock", {"lock-tokens": ["text"]}, "lock-tokens"),
        ("update-disposition", {"lock-tokens": LOCK_TOKENS}, "disposition-status"),
        ("update-disposition", {"lock-tokens": LOCK_TOKENS, "disposition-status": "eaten"}, "disposition-status"),
        (
            "update-disposition",
            {"lock-tokens": LOCK_TOKENS, "disposition-status": "abandoned", "properties-to-modify": 5},
            "properties-to-modify",
        ),
        ("receive-by-sequence-number", {"sequence-numbers": ["x"]}, "sequence-numbers"),
        ("receive-by-sequence-number", {"sequence-numbers": None}, "sequence-numbers"),
    ],
)
async def test_a_body_that_is_wrong_is_400_and_names_the_field(
    asker: Asker, operation: str, body: object, named: str
) -> None:
    answer = await asker.answer(manage(operation), body)
    assert answer[0x74]["statusCode"] == 400
    assert named in answer[0x74]["statusDescription"]
    assert answer[0x74]["errorCondition"].startswith("com.microsoft:argument")


@pytest.mark.parametrize("operation", ["com.microsoft:brew-coffee", "", 5])
async def test_an_operation_that_there_is_not_is_501(asker: Asker, operation: object) -> None:
    answer = await asker.answer({"operation": operation, "com.microsoft:tracking-id": "track"}, {})
    assert answer[0x74]["statusCode"] == 501
    assert answer[0x74]["errorCondition"] == "amqp:not-implemented"
    assert answer[0x74]["com.microsoft:tracking-id"] == "track"


async def test_responses_wait_for_credit(wire: Wire) -> None:
    asker = Asker(wire, "q/$management", credit=0)
    for _ in range(3):
        frames = await asker.ask(request(manage("peek-message"), {"message-count": Int(1)}))
        assert [each.code for each in frames] == [DISPOSITION]
    wire.flow(1, 1)
    assert [each.code for each in wire.read()] == [TRANSFER]
    wire.flow(1, 1, count=1)
    assert [each.code for each in wire.read()] == [TRANSFER]
    wire.flow(1, 5, count=2, drain=True)
    transfer, flow = wire.read()
    assert transfer.code == TRANSFER
    assert [flow.get(index) for index in (4, 5, 6, 8)] == [0, 7, 0, True]


async def test_the_node_of_a_sub_queue_is_another_node(wire: Wire) -> None:
    wire.broker.queues["q/$deadletterqueue"] = type(wire.broker.q)()
    wire.broker.queues["q/$deadletterqueue"].put(b"dead")
    answer = await Asker(wire, "Q/$deadletterqueue/$management").answer(
        manage("peek-message"), {"message-count": Int(9)}
    )
    assert answer[0x77] == {"messages": [{"message": b"dead"}]}


async def test_the_node_of_an_entity_that_there_is_not_is_refused(wire: Wire) -> None:
    attach, detach = wire.attach_sender("nothing/$management")
    assert (attach.fields[5], attach.fields[6]) == (None, None)
    assert detach.fields[2].value[0] == "amqp:not-found"
    assert (
        detach.fields[2]
        .value[1]
        .startswith("The messaging entity 'sb://ns.servicebus.windows.net/nothing' could not be found.")
    )


async def test_a_client_that_leaves_before_the_response_misses_nothing_but_the_response(asker: Asker) -> None:
    asker.wire.write(asker.wire.transfer(request(manage("peek-message"), {"message-count": Int(1)})))
    asker.wire.lose()
    assert await asker.wire.turn(6) == []


# ---- large requests and responses


def peeks(wire: Wire) -> int:
    return sum(call[0] == "peek" for call in wire.broker.calls)


async def test_messages_are_not_gathered_for_a_client_that_does_not_read(wire: Wire) -> None:
    """Its requests wait, although it may have a hundred under way on each link; with its window they go on."""
    wire.broker.q.put(b"m" * 200_000)
    wire.begin(1, window=1)
    wire.attach_receiver("q/$management", 1, target="q/$management", channel=1)
    wire.flow(1, 100, channel=1, window=1)
    wire.attach_sender("q/$management", 0, channel=1)
    asked = 50
    for number in range(asked):
        data = request(manage("peek-message"), {"message-count": Int(1)}, f"id-{number}")
        wire.write(wire.transfer(data, settled=True, channel=1))
    await wire.turns(20)
    limits = wire.server.context.limits
    few = limits.unread_replies_bytes_max // 200_000 + 1 + limits.large_replies_max
    assert 0 < peeks(wire) <= few < asked
    assert wire.server.context._unread_bytes() <= few * 220_000
    wire.server.hold()  # a held connection goes on, since what it is held for may be the requests
    answered = bytearray()
    for frames in range(1, asked * 5):
        wire.flow(1, 100, channel=1, window=frames + 1)
        answered += b"".join(each.payload for each in await wire.turn())
    assert peeks(wire) == asked
    assert answered.count(b"m" * 1000) // 200 == asked
    wire.server.go_on()


@pytest.mark.parametrize("detached", [True, False])
async def test_requests_that_wait_for_room_end_with_their_link_and_connection(wire: Wire, detached: bool) -> None:
    wire.broker.q.put(b"m" * 200_000)
    wire.begin(1, window=1)
    wire.attach_receiver("q/$management", 1, target="q/$management", channel=1)
    wire.flow(1, 100, channel=1, window=1)
    wire.attach_sender("q/$management", 0, channel=1)
    for number in range(50):
        data = request(manage("peek-message"), {"message-count": Int(1)}, f"id-{number}")
        wire.write(wire.transfer(data, settled=True, channel=1))
    await wire.turns(20)
    waited = peeks(wire)
    if detached:
        wire.send(1, DETACH, [Uint(1), True])
        await wire.turns(60)
        assert peeks(wire) == 50
    else:
        wire.lose()
        await wire.turns(60)
        assert peeks(wire) <= waited + wire.server.context.limits.large_replies_max
    assert not wire.server._work


async def test_requests_begin_in_their_order_however_large_they_are(wire: Wire) -> None:
    """Of two states that a client sets, the later one is kept."""
    asker = Asker(wire, "q/$management")
    for number, size in enumerate((40_000, 1, 40_000, 1)):
        body = {"session-id": "s", "session-state": b"x" * size}
        wire.write(wire.transfer(request(manage("set-session-state"), body, f"id-{number}"), settled=True))
    answers: list[Any] = []
    while len(answers) < 4:
        answers += [sections(each.payload)[0x73][5] for each in await asker.wire.turn() if each.code == TRANSFER]
    assert answers == ["id-0", "id-1", "id-2", "id-3"]


async def test_a_large_request_that_is_no_message_is_refused(wire: Wire) -> None:
    asker = Asker(wire, "q/$management")
    frames = await asker.ask(b"\x00\x53\x77\xd0" + b"\xff" * 40_000)
    while not frames:
        frames = await wire.turn()
    (disposition,) = frames
    assert disposition.get(4).value[0].value[0] == "amqp:decode-error"
