"""Entities of a Config.json, created in the running namespace.

Knows that what exists stays as it is. Does not know the file: the composition root reads it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Final

from ..broker.aside import Aside
from ..broker.broker import Broker
from ..broker.errors import BrokerError
from ..broker.model.catalog import Description, path_of
from ..broker.model.descriptions import Topology
from .long_work import Pace
from .services import Services

CONFIG_BYTES_MAX: Final = 8 << 20


@dataclass(slots=True)
class ImportedEntities:
    """What became of the entities of a file: paths that were created, that existed, and (path, reason) of others.

    `warnings`: what the file has and has no effect, a line each.
    """

    created: list[str] = field(default_factory=list[str])
    existing: list[str] = field(default_factory=list[str])
    failures: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    warnings: list[str] = field(default_factory=list[str])


async def import_config(services: Services, data: bytes, aside: Aside) -> ImportedEntities:
    """Create the entities of a Config.json that are missing. BrokerError (argument-error) for a file with mistakes.

    The file is read and checked aside, and each entity is created in a turn of its own. Where that is cut off, what was
    created stays, and the next import goes on.
    """
    topology, warnings = await aside.run(partial(services.read_config, data))
    found = await _create(services.broker, topology)
    found.warnings += warnings
    return found


async def _create(broker: Broker, topology: Topology) -> ImportedEntities:
    found, pace = ImportedEntities(), Pace()
    descriptions: list[Description] = [*topology.queues, *topology.topics, *topology.subscriptions]
    for description in descriptions:
        path = path_of(description)
        if broker.namespace.entity(path) is not None:
            found.existing.append(path)
            await pace.step()
            continue
        try:
            entity = broker.administration.create(description, own_name=topology.namespace, of_file=True)
            found.created.append(entity.path)
        except BrokerError as error:
            found.failures.append((path, error.description))
        await pace.turn()
    return found
