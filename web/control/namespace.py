"""Endpoints for the namespace: reset and snapshots.

Knows the JSON of a snapshot. Does not know how one is stored (`SnapshotsPort`).
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Final

from aiohttp import web

from ...broker.access import Access
from ...broker.names import SnapshotName
from ...telemetry.collecting import release
from ..limits import ARCHIVE_BYTES_MAX
from ..services import Snapshot, SnapshotsPort
from ..transport.connection import uses_body_as_it_comes
from .endpoints import ROOT, ControlCall, ControlRefusal, Endpoint
from .entities import PURGED
from .message_json import NUMBER_MAX
from .schema import Schema, array, choice, integer, mapping, named, nullable, record, text

ARCHIVE: Final = "application/x-tar"

_NAME: Final = text("Name of a snapshot.", pattern=SnapshotName.PATTERN)
_AT: Final = {"name": _NAME}
SNAPSHOT: Final = named(
    "Snapshot",
    record(
        "A snapshot: every entity and message of the namespace at one moment, without locks.",
        {
            "name": _NAME,
            "taken_at": integer("When.", 0, NUMBER_MAX),
            "store_count": integer(
                "Messaging stores; it can be restored only into a namespace with as many.", 1, 65535
            ),
            "entity_count": integer("Queues, topics and subscriptions.", 0, NUMBER_MAX),
            "message_count": integer("Messages.", 0, NUMBER_MAX),
            "size_bytes": integer("Size of its files.", 0, NUMBER_MAX),
        },
    ),
)
SNAPSHOTS: Final = named("Snapshots", record("Snapshots.", {"snapshots": array("The oldest first.", SNAPSHOT)}))
DELETED: Final = named("DeletedSnapshot", record("The deleted snapshot.", {"name": _NAME}))
BINARY: Final[Schema] = {"type": "string", "format": "binary", "description": "A tar archive."}


ABOUT: Final = named(
    "About",
    record(
        "The server.",
        {
            "name": text("emubus."),
            "version": text("Its release."),
            "api_version": text("Version of this API."),
            "namespace": text("Name of the namespace."),
            "profile": text("Profile of limits."),
            "authentication": choice("Whether tokens and keys are verified.", ["none", "sas", "rbac"]),
            "uptime_s": integer("Seconds since the start.", 0, NUMBER_MAX),
            "ports": mapping("Listening ports by name.", integer("A port.", 0, 65535)),
            "facts": mapping("More, as the page of the namespace shows it.", text("A fact.", chars_max=10_000)),
            "document": text("Where the OpenAPI document is."),
        },
    ),
)


_BYTES: Final = integer("Bytes.", 0, NUMBER_MAX)
_BY_USE: Final = mapping("Bytes by what they are held for.", _BYTES)
MEMORY: Final = named(
    "Memory",
    record(
        "What the server holds for its peers (`docs/architecture/limits.md`).",
        {
            "bytes": integer("All of it.", 0, NUMBER_MAX),
            "by_use": _BY_USE,
            "limits": mapping("The most for a connection, a key, all strangers, everything.", _BYTES),
            "strangers_bytes": integer("What strangers hold.", 0, NUMBER_MAX),
            "largest": array(
                "The connections that hold most.",
                named(
                    "MemoryHolder",
                    record(
                        "A connection.",
                        {
                            "address": text("Its client's address."),
                            "identity": nullable(text("The key that it has shown, or its host; null of a stranger.")),
                            "bytes": _BYTES,
                            "by_use": _BY_USE,
                        },
                    ),
                ),
            ),
            "held_count": integer("Connections that are not read from at the moment.", 0, NUMBER_MAX),
            "expelled_count": integer("Connections closed for what they held, since the start.", 0, NUMBER_MAX),
            "sockets": integer("Connections of any protocol.", 0, NUMBER_MAX),
            "sockets_max": nullable(integer("The most that descriptors allow.", 0, NUMBER_MAX)),
            "strangers": integer("Connections that have shown no key.", 0, NUMBER_MAX),
            "strangers_max": integer("The most of them.", 0, NUMBER_MAX),
            "cut_count": integer("Connections of strangers closed for newer ones, since the start.", 0, NUMBER_MAX),
        },
    ),
)


def _authentication(access: Access) -> str:
    if not access.verify:
        return "none"
    return "sas" if access.roles is None else "rbac"


async def show_about(call: ControlCall) -> object:
    services = call.services
    return {
        "name": "emubus",
        "version": release(),
        "api_version": "v1",
        "namespace": services.broker.name,
        "profile": services.broker.limits.profile.value,
        "authentication": _authentication(services.access),
        "uptime_s": services.uptime_s,
        "ports": dict(services.ports()),
        "facts": {name: str(fact) for name, fact in services.about.items()},
        "document": f"{ROOT}/openapi.json",
    }


async def show_memory(call: ControlCall) -> object:
    report = call.services.ledger.survey()
    return {
        "bytes": report.bytes,
        "by_use": {use.title: size for use, size in report.by_use.items()},
        "limits": {
            "connection": report.connection_bytes_max,
            "identity": report.identity_bytes_max,
            "strangers": report.strangers_bytes_max,
            "everything": report.bytes_max,
        },
        "strangers_bytes": report.strangers_bytes,
        "largest": [
            {
                "address": each.address,
                "identity": each.identity,
                "bytes": each.bytes,
                "by_use": {use.title: size for use, size in each.by_use.items()},
            }
            for each in report.largest
        ],
        "held_count": report.held_count,
        "expelled_count": report.closed_count,
        "sockets": report.sockets,
        "sockets_max": report.sockets_max,
        "strangers": report.strangers,
        "strangers_max": report.strangers_max,
        "cut_count": report.cut_count,
    }


async def reset(call: ControlCall) -> object:
    broker = call.services.broker
    if call.body["to"] == "empty":
        return {"message_count": broker.maintenance.purge(None)}
    if call.body["to"] == "start":
        call.services.conditions.start_over()
        count = broker.maintenance.start_over()
        broker.refusals.forget()
        call.services.story.forget()
        return {"message_count": count}
    return {"message_count": broker.maintenance.reset()}


def _snapshot_json(snapshot: Snapshot) -> dict[str, object]:
    return asdict(snapshot)


def _name(call: ControlCall) -> SnapshotName:
    return SnapshotName(call.path.one("name", str))


def _snapshots(call: ControlCall) -> SnapshotsPort:
    return call.services.snapshots


async def list_snapshots(call: ControlCall) -> object:
    return {"snapshots": [_snapshot_json(each) for each in _snapshots(call).list()]}


async def take_snapshot(call: ControlCall) -> object:
    return _snapshot_json(await _snapshots(call).take(_name(call)))


async def show_snapshot(call: ControlCall) -> object:
    return _snapshot_json(_snapshots(call).get(_name(call)))


async def restore_snapshot(call: ControlCall) -> object:
    return _snapshot_json(await _snapshots(call).restore(_name(call)))


async def delete_snapshot(call: ControlCall) -> object:
    await _snapshots(call).delete(_name(call))
    return {"name": _name(call)}


async def download_snapshot(call: ControlCall) -> object:
    """The files of a snapshot as a tar archive."""
    name = _name(call)
    chunks = _snapshots(call).archive(name)
    response = web.StreamResponse()
    response.content_type = ARCHIVE
    response.headers["Content-Disposition"] = f'attachment; filename="{name}.tar"'
    await response.prepare(call.request)
    async for chunk in chunks:
        await response.write(chunk)
    await response.write_eof()
    return response


async def upload_snapshot(call: ControlCall) -> object:
    length = call.request.content_length
    if length is not None and length > ARCHIVE_BYTES_MAX:
        raise ControlRefusal(413, f"The archive has {length} bytes; at most {ARCHIVE_BYTES_MAX} are allowed.")
    uses_body_as_it_comes(call.request)
    chunks = call.request.content.iter_chunked(1 << 20)
    return _snapshot_json(await _snapshots(call).keep(_name(call), chunks, ARCHIVE_BYTES_MAX))


ENDPOINTS: Final = (
    Endpoint("GET", "/about", "The server: release, namespace, profile, ports", show_about, ABOUT),
    Endpoint("GET", "/memory", "Memory and sockets that the server holds for its peers", show_memory, MEMORY),
    Endpoint(
        "POST",
        "/reset",
        "Purge all entities, or reset the namespace to its start-up entities without messages",
        reset,
        PURGED,
        body=record(
            "State after the reset.",
            {
                "to": choice(
                    "empty: the same entities; config: those that the server was started with; start: as config, and "
                    "no outages, no faults, and the machine's time.",
                    ["empty", "config", "start"],
                )
            },
        ),
        example={"to": "config"},
    ),
    Endpoint("GET", "/snapshots", "All snapshots", list_snapshots, SNAPSHOTS),
    Endpoint("GET", "/snapshots/{name}", "A snapshot", show_snapshot, SNAPSHOT, at=_AT),
    Endpoint(
        "PUT",
        "/snapshots/{name}",
        "Take a snapshot of the running namespace; requests wait meanwhile",
        take_snapshot,
        SNAPSHOT,
        at=_AT,
        status=201,
        errors=(409,),
    ),
    Endpoint("DELETE", "/snapshots/{name}", "Delete a snapshot", delete_snapshot, DELETED, at=_AT, errors=(409,)),
    Endpoint(
        "POST",
        "/snapshots/{name}/restore",
        "Restore a snapshot: outages end, links are detached and can attach again",
        restore_snapshot,
        SNAPSHOT,
        at=_AT,
        errors=(409,),
    ),
    Endpoint(
        "GET", "/snapshots/{name}/archive", "Download a snapshot", download_snapshot, BINARY, at=_AT, gives=ARCHIVE
    ),
    Endpoint(
        "PUT",
        "/snapshots/{name}/archive",
        "Upload a snapshot under a name",
        upload_snapshot,
        SNAPSHOT,
        at=_AT,
        status=201,
        errors=(409,),
        takes=ARCHIVE,
    ),
)
