"""What Microsoft.Azure.Amqp, and the .NET SDKs on it, need of a server: checked frame by frame.

Each check is a thing that the library or an SDK reads without looking whether it is there, casts to one type, or takes
for a reason to end the session or the connection [wire 1, 3 to 9, 11]. The checks do not compare with any server.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from emubus.codec.types import Array, Described, Int, Long, Short, Symbol, Timestamp, Uint, Ulong

from .asking import sections
from .wire import (
    ATTACH,
    BEGIN,
    CLOSE,
    COORDINATOR,
    DETACH,
    DISPOSITION,
    END,
    ERROR,
    FLOW,
    OPEN,
    TRANSFER,
    Frame,
)

MECHANISMS, OUTCOME = 0x40, 0x44
ACCEPTED, REJECTED, RELEASED, MODIFIED, DECLARED, TRANSACTIONAL = 0x24, 0x25, 0x26, 0x27, 0x33, 0x34
IDLE_TIMEOUT_MS_MIN: Final = 5_000
FRAME_BYTES_MIN: Final = 512
HANDLE_MIN: Final = 255
DECLARE, DISCHARGE = 0x31, 0x32
CONDITIONS_OF_STATUS: Final[Mapping[int, tuple[str, ...]]] = {
    400: ("com.microsoft:argument-error", "com.microsoft:argument-out-of-range", "amqp:not-allowed"),
    404: ("com.microsoft:message-not-found", "amqp:not-found", "com.microsoft:session-not-found"),
    409: ("com.microsoft:entity-already-exists",),
    410: ("com.microsoft:message-lock-lost", "com.microsoft:session-lock-lost"),
    501: ("amqp:not-implemented",),
}
"""What the SDKs make of a status and its condition, for the refusals that a conversation may have."""

REFUSED_TOKENS: Final[Mapping[int, str]] = {401: "amqp:unauthorized-access", 404: "amqp:not-found"}
"""The condition that the library makes of the status of a refused token; one that the reply names is not read."""

RULE, EMPTY_ACTION, SQL_ACTION = 0x13700000004, 0x13700000005, 0x13700000006
FILTERS: Final = {0x1370000006: 1, 0x1370000007: 0, 0x1370000008: 0, 0x1370000009: 9}
"""Descriptors of filters, and how many fields each has at least."""


def is_long(value: object) -> bool:
    """Whether the AMQP type is long: a plain int stands for one, too."""
    return type(value) in (int, Long)


def check_error(error: object) -> None:
    """An error has a condition that is a symbol, a text, and a map."""
    assert isinstance(error, Described)
    assert error.descriptor == ERROR
    assert isinstance(error.value, list)
    condition, text, info = error.value
    assert type(condition) is Symbol
    assert isinstance(text, str)
    assert text
    assert isinstance(info, dict)


def check_message(payload: bytes, *, locked: bool, peeked: bool = False) -> None:
    """A delivered or peeked message: the header's delivery-count is dereferenced, annotations are cast."""
    found = sections(payload)
    assert type(found[0x70][4]) is Uint
    annotations = found[0x72]
    assert all(type(key) is Symbol for key in annotations)
    assert is_long(annotations["x-opt-sequence-number"])
    assert type(annotations["x-opt-enqueued-time"]) is Timestamp
    kinds: dict[str, Callable[[object], bool]] = {
        "x-opt-locked-until": lambda value: type(value) is Timestamp,
        "x-opt-scheduled-enqueue-time": lambda value: type(value) is Timestamp,
        "x-opt-enqueue-sequence-number": is_long,
        "x-opt-message-state": lambda value: type(value) is Int,
        "x-opt-partition-id": lambda value: type(value) is Short,
        "x-opt-partition-key": lambda value: type(value) is str,
        "x-opt-via-partition-key": lambda value: type(value) is str,
        "x-opt-deadletter-source": lambda value: type(value) is str,
    }
    assert [key for key, value in annotations.items() if key in kinds and not kinds[key](value)] == []
    assert ("x-opt-locked-until" in annotations) is locked
    assert not peeked or "x-opt-message-state" in annotations
    assert all(type(key) is str for key in found.get(0x74, {}))
    token = found.get(0x71, {}).get("x-opt-lock-token")
    assert token is None or type(token) is uuid.UUID


