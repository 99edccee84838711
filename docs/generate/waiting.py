"""What becomes of a message whose target does not take it, as a table with sources.

`python -m docs.generate.waiting` writes docs/reference/waiting.md. `tests/broker/test_waiting.py` drives a broker
through each row, and checks that the page is up to date.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from docs import DOCS

PAGE: Final = DOCS / "reference" / "waiting.md"


class Way(StrEnum):
    """How a message goes from one entity to another."""

    FORWARD = "ForwardTo"
    DEAD_LETTER = "ForwardDeadLetteredMessagesTo"
    TRANSFER = "a transaction, via another entity"


class Obstacle(StrEnum):
    """What is wrong with the target, or with the message."""

    MISSING = "the target is missing"
    DISABLED = "Disabled"
    SEND_DISABLED = "SendDisabled"
    RECEIVE_DISABLED = "ReceiveDisabled"
    FULL = "the target is full"
    NO_SESSION = "the target requires sessions, the message has no SessionId"
    TOO_LARGE = "the message is larger than the target takes from senders"
    DUPLICATE = "the target has had its MessageId"
    HOPS = "more than four hops"
    OUT = "the store of the target is out"


class Fate(StrEnum):
    """What becomes of the message."""

    ARRIVES = "arrives"
    IS_DROPPED = "is dropped"
    IS_BURIED = "dead-lettered at its source"
    IS_BURIED_IN_TRANSFER = "in the transfer dead-letter queue of the entity via which it left"
    WAITS = "waits, and arrives once the obstacle is gone"
    STAYS = "stays in the dead-letter queue"


@dataclass(frozen=True)
class Row:
    """One case: what happens, the dead-letter reason that is added, and who says so."""

    way: Way
    obstacle: Obstacle
    fate: Fate
    source: str
    reason: str | None = None


DEAD_LETTERS: Final = "[SB: service-bus-dead-letter-queues]"
FORWARDING: Final = "[SB: service-bus-auto-forwarding]"
ASKED: Final = "Azure/azure-service-bus 666: an answer of the service's team"
ALSO_ASKED: Final = f"{ASKED}; MicrosoftDocs/azure-docs 54981"
REPORTED: Final = "Azure/azure-service-bus 743: reported of a premium namespace"
EXACTLY_ONCE: Final = "P14: nothing is given up because of a store"
TAKEN: Final = "guess: the limit is one of the link that sends; the page on dead letters names no reason for it"
MISSING, DISABLED, FULL = "MessagingEntityNotFound", "MessagingEntityDisabled", "QuotaExceeded"
NO_SESSION: Final = "Session ID is null."

ROWS: Final = (
    Row(Way.FORWARD, Obstacle.MISSING, Fate.IS_BURIED, DEAD_LETTERS, MISSING),
    Row(Way.FORWARD, Obstacle.DISABLED, Fate.IS_BURIED, f"{DEAD_LETTERS}, {FORWARDING}", DISABLED),
    Row(Way.FORWARD, Obstacle.SEND_DISABLED, Fate.ARRIVES, REPORTED),
    Row(Way.FORWARD, Obstacle.RECEIVE_DISABLED, Fate.ARRIVES, "what ReceiveDisabled means"),
    Row(Way.FORWARD, Obstacle.FULL, Fate.IS_BURIED, f"{DEAD_LETTERS}, {FORWARDING}", FULL),
    Row(Way.FORWARD, Obstacle.NO_SESSION, Fate.IS_BURIED, f"{FORWARDING}; .NET's sample 21", NO_SESSION),
    Row(Way.FORWARD, Obstacle.TOO_LARGE, Fate.ARRIVES, TAKEN),
    Row(Way.FORWARD, Obstacle.DUPLICATE, Fate.IS_DROPPED, "guess: as a message that is sent"),
    Row(Way.FORWARD, Obstacle.HOPS, Fate.IS_BURIED, DEAD_LETTERS, "MaxTransferHopCountExceeded"),
    Row(Way.FORWARD, Obstacle.OUT, Fate.WAITS, EXACTLY_ONCE),
    Row(Way.DEAD_LETTER, Obstacle.MISSING, Fate.WAITS, ALSO_ASKED),
    Row(Way.DEAD_LETTER, Obstacle.DISABLED, Fate.ARRIVES, ASKED),
    Row(Way.DEAD_LETTER, Obstacle.SEND_DISABLED, Fate.ARRIVES, f"guess: as Disabled; {REPORTED}"),
    Row(Way.DEAD_LETTER, Obstacle.RECEIVE_DISABLED, Fate.ARRIVES, "what ReceiveDisabled means"),
    Row(Way.DEAD_LETTER, Obstacle.FULL, Fate.WAITS, ALSO_ASKED),
    Row(Way.DEAD_LETTER, Obstacle.NO_SESSION, Fate.STAYS, "guess: it is a dead letter of its source already"),
    Row(Way.DEAD_LETTER, Obstacle.TOO_LARGE, Fate.ARRIVES, TAKEN),
    Row(Way.DEAD_LETTER, Obstacle.DUPLICATE, Fate.IS_DROPPED, "guess: as a message that is sent"),
    Row(Way.DEAD_LETTER, Obstacle.HOPS, Fate.STAYS, "Azure/azure-service-bus 249: reported"),
    Row(Way.DEAD_LETTER, Obstacle.OUT, Fate.WAITS, EXACTLY_ONCE),
    Row(
        Way.TRANSFER,
        Obstacle.MISSING,
        Fate.IS_BURIED_IN_TRANSFER,
        "guess: a send is refused, this one was not",
        MISSING,
    ),
    Row(Way.TRANSFER, Obstacle.DISABLED, Fate.IS_BURIED_IN_TRANSFER, DEAD_LETTERS, DISABLED),
    Row(Way.TRANSFER, Obstacle.SEND_DISABLED, Fate.IS_BURIED_IN_TRANSFER, "guess: as Disabled", DISABLED),
    Row(Way.TRANSFER, Obstacle.RECEIVE_DISABLED, Fate.ARRIVES, "what ReceiveDisabled means"),
    Row(Way.TRANSFER, Obstacle.FULL, Fate.WAITS, f"{DEAD_LETTERS}: in neither dead-letter queue"),
    Row(Way.TRANSFER, Obstacle.NO_SESSION, Fate.IS_BURIED_IN_TRANSFER, "guess: as ForwardTo", NO_SESSION),
    Row(Way.TRANSFER, Obstacle.TOO_LARGE, Fate.ARRIVES, TAKEN),
    Row(Way.TRANSFER, Obstacle.DUPLICATE, Fate.IS_DROPPED, "guess: as a message that is sent"),
    Row(Way.TRANSFER, Obstacle.OUT, Fate.WAITS, EXACTLY_ONCE),
)
"""A transfer has one hop, so that it can't have too many."""

