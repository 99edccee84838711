"""Links on which clients receive the messages of one message session [wire 6].

Knows the session filter in both of its encodings and the one for locks that others may take over, that the answer to
the attach waits until the broker has a session to give (before that there is no frame at all), and what becomes of the
link when the session is lost. From the grant on it is an outgoing link like others. A link owns its wait, then its
handle, and ends them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final
from uuid import UUID

from ...broker.api import ReceiveMode, SessionAccept, SessionReceiver, SharedLock
from ...broker.errors import BrokerError, Condition
from ...broker.ids import token_from_uuid, token_to_uuid
from ...broker.service_errors import lock_lost
from ...codec.encode import encode_map
from ...codec.types import Described, Long, Symbol
from ..link_context import LinkContext
from ..wire.engine import AttachRequest, Pointer, accept_link, close_link
from ..wire.run import Run
from .outgoing import OutgoingLink

SESSION_FILTER: Final = "com.microsoft:session-filter"
SHARED_FILTER: Final = "com.microsoft:non-exclusive-session-filter"
_SHARED_DESCRIPTORS: Final = (0x137000000E, "com.microsoft:non-exclusive-session-filter:list")
TIMEOUT_PROPERTY: Final = "com.microsoft:timeout"
LOCKED_UNTIL_PROPERTY: Final = "com.microsoft:locked-until-utc"
_TICKS_AT_UNIX_EPOCH: Final = 621_355_968_000_000_000
_TICKS_PER_MS: Final = 10_000


def dotnet_ticks(at: int) -> int:
    """An instant (Unix ms) as .NET counts: 100 ns since the year 1."""
    return _TICKS_AT_UNIX_EPOCH + at * _TICKS_PER_MS


def wanted_session(request: AttachRequest) -> tuple[str | None, SharedLock | None]:
    """The name in the filter, None for the next session that is available, and whether the lock is to be shared.

    Raises BrokerError for anything else.
    """
    if SHARED_FILTER in request.filter:
        return _shared_session(request.filter)
    value = request.filter.get(SESSION_FILTER)
    if isinstance(value, Described):  # Go
        value = value.value
    if value is not None and not isinstance(value, str):
        raise BrokerError(Condition.INVALID_FIELD, f"The filter '{SESSION_FILTER}' must be a string or null.")
    return value if value is None else str.__str__(value), None


def _shared_session(asked: Mapping[str, object]) -> tuple[str | None, SharedLock]:
    """The fields of the filter for a non-exclusive lock [wire 6.5]: session and token, each of which may be null."""
    value = asked[SHARED_FILTER]
    if SESSION_FILTER in asked:
        raise BrokerError(
            Condition.INVALID_FIELD, f"Of the filters '{SESSION_FILTER}' and '{SHARED_FILTER}' a source has one."
        )
    if not isinstance(value, Described) or value.descriptor not in _SHARED_DESCRIPTORS:
        raise BrokerError(Condition.INVALID_FIELD, f"The filter '{SHARED_FILTER}' must be a described list.")
    fields = value.value if isinstance(value.value, list) else []
    name, token = (*fields, None, None)[:2]
    if not isinstance(value.value, list) or not isinstance(name, str | None) or not isinstance(token, UUID | None):
        raise BrokerError(
            Condition.INVALID_FIELD,
            f"The filter '{SHARED_FILTER}' must have the name of a session, or null, and a lock token (uuid), or null.",
        )
    if name is None and token is not None:
        raise BrokerError(Condition.INVALID_FIELD, "A lock token is for one session: name it, or leave the token out.")
    return (
        None if name is None else str.__str__(name),
        SharedLock(None if token is None else token_from_uuid(token)),
    )


def granted_filter(asked: Mapping[str, object], session_id: str, token: bytes | None = None) -> bytes:
    """The filter that is in force: the name of the session that the client got, in the client's own encoding, and the
    token of a lock that is not exclusive."""
    form = asked.get(SHARED_FILTER)
    if isinstance(form, Described) and token is not None:
        return encode_map({Symbol(SHARED_FILTER): Described(form.descriptor, [session_id, token_to_uuid(token)])})
    form = asked.get(SESSION_FILTER)
    value = Described(form.descriptor, session_id) if isinstance(form, Described) else session_id
    return encode_map({Symbol(SESSION_FILTER): value})


class MessageSessionLink(OutgoingLink):
    """A client's receiver link for a message session. `ask` begins the wait, `gone` ends it."""

    __slots__ = ("_ended", "_granted_receiver", "_loss", "_refusal", "_request", "_wait")

    def __init__(self, context: LinkContext, pointer: Pointer, request: AttachRequest) -> None:
        super().__init__(context, pointer, presettled=request.settled_by_sender)
        self._request = request
        self._wait: SessionAccept | None = None
        self._refusal: BrokerError | None = None
        self._loss: BrokerError | None = None
        self._granted_receiver: SessionReceiver | None = None
        self._ended = False

    def ask(self) -> None:
        """Wait for the session; BrokerError if that is refused at once."""
        request, limits = self._request, self._context.limits
        timeout_ms = request.properties.get(TIMEOUT_PROPERTY)
        if not isinstance(timeout_ms, int) or isinstance(timeout_ms, bool):
            timeout_ms = limits.session_wait_ms_max
        session_id, shared = wanted_session(request)
        wait = self._context.broker.accept_session(
            request.address,
            session_id,
            mode=ReceiveMode.RECEIVE_AND_DELETE if self.presettled else ReceiveMode.PEEK_LOCK,
            timeout_ms=max(0, min(timeout_ms, limits.session_wait_ms_max)),
            granted=self._granted_session,
            refused=self._refused,
            detached=self.lose,
            client=self._context.client_name,
            shared=shared,
        )
        if self._refusal is not None:
            raise self._refusal
        if self.receiver is None:
            self._wait = wait

    def _granted_session(self, receiver: SessionReceiver) -> None:
        self._wait = None
        if self._ended:
            receiver.close()
            return
        self._granted_receiver = receiver
        try:
            request = self._request
            receiver.deliver = self.deliver
            accept_link(
                self.pointer,
                request.message_bytes_max,
                encode_map({Symbol(LOCKED_UNTIL_PROPERTY): Long(dotnet_ticks(receiver.locked_until_at))}),
                granted_filter(request.filter, receiver.session_id, receiver.lock_token),
            )
            self._context.past_links.attached(request.name)
            self.start(receiver)
            self._context.requests.accepted_late(self.pointer, request)
        except Exception as error:
            self._context.requests.crash(error)

    def _refused(self, error: BrokerError) -> None:
        self._wait = None
        self._refusal = error
        self._context.requests.detach(self.pointer, error)

    def lose(self, error: BrokerError) -> None:
        """The session lock is lost: close the link; what the client settles until it knows is refused with `error`."""
        if self._ended or self._loss is not None:
            return
        self._loss = error
        self._context.past_links.session_lost(self._request.name)
        self._close_in_time(error, partial(self._close, error))

    def _close(self, error: BrokerError) -> None:
        self._release()
        close_link(self.pointer, error)
        self._context.requests.schedule_flush()

    def disposed(self, run: Run) -> None:
        """As for other links; nothing can be settled once the session is lost."""
        if self._loss is None:
            super().disposed(run)
        elif not run.is_settled:
            run.done_all(self._loss)

    def told(self, error: BrokerError) -> BrokerError:
        """A message's lock that ended while the session is held says nothing about the session.

        The client would give up a session that it has (.NET's live test TransactionalCompleteRollback).
        """
        receiver = self._granted_receiver
        is_held = receiver is not None and receiver.holds_session
        return lock_lost() if is_held and error.condition is Condition.SESSION_LOCK_LOST else error

    def linger(self, when_settled: Callable[[], None]) -> bool:
        """Settle what was delivered, with the answer of a session that is given back."""
        self._ended = True
        return super().linger(when_settled) or self._loss is not None

    def gone(self) -> None:
        """Wait no more, or give the session back."""
        self._ended = True
        wait, self._wait = self._wait, None
        if wait is not None:
            wait.cancel()
        super().gone()