# ---- replies of management


def _array(name: str, *codes: int) -> Callable[[Any], None]:
    def check(body: Any) -> None:
        assert type(body[name]) is Array
        assert body[name].type_code in codes

    return check


def _typed(name: str, *kinds: type) -> Callable[[Any], None]:
    def check(body: Any) -> None:
        assert type(body[name]) in kinds  # the key must be there, whatever its value

    return check


def _peeked(body: Any) -> None:
    assert type(body["messages"]) is list
    for each in body["messages"]:
        check_message(each["message"], locked=False, peeked=True)


def _deferred(body: Any) -> None:
    assert type(body["messages"]) is list
    for each in body["messages"]:
        assert type(each["lock-token"]) is uuid.UUID
        check_message(each["message"], locked=True)


def _rules(body: Any) -> None:
    assert type(body["rules"]) is list
    for each in body["rules"]:
        description = each["rule-description"]
        assert (type(description.descriptor), description.descriptor) == (Ulong, RULE)
        chosen, action, name, created_at = description.value
        assert type(chosen.descriptor) is Ulong
        assert len(chosen.value) >= FILTERS[chosen.descriptor]
        assert action.descriptor in (EMPTY_ACTION, SQL_ACTION)
        assert (type(name), type(created_at)) == (str, Timestamp)


def _sessions(body: Any) -> None:
    _typed("skip", Int)(body)
    _array("sessions-ids", 0xA1, 0xB1)(body)


def _nothing(body: Any) -> None:
    assert body in ({}, None)


RESULTS: Final[Mapping[str, Callable[[Any], None]]] = {
    "com.microsoft:renew-lock": _array("expirations", 0x83),
    "com.microsoft:peek-message": _peeked,
    "com.microsoft:schedule-message": _array("sequence-numbers", 0x81),
    "com.microsoft:cancel-scheduled-message": _nothing,
    "com.microsoft:receive-by-sequence-number": _deferred,
    "com.microsoft:update-disposition": _nothing,
    "com.microsoft:batch-delete-messages": _typed("message-count", Int),
    "com.microsoft:renew-session-lock": _typed("expiration", Timestamp),
    "com.microsoft:set-session-state": _nothing,
    "com.microsoft:get-session-state": _typed("session-state", bytes, type(None)),
    "com.microsoft:get-message-sessions": _sessions,
    "com.microsoft:add-rule": _nothing,
    "com.microsoft:remove-rule": _nothing,
    "com.microsoft:enumerate-rules": _rules,
}
"""What is read in the body of a reply with status 200."""


class Channels:
    """Which AMQP session of the client a channel of the server's stands for: an ended one's number is used again."""

    def __init__(self) -> None:
        self._client: dict[int, int] = {}

    def of_client(self, frame: Frame) -> Frame:
        """A frame of the server with the client's channel."""
        if frame.code == BEGIN:
            self._client[frame.channel] = frame.get(0)
        channel = self._client.get(frame.channel, frame.channel)
        if frame.code == END:
            del self._client[frame.channel]
        return replace(frame, channel=channel)


@dataclass
class Ended:
    """A settlement or a send that waits for its answer: the outcome's code, and the transaction that it is part of."""

    code: int
    transaction: bytes | None = None


