"""What one connection may do: the claims that it has, and what happens when they expire.

Knows the claims that came by tokens or a key, how many a connection may have, and which expires next [wire 1.7, 2].
Refuses to know what a token is (`broker.access` does) and how a link ends: it tells its owner to look. Owned by its
connection, which calls `close`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..broker.access import Access, Claim, Right
from ..broker.clock import Clock, Timer
from ..broker.errors import BrokerError, Condition


@dataclass(frozen=True, slots=True)
class Need:
    """What a link needs: one of several `rights` on an address."""

    address: str
    rights: tuple[Right, ...]


class Claims:
    """`expired()` is called when a claim has expired, by the broker's clock. Without verification all is allowed."""

    def __init__(self, access: Access, clock: Clock, claims_max: int, expired: Callable[[], None]) -> None:
        self._access = access
        self._clock = clock
        self._claims_max = claims_max
        self._expired = expired
        self._by_path: dict[str, Claim] = {}
        self._timer: Timer | None = None
        self._timer_at = 0

    def put_token(self, token: str, audience: str) -> None:
        """Keep what a token opens, in the place of an older one's; BrokerError if that is nothing."""
        self._keep(self._access.put_token(token, audience, self._clock.now_ms()))

    def show_key(self, name: str, key: str) -> None:
        """Keep what a key opens; BrokerError if it is none of ours."""
        self._keep(self._access.claim_of_key(name, key))

    def require(self, need: Need) -> None:
        """BrokerError with the service's sentence unless one of the rights is there."""
        now, claims = self._clock.now_ms(), self._by_path.values()
        *others, last = need.rights
        if not any(self._access.claims_allow(claims, need.address, right, now) for right in others):
            self._access.require(claims, need.address, last, now)

    def close(self) -> None:
        """The connection is over; nothing here holds it any longer."""
        self._by_path.clear()
        self._expired = _nothing
        if self._timer is not None:
            self._timer.cancel()

    def _keep(self, claim: Claim) -> None:
        if not self._access.verify:
            return  # all is allowed without it
        if claim.path not in self._by_path and len(self._by_path) >= self._claims_max:
            raise BrokerError(
                Condition.RESOURCE_LIMIT_EXCEEDED,
                f"The maximum number of '{self._claims_max}' tokens per connection has been reached.",
            )
        self._by_path[claim.path] = claim
        self._arm()

    def _arm(self) -> None:
        """Have a timer for the claim that expires next; one that comes too early is no harm."""
        ends = [claim.expires_at for claim in self._by_path.values() if claim.expires_at is not None]
        if not ends or (self._timer is not None and self._timer_at <= min(ends)):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = min(ends)
        self._timer = self._clock.call_at(self._timer_at, self._look)

    def _look(self) -> None:
        self._timer = None
        now = self._clock.now_ms()
        left = {
            path: claim for path, claim in self._by_path.items() if claim.expires_at is None or now < claim.expires_at
        }
        gone = len(left) < len(self._by_path)
        self._by_path = left
        self._arm()
        if gone:
            self._expired()


def _nothing() -> None:
    """Nobody is left to look."""
