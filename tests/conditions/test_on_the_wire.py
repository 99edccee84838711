"""What conditions look like on the wire: frames, conditions, texts and tails, on a clock that stands still."""

from __future__ import annotations

import re

import pytest

from emubus.amqp.links.incoming import IncomingLink
from emubus.broker.errors import BrokerError, Condition
from emubus.codec.frames import AMQP_HEADER, SASL_HEADER
from emubus.codec.types import Ubyte
from emubus.conditions.engine import Conditions

from ..amqp.conftest import _brokers_stop, bare, wire
from ..amqp.wire import ATTACH, DETACH, DISPOSITION, OPEN, TRANSFER, Frame, Wire, accepted, sasl_init
from .wires import error_of

__all__ = ["_brokers_stop", "bare", "wire"]

GATEWAY = r" TrackingId:[0-9a-f]{32}_G\d+, SystemTracker:gateway\d+, Timestamp:\S+"
BROKER = r" TrackingId:[0-9a-f]{32}_G\d+_B\d+, SystemTracker:ns:Queue:q, Timestamp:\S+"
BOTH = r" TrackingId:[0-9a-f-]{36}_B\d+, SystemTracker:ns:Queue:q, Timestamp:\S+" + GATEWAY
REFERENCE = r" Reference:[0-9a-f-]{36}," + BROKER
UNABLE = (
    "The service was unable to process the request; please retry the operation. For more information on exception "
    "types and proper exception handling, please refer to http://go.microsoft.com/fwlink/?LinkId=761101"
)
MINUTE_MS = 60_000


@pytest.fixture
def on(wire: Wire) -> Conditions:
    """The conditions of a server whose one connection is the wire."""
    return wire.state.conditions


def assert_error(frame: Frame, condition: str, text: str, tail: str) -> None:
    found = error_of(frame)
    assert found[0] == condition
    assert re.fullmatch(re.escape(text) + tail, found[1]), found[1]


def link_name(text: str) -> str:
    return text.split("'")[1]


async def test_a_sender_that_is_idle_for_ten_minutes_is_detached_without_a_tail(wire: Wire, on: Conditions) -> None:
    wire.attach_sender()
    on.start("quiet-hours", values={"silent-connection.idle_ms": 3_600_000})
    wire.clock.advance(9 * MINUTE_MS)
    wire.write(wire.transfer(b"x"))
    assert [frame.code for frame in await wire.turn()] == [DISPOSITION]
    wire.clock.advance(10 * MINUTE_MS - 1)
    assert await wire.turn() == []
    wire.clock.advance(1)
    (detach,) = await wire.turn()
    name = link_name(error_of(detach)[1])
    assert re.fullmatch(r"G\d+:\d+:s0", name)
    text = (
        f"The link '{name}' is force detached. Code: publisher(link1). Details: AmqpMessagePublisher.IdleTimerExpired: "
        "Idle timeout: 00:10:00."
    )
    assert_error(detach, "amqp:link:detach-forced", text, "")


async def test_a_receiver_is_idle_only_without_credit(wire: Wire, on: Conditions) -> None:
    wire.attach_receiver(credit=1)
    on.start("idle-link")
    wire.clock.advance(60 * MINUTE_MS)
    assert await wire.turn() == []
    wire.broker.q.put(b"m")
    assert [frame.code for frame in await wire.turn()] == [TRANSFER]
    wire.clock.advance(10 * MINUTE_MS)
    wire.clock.advance(10 * MINUTE_MS)
    (detach,) = await wire.turn()
    text = (
        f"The link '{link_name(error_of(detach)[1])}' is force detached. Code: consumer(link1). Details: "
        "AmqpMessageConsumer.IdleTimerExpired: Idle timeout: 00:10:00."
    )
    assert_error(detach, "amqp:link:detach-forced", text, BROKER)


async def test_a_connection_that_never_had_a_link_is_closed_after_a_minute(bare: Wire) -> None:
    bare.state.conditions.start("quiet-hours")
    bare.open()
    bare.clock.advance(MINUTE_MS - 1)
    assert await bare.turn() == []
    bare.clock.advance(1)
    (close,) = await bare.turn()
    text = (
        "The connection was closed by container 'emubus' because it did not have any active links in the past 60000 "
        "milliseconds."
    )
    assert_error(close, "amqp:connection:forced", text, GATEWAY)
    bare.clock.advance(bare.limits.close_wait_ms)
    assert bare.socket.closed


async def test_a_connection_that_lost_its_last_link_is_closed_after_five_minutes(wire: Wire, on: Conditions) -> None:
    on.start("idle-connection")
    wire.attach_sender()
    wire.clock.advance(60 * MINUTE_MS)
    wire.server.detach(next(iter(wire.server.context.wire.links)), BrokerError(Condition.DETACH_FORCED, "on purpose"))
    await wire.turn()
    wire.clock.advance(5 * MINUTE_MS - 1)
    assert await wire.turn() == []
    wire.clock.advance(1)
    (close,) = await wire.turn()
    assert "in the past 300000 milliseconds." in error_of(close)[1]


