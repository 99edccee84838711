"""docs/architecture/life-cycle.md shows the moves that the code makes."""

from __future__ import annotations

from docs.generate.life_cycle import PAGE, diagram, moves, name_of, page, requests
from emubus.broker.partition.records import HOMES
from emubus.broker.partition.requests import (
    AcceptSession,
    CheckOperation,
    GetExtent,
    GetSessionState,
    ListNumbers,
    ListSessions,
    LockMessages,
    NextDeadLetter,
    Peek,
    ReadOutbox,
    Renew,
    RenewSession,
    Reserve,
    SetSessionState,
)

MOVE_NOTHING = {
    AcceptSession,
    CheckOperation,
    GetSessionState,
    ListNumbers,
    ListSessions,
    LockMessages,
    NextDeadLetter,
    GetExtent,
    Peek,
    ReadOutbox,
    Renew,
    RenewSession,
    Reserve,
    SetSessionState,
}
NODES_MAX = 25


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == page(), "python -m docs.generate.life_cycle"


def test_every_request_of_the_handler_table_moves_messages_or_is_known_not_to() -> None:
    moving = {move.label.partition(" ")[0].rstrip(":") for move in moves()}
    assert moving == {each.__name__ for each in requests() - MOVE_NOTHING}
    assert requests() >= MOVE_NOTHING


def test_every_home_is_reached_and_left() -> None:
    found = moves()
    assert {move.target for move in found} >= set(HOMES)
    assert {move.source for move in found if move.source != move.target} >= set(HOMES)


def test_the_diagram_is_small_enough_to_be_read() -> None:
    drawn = diagram(moves())
    assert sum(name_of(home) in drawn for home in HOMES) + 1 < NODES_MAX
