"""One transaction: its collected operations and its name."""

from __future__ import annotations

from collections.abc import Callable

from ..clock import Timer
from ..errors import BrokerError
from ..lazy_dataclass import dataclass
from ..partition.requests import (
    Operation,
)
from .entity import Entity, PartitionHandle

FindVia = Callable[[], Entity | None]


@dataclass(frozen=True, slots=True)
class TransactionRef:
    """The name of a transaction: its connection, and the id that the client sends."""

    connection: object
    id: bytes


class Transaction:
    """Collected operations. The partition `handle` commits them; transfers to other entities leave through `via`.

    `find_via()` is called with every operation until it finds the entity: JMS clients declare a transaction before
    they open a link to an entity.
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
        self.message_count = self.size_bytes = 0  # of all operations
        self.tokens: set[bytes] = set()
        self.cancelled: set[int] = set()  # sequence numbers of scheduled messages, in the partition that commits
        self.let_go: list[tuple[PartitionHandle, bytes]] = []  # locks already settled by their receivers
        self.on_commit: list[Callable[[], None]] = []
        self.failure: BrokerError | None = None  # a refused operation dooms the transaction

    def fail(self, error: BrokerError) -> None:
        """Doom the transaction; the first error stays."""
        self.failure = self.failure or error

    def add(self, handle: PartitionHandle, operation: Operation, message_count: int, size_bytes: int) -> None:
        """Add an operation on so many messages, of so many bytes."""
        self.operations.append((handle, operation))
        self.message_count += message_count
        self.size_bytes += size_bytes
