"""What an answer describes of an entity: its description, its counts, and what conditions show in their place."""

from __future__ import annotations

from ...broker.api import Entity
from ...broker.model.descriptions import CorrelationFilter, TopicDescription
from ..services import Services
from .fields import EntityView


def view_of(services: Services, entity: Entity, version: str, *, details: bool) -> EntityView:
    """The view of an entity; without `details` as the answers to create and update have it."""
    broker = services.broker
    entry = broker.namespace.catalog.entry(entity.path)
    assert entry is not None
    fixed = (broker.limits, version, details)
    accessed_at = broker.administration.accessed_at(entity)
    totals = entity.totals_now()
    if services.conditions.are_on:
        totals = services.conditions.totals_shown(entity.path, totals)
    if not isinstance(entity.description, TopicDescription) or not details:
        return EntityView(entry, totals, accessed_at, *fixed)
    routing = broker.namespace.subscriptions_of(entity.path)
    subscriptions = routing.entities()
    rule_count = sum(len(broker.administration.rules(each.path)) for each in subscriptions)
    correlation_count = routing.filter_count(CorrelationFilter)
    counts = (len(subscriptions), rule_count - correlation_count, correlation_count)
    return EntityView(entry, broker.namespace.totals_of_topic(entity), accessed_at, *fixed, *counts)