HEAD: Final = """# Waiting or giving up

Generated by `python -m docs.generate.waiting`: what becomes of a message that goes from one entity to another, if the
target does not take it. `tests/broker/test_waiting.py` drives a broker through each row. A source that is a guess says
so.

* What waits keeps its order, and is tried each second, or as soon as a missing target is created. The target is known
  by its name.
* **Dead letters** that go on wait in the dead-letter queue of their source, under their own numbers: they count there,
  and can be peeked, resubmitted and deleted. A receiver there is refused as long as they go on
  (Azure/azure-service-bus 666). Those that stay are tried again when the source is updated, and after a start.
* Dead letters that were there before `ForwardDeadLetteredMessagesTo` was set go on, too (ServiceBusExplorer 356). If it
  is taken away, those that wait can be received.
* A message that ForwardTo has dead-lettered goes on like any other dead letter of its source, unless it has had its
  hops (guess).
* A copy in a subscription that requires sessions is dead-lettered there: a topic takes messages without a SessionId.

"""


def page() -> str:
    """The whole page."""
    lines = ["| Way | Obstacle | The message | Reason that is added | Source |", "|---|---|---|---|---|"]
    for row in ROWS:
        reason = "" if row.reason is None else f"`{row.reason}`"
        lines.append(f"| {row.way} | {row.obstacle} | {row.fate} | {reason} | {row.source} |")
    return HEAD + "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
