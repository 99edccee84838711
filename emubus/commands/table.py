"""The table of commands: name, group, help, and the function that imports the module and adds the arguments.

`completion`, which reads this table, is added by `emubus/__main__.py`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

Add = Callable[[argparse.ArgumentParser], None]


class Entry(NamedTuple):
    """A command: its group and line in `emubus --help`; `load` imports it and returns what adds its arguments."""

    group: str
    help: str
    load: Callable[[], Add]
    description: str | None = None


def _serve() -> Add:
    from . import serve

    return serve.add_arguments


def _check() -> Add:
    from . import check

    return check.add_arguments


def _route() -> Add:
    from . import route

    return route.add_arguments


def _ca() -> Add:
    from . import ca

    return ca.add_arguments


def _health() -> Add:
    from . import health

    return health.add_arguments


def _config() -> Add:
    from . import config_files

    return config_files.add_arguments


def _import() -> Add:
    from . import importing

    return importing.add_arguments


def _entities(name: str) -> Callable[[], Add]:
    def load() -> Add:
        from .client import entities

        return {
            "ls": entities.add_ls,
            "show": entities.add_show,
            "create": entities.add_create,
            "update": entities.add_update,
            "delete": entities.add_delete,
        }[name]

    return load


def _messages(name: str) -> Callable[[], Add]:
    def load() -> Add:
        from .client import messages

        return {
            "send": messages.add_send,
            "peek": messages.add_peek,
            "receive": messages.add_receive,
            "settle": messages.add_settle,
        }[name]

    return load


def _trace() -> Add:
    from .client import trace

    return trace.add_trace


def _bulk(name: str) -> Callable[[], Add]:
    def load() -> Add:
        from .client import bulk

        return {
            "purge": bulk.add_purge,
            "resubmit": bulk.add_resubmit,
            "job": bulk.add_job,
            "reset": bulk.add_reset,
        }[name]

    return load


def _export() -> Add:
    from .client import lines

    return lines.add_export


def _sessions() -> Add:
    from .client import sessions

    return sessions.add_sessions


def _connections() -> Add:
    from .client import sessions

    return sessions.add_connections


def _rules() -> Add:
    from .client import rules

    return rules.add_rules


def _simulation(name: str) -> Callable[[], Add]:
    def load() -> Add:
        from .client import simulation

        return {"clock": simulation.add_clock, "outage": simulation.add_outage, "fault": simulation.add_fault}[name]

    return load


def _exercise() -> Add:
    from .client import exercise

    return exercise.add_exercise


def _snapshot() -> Add:
    from .client import snapshots

    return snapshots.add_snapshot


def _token() -> Add:
    from .client import access

    return access.add_token


def _connection_string() -> Add:
    from .client import access

    return access.add_connection_string


SERVER, ENTITIES, MESSAGES, TESTS = "Server", "Entities", "Messages", "Tests"

COMMANDS: Final[Mapping[str, Entry]] = {
    "serve": Entry(
        SERVER,
        "run the server",
        _serve,
        "Run the server. --amqp-port can be set as EMUBUS_AMQP_PORT, and so on.",
    ),
    "health": Entry(SERVER, "check the health of a running server; exit code 0 or 1", _health),
    "check": Entry(SERVER, "check the data folder of a stopped server", _check),
    "config": Entry(SERVER, "check a Config.json, export the running namespace, print the schema", _config),
    "ca": Entry(SERVER, "print the path of the development CA and how to trust it in each SDK", _ca),
    "connection-string": Entry(SERVER, "print a connection string", _connection_string),
    "token": Entry(SERVER, "print a shared access signature", _token),
    "ls": Entry(ENTITIES, "list queues, topics and subscriptions with their counts", _entities("ls")),
    "show": Entry(ENTITIES, "show an entity: counts, properties, partitions", _entities("show")),
    "create": Entry(ENTITIES, "create a queue, topic or subscription", _entities("create")),
    "update": Entry(ENTITIES, "change properties of an entity", _entities("update")),
    "delete": Entry(ENTITIES, "delete entities with everything in them", _entities("delete")),
    "import": Entry(
        ENTITIES,
        "create the entities of a namespace or an ARM template, or send messages of a file",
        _import,
        "Create the entities of a namespace or ARM template, or send exported messages.",
    ),
    "rules": Entry(ENTITIES, "list, add and remove the rules of a subscription", _rules),
    "sessions": Entry(ENTITIES, "list the message sessions of an entity", _sessions),
    "connections": Entry(ENTITIES, "list or drop the AMQP connections of clients", _connections),
    "send": Entry(MESSAGES, "send messages to a queue or topic", _messages("send")),
    "peek": Entry(MESSAGES, "look at messages without locking them", _messages("peek")),
    "receive": Entry(
        MESSAGES, "receive messages", _messages("receive"), "Receive messages. Exit code 1 if there are none."
    ),
    "settle": Entry(MESSAGES, "settle messages that were received with a lock", _messages("settle")),
    "trace": Entry(
        MESSAGES,
        "show what happened to a message, and why no subscription took it",
        _trace,
        "Show what happened to a message. Exit code 1 if no event of it is kept.",
    ),
    "purge": Entry(MESSAGES, "remove all messages of entities", _bulk("purge")),
    "resubmit": Entry(MESSAGES, "resubmit dead letters to the entity they came from", _bulk("resubmit")),
    "job": Entry(MESSAGES, "delete, move, copy or settle many messages, as a job of the server", _bulk("job")),
    "export": Entry(MESSAGES, "write messages as JSON Lines, with every section, body and type", _export),
    "route": Entry(
        MESSAGES,
        "print the partition that a message would go to",
        _route,
        "Print the partition of a message: in the running server, a file or a folder.",
    ),
    "reset": Entry(TESTS, "reset the namespace to its state at the start", _bulk("reset")),
    "clock": Entry(TESTS, "show, advance, freeze or thaw the broker's clock", _simulation("clock")),
    "outage": Entry(TESTS, "begin and end outages of messaging stores", _simulation("outage")),
    "fault": Entry(TESTS, "inject faults into operations of clients", _simulation("fault")),
    "exercise": Entry(
        TESTS,
        "start all presets of conditions in turn and report what struck",
        _exercise,
        "Start all presets of conditions in turn, for your own tests; report what struck.",
    ),
    "snapshot": Entry(TESTS, "take and restore snapshots of the namespace", _snapshot),
}
