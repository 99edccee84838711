"""Claiming by a receiving link, as every service offers: messages are received with locks and deferred.

Knows two ways to defer: one request for the messages of a partition, or an outcome for each. Does not know which
messages a query wants besides a limit.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..codec import head
from ..errors import ConnectorError
from ..wire.receiver import Modified
from .claim_round import Round
from .offsets import base_of, partition_of, runs_of
from .rows import CLAIM_PROPERTY

log = logging.getLogger("emubus.spark")
RECEIVE_COUNT: Final = 500
"""Credit of one round: more are locked for longer before they are deferred, fewer ask for credit more often."""


class LinkClaims:
    """One round of receiving and deferring, on one link, which ends with the block."""

    def __init__(self, connection: Any, entity: str, claim_id: str) -> None:
        self._connection = connection
        self._receiver = connection.receiver(entity)
        self._entity = entity
        self._outcome = Modified(undeliverable_here=True, delivery_failed=False, properties={CLAIM_PROPERTY: claim_id})
        self._fields = {"properties_to_modify": {CLAIM_PROPERTY: claim_id}}
        self._beyond: list[Any] = []

    def __enter__(self) -> LinkClaims:
        return self

    def __exit__(self, *_: object) -> None:
        """Give back what was not claimed, and close the link."""
        if self._connection.usable:
            self._beyond += self._receiver.drain()
            if self._beyond:
                self._receiver.settle(self._beyond, "released")
            self._receiver.close()

    def run(self, round_: Round, wait_s: float, frozen: Mapping[int, int] | None) -> None:
        """Claim as many messages as the round has to, until none arrives for `wait_s`.

        With `frozen`, messages from these numbers on are given back.
        """
        receiver = self._receiver
        while not round_.is_full:
            missing = round_.missing
            count = RECEIVE_COUNT if missing is None else min(RECEIVE_COUNT, missing)
            received = receiver.receive(count, wait_s)
            if len(received) < count:
                received += receiver.drain()
            mine = [each for each in received if _may_take(each, frozen)]
            self._beyond += [each for each in received if not _may_take(each, frozen)]
            if len(mine) == count:  # the next ones come while these are deferred
                receiver.ask(RECEIVE_COUNT if missing is None else min(RECEIVE_COUNT, missing - count))
            self._take(mine, round_)
            if len(mine) < count:
                break

    def _take(self, received: Sequence[Any], round_: Round) -> None:
        """Defer messages: those of a partition by one request, or each by its outcome if the service refuses that."""
        numbers = [head(each.data).sequence_number for each in received]
        groups: dict[int, list[Any]] = {}
        for number, each in zip(numbers, received, strict=True):
            groups.setdefault(partition_of(number), []).append(each)
        management = self._connection.management(self._entity)
        asked = [
            (group, management.begin_disposition([each.lock_token for each in group], "defered", **self._fields))
            for group in groups.values()
        ]
        refused: list[Any] = []
        for group, pending in asked:
            try:
                management.end_disposition(pending)
            except ConnectorError as error:
                if not self._connection.usable:
                    raise
                log.debug("%s: a request to defer was refused: %s", self._entity, error)
                refused += group
            else:
                self._receiver.forget(group)
        if refused:
            try:
                self._receiver.settle(refused, self._outcome)
            except ConnectorError:
                count = len(refused)
                log.warning("up to %d messages could not be claimed; they come again when their locks end", count)
                raise
        round_.claim(runs_of(numbers))


def _may_take(received: Any, frozen: Mapping[int, int] | None) -> bool:
    if frozen is None:
        return True
    number = head(received.data).sequence_number
    return number < frozen.get(partition_of(number), base_of(partition_of(number)))