@dataclass
class DotnetPeer:
    """The client's view of one connection. `said` takes the client's frames, `heard` the server's; both check."""

    statuses: list[tuple[str, int, str | None]] = field(default_factory=list)
    """Operation, status and condition of every reply of management."""
    settled: list[tuple[int, int, int]] = field(default_factory=list)
    """Channel, delivery-id and outcome of every delivery that the server has settled."""
    refusals: list[str] = field(default_factory=list)
    """Conditions of refused links, of rejected sends and settlements."""
    _attaches: dict[tuple[int, int], Frame] = field(default_factory=dict)
    _links: dict[tuple[int, int], Frame] = field(default_factory=dict)
    _refused: tuple[int, int] | None = None
    _ended: set[int] = field(default_factory=set)
    _closed: bool = False
    _next_ids: dict[int, int] = field(default_factory=dict)
    _sends: dict[tuple[int, int], Ended] = field(default_factory=dict)
    _settlements: dict[tuple[int, int], Ended] = field(default_factory=dict)
    _enrolled: dict[tuple[int, int], Ended] = field(default_factory=dict)
    _requests: dict[object, str] = field(default_factory=dict)
    _channels: Channels = field(default_factory=Channels)

    # ---- the client's half

    def said(self, frame: Frame) -> None:
        """The client writes a frame."""
        if frame.code == ATTACH:
            self._attaches[frame.channel, frame.get(1)] = frame
        elif frame.code == END:
            self._ended.add(frame.channel)
            self._forget(frame.channel)
        elif frame.code == DETACH:
            attach = self._attaches.pop((frame.channel, frame.get(0)))
            if attach.get(2):
                self._forget(frame.channel)
        elif frame.code == BEGIN:
            self._ended.discard(frame.channel)
        elif frame.code == TRANSFER:
            self._sent(frame)
        elif frame.code == DISPOSITION and frame.get(0) is True:
            last = frame.get(1) if frame.get(2) is None else frame.get(2)
            for number in range(frame.get(1), last + 1):
                self._enrolled.pop((frame.channel, number), None)
                if frame.get(3) is not True:
                    self._settlements[frame.channel, number] = _ended(frame.get(4))

    def _sent(self, frame: Frame) -> None:
        address = target_of(self._attaches[frame.channel, frame.get(0)])
        if address is not None and address.endswith(("$management", "$cbs")):
            request = sections(frame.payload)
            self._requests[request[0x73][0]] = request[0x74]["operation"]
        if frame.get(4) is True:
            return
        command = sections(frame.payload)[0x77].descriptor if address is None else None
        ended = _ended(frame.get(7)) if frame.get(7) is not None else Ended(ACCEPTED)
        self._sends[frame.channel, frame.get(1)] = Ended(DECLARED) if command == DECLARE else ended

    def _forget(self, channel: int) -> None:
        """A receiver has gone: what it waits for is not answered."""
        self._settlements = {key: each for key, each in self._settlements.items() if key[0] != channel}
        self._enrolled = {key: each for key, each in self._enrolled.items() if key[0] != channel}

    # ---- the server's half

    def heard(self, frame: Frame) -> None:
        """The server writes a frame."""
        assert not self._closed
        frame = self._channels.of_client(frame)
        # The library closes the connection on any other frame of an AMQP session that it has ended.
        assert frame.channel not in self._ended or frame.code in (0, OPEN, CLOSE, DETACH, END)
        if self._refused is not None:
            assert frame.code == DETACH  # right behind the attach that refuses
        _CHECKS[frame.code](self, frame)

    def check_answered(self) -> None:
        """Nothing waits for an answer: the client would until its operation times out."""
        assert (self._sends, self._settlements, self._requests) == ({}, {}, {})

    def _empty(self, frame: Frame) -> None:
        """A heartbeat."""

    def _mechanisms(self, frame: Frame) -> None:
        (offered,) = frame.fields
        assert offered == Array(0xA3, (Symbol("MSSBCBS"), Symbol("ANONYMOUS"), Symbol("PLAIN"), Symbol("EXTERNAL")))

    def _outcome(self, frame: Frame) -> None:
        assert frame.get(0) == 0

    def _open(self, frame: Frame) -> None:
        assert frame.get(0)
        assert frame.get(2) >= FRAME_BYTES_MIN
        assert frame.get(4) is None or frame.get(4) >= IDLE_TIMEOUT_MS_MIN
        assert isinstance(frame.get(9), dict)

    def _begin(self, frame: Frame) -> None:
        assert frame.get(0) == frame.channel
        assert all(frame.get(index) is not None for index in (1, 2, 3))
        assert frame.get(4) is None or frame.get(4) >= HANDLE_MIN

    def _attach(self, frame: Frame) -> None:
        name, handle, receives = frame.fields[:3]
        asked = next(
            each
            for (channel, _), each in self._attaches.items()
            if (channel, each.get(0), each.get(2)) == (frame.channel, name, not receives)
        )
        self._links[frame.channel, handle] = asked
        for index in (3, 4):  # the SDKs take the settle modes from the answer
            assert asked.get(index) is None or frame.get(index) == asked.get(index)
        assert receives or frame.get(9) == 0  # initial-delivery-count, dereferenced
        source, target = frame.get(5), frame.get(6)
        if source is None and target is None:
            self._refused = (frame.channel, handle)
            return
        if isinstance(target, Described) and target.descriptor == COORDINATOR:
            assert asked.get(6).descriptor == COORDINATOR
            return
        assert isinstance(frame.get(13), dict)  # read without a look
        assert _address(asked.get(5)) == _address(source)
        assert _address(asked.get(6)) == _address(target)
        if receives:
            assert type(frame.get(10)) is Ulong
            assert frame.get(10) > 0
        self._check_filter(asked, frame)

    def _check_filter(self, asked: Frame, frame: Frame) -> None:
        wanted, given = _filter(asked), _filter(frame)
        key = "com.microsoft:session-filter"
        if key not in wanted:
            assert given == {}
            return
        assert set(given) == {key}
        assert type(given[key]) is str
        assert wanted[key] in (None, given[key])
        assert is_long(frame.get(13)["com.microsoft:locked-until-utc"])

    def _detach(self, frame: Frame) -> None:
        key = (frame.channel, frame.get(0))
        assert frame.get(1) is True
        if self._refused is not None:
            assert self._refused == key
            self._refused = None
        if frame.get(2) is not None:
            check_error(frame.get(2))
            self.refusals.append(str(frame.get(2).value[0]))
        del self._links[key]  # a second detach would end the session

    def _flow(self, frame: Frame) -> None:
        assert all(frame.get(index) is not None for index in (0, 1, 2, 3))
        assert frame.get(9) is not True
        if frame.get(4) is not None:
            assert (frame.channel, frame.get(4)) in self._links  # else the library ends the session
            assert None not in (frame.get(5), frame.get(6))
            if frame.get(8):
                assert frame.get(6) == 0

    def _transfer(self, frame: Frame) -> None:
        asked = self._links[frame.channel, frame.get(0)]
        number = self._next_ids.setdefault(frame.channel, frame.get(1))
        assert frame.get(1) == number
        self._next_ids[frame.channel] = number + 1
        assert frame.get(3) == 0
        settled = frame.get(4) is True
        assert settled is (asked.get(3) == 1)
        address = source_of(asked) or ""
        if address.endswith("$cbs"):
            self._token_reply(sections(frame.payload))
        elif address.endswith("$management"):
            self._reply(sections(frame.payload))
        else:
            assert len(frame.get(2)) in (
                (0, 16) if settled else (16,)
            )  # recorded servers still wrote one without a lock
            check_message(frame.payload, locked=not settled)

    def _token_reply(self, found: dict[int, Any]) -> None:
        assert type(found[0x70][4]) is Uint
        assert self._requests.pop(found[0x73][5]) == "put-token"
        properties = found[0x74]
        status = properties["status-code"]
        assert type(status) is Int
        assert isinstance(properties["status-description"], str)
        if status not in (200, 202):
            self.refusals.append(REFUSED_TOKENS[status])

    def _reply(self, found: dict[int, Any]) -> None:
        assert type(found[0x70][4]) is Uint
        operation = self._requests.pop(found[0x73][5])
        properties = found[0x74]
        status = properties["statusCode"]
        assert type(status) is Int
        assert isinstance(properties["statusDescription"], str)
        condition = properties.get("errorCondition")
        assert condition is None or type(condition) is Symbol
        assert 0x77 in found
        if status == 200:
            assert condition is None
            RESULTS[operation](found[0x77])
        elif status != 204:
            assert condition in CONDITIONS_OF_STATUS[status]
        self.statuses.append((operation, int(status), condition))

    def _disposition(self, frame: Frame) -> None:
        last = frame.get(1) if frame.get(2) is None else frame.get(2)
        for number in range(frame.get(1), last + 1):
            key = (frame.channel, number)
            if frame.get(0):
                self._answer(self._sends.pop(key), frame, must_settle=True)
            elif key in self._enrolled and frame.get(3) is True and key not in self._settlements:
                self._answer(self._enrolled.pop(key), frame, must_settle=True)
                self.settled.append((*key, int(frame.get(4).descriptor)))
            else:
                ended = self._settlements.pop(key)
                self._answer(ended, frame, must_settle=ended.transaction is None)
                if frame.get(3) is True:
                    self.settled.append((*key, int(frame.get(4).descriptor)))
                else:
                    self._enrolled[key] = ended

    def _answer(self, ended: Ended, frame: Frame, *, must_settle: bool) -> None:
        """Settled, with the outcome that was asked for; a refusal is rejected with an error, also in a transaction."""
        state, settled = frame.get(4), frame.get(3) is True
        assert isinstance(state, Described)
        assert isinstance(state.value, list)
        if state.descriptor == REJECTED and state.value and state.value[0] is not None:
            check_error(state.value[0])
            assert settled
            self.refusals.append(str(state.value[0].value[0]))
            return
        assert settled is must_settle  # the library forgets a delivery that is settled, and its lock with it
        if ended.code == DECLARED:
            assert state.descriptor == DECLARED  # the SDK casts to it
            assert type(state.value[0]) is bytes
        elif ended.transaction is None:
            assert state.descriptor == ended.code
        else:
            assert state.descriptor == TRANSACTIONAL
            assert state.value[0] == ended.transaction
            assert state.value[1].descriptor == ended.code

    def _end(self, frame: Frame) -> None:
        assert frame.get(0) is None
        self._links = {key: each for key, each in self._links.items() if key[0] != frame.channel}
        self._next_ids.pop(frame.channel, None)

    def _close(self, frame: Frame) -> None:
        assert frame.get(0) is None
        self._closed = True


