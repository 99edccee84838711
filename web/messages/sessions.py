"""Message sessions that an operator holds, to act on their messages: one lock for each session, as a receiver has it.

A session is held from the first of its messages that is asked for until it is released, or until its lock ends. A
client that holds a session keeps it: its messages are left out, with a reason that names the client. Does not know what
is done with the messages. A job has its own sessions, and the page has those that its users hold.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from ...broker.admin.overview import Overview
from ...broker.api import Delivery, Entity, ReceiveMode, SessionReceiver
from ...broker.broker import Broker
from ...broker.errors import BrokerError, Condition
from ...broker.identity import folded
from ...broker.message.message import parse_message
from ...broker.model.descriptions import TopicDescription, entity_key

HELD_MAX: Final = 1_000
"""Sessions held at a time; the one that was asked for least recently is released first."""
REFUSED_MAX: Final = 10_000
"""Sessions whose refusals are remembered."""
HELD_BY: Final = "its session '{}' is held by {}"
STATE_HELD_BY: Final = "The state of session '{}' can't be set: the session is held by {}."
A_RECEIVER: Final = "a receiver"


class Locked(NamedTuple):
    """A locked message of a session; `until_at` is the end of the session's lock (Unix ms)."""

    delivery: Delivery
    session_id: str
    until_at: int


@dataclass(slots=True)
class Held:
    """A session that is held; `until_at` is the end of its lock (Unix ms)."""

    receiver: SessionReceiver
    until_at: int


def session_of(encoded: bytes) -> str:
    """The session id of an encoded message, "" if it has none or can't be read."""
    try:
        return parse_message(encoded).session_id or ""
    except BrokerError:
        return ""


async def accepted(
    broker: Broker,
    address: str,
    session_id: str | None,
    *,
    client: str,
    detached: Callable[[BrokerError], None],
    timeout_ms: int = 0,
    is_operator: bool = False,
) -> SessionReceiver:
    """The receiver of the named session, or with None of the next idle one. BrokerError as for `accept_session`."""
    answer: asyncio.Future[SessionReceiver | BrokerError] = asyncio.get_running_loop().create_future()
    accept = broker.accept_session(
        address,
        session_id,
        mode=ReceiveMode.PEEK_LOCK,
        timeout_ms=timeout_ms,
        granted=answer.set_result,
        refused=answer.set_result,
        detached=detached,
        client=client,
        is_operator=is_operator,
    )
    try:
        found = await answer
    except BaseException:
        accept.cancel()
        raise
    if isinstance(found, BrokerError):
        raise found
    return found


class HeldSessions:
    """The sessions that `client` holds, by entity and session id.

    With `skips_refused` a session that was refused once is left out from then on, so that its order is kept.
    """

    def __init__(self, broker: Broker, client: str, *, skips_refused: bool = False) -> None:
        self._broker = broker
        self._client = client
        self._held: OrderedDict[tuple[str, str], Held] = OrderedDict()
        self._skips_refused = skips_refused
        self._refused: dict[tuple[str, str], str] = {}

    async def lock(self, entity: Entity, messages: Mapping[int, str]) -> tuple[list[Locked], dict[int, str]]:
        """Lock messages, given as sequence numbers with their sessions, in the order of each session.

        Returns the locked ones, and by number why others are not; those that are locked or gone are in neither.
        """
        of_session: dict[str, list[int]] = {}
        names: dict[str, str] = {}  # of a session, its first one
        for number, session_id in sorted(messages.items()):
            name = names.setdefault(folded(session_id), session_id)
            of_session.setdefault(name, []).append(number)
        found: list[Locked] = []
        failures: dict[int, str] = {}
        for session_id, numbers in of_session.items():
            try:
                held = await self.hold(entity, session_id)
                deliveries = await held.receiver.lock(numbers)
            except BrokerError as error:
                if error.condition is Condition.SESSION_LOCK_LOST:
                    self.release(entity, session_id)
                failures |= dict.fromkeys(numbers, error.description)
            else:
                found += [Locked(each, session_id, held.until_at) for each in deliveries]
        return found, failures

    async def hold(self, entity: Entity, session_id: str) -> Held:
        """Hold a session from now on. BrokerError (session-cannot-be-locked) with the name of its holder."""
        key = _key(entity, session_id)
        if key in self._refused:
            raise BrokerError(Condition.SESSION_CANNOT_BE_LOCKED, self._refused[key])
        held = self._held.get(key)
        if held is None:
            held = await self._accepted(entity, session_id)
            self._held[key] = held
            if len(self._held) > HELD_MAX:
                self._held.popitem(last=False)[1].receiver.close()
        self._held.move_to_end(key)
        description = entity.description
        assert not isinstance(description, TopicDescription)
        if held.until_at - self._broker.clock.now_ms() < description.lock_duration_ms // 2:
            held.until_at = await self._broker.sessions.renew(entity.path, session_id)
        return held

    async def set_state(self, entity: Entity, session_id: str, state: bytes | None) -> None:
        """Set the state of a session, None clears it; a session that is not held is held only meanwhile.

        BrokerError: session-cannot-be-locked with the name of its holder, message-size-exceeded, not-allowed.
        """
        is_held = _key(entity, session_id) in self._held
        held = self if is_held else HeldSessions(self._broker, self._client)
        try:
            await held.hold(entity, session_id)
            await self._broker.sessions.set_state(entity.path, session_id, state)
        except BrokerError as error:
            if error.condition is not Condition.SESSION_CANNOT_BE_LOCKED:
                raise
            text = STATE_HELD_BY.format(session_id, self._holder(entity, session_id))
            raise BrokerError(error.condition, text) from None
        finally:
            if held is not self:
                held.close()

    async def _accepted(self, entity: Entity, session_id: str) -> Held:
        key = _key(entity, session_id)

        def lost(_: BrokerError) -> None:
            self._held.pop(key, None)

        try:
            receiver = await accepted(
                self._broker, entity.path, session_id, client=self._client, detached=lost, is_operator=True
            )
        except BrokerError as error:
            if error.condition is not Condition.SESSION_CANNOT_BE_LOCKED:
                raise
            text = HELD_BY.format(session_id, self._holder(entity, session_id))
            if self._skips_refused and len(self._refused) < REFUSED_MAX:
                self._refused[key] = text
            raise BrokerError(error.condition, text) from None
        return Held(receiver, receiver.locked_until_at)

    def _holder(self, entity: Entity, session_id: str) -> str:
        return Overview(self._broker.namespace).session_holder(entity, session_id) or A_RECEIVER

    def release(self, entity: Entity, session_id: str) -> None:
        held = self._held.pop(_key(entity, session_id), None)
        if held is not None:
            held.receiver.close()

    def close(self) -> None:
        while self._held:
            self._held.popitem()[1].receiver.close()


def _key(entity: Entity, session_id: str) -> tuple[str, str]:
    return entity_key(entity.path), folded(session_id)
