"""Message sessions that are locked non-exclusively: who shows the token takes the session over [wire 6.5].

What .NET's SDK 7.21 does with them is in its sample 26 and its AmqpReceiverTests.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from emubus.broker.broker import Broker
from emubus.broker.clock import Clock
from emubus.broker.model.descriptions import QueueDescription
from emubus.broker.model.profiles import Profile
from emubus.codec.encode import encode
from emubus.codec.types import Array, Described, Symbol, Uint, Ulong

from ..broker.namespace import _brokers_stop, brokers_stop, open_broker
from ..tracking import untracked
from .asking import Answer, Asker
from .fakes import FakeBroker
from .test_over_the_broker import body, message
from .wire import ATTACH, DETACH, DISPOSITION, FLOW, TRANSFER, Frame, Wire, accepted

__all__ = ["_brokers_stop", "brokers_stop"]

START = 1_767_225_600_000
FILTER = "com.microsoft:non-exclusive-session-filter"
EXCLUSIVE = Symbol("com.microsoft:session-filter")
CODE = Ulong(0x137000000E)
LOCK_MS = 30_000
QUEUE = QueueDescription("s", requires_session=True, lock_duration_ms=LOCK_MS, max_delivery_count=3)
OTHER_TOKEN = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")


class Client:
    """One connection: a receiver at handle 0, and the node of its queue."""

    def __init__(self, broker: Broker, clock: Clock) -> None:
        self.wire = Wire(broker=cast("FakeBroker", broker), clock=clock)
        self.wire.open()
        self._ask = Asker(self.wire, "s")

    async def attach(self, name: str | None = "a", token: uuid.UUID | None = None, *, handle: int = 0) -> list[Frame]:
        """Ask for a lock that others may take over."""
        asked = {Symbol(FILTER): Described(CODE, [name, token])}
        frames = self.wire.attach_receiver("s", handle, filter=asked, name=f"link {handle}")
        return frames or await self.wire.turn(8)

    async def lock(self, name: str | None = "a", token: uuid.UUID | None = None) -> uuid.UUID:
        """Get such a lock; its token."""
        (answer,) = [each for each in await self.attach(name, token) if each.code == ATTACH]
        return token_in(answer)

    async def receive(self, count: int = 1) -> list[Frame]:
        self.wire.flow(0, count)
        return [each for each in await self.wire.turn(8) if each.code == TRANSFER]

    async def ask(self, operation: str, handle: int = 0, **fields: Any) -> Answer:
        """Ask in the name of the link at `handle`, as .NET's SDK does."""
        request = {"session-id": "a", **{name.replace("_", "-"): value for name, value in fields.items()}}
        return await self._ask(operation, request, **{"associated-link-name": f"link {handle}"})

    async def settle(self, transfer: Frame, status: str = "completed") -> Answer:
        tokens = Array(0x98, (uuid.UUID(bytes_le=transfer.get(2)),))
        return await self.ask("update-disposition", lock_tokens=tokens, disposition_status=status)

    async def refused(self, **more: Any) -> tuple[str, str]:
        """The condition and text with which an attach at handle 5 is refused."""
        attach, detach = await self.attach(handle=5, **more)
        assert attach.get(5) is None
        self.wire.send(0, DETACH, [Uint(5), True])
        condition, text, _ = detach.get(2).value
        return str(condition), untracked(text)


def token_in(answer: Frame) -> uuid.UUID:
    """The token in an answer to an attach, which has the form that .NET reads."""
    assert answer.code == ATTACH
    ((name, value),) = answer.get(5).value[7].items()
    assert (name, value.descriptor) == (FILTER, CODE)
    session, token = value.value
    assert type(session) is str
    assert type(token) is uuid.UUID
    return token


class Place:
    """A Premium namespace with one queue, and its clients."""

    def __init__(self, broker: Broker, clock: Clock) -> None:
        self.broker = broker
        self.clock = clock
        self.clients: list[Client] = []

    def client(self) -> Client:
        self.clients.append(Client(self.broker, self.clock))
        return self.clients[-1]

    async def send(self, *bodies: str, session: str = "a") -> None:
        wire = self.client().wire
        wire.attach_sender("s", 9)
        for each in bodies:
            wire.write(wire.transfer(message(each, session_id=session), handle=9))
        await wire.turn(8)


@asynccontextmanager
async def open_place(folder: Path | None = None, profile: Profile = Profile.PREMIUM) -> AsyncIterator[Place]:
    clock = Clock(start_at=START, manual=True)
    broker = open_broker(QUEUE, clock=clock, profile=profile, folder=folder)
    place = Place(broker, clock)
    yield place
    for each in place.clients:
        each.wire.lose()
    await broker.stop()
    clock.close()


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    async with open_place() as opened:
        yield opened


