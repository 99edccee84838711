"""Who works next on the event loop, and for how long: by what each peer has cost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Generator

from emubus.broker.turns import Account, Turns

from .namespace import loop_turns

SLICE_US, TURN_US, STRANGERS_US = 500, 8_000, 4_000


class Turn:
    """What is awaited until the event loop has turned once."""

    def __await__(self) -> Generator[None]:
        yield


class Loop:
    """A scheduler whose time passes only while somebody works; `order` has who worked."""

    def __init__(self) -> None:
        self.now_us = 0
        self.lost_us = 0
        """What other programs had of the processor: the stopwatch counts it, too."""
        self.lose_us = 0
        """What they take of it while somebody works."""
        self.order: list[str] = []
        self.turns = Turns(SLICE_US, TURN_US, STRANGERS_US, lambda: self.now_us + self.lost_us, lambda: self.now_us)

    def works(self, name: str, us: int) -> None:
        self.order.append(name)
        self.now_us += us
        self.lost_us += self.lose_us

    async def turn(self, count: int = 1) -> list[str]:
        """Who works in so many turns of the event loop."""
        before = len(self.order)
        for _ in range(count):
            await Turn()
        return self.order[before:]


class Peer:
    """Has work for some slices of `slice_us` each."""

    def __init__(
        self, loop: Loop, name: str, slices: int = 0, slice_us: int = 2_000, *, is_stranger: bool = False
    ) -> None:
        self.loop, self.name, self.slices, self.slice_us = loop, name, slices, slice_us
        self.is_stranger = is_stranger
        self.account = Account()

    def work_off(self, until_us: int) -> bool:
        assert until_us == self.loop.now_us + self.loop.lost_us + SLICE_US
        self.loop.works(self.name, self.slice_us)
        self.slices -= 1
        return self.slices > 0

    def take(self, slices: int = 1) -> bool:
        self.slices += slices
        return self.loop.turns.take(self)

    async def step(self, us: int) -> None:
        self.loop.works(self.name, us)


async def test_work_of_a_peer_is_done_at_once_while_none_waits_and_the_turn_has_time() -> None:
    loop = Loop()
    one, two = Peer(loop, "one"), Peer(loop, "two", slice_us=7_000)
    assert not one.take()
    assert not two.take()
    assert one.take()  # the turn is over
    assert loop.order == ["one", "two"]
    assert await loop.turn(2) == ["one"]


async def test_a_turn_ends_once_its_time_is_used_however_many_peers_have_work() -> None:
    loop = Loop()
    peers = [Peer(loop, f"{number}") for number in range(80)]
    assert [each.take(3) for each in peers] == [True] * 80
    assert await loop.turn() == ["1", "2", "3", "4"]  # "0" went at once
    assert await loop.turn() == ["5", "6", "7", "8"]


async def test_a_peer_that_has_used_little_comes_before_all_that_have_used_much() -> None:
    loop = Loop()
    heavy = [Peer(loop, "heavy", 1_000) for _ in range(80)]
    for each in heavy:
        each.take()
    await loop.turn(30)
    light = Peer(loop, "light", slice_us=50)
    light.take()
    await loop.turn(40)  # how much it does is not known yet
    for _ in range(20):
        assert light.take()
        assert "light" in await loop.turn(2)


async def test_a_peer_that_has_little_comes_before_newcomers_although_the_machine_was_busy() -> None:
    loop = Loop()
    light = Peer(loop, "light", slice_us=50)
    light.take()
    for _ in range(10):
        loop.lose_us = 2_000  # with each slice
        light.take()
        await loop.turn()
    loop.lose_us = 0
    for number in range(40):
        Peer(loop, f"new{number}", 2, 20_000).take()
    assert light.take()
    assert "light" in await loop.turn(2)


async def test_peers_get_equal_time_whatever_their_slices_take() -> None:
    loop = Loop()
    peers = [Peer(loop, f"{us}", 10_000, us) for us in (100, 1_000, 5_000)]
    for each in peers:
        each.take()
    order = await loop.turn(200)
    times = [order.count(each.name) * each.slice_us for each in peers]
    assert max(times) - min(times) <= 2 * 5_000, times


async def test_who_was_idle_has_saved_no_time_up() -> None:
    loop = Loop()
    busy, idle = Peer(loop, "busy", 10_000), Peer(loop, "idle")
    idle.take()
    busy.take()
    await loop.turn(100)
    idle.take(10_000)
    order = await loop.turn(50)
    assert abs(order.count("busy") - order.count("idle")) <= 2


async def test_who_worked_alone_owes_nothing_when_others_come() -> None:
    loop = Loop()
    alone, other = Peer(loop, "alone"), Peer(loop, "other")
    for _ in range(100):
        alone.take()
        await loop.turn(2)
    other.take(10_000)
    alone.take(10_000)
    order = await loop.turn(50)
    assert abs(order.count("alone") - order.count("other")) <= 2


async def test_strangers_share_a_part_of_each_turn_and_known_clients_come_first() -> None:
    loop = Loop()
    strangers = [Peer(loop, f"s{number}", is_stranger=True) for number in range(3)]
    assert [each.take(2) for each in strangers] == [True] * 3
    known = Peer(loop, "known")
    assert known.take(3)
    assert loop.order == ["s0", "known"]
    assert await loop.turn(4) == ["known", "known", "s1", "s2", "s0", "s1", "s2"]


async def test_what_strangers_use_beyond_their_part_they_lack_in_the_turns_after_it() -> None:
    loop = Loop()
    first = Peer(loop, "first", slice_us=50_000, is_stranger=True)
    assert not first.take()
    assert Peer(loop, "stranger", is_stranger=True).take()
    assert await loop.turn(11) == []
    assert await loop.turn(2) == ["stranger"]


async def test_a_peer_that_becomes_known_begins_anew_among_the_known() -> None:
    loop = Loop()
    peer, other = Peer(loop, "peer", slice_us=1_000_000, is_stranger=True), Peer(loop, "other")
    peer.take()
    peer.is_stranger, peer.slice_us = False, 2_000
    assert other.take(100)
    assert peer.take(100)
    order = await loop.turn(10)
    assert abs(order.count("peer") - order.count("other")) <= 2


# ---- steps of requests


async def test_steps_of_requests_share_the_turn_with_input() -> None:
    loop = Loop()
    many, one = Peer(loop, "many"), Peer(loop, "one", slice_us=100)
    tasks = [asyncio.ensure_future(loop.turns.run(many, many.step(1_000))) for _ in range(100)]
    await loop.turn()
    for _ in range(10):
        assert one.take() or loop.order[-1] == "one"
        order = await loop.turn(2)
        assert order.count("many") <= 2 * TURN_US // 1_000, order
    assert loop.order.count("one") == 10
    await asyncio.gather(*tasks)
    assert loop.order.count("many") == 100


async def test_requests_of_one_peer_begin_in_their_order() -> None:
    loop = Loop()
    peer = Peer(loop, "peer")
    begun: list[int] = []

    async def request(number: int) -> None:
        begun.append(number)
        loop.works("peer", 3_000)
        await loop_turns(1)
        loop.works("peer", 3_000)

    tasks = []
    for number in range(20):
        tasks.append(asyncio.ensure_future(loop.turns.run(peer, request(number))))
        await loop.turn(number % 3)
    await asyncio.gather(*tasks)
    assert begun == list(range(20))


async def test_a_step_that_took_longer_than_expected_is_charged_what_it_took() -> None:
    loop = Loop()
    peer, other = Peer(loop, "peer"), Peer(loop, "other")

    costs_us = [4_000 if number % 2 else 100 for number in range(100)]
    tasks = [asyncio.ensure_future(loop.turns.run(peer, peer.step(us))) for us in costs_us]
    other.take(100_000)
    await asyncio.gather(*tasks)
    order = loop.order[: len(loop.order) - loop.order[::-1].index("peer")]
    assert abs(order.count("other") * 2_000 - sum(costs_us)) <= 2 * 4_000


async def test_a_request_that_is_cancelled_while_it_waits_ends_in_order() -> None:
    loop = Loop()
    peer = Peer(loop, "peer")
    ended: list[str] = []

    async def request() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.append("request")

    def run(work: Awaitable[None]) -> asyncio.Future[None]:
        return asyncio.ensure_future(loop.turns.run(peer, work))

    tasks = [run(request()) for _ in range(3)]
    await loop.turn(2)
    full = Peer(loop, "full", slice_us=TURN_US)
    full.take(100)
    await loop.turn()
    for task in tasks:
        task.cancel()
    unbegun = run(peer.step(1))
    await loop.turn()
    unbegun.cancel()
    await asyncio.gather(*tasks, unbegun, return_exceptions=True)
    assert ended == ["request"] * 3
    assert all(task.cancelled() for task in (*tasks, unbegun))
    await run(peer.step(1))
    assert loop.order.count("peer") == 1


async def test_an_error_of_a_request_reaches_who_runs_it() -> None:
    loop = Loop()

    async def request() -> None:
        await loop_turns(1)
        raise ValueError("no")

    (result,) = await asyncio.gather(loop.turns.run(Peer(loop, "peer"), request()), return_exceptions=True)
    assert isinstance(result, ValueError)


async def test_what_a_busy_machine_took_from_steps_is_no_credit_for_their_peers() -> None:
    """A step alone is measured by the stopwatch. What was expected of the next one and not used must not put its peer
    behind the others' place: a sender waited until ten peers had used what they had lost, 7 s."""
    loop = Loop()
    peers = [Peer(loop, "heavy") for _ in range(10)]

    async def steps(peer: Peer, lost_us: int) -> None:
        loop.lost_us += lost_us
        for _ in range(100):
            await Turn()
            loop.works(peer.name, 1_000)

    tasks = []
    for each in peers:
        tasks.append(asyncio.create_task(loop.turns.run(each, steps(each, 500_000))))
        await loop.turn(4)
    tasks += [asyncio.create_task(loop.turns.run(each, steps(each, 0))) for each in peers for _ in range(20)]
    await loop.turn(4)
    light = Peer(loop, "light", slice_us=50)
    waited_us: list[int] = []
    for count in range(1, 21):
        before_us = loop.now_us
        light.take()
        while loop.order.count("light") < count:
            await loop.turn()
        waited_us.append(loop.now_us - before_us)
        await loop.turn(2)
    assert any(not task.done() for task in tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert max(waited_us) <= 4 * TURN_US, waited_us
