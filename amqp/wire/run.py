"""The unit of all that crosses a link: a run, which is one delivery as often as it is hundreds.

A run is what one read of the socket brought to one link: messages on a link on which the client sends, dispositions
with one outcome on a link on which it receives. From frames to the reply it goes this way:

    run_events > link.take ... > run_ended > the link's subclass > broker      (one turn of the event loop)
    broker > run.done(positions, error)                                        (now or in any later turn)
    the end of that turn > link.finish > Proton > the socket

States, and who changes them:

* **gathering**: only the link adds to `items`; `state.runs` has the run. The link ends it when it is full, and
  `end_runs` when anything else happens on the connection: nothing overtakes a run.
* **under way**: the broker has `items`. A position gets its outcome once, by `done`, in any order and in any number of
  calls; `state.answered` has the run while there are outcomes that Proton has not got.
* **answered**: `take_outcomes` has returned every position; the link has forgotten the run.
* **lost**: its link has gone first and has forgotten it; outcomes that still come find that and are dropped, since
  every pointer in `deliveries` may be one to freed memory then.
* **enrolled** (dispositions in a transaction, one at a time): answered and not settled. A commit settles the delivery;
  a rollback leaves it so, and the client settles it anew, with a run that takes this one's place [AMQP 4.4.2].

Proton merges outcomes into ranges only if it gets them in the order of their deliveries. Hence the `serial` of a run,
by which the end of the turn sorts, and the sorting in `take_outcomes`.

Adding a field: `items` and `deliveries` go by position, everything else is true of all positions. What can differ from
one delivery to the next (a batch, a transaction, settled by its sender) makes a run of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Final

from ...broker.errors import BrokerError
from .loops import Handle

serial_of: Final = attrgetter("serial")
_NO_ERRORS: Final[Mapping[int, BrokerError]] = MappingProxyType({})


class Run:
    """See the module. `serial` is its place among all runs of its connection."""

    __slots__ = (
        "_answers",
        "answer",
        "deliveries",
        "is_enrolled",
        "is_settled",
        "items",
        "link",
        "outcome",
        "serial",
        "transaction",
        "whole",
    )

    def __init__(
        self,
        link: Any,
        serial: int,
        items: list[bytes],
        *,
        outcome: int = 0,
        is_settled: bool = False,
        whole: bool = False,
        transaction: bytes | None = None,
        answer: tuple[int, bytes] | None = None,
    ) -> None:
        self.link = link
        self.serial = serial
        self.items = items
        """The messages, or the tokens of the deliveries that the client disposes of."""
        self.deliveries: list[Handle] = []
        """Proton's, for those that are to be answered; messages have handles here, dispositions pointers."""
        self.is_settled = is_settled
        """The client has settled: it gets no answer."""
        self.outcome = outcome
        """Of dispositions: the delivery state that the client wants."""
        self.whole = whole
        """Of messages: the only item is a batch, which is stored whole or not at all."""
        self.transaction = transaction
        """Of messages: the transaction that the only item is part of."""
        self.answer = answer
        """Of messages: the state, with its encoded fields, that says success where that is not plainly accepted."""
        self.is_enrolled = False
        self._answers: list[tuple[Sequence[int], BrokerError | None]] = []

    def done(self, positions: Sequence[int], error: BrokerError | None) -> None:
        """Positions have their outcome (None: success), which Proton gets at the end of this turn of the event loop."""
        if not self._answers:
            state = self.link.state
            state.answered.append(self)
            state.schedule_flush()
        self._answers.append((positions, error))

    def done_one(self, error: BrokerError | None) -> None:
        assert len(self.deliveries) == 1
        self.done((0,), error)

    def done_with(self, answer: tuple[int, bytes]) -> None:
        """`done` with success for a run of one, which is answered with a state and its encoded fields."""
        self.answer = answer
        self.done_one(None)

    def done_all(self, error: BrokerError | None) -> None:
        """`done` for every position."""
        self.done(range(len(self.deliveries)), error)

    def take_outcomes(self) -> tuple[Sequence[int], Mapping[int, BrokerError]]:
        """The positions that have got an outcome since the last call, ascending; the errors of those refused."""
        answers, self._answers = self._answers, []
        if len(answers) == 1 and answers[0][1] is None:
            return answers[0][0], _NO_ERRORS
        errors = {each: error for positions, error in answers if error is not None for each in positions}
        return sorted(each for positions, _ in answers for each in positions), errors

    def enroll(self) -> None:
        """The only disposition is part of a transaction from now on: the answer does not settle its delivery."""
        self.is_enrolled = True
        self.done_one(None)

    def committed(self) -> None:
        """The transaction is committed: the answer settles the delivery."""
        self.is_enrolled = False
        self.done_one(None)