async def test_a_client_that_writes_nothing_for_four_minutes_is_closed(wire: Wire, on: Conditions) -> None:
    wire.attach_receiver(credit=1)
    on.start("silent-connection")
    wire.clock.advance(3 * MINUTE_MS)
    wire.flow(0, 1)
    wire.clock.advance(4 * MINUTE_MS - 1)
    assert await wire.turn() == []
    wire.clock.advance(1)
    (close,) = await wire.turn()
    text = (
        "The connection was inactive for more than the allowed 240000 milliseconds and is closed by container 'emubus'."
    )
    assert_error(close, "amqp:connection:forced", text, GATEWAY)


async def test_one_link_too_many_ends_the_session_and_not_the_connection(wire: Wire, on: Conditions) -> None:
    on.start("links-per-session", values={"max": 3})
    for handle in range(3):
        assert wire.attach_sender(handle=handle)[0].code == ATTACH
    (end,) = wire.attach_sender(handle=3)
    text = (
        "Cannot allocate more handles to the current session or connection. The maximum number of handles allowed is "
        "3. Please free up resources and try again."
    )
    assert_error(end, "amqp:resource-limit-exceeded", text, GATEWAY)
    assert [sender.closed for sender in wire.broker.senders] == [True] * 3
    wire.begin(1)
    assert wire.attach_sender(channel=1, handle=0)[0].code == ATTACH


@pytest.mark.parametrize(
    ("kind", "condition", "text", "tail"),
    [
        (
            "timeout",
            "com.microsoft:timeout",
            "The operation did not complete within the allotted timeout of 00:00:08. The time allotted to this "
            "operation may have been a portion of a longer timeout. For more information on exception types and proper "
            "exception handling, please refer to https://aka.ms/ServiceBusExceptions .",
            BOTH,
        ),
        ("internal", "amqp:internal-error", UNABLE, GATEWAY),
        (
            "busy",
            "com.microsoft:server-busy",
            "The request was terminated because the namespace ns is being throttled. Error code : 50001. Please wait "
            "10 seconds and try again. To know more visit https://aka.ms/sbResourceMgrExceptions",
            BOTH,
        ),
    ],
)
async def test_an_attach_is_refused(
    wire: Wire, on: Conditions, kind: str, condition: str, text: str, tail: str
) -> None:
    on.start("attach-refused", count=1, values={"kind": kind})
    attach, detach = wire.attach_sender()
    assert attach.fields[5:7] == [None, None]
    assert_error(detach, condition, text, tail)
    await wire.turn()
    assert wire.attach_sender(handle=1, name="again")[0].code == ATTACH


async def test_an_entity_that_exists_is_not_found(wire: Wire, on: Conditions) -> None:
    on.start("phantom-not-found", values={"ms": 1_000})
    text = (
        "The messaging entity 'ns:Queue:q' could not be found. To know more visit "
        "https://aka.ms/sbResourceMgrExceptions. "
    )
    assert_error(wire.attach_sender()[1], "amqp:not-found", text, BOTH)
    wire.clock.advance(1_000)
    assert wire.attach_sender(handle=1, name="again")[0].code == ATTACH


async def test_a_node_in_trouble_refuses_a_send_and_detaches_a_receiver(wire: Wire, on: Conditions) -> None:
    wire.attach_sender()
    wire.attach_receiver(handle=1)
    on.start("internal-error", entity="q")
    wire.write(wire.transfer(b"x"))
    (refused,) = await wire.turn()
    assert_error(refused, "amqp:internal-error", UNABLE, REFERENCE)
    wire.flow(1, 1)
    (detach,) = await wire.turn()
    assert_error(detach, "amqp:internal-error", UNABLE, BROKER)
    assert wire.broker.q.sent == []


async def test_a_change_of_the_entity_detaches_its_links_and_locks_are_kept_or_forgotten(
    wire: Wire, on: Conditions
) -> None:
    for handle, locks in enumerate(("kept", "forgotten")):
        wire.broker.q.put(b"m")
        wire.attach_receiver(handle=handle, credit=1)
        await wire.turn()
        condition = on.start("entity-changed", entity="q", values={"locks": locks})
        detach = (await wire.turn())[-1]
        name = link_name(error_of(detach)[1])
        text = f"The link '{name}' is force detached. Code: consumer(link1). Details: InnerMessageReceiver was closed."
        assert_error(detach, "amqp:link:detach-forced", text, BROKER)
        on.end(condition.number)
    assert [type(outcome).__name__ for _, outcome in wire.broker.q.settled] == ["Release"]


