"""As `misjudged`: runs in which it was open what became of which copy of a message."""

from __future__ import annotations

from .cases import Case
from .commands import (
    Advance,
    Create,
    LockByNumber,
    Outage,
    Receive,
    Rest,
    Schedule,
    Send,
    Settle,
    SettleTogether,
    Spec,
    Tear,
    Together,
)
from .shapes import Rule, Shape

_TWO_COPIES_WITH_ONE_ID = (
    Shape("t0", "topic", partitioned=True),
    Shape(
        "t0/Subscriptions/s1",
        "subscription",
        deliveries_max=1,
        forward_dead_letters_to="q0",
        rules=(Rule("r0", action="set key", value="c"), Rule("r1", action="drop key")),
    ),
    Shape("q0", forward_to="t1"),
    Shape("t1", "topic", partitioned=True, duplicates=True),
    Shape("t1/Subscriptions/s0", "subscription"),
)
_ONE_COPY_EXPIRES = (
    Send("t0", (Spec(1, id="id0", ttl_ms=40_000),)),
    Tear(15, "REFUSED"),  # forgets the lock of the copy with a key: it expires, and the other one is a dead letter
    Receive("t0/Subscriptions/s1", 5),
    Advance(120_000),
    Rest(),
    Send("t1", (Spec(2, session="c", id="id0"),)),
    Receive("t1/Subscriptions/s0", 500),
)

