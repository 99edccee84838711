"""What the partition simulation does: a request, what it is to the model, and how the answers of both compare."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from emubus.broker.errors import BrokerError
from emubus.broker.message.message import Message
from emubus.broker.partition.requests import Request

from .model import SEEN, Model
from .tearing import name_of

Reply = Callable[[Any], None]


def nothing(argument: object) -> None:
    """An effect that nobody hears of."""


def seen(payload: bytes) -> SEEN:
    """Name and delivery count of a delivered message."""
    header_end = 5 + payload[4]  # the delivery count, a uint, is the header's last field
    return name_of(payload), int.from_bytes(payload[header_end - 4 : header_end], "big")


def same(answer: object, expected: object) -> None:
    assert answer == expected


def is_done(answer: object, expected: bool) -> None:
    assert (answer is None) == expected, answer


@dataclass
class Act:
    """A request, what it is to the model, and how the answers of both compare; `check` None: no caller waits.

    `in_parts`: `check` gets the list of all answers, not the only one.
    """

    make: Callable[[Reply], Request]
    on_model: Callable[[Model, int], Any]
    check: Callable[[Any, Any], None] | None = same
    in_parts: bool = False


@dataclass
class Sent:
    """A message to be sent."""

    name: str
    message_id: str
    session: str | None
    ttl_ms: int | None
    at: int | None
    message: Message


@dataclass
class Part:
    """The positions of a run that have the same result."""

    positions: Sequence[int]
    error: BrokerError | None


def ended_in_parts(parts: Sequence[Part], expected: dict[int, bool]) -> None:
    """Each position has one result: settled or refused."""
    ends = [(position, part.error is None) for part in parts for position in part.positions]
    assert sorted(ends) == sorted(expected.items())
    assert all(part.positions for part in parts)
