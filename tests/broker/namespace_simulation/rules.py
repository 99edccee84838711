"""The rules that a run must keep, by their names, and what is raised when one is broken."""

from __future__ import annotations

RULES = {
    "answer": "a verb is answered as the service answers it",
    "late": "while all stores work a request is answered within a second, and what goes to other entities goes at once",
    "pause": "what can't be done now is tried again when time has passed, not at once",
    "broker failure": "the broker never fails by itself: no traceback, no internal error",
    "delivery: all or none": "of a delivery that is refused nothing is stored, of one that is accepted everything",
    "schedule: all or none": "the messages of one request are scheduled all or none",
    "cancel: all or none": "of the scheduled messages that one request names all are cancelled or none",
    "send without key": "a message without a key is refused only when no messaging store can take it (P13)",
    "schedule without key": "messages without a key are scheduled as long as any messaging store can take them",
    "room": "a message without a key is refused as too much only when no partition has room for it",
    "lost": "an accepted message is where it belongs",
    "stray": "nothing is anywhere else, or twice",
    "one place per key": "all messages of a key, or of a session, are in the partition of that key (P10)",
    "order": "messages with the same key that went the same way are in the order in which they were sent",
    "spread": "messages without a key are spread over the partitions (P11)",
    "counts": "what management counts is what is there",
    "delivery": "a receiver gets what is there, each message to one receiver at a time",
    "everything available": "while all stores work a receiver gets all that is available",
    "rest": "when all stores work, everything that is under way arrives",
    "one holder": "a message session has one holder at a time, until it closes it or its lock ends",
    "transaction: all or none": "what is in a transaction happens together or not at all",
    "state": "the state of a message session is what was set last",
    "peek": "page after page shows each message once, also over an outage",
    "purge": "what is deleted is available, the oldest first, and as much as the answer says",
    "by number: all or none": "deferred messages that one request names are received all or none",
}


class BrokenRuleError(Exception):
    """The broker does what Service Bus does not: the rule's name, and what was seen."""

    def __init__(self, rule: str, seen: str) -> None:
        assert rule in RULES, rule
        super().__init__(f"{rule} ({RULES[rule]}): {seen}")
        self.rule = rule
        self.seen = seen