@pytest.mark.parametrize("name", ["a", None])
async def test_the_answer_has_the_session_a_token_and_the_end_of_the_lock(place: Place, name: str | None) -> None:
    await place.send("m")
    first = place.client()
    (answer,) = await first.attach(name)
    assert answer.get(5).value[7][FILTER].value == ["a", token_in(answer)]
    assert answer.get(13) == {"com.microsoft:locked-until-utc": 621_355_968_000_000_000 + (START + LOCK_MS) * 10_000}
    (transfer,) = await first.receive()
    assert body(transfer) == "m"


@pytest.mark.parametrize("descriptor", [CODE, Symbol(f"{FILTER}:list")])
async def test_the_answer_has_the_descriptor_of_the_client(place: Place, descriptor: object) -> None:
    wire = place.client().wire
    wire.attach_receiver("s", filter={Symbol(FILTER): Described(descriptor, ["a"])})
    (answer,) = await wire.turn(8)
    assert encode(answer.get(5).value[7][FILTER].descriptor) == encode(descriptor)


async def test_who_shows_the_token_takes_the_session_over_and_settles_what_was_delivered_before(place: Place) -> None:
    await place.send("handed over", "next")
    first, second = place.client(), place.client()
    token = await first.lock()
    (transfer,) = await first.receive()
    place.clock.advance(LOCK_MS - 1)
    (answer,) = await second.attach("a", token)
    assert token_in(answer) == token  # the sample of the SDK compares it
    assert answer.get(13) == {
        "com.microsoft:locked-until-utc": 621_355_968_000_000_000 + (START + 2 * LOCK_MS - 1) * 10_000
    }
    (detach,) = await first.wire.turn(8)
    assert (detach.code, detach.get(2).value[0]) == (DETACH, "com.microsoft:session-lock-lost")
    place.clock.advance(LOCK_MS - 1)
    assert (await second.ask("get-session-state")).status == 200
    assert (await second.settle(transfer)).status == 200
    (after,) = await second.receive(5)
    assert body(after) == "next"
    assert (await second.settle(after)).status == 200
    assert await place.broker.messages.peek("s", 0, 10, 1 << 20) == []


@pytest.mark.parametrize(
    ("operation", "fields"),
    [
        ("renew-session-lock", {}),
        ("get-session-state", {}),
        ("set-session-state", {"session_state": b"old"}),
        ("receive-by-sequence-number", {"sequence_numbers": Array(0x81, ())}),
    ],
)
async def test_the_receiver_that_lost_the_session_can_not_use_it_any_more(
    place: Place, operation: str, fields: dict[str, Any]
) -> None:
    await place.send("m")
    first, second = place.client(), place.client()
    token = await first.lock()
    (transfer,) = await first.receive()
    assert (await second.lock("a", token)) == token
    await first.wire.turn(8)
    for answer in (await first.ask(operation, **fields), await first.settle(transfer)):
        assert (answer.status, answer.condition) == (410, "com.microsoft:session-lock-lost")
    assert (await second.ask("get-session-state")).body == {"session-state": None}
    assert (await second.settle(transfer)).status == 200


async def test_what_the_old_link_settles_is_refused(place: Place) -> None:
    await place.send("m")
    first, second = place.client(), place.client()
    token = await first.lock()
    (transfer,) = await first.receive()
    await second.lock("a", token)
    first.wire.dispose(accepted, transfer.get(1))
    (outcome,) = [each for each in await first.wire.turn(8) if each.code == DISPOSITION]
    assert outcome.get(4).value[0].value[0] == "com.microsoft:session-lock-lost"
    assert (await second.settle(transfer)).status == 200


async def test_a_session_can_be_taken_back_over_the_same_connection(place: Place) -> None:
    client = place.client()
    token = await client.lock()
    answer, detach = await client.attach("a", token, handle=1)
    if answer.code == DETACH:
        answer, detach = detach, answer
    assert (token_in(answer), detach.code) == (token, DETACH)
    assert (await client.ask("renew-session-lock", handle=0)).status == 410
    assert (await client.ask("renew-session-lock", handle=1)).status == 200
    client.wire.send(0, DETACH, [Uint(0), True])
    assert await client.lock("a", token) == token
    assert (await client.ask("renew-session-lock", handle=0)).status == 200
    assert (await client.ask("renew-session-lock", handle=1)).status == 410


@pytest.mark.parametrize("token", [None, OTHER_TOKEN])
async def test_a_session_is_not_locked_without_its_token(place: Place, token: uuid.UUID | None) -> None:
    first, second = place.client(), place.client()
    await first.lock()
    condition, text = await second.refused(name="a", token=token)
    assert condition == "com.microsoft:session-cannot-be-locked"
    assert "'a'" in text
    assert await first.wire.turn(8) == []
    assert (await first.ask("renew-session-lock")).status == 200
    wire = second.wire
    _, detach = wire.attach_receiver("s", 6, filter={EXCLUSIVE: "a"}) or await wire.turn(8)
    assert detach.get(2).value[0] == "com.microsoft:session-cannot-be-locked"


