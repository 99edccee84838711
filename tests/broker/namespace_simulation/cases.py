"""Runs that failed because of a fault of the broker, shrunk, each with a sentence that says which. They pass now."""

from __future__ import annotations

from dataclasses import dataclass

from .commands import (
    AcceptSession,
    Advance,
    Cancel,
    Command,
    Create,
    Delete,
    LockByNumber,
    Mend,
    Outage,
    Purge,
    Receive,
    Rest,
    Schedule,
    Send,
    SetStatus,
    Settle,
    Spec,
    Tear,
    Together,
    Transact,
)
from .shapes import Rule, Shape


@dataclass(frozen=True)
class Case:
    """`found` says what was wrong, `rule` which rule showed it."""

    found: str
    rule: str
    shapes: tuple[Shape, ...]
    commands: tuple[Command, ...]


CASES = (
    Case(
        "a copy stayed in the partition of its old key when the action of a rule gave it another session",
        "one place per key",
        (
            Shape("t0", "topic", partitioned=True),
            Shape("t0/Subscriptions/s1", "subscription", rules=(Rule("r0", action="set session", value="b"),)),
        ),
        (Send("t0", (Spec(1, session="a"),)), Send("t0", (Spec(2, session="c"),)), Rest()),
    ),
    Case(
        "messages without a key that came from a partitioned queue went to a few partitions of their destination",
        "spread",
        (Shape("q0", partitioned=True, forward_to="q1"), Shape("q1", partitioned=True)),
        (Together(tuple(Send("q0", (Spec(label),)) for label in range(1, 65))), Rest()),
    ),
    Case(
        "of two messages that were scheduled together one was stored although the request was refused",
        "schedule: all or none",
        (Shape("q0", partitioned=True),),
        (
            Outage(6, "failing"),
            Schedule(
                "q0", tuple(Spec(label, session=name, after_ms=1_000) for label, name in enumerate("abcdefgh", start=1))
            ),
        ),
    ),
    Case(
        "scheduling without a key failed with the store whose turn it was, while fifteen others worked",
        "schedule without key",
        (Shape("q0", partitioned=True),),
        (
            Outage(1, "failing"),
            *(Schedule("q0", (Spec(label, after_ms=1_000),)) for label in range(1, 17)),
        ),
    ),
    Case(
        "cancelling a scheduled message and one that is not there was refused, and the first was gone",
        "cancel: all or none",
        (Shape("t0", "topic", partitioned=True),),
        (Schedule("t0", (Spec(1, after_ms=20_000),)), Cancel("t0", (1,), 6)),
    ),
    Case(
        "one full partition refused messages without a key, while the others were empty",
        "room",
        (Shape("q0", partitioned=True, small=True),),
        (
            *(Send("q0", (Spec(label, key="a", size=12_000),)) for label in range(1, 6)),
            *(Send("q0", (Spec(label, size=12_000),)) for label in range(6, 23)),
        ),
    ),
    Case(
        "messages scheduled together were refused, as the partition that hands them on counted all as its own",
        "room",
        (Shape("q2", partitioned=True, small=True),),
        (
            Send("q2", (Spec(1, key="c", size=8_000),)),
            Schedule(
                "q2",
                (
                    Spec(2, key="c", after_ms=1_000, size=12_000),
                    *(Spec(label, after_ms=20_000, size=12_000) for label in range(3, 7)),
                ),
            ),
        ),
    ),
    Case(
        "a schedule failed with the store that had given a number for a message without a key, and failed after that",
        "schedule without key",
        (Shape("q0", partitioned=True),),
        (
            Outage(1, "slow"),
            Schedule("q0", (Spec(1, after_ms=100_000), Spec(2, session="f", after_ms=20_000))),
            Outage(1, "full"),
            Advance(15_000),
            Rest(),
        ),
    ),
    Case(
        "a store that was full when messages of a deleted queue came due stopped for ever, and never answered again",
        "rest",
        (Shape("q0"),),
        (
            Schedule("q0", (Spec(1, after_ms=20_000),)),
            Delete("q0"),
            *(Outage(store, "full") for store in range(16)),
            Advance(120_000),
            Rest(),
            Create(Shape("q1", partitioned=True)),
            *(Send("q1", (Spec(2 + store),)) for store in range(16)),
            Rest(),
        ),
    ),
    Case(
        "a scheduled message could not be found by its number while a failed store held it back from its partition",
        "answer",
        (Shape("q0", partitioned=True),),
        (
            Outage(2, "down"),
            Send("q0", (Spec(48),), batch=True),
            Send("q0", (Spec(49),), batch=True),
            Send("q0", (Spec(56),), batch=True),
            Schedule("q0", (Spec(80, after_ms=20_000),)),
            Outage(0, "slow"),
            Schedule(
                "q0", (Spec(85, after_ms=100_000), Spec(86, key="f", after_ms=100_000), Spec(87, after_ms=20_000))
            ),
            Tear(8, "UNCONFIRMED"),
            Mend(0),
            Cancel("q0", (86,)),
            Rest(),
            Cancel("q0", (86,)),
            Rest(),
        ),
    ),
    Case(
        "a receiver that was detached when its entity was disabled went on holding its message session",
        "everything available",
        (Shape("q0", sessions=True),),
        (
            Send("q0", (Spec(1, session="a"),)),
            AcceptSession("q0"),
            SetStatus("q0", "Disabled"),
            SetStatus("q0"),
            AcceptSession("q0"),
        ),
    ),
    Case(
        "a message that had expired while its store failed was deleted as one of those that are there",
        "stray",
        (Shape("q0", ttl_ms=40_000, bury_expired=True),),
        (
            Send("q0", (Spec(1),)),
            Advance(30_000),
            Tear(4, "REFUSED"),
            Advance(15_000),
            Mend(4),
            Purge("q0", 3),
            Rest(),
        ),
    ),
    Case(
        "what a transaction sent to another queue waited a second behind a dead letter whose queue there is not",
        "everything available",
        (Shape("q2", deliveries_max=1, forward_dead_letters_to="q1"), Shape("q0")),
        (
            Send("q2", (Spec(1, ttl_ms=40_000),)),
            Receive("q2", 20),
            Advance(120_000),
            Transact("q2", (Send("q0", (Spec(2),)), Send("q2", (Spec(3),)))),
            Receive("q0", 20),
        ),
    ),
    Case(
        "a lock whose end the store refused was ended again at once, and again, as long as the forwarder asked",
        "pause",
        (
            Shape("q0"),
            Shape("t1", "topic", partitioned=True),
            Shape("t1/Subscriptions/s0", "subscription", deliveries_max=1, forward_dead_letters_to="q1"),
            Shape("q1", partitioned=True, sessions=True),
        ),
        (
            Send("t1", (Spec(1, key="d"),)),
            Receive("t1/Subscriptions/s0", 2),
            Advance(120_000),
            Rest(),
            AcceptSession("q1", name="d"),
            LockByNumber("t1/Subscriptions/s0", (259, 1), home="dead letters"),
            Outage(12, "failing"),
            Transact("q0", (Send("q1", (Spec(393, session="e"),)),), end="timeout"),
        ),
    ),
    Case(
        "a request that scheduled in one partition alone waited for the forwarder there, which waited for an entity",
        "late",
        (Shape("q2", partitioned=True, deliveries_max=1, forward_dead_letters_to="t0"),),
        (
            Send("q2", (Spec(1, key="e"),)),
            Receive("q2", 1),
            Settle(1, "q2", "dead-letter"),
            Send("q2", (Spec(40),)),  # each request takes two turns of the partitions: this one makes them even
            *(
                Schedule("q2", (Spec(label, after_ms=100_000), Spec(label + 1, key="e", after_ms=100_000)))
                for label in range(2, 34, 2)  # one of them has its first message in the partition of this key, too
            ),
            Advance(1_000),
        ),
    ),
    Case(
        "the second of two messages was forwarded a second later if a dead letter before them waited for its queue",
        "everything available",
        (
            Shape("q1", forward_to="q2", forward_dead_letters_to="q4"),
            Shape("q2", sessions=True),
        ),
        (
            Send("q1", (Spec(1),)),  # a dead letter, since it has no session
            Send("q1", (Spec(2, session="a"),)),
            Send("q1", (Spec(3, session="b"),)),
            AcceptSession("q2"),
            AcceptSession("q2"),
        ),
    ),
)
