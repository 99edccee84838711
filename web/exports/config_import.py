"""Entities of a Config.json, created in the running namespace.

Knows that what exists stays as it is. Does not know the file: the composition root reads it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from ...broker.errors import BrokerError, Condition
from ...broker.model.catalog import Description, path_of
from ..services import Services

CONFIG_BYTES_MAX: Final = 8 << 20


@dataclass(slots=True)
class ImportedEntities:
    """What became of the entities of a file: paths that were created, that existed, and (path, reason) of others."""

    created: list[str] = field(default_factory=list[str])
    existing: list[str] = field(default_factory=list[str])
    failures: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])


def import_config(services: Services, data: bytes) -> ImportedEntities:
    """Create the entities of a Config.json that are missing. BrokerError (argument-error) for a file with mistakes."""
    assert services.read_config is not None, "a server can read a Config.json"
    try:
        topology = services.read_config(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise BrokerError(Condition.ARGUMENT_ERROR, f"The file is not UTF-8 text (byte {error.start}).") from None
    found = ImportedEntities()
    descriptions: list[Description] = [*topology.queues, *topology.topics, *topology.subscriptions]
    for description in descriptions:
        path = path_of(description)
        if services.broker.entity(path) is not None:
            found.existing.append(path)
            continue
        try:
            found.created.append(services.broker.administration.create(description).path)
        except BrokerError as error:
            found.failures.append((path, error.description))
    return found
