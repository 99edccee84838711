"""Recorded conversations of .NET clients: whatever they ask, the answers are what these clients need."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

from emubus.broker.clock import Clock
from emubus.broker.model.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from emubus.codec.types import Uint

from ..broker.namespace import open_broker
from .asking import sections
from .dotnet import ACCEPTED, RELEASED, TRANSACTIONAL, DotnetPeer
from .replaying import RECORDINGS, Replay, begun_at, lines_of
from .wire import DETACH, DISPOSITION, FLOW, TRANSFER, Frame, accepted, frame, read_frames, released

NAMES = sorted(path.stem for path in RECORDINGS.glob("*.jsonl"))
SETTLES_IN_TRANSACTIONS = (
    "lite-transacted-posting",
    "lite-transacted-retiring",
    "t1-transaction-rollback",
    "t2-cross-entity",
    "t2-transaction",
)

Play = Callable[..., Replay]


@pytest.fixture
async def play() -> AsyncIterator[Play]:
    """Makes a replay against a broker of its own with the entities of the recordings."""
    replays: list[Replay] = []

    def make(name: str, insert: Callable[[Frame], list[bytes]] = lambda _: []) -> Replay:
        clock = Clock(start_at=begun_at(lines_of(name)), manual=True)
        broker = open_broker(
            QueueDescription("q1"), QueueDescription("q2"), QueueDescription("s1", requires_session=True), clock=clock
        )
        broker.administration.create(TopicDescription("t1"))
        broker.administration.create(SubscriptionDescription("t1", "sub1"))
        replays.append(Replay(name, broker, clock, insert))
        return replays[-1]

    yield make
    for each in replays:
        each.close()


@pytest.mark.parametrize("name", NAMES)
async def test_a_recorded_client_gets_the_answers_that_it_needs(play: Play, name: str) -> None:
    await play(name).play()


@pytest.mark.parametrize("name", NAMES)
def test_the_recorded_server_was_right_but_for_settling_what_a_transaction_had_not_decided(name: str) -> None:
    lines = lines_of(name)
    peers: dict[int, DotnetPeer] = {}
    rests: dict[tuple[int, bool], bytes] = {}

    def read() -> None:
        for each in lines:
            key = (each.connection, each.of_client)
            frames, rests[key] = read_frames(rests.get(key, b"") + each.data)
            peer = peers.setdefault(each.connection, DotnetPeer())
            for found in frames:
                (peer.said if each.of_client else peer.heard)(found)

    if name in SETTLES_IN_TRANSACTIONS:
        with pytest.raises(AssertionError):
            read()
    else:
        read()


async def test_a_session_that_is_not_exclusive_is_declined_on_standard(play: Play) -> None:
    replay = play("sdk-non-exclusive-session")
    await replay.play()
    assert replay.conversations[1].peer.refusals == ["amqp:not-allowed"] * 3  # named, the next, with a token


async def test_what_a_rollback_leaves_open_the_client_completes_on_the_same_link(play: Play) -> None:
    complete = frame(2, DISPOSITION, [True, Uint(0), None, False, accepted, None])
    left = [complete]

    def before_it_closes(each: Frame) -> list[bytes]:
        return [left.pop()] if left and each.code == DETACH else []

    replay = play("t1-transaction-rollback", before_it_closes)
    await replay.play()
    assert replay.conversations[1].peer.settled == [(2, 0, ACCEPTED)]
    assert replay.conversations[1].peer.refusals == []
    assert await replay.broker.messages.peek("q1", 0, 10, 1 << 20) == []


async def test_what_a_rollback_leaves_open_the_client_releases_and_gets_it_again_first(play: Play) -> None:
    release = frame(0, DISPOSITION, [True, Uint(1), None, False, released, None])
    left = [release]

    def before_it_asks_for_the_rest(each: Frame) -> list[bytes]:
        return [left.pop()] if left and each.code == FLOW and each.get(6) == 10 else []

    replay = play("lite-transacted-posting", before_it_asks_for_the_rest)
    await replay.play()
    answered = replay.conversations[1].answered
    names = [sections(each.payload)[0x73][0] for each in answered if each.code == TRANSFER]
    assert names == ["msg0", "msg1", *[f"msg{number}" for number in range(1, 11)]]
    assert replay.conversations[1].peer.settled[:2] == [(0, 0, TRANSACTIONAL), (0, 1, RELEASED)]


async def test_what_is_asked_within_transactions_is_answered_as_they_end(play: Play) -> None:
    replay = play("t2-transaction")
    await replay.play()
    peer = replay.conversations[1].peer
    assert [(operation.partition(":")[2], status) for operation, status, _ in peer.statuses] == [
        ("update-disposition", 200),  # after the rollback, over management
        ("schedule-message", 200),  # rolled back
        ("peek-message", 204),
        ("schedule-message", 200),
        ("cancel-scheduled-message", 200),  # rolled back
        ("peek-message", 200),
        ("cancel-scheduled-message", 200),
    ]
    assert peer.refusals == ["amqp:transaction:unknown-id"]  # discharged twice