def _ended(state: Any) -> Ended:
    if state.descriptor == TRANSACTIONAL:
        transaction, outcome = [*state.value, None][:2]
        return Ended(ACCEPTED if outcome is None else outcome.descriptor, transaction)
    return Ended(state.descriptor)


def _address(terminus: Any) -> object:
    fields = terminus.value if isinstance(terminus, Described) else None
    return fields[0] if isinstance(fields, list) and fields else None


def _filter(attach: Frame) -> dict[str, Any]:
    fields = attach.get(5).value
    return (fields[7] or {}) if len(fields) > 7 else {}


def source_of(attach: Frame) -> str | None:
    """The address of an attach's source."""
    found = _address(attach.get(5))
    return found if isinstance(found, str) else None


def target_of(attach: Frame) -> str | None:
    """The address of an attach's target; None for a coordinator."""
    target = attach.get(6)
    if isinstance(target, Described) and target.descriptor == COORDINATOR:
        return None
    found = _address(target)
    return found if isinstance(found, str) else ""


_CHECKS: Final[Mapping[int, Callable[[DotnetPeer, Frame], None]]] = {
    0: DotnetPeer._empty,
    MECHANISMS: DotnetPeer._mechanisms,
    OUTCOME: DotnetPeer._outcome,
    OPEN: DotnetPeer._open,
    BEGIN: DotnetPeer._begin,
    ATTACH: DotnetPeer._attach,
    FLOW: DotnetPeer._flow,
    TRANSFER: DotnetPeer._transfer,
    DISPOSITION: DotnetPeer._disposition,
    DETACH: DotnetPeer._detach,
    END: DotnetPeer._end,
    CLOSE: DotnetPeer._close,
}
