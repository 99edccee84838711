"""The operations of the protocol that begin with ``admin_``, over the SDK's administration client.

Knows which method of the client does what for queues, topics, subscriptions and rules; the translation is in
``properties``. Does not know messages. Owns the client: it is made by the first operation, and ``give_back`` hands it
to the function that closes it.
"""

from __future__ import annotations

import importlib
import inspect
import os
from typing import Any

from azure.core.exceptions import ResourceNotFoundError

from .faces import collected, done
from .properties import properties_from_json, properties_to_json, runtime_to_json
from .reaching import Reach
from .translate import JSON, version

PARENTS = {"queue": (), "topic": (), "subscription": ("topic",), "rule": ("topic", "subscription")}
KEPT_IN_OPTIONS = {"status"}  # the SDK takes it, without naming it among the parameters
FIRST_TO_HEED_OPTIONS = (7, 15)  # before that, the client forgets its options on the way
CA_VARIABLES = {"sync": "REQUESTS_CA_BUNDLE", "aio": "SSL_CERT_FILE"}


class Ref:
    """What a request names: the kind of entity and the names from the topic down."""

    def __init__(self, named: JSON) -> None:
        self.kind = next(kind for kind in ("rule", "subscription", "topic", "queue") if named.get(kind) is not None)
        self.parents = tuple(named[parent] for parent in PARENTS[self.kind])
        self.name = named[self.kind]

    @property
    def path(self) -> tuple[str, ...]:
        """The arguments that name it in the SDK's calls."""
        return (*self.parents, self.name)


class Administration:
    """The administration client of one face of the SDK."""

    def __init__(self, reach: Reach) -> None:
        self.reach = reach
        self._module = "azure.servicebus.aio.management" if reach.face == "aio" else "azure.servicebus.management"
        if reach.ca_file is not None and version() < FIRST_TO_HEED_OPTIONS:
            os.environ[CA_VARIABLES[reach.face]] = reach.ca_file
        self._opened: Any = None

    def give_back(self) -> list[Any]:
        """What is to be closed; the next operation makes a new client."""
        opened, self._opened = self._opened, None
        return [] if opened is None else [opened]

    async def op_admin_create(self, properties: JSON | None = None, **named: Any) -> JSON:
        ref = Ref(named)
        create = getattr(self._client(), f"create_{ref.kind}")
        known = {*inspect.signature(create).parameters, *KEPT_IN_OPTIONS}
        given = properties_from_json(properties or {})
        if unknown := given.keys() - known:
            raise TypeError(f"create_{ref.kind} of azure-servicebus takes no {', '.join(sorted(unknown))}")
        return {"properties": properties_to_json(await done(create(*ref.path, **given)))}

    async def op_admin_get(self, **named: Any) -> JSON:
        return {"properties": properties_to_json(await self._get(Ref(named)))}

    async def op_admin_update(self, properties: JSON, **named: Any) -> JSON:
        ref = Ref(named)
        entity = await self._get(ref)
        for name, value in properties_from_json(properties).items():
            if not hasattr(entity, name):
                raise TypeError(f"a {ref.kind} of azure-servicebus has no {name}")
            setattr(entity, name, value)
        await done(getattr(self._client(), f"update_{ref.kind}")(*ref.parents, entity))
        return {"properties": properties_to_json(await self._get(ref))}

    async def op_admin_delete(self, **named: Any) -> None:
        ref = Ref(named)
        await done(getattr(self._client(), f"delete_{ref.kind}")(*ref.path))

    async def op_admin_exists(self, **named: Any) -> JSON:
        try:
            await self._get(Ref(named))
        except ResourceNotFoundError:
            return {"exists": False}
        return {"exists": True}

    async def op_admin_list(self, kind: str, **named: str) -> JSON:
        pages = getattr(self._client(), f"list_{kind}")(*named.values())
        return {"names": [each.name for each in await collected(pages)]}

    async def op_admin_runtime(self, **named: Any) -> JSON:
        ref = Ref(named)
        read = getattr(self._client(), f"get_{ref.kind}_runtime_properties")
        return {"runtime": runtime_to_json(await done(read(*ref.path)))}

    async def op_admin_runtime_list(self, kind: str, **named: str) -> JSON:
        pages = getattr(self._client(), f"list_{kind}_runtime_properties")(*named.values())
        return {"runtime": {each.name: runtime_to_json(each) for each in await collected(pages)}}

    async def op_admin_namespace(self) -> JSON:
        shown = await done(self._client().get_namespace_properties())
        return {"name": shown.name, "sku": str(shown.messaging_sku), "messaging_units": shown.messaging_units}

    async def _get(self, ref: Ref) -> Any:
        return await done(getattr(self._client(), f"get_{ref.kind}")(*ref.path))

    def _client(self) -> Any:
        if self._opened is None:
            # Imported here and not before: the HTTP client behind it reads SSL_CERT_FILE when it is imported.
            module = importlib.import_module(self._module)
            client = module.ServiceBusAdministrationClient
            self._opened = self.reach.administration_client(client, {"retry_total": 0})
        return self._opened
