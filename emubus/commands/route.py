"""`emubus route`: print the partition that a message would go to."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

from ..broker.model.descriptions import QueueDescription, TopicDescription, entity_key
from ..config import OPTIONS, OPTIONS_BY_NAME, load_config
from . import EXIT_FAILED, EXIT_OK
from .options import ConfigError, add_option

_PROPERTY_NAMES: Final = {
    "--session-id": "SessionId",
    "--partition-key": "PartitionKey",
    "--message-id": "MessageId (the key if duplicate detection is on)",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the entity, the keys, and where the entity is described."""
    parser.add_argument("entity", metavar="ENTITY", help="name of a queue or topic")
    parser.add_argument("--key", metavar="K", help="the key of the message")
    for flag, name in _PROPERTY_NAMES.items():
        parser.add_argument(flag, metavar="K", help=f"the message's {name}")
    source = parser.add_mutually_exclusive_group()
    add_option(source, OPTIONS_BY_NAME["config"])
    source.add_argument("--data", type=Path, metavar="DIR", help="use the entities of a data folder instead")
    for name in ("profile", "premium_partitions"):
        add_option(parser, OPTIONS_BY_NAME[name])


def run(parsed: argparse.Namespace) -> int:
    """Print the partition; the exit code. ConfigError, StoreError."""
    directory: Path | None = parsed.data
    parsed.data = None
    config = load_config({option.name: getattr(parsed, option.name, None) for option in OPTIONS})
    topology, partition_count = config.topology, config.limits.partition_count
    if directory is not None:
        from ..broker.model.catalog import CatalogError
        from ..server import read_namespace

        try:
            topology, partition_count = read_namespace(directory)
        except CatalogError as error:
            sys.stderr.write(f"emubus: error: {error}\n")
            return EXIT_FAILED
    entities: list[QueueDescription | TopicDescription] = [*topology.queues, *topology.topics]
    for entity in entities:
        if entity_key(entity.name) == entity_key(parsed.entity):
            sys.stdout.write(f"{_routed(parsed, entity, partition_count)}\n")
            return EXIT_OK
    where = directory or config.config_file or "the default configuration"
    sys.stderr.write(f"emubus: error: {where} has no queue or topic '{parsed.entity}'\n")
    return EXIT_FAILED


def _routed(parsed: argparse.Namespace, entity: QueueDescription | TopicDescription, partition_count: int) -> str:
    """The partition of a message as text; keys are tried in the order of [P8]."""
    from ..broker.api import partition_for_key

    if not entity.enable_partitioning:
        return f"{entity.name}: partition 0 of 1 (not partitioned)"
    session_id, partition_key = parsed.session_id, parsed.partition_key
    if session_id is not None and partition_key is not None and session_id != partition_key:
        raise ConfigError("SessionId and PartitionKey differ: the message is refused")
    key = next((each for each in (parsed.key, session_id, partition_key) if each is not None), None)
    if key is None and entity.requires_duplicate_detection:
        key = parsed.message_id
    if key is None:
        return f"{entity.name}: any of {partition_count} partitions, round-robin (no key)"
    return f"{entity.name}: partition {partition_for_key(key, partition_count)} of {partition_count} (key '{key}')"
