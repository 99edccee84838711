"""What could be refused when messages were sent, and whether the answer is one that the service gives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emubus.broker.api import partition_for_key
from emubus.broker.errors import BrokerError, Condition, UnknownOutcomeError

from . import commands as c
from .items import least
from .shapes import QUEUE
from .world import STORES, Answer

if TYPE_CHECKING:
    from .steps import Run

BROKER_GONE = UnknownOutcomeError(Condition.SERVER_BUSY, "the broker is gone")


class Sending:
    """What could be refused when a delivery was sent, and why."""

    def __init__(self, run: Run, to: str, specs: tuple[c.Spec, ...], refusal: str | None) -> None:
        self._run = run
        self._to = to
        self._specs = specs
        self._refusal = refusal
        self.is_scheduled = False
        self._is_alone = not run.are_many
        self._sent_at = run.world.clock.now_ms()
        shape = run.model.shapes.get(to)
        entity = run.world.broker.namespace.entity(to)
        self._stores: list[int] = []  # of the partitions
        self._troubles_before = run.world.troubled()
        self._troubles_from = len(run.world.troubles)
        self._keys: set[str | None] = set()
        if shape is None or entity is None:
            return
        self._keys = {run.model.key_of(shape, spec) for spec in specs}
        self._stores = [place.worker.index for place in entity.partitions]
        self._room = self._free_bytes()
        self._no_duplicates = not shape.duplicates
        self._is_queue = shape.kind == QUEUE

    @property
    def _verb(self) -> str:
        return "schedule" if self.is_scheduled else "delivery"

    @property
    def _troubled(self) -> list[bool]:
        """Which partitions have been in trouble since the delivery was sent."""
        troubled = self._troubles_before.union(self._run.world.troubles[self._troubles_from :])
        return [store in troubled for store in self._stores]

    def is_accepted(self, answer: Answer) -> bool:
        """Whether the messages were stored; what the service would not answer is reported."""
        error = answer.error
        if self._refusal is not None:
            if error is BROKER_GONE:
                return False
            if error is None or error.condition is not Condition[self._refusal]:
                self._report("answer", f"answered '{error}' instead of {self._refusal}")
            return error is None
        if error is None:
            return True
        labels = {spec.label for spec in self._specs}
        stored = labels & self._run.world.labels_stored()
        if isinstance(error, UnknownOutcomeError):
            if not any(self._troubled) and error is not BROKER_GONE:
                self._report("answer", f"answered '{error}' while all stores work")
            lasting = {spec.label for spec in self._specs if not self._may_be_over(spec)}
            is_sure = (self.is_scheduled or self._is_queue) and self._no_duplicates
            if is_sure and stored and not lasting <= stored:
                self._report(
                    f"{self._verb}: all or none",
                    f"answered '{error}', and {sorted(stored)} of {sorted(labels)} are stored",
                )
            return bool(stored)
        if error.condition is Condition.SERVER_BUSY:
            self._check_busy(error)
        elif error.condition is Condition.RESOURCE_LIMIT_EXCEEDED:
            self._check_full(error)
        else:
            self._report("answer", f"answered '{error}'")
        if stored:
            self._report(
                f"{self._verb}: all or none", f"answered '{error}', and {sorted(stored)} of {sorted(labels)} are stored"
            )
        return bool(stored)

    def _may_be_over(self, spec: c.Spec) -> bool:
        """Whether a message may have been due while its sender waited, and may have gone since."""
        shape = self._run.model.shapes[self._to]
        if spec.after_ms is None or self._sent_at + spec.after_ms > self._run.world.clock.now_ms():
            return False
        return shape.kind != QUEUE or shape.forward_to is not None or least(spec.ttl_ms, shape.ttl_ms) is not None

    def _check_busy(self, error: BrokerError) -> None:
        if any(self._troubled[self._place(key)] for key in self._keys if key is not None):
            return
        if None in self._keys and any(self._troubled) and not any(self._takes_free()):
            return
        rule = (
            f"{'schedule' if self.is_scheduled else 'send'} without key"
            if None in self._keys and any(self._troubled)
            else "answer"
        )
        self._report(rule, f"answered '{error}'; troubled are {[i for i, is_so in enumerate(self._troubled) if is_so]}")

    def _check_full(self, error: BrokerError) -> None:
        if not self._is_alone:
            return
        size = sum(len(self._run.encoded(spec)) for spec in self._specs)
        # Behind a slow store messages that came before may have moved to other partitions meanwhile.
        free = list(map(min, self._room, self._free_bytes()))
        room = [0 if is_troubled else left for is_troubled, left in zip(self._troubled, free, strict=True)]
        places = [self._place(key) for key in self._keys if key is not None]
        if places and min(free[place] for place in places) < size:
            return
        shape = self._run.model.shapes[self._to]
        if (shape.kind != QUEUE or shape.partitioned) and any(self._troubled[place] for place in places):
            return  # copies that an action gave another key, and messages scheduled elsewhere, may have gone since
        if places and None not in self._keys:
            self._report("answer", f"{size} bytes: answered '{error}'; the partitions have room for {room}")
        if None in self._keys and max(room) >= size:
            self._report("room", f"{size} bytes: answered '{error}'; the partitions have room for {room}")

    def _takes_free(self) -> list[bool]:
        """Which partitions work and have room for the messages without a key, which go to one partition together."""
        shape = self._run.model.shapes[self._to]
        free = [spec for spec in self._specs if self._run.model.key_of(shape, spec) is None]
        size = sum(len(self._run.encoded(spec)) for spec in free)
        states = zip(self._troubled, self._room, strict=True)
        return [not is_troubled and room >= size for is_troubled, room in states]

    def _place(self, key: str) -> int:
        return partition_for_key(key, len(self._stores)) if len(self._stores) > 1 else 0

    def _free_bytes(self) -> list[int]:
        """How many bytes each partition has left, by what its store holds."""
        shape = self._run.model.shapes[self._to]
        if not shape.small:
            return [1 << 30] * len(self._stores)
        paths = {self._to, *(each.path for each in self._run.model.subscriptions(self._to))}
        size_max = (1 << 20) // (STORES if shape.partitioned else 1)
        room = [size_max] * len(self._stores)
        for row in self._run.world.rows():
            if row.path in paths:
                room[row.number >> 48 if shape.partitioned else 0] -= row.size_bytes
        return room

    def _report(self, rule: str, seen: str) -> None:
        self._run.report(rule, f"{self._specs} to '{self._to}': {seen}")
