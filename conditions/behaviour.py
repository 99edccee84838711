"""What a behaviour is: a row that describes it, and an object for each condition in which it is on.

Knows parameters and their units, and what behaviours have in common: chance, scope, clock, and the record of what
struck. Does not know any behaviour.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from ..broker.address import SubQueue, parse_address
from ..broker.api import LockCut, Totals
from ..broker.broker import Broker
from ..broker.clock import Clock, Timer
from ..broker.errors import BrokerError, Condition
from .bucket import Bucket
from .chance import Stream
from .network import Network
from .strikes import AdminRefusal, AdminRequest, Attempt, Passing, Strike, TlsFailure

Value = int | float | str


class Way(StrEnum):
    """How a row is made to happen."""

    CONDITION = "condition"  # as a condition, by its name
    FAULT = "fault"  # as a fault, by its kind
    OUTAGE = "outage"  # as an outage of a store, by its kind
    DROP = "drop"  # at once
    ALWAYS = "always"  # without being asked for
    KIT = "kit"  # by the test kit: no server can


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter: its default, its unit, and what it may be: a range of numbers, or one of several words."""

    name: str
    about: str
    default: Value
    unit: str = ""
    least: float = 0
    most: float = 86_400_000
    choices: tuple[str, ...] = ()

    def read(self, value: Value) -> Value:
        """The value in the parameter's type; BrokerError (argument-error) if it is not allowed."""
        if self.choices:
            if value not in self.choices:
                raise self._refused(value, ", ".join(self.choices))
            return value
        if isinstance(value, str | bool) or not self.least <= value <= self.most:
            raise self._refused(value, f"{self.least:g} to {self.most:g}")
        if isinstance(self.default, int):
            if value != int(value):
                raise self._refused(value, f"whole numbers from {self.least:g} to {self.most:g}")
            return int(value)
        return float(value)

    def _refused(self, value: Value, allowed: str) -> BrokerError:
        return BrokerError(Condition.ARGUMENT_ERROR, f"{self.name} is {value!r}; allowed: {allowed}.")


def share(default: float = 1.0) -> Parameter:
    """The parameter of behaviours that strike by chance."""
    return Parameter("share", "Probability, each time.", default, most=1)


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table: what goes wrong, what it strikes, the form on the wire, and who says so.

    `scope` is what its chance and its state are kept for. `make` makes the object of a condition; rows that are not
    conditions have none. `source` has the marks of `docs/CONDITIONS.md`.
    """

    name: str
    topic: str
    about: str
    scope: str
    wire: str
    source: str
    parameters: tuple[Parameter, ...] = ()
    make: Callable[[Circumstances], Behaviour] | None = None
    way: Way = Way.CONDITION


@dataclass(slots=True)
class Shared:
    """What the behaviours of one condition have in common."""

    bucket: Bucket
    away_until: dict[str, int] = field(default_factory=dict[str, int])
    """Until when an entity has no broker (Unix ms), by its key."""


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What a behaviour works with: its condition's name, its values and chance, the clock, the broker, the clients.

    `record(scope, what)` notes that it has struck, and returns False if the condition has struck often enough.
    `plan(at, what)` notes what is known beforehand; `ends_at` is the end of the condition (Unix ms), if it has one.
    """

    row: Row
    condition: str
    values: Mapping[str, Value]
    entity: str | None
    started_at: int
    ends_at: int | None
    seed: int
    chance: Stream
    clock: Clock
    broker: Broker
    network: Network
    shared: Shared
    record: Callable[[str, str], bool]
    plan: Callable[[int, str], None]


