"""What a simulation does, as plain values: a run is a namespace and a list of these, and prints as Python.

Messages go by their labels (numbers that the generator gives), entities by their paths: a command means the same when
others before it are left out, and does nothing when what it names is not there. That is what shrinking needs.
"""

from __future__ import annotations

from dataclasses import dataclass

from .shapes import Shape

ACTIVE, DEAD_LETTERS, TRANSFER_DEAD_LETTERS = "active", "dead letters", "transfer dead letters"


@dataclass(frozen=True)
class Spec:
    """A message that a client sends; `after_ms` is how long from now it is scheduled for."""

    label: int
    session: str | None = None
    key: str | None = None
    id: str | None = None
    colour: str = "red"
    ttl_ms: int | None = None
    after_ms: int | None = None
    size: int = 0


@dataclass(frozen=True)
class Send:
    to: str
    specs: tuple[Spec, ...]
    batch: bool = False


@dataclass(frozen=True)
class Together:
    """Deliveries that are under way at the same time."""

    sends: tuple[Send, ...]


@dataclass(frozen=True)
class Schedule:
    to: str
    specs: tuple[Spec, ...]


@dataclass(frozen=True)
class Cancel:
    """Cancel scheduled messages; `stranger` is a partition for whose number there is no message."""

    of: str
    labels: tuple[int, ...]
    stranger: int | None = None


@dataclass(frozen=True)
class Receive:
    of: str
    count: int
    home: str = ACTIVE
    delete: bool = False


@dataclass(frozen=True)
class Settle:
    """Settle a message that was received: complete, abandon, release, defer or dead-letter."""

    label: int
    of: str
    outcome: str


@dataclass(frozen=True)
class ReceiveDeferred:
    """Receive deferred messages by their numbers."""

    of: str
    labels: tuple[int, ...]
    delete: bool = False


@dataclass(frozen=True)
class LockByNumber:
    """Lock messages by their numbers, active or deferred."""

    of: str
    labels: tuple[int, ...]
    home: str = ACTIVE


@dataclass(frozen=True)
class DeliverNow:
    """Make a scheduled message active before its time."""

    of: str
    label: int


@dataclass(frozen=True)
class Claim:
    """Defer available messages of a partition, the oldest first, those below a number if `below` of them are."""

    of: str
    count: int
    partition: int = 0
    below: int | None = None


@dataclass(frozen=True)
class SettleTogether:
    """Settle messages that were received, all or none."""

    of: str
    labels: tuple[int, ...]
    outcome: str
    home: str = ACTIVE


@dataclass(frozen=True)
class Renew:
    """Renew the lock of a message that was received."""

    label: int
    of: str


@dataclass(frozen=True)
class Peek:
    """Look at everything, page after page; a store that is out is mended when the pages come to it."""

    of: str
    page: int
    home: str = ACTIVE


@dataclass(frozen=True)
class Purge:
    """Delete available messages, the oldest first, of the partition `partition` if there are several."""

    of: str
    count: int
    partition: int = 0
    home: str = ACTIVE


@dataclass(frozen=True)
class AcceptSession:
    """Become the holder of a message session, with None of the next one."""

    of: str
    name: str | None = None


@dataclass(frozen=True)
class ReceiveInSession:
    of: str
    name: str
    count: int


@dataclass(frozen=True)
class SetState:
    """Set the state of a message session, with None clear it."""

    of: str
    name: str
    value: str | None = None


@dataclass(frozen=True)
class GetState:
    of: str
    name: str


@dataclass(frozen=True)
class RenewSession:
    of: str
    name: str


@dataclass(frozen=True)
class CloseSession:
    of: str
    name: str


@dataclass(frozen=True)
class Transact:
    """Sends and settlements in one transaction over `via`; `end` is commit, rollback or timeout."""

    via: str
    parts: tuple[Send | Settle, ...]
    end: str = "commit"


@dataclass(frozen=True)
class Delete:
    of: str


@dataclass(frozen=True)
class Create:
    shape: Shape


@dataclass(frozen=True)
class SetStatus:
    of: str
    status: str = "Active"


@dataclass(frozen=True)
class Outage:
    store: int
    kind: str


@dataclass(frozen=True)
class Tear:
    """From now on the commits of a store are refused, or stored and not confirmed."""

    store: int
    fate: str


@dataclass(frozen=True)
class Mend:
    """A store works again, after an outage or with a disk that failed."""

    store: int


@dataclass(frozen=True)
class Restart:
    """Stop, or die, and start again."""

    crash: bool = False


@dataclass(frozen=True)
class Kill:
    """The process dies in the middle of commands that are under way at once, after so many callbacks of its loop."""

    commands: tuple[Send | Schedule | Settle, ...]
    after: int


@dataclass(frozen=True)
class Advance:
    ms: int


@dataclass(frozen=True)
class Rest:
    """All stores work, and everything that is under way arrives: a quiet point, where everything is compared."""


Command = (
    Send
    | Together
    | Schedule
    | Cancel
    | Receive
    | ReceiveDeferred
    | LockByNumber
    | DeliverNow
    | Claim
    | SettleTogether
    | Settle
    | Renew
    | Peek
    | Purge
    | AcceptSession
    | ReceiveInSession
    | SetState
    | GetState
    | RenewSession
    | CloseSession
    | Transact
    | Delete
    | Create
    | SetStatus
    | Outage
    | Tear
    | Mend
    | Restart
    | Kill
    | Advance
    | Rest
)
