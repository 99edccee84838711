"""A link that receives messages with locks, and settles them with the service's confirmation.

Knows credit, drain, message-session filters and outcomes [wire 5, 6]. Does not know the content of a message. A
`Receiver` belongs to its connection; the lock of a message session lasts as long as the receiver is open.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Literal
from uuid import UUID

from ...codec.types import Symbol, Uint
from ..conditions import unavailable, wire_error
from ..errors import ConnectorError
from ..timing import monotonic_s
from .engine import ACCEPTED, MODIFIED, REJECTED, RELEASED, Engine, Pointer, condition_error
from .links import BaseLink, Inbox, make_receiver
from .values import ffi, lib, put_value, value_of

if TYPE_CHECKING:
    from collections.abc import Callable

SESSION_FILTER: Final = "com.microsoft:session-filter"
ANSWER_MARGIN_S: Final = 5.0
"""How much longer than the service we wait for a message session, so that its answer comes first."""


class NoSession(Enum):
    """Means: no message session."""

    NO_SESSION = "no message session"


NO_SESSION: Final = NoSession.NO_SESSION


@dataclass(frozen=True, slots=True)
class Received:
    """A locked message: `token` is the delivery tag, `data` the encoded message."""

    token: bytes
    data: bytes = field(repr=False)

    @property
    def lock_token(self) -> UUID:
        """The token in the form of management operations; ValueError if the tag is none."""
        return UUID(bytes_le=self.token)


@dataclass(frozen=True, slots=True)
class Modified:
    """The outcome that abandons a message, or defers it with `undeliverable_here`.

    `properties` are application properties to add or change.
    """

    undeliverable_here: bool = False
    delivery_failed: bool = True
    properties: Mapping[str, object] = field(default_factory=dict[str, object])


Settlement = Literal["accepted", "released"] | Modified


class Receiver(BaseLink):
    """Made by `Connection.receiver`; attached, without credit. `session_id` is that of the session it holds."""

    def __init__(
        self,
        engine: Engine,
        entity: str,
        *,
        session_id: str | NoSession | None,
        accept_wait_s: float,
        authorize: Callable[[str], None],
    ) -> None:
        super().__init__(engine, entity, make_receiver(engine, entity, "spark", settled=False))
        self._authorize = authorize
        self._timeout_s = engine.endpoint.operation_timeout_s
        self._inbox = Inbox()
        self._received: deque[Received] = deque()
        self._deliveries: dict[bytes, Pointer] = {}
        self._unconfirmed: set[bytes] = set()
        self._refused: list[ConnectorError] = []
        self._credit = 0
        self.session_id: str | None = None
        timeout_s = self._timeout_s
        if session_id is not NO_SESSION:
            put_value(lib.pn_terminus_filter(lib.pn_link_source(self.pointer)), {Symbol(SESSION_FILTER): session_id})
            wait = Uint(int(accept_wait_s * 1000))
            put_value(lib.pn_link_properties(self.pointer), {Symbol("com.microsoft:timeout"): wait})
            timeout_s = max(timeout_s, accept_wait_s + ANSWER_MARGIN_S)
        self.attach(timeout_s)
        if session_id is not NO_SESSION:
            self.session_id = self._accepted_session()

    def _accepted_session(self) -> str:
        answered = value_of(lib.pn_terminus_filter(lib.pn_link_remote_source(self.pointer)))
        value = answered.get(SESSION_FILTER) if isinstance(answered, dict) else None
        value = getattr(value, "value", value)
        if not isinstance(value, str):
            raise unavailable(f"{self.engine.where} has given no message session of {self.entity}", retriable=False)
        return value

    def receive(self, count: int, wait_s: float) -> list[Received]:
        """Up to `count` messages: those that arrive within `wait_s` seconds.

        Unused credit stays with the service, and messages for it come with the next call; use `drain()` to end.
        """
        self.check()
        self._authorize(self.entity)
        self.ask(count)
        until_s = monotonic_s() + wait_s
        while len(self._received) < count and self.lost is None:
            left_s = until_s - monotonic_s()
            self.engine.turn(max(0.0, min(left_s, 1.0)))
            if left_s <= 0:
                break
        if self.lost is not None and not self._received:
            raise copy(self.lost)
        return [self._received.popleft() for _ in range(min(count, len(self._received)))]

    def ask(self, count: int) -> None:
        """Let `count` messages come, which the next `receive` gives; does not wait."""
        missing = count - len(self._received) - self._credit
        if missing > 0:
            self._credit += missing
            lib.pn_link_flow(self.pointer, missing)

    def drain(self) -> list[Received]:
        """Take the credit back; returns the messages that arrived before that."""
        self.check()
        if self._credit > 0:
            lib.pn_link_set_drain(self.pointer, True)
            deadline_s = monotonic_s() + self._timeout_s
            self.engine.run_until(
                lambda: lib.pn_link_credit(self.pointer) <= 0 or self.lost, deadline_s, f"the drain of {self.entity}"
            )
            if self.lost is not None:
                raise copy(self.lost)
            lib.pn_link_drained(self.pointer)
            lib.pn_link_set_drain(self.pointer, False)
            self._credit = 0
        left = list(self._received)
        self._received.clear()
        return left

    def settle(self, received: Received | Sequence[Received], outcome: Settlement) -> None:
        """Settle messages with an outcome and wait until the service has confirmed each.

        Raises the first refusal as ConnectorError once all are answered: a message whose lock was lost is delivered
        again. ValueError for a message of another receiver, or one that was settled before.
        """
        messages = [received] if isinstance(received, Received) else list(received)
        self.check()
        self._authorize(self.entity)
        unknown = [each for each in messages if each.token not in self._deliveries or each.token in self._unconfirmed]
        if unknown:
            raise ValueError(f"{len(unknown)} of {len(messages)} messages aren't held by this receiver")
        self._refused.clear()
        tokens = {each.token for each in messages}
        for token in tokens:
            _update(self._deliveries[token], outcome)
        self._unconfirmed |= tokens
        self.engine.run_until(
            lambda: not self._unconfirmed or self.lost,
            monotonic_s() + self._timeout_s,
            f"the confirmation of {len(tokens)} outcomes on {self.entity}",
        )
        if self._unconfirmed and self.lost is not None:
            raise copy(self.lost)
        if self._refused:
            raise self._refused[0]

    def forget(self, received: Sequence[Received]) -> None:
        """Drop messages that were settled by their lock tokens; does not wait.

        An outcome has to be said. The locks are over, so it does nothing, and many of this one travel in one frame.
        """
        for each in received:
            delivery = self._deliveries.pop(each.token)
            lib.pn_delivery_update(delivery, ACCEPTED)
            lib.pn_delivery_settle(delivery)

    def on_delivery(self, delivery: Pointer) -> None:
        """Handle a message, or the confirmation of an outcome."""
        if lib.pn_delivery_readable(delivery):
            self._message_arrived(delivery)
        elif lib.pn_delivery_settled(delivery):
            self._confirmed(delivery)

    def _message_arrived(self, delivery: Pointer) -> None:
        data = self._inbox.take(self.pointer, delivery)
        if data is None:
            return
        token = _tag(delivery)
        lib.pn_link_advance(self.pointer)
        self._credit -= 1
        self._deliveries[token] = delivery
        self._received.append(Received(token, data))

    def _confirmed(self, delivery: Pointer) -> None:
        token = _tag(delivery)
        if lib.pn_delivery_remote_state(delivery) == REJECTED:
            condition = lib.pn_disposition_condition(lib.pn_delivery_remote(delivery))
            self._refused.append(condition_error(condition, self.entity) or wire_error(None, None, entity=self.entity))
        lib.pn_delivery_settle(delivery)
        self._deliveries.pop(token, None)
        self._unconfirmed.discard(token)


def _tag(delivery: Pointer) -> bytes:
    tag = lib.pn_delivery_tag(delivery)
    data: bytes = ffi.buffer(tag.start, tag.size)[:]
    return data


_STATES: Final[Mapping[Any, int]] = {"accepted": ACCEPTED, "released": RELEASED}


def _update(delivery: Pointer, outcome: Settlement) -> None:
    if not isinstance(outcome, Modified):
        lib.pn_delivery_update(delivery, _STATES[outcome])
        return
    local = lib.pn_delivery_local(delivery)
    lib.pn_disposition_set_failed(local, outcome.delivery_failed)
    lib.pn_disposition_set_undeliverable(local, outcome.undeliverable_here)
    if outcome.properties:
        put_value(lib.pn_disposition_annotations(local), {Symbol(k): v for k, v in outcome.properties.items()})
    lib.pn_delivery_update(delivery, MODIFIED)