async def test_an_exclusive_lock_is_not_taken_over(place: Place) -> None:
    first, second = place.client(), place.client()
    first.wire.attach_receiver("s", filter={EXCLUSIVE: "a"})
    await first.wire.turn(8)
    for token in (None, OTHER_TOKEN):
        assert (await second.refused(name="a", token=token))[0] == "com.microsoft:session-cannot-be-locked"


async def test_a_lock_that_was_taken_over_ends_in_time_and_counts(place: Place) -> None:
    await place.send("m")
    first, second, third = place.client(), place.client(), place.client()
    token = await first.lock()
    (transfer,) = await first.receive()
    await second.lock("a", token)
    await first.wire.turn(8)
    place.clock.advance(LOCK_MS)
    (detach,) = await second.wire.turn(8)
    assert detach.get(2).value[0] == "com.microsoft:session-lock-lost"
    assert (await second.settle(transfer)).condition == "com.microsoft:session-lock-lost"
    await third.lock()
    (again,) = await third.receive()
    assert body(again) == "m"


async def test_the_client_that_was_not_told_yet_may_close_its_link(place: Place) -> None:
    """The close of the first holder must not free the session of the second."""
    first, second = place.client(), place.client()
    token = await first.lock()
    await second.lock("a", token)
    first.wire.send(0, DETACH, [Uint(0), True])
    await first.wire.turn(8)
    first.wire.lose()
    assert (await second.ask("renew-session-lock")).status == 200


async def test_a_message_that_comes_after_the_take_over_goes_to_the_new_holder(place: Place) -> None:
    first, second = place.client(), place.client()
    token = await first.lock()
    first.wire.flow(0, 5)
    await first.wire.turn(8)
    await second.lock("a", token)
    second.wire.flow(0, 5)
    await place.send("m")
    assert [body(each) for each in await second.wire.turn(8) if each.code == TRANSFER] == ["m"]
    assert [each.code for each in await first.wire.turn(8)] == [DETACH]


async def test_a_token_goes_on_when_nobody_holds_the_session_any_more(place: Place) -> None:
    await place.send("m")
    first, second = place.client(), place.client()
    token = await first.lock()
    first.wire.lose()
    assert await second.lock("a", token) == token
    (transfer,) = await second.receive()
    assert body(transfer) == "m"


async def test_a_token_goes_on_after_a_restart(tmp_path: Path) -> None:
    async with open_place(tmp_path) as before:
        await before.send("m")
        first = before.client()
        token = await first.lock()
        await first.receive()
    async with open_place(tmp_path) as after:
        second, third = after.client(), after.client()
        assert await second.lock("a", token) == token
        (transfer,) = await second.receive()
        assert body(transfer) == "m"
        assert await third.lock("a", token) == token
        assert (await third.settle(transfer)).status == 200


@pytest.mark.parametrize(
    "value",
    [
        ["a", None],
        Described(Ulong(0x137000000C), ["a", None]),
        Described(CODE, "a"),
        Described(CODE, [5, None]),
        Described(CODE, ["a", "token"]),
        Described(CODE, [None, OTHER_TOKEN]),
    ],
)
async def test_a_filter_that_can_not_be_is_refused(place: Place, value: object) -> None:
    wire = place.client().wire
    _, detach = wire.attach_receiver("s", filter={Symbol(FILTER): value})
    assert detach.get(2).value[0] == "amqp:invalid-field"
    _, detach = wire.attach_receiver("s", 1, filter={EXCLUSIVE: "a", Symbol(FILTER): Described(CODE, ["a", None])})
    assert detach.get(2).value[0] == "amqp:invalid-field"


@pytest.mark.parametrize("profile", [Profile.STANDARD, Profile.MS_EMULATOR])
@pytest.mark.parametrize("token", [None, OTHER_TOKEN])
async def test_elsewhere_the_filter_is_one_that_is_not_known(profile: Profile, token: uuid.UUID | None) -> None:
    async with open_place(profile=profile) as place:
        condition, text = await place.client().refused(name="a", token=token)
    assert condition == "amqp:not-allowed"
    # .NET looks for `contains invalid filter type` behind the last quote
    assert text.rpartition("'")[2].startswith(" contains invalid filter type")


async def test_nothing_is_sent_before_there_is_a_session_to_give(place: Place) -> None:
    client = place.client()
    assert await client.attach(None) == []
    await place.send("m", session="b")
    (answer,) = [each for each in await client.wire.turn(8) if each.code != FLOW]
    assert answer.get(5).value[7][FILTER].value[0] == "b"
