"""Tells the observer what conditions and faults strike, so that a message's story has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from .address import parse_address
from .entities.entity import PartitionHandle
from .entities.namespace import Namespace
from .errors import BrokerError
from .message.message import Message, parse_message, split_batch
from .partition.contract import Event, EventKind


class Strikes:
    """Notes strikes as events of a namespace's messages. `facts` are those of `EventKind.STRUCK`."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace

    @property
    def are_noted(self) -> bool:
        return self._namespace.observer.is_on

    def note_send(self, address: str, data: bytes, facts: Mapping[str, object], *, batch: bool) -> None:
        """Note a strike on a delivery of a client: no message of it has a number yet."""
        entity = self._namespace.entity(parse_address(address).key)
        messages: list[Message] = []
        with suppress(BrokerError):  # what can't be read can't be sought either
            messages = [parse_message(each) for each in (split_batch(data) if batch else (data,))]
        if entity is not None and messages:
            self._note(entity.partitions[0], [None] * len(messages), messages, facts)

    def note_locks(self, address: str, tokens: Sequence[bytes], facts: Mapping[str, object]) -> None:
        """Note a strike on what a client does with locks; nothing of those that are over."""
        entity = self._namespace.entity(parse_address(address).key)
        for handle in () if entity is None else entity.partitions:
            partition = handle.worker.partition(handle.queue_id)
            locks = None if partition is None else partition.state.locks.by_token
            numbers = [locks[token].number for token in tokens if token in locks] if locks else []
            if numbers:
                self._note(handle, numbers, (), facts)

    def note_delivery(self, path: str, number: int, cause: str, what: str) -> None:
        """Note a strike on the delivery of a message to any receiver."""
        entity = self._namespace.entity(path)
        handle = None if entity is None else entity.partition_of_number(number)
        if handle is not None:
            self._note(handle, [number], (), {"cause": cause, "operation": "delivery", "what": what})

    def _note(
        self,
        handle: PartitionHandle,
        numbers: Sequence[int | None],
        messages: Sequence[Message],
        facts: Mapping[str, object],
    ) -> None:
        observer = self._namespace.observer
        if observer.is_on:
            event = Event(EventKind.STRUCK, handle, numbers, messages, None, facts)
            observer.observe(self._namespace.clock.now_ms(), [event])
