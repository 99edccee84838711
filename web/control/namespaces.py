"""Endpoints for the namespaces of the process: list, make, delete.

Knows the JSON of a namespace. Does not know how one is opened and found (`NamespacesPort`). Making and deleting are
asked of the first namespace: a key with Manage on another one must not delete its neighbours.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Final

from ...broker.model.profiles import Profile
from ...broker.names import NamespaceName
from ..services import NamespaceReport, NamespacesPort
from .endpoints import ControlCall, ControlRefusal, Endpoint
from .schema import array, boolean, choice, default, integer, named, nullable, record, text

_NAME: Final = text("Name of a namespace.", pattern=NamespaceName.PATTERN)
_AT: Final = {"name": _NAME}
NAMESPACE: Final = named(
    "Namespace",
    record(
        "A namespace of the process, with entities, keys, profile and data folder of its own.",
        {
            "name": text("Its name."),
            "profile": choice("Whose limits apply.", Profile),
            "host": text("The host name by which clients on this machine reach it."),
            "port": nullable(integer("A port of its own.", 0, 65535)),
            "is_first": boolean("Whether it is the one that all other names and addresses mean."),
            "is_open": boolean("Whether somebody has come for it: until then it has no files and threads."),
            "data_folder": nullable(text("Where it is kept; null: in memory.", chars_max=10_000)),
        },
    ),
)
NAMESPACES: Final = named("Namespaces", record("Namespaces.", {"namespaces": array("The first one first.", NAMESPACE)}))
DELETED: Final = named("DeletedNamespace", record("The deleted namespace.", {"name": _NAME}))
MAKING: Final = record(
    "The settings of the namespace.",
    {
        "profile": default(nullable(choice("Whose limits apply; null: those of the first.", Profile)), None),
        "port": default(nullable(integer("A port of its own, 0 for a free one; null: none.", 0, 65535)), None),
    },
)


def _namespace_json(report: NamespaceReport) -> dict[str, object]:
    shown = {**asdict(report), "profile": report.profile.value}
    del shown["id"]  # which tells a namespace from an earlier one of its name, to this process alone
    return shown


def _of_first(call: ControlCall) -> NamespacesPort:
    """The namespaces, for a request to the first one. ControlRefusal."""
    namespaces = call.services.namespaces
    first = namespaces.list()[0]
    if call.services.broker.name != first.name:
        raise ControlRefusal(409, f"Ask the first namespace, {first.name}: it makes and deletes the others.")
    return namespaces


async def list_namespaces(call: ControlCall) -> object:
    return {"namespaces": [_namespace_json(each) for each in call.services.namespaces.list()]}


async def show_namespace(call: ControlCall) -> object:
    return _namespace_json(call.services.namespaces.get(call.path.one("name", str)))


async def create_namespace(call: ControlCall) -> object:
    profile = call.body.optional("profile", str)
    made = _of_first(call).create(
        call.path.one("name", str),
        None if profile is None else Profile(profile),
        port=call.body.optional("port", int),
    )
    return _namespace_json(made)


async def delete_namespace(call: ControlCall) -> object:
    name = call.path.one("name", str)
    await _of_first(call).delete(name)
    return {"name": name}


ENDPOINTS: Final = (
    Endpoint("GET", "/namespaces", "All namespaces of the process", list_namespaces, NAMESPACES),
    Endpoint("GET", "/namespaces/{name}", "A namespace", show_namespace, NAMESPACE, at=_AT),
    Endpoint(
        "PUT",
        "/namespaces/{name}",
        "Make an empty namespace; the first one is asked",
        create_namespace,
        NAMESPACE,
        at=_AT,
        body=MAKING,
        status=201,
        errors=(409,),
        example={"profile": "premium"},
    ),
    Endpoint(
        "DELETE",
        "/namespaces/{name}",
        "Delete a namespace with everything in it, and close its connections; the first one is asked",
        delete_namespace,
        DELETED,
        at=_AT,
        errors=(409,),
    ),
)
