"""Receiving and settling that may fail on purpose: the tap of a receiver link."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Final

from ...broker import service_errors
from ...broker.api import Abandon, Delivery, Outcome, Release, RunDone, alone
from ...broker.clock import Timer
from ...conditions.faults import FaultOperation
from ...conditions.strikes import Effect
from ..links.credit import Step
from ..links.hooks import ReceiverHandle
from ..links.message_sessions import MessageSessionLink
from ..links.outgoing import OutgoingLink
from ..wire.link import Done
from .point import EFFECTS, InjectionPoint, ignore_outcome

FETCH_MS: Final = 100
"""How long a front end takes messages from all partitions, once one has answered."""


class FaultyReceiving:
    """The tap of a receiver link, on which receiving and settling may fail, and messages may come late.

    Made while the link has its receiver, for the `address` that this is on.
    """

    def __init__(self, address: str, point: InjectionPoint, link: OutgoingLink) -> None:
        self.address = address
        self._point = point
        self._link = link
        self._wanted = 0
        self._allowed = 0
        self._timer: Timer | None = None
        """Set while some of the credit is kept back."""
        self._cache: deque[tuple[int, Delivery]] = deque()
        """What a front end keeps locked, with the ends of the locks (Unix ms)."""
        self._cause = ""
        """The condition because of which a front end keeps messages."""
        self._has_cache = False
        self._fetching: Timer | None = None
        """Set while a front end takes more than its client wants, until it has asked all partitions."""

    def _set_credit(self, count: int) -> None:
        receiver = self._link.receiver
        if receiver is not None:
            receiver.set_credit(count)

    def before_credit(self, count: int) -> None:
        """Pass credit on, some of it later, or fail."""
        self._wanted = count
        if self._cache and count:
            asyncio.get_running_loop().call_soon(self._serve)
        if self._timer is not None or not count:
            self._allow(min(self._allowed, count) if self._timer is not None else count)
            return
        strike = self._point.next_strike(FaultOperation.RECEIVE, lambda: count)
        if strike is None:
            self._allow(count)
        elif strike.effect is Effect.LIMIT:
            self._timer = self._point.later(strike.delay_ms, self._go_on)
            self._allow(min(count, strike.count))
        else:
            self._point.end(strike)

    def _allow(self, count: int) -> None:
        room = self._room()
        count = count if room is None else min(count, room)
        self._allowed = count
        kept_max = 0
        if count and self._may_cache():
            kept_max, self._cause = self._point.conditions.cache_max(self.address)
        self._has_cache = kept_max > 0
        self._set_credit(count + max(0, kept_max - len(self._cache)))

    def _room(self) -> int | None:
        """How many more messages the AMQP session takes, with those that it has unsettled; None: any number."""
        return None if self._link.presettled else self._point.conditions.room(self.address, self._unsettled)

    def _unsettled(self) -> int:
        return sum(link.unsettled_count for link in self._links_of_session())

    def _links_of_session(self) -> list[OutgoingLink]:
        links = self._point.connection.wire.links.values()
        return [each for each in links if isinstance(each, OutgoingLink) and each.session == self._link.session]

    def _make_room(self) -> None:
        """A message was settled: links that wait for that go on."""
        if self._room() is not None:
            for link in self._links_of_session():
                link.resume()

    # ---- what a front end keeps

    def _may_cache(self) -> bool:
        """Whether the messages of the link can wait in a front end: locked, and of no message session."""
        return not self._link.presettled and not isinstance(self._link, MessageSessionLink)

    def before_deliver(self, deliveries: Sequence[Delivery]) -> Step:
        """Let the client have what it wants, and keep the rest."""
        given = self._link.credit
        step = self._link.hand_out(self._sieved(deliveries))
        if self._link.credit != given:
            self._delivered(given - self._link.credit)
        return step

    def _sieved(self, deliveries: Sequence[Delivery]) -> Sequence[Delivery]:
        """The deliveries that the client gets now; the others are kept."""
        if not self._has_cache:
            return deliveries
        if self._fetching is None:
            self._fetching = self._point.later(FETCH_MS, self._fetched)
        if len(deliveries) <= self._allowed:
            return deliveries
        clock, broker = self._point.connection.clock, self._point.connection.broker
        entity = broker.namespace.find(self.address)[0]
        until_at = clock.now_ms() + getattr(entity.description, "lock_duration_ms", 0)
        kept = deliveries[self._allowed :]
        self._cache.extend((until_at, each) for each in kept)
        what = "kept by a front end, with its lock"
        self._point.note(self._cause, "delivery", what, tokens=[each.token for each in kept])
        return deliveries[: self._allowed]

    def _fetched(self) -> None:
        """A front end takes no more for this receive."""
        self._fetching, self._has_cache = None, False
        self._set_credit(self._allowed)

    def _serve(self) -> None:
        """Give the client what was kept, as long as it is locked."""
        now = self._point.connection.clock.now_ms()
        while self._cache and self._cache[0][0] <= now:
            self._cache.popleft()
        found = [self._cache.popleft()[1] for _ in range(min(len(self._cache), self._allowed))]
        if found:
            self._link.deliver(found)
            self._allow(self._allowed)  # less the messages that were kept

    def let_go(self) -> None:
        """Give back what is kept: the last condition has ended."""
        receiver = self._link.receiver
        if self._cache and receiver is not None:
            receiver.settle([delivery.token for _, delivery in self._cache], Release(), None)
        self._cache.clear()

    def _go_on(self) -> None:
        self._timer = None
        self.before_credit(self._wanted)

    def _delivered(self, count: int) -> None:
        """The client got messages."""
        point = self._point
        self._wanted = max(0, self._wanted - count)
        self._allowed = max(0, self._allowed - count)
        if point.connection.watch is not None and point.pointer is not None:
            point.connection.watch.used(point.pointer)
        point.conditions.delivered(point.address, count, point.name_of_link)
        self._room()  # noted if there is none left

    def before_settle(
        self, receiver: ReceiverHandle, run: Sequence[bytes], outcome: Outcome, done: RunDone | None
    ) -> None:
        """Settle deliveries, each of which may fail."""
        for position, token in enumerate(run):
            then = ignore_outcome if done is None else partial(done, (position,))
            self._settle(receiver, token, outcome, then, is_answered=done is not None)

    def _settle(
        self, receiver: ReceiverHandle, token: bytes, outcome: Outcome, done: Done, *, is_answered: bool
    ) -> None:
        asyncio.get_running_loop().call_soon(self._make_room)
        strike = self._point.next_strike(FaultOperation.SETTLE, tokens=(token,))
        if strike is None:
            receiver.settle((token,), outcome, alone(done) if is_answered else None)
        elif strike.effect is Effect.LOSE_LOCK:
            self._lose(receiver, token, done)
        else:
            work = partial(receiver.settle, (token,), outcome)
            EFFECTS[strike.effect](self._point, strike, lambda then: work(alone(then)), done)

    def before_close(self) -> None:
        for timer in (self._timer, self._fetching):
            if timer is not None:
                timer.cancel()

    def _lose(self, receiver: ReceiverHandle, token: bytes, done: Done) -> None:
        """End the lock as its time would: the attempt counts. In a message session it is the session's lock."""
        link = self._link
        if isinstance(link, MessageSessionLink):
            error = service_errors.session_lock_lost()
            receiver.close()
            done(error)
            link.lose(error)
        else:
            receiver.settle((token,), Abandon({}), lambda *_: done(service_errors.lock_lost()))
