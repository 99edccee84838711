"""One transaction: the work that it has collected, and how a client names it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..clock import Timer
from ..errors import BrokerError
from ..partition.requests import (
    Operation,
)
from .entity import Entity
from .entity_base import PartitionHandle

FindVia = Callable[[], Entity | None]


@dataclass(frozen=True, slots=True)
class TransactionRef:
    """How a client names a transaction: the connection that the client speaks on, and the id that the client gives."""

    connection: object
    id: bytes


class Transaction:
    """Collected work. `handle` is the partition that commits it; `via` the entity whose outbox serves other entities.

    `find_via` is asked for that with every piece of work until there is one: JMS clients declare a transaction before
    they open any link to an entity.
    """

    def __init__(self, ref: TransactionRef, owner: object, find_via: FindVia, timer: Timer) -> None:
        self.ref = ref
        self.owner = owner
        self.find_via = find_via
        self.via: Entity | None = None
        self.timer = timer
        self.handle: PartitionHandle | None = None
        self.key: str | None = None
        self.operations: list[tuple[PartitionHandle, Operation]] = []
        self.tokens: set[bytes] = set()
        self.cancelled: set[int] = set()  # sequence numbers of scheduled messages, in the partition that commits
        self.let_go: list[tuple[PartitionHandle, bytes]] = []  # locks that their receivers won't settle again
        self.on_commit: list[Callable[[], None]] = []
        self.failure: BrokerError | None = None  # an operation was refused: nothing of the rest may be committed

    def fail(self, error: BrokerError) -> None:
        """An operation was refused; the first refusal is the one that counts."""
        self.failure = self.failure or error

    def send_via(self, via: Entity) -> Entity:
        """Messages for other entities leave through `via`, unless there is such an entity already; that entity."""
        self.via = self.via or via
        return self.via

    def look_for_via(self) -> None:
        """Ask for the entity through which messages for others leave, as long as there is none."""
        self.via = self.via or self.find_via()

    def use_key(self, key: str) -> None:
        """All messages of the transaction without a key of their own go where `key` goes."""
        self.key = key

    def bind(self, handle: PartitionHandle) -> None:
        """The partition that commits the transaction is known."""
        self.handle = handle