MISJUDGED_COPIES = (
    Case(
        "a copy that had expired was thought to have become a dead letter, and to be remembered where those go",
        "delivery",
        _TWO_COPIES_WITH_ONE_ID,
        _ONE_COPY_EXPIRES,
    ),
    Case(
        "the dead letter of one copy was thought to be that of another, which had expired and is not remembered",
        "delivery",
        (
            *_TWO_COPIES_WITH_ONE_ID,
            Shape(
                "t1/Subscriptions/s1", "subscription", rules=(Rule("r0", action="set session", value="e"), Rule("r1"))
            ),
        ),
        _ONE_COPY_EXPIRES,
    ),
    Case(
        "copies moved to another partition and filled it while a schedule waited for a slow store",
        "room",
        (
            Shape("t0", "topic", partitioned=True, small=True),
            Shape(
                "t0/Subscriptions/s1",
                "subscription",
                rules=(Rule("r0", sql=False), Rule("r1", action="set session", value="f", sql=False)),
            ),
        ),
        (
            Outage(0, "slow"),
            Send("t0", (Spec(1, size=8_000),), batch=True),
            Schedule("t0", tuple(Spec(2 + place, after_ms=1_000, size=12_000) for place in range(4))),
            Advance(120_000),
            Schedule("t0", (Spec(6, key="f", after_ms=1_000, size=8_000), Spec(7, after_ms=1_000))),
            Rest(),
        ),
    ),
    Case(
        "of two copies that look alike one came with a key: nobody knows which partition was a keyless one's turn",
        "spread",
        (
            Shape("t1", "topic"),
            Shape(
                "t1/Subscriptions/s0",
                "subscription",
                forward_to="t0",
                rules=(Rule("r0"), Rule("r1", action="session beside key", value="e", sql=False)),
            ),
            Shape("t0", "topic", partitioned=True),
            Shape(
                "t0/Subscriptions/s0",
                "subscription",
                rules=(Rule("r0", action="set colour", value="blue"), Rule("r1", action="drop session")),
            ),
        ),
        (Together(tuple(Send("t1", (Spec(1 + place),)) for place in range(32))), Rest()),
    ),
    Case(
        "the dead letter of one copy was taken for that of another, which nobody knows to be received",
        "lost",
        (
            Shape("t0", "topic"),
            Shape("t0/Subscriptions/s1", "subscription", forward_to="q1"),
            Shape("t0/Subscriptions/s2", "subscription", bury_expired=True, forward_dead_letters_to="q1"),
            Shape("q1", partitioned=True, ttl_ms=40_000, bury_expired=True),
        ),
        (
            Send("t0", (Spec(1, ttl_ms=120_000),)),
            Advance(100_000),
            Tear(0, "UNCONFIRMED"),
            Receive("q1", 500, home="dead letters", delete=True),
            Advance(120_000),
            Advance(120_000),
            Rest(),
        ),
    ),
    Case(
        "an expired copy was taken for one that had expired elsewhere, and again where it was forwarded to",
        "lost",
        (
            Shape("q0", ttl_ms=5_000, forward_to="t1"),
            Shape("t1", "topic"),
            Shape("t1/Subscriptions/s0", "subscription", forward_to="t0"),
            Shape("t1/Subscriptions/s2", "subscription", bury_expired=True, forward_dead_letters_to="t0"),
            Shape("t0", "topic"),
            Shape("t0/Subscriptions/s0", "subscription", bury_expired=True),
        ),
        (
            Tear(13, "REFUSED"),
            Send("q0", (Spec(1),)),
            Advance(120_000),
            Receive("t0/Subscriptions/s0", 500, home="dead letters"),
            Rest(),
        ),
    ),
    Case(
        "a copy that was dropped as a duplicate took the place of the one that had expired",
        "lost",
        (
            Shape("t0", "topic"),
            Shape("t0/Subscriptions/s1", "subscription", bury_expired=True, forward_dead_letters_to="q0"),
            Shape(
                "t0/Subscriptions/s2",
                "subscription",
                forward_to="q0",
                rules=(Rule("r0", action="set colour", value="blue", sql=False), Rule("r1"), Rule("r2", sql=False)),
            ),
            Shape("q0", duplicates=True, bury_expired=True),
        ),
        (Together((Send("t0", (Spec(1, ttl_ms=5_000),)),)), Tear(6, "REFUSED"), Advance(15_000), Rest()),
    ),
    Case(
        "one copy of a dead letter was seen, and the reason of the other one was taken for known",
        "lost",
        (
            Shape(
                "q0",
                partitioned=True,
                ttl_ms=300_000,
                deliveries_max=2,
                bury_expired=True,
                forward_dead_letters_to="t0",
            ),
            Shape("t0", "topic"),
            Shape("t0/Subscriptions/s0", "subscription", sessions=True),
            Shape("t0/Subscriptions/s2", "subscription"),
        ),
        (
            Send("q0", (Spec(1), Spec(2)), batch=True),
            Advance(240_000),
            Receive("q0", 20),
            Tear(0, "REFUSED"),
            Settle(1, "q0", "defer"),
            Rest(),
            Advance(30_000),
            Receive("q0", 20),
            Advance(120_000),
            Receive("t0/Subscriptions/s0", 500, home="dead letters"),
            Rest(),
        ),
    ),
    Case(
        "copies that are not there were thought to have come before those that are, and to be remembered",
        "stray",
        (
            Shape("t0", "topic"),
            Shape(
                "t0/Subscriptions/s2",
                "subscription",
                deliveries_max=1,
                forward_dead_letters_to="q1",
                rules=(
                    Rule("r0", action="set colour", value="green", sql=False),
                    Rule("r1", action="drop session", value="d", sql=False),
                    Rule("r2", action="session beside key", value="f"),
                ),
            ),
            Shape("q1", partitioned=True, forward_to="t1"),
            Shape("t1", "topic", duplicates=True),
            Shape(
                "t1/Subscriptions/s1",
                "subscription",
                rules=(
                    Rule("r0", colour="blue", action="drop key", value="f", sql=False),
                    Rule("r1", colour="blue", value="d", sql=False),
                ),
            ),
        ),
        (
            Send("t0", (Spec(1),), batch=True),
            Schedule("t0", (Spec(2, colour="blue", after_ms=1_000),)),
            Rest(),
            LockByNumber("t0/Subscriptions/s2", (2, 1)),
            Outage(5, "failing"),
            Rest(),
            Advance(120_000),
            Rest(),
        ),
    ),
    Case(
        "two copies with times to live of their own had met, and each was taken for the other one",
        "lost",
        (
            Shape("t0", "topic", ttl_ms=40_000),
            Shape("t0/Subscriptions/s0", "subscription", forward_to="q0"),
            Shape("t0/Subscriptions/s1", "subscription", ttl_ms=5_000, forward_to="q0"),
            Shape("q0", bury_expired=True, forward_dead_letters_to="q1"),
            Shape("q1"),
        ),
        (
            Advance(35_000),
            Tear(10, "REFUSED"),
            Schedule("t0", (Spec(1, after_ms=1_000),)),
            Rest(),
            Rest(),
            Rest(),
        ),
    ),
    Case(
        "the way that one copy had come was judged before it was known that another one was dropped",
        "lost",
        (
            Shape("t0", "topic"),
            Shape(
                "t0/Subscriptions/s0",
                "subscription",
                forward_to="q1",
                rules=(
                    Rule("r0", colour="green", value="e", sql=False),
                    Rule("r1", colour="green", action="drop key", value="g"),
                ),
            ),
            Shape("t0/Subscriptions/s1", "subscription", forward_to="q1"),
            Shape("t0/Subscriptions/s2", "subscription", bury_expired=True, forward_dead_letters_to="q1"),
            Shape("q1", duplicates=True, bury_expired=True),
        ),
        (
            Together((Send("t0", (Spec(197, colour="green", ttl_ms=5_000),)),)),
            Outage(3, "failing"),
            Advance(35_000),
            Rest(),
        ),
    ),
    Case(
        "a partition was full of copies for other partitions, which had gone when its room was looked at",
        "answer",
        (
            Shape("t0", "topic", partitioned=True, small=True),
            Shape("t0/Subscriptions/s1", "subscription"),
            Shape(
                "t0/Subscriptions/s2",
                "subscription",
                rules=(
                    Rule("r0", action="drop session", value="g"),
                    Rule("r1", colour="red", action="session beside key", value="d", sql=False),
                    Rule("r2", value="c", sql=False),
                ),
            ),
        ),
        (
            Outage(0, "slow"),
            Send("t0", (Spec(60, key="f", size=12_000),)),
            Send("t0", (Spec(71, size=8_000),)),
            Send("t0", (Spec(72, session="f"),)),
            Rest(),
        ),
    ),
    Case(
        "of two copies one is a duplicate: that with the longer time to live was taken for the other one, late",
        "lost",
        (
            Shape("t0", "topic", partitioned=True),
            Shape("t0/Subscriptions/s0", "subscription", ttl_ms=40_000, forward_to="q0"),
            Shape("t0/Subscriptions/s1", "subscription", forward_to="q0"),
            Shape("q0", duplicates=True, bury_expired=True, forward_dead_letters_to="t1"),
            Shape("t1", "topic"),
            Shape("t1/Subscriptions/s2", "subscription"),
        ),
        (
            Receive("t0/Subscriptions/s1", 5, home="dead letters"),
            Outage(8, "slow"),
            Together((*(Send("t0", (Spec(label),)) for label in range(1, 9)), Send("t0", (Spec(9, ttl_ms=300_000),)))),
            Rest(),
            Advance(300_000),
            Rest(),
        ),
    ),
    Case(
        "of two dead letters with one id that waited for their target, the later one may come first",
        "delivery",
        (
            Shape("t0", "topic"),
            Shape("t0/Subscriptions/s0", "subscription", forward_to="q3"),
            Shape("q3", partitioned=True, forward_to="q0", forward_dead_letters_to="q0"),
        ),
        (
            Send("q3", (Spec(486, session="b", id="id17"),), batch=True),
            Send("t0", (Spec(500, id="id17"),)),
            Schedule("q3", (Spec(586, session="b", after_ms=1_000),)),
            Rest(),
            Create(Shape("q0", duplicates=True, deliveries_max=2)),
            Receive("q0", 500),
        ),
    ),
    Case(
        "of two copies one was dead-lettered, and a receiver got it: the other one, which had stayed, was taken for it",
        "lost",
        (
            Shape("t1", "topic", partitioned=True),
            Shape(
                "t1/Subscriptions/s0",
                "subscription",
                forward_to="q0",
                rules=(Rule("r0", action="session from colour", value="a"), Rule("r1", value="f")),
            ),
            Shape("q0", partitioned=True, deliveries_max=1, forward_dead_letters_to="t0"),
            Shape("t0", "topic"),
            Shape(
                "t0/Subscriptions/s2",
                "subscription",
                rules=(Rule("r0", action="session from colour", value="b", sql=False),),  # the copies look alike there
            ),
        ),
        (
            Outage(0, "full"),
            Send("t1", (Spec(313), Spec(314)), batch=True),
            Send("t1", (Spec(354), Spec(355)), batch=True),
            Receive("q0", 20),
            Tear(4, "UNCONFIRMED"),
            Send("t1", (Spec(398, colour="blue"),)),
            Advance(120_000),
            Receive("t0/Subscriptions/s2", 500),
            Rest(),
        ),
    ),
    Case(
        "a copy was dropped as the duplicate of one that had come long before, when all was explained together",
        "lost",
        (
            Shape("t1", "topic", ttl_ms=5_000),
            Shape("t1/Subscriptions/s0", "subscription", forward_to="q4"),
            Shape(
                "t1/Subscriptions/s1",
                "subscription",
                forward_to="t0",
                rules=(
                    Rule("r0", colour="blue", value="f"),
                    Rule("r1", colour="blue", action="drop session", value="a"),
                    Rule("r2", colour="blue", action="set key", value="c", sql=False),
                ),
            ),
            Shape("q4", bury_expired=True, forward_dead_letters_to="t0"),
            Shape("t0", "topic", duplicates=True),
            Shape(
                "t0/Subscriptions/s1",
                "subscription",
                bury_expired=True,
                rules=(
                    Rule("r0", action="drop key", value="d", sql=False),
                    Rule("r1", action="drop key", value="e", sql=False),
                    Rule("r2", value="c"),
                ),
            ),
            Shape(
                "t0/Subscriptions/s2",
                "subscription",
                rules=(Rule("r0", value="f"), Rule("r1", action="drop session", value="f")),
            ),
        ),
        (Send("t1", (Spec(424, colour="blue"),)), Outage(1, "down"), Advance(35_000), Rest()),
    ),
    Case(
        "of two messages with one id that were settled together the first one of the request need not go first",
        "stray",
        (
            Shape("t1", "topic"),
            Shape("t1/Subscriptions/s0", "subscription", deliveries_max=1, forward_dead_letters_to="q2"),
            Shape("q2", duplicates=True),
        ),
        (
            Send("t1", (Spec(441, id="id12"), Spec(444, id="id12")), batch=True),
            Receive("t1/Subscriptions/s0", 20),
            SettleTogether("t1/Subscriptions/s0", (444, 441), "abandon"),
            Rest(),
        ),
    ),
)
