"""The ledger: sums, caps, who is held, who is closed, and whose socket goes."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from emubus.broker.clock import Clock
from emubus.broker.errors import BrokerError, Condition
from emubus.broker.ledger import LOOK_MS, MIB, PATIENCE_LOOKS, TRIM_BYTES, Caps, Ledger, MemoryAccount, Need, Use

from ..log_levels import every_level

CAPS = Caps(
    connection=1_000, stranger=200, identity=1_500, strangers=400, everything=2_000, small=10, step=1, stranger_step=1,
    stranger_count=3, socket_count=6,
)  # fmt: skip


@dataclass(eq=False)
class Peer:
    """A connection with a buffer for each use; remembers what the ledger has asked for."""

    ledger: Ledger
    number: int = 0
    is_idle: bool = True
    said: list[str] = field(default_factory=list[str])
    errors: list[BrokerError] = field(default_factory=list[BrokerError])
    held: dict[Use, int] = field(default_factory=lambda: dict.fromkeys(Use, 0))

    def __post_init__(self) -> None:
        self.account: MemoryAccount = self.ledger.open(self, "10.0.0.1", self.number)
        for use in Use:
            self.account.enter(use, lambda use=use: self.held[use])  # type: ignore[misc]

    def hold(self) -> None:
        self.said.append("hold")

    def go_on(self) -> None:
        self.said.append("go on")

    def expel(self, error: BrokerError) -> None:
        self.said.append("expel")
        self.errors.append(error)

    def cut(self) -> None:
        self.said.append("cut")

    def put(self, use: Use, size: int) -> None:
        grown = max(0, size - self.held[use])
        self.held[use] = size
        self.account.grew(grown)

    def close(self) -> None:
        self.held = dict.fromkeys(Use, 0)
        self.account.close()


def opened(caps: Caps = CAPS) -> tuple[Clock, Ledger]:
    clock = Clock(start_at=1_700_000_000_000, manual=True)
    return clock, Ledger(clock, caps)


def look(clock: Clock, times: int) -> None:
    for _ in range(times):
        clock.advance(LOOK_MS)


def known(ledger: Ledger, key: str = "k", number: int = 0) -> Peer:
    peer = Peer(ledger, number)
    peer.account.identify(key)
    return peer


async def test_a_connection_above_its_cap_is_held_until_three_quarters() -> None:
    _, ledger = opened()
    peer = known(ledger)
    peer.put(Use.PENDING, 1_000)
    assert peer.said == []
    peer.put(Use.PENDING, 1_001)
    assert peer.said == ["hold"]
    peer.put(Use.PENDING, 751)
    peer.account.read()
    assert peer.said == ["hold"]
    peer.put(Use.PENDING, 750)
    peer.account.read()
    assert peer.said == ["hold", "go on"]


@pytest.mark.parametrize("use", list(Use), ids=lambda use: use.title)
async def test_what_goes_away_by_itself_or_by_reading_closes_no_connection_that_hurts_itself_alone(use: Use) -> None:
    clock, ledger = opened()
    peer = known(ledger)
    peer.put(use, 1_001)
    look(clock, 3 * PATIENCE_LOOKS)
    assert ("expel" in peer.said) is (use.need is Need.SENDING)


@pytest.mark.parametrize("use", list(Use), ids=lambda use: use.title)
async def test_a_key_s_largest_connection_is_closed_if_holding_does_not_help(use: Use) -> None:
    clock, ledger = opened()
    small, large, other = known(ledger, number=1), known(ledger, number=2), known(ledger, "o", 3)
    small.put(use, 700)
    large.put(use, 900)
    other.put(use, 300)
    assert (small.said, large.said, other.said) == ([], ["hold"], [])
    look(clock, 1)
    assert small.said == ["hold"]
    with every_level(), capture_logs() as logs:
        look(clock, PATIENCE_LOOKS)
    if use.need is Need.WORK:
        assert logs == []
        return
    assert (small.said, large.said, other.said) == (["hold"], ["hold", "expel"], [])
    (error,) = large.errors
    assert error.condition is Condition.RESOURCE_LIMIT_EXCEEDED
    assert error.description == "The memory held for 'k' is 1600 bytes; at most 1500 are allowed."
    (line,) = [each for each in logs if each["event"] == "connections closed: they held too much memory"]
    assert (line["count"], line["largest"], line["largest_holds"]) == (1, "10.0.0.1:2", f"{use.title}: 900")
    large.close()
    look(clock, 1)
    assert small.said == ["hold", "go on"]


async def test_all_strangers_together_have_a_cap_that_others_do_not_feel() -> None:
    clock, ledger = opened()
    owner = known(ledger)
    strangers = [Peer(ledger, number) for number in range(3)]
    for each in strangers:
        each.put(Use.ASSEMBLY, 150)
    owner.put(Use.PARTIAL, 900)
    look(clock, PATIENCE_LOOKS + 1)
    assert owner.said == []
    assert sum("expel" in each.said for each in strangers) == 1
    assert ledger.closed_count == 1


async def test_who_makes_room_is_not_closed() -> None:
    clock, ledger = opened()
    peer, other = known(ledger, number=1), known(ledger, number=2)
    peer.put(Use.OUTPUT, 990)
    other.put(Use.OUTPUT, 990)
    for left in range(990, 600, -30):
        look(clock, 3)
        peer.put(Use.OUTPUT, left)
    assert "expel" not in peer.said + other.said


async def test_the_oldest_idle_stranger_makes_room_whatever_it_speaks() -> None:
    _, ledger = opened()
    strangers = [Peer(ledger, number, is_idle=number > 0) for number in range(3)]
    with every_level(), capture_logs() as logs:
        newest = Peer(ledger, 3)
    assert [each.said for each in (*strangers, newest)] == [[], ["cut"], [], []]
    assert [each["reason"] for each in logs] == ["too many strangers"]


async def test_a_client_with_a_key_is_not_cut_and_a_stranger_without_a_socket_is() -> None:
    _, ledger = opened()
    owners = [known(ledger, number=number) for number in range(5)]
    stranger = Peer(ledger, 5)
    late = Peer(ledger, 6)
    assert (stranger.said, late.said) == (["cut"], [])
    late.account.identify("k")
    last = Peer(ledger, 7)
    assert (last.said, last.account.is_cut) == (["cut"], True)
    assert [each.said for each in owners] == [[]] * 5


async def test_memory_goes_back_once_much_of_it_is_free() -> None:
    clock, trims = Clock(manual=True), list[int]()
    ledger = Ledger(clock, Caps(), lambda: trims.append(ledger.everything.bytes))
    peer = known(ledger)
    peer.put(Use.OUTPUT, TRIM_BYTES + MIB)
    look(clock, 2)
    assert trims == []
    peer.put(Use.OUTPUT, 0)
    look(clock, 2)
    assert trims == [0]
    look(clock, 10)
    assert trims == [0]


def test_large_messages_fit() -> None:
    caps = Caps.for_messages(100 * MIB)
    assert caps.connection >= 400 * MIB
    assert Caps.for_messages(256 * 1024) == Caps()


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("open"), st.integers(0, 3)),
        st.tuples(st.just("put"), st.integers(0, 9), st.sampled_from(list(Use)), st.integers(0, 900)),
        st.tuples(st.just("close"), st.integers(0, 9)),
        st.tuples(st.just("know"), st.integers(0, 9), st.sampled_from("ab")),
        st.tuples(st.just("look"), st.integers(1, 2 * PATIENCE_LOOKS)),
    ),
    max_size=40,
)


@given(STEPS)
def test_sums_are_those_of_the_gauges_and_nothing_is_left_of_peers_that_left(steps: list[tuple[object, ...]]) -> None:
    clock, ledger = opened()
    peers: list[Peer] = []
    for step in steps:
        match step:
            case ("open", int(number)):
                peers.append(Peer(ledger, number))
            case ("put", int(at), Use() as use, int(size)) if peers:
                peers[at % len(peers)].put(use, size)
            case ("close", int(at)) if peers:
                peers.pop(at % len(peers)).close()
            case ("know", int(at), str(key)) if peers:
                peers[at % len(peers)].account.identify(key)
            case ("look", int(times)):
                look(clock, times)
            case _:
                continue
        for each in [each for each in peers if each.account.is_cut]:
            peers.remove(each)
            each.close()
        report = ledger.survey()
        assert report.bytes == sum(sum(each.held.values()) for each in peers) == sum(report.by_use.values())
        assert report.strangers_bytes == sum(sum(each.held.values()) for each in peers if each.account.identity is None)
        assert report.strangers <= CAPS.stranger_count
        assert report.sockets <= 6
    for each in peers:
        each.close()
    assert (ledger.everything.bytes, ledger.strangers.bytes, ledger.socket_count) == (0, 0, 0)
    look(clock, 2)
    assert ledger.survey().largest == []
