"""The namespaces of the server as Resource Manager has them: in which group, with which tags.

One that Resource Manager has not made is shown in the group `state.DEFAULT_GROUP`. PUT of a new name makes another
namespace, which clients reach by its name (`NAME.localhost`). The first namespace of the server can't go: deleting it
deletes its entities, and hides it until it is put again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...broker.errors import BrokerError, Condition
from ...broker.model.profiles import LIMITS, Limits, Profile
from ..services import NamespaceReport, Services
from .state import Placed, State


class Homes:
    """The namespaces of a server. `services` are those of the first."""

    def __init__(self, services: Services, state: State) -> None:
        self._services = services
        self._state = state

    def all(self) -> list[Placed]:
        """All namespaces there are."""
        kept = self._state.kept
        found: list[Placed] = []
        for each in self._services.namespaces.list():
            key = each.name.lower()
            placed = kept.namespaces.get(key)
            if placed is not None and placed.is_of(each.id):
                found.append(placed)
            elif kept.gone.get(key) != each.id:
                found.append(self._unplaced(each))
        return found

    def _unplaced(self, report: NamespaceReport) -> Placed:
        tier = "Premium" if report.profile is Profile.PREMIUM else "Standard"
        since = self._services.broker.namespace.catalog.created_at or 0 if report.is_first else 0
        return Placed(report.name, tier=tier, created_at=since, updated_at=since, of=report.id)

    def is_placed(self, name: str) -> bool:
        """Whether Resource Manager has put it into a resource group."""
        found, kept = self.find(name), self._state.kept.namespaces
        return found is not None and found == kept.get(name.lower())

    def find(self, name: str) -> Placed | None:
        return next((each for each in self.all() if each.name.lower() == name.lower()), None)

    async def services_of(self, placed: Placed) -> Services:
        """What serves the namespace, which is opened while others are served. BrokerError (server-busy)."""
        return await self._services.namespaces.open(placed.name)

    async def make(self, placed: Placed) -> None:
        """Have a namespace of that name, placed so. BrokerError: argument-error (the name), resource-limit-exceeded."""
        namespaces = self._services.namespaces
        try:
            report = namespaces.get(placed.name)
        except BrokerError as error:
            if error.condition is not Condition.NOT_FOUND:
                raise
            profile = self._profile_of(placed)
            partitions = placed.properties.get("premiumMessagingPartitions") if profile is Profile.PREMIUM else None
            several = partitions if isinstance(partitions, int) and partitions > 1 else None
            report = namespaces.create(placed.name, profile, premium_partitions=several)
        await self.keep(replace(placed, of=report.id))

    async def keep(self, placed: Placed) -> None:
        """Keep how a namespace is placed, and forget those that are gone. BrokerError (server-busy)."""
        await self._change({placed.name.lower(): placed}, {})

    async def _change(self, more: Mapping[str, Placed], gone: Mapping[str, str], without: str = "") -> None:
        kept, ids = self._state.kept, {each.name.lower(): each.id for each in self._services.namespaces.list()}
        placed = {key: each for key, each in kept.namespaces.items() if key in ids and each.is_of(ids[key])}
        placed = {key: each for key, each in {**placed, **more}.items() if key != without}
        hidden = {key: own for key, own in {**kept.gone, **gone}.items() if key not in placed and ids.get(key) == own}
        await self._state.change(replace(kept, namespaces=placed, gone=hidden))

    def _profile_of(self, placed: Placed) -> Profile | None:
        """The profile of a new one; None is that of the first."""
        own = self._services.broker.limits.profile
        if placed.tier == "Premium":
            return Profile.PREMIUM
        return Profile.STANDARD if own is Profile.PREMIUM else None

    def limits_of_new(self, placed: Placed) -> Limits:
        """The limits that a namespace has which isn't there yet."""
        profile = self._profile_of(placed)
        return self._services.broker.limits if profile is None else LIMITS[profile]

    async def delete(self, placed: Placed) -> None:
        """Delete a namespace with its entities, all of them at once. BrokerError (server-busy): all stay."""
        key = placed.name.lower()
        report = self._services.namespaces.get(placed.name)
        if report.is_first:
            self._services.broker.maintenance.empty()
            await self._change({}, {key: report.id}, without=key)
        else:
            await self._services.namespaces.delete(placed.name)
            await self._change({}, {})
