"""What one connection may do: the claims that it has, and what happens when they expire.

Knows the claims that came by tokens or a key, how many a connection may have, and which expires next [wire 1.7, 2].
Does not know what a token is (`access` does) and how a link ends: it calls its owner. Owned by its
connection, which calls `close`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from . import service_errors
from .access import Access, Claim, Need
from .clock import Clock, Timer

PATH_LENGTH_MAX: Final = 1_024
"""Characters of the longest path on which anything but a claim on the namespace can hold."""


class Claims:
    """What a client may do. Without verification all is allowed.

    `shown(key)` is called with the name of the key that gives a claim, `expired()` when a claim has expired, by the
    broker's clock, or its key was changed.
    """

    def __init__(
        self,
        access: Access,
        clock: Clock,
        claims_max: int,
        expired: Callable[[], None],
        shown: Callable[[str], None],
    ) -> None:
        self._access = access
        self._clock = clock
        self._claims_max = claims_max
        self._expired = expired
        self._shown = shown
        self._by_path: dict[str, Claim] = {}
        self.were_shown = not access.verify
        """Whether the client has ever shown a valid token or key; always without verification."""
        self._timer: Timer | None = None
        self._timer_at = 0

    def claim_of(self, token: str, audience: str) -> Claim:
        """What a token opens; BrokerError if that is nothing."""
        return self._access.put_token(token, audience, self._clock.now_ms())

    def show_key(self, name: str, key: str) -> None:
        """Keep what a key opens; BrokerError if it is none of ours."""
        self.keep(self._access.claim_of_key(name, key, self._clock.now_ms()))

    def require(self, need: Need) -> None:
        """BrokerError with the service's sentence unless one of the rights is there.

        Costs as much as the path of the address is deep, however many claims there are.
        """
        if not self._access.verify:
            return
        now = self._clock.now_ms()
        claim = self._longest(need.path, now)
        claims = () if claim is None else (claim,)
        *others, last = need.rights
        if not any(self._access.claims_allow(claims, need.address, right, now) for right in others):
            self._access.require(claims, need.address, last, now)

    def allows(self, need: Need) -> bool:
        """Whether one of the rights is there."""
        now = self._clock.now_ms()
        claim = self._longest(need.path, now) if self._access.verify else None
        claims = () if claim is None else (claim,)
        return any(self._access.claims_allow(claims, need.address, right, now) for right in need.rights)

    def _longest(self, path: str, now: int) -> Claim | None:
        """The claim on the longest path at or above a compared path; those that no longer hold do not count."""
        claims, above = self._by_path, path if len(path) <= PATH_LENGTH_MAX else ""
        while True:
            claim = claims.get(above)
            if claim is not None and claim.covers(path) and (claim.expires_at is None or now < claim.expires_at):
                claim = self._access.current(claim)
                if claim is not None:
                    return claim
            if not above:
                return None
            above = above.rpartition("/")[0]

    def any_valid(self) -> bool:
        """Whether the client has shown any valid claim; without verification every client counts as if it had."""
        now = self._clock.now_ms()
        return not self._access.verify or any(
            (claim.expires_at is None or now < claim.expires_at)
            and self._access.current(claim) is not None
            and self._access.opens_anything(claim)
            for claim in self._by_path.values()
        )

    def keys_changed(self) -> None:
        """An entity or the namespace has other keys than before, or an identity other roles."""
        if any(claim.key_name or claim.principals for claim in self._by_path.values()):
            self._expired()

    def close(self) -> None:
        """The connection is over; nothing here holds it any longer."""
        self._by_path.clear()
        self._expired, self._shown = _nothing, _no_key
        if self._timer is not None:
            self._timer.cancel()

    def keep(self, claim: Claim) -> None:
        """Keep a claim in the place of an older one on the same path; BrokerError if there are too many."""
        if not self._access.verify:
            return  # all is allowed without it
        if claim.path not in self._by_path and len(self._by_path) >= self._claims_max:
            raise service_errors.tokens_exceeded(self._claims_max)
        self._by_path[claim.path] = claim
        if self._access.opens_anything(claim):
            self.were_shown = True
            self._shown(claim.identity)
        if claim.expires_at is not None:
            self._arm(claim.expires_at)

    def _arm(self, ends_at: int) -> None:
        """Have a timer for the claim that expires next; one that comes too early is no harm."""
        if self._timer is not None and self._timer_at <= ends_at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = ends_at
        self._timer = self._clock.call_at(self._timer_at, self._end_expired)

    def _end_expired(self) -> None:
        self._timer = None
        now = self._clock.now_ms()
        left = {
            path: claim for path, claim in self._by_path.items() if claim.expires_at is None or now < claim.expires_at
        }
        gone = len(left) < len(self._by_path)
        self._by_path = left
        ends = [claim.expires_at for claim in left.values() if claim.expires_at is not None]
        if ends:
            self._arm(min(ends))
        if gone:
            self._expired()


def _nothing() -> None:
    """Nobody is left to look."""


def _no_key(key: str) -> None:
    """Nobody wants to know the key."""
    del key
