"""How long entities live that clients of JMS make [jms 1.1, 4].

Knows the idle times that the library for JMS 2.0 names in its `open`, and which entities go with a link: at once, when
a store that was out is back, or at the next start. Does not know who makes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

import structlog

from ...broker.api import Entity
from ...broker.broker import Broker
from ...broker.clock import Clock
from ...broker.errors import BrokerError, Condition
from ...broker.model.descriptions import SubscriptionDescription

RETRY_AFTER_MS: Final = 1_000

log = structlog.get_logger(__name__)


def auto_delete_on_idle_ms(open_properties: Mapping[str, object], kind: str) -> int | None:
    """The idle time of a client's entities of a kind (`queue`, `topic`, `subscriber`); None without one."""
    seconds = open_properties.get(f"com.microsoft:{kind}-auto-delete-on-idle-duration-in-seconds")
    return int(seconds) * 1000 if isinstance(seconds, int) and seconds > 0 else None


def delete_when_unused(broker: Broker, clock: Clock, entity: Entity) -> None:
    """Delete an entity unless links are attached to it; try again while a messaging store is out."""
    if not entity.attached:
        delete_with_link(broker, clock, entity, lambda: delete_when_unused(broker, clock, entity))


def delete_with_link(broker: Broker, clock: Clock, entity: Entity, again: Callable[[], None] | None = None) -> None:
    """Delete an entity also if links are attached; while a messaging store is out, call `again` later, or this."""
    if entity.gone is not None:
        return
    try:
        broker.administration.delete(entity.path)
    except BrokerError as error:
        if error.condition is not Condition.NOT_FOUND:  # else it went otherwise
            clock.call_after(RETRY_AFTER_MS, again or (lambda: delete_with_link(broker, clock, entity)))


def delete_left_over(broker: Broker) -> None:
    """At a start: delete the entities whose clients are gone since the last run."""
    for entity in list(_passing(broker)):
        try:
            broker.administration.delete(entity.path)
        except BrokerError as error:
            if error.condition is not Condition.NOT_FOUND:
                log.warning("entity of a JMS client not deleted", entity=entity.path, cause=str(error))


def _passing(broker: Broker) -> Iterator[Entity]:
    for entity in broker.entities():
        description = entity.description
        if isinstance(description, SubscriptionDescription):
            if description.jms is not None and not description.jms.is_durable:
                yield entity
        elif description.is_temporary:
            yield entity
