"""What links that are over leave behind for the `$management` nodes of their connection [wire 5.8].

Knows the lock tokens that were settled on links which their client had detached, with the kind of outcome: the last
ones. Does not know whether a lock still holds.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from functools import partial
from typing import Final

from ..broker.api import Outcome
from ..broker.errors import BrokerError
from .wire.link import Done

KEPT_MAX: Final = 1_000
"""Tokens; a client asks again within a minute, or never."""


class PastLinks:
    """The links of one connection that are over."""

    def __init__(self) -> None:
        self._settled: OrderedDict[bytes, type[Outcome]] = OrderedDict()

    def noting(self, token: bytes, outcome: Outcome, done: Done | None) -> Done:
        """A callback for the outcome of a settlement that notes it, and calls `done` then."""
        return partial(self._note, token, type(outcome), done)

    def _note(self, token: bytes, kind: type[Outcome], done: Done | None, error: BrokerError | None) -> None:
        if error is None:
            self._settled[token] = kind
            if len(self._settled) > KEPT_MAX:
                self._settled.popitem(last=False)
        if done is not None:
            done(error)

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
