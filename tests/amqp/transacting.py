"""A client's half of transactions, by hand: the commands of the coordinator, states, and how answers are read."""

from __future__ import annotations

from typing import Any

from emubus.codec.encode import encode, encode_described
from emubus.codec.types import Array, Described, Symbol, Ulong

from .wire import COORDINATOR, DISPOSITION, Frame, Wire

DECLARE, DISCHARGE, DECLARED, TRANSACTIONAL = 0x31, 0x32, 0x33, 0x34
ID = b"txn\xff1"
"""The first id that the fake broker gives."""


def command(code: object, fields: list[Any]) -> bytes:
    return encode_described(Ulong(0x77), encode(Described(code, fields)))


def within(outcome: object = None, transaction: object = ID) -> Described:
    return Described(Ulong(TRANSACTIONAL), [transaction, outcome])


def coordinate(wire: Wire, handle: int = 9, channel: int = 0) -> list[Frame]:
    target = Described(Ulong(COORDINATOR), [Array(0xA3, (Symbol("amqp:local-transactions"),))])
    return wire.attach_sender(handle=handle, channel=channel, target=target)


def declare(wire: Wire, handle: int = 9, channel: int = 0) -> Frame:
    wire.write(wire.transfer(command(Ulong(DECLARE), [None]), handle=handle, channel=channel))
    (answer,) = wire.read()
    return answer


def discharge(wire: Wire, fields: list[Any], handle: int = 9) -> Frame:
    wire.write(wire.transfer(command(Ulong(DISCHARGE), fields), handle=handle))
    (answer,) = wire.read()
    return answer


def disposed(answer: Frame) -> tuple[int, int, bool, object]:
    """The first and the last delivery of a sender's disposition, whether it settles them, and its state."""
    assert (answer.code, answer.get(0)) == (DISPOSITION, False)
    first = answer.get(1)
    return first, first if answer.get(2) is None else answer.get(2), answer.get(3) is True, answer.get(4)


def within_answer(code: int) -> Described:
    """The state that confirms an outcome within the transaction."""
    return Described(TRANSACTIONAL, [ID, Described(code, [])])


def condition(answer: Frame) -> str:
    return str(answer.get(4).value[0].value[0])
