"""Legal and illegal performatives in any order: every answer can be decoded, has a condition that exists, and is the
business of the connection alone that asked for it."""

from __future__ import annotations

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from emubus.broker.errors import Condition
from emubus.codec.types import Described, Symbol, Ubyte, Uint, Ulong

from ..rounds import rounds
from .fakes import FakeBroker, FakeQueue
from .wire import (
    ATTACH,
    BATCH,
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
    Frame,
    Wire,
    accepted,
    frame,
    modified,
    rejected,
    released,
)

# [AMQP 2.8.15 to 2.8.18, 4.5.8], and Service Bus's own.
EXISTING = {condition.value for condition in Condition} | {"amqp:session:window-violation"}

uints = st.integers(0, 4).map(Uint)
channels = st.integers(0, 2)
# Some handles are attached by the prelude, some by the stream, some never.
handles = st.one_of(st.integers(0, 4).map(Uint), st.sampled_from([None, Uint(4_000_000_000), "0"]))
states = st.sampled_from([None, accepted, released, modified(True), rejected("a:b", "c"), Described(Ulong(0x35), [])])
flags = st.sampled_from([None, True, False])


@st.composite
def attaches(draw: st.DrawFn) -> bytes:
    address = draw(st.sampled_from(["q", "nothing", "$cbs", "q/$management", None]))
    session = {Symbol("com.microsoft:session-filter"): "s"} if draw(st.integers(0, 5)) == 0 else None
    fields = [
        draw(st.sampled_from(["r", "s", "a", "b", None])),
        draw(handles),
        draw(flags),
        draw(st.sampled_from([None, Ubyte(0), Ubyte(1)])),
        None,
        Described(Ulong(SOURCE), [address, *([None] * 6), session]),
        Described(Ulong(TARGET), [address]),
        None,
        None,
        draw(st.sampled_from([None, Uint(0), Uint(9)])),
    ]
    return frame(draw(channels), ATTACH, fields[: draw(st.integers(7, 10))])


@st.composite
def transfers(draw: st.DrawFn) -> bytes:
    number, message_format = draw(st.one_of(st.none(), uints)), draw(st.sampled_from([Uint(0), Uint(BATCH), None]))
    tag = draw(st.sampled_from([b"t", None]))
    fields = [draw(handles), number, tag, message_format, draw(flags), draw(flags), None, None, None, draw(flags)]
    return frame(draw(channels), TRANSFER, fields, draw(st.sampled_from([b"", b"m", bytes(40_000)])))


@st.composite
def flows(draw: st.DrawFn) -> bytes:
    link = [draw(handles), draw(st.one_of(st.none(), uints)), draw(st.one_of(st.none(), uints)), None]
    fields = [Uint(0), Uint(draw(st.sampled_from([0, 1, 5000]))), Uint(0), Uint(5000), *link, draw(flags), draw(flags)]
    return frame(draw(channels), FLOW, fields)


@st.composite
def dispositions(draw: st.DrawFn) -> bytes:
    first, last = draw(uints), draw(st.one_of(st.none(), uints))
    return frame(draw(channels), DISPOSITION, [draw(flags), first, last, draw(flags), draw(states)])


steps = st.one_of(
    attaches(),
    transfers(),
    flows(),
    dispositions(),
    st.builds(lambda channel, handle, closed: frame(channel, DETACH, [handle, closed]), channels, handles, flags),
    st.builds(lambda channel: frame(channel, BEGIN, [None, Uint(0), Uint(9), Uint(9)]), channels),
    st.builds(lambda channel: frame(channel, END, []), channels),
    st.sampled_from([frame(0, OPEN, ["again"]), frame(0, CLOSE, [])]),
)


def conditions(answer: Frame) -> list[str]:
    """The conditions of the errors in an answer; each error has its three fields."""
    place = {DETACH: 2, END: 0, CLOSE: 0}.get(answer.code)
    error = None if place is None else answer.get(place)
    state = answer.get(4) if answer.code == DISPOSITION else None
    if isinstance(state, Described) and state.descriptor == 0x25 and isinstance(state.value, list) and state.value:
        error = state.value[0]
    if error is None:
        return []
    assert len(error.value) == 3
    return [str(error.value[0])]


async def converse(pieces: list[bytes], together: bool) -> None:
    broker = FakeBroker()
    broker.queues["mine"] = FakeQueue()
    with capture_logs() as logs:
        wire, other = Wire(broker=broker), Wire(broker=broker)
        wire.open()
        other.open()
        other.attach_sender("mine")
        other.attach_receiver("mine", handle=1, credit=10)
        wire.begin(1)
        wire.attach_receiver(handle=0, credit=2, name="r")
        wire.attach_sender(handle=1, name="s")
        broker.q.put(b"one", b"two")
        answers: list[Frame] = []
        for piece in [b"".join(pieces)] if together else pieces:
            if not wire.socket.closed:
                wire.write(piece)
                answers += await wire.turn()
        assert wire._rest == b""
        assert [each.code for each in answers if each.code not in range(OPEN, CLOSE + 1)] == []
        assert {condition for each in answers for condition in conditions(each)} <= EXISTING
        assert [each.code for each in answers].count(CLOSE) <= 1
        other.write(other.transfer(b"still here"))
        assert [each.code for each in await other.turn()] == [DISPOSITION]
        broker.queues["mine"].put(b"and here")
        assert [each.payload for each in await other.turn()] == [b"and here"]
        wire.lose()
        other.lose()
        await other.turns(2)
    assert [entry for entry in logs if entry["log_level"] in ("error", "critical")] == []
    assert wire.server.context.wire.flow.pending_bytes == wire.server.context.wire.flow.partial_bytes == 0
    assert [each.closed for each in broker.senders] == [True] * len(broker.senders)
    assert broker.q.consumers == []


@given(pieces=st.lists(steps, min_size=1, max_size=25), together=st.booleans())
@settings(max_examples=rounds(120, 3_000))
def test_any_performatives_in_any_order(pieces: list[bytes], together: bool) -> None:
    asyncio.run(converse(pieces, together))
