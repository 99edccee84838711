"""Message selectors of JMS in attaches, over the real broker of a Premium namespace."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import cast

import pytest
from structlog.testing import capture_logs

from emubus.broker.clock import Clock
from emubus.broker.model.descriptions import QueueDescription
from emubus.broker.model.profiles import Profile
from emubus.codec.encode import encode, encode_described
from emubus.codec.types import Described, Symbol, Ubyte, Uint, Ulong

from ..broker.namespace import open_broker
from .fakes import FakeBroker
from .test_browsing import START, bodies
from .wire import ATTACH, DETACH, DISPOSITION, FLOW, SOURCE, TARGET, TRANSFER, Frame, Wire, accepted, modified

SELECTOR = Symbol("jms-selector")
NUMBER, SYMBOL = Ulong(0x468C00000004), Symbol("apache.org:selector-filter:string")


def selecting(text: object, descriptor: object = NUMBER) -> dict[Symbol, object]:
    return {SELECTOR: Described(descriptor, text)}


def message(text: str, k: int) -> bytes:
    return encode_described(Ulong(0x74), encode({"k": k})) + encode_described(Ulong(0x77), encode(text))


class Client:
    """A client's wire to the adapter over the broker, with a sender at handle 30."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        wire.open()
        wire.attach_sender("q", handle=30)

    async def frames(self, *codes: int) -> list[Frame]:
        """The next frames, whose codes must be these."""
        return await self.wire.frames(*codes)

    async def send(self, *pairs: tuple[str, int]) -> None:
        for text, k in pairs:
            self.wire.write(self.wire.transfer(message(text, k), handle=30))
            await self.frames(DISPOSITION)


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    with capture_logs() as logs:
        clock = Clock(start_at=START, manual=True)
        broker = open_broker(
            QueueDescription("q"), QueueDescription("s", requires_session=True), clock=clock, profile=Profile.PREMIUM
        )
        own = Client(Wire(broker=cast("FakeBroker", broker), clock=clock))
        yield own
        own.wire.lose()
        await broker.stop()
        clock.close()
    assert [entry for entry in logs if entry["log_level"] in ("error", "critical")] == []


@pytest.mark.parametrize("descriptor", [NUMBER, SYMBOL], ids=["number", "symbol"])
async def test_a_receiver_gets_what_its_selector_matches_and_the_filter_in_force(
    client: Client, descriptor: object
) -> None:
    await client.send(("one", 1), ("two", 2), ("three", 1))
    (attach,) = client.wire.attach_receiver("q", 1, filter=selecting("k = 1", descriptor))
    assert attach.fields[5].value[7] == selecting("k = 1", descriptor)
    client.wire.flow(1, 10)
    assert bodies(await client.frames(TRANSFER, TRANSFER)) == ["one", "three"]
    client.wire.dispose(accepted, 0, 1, settled=True)
    client.wire.attach_receiver("q", 2, credit=10)
    assert bodies(await client.frames(TRANSFER)) == ["two"]


async def test_an_abandoned_message_comes_again_to_a_selector_that_counts_deliveries(client: Client) -> None:
    await client.send(("one", 1))
    client.wire.attach_receiver("q", 1, filter=selecting("JMSXDeliveryCount = 2"), credit=10)
    client.wire.attach_receiver("q", 2, credit=1)
    (transfer,) = await client.frames(TRANSFER)
    assert transfer.get(0) == 2
    client.wire.dispose(modified(failed=True), 0, settled=True)
    (transfer,) = await client.frames(TRANSFER)
    assert (transfer.get(0), bodies([transfer])) == (1, ["one"])


async def test_a_drain_without_a_match_is_answered_at_once(client: Client) -> None:
    await client.send(("two", 2))
    client.wire.attach_receiver("q", 1, filter=selecting("k = 1"))
    client.wire.flow(1, 5, drain=True)
    (flow,) = await client.frames(FLOW)
    assert [flow.get(index) for index in (4, 5, 6, 8)] == [1, 5, 0, True]


async def test_a_browser_sees_what_its_selector_matches(client: Client) -> None:
    await client.send(("one", 1), ("two", 2), ("three", 1))
    source = Described(Ulong(SOURCE), ["q", *[None] * 5, Symbol("copy"), selecting("k = 1 AND JMSXDeliveryCount = 1")])
    target = Described(Ulong(TARGET), ["client"])
    client.wire.send(0, ATTACH, ["b", Uint(1), True, Ubyte(1), Ubyte(0), source, target])
    client.wire.flow(1, 10, drain=True)
    attach, *shown, _ = await client.frames(ATTACH, TRANSFER, TRANSFER, FLOW)
    assert attach.fields[5].value[7] == selecting("k = 1 AND JMSXDeliveryCount = 1")
    assert bodies(shown) == ["one", "three"]


async def test_a_blank_selector_is_none(client: Client) -> None:
    await client.send(("one", 1))
    (attach,) = client.wire.attach_receiver("q", 1, filter=selecting("  "))
    assert len(attach.fields[5].value) < 8 or attach.fields[5].value[7] is None
    client.wire.flow(1, 10)
    assert bodies(await client.frames(TRANSFER)) == ["one"]


@pytest.mark.parametrize(
    ("filters", "text"),
    [
        (selecting("a = = 1"), "Selector: unexpected '='; expected a value (line 1, column 5)"),
        (selecting("a = 1 OR " * 3000 + "a = 1"), "characters long"),
        (selecting(5), "at most one message selector, which is a string"),
        ({**selecting("a = 1"), SYMBOL: "a = 1"}, "at most one message selector, which is a string"),
    ],
    ids=["syntax", "length", "type", "two"],
)
async def test_a_bad_selector_is_refused_and_the_connection_lives(
    client: Client, filters: dict[Symbol, object], text: str
) -> None:
    attach, detach = client.wire.attach_receiver("q", 1, filter=filters)
    assert (attach.code, attach.get(5), detach.code, detach.get(1)) == (ATTACH, None, DETACH, True)
    condition, description, _ = detach.get(2).value
    assert condition == "amqp:invalid-field"
    assert text in description
    await client.send(("one", 1))


async def test_a_selector_and_a_message_session_do_not_go_together(client: Client) -> None:
    session = {Symbol("com.microsoft:session-filter"): None}
    _, detach = client.wire.attach_receiver("s", 1, filter=selecting("k = 1") | session)
    assert detach.get(2).value[0] == "amqp:not-implemented"
    _, detach = client.wire.attach_receiver("s", 2, filter=selecting("k = 1"))
    assert detach.get(2).value[0] == "amqp:not-allowed"
