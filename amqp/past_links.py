"""What links that are over leave behind for the `$management` nodes of their connection [wire 5.8, 6.4].

Knows the lock tokens whose settlement was answered behind the client's detach, with the kind of outcome, and the
names of links that lost their message sessions: the last ones of each. Does not know whether a lock still holds.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from ..broker.api import Outcome

KEPT_MAX: Final = 1_000
"""Tokens, and names; a client asks again within a minute, or never."""


class PastLinks:
    """The links of one connection that are over."""

    def __init__(self) -> None:
        self._settled: OrderedDict[bytes, type[Outcome]] = OrderedDict()
        self._lost: OrderedDict[str, None] = OrderedDict()

    def settled(self, token: bytes, outcome: Outcome) -> None:
        """A message was settled, and the client may not hear of it: the answer comes behind the one to its detach."""
        self._settled[token] = type(outcome)
        if len(self._settled) > KEPT_MAX:
            self._settled.popitem(last=False)

    def have_settled(self, tokens: Sequence[bytes], outcome: Outcome) -> bool:
        """Whether a request asks for what was done on a link whose detach crossed the answer: Python's SDK waits for
        the outcome, sees the answer to its detach first, and settles over `$management` then (its live test
        test_queue_message_settle_through_mgmt_link_due_to_broken_receiver_link). It is said once.
        """
        if not tokens or any(self._settled.get(token) is not type(outcome) for token in tokens):
            return False
        for token in tokens:
            self._settled.pop(token, None)
        return True

    def session_lost(self, link: str) -> None:
        """A link has lost its message session: another receiver may hold it now."""
        self._lost[link] = None
        if len(self._lost) > KEPT_MAX:
            self._lost.popitem(last=False)

    def attached(self, link: str) -> None:
        """There is a new link of that name."""
        self._lost.pop(link, None)

    def have_lost_session(self, link: str | None) -> bool:
        """Whether the link of that name is none any more because it lost its message session."""
        return link in self._lost
