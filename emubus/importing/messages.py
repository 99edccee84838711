"""Copies the messages of queues from a live namespace into the running server, over AMQP; the source keeps them.

Knows which messages can be sent again: active and scheduled ones. They are sent byte for byte as they were peeked, and
the receiving broker replaces what the other one had written into them. Messages of subscriptions come over their topic,
deferred ones and dead letters by a receiver: these are named and passed over. Uses the AMQP client of the Spark
connector, which knows no Spark.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from ..broker.model.catalog import Description, path_of
from ..broker.model.descriptions import QueueDescription, TopicDescription
from ..exits import CommandError
from ..spark_connector.codec import head, split_peek_reply
from ..spark_connector.errors import ConnectorError
from ..spark_connector.wire import Connection, Endpoint, Management, SasKey, Sender
from ..terminal import Progress

PAGE: Final = 250
WINDOW: Final = 100
_ACTIVE, _SCHEDULED = 0, 2  # states of peeked messages; deferred ones are 1


@dataclass(frozen=True, slots=True)
class Peer:
    """A namespace as an AMQP client reaches it; the key is that of a rule with Listen (the source) or Send."""

    endpoint: Endpoint
    key: SasKey

    def connect(self) -> Connection:
        return Connection(self.endpoint, self.key)


@dataclass(slots=True)
class Copied:
    """How many messages each queue got, and what was passed over, a sentence each."""

    counts: Counter[str] = field(default_factory=Counter[str])
    passed_over: list[str] = field(default_factory=list[str])


def copy_messages(source: Peer, target: Peer, entities: Sequence[Description]) -> Copied:
    """Copy the messages of queues that exist in both namespaces. CommandError if a namespace can't be reached."""
    copied = Copied()
    progress = Progress("looked for messages in", len(entities))
    try:
        with source.connect() as reading, target.connect() as writing:
            for number, each in enumerate(entities, 1):
                path = path_of(each)
                if not isinstance(each, TopicDescription):
                    # What forwards shows no messages but its dead letters, and has none for long.
                    is_shown = each.forward_to is None
                    if isinstance(each, QueueDescription):
                        if is_shown:
                            _copy(reading, writing, path, copied)
                        path, is_shown = f"{path}/$DeadLetterQueue", True
                    if is_shown and _has_messages(reading, path):
                        copied.passed_over.append(f"the messages of {path}")
                progress.step(number)
    except ConnectorError as error:
        raise CommandError(f"not all messages were copied: {error.text}") from error
    finally:
        progress.end()
    return copied


def _copy(reading: Connection, writing: Connection, path: str, copied: Copied) -> None:
    """Copy the messages of one queue; what the target refuses is noted. ConnectorError if a connection is lost."""
    deferred = 0
    refusals: list[ConnectorError] = []
    sender: Sender | None = None
    try:
        for message in _peek_all(reading.management(path)):
            if head(message).state not in (_ACTIVE, _SCHEDULED):
                deferred += 1
                continue
            sender = sender or writing.sender(path, window=WINDOW)
            sender.send(message, envelope=False, key=None)
        outcomes = [] if sender is None else sender.flush()
    except ConnectorError as error:
        if not (reading.usable and writing.usable):
            raise
        outcomes = [] if sender is None else sender.outcomes()
        refusals.append(error)
    if sender is not None:
        sender.close()
    refusals += [error for _, error in outcomes if error is not None]
    copied.counts[path] = sum(error is None for _, error in outcomes)
    if deferred:
        copied.passed_over.append(f"{deferred} deferred messages of {path}")
    if refusals:
        copied.passed_over.append(f"messages of {path}: {refusals[0].text}")


def _peek_all(reading: Management) -> Iterator[bytes]:
    """All messages of an entity, by sequence number."""
    number = 0
    while (reply := reading.peek(number, PAGE)) is not None:
        page = split_peek_reply(reply)
        if not page:
            return
        yield from page
        number = head(page[-1]).sequence_number + 1


def _has_messages(reading: Connection, path: str) -> bool:
    return next(_peek_all(reading.management(path)), None) is not None
