"""What resources that are written as a Config.json are held against: the limits of the tier that they declare."""

from __future__ import annotations

from dataclasses import replace

from ..broker.model.profiles import LIMITS, Limits, Profile
from ..declared.resources import Kind, Resources


def limits_for_file(resources: Resources) -> Limits:
    """The limits of the tier that the namespace is declared with; JMS is left to the server that reads the file."""
    for each in resources.declared:
        sku = each.properties.get("sku") if each.kind is Kind.NAMESPACE else None
        if isinstance(sku, dict) and str(sku.get("name", sku.get("tier", ""))).lower() == Profile.PREMIUM:
            return LIMITS[Profile.PREMIUM]
    return replace(LIMITS[Profile.STANDARD], jms=True)
