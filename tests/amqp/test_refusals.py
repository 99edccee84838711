"""Attaches that are refused, connections that end, and everything that comes too late."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from emubus.amqp.limits import Limits
from emubus.broker.errors import BrokerError, Condition
from emubus.codec.types import Described, Uint, Ulong

from ..tracking import taken_apart, untracked
from .wire import (
    ATTACH,
    BEGIN,
    CLOSE,
    DETACH,
    DISPOSITION,
    END,
    FLOW,
    OPEN,
    SOURCE,
    TARGET,
    TRANSFER,
    Wire,
    accepted,
    frame,
)


@pytest.mark.parametrize("sends", [True, False])
async def test_an_entity_that_there_is_not_is_refused_in_one_write(wire: Wire, sends: bool) -> None:
    writes = wire.socket.writes
    attach, detach = wire.attach_sender("no/such") if sends else wire.attach_receiver("amqps://h/no/such")
    assert wire.socket.writes == writes + 1
    assert (attach.code, attach.fields[0], attach.fields[2]) == (ATTACH, "s0" if sends else "r0", sends)
    assert attach.fields[5:7] == [None, None]
    assert attach.fields[13] == {}
    if not sends:
        assert attach.fields[9] == 0  # initial-delivery-count
    assert detach.fields[:2] == [0, True]
    condition, text, info = detach.fields[2].value
    assert condition == "amqp:not-found"
    assert taken_apart(text) == (
        "The messaging entity 'sb://ns.servicebus.windows.net/no/such' could not be found. "
        "To know more visit https://aka.ms/sbResourceMgrExceptions. ",
        "gateway",
        "ns.servicebus.windows.net:no/such",
    )
    assert info == {}
    wire.send(0, DETACH, [Uint(0), True])
    assert await wire.turn() == []
    assert [each.code for each in wire.attach_receiver()] == [ATTACH]  # the handle is free again


@pytest.mark.parametrize("version", ["7.0.5", "7.3.0", "7.9.0", "7.9.1", "7.10.0-beta.2", "7.9.2", "7.9.5"])
@pytest.mark.parametrize("sends", [True, False])
async def test_older_javascript_clients_get_the_detach_of_a_refusal_in_a_write_of_its_own(
    version: str, sends: bool
) -> None:
    wire = Wire()
    wire.open({"product": "MSJSClient", "version": version})
    frames = wire.attach_sender("nothing") if sends else wire.attach_receiver("nothing")
    if version in ("7.0.5", "7.3.0", "7.9.0", "7.9.1"):
        assert [each.code for each in frames] == [ATTACH]
        wire.clock.advance(wire.limits.refusal_pause_ms)
        frames += await wire.turn()
    attach, detach = frames
    assert (attach.code, attach.fields[5:7], detach.code, detach.fields[:2]) == (
        ATTACH,
        [None, None],
        DETACH,
        [0, True],
    )
    assert detach.fields[2].value[0] == "amqp:not-found"
    wire.send(0, DETACH, [Uint(0), True])
    assert await wire.turn() == []
    wire.lose()


@pytest.fixture
async def pausing() -> AsyncIterator[Wire]:
    """A client between the attach and the detach of a refusal."""
    wire = Wire(limits=Limits(refusal_pause_ms=3_600_000))
    wire.open({"product": "MSJSClient", "version": "7.0.5"})
    assert [each.code for each in wire.attach_receiver("nothing", name="mine")] == [ATTACH]
    yield wire
    wire.clock.advance(3_600_000)
    assert await wire.turn() == []


async def test_a_detach_in_the_pause_of_a_refusal_is_answered_with_the_refusal(pausing: Wire) -> None:
    pausing.send(0, DETACH, [Uint(0), True])
    (detach,) = pausing.read()
    assert (detach.code, detach.fields[2].value[0]) == (DETACH, "amqp:not-found")


async def test_a_name_is_taken_over_in_the_pause_of_a_refusal(pausing: Wire) -> None:
    detach, attach = pausing.attach_receiver(name="mine", handle=1)
    assert (detach.code, detach.fields[2].value[0], attach.code) == (DETACH, "amqp:not-found", ATTACH)


async def test_an_end_in_the_pause_of_a_refusal_ends_the_link_too(pausing: Wire) -> None:
    pausing.send(0, END, [])
    assert END in [each.code for each in pausing.read()]


async def test_nothing_follows_when_the_connection_is_lost_in_the_pause_of_a_refusal(pausing: Wire) -> None:
    pausing.lose()


async def test_an_address_that_is_null_is_an_entity_that_there_is_not(wire: Wire) -> None:
    _, detach = wire.attach_sender(target=None)
    assert detach.fields[2].value[0] == "amqp:not-found"


async def test_a_connection_has_a_limit_of_links() -> None:
    wire = Wire(limits=Limits(links_max=2))
    wire.open()
    wire.attach_sender(handle=0)
    wire.attach_receiver(handle=1)
    _, detach = wire.attach_receiver(handle=2)
    assert detach.fields[2].value[0] == "amqp:resource-limit-exceeded"
    wire.send(0, DETACH, [Uint(0), True])
    assert [each.code for each in wire.read()] == [DETACH]
    assert [each.code for each in wire.attach_receiver(handle=3)] == [ATTACH]
    wire.lose()


async def test_a_client_that_leaves_refused_links_half_closed_is_closed() -> None:
    wire = Wire(limits=Limits(links_max=3))
    wire.open()
    for handle in range(3):
        assert [each.code for each in wire.attach_sender("nothing", handle)] == [ATTACH, DETACH]
    wire.send(0, DETACH, [Uint(1), True])
    assert [each.code for each in wire.attach_sender("nothing", 3)] == [ATTACH, DETACH]
    (close,) = wire.attach_sender("nothing", 4)
    assert (close.code, close.fields[0].value[0]) == (CLOSE, "amqp:resource-limit-exceeded")
    wire.lose()


async def test_links_that_went_with_their_amqp_session_count_no_more() -> None:
    wire = Wire(limits=Limits(links_max=2))
    wire.open()
    for _ in range(5):
        wire.begin(1)
        for handle in range(2):
            assert [each.code for each in wire.attach_sender("nothing", handle, 1)] == [ATTACH, DETACH]
        wire.send(1, END, [])
        assert [each.code for each in wire.read()] == [END]
    wire.lose()


@pytest.mark.parametrize("sends", [True, False])
async def test_a_node_is_not_made_for_a_client(wire: Wire, sends: bool) -> None:
    dynamic = [None, None, None, None, True]
    source = Described(Ulong(SOURCE), ["client"] if sends else dynamic)
    target = Described(Ulong(TARGET), dynamic if sends else ["client"])
    wire.send(0, ATTACH, ["link", Uint(0), not sends, None, None, source, target, None, None, Uint(0)])
    attach, detach = wire.read()
    assert (attach.code, attach.fields[5:7]) == (ATTACH, [None, None])
    condition, text, _ = detach.fields[2].value
    assert (condition, untracked(text)) == (
        "amqp:not-implemented",
        "Dynamic nodes (temporary queues and topics) are not supported.",
    )


@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize("handle", [0, 1])
async def test_a_name_that_is_used_again_in_one_write_ends_before_it_begins(
    wire: Wire, closed: bool, handle: int
) -> None:
    wire.attach_receiver(name="again", credit=1)
    wire.broker.q.put(b"one", b"two")
    await wire.turn()
    terminus = [Described(Ulong(SOURCE), ["q"]), Described(Ulong(TARGET), ["client"])]
    attach = frame(0, ATTACH, ["again", Uint(handle), True, None, None, *terminus])
    wire.write(frame(0, DETACH, [Uint(0), closed]) + attach)
    wire.flow(handle, 1)
    assert [each.code for each in await wire.turn()] == [DETACH, ATTACH, TRANSFER]
    assert [each.closed for each in wire.broker.q.consumers] == [False]


async def test_a_channel_has_one_amqp_session_at_a_time(wire: Wire) -> None:
    wire.write(frame(0, END, []) + frame(0, BEGIN, [None, Uint(0), Uint(10), Uint(10)]))
    assert [each.code for each in wire.read()] == [END, BEGIN]
    wire.send(0, BEGIN, [None, Uint(0), Uint(10), Uint(10)])
    (close,) = wire.read()
    assert (close.code, close.fields[0].value[0]) == (CLOSE, "amqp:not-allowed")


async def test_a_close_is_answered_and_then_the_socket_closes(wire: Wire) -> None:
    wire.attach_sender()
    wire.attach_receiver(handle=1, credit=5)
    wire.send(0, CLOSE, [])
    assert [each.code for each in wire.read()] == [CLOSE]
    assert wire.socket.closed


async def test_an_end_and_a_close_in_one_write_are_both_answered(wire: Wire) -> None:
    wire.attach_sender()
    wire.write(frame(0, DETACH, [Uint(0), True]) + frame(0, END, []) + frame(0, CLOSE, []))
    assert [each.code for each in wire.read()] == [DETACH, END, CLOSE]
    assert wire.socket.closed


@pytest.mark.parametrize(
    ("data", "condition"),
    [
        (b"\x00\x00\x00\x07", "amqp:connection:framing-error"),
        (b"\xff\xff\xff\xff", "amqp:connection:framing-error"),
        (frame(0, 0x77, []), "amqp:decode-error"),
        (b"\x00\x00\x00\x0a\x02\x00\x00\x00\xff\xff", "amqp:decode-error"),
        (frame(9, ATTACH, ["name", Uint(0), False]), "amqp:not-allowed"),
        (frame(60_000, BEGIN, [None, Uint(0), Uint(1), Uint(1)]), "amqp:connection:framing-error"),
    ],
)
async def test_frames_that_can_t_be_are_answered_with_a_close(wire: Wire, data: bytes, condition: str) -> None:
    wire.write(data)
    (close,) = [each for each in wire.read() if each.code == CLOSE]
    assert close.fields[0].value[0] == condition
    wire.write(b"more of the same")  # ignored
    assert wire.read() == []


async def test_texts_that_are_no_text_are_answered_with_a_close(wire: Wire) -> None:
    name = frame(
        0, ATTACH, ["XX", Uint(0), False, None, None, None, Described(Ulong(0x29), ["q"]), None, None, Uint(0)]
    )
    wire.write(name.replace(b"XX", b"\xff\xfe"))
    (close,) = wire.read()
    assert close.fields[0].value[0] == "amqp:decode-error"


async def test_a_close_because_of_an_error_leaves_the_client_a_moment_to_read_it() -> None:
    wire = Wire()
    wire.open()
    wire.write(b"\x00\x00\x00\x00")
    assert [each.code for each in wire.read()] == [CLOSE]
    wire.clock.advance(wire.limits.close_wait_ms - 1_000)
    assert not wire.socket.closed
    wire.clock.advance(1_000)
    assert wire.socket.closed
    wire.lose()


async def test_a_fault_of_ours_closes_this_connection_only_and_is_logged_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    wire, other = Wire(), Wire()
    wire.open()
    other.open()

    def broken(address: str, *, client: str, detached: object) -> None:
        raise RuntimeError("broken on purpose")

    wire.broker.open_sender = broken  # type: ignore[method-assign, assignment]
    frames = wire.attach_sender()
    assert [each.code for each in frames] == [CLOSE]
    assert frames[0].fields[0].value[0] == "amqp:internal-error"
    logged = capsys.readouterr().out
    assert logged.count("RuntimeError: broken on purpose") == 1
    assert [each.code for each in other.attach_receiver()] == [ATTACH]
    wire.lose()
    other.lose()


async def test_an_amqp_session_with_too_many_links_is_ended_with_all_of_them() -> None:
    wire = Wire(limits=Limits(links_per_session_max=3))
    wire.open()
    for handle in range(3):
        wire.attach_sender("q", handle)
    (end,) = wire.attach_sender("q", 3)
    condition, text, info = end.fields[0].value
    assert (end.code, condition, untracked(text), info) == (
        END,
        "amqp:resource-limit-exceeded",
        "Cannot allocate more handles to the current session or connection. The maximum number of handles allowed is "
        "3. Please free up resources and try again.",
        {},
    )
    assert [sender.closed for sender in wire.broker.senders] == [True] * 3
    wire.write(wire.transfer(b"too late"))
    wire.send(0, END, [])
    assert wire.begin(0).code == BEGIN
    assert [each.code for each in wire.attach_sender("q", 0)] == [ATTACH, FLOW]  # the connection lives
    assert wire.broker.q.sent == []


async def test_a_connection_can_be_closed_from_our_side(wire: Wire) -> None:
    wire.attach_receiver(credit=1)
    wire.server.close(BrokerError(Condition.CONNECTION_FORCED, "Bye."))
    (close,) = wire.read()
    condition, text, info = close.fields[0].value
    assert (condition, untracked(text), info) == ("amqp:connection:forced", "Bye.", {})
    assert wire.broker.q.consumers == []


async def test_a_silent_client_hears_an_empty_frame_within_half_of_its_idle_timeout() -> None:
    wire = Wire()
    wire.open(idle_ms=240_000)
    for channel in range(1, 4):
        wire.begin(channel)
        wire.clock.advance(60_000)  # in which something was written
        assert wire.read() == []
        wire.clock.advance(60_000)
        assert [each.code for each in wire.read()] == [0]
        wire.clock.advance(60_000)
        assert [each.code for each in wire.read()] == [0]
    wire.lose()
    wire.clock.advance(240_000)
    assert wire.read() == []


async def test_a_very_short_idle_timeout_is_served_no_more_often_than_the_limit_says() -> None:
    wire = Wire(limits=Limits(heartbeat_interval_ms_min=10_000))
    wire.open(idle_ms=4)
    wire.clock.advance(10_000)
    wire.read()
    wire.clock.advance(9_000)
    assert wire.read() == []
    wire.clock.advance(1_000)
    assert [each.code for each in wire.read()] == [0]
    wire.lose()


async def test_nothing_is_written_behind_a_close() -> None:
    wire = Wire()
    wire.open(idle_ms=4_000)
    wire.server.close(BrokerError(Condition.CONNECTION_FORCED, "Bye."))
    assert wire.read()[-1].code == CLOSE
    wire.clock.advance(2_000)
    assert wire.read() == []
    wire.lose()


async def test_a_thousand_links_on_a_hundred_sessions_all_work_and_all_end(wire: Wire) -> None:
    for channel in range(1, 101):
        assert wire.begin(channel).code == BEGIN
        for handle in range(10):
            assert wire.attach_sender(handle=handle, channel=channel)[0].code == ATTACH
        wire.write(b"".join(wire.transfer(b"m", handle, channel) for handle in range(10)))
    assert len(wire.broker.q.sent) == 1000
    assert len(wire.server.context.wire.links) == 1000
    wire.read()
    for channel in range(1, 101):
        wire.send(channel, END, [])
        assert [each.code for each in wire.read()] == [END]
    assert wire.server.context.wire.links == {}
    assert all(sender.closed for sender in wire.broker.senders)


async def test_a_second_open_closes_the_connection(wire: Wire) -> None:
    wire.send(0, OPEN, ["again"])
    (close,) = wire.read()
    condition, text, info = close.fields[0].value
    assert (close.code, condition, untracked(text), info) == (
        CLOSE,
        "amqp:illegal-state",
        "The connection is open already.",
        {},
    )


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (frame(9, DETACH, [Uint(0), True]), ["amqp:not-allowed", "no such channel: 9", {}]),
        (
            frame(0, DISPOSITION, [True, Uint(5), Uint(2), True, accepted]),
            ["amqp:not-allowed", "illegal delivery range: 5-2", {}],
        ),
    ],
)
@pytest.mark.parametrize("version", ["7.14.3", "7.15.0", None])
async def test_a_close_of_protons_own_has_a_condition_that_exists_and_three_fields(
    bare: Wire, data: bytes, error: list[object], version: str | None
) -> None:
    bare.open({"product": "azsdk-python-servicebus", "version": version} if version else None)
    bare.write(data)
    (close,) = bare.read()
    assert (close.code, close.fields[0].value) == (CLOSE, error)


async def test_a_client_that_allows_no_handle_is_closed_rather_than_left_alone(bare: Wire) -> None:
    bare.open()
    bare.send(1, BEGIN, [None, Uint(0), Uint(10), Uint(10), Uint(0)])
    bare.attach_sender(channel=1)
    bare.attach_sender(handle=1, channel=1)
    assert bare.socket.closed
