"""`emubus route`: print the partition that a message would go to.

Asks the running server, unless a Config.json or a data folder is named.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

from ..broker.model.descriptions import QueueDescription, TopicDescription, entity_key
from ..config import OPTIONS, OPTIONS_BY_NAME, load_config
from ..exits import EXIT_OK, CommandError
from ..options import ConfigError
from .client.address import add_server_options, named_namespace
from .client.output import add_json, show
from .declaring import Command, Parsed

_PROPERTY_NAMES: Final = {
    "--session-id": "SessionId",
    "--partition-key": "PartitionKey",
    "--message-id": "MessageId (the key if duplicate detection is on)",
}


def add_arguments(parser: Command) -> None:
    """Add the entity, the keys, and where the entity is described."""
    parser.argument("entity", metavar="ENTITY", help="name of a queue or topic")
    parser.option("--key", metavar="K", help="the key of the message")
    for flag, name in _PROPERTY_NAMES.items():
        parser.option(flag, metavar="K", help=f"the message's {name}")
    parser.option("--config", metavar="FILE", help="use the entities of this Config.json")
    parser.option("--data", convert=Path, metavar="DIR", help="use the entities of this data folder")
    for name in ("profile", "premium_partitions"):
        parser.setting(OPTIONS_BY_NAME[name])
    add_json(parser)
    add_server_options(parser)
    parser.run = run


def run(parsed: Parsed) -> int:
    """Print the partition; the exit code. ConfigError, StoreError, CommandError."""
    if parsed.config is not None and parsed.data is not None:
        raise ConfigError("--config and --data exclude each other: give the one that describes the entity")
    if parsed.config is None and parsed.data is None:
        return _ask_server(parsed)
    directory: Path | None = parsed.data
    config = load_config({each.name: getattr(parsed, each.name, None) for each in OPTIONS if each.name != "data"})
    topology, partition_count = config.topology, config.limits.partition_count
    if directory is not None:
        namespace = named_namespace(parsed)
        if namespace is not None:
            from ..broker.admin.folder_view import NAMESPACES_FOLDER

            directory = directory / NAMESPACES_FOLDER / namespace.key
        from ..broker.model.catalog import CatalogError
        from ..data_folder import read_namespace

        try:
            topology, partition_count = read_namespace(directory)
        except CatalogError as error:
            raise CommandError(str(error)) from error
    entities: list[QueueDescription | TopicDescription] = [*topology.queues, *topology.topics]
    for entity in entities:
        if entity_key(entity.name) == entity_key(parsed.entity):
            key, count = _key_of(parsed, entity), partition_count if entity.enable_partitioning else 1
            partition_id = _partition(key, count)
            _print(parsed, entity.name, {"key": key, "partition_count": count, "partition_id": partition_id})
            return EXIT_OK
    where = directory or config.config_file
    raise CommandError(f"{where} has no queue or topic '{parsed.entity}'")


def _key_of(parsed: Parsed, entity: QueueDescription | TopicDescription) -> str | None:
    """The key of a message; the properties are tried in the order of [P8]. ConfigError."""
    session_id, partition_key = parsed.session_id, parsed.partition_key
    if session_id is not None and partition_key is not None and session_id != partition_key:
        raise ConfigError("SessionId and PartitionKey differ: the message is refused")
    key = next((each for each in (parsed.key, session_id, partition_key) if each is not None), None)
    return parsed.message_id if key is None and entity.requires_duplicate_detection else key


def _partition(key: str | None, count: int) -> int | None:
    from ..broker.api import partition_for_key

    if count == 1:
        return 0
    return None if key is None else partition_for_key(key, count)


def _ask_server(parsed: Parsed) -> int:
    """Ask the running server."""
    from .client.api import connect

    given = {
        "key": parsed.key,
        **{name: getattr(parsed, name) for name in ("session_id", "partition_key", "message_id")},
    }
    query = urlencode({name: value for name, value in given.items() if value is not None})
    with connect(parsed) as api:
        at = api.entity(parsed.entity)
        path, answer = api.get(at).text("path"), api.get(f"{at}/route?{query}")
    _print(parsed, path, answer)
    return EXIT_OK


def _print(parsed: Parsed, path: str, answer: Mapping[str, object]) -> None:
    """The route as JSON, or as a sentence."""
    count, key, partition_id = answer["partition_count"], answer["key"], answer["partition_id"]
    if count == 1:
        text = f"{path}: partition 0 of 1 (not partitioned)"
    elif partition_id is None:
        text = f"{path}: any of {count} partitions, round-robin (no key)"
    else:
        text = f"{path}: partition {partition_id} of {count} (key '{key}')"
    show(parsed, {"path": path, **answer}, [text])
