"""Requests about message sessions by the address of their entity.

Does not accept sessions (`broker.py`). Owned by the `Broker`.
"""

from __future__ import annotations

from functools import partial

from . import service_errors
from .entities.namespace import Namespace
from .model.descriptions import QueueDescription
from .model.profiles import message_bytes_max
from .partition.requests import GetSessionState, ReleaseSession, RenewSession, SetSessionState


class Sessions:
    """The locks and states of message sessions.

    Every verb raises BrokerError for an unknown address (not-found) and for an entity without sessions (not-allowed).
    """

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace

    async def renew(self, address: str, session_id: str) -> int:
        """Renew the lock of a session; return its new end (Unix ms). Raises BrokerError (session-lock-lost)."""
        return int(await self._namespace.find_session(address, session_id).request(partial(RenewSession, session_id)))

    def release(self, address: str, session_id: str) -> None:
        """End the lock of a session, if a receiver holds it; the receiver is detached with session-lock-lost."""
        self._namespace.find_session(address, session_id).submit(ReleaseSession(0, session_id))

    async def set_state(self, address: str, session_id: str, state: bytes | None) -> None:
        """Store the state of a held session, None clears it. BrokerError: session-lock-lost, message-size-exceeded."""
        check_state(self._namespace, address, state)
        await self._namespace.find_session(address, session_id).request(partial(SetSessionState, session_id, state))

    async def state(self, address: str, session_id: str) -> bytes | None:
        """Return the state of a held session. Raises BrokerError (session-lock-lost)."""
        answer = await self._namespace.find_session(address, session_id).request(partial(GetSessionState, session_id))
        return answer if isinstance(answer, bytes) else None

    async def names(self, address: str, updated_after: int | None) -> list[str]:
        """List the sessions with active messages or state, or those whose state changed after an instant (Unix ms)."""
        entity, _ = self._namespace.find(address)
        if not entity.requires_session:
            raise service_errors.session_not_supported()
        return await entity.list_sessions(updated_after)


def check_state(namespace: Namespace, address: str, state: bytes | None) -> None:
    """Raise BrokerError (message-size-exceeded) for a session's state above the limit of a message."""
    description, limits = namespace.find(address)[0].description, namespace.limits
    bytes_max = limits.message_bytes_max
    if isinstance(description, QueueDescription):
        bytes_max = message_bytes_max(description, limits)
    if state is not None and len(state) > bytes_max:
        raise service_errors.too_large(len(state), bytes_max)
