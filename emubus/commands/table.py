"""The table of commands: name, group, help, and where the function is that adds the arguments."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from .declaring import Command


class Entry(NamedTuple):
    """A command: its group and line in `emubus --help`, and `adds`, a module of this package and its function.

    The module is imported by `command`, so that a command imports no other.
    """

    group: str
    help: str
    adds: str
    description: str | None = None

    def command(self, name: str) -> Command:
        """Import the command, and let it declare its line and its `run`."""
        found = Command(f"emubus {name}", self.description or f"{self.help[0].upper()}{self.help[1:]}.")
        module, _, function = self.adds.partition(":")
        add: Callable[[Command], None] = getattr(importlib.import_module(f".{module}", __package__), function)
        add(found)
        return found


SERVER, ENTITIES, MESSAGES, TESTS = "Server", "Entities", "Messages", "Tests"

COMMANDS: Final[Mapping[str, Entry]] = {
    "serve": Entry(
        SERVER,
        "run the server",
        "serve:add_arguments",
        "Run the server. --amqp-port can be set as EMUBUS_AMQP_PORT, and so on.",
    ),
    "health": Entry(SERVER, "check the health of a running server; exit code 0 or 1", "health:add_arguments"),
    "check": Entry(SERVER, "check the data folder of a stopped server", "check:add_arguments"),
    "config": Entry(
        SERVER, "check a Config.json, export the running namespace, print the schema", "config_files:add_arguments"
    ),
    "ca": Entry(SERVER, "print the path of the development CA and how to trust it in each SDK", "ca:add_arguments"),
    "namespace": Entry(
        SERVER, "list, create and delete the namespaces of a running server", "client.namespaces:add_namespace"
    ),
    "connection-string": Entry(SERVER, "print a connection string", "client.access:add_connection_string"),
    "token": Entry(SERVER, "print a shared access signature", "client.access:add_token"),
    "role": Entry(SERVER, "list, assign and remove the roles of identities", "client.roles:add_role"),
    "completion": Entry(SERVER, "print the completion script of bash, zsh or fish", "completion:add_arguments"),
    "ls": Entry(ENTITIES, "list queues, topics and subscriptions with their counts", "client.entities:add_ls"),
    "show": Entry(ENTITIES, "show an entity: counts, properties, partitions", "client.entities:add_show"),
    "create": Entry(ENTITIES, "create a queue, topic or subscription", "client.entities:add_create"),
    "update": Entry(ENTITIES, "change properties of an entity", "client.entities:add_update"),
    "delete": Entry(ENTITIES, "delete entities with everything in them", "client.entities:add_delete"),
    "import": Entry(
        ENTITIES,
        "create the entities of a namespace or an ARM template, or send messages of a file",
        "importing:add_arguments",
        "Create the entities of a namespace or ARM template, or send exported messages.",
    ),
    "rules": Entry(ENTITIES, "list, add and remove the rules of a subscription", "client.rules:add_rules"),
    "sessions": Entry(ENTITIES, "list the message sessions of an entity", "client.sessions:add_sessions"),
    "connections": Entry(ENTITIES, "list or drop the AMQP connections of clients", "client.sessions:add_connections"),
    "send": Entry(MESSAGES, "send messages to a queue or topic", "client.messages:add_send"),
    "peek": Entry(MESSAGES, "look at messages without locking them", "client.messages:add_peek"),
    "find": Entry(
        MESSAGES,
        "find messages in all queues and subscriptions",
        "client.searching:add_find",
        "Find messages in queues, subscriptions and dead letters. Exit code 1 if none.",
    ),
    "receive": Entry(
        MESSAGES, "receive messages", "client.messages:add_receive", "Receive messages. Exit code 1 if there are none."
    ),
    "settle": Entry(MESSAGES, "settle messages that were received with a lock", "client.messages:add_settle"),
    "trace": Entry(
        MESSAGES,
        "show what happened to a message, and why no subscription took it",
        "client.trace:add_trace",
        "Show what happened to a message. Exit code 1 if no event of it is kept.",
    ),
    "refusals": Entry(
        MESSAGES, "show what clients were refused lately, and the remedy", "client.searching:add_refusals"
    ),
    "purge": Entry(MESSAGES, "remove all messages of entities", "client.bulk:add_purge"),
    "resubmit": Entry(MESSAGES, "resubmit dead letters to the entity they came from", "client.bulk:add_resubmit"),
    "job": Entry(MESSAGES, "delete, move, copy or settle many messages, as a job of the server", "client.bulk:add_job"),
    "export": Entry(
        MESSAGES, "write messages as JSON Lines, with every section, body and type", "client.lines:add_export"
    ),
    "route": Entry(
        MESSAGES,
        "print the partition that a message would go to",
        "route:add_arguments",
        "Print the partition of a message: in the running server, a file or a folder.",
    ),
    "reset": Entry(TESTS, "reset the namespace to its state at the start", "client.bulk:add_reset"),
    "clock": Entry(TESTS, "show, advance, freeze or thaw the broker's clock", "client.simulation:add_clock"),
    "outage": Entry(TESTS, "begin and end outages of messaging stores", "client.simulation:add_outage"),
    "condition": Entry(
        TESTS, "list, begin and end conditions: what goes wrong on bad days", "client.simulation:add_condition"
    ),
    "fault": Entry(TESTS, "inject faults into operations of clients", "client.simulation:add_fault"),
    "exercise": Entry(
        TESTS,
        "start all presets of conditions in turn and report what struck",
        "client.exercise:add_exercise",
        "Start all presets of conditions in turn, for your own tests; report what struck.",
    ),
    "snapshot": Entry(TESTS, "take and restore snapshots of the namespace", "client.snapshots:add_snapshot"),
}
