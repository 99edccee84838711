"""`emubus sessions` and `connections`: who holds which message session, and which clients are connected."""

from __future__ import annotations

from typing import Final

from ...exits import EXIT_OK, CommandError
from ...options import ConfigError
from ..declaring import Command, Parsed
from .address import add_server_options
from .api import connect
from .output import add_json, add_yes, confirm, instant, show, table

NAMES_SHOWN: Final = 5
LAST: Final = 1 << 63


def add_sessions(parser: Command) -> None:
    parser.argument("entity", metavar="ENTITY", help="path of a queue or subscription (topic/name)")
    parser.option("--release", metavar="ID", help="end the lock of this session; its receiver loses it")
    add_json(parser)
    add_server_options(parser)
    parser.run = _sessions


def _sessions(parsed: Parsed) -> int:
    with connect(parsed) as api:
        at = f"{api.entity(parsed.entity)}/sessions"
        if parsed.release is not None:
            sessions = {each["session_id"]: each for each in api.get(at).parts("sessions")}
            held = [name for name, each in sessions.items() if each["locked_until_at"] is not None]
            if parsed.release not in held:
                raise CommandError(f"session '{parsed.release}' is not locked; locked are: {_first_names(held)}")
            released = api.post(f"{at}/release", {"session_id": parsed.release})
            show(parsed, released, [f"released session {parsed.release}"])
            return EXIT_OK
        answer = api.get(at)
    rows = [
        [
            each["session_id"],
            each["partition_id"],
            each["message_count"],
            each["state_bytes"],
            instant(each.number_or_none("locked_until_at")),
            each["holder"],
            instant(each.number_or_none("oldest_at")),
        ]
        # one that waits for longest comes first, those without messages last
        for each in sorted(answer.parts("sessions"), key=lambda each: each.number_or_none("oldest_at") or LAST)
    ]
    heads = ["SESSION", "PARTITION", "MESSAGES", "STATE BYTES", "LOCKED UNTIL", "HOLDER", "OLDEST MESSAGE"]
    show(parsed, answer, table(heads, rows))
    return EXIT_OK


def _first_names(names: list[object]) -> str:
    return ", ".join(map(str, names[:NAMES_SHOWN])) + (", …" if len(names) > NAMES_SHOWN else "") or "none"


def add_connections(parser: Command) -> None:
    parser.switch("--drop", help="drop all, or those with a link to ENTITY")
    parser.option("--entity", metavar="ENTITY", help="only connections with a link to this entity")
    parser.option("--number", metavar="N", convert=int, help="with --drop: only this connection")
    add_yes(parser)
    add_json(parser)
    add_server_options(parser)
    parser.run = _connections


def _connections(parsed: Parsed) -> int:
    if parsed.number is not None and not parsed.drop:
        raise ConfigError(f"--number is {parsed.number}, which goes with --drop: `emubus connections` lists all")
    if parsed.drop:
        which = "all connections" if parsed.number is None else f"connection {parsed.number}"
        confirm(parsed, f"Drop {which}{'' if parsed.entity is None else f' with a link to {parsed.entity}'}")
    with connect(parsed) as api:
        if parsed.drop and parsed.number is not None:
            dropped = api.call("DELETE", f"/connections/{parsed.number}")
            show(parsed, dropped, [f"dropped connection {parsed.number}"])
            return EXIT_OK
        if parsed.drop:
            dropped = api.post("/connections/drop", {"entity": parsed.entity})
            show(parsed, dropped, [f"dropped {dropped['dropped_count']} connections"])
            return EXIT_OK
        found = api.get("/connections").parts("connections")
    if parsed.entity is not None:
        wanted = parsed.entity.lower()
        found = [each for each in found if any(_is_of(link.text("address"), wanted) for link in each.parts("links"))]
    rows = [
        [
            each["number"],
            each["peer"],
            f"{each['product']} {each['version']}".strip() or each["container"],
            ", ".join(sorted({f"{link['role']} {link['address']}" for link in each.parts("links")})),
        ]
        for each in found
    ]
    show(parsed, {"connections": found}, table(["NUMBER", "PEER", "CLIENT", "LINKS"], rows))
    return EXIT_OK


def _is_of(address: str, entity: str) -> bool:
    path = address.lower().lstrip("/")
    return path == entity or path.startswith(f"{entity}/$")
