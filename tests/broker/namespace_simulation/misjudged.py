"""Runs that failed though the broker was right and the model wrong, shrunk, each with a sentence that says how.

They pass now.
"""

from __future__ import annotations

from .cases import Case
from .commands import (
    AcceptSession,
    Advance,
    Cancel,
    Claim,
    CloseSession,
    Create,
    DeliverNow,
    LockByNumber,
    Mend,
    Outage,
    Purge,
    Receive,
    ReceiveDeferred,
    ReceiveInSession,
    Rest,
    Schedule,
    Send,
    SetStatus,
    Settle,
    Spec,
    Tear,
    Together,
)
from .shapes import Rule, Shape

MISJUDGED = (
    Case(
        "a scheduled message got a number and was dropped as the duplicate of a dead letter: there is none to cancel",
        "answer",
        (
            Shape("q3", ttl_ms=40_000, bury_expired=True, forward_dead_letters_to="q2"),
            Shape("q2", duplicates=True),
        ),
        (
            Send("q3", (Spec(1, id="id24"),)),
            Advance(120_000),
            Schedule("q2", (Spec(2, id="id24", after_ms=20_000),)),
            Cancel("q2", (2,)),
        ),
    ),
    Case(
        "a scheduled message that was dropped as a duplicate is not there when the request that names it is refused",
        "cancel: all or none",
        (Shape("q0", forward_to="t0"), Shape("t0", "topic", duplicates=True)),
        (
            Outage(8, "failing"),
            Send("q0", (Spec(1, id="id1"),)),
            Schedule("t0", (Spec(2, id="id1", after_ms=100_000),)),
            Cancel("t0", (2,), stranger=9),
        ),
    ),
    Case(
        "a dead letter went on as it expired, and the model did not know that its last queue remembers it",
        "lost",
        (
            Shape("q0", deliveries_max=1, forward_dead_letters_to="q1"),
            Shape("q1", ttl_ms=5_000, bury_expired=True, forward_dead_letters_to="q2"),
            Shape("q2", duplicates=True),
        ),
        (
            Send("q0", (Spec(1, id="id0"),)),
            Tear(3, "REFUSED"),
            Receive("q0", 1),
            Advance(40_000),
            Advance(10_000),
            Rest(),
            Send("q2", (Spec(2, id="id0"),)),
            Rest(),
        ),
    ),
    Case(
        "a message whose time came while its batch waited for a slow store was thought to have kept its place in it",
        "order",
        (Shape("q2"),),
        (
            Outage(8, "slow"),
            Send("q2", (Spec(1, key="f", after_ms=1_000), Spec(2, key="f")), batch=True),
            Advance(2_000),
            Rest(),
        ),
    ),
    Case(
        "two messages of one delivery have the same id, and the second takes the shorter way",
        "lost",
        (
            Shape("t0", "topic"),
            Shape("t0/Subscriptions/s0", "subscription", forward_to="q2"),
            Shape("t0/Subscriptions/s1", "subscription", forward_to="q1", rules=(Rule("r0", colour="green"),)),
            Shape("q2", forward_to="q1"),
            Shape("q1", duplicates=True),
        ),
        (Send("t0", (Spec(1, id="id1"), Spec(2, id="id1", colour="green")), batch=True), Rest()),
    ),
    Case(
        "a message that expired while a receiver held it goes when its session is free, here by a change of the queue",
        "lost",
        (Shape("q1", sessions=True, bury_expired=True, forward_dead_letters_to="q0"), Shape("q0")),
        (
            Send("q1", (Spec(1, session="f", ttl_ms=40_000),)),
            Advance(35_000),
            Rest(),
            Advance(2_000),
            AcceptSession("q1"),
            ReceiveInSession("q1", "f", 2),
            Rest(),
            SetStatus("q1", status="SendDisabled"),
            Rest(),
        ),
    ),
    Case(
        "a message overtook one of its id that was scheduled, and waited for a slow store",
        "lost",
        (Shape("t1", "topic", partitioned=True, duplicates=True),),
        (
            Outage(6, "slow"),
            Schedule("t1", (Spec(658, id="id8", after_ms=100_000), Spec(659, id="id9", after_ms=100_000))),
            Send("t1", (Spec(661, id="id9"),)),
            Rest(),
        ),
    ),
    Case(
        "a message that expired twice on its way was taken unseen, by a receiver whose store did not confirm",
        "lost",
        (
            Shape("q0", bury_expired=True, forward_dead_letters_to="q2"),
            Shape("q2", partitioned=True, bury_expired=True),
        ),
        (
            Tear(12, "UNCONFIRMED"),
            Send("q0", (Spec(1, key="d", ttl_ms=5_000),)),
            Advance(15_000),
            Advance(35_000),
            Receive("q2", 500, home="dead letters", delete=True),
            Rest(),
        ),
    ),
    Case(
        "a message that was delivered early, unconfirmed, was claimed, unconfirmed",
        "lost",
        (Shape("q0"),),
        (
            Schedule("q0", (Spec(1, after_ms=1_000),)),
            Tear(4, "UNCONFIRMED"),
            DeliverNow("q0", 1),
            Claim("q0", 50),
            Rest(),
        ),
    ),
    Case(
        "whether a scheduled message can be cancelled is open while a store has not confirmed that it delivered it",
        "answer",
        (Shape("t1", "topic", partitioned=True),),
        (
            Schedule("t1", (Spec(1, key="f", after_ms=20_000),)),
            Tear(0, "UNCONFIRMED"),
            DeliverNow("t1", 1),
            Cancel("t1", (1,)),
        ),
    ),
    Case(
        "a cancelled message was still in the outbox of a store that had handed it over and is full since",
        "cancel: all or none",
        (),
        (
            Create(Shape("q0", partitioned=True, bury_expired=True, deliveries_max=1, forward_to="q3")),
            Together(
                (
                    Send("q0", (Spec(171, colour="blue", ttl_ms=300000),)),
                    Send("q0", (Spec(172, ttl_ms=300000),)),
                    Send("q0", (Spec(173, ttl_ms=5000),)),
                    Send("q0", (Spec(174),)),
                )
            ),
            Outage(10, "down"),
            Together(
                (
                    Send("q0", (Spec(181, colour="blue", ttl_ms=40000),)),
                    Send("q0", (Spec(182, colour="blue"),)),
                    Send("q0", (Spec(183),)),
                    Send("q0", (Spec(184, colour="green"),)),
                )
            ),
            Outage(0, "slow"),
            Schedule(
                "q0",
                (
                    Spec(307, after_ms=20000),
                    Spec(309, after_ms=100000),
                    Spec(310, after_ms=100000),
                    Spec(311, key="f", after_ms=20000),
                    Spec(312, after_ms=1000),
                ),
            ),
            Advance(15000),
            Outage(13, "full"),
            Mend(0),
            Cancel("q0", (311, 306)),
        ),
    ),
    Case(
        "a message was gone because another one with its id had become a dead letter at the same place",
        "lost",
        (
            Shape("q2", partitioned=True, forward_to="q1"),
            Shape("q1", partitioned=True, deliveries_max=2, forward_dead_letters_to="t0"),
            Shape("t0", "topic", duplicates=True),
            Shape("t0/Subscriptions/s0", "subscription"),
        ),
        (
            Schedule(
                "q2",
                (Spec(533, after_ms=100_000), Spec(534, after_ms=20_000), Spec(535, ttl_ms=5_000, after_ms=100_000)),
            ),
            Send("q2", (Spec(547, id="id9"), Spec(548, id="id9")), batch=True),
            Receive("q1", 20),
            Advance(120_000),
            Receive("q1", 20),
            Outage(10, "down"),
            Rest(),
            Advance(35_000),
            Rest(),
        ),
    ),
    Case(
        "a receiver got two dead letters that look alike, one of which had been delivered before",
        "lost",
        (
            Shape("t0", "topic"),
            Shape(
                "t0/Subscriptions/s0",
                "subscription",
                forward_to="q3",
                rules=(
                    Rule("r0", value="a", sql=False),
                    Rule("r1", action="set session", value="b", sql=False),
                    Rule("r2", value="c"),
                ),
            ),
            Shape("q3", forward_to="t1"),
            Shape("t1", "topic"),
            Shape(
                "t1/Subscriptions/s0",
                "subscription",
                bury_expired=True,
                rules=(Rule("r0", colour="blue", action="set key", value="e", sql=False),),
            ),
        ),
        (
            Together(
                (
                    Send("t0", (Spec(296, colour="blue"),)),
                    Send("t0", (Spec(297, colour="blue"),)),
                    Send("t0", (Spec(300, colour="blue", ttl_ms=40_000),)),
                )
            ),
            Rest(),
            Receive("t1/Subscriptions/s0", 5),
            Advance(120_000),
            Receive("t1/Subscriptions/s0", 20, home="dead letters"),
            Rest(),
        ),
    ),
    Case(
        "a claim could not release what it had locked behind its limit, and that lock ended by time",
        "lost",
        (Shape("q0"),),
        (
            Send("q0", tuple(Spec(label) for label in range(393, 399)), batch=True),
            Outage(4, "failing"),
            Receive("q0", 5),
            Advance(120_000),
            Claim("q0", 1, below=1),
            Advance(120_000),
            Rest(),
        ),
    ),
    Case(
        "a release that no store confirmed let a message expire, and a receiver took it unseen before that was judged",
        "lost",
        (Shape("q1", partitioned=True, ttl_ms=5_000, bury_expired=True),),
        (
            Schedule(
                "q1",
                tuple(
                    Spec(label, after_ms=1_000 if label in {112, 115, 116} else 100_000) for label in range(112, 118)
                ),
            ),
            Advance(120_000),
            Rest(),
            Advance(2_000),
            Receive("q1", 20),
            Rest(),
            Tear(6, "UNCONFIRMED"),
            Settle(113, "q1", "release"),
            Receive("q1", 500, home="dead letters", delete=True),
            Rest(),
        ),
    ),
    Case(
        "a message that was perhaps delivered before its time, and perhaps taken, was not known as one on its way",
        "stray",
        (
            Shape("t0", "topic", partitioned=True),
            Shape("t0/Subscriptions/s0", "subscription", forward_to="t1"),
            Shape("t1", "topic"),
            Shape("t1/Subscriptions/s0", "subscription"),
        ),
        (
            Schedule("t0", (Spec(196, session="e", after_ms=20_000),)),
            Tear(10, "UNCONFIRMED"),
            DeliverNow("t0", 196),
            Receive("t1/Subscriptions/s0", 5, delete=True),
            Cancel("t0", (196,)),
            Rest(),
        ),
    ),
    Case(
        "a dead letter that a receiver had when the target of dead letters came was thought to be there at once",
        "lost",
        (Shape("q2", forward_dead_letters_to="q1"),),
        (
            Send("q2", (Spec(47),)),
            Receive("q2", 20),
            Settle(47, "q2", "dead-letter"),
            Rest(),
            LockByNumber("q2", (47,), home="dead letters"),
            Create(Shape("q1")),
            Rest(),
            Advance(60_000),
            Receive("q1", 20),
            Rest(),
        ),
    ),
    Case(
        "a dead letter behind one whose target's store failed was thought to have gone, and was deleted where it is",
        "stray",
        (
            Shape("t0", "topic"),
            Shape("t0/Subscriptions/s0", "subscription", sessions=True, forward_dead_letters_to="q1"),
            Shape("q1", partitioned=True),
        ),
        (
            Send("t0", (Spec(122),)),
            Schedule(
                "t0",
                (
                    Spec(126, after_ms=20_000),
                    Spec(127, after_ms=1_000),
                    Spec(129, after_ms=20_000),
                    Spec(130, after_ms=1_000),
                ),
            ),
            Tear(4, "REFUSED"),
            Advance(120_000),
            Send("t0", (Spec(192),)),
            Purge("t0/Subscriptions/s0", 50, home="dead letters"),
            Rest(),
        ),
    ),
    Case(
        "a message that was completed without an answer was thought to be deleted by the purge behind it",
        "purge",
        (Shape("q0"),),
        (
            Send("q0", (Spec(1),)),
            Send("q0", (Spec(2),)),
            Send("q0", (Spec(3),)),
            Rest(),
            LockByNumber("q0", (3,)),
            Settle(3, "q0", "complete, unanswered"),
            Purge("q0", 1),
        ),
    ),
    Case(
        "a partition was full of messages that one request had scheduled in others, and that had gone when it was seen",
        "answer",
        (Shape("q0", partitioned=True, small=True),),
        (
            Send("q0", (Spec(139, session="c"),)),
            Send("q0", (Spec(142, session="c"),)),
            Send("q0", (Spec(192, session="c", size=8_000),)),
            Outage(15, "slow"),
            Schedule(
                "q0",
                (
                    Spec(263, session="c", after_ms=100_000),
                    Spec(264, after_ms=20_000),
                    Spec(265, after_ms=1_000, size=12_000),
                    Spec(266, after_ms=20_000, size=12_000),
                    Spec(267, after_ms=100_000, size=8_000),
                    Spec(268, after_ms=1_000, size=12_000),
                ),
            ),
            Advance(15_000),
            Send("q0", (Spec(286, session="c", size=12_000),)),
            Rest(),
        ),
    ),
    Case(
        "a session that was not closed, since a store was slow, was forgotten: that it was lost then went unheard",
        "answer",
        (Shape("q0", sessions=True),),
        (
            Schedule("q0", (Spec(9, session="c", after_ms=1_000),)),
            Advance(120_000),
            AcceptSession("q0"),
            ReceiveInSession("q0", "c", 1),
            Settle(9, "q0", "defer"),
            Outage(1, "slow"),
            CloseSession("q0", "c"),
            Tear(4, "REFUSED"),
            Send("q0", (Spec(296, session="e"),), batch=True),
            Rest(),
            ReceiveDeferred("q0", (9,)),
        ),
    ),
)
