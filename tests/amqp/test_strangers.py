"""Clients that have not shown a valid token: what they may have, and that their input waits for everybody else's."""

from __future__ import annotations

from emubus.amqp.limits import Limits
from emubus.broker.access import Access
from emubus.broker.clock import Clock
from emubus.broker.keys import SharedKey
from emubus.broker.ledger import Caps, Ledger
from emubus.codec.frames import AMQP_HEADER, SASL_HEADER
from emubus.codec.types import Described, Uint, Ulong

from ..tracking import untracked
from .fakes import FakeTransport
from .wire import ATTACH, BEGIN, CLOSE, OPEN, SOURCE, TARGET, Wire, sasl_init

LIMITS = Limits(
    stranger_links_max=4,
    stranger_sessions_max=3,
    stranger_attach_bytes_max=400,
)


def stranger(caps: Caps = Caps()) -> Wire:  # noqa: B008 - frozen
    clock = Clock(start_at=1_700_000_000_000, manual=True)
    access = Access([SharedKey("name", "key")], verify=True)
    wire = Wire(access=access, limits=LIMITS, clock=clock, ledger=Ledger(clock, caps))
    wire.open()
    return wire


def attach(wire: Wire, handle: int, name: str, address: str = "$cbs") -> None:
    terminus = [Described(Ulong(SOURCE), [address]), Described(Ulong(TARGET), [address])]
    wire.send(0, ATTACH, [name, Uint(handle), False, None, None, *terminus, None, None, 0])


def closed(wire: Wire) -> tuple[str, str]:
    """Condition and description of the close that must have come."""
    (close,) = [each for each in wire.read() if each.code == CLOSE]
    condition, text, *_ = close.fields[0].value
    return condition, untracked(text)


def refused(what: str) -> tuple[str, str]:
    return "amqp:resource-limit-exceeded", f"A client that has not put a valid token may have at most {what}."


async def test_a_stranger_has_so_many_links_whether_they_are_accepted_or_refused() -> None:
    wire = stranger()
    for handle in range(4):
        attach(wire, handle, f"l{handle}", "$cbs" if handle % 2 else "q")
    assert CLOSE not in [each.code for each in wire.read()]
    attach(wire, 4, "l4")
    assert closed(wire) == refused("4 links")
    wire.lose()


async def test_a_stranger_has_so_many_amqp_sessions() -> None:
    wire = stranger()
    for channel in range(1, 5):
        wire.send(channel, BEGIN, [None, Uint(0), Uint(100), Uint(100)])
    assert closed(wire) == refused("3 AMQP sessions")
    wire.lose()


async def test_a_stranger_s_names_are_short() -> None:
    wire = stranger()
    attach(wire, 0, "n" * 300)
    assert CLOSE not in [each.code for each in wire.read()]
    attach(wire, 1, "m" * 400)
    assert closed(wire) == refused("400 bytes of an attach")
    wire.lose()


async def test_a_connection_that_needs_no_token_has_the_limits_of_all() -> None:
    wire = Wire(limits=LIMITS)
    wire.open()
    for handle in range(8):
        attach(wire, handle, "n" * 500 + str(handle))
    assert CLOSE not in [each.code for each in wire.read()]
    wire.lose()


async def test_the_oldest_stranger_goes_for_a_new_one() -> None:
    first = stranger(Caps(stranger_count=2))
    sockets = [FakeTransport() for _ in range(2)]
    for number, each in enumerate(sockets):
        first.connection(number + 2).connection_made(each)
    assert [each.is_closing() for each in (first.socket, *sockets)] == [True, False, False]
    first.lose()


async def test_input_above_a_slice_waits_for_the_next_turn_and_keeps_its_order() -> None:
    wire = Wire(limits=Limits(slice_us=0, chunk_bytes_max=64), is_paced=True)
    wire.write(SASL_HEADER + sasl_init() + AMQP_HEADER)
    wire.send(0, OPEN, ["client", "localhost", Uint(65_536)])
    await wire.turn(20)
    for channel in range(1, 21):
        wire.send(channel, BEGIN, [None, Uint(0), Uint(100), Uint(100)])
    data = wire.read()
    everything = data + await wire.turn(60)
    assert [each.fields[0] for each in everything if each.code == BEGIN] == list(range(1, 21))
    assert OPEN not in [each.code for each in everything]
    wire.lose()