class Behaviour:
    """A behaviour that is on in one condition."""

    def __init__(self, on: Circumstances) -> None:
        self.on = on
        self._timers: list[Timer] = []

    def begin(self) -> None: ...

    def end(self) -> None:
        """The condition is over: what was only withheld comes at once."""
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    def changed(self) -> None:
        """A link or connection has come or gone."""

    def opening(self) -> BrokerError | None:
        """A client opens a connection; an error closes it."""
        return None

    # ---- what the broker asks while a behaviour `delays`

    delays = False
    """Whether the broker asks it when messages are late."""

    def due_late_ms(self, path: str, *, is_activation: bool) -> int:
        """How much later a scheduled message becomes active, or a message is removed whose time to live is over."""
        return 0

    def hidden_until(self, path: str, sub_queue: SubQueue, number: int, enqueued_at: int) -> int:
        """Until when receivers do not get a message, nor later ones of its partition (Unix ms); 0: it is there."""
        return 0

    def lock_cut(self, path: str) -> LockCut | None:
        """How much earlier the locks of the next answer to a receiver end."""
        return None

    def holds_rules(self, path: str, use: Callable[[], None]) -> bool:
        """Whether it calls `use()` later, by which the changed rules of a subscription are used."""
        return False

    # ---- what adapters ask

    def handshake(self) -> TlsFailure | None:
        """How the TLS handshake of a new connection fails; None: it does not."""
        return None

    def accepts(self, connection: int) -> bool:
        """Whether a new connection (by number) is accepted; otherwise it is reset."""
        return True

    def delay_ms(self, passing: Passing) -> int:
        """How much later bytes arrive."""
        return 0

    def cut_at(self, passing: Passing) -> int | None:
        """After how many of the bytes the connection is reset; None: it is not."""
        return None

    def putting_token(self, connection: int, audience: str) -> BrokerError | None:
        """The refusal of a token that a client puts on its connection (by number) for an audience."""
        return None

    def links_per_session_max(self) -> int | None:
        """How many links an AMQP session may have, if that is lower than usual."""
        return None

    def strike(self, attempt: Attempt) -> Strike | None:
        """What happens to an operation; None if it is none of this behaviour's business."""
        return None

    def cache_max(self, address: str) -> int:
        """How many messages more than asked for a front end takes, and keeps locked."""
        return 0

    def room(self, address: str, unsettled: Callable[[], int]) -> int | None:
        """How many more messages a client gets while its AMQP session has so many unsettled; None: any number."""
        return None

    def delivered(self, address: str, count: int, link: Callable[[], str]) -> None:
        """A client got messages of an entity over a link."""

    def before_admin(self, request: AdminRequest) -> AdminRefusal | None:
        """The refusal of a request of an administration client."""
        return None

    def after_admin(self, request: AdminRequest) -> None:
        """A request of an administration client was granted."""

    def totals_shown(self, path: str, totals: Totals) -> Totals:
        """The counts of an entity that an administration client sees."""
        return totals

    @property
    def title(self) -> str:
        """What people call it: the condition, and the behaviour if that has another name."""
        condition, behaviour = self.on.condition, self.on.row.name
        return f"the condition '{condition}'" + ("" if behaviour == condition else f" ({behaviour})")

    # ---- what subclasses use

    def number(self, name: str) -> int:
        return int(self.on.values[name])

    def ratio(self, name: str) -> float:
        return float(self.on.values[name])

    def word(self, name: str) -> str:
        return str(self.on.values[name])

    def covers(self, address: str) -> bool:
        """Whether an address is in the scope of the condition: its entity, with sub-queues and node, or any."""
        entity = self.on.entity
        return entity is None or key_of(address) == key_of(entity)

    def chosen(self, scope: str, name: str = "share") -> bool:
        """The next decision for that scope, by the probability that is the parameter `name`."""
        return self.on.chance.draw(scope) < self.ratio(name)

    def at(self, at_ms: int, call: Callable[[], None]) -> None:
        """Call at an instant (Unix ms), unless the condition is over."""
        self._timers.append(self.on.clock.call_at(at_ms, call))


def key_of(address: str) -> str:
    """The entity of an address as scopes compare it."""
    return parse_address(address).key
