"""Rights on an open connection: what expires, what is renewed, and how many tokens there may be."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Never
from urllib.parse import quote

import pytest

from emubus.amqp.limits import Limits
from emubus.broker.access import Access, Claim, sign
from emubus.broker.errors import BrokerError, Condition
from emubus.broker.keys import ALL_RIGHTS, Right, SharedKey
from emubus.broker.service_errors import not_found
from emubus.codec.encode import encode, encode_described
from emubus.codec.frames import AMQP_HEADER, SASL_HEADER
from emubus.codec.types import Described, Symbol, Ulong

from ..broker.counting import calls_of
from ..tracking import taken_apart, untracked
from .asking import sections
from .fakes import FakeQueue
from .wire import ATTACH, COORDINATOR, DETACH, FLOW, OPEN, TRANSFER, Wire, frame, sasl_init

NOW_S = 1_700_000_000
CBS_REPLIES, CBS_REQUESTS = 30, 31
PROPERTIES: dict[str, object] = {"operation": "put-token", "type": "servicebus.windows.net:sastoken"}


def sas(expiry_s: int, path: str = "q", key: str = "key", name: str = "name") -> str:
    resource, expiry = quote(f"sb://host/{path}", safe=""), str(expiry_s)
    signature = quote(sign(resource, expiry, key), safe="")
    return f"SharedAccessSignature sr={resource}&sig={signature}&se={expiry}&skn={name}"


def strict(rights: frozenset[Right] = ALL_RIGHTS, **limits: Any) -> Wire:
    """A connection on which every right must be shown, with its `$cbs` links."""
    wire = Wire(access=Access([SharedKey("name", "key", rights)], verify=True), limits=Limits(**limits))
    wire.broker.queues |= {"other": FakeQueue(), "q/$deadletterqueue": FakeQueue()}
    wire.open()
    wire.attach_receiver("$cbs", CBS_REPLIES, credit=10_000)
    wire.attach_sender("$cbs", CBS_REQUESTS)
    return wire


async def put(wire: Wire, token: str, path: str = "q") -> tuple[int, str]:
    """Put a token; the status and its description."""
    properties = await answer_to(wire, token, path)
    return properties["status-code"], properties["status-description"]


async def answer_to(wire: Wire, token: str, path: str) -> Any:
    """Put a token; the application properties of the answer."""
    data = (
        encode_described(Ulong(0x73), encode(["id"]))
        + encode_described(Ulong(0x74), encode({**PROPERTIES, "name": f"sb://host/{path}"}))
        + encode_described(Ulong(0x77), encode(token))
    )
    wire.write(wire.transfer(data, handle=CBS_REQUESTS))
    (answer,) = [each for each in await wire.turn(6) if each.code == TRANSFER]
    return sections(answer.payload)[0x74]


async def test_links_are_detached_when_the_token_expires_that_they_came_by() -> None:
    wire = strict()
    assert (await put(wire, sas(NOW_S + 60)))[0] == 202
    assert (await put(wire, sas(NOW_S + 90, "other"), "other"))[0] == 202
    wire.attach_sender("q", 0, name="sends")
    wire.attach_receiver("q/$DeadLetterQueue", 1)
    wire.attach_receiver("q/$management", 2)
    wire.attach_receiver("q", 3, filter={Symbol("com.microsoft:session-filter"): None})
    wire.attach_sender("other", 4)
    wire.attach_sender(handle=5, target=Described(Ulong(COORDINATOR), []))
    wire.clock.advance(59_999)
    assert await wire.turn() == []
    wire.clock.advance(1)
    frames = await wire.turn()
    assert [each.code for each in frames] == [ATTACH, DETACH, DETACH, DETACH, DETACH]  # the held attach is refused
    assert {each.fields[2].value[0] for each in frames[1:]} == {"amqp:link:detach-forced"}
    texts = sorted(untracked(each.fields[2].value[1]) for each in frames[1:])
    assert texts[-1] == (
        "The link 'sends' is force detached. Code: RenewToken. Details: Unauthorized access. 'Send' claim(s) are "
        "required to perform this operation. Resource: 'sb://localhost/q'.."
    )
    assert [sender.closed for sender in wire.broker.senders] == [True, False]
    _, detach = wire.attach_sender("q", 6)
    assert detach.fields[2].value[0] == "amqp:unauthorized-access"
    assert (await put(wire, sas(NOW_S + 120)))[0] == 202
    assert [each.code for each in wire.attach_sender("q", 7)] == [ATTACH, FLOW]
    wire.clock.advance(30_000)
    (detach,) = await wire.turn()
    assert (detach.code, wire.broker.senders[1].closed) == (DETACH, True)
    wire.lose()


async def test_a_client_without_sasl_is_known_by_the_token_that_it_puts() -> None:
    wire = Wire(access=Access([SharedKey("name", "key")], verify=True))
    wire.write(AMQP_HEADER + frame(0, OPEN, ["client"]))
    wire.read()
    wire.begin(0)
    wire.attach_receiver("$cbs", CBS_REPLIES, credit=100)
    wire.attach_sender("$cbs", CBS_REQUESTS)
    _, detach = wire.attach_sender("q", 0)
    assert detach.fields[2].value[0] == "amqp:unauthorized-access"
    assert (await put(wire, sas(NOW_S + 60, key="wrong")))[0] == 401
    assert (await put(wire, sas(NOW_S + 60)))[0] == 202
    assert [each.code for each in wire.attach_sender("q", 1)] == [ATTACH, FLOW]
    wire.lose()


async def test_a_renewed_token_keeps_links_open() -> None:
    wire = strict()
    await put(wire, sas(NOW_S + 60))
    wire.attach_receiver("q", 0, credit=5)
    await put(wire, sas(NOW_S + 600))
    wire.clock.advance(599_999)
    wire.broker.q.put(b"m")
    assert [each.code for each in await wire.turn()] == [TRANSFER]
    wire.clock.advance(1)
    assert [each.code for each in await wire.turn()] == [DETACH]
    wire.lose()


async def test_a_shorter_claim_takes_over_from_one_that_has_expired() -> None:
    wire = strict()
    await put(wire, sas(NOW_S + 60))
    await put(wire, sas(NOW_S + 600, ""), "")
    wire.attach_sender("q", 0)
    wire.clock.advance(60_000)
    assert await wire.turn() == []
    wire.clock.advance(540_000)
    assert [each.code for each in await wire.turn()] == [DETACH]
    wire.lose()


async def test_a_link_to_a_destination_needs_the_token_of_both() -> None:
    wire = strict()
    await put(wire, sas(NOW_S + 600))
    await put(wire, sas(NOW_S + 60, "other"), "other")
    wire.attach_sender("q", 0, properties={Symbol("com.microsoft:transfer-destination-address"): "other"})
    wire.clock.advance(60_000)
    (detach,) = await wire.turn()
    assert untracked(detach.fields[2].value[1]).endswith("Resource: 'sb://localhost/other'..")
    wire.lose()


async def test_a_key_that_was_shown_itself_never_expires() -> None:
    wire = Wire(access=Access([SharedKey("name", "key")], verify=True))
    wire.write(SASL_HEADER)
    wire.write(sasl_init("PLAIN", b"\x00name\x00key"))
    wire.write(AMQP_HEADER + frame(0, OPEN, ["client"]))
    wire.read()
    wire.begin(0)
    assert [each.code for each in wire.attach_sender("q")] == [ATTACH, FLOW]
    wire.clock.advance(10**10)
    assert await wire.turn() == []
    wire.lose()


KEY_OF_Q = SharedKey("own", "text", scope="q")


@pytest.mark.parametrize("by_token", [False, True], ids=["key", "token"])
async def test_the_links_of_a_key_that_an_entity_loses_end_and_no_new_ones_are_opened(by_token: bool) -> None:
    keys = [KEY_OF_Q]
    wire = Wire(access=Access([], verify=True, entity_keys=lambda _: keys))
    if by_token:
        wire.open()
        wire.attach_receiver("$cbs", CBS_REPLIES, credit=10_000)
        wire.attach_sender("$cbs", CBS_REQUESTS)
        assert (await put(wire, sas(NOW_S + 600, key="text", name="own")))[0] == 202
    else:
        wire.write(SASL_HEADER + sasl_init("PLAIN", b"\0own\0text") + AMQP_HEADER + frame(0, OPEN, ["client"]))
        wire.begin(0)
    wire.attach_sender("q", 0)
    wire.attach_receiver("q/$management", 1)

    async def have(*now: SharedKey) -> list[str]:
        keys[:] = now
        for watcher in wire.broker.key_watchers:
            watcher()
        return [str(each.fields[2].value[0]) for each in await wire.turn()]

    assert await have(KEY_OF_Q, SharedKey("another", "x", scope="q")) == []
    assert await have(replace(KEY_OF_Q, key="new", secondary_key="text")) == []
    assert await have(replace(KEY_OF_Q, rights=frozenset({Right.LISTEN}))) == ["amqp:link:detach-forced"]  # the sender
    assert await have(replace(KEY_OF_Q, key="new")) == ["amqp:link:detach-forced"]
    for handle, address in ((2, "q"), (3, "q/$management")):
        _, detach = wire.attach_sender(address, handle)
        assert detach.fields[2].value[0] == "amqp:unauthorized-access"
    assert await have(KEY_OF_Q) == []
    assert [each.code for each in wire.attach_sender("q", 4)] == [ATTACH, FLOW]
    wire.lose()


async def test_a_wrong_key_opens_the_connection_and_no_link() -> None:
    wire = Wire(access=Access([SharedKey("name", "key")], verify=True))
    wire.write(SASL_HEADER + sasl_init("PLAIN", b"\0name\0wrong") + AMQP_HEADER)
    wire.write(frame(0, OPEN, ["ID:1", "host"]))
    wire.begin(0)
    _, detach = wire.attach_receiver("q", 0)
    assert detach.get(2).value[0] == "amqp:unauthorized-access"
    assert untracked(detach.get(2).value[1]).startswith("Unauthorized access. 'Listen' claim(s) are required")
    wire.lose()


async def test_a_valid_token_for_an_entity_that_is_not_there_is_answered_with_404() -> None:
    wire = strict()
    status, text = await put(wire, sas(NOW_S + 60, "missing"), "missing")
    assert (status, taken_apart(text)) == (
        404,
        (not_found("ns", "missing").description, "gateway", "ns.servicebus.windows.net:missing"),
    )
    for path in ("", "$management", "q/$DeadLetterQueue", "q/$management"):
        assert (await put(wire, sas(NOW_S + 60, path), path))[0] == 202
    wire.lose()


async def test_a_token_for_a_missing_subscription_is_taken_if_there_is_its_topic() -> None:
    """The gateway takes tokens, and knows queues and topics only: the attach is refused, by a broker."""
    wire = strict()
    path = "Other/Subscriptions/none"
    assert (await put(wire, sas(NOW_S + 60, "Other"), path))[0] == 202
    *_, detach = wire.attach_receiver(path, 3)
    assert (detach.code, detach.get(2).value[0]) == (DETACH, "amqp:not-found")
    assert (await put(wire, sas(NOW_S + 60, "missing"), "missing/Subscriptions/none"))[0] == 404
    wire.lose()


@pytest.mark.parametrize(
    ("token", "path", "status", "condition"),
    [
        ("no token at all", "q", 401, "amqp:unauthorized-access"),
        (sas(NOW_S - 1), "q", 401, "amqp:unauthorized-access"),
        (sas(NOW_S + 60, key="wrong"), "q", 401, "amqp:unauthorized-access"),
        (sas(NOW_S + 60, "other"), "q", 401, "amqp:unauthorized-access"),
        (sas(NOW_S + 60, "missing"), "missing", 404, "amqp:not-found"),
        (sas(NOW_S + 60, "other"), "other", 403, "amqp:resource-limit-exceeded"),
    ],
)
async def test_a_refused_token_is_answered_with_a_condition(token: str, path: str, status: int, condition: str) -> None:
    """Java's SDK of the first generation makes no exception of an answer without a condition, and times out.

    Python passes over status and description where the condition is spelled `error-condition`.
    """
    wire = strict(claims_max=1)
    assert (await put(wire, sas(NOW_S + 60)))[0] == 202
    properties = await answer_to(wire, token, path)
    assert properties == {
        "status-code": status,
        "status-description": properties["status-description"],
        "errorCondition": condition,
    }
    assert type(properties["errorCondition"]) is Symbol
    wire.lose()


@pytest.mark.parametrize(
    "token", ["no token at all", sas(NOW_S + 60, "", "wrong"), sas(NOW_S, ""), sas(NOW_S + 60, "x")]
)
async def test_a_client_without_a_valid_token_cannot_find_out_which_entities_there_are(token: str) -> None:
    wire = strict()
    there, missing = await put(wire, token, "q"), await put(wire, token, "z")
    assert (there[0], missing[0]) == (401, 401)
    text, form, system = taken_apart(there[1])
    assert taken_apart(missing[1]) == (text.replace("/q'", "/z'"), form, system.removesuffix("q") + "z")


async def test_what_a_claim_that_expires_costs_does_not_depend_on_how_many_claims_there_are() -> None:
    costs = []
    for count in (10, 400):
        wire = strict()
        for number in range(count):
            wire.broker.queues[f"q{number}"] = FakeQueue()
            assert (await put(wire, sas(NOW_S + 600 + number, f"q{number}"), f"q{number}"))[0] == 202
        assert (await put(wire, sas(NOW_S + 60)))[0] == 202
        wire.attach_sender("q0", 0)
        costs.append(calls_of(Claim.covers, lambda wire=wire: wire.clock.advance(60_000)))  # type: ignore[misc]
    assert costs[0] == costs[1]


async def test_a_token_is_taken_while_nobody_can_tell_whether_there_is_the_entity(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wire = strict()

    def busy(address: str) -> Never:
        raise BrokerError(Condition.SERVER_BUSY, f"{address} is being restored; please try again.")

    monkeypatch.setattr(wire.broker.namespace, "find", busy)
    assert (await put(wire, sas(NOW_S + 60)))[0] == 202
    wire.lose()


async def test_tokens_of_a_connection_have_a_limit() -> None:
    wire = strict(claims_max=2)
    wire.broker.queues["third"] = FakeQueue()
    for path in ("q", "other", "q"):
        assert (await put(wire, sas(NOW_S + 60, path), path))[0] == 202
    status, text = await put(wire, sas(NOW_S + 60, "third"), "third")
    assert (status, untracked(text)) == (403, "The maximum number of '2' tokens per connection has been reached.")
    wire.clock.advance(60_000)
    assert (await put(wire, sas(NOW_S + 120, "third"), "third"))[0] == 202  # expired ones are forgotten
    wire.lose()


async def test_without_verification_no_token_is_kept_and_none_expires() -> None:
    wire = Wire(limits=Limits(claims_max=1))
    wire.open()
    wire.attach_receiver("$cbs", CBS_REPLIES, credit=100)
    wire.attach_sender("$cbs", CBS_REQUESTS)
    wire.broker.queues |= {f"q{number}": FakeQueue() for number in range(5)}
    for number in range(5):
        assert (await put(wire, "whatever", f"q{number}"))[0] == 202
    wire.attach_sender("q", 0)
    wire.clock.advance(10**10)
    assert await wire.turn() == []
    wire.lose()


async def test_nothing_is_looked_at_once_the_connection_is_gone() -> None:
    wire = strict()
    await put(wire, sas(NOW_S + 60))
    wire.attach_sender("q", 0)
    wire.lose()
    wire.clock.advance(60_000)
    assert wire.socket.take() == b""
    assert wire.broker.senders[0].closed


@pytest.mark.parametrize("rights", [frozenset({Right.SEND}), frozenset({Right.LISTEN})])
async def test_a_management_link_needs_one_right_or_the_other(rights: frozenset[Right]) -> None:
    wire = strict(rights)
    await put(wire, sas(NOW_S + 60))
    assert [each.code for each in wire.attach_receiver("q/$management", 0)] == [ATTACH]
    allowed = [each.code for each in wire.attach_sender("q", 1)][:2] != [ATTACH, DETACH]
    assert allowed is (Right.SEND in rights)
    wire.lose()