async def test_a_settlement_is_lost_and_the_next_one_is_done(wire: Wire, on: Conditions) -> None:
    wire.broker.q.put(b"1", b"2")
    wire.attach_receiver(credit=2)
    await wire.turn()
    on.start("settle-lost", count=1)
    wire.dispose(accepted, 0)
    await wire.turn()
    wire.dispose(accepted, 1, settled=True)
    await wire.turn()
    assert len(wire.broker.q.settled) == 1
    assert list(wire.broker.q.locked.values()) == [b"1"]


@pytest.mark.parametrize("then", ["silence", "cut", "detach"])
async def test_a_message_is_stored_and_its_outcome_is_lost(wire: Wire, on: Conditions, then: str) -> None:
    wire.attach_sender()
    on.start("accept-lost", count=1, values={"then": then})
    wire.write(wire.transfer(b"x"))
    frames = await wire.turn(4)
    assert wire.broker.q.sent == [(b"x", False)]
    assert [frame.code for frame in frames] == ([DETACH] if then == "detach" else [])
    assert wire.socket.closed is (then == "cut")


async def test_messages_trickle_and_come_at_once_when_the_condition_ends(wire: Wire, on: Conditions) -> None:
    condition = on.start("trickle", values={"gap_ms": 25})
    wire.broker.q.put(*(b"%d" % number for number in range(5)))
    attach, first, *_ = wire.attach_receiver(credit=10) + await wire.turn()
    assert (attach.code, first.code) == (ATTACH, TRANSFER)
    seen = []
    for advance_ms in (24, 1, 25):
        wire.clock.advance(advance_ms)
        seen.append(len(await wire.turn()))
    assert seen == [0, 1, 1]
    on.end(condition.number)
    assert len(await wire.turn()) == 2


async def test_a_session_with_too_many_unsettled_messages_gets_no_more_until_one_is_settled(
    wire: Wire, on: Conditions
) -> None:
    condition = on.start("unsettled-window", values={"max": 3})
    wire.broker.q.put(*(b"%d" % number for number in range(10)))
    wire.attach_receiver(credit=2)
    wire.attach_receiver(handle=1, credit=10)
    await wire.turns(2)
    held = len(wire.broker.q.locked)
    assert (held, [each.what for each in condition.struck]) == (3, ["too many messages unsettled"])
    wire.dispose(accepted, 0)
    wire.dispose(accepted, 1, settled=True)
    await wire.turns(4)
    assert (len(wire.broker.q.settled), len(wire.broker.q.locked)) == (2, 3)
    on.end(condition.number)
    await wire.turns(2)
    assert len(wire.broker.q.locked) == 8


async def test_what_is_received_and_deleted_fills_no_window(wire: Wire, on: Conditions) -> None:
    on.start("unsettled-window", values={"max": 1})
    wire.broker.q.put(b"1", b"2", b"3")
    frames = wire.attach_receiver(credit=3, snd=Ubyte(1)) + await wire.turn()
    assert [frame.code for frame in frames].count(TRANSFER) == 3


async def test_a_firewall_lets_nobody_in(bare: Wire) -> None:
    bare.state.conditions.start("firewall")
    for data in (SASL_HEADER, sasl_init(), AMQP_HEADER):
        bare.write(data)
    bare.send(0, OPEN, ["client"])
    close = (await bare.turn())[-1]
    text = "Ip has been prevented to connect to the endpoint."
    assert_error(close, "amqp:unauthorized-access", text, GATEWAY)
    bare.clock.advance(bare.limits.close_wait_ms)
    assert bare.socket.closed


async def test_connections_are_lost_when_a_gateway_restarts(wire: Wire, on: Conditions) -> None:
    wire.attach_sender()
    on.start("gateway-restart", values={"after_ms": 1_000, "how": "close"})
    wire.clock.advance(999)
    assert await wire.turn() == []
    wire.clock.advance(1)
    (close,) = await wire.turn()
    assert_error(close, "amqp:connection:forced", "The connection was closed by container 'emubus'.", GATEWAY)


async def test_with_nothing_on_nothing_is_noted_and_nothing_stands_in_between(wire: Wire, on: Conditions) -> None:
    wire.attach_sender()
    condition = on.start("settle-lost")
    assert wire.server.context.watch is not None
    on.end(condition.number)
    assert wire.server.context.watch is None
    (link,) = wire.server.context.wire.links.values()
    assert isinstance(link, IncomingLink)
    assert link.tap is None


def strikes(wire: Wire, on: Conditions, seed: int) -> list[tuple[str, int]]:
    condition = on.start("internal-error", seed=seed, values={"share": 0.5})
    for number in range(20):
        wire.write(wire.transfer(b"%d" % number))
    on.end(condition.number)
    return [(each.scope, each.decision) for each in condition.struck]


async def test_the_same_seed_and_traffic_give_the_same_strikes(wire: Wire, on: Conditions) -> None:
    wire.attach_sender()
    first = strikes(wire, on, 7)
    assert 0 < len(first) < 20
    assert strikes(wire, on, 7) == first
    assert strikes(wire, on, 8) != first
    await wire.turn()
