"""Random files that Microsoft's published Config-schema.json accepts, and what each must make.

Knows the schema as a table of names and ranges, written from the schema and not from emubus's tables. A file is made
together with the entities that it means; what the schema leaves open (more properties at any object, null and {} for
what is optional, case of names, encoding, whole numbers as 3.0) is chosen at random.
"""

from __future__ import annotations

import codecs
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

ENDS: Final = "abcXYZ019"
MIDDLE: Final = "abcXYZ019_-."
MINUTE: Final = 60
SQL: Final = ("1=1", "kind = 'a'", "sys.Label = 'größe'", "kind IN ('a','b') AND other IS NOT NULL", "NOT (n > 3)")
ACTIONS: Final = ("SET a = 'b'", "SET sys.Label = 'x'; REMOVE b")
TEXTS: Final = ("ContentType", "CorrelationId", "Label", "MessageId", "ReplyTo", "ReplyToSessionId", "SessionId", "To")
VALUES: Final[tuple[object, ...]] = (
    "a note",
    "größe 注",
    0,
    -1,
    2**70,
    1.5,
    True,
    None,
    [],
    {},
    [1, {"a": [None]}],
    {"deep": {"er": [[[]]]}},
)
EXTRA: Final = (
    "_comment",
    "Description",
    "Location",
    "Level",
    "Enabled",
    "LoggingConfig",
    "MaxQueueDepth",
    "Tags",
    "größe",
    "",
    "$id",
)
# Names that emubus adds: a value that one tier has and another has not. Only in the `Properties` of queues.
OF_EMUBUS: Final = (
    ("MaxSizeInMegabytes", 1024),
    ("MaxSizeInMegabytes", 7),
    ("MaxSizeInMegabytes", 81920),
    ("MaxMessageSizeInKilobytes", 1024),
    ("EnablePartitioning", True),
    ("EnablePartitioning", False),
    ("EnableExpress", True),
    ("AutoDeleteOnIdle", "PT1M"),
    ("UserMetadata", "x" * 5_000),
    ("Status", "SendDisabled"),
)
ENCODINGS: Final = (
    (b"", "utf-8"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (b"", "utf-16-le"),
    (b"", "utf-16-be"),
    (b"", "utf-32-le"),
    (b"", "utf-32-be"),
)
EMPTY: Final[tuple[object, ...]] = (None, {})


@dataclass
class Made:
    """A file, the fields of each entity by its path, and the names of the properties that no schema names."""

    data: bytes
    entities: dict[str, dict[str, object]]
    extra: list[str]


@dataclass
class Maker:
    """Makes one file from the numbers of `dice`."""

    dice: random.Random
    entities: dict[str, dict[str, object]] = field(default_factory=dict[str, dict[str, object]])
    extra: list[str] = field(default_factory=list[str])

    def made(self) -> Made:
        names = self.names(self.dice.randint(1, 6))
        cut = self.dice.randint(0, len(names))
        namespace = {
            "Name": self.dice.choice(["sbemulatorns", "shop.servicebus.windows.net", "0_shop", "x" * 64]),
            "Queues": [self.queue(each) for each in names[:cut]],
            "Topics": [self.topic(each) for each in names[cut:]],
        }
        logging = {"Type": self.dice.choice(["File", "Console", "File,Console", "Console,File"])}
        document = {"UserConfig": {"Namespaces": [namespace], "Logging": logging}}
        for _ in range(self.dice.choice([0, 0, 1, 1, 2, 5])):
            self.add_extra(document)
        mark, encoding = self.dice.choice(ENCODINGS)
        ascii_only = self.dice.random() < 0.3
        text = json.dumps(document, ensure_ascii=ascii_only, indent=self.dice.choice([None, 1, "\t"]))
        if self.dice.random() < 0.3:
            text = text.replace("\n", "\r\n") + "\r\n"
        return Made(mark + text.encode(encoding), self.entities, self.extra)

    def queue(self, name: str) -> dict[str, Any]:
        given, fields = self.some(self.common(5) | self.window())
        if self.dice.random() < 0.3:
            own, value = self.dice.choice(OF_EMUBUS)
            given[own] = value
        self.entities[name] = fields
        return {"Name": name, **self.properties(given)}

    def topic(self, name: str) -> dict[str, Any]:
        given, fields = self.some({"DefaultMessageTimeToLive": self.ttl} | self.window())
        self.entities[name] = fields
        subscriptions = [self.subscription(name, each) for each in self.names(self.dice.randint(1, 3))]
        return {"Name": name, **self.properties(given), "Subscriptions": subscriptions}

    def subscription(self, topic: str, name: str) -> dict[str, Any]:
        given, fields = self.some(self.common(60))
        rules = self.names(self.dice.randint(0, 3), 50)
        self.entities[f"{topic}/Subscriptions/{name}"] = {**fields, "rules": rules or ["$Default"]}
        return {"Name": name, **self.properties(given), "Rules": [self.rule(each) for each in rules]}

    def rule(self, name: str) -> dict[str, Any]:
        if self.dice.random() < 0.5:
            texts: dict[str, Any] = {
                each: self.dice.choice(["x", "größe"]) for each in TEXTS if self.dice.random() < 0.4
            }
            texts["Properties"] = {"kind": self.dice.choice(["a", 1, True, 1.5])}
            properties: dict[str, Any] = {"FilterType": "Correlation", "CorrelationFilter": texts}
        else:
            written = self.dice.choice([{"SqlExpression": self.dice.choice(SQL)}] * 3 + [{"SqlExpression": ""}, {}])
            properties = {"FilterType": "Sql", "SqlFilter": dict(written)}
        if self.dice.random() < 0.4:
            properties["Action"] = self.dice.choice([{"SqlExpression": self.dice.choice(ACTIONS)}, {}, None])
        return {"Name": name, "Properties": properties}

    # ------------------------------------------------------------ values

    def common(self, lock_s: int) -> dict[str, Callable[[], tuple[object, str, object]]]:
        return {
            "DeadLetteringOnMessageExpiration": lambda: self.flag("dead_letter_on_expiration"),
            "DefaultMessageTimeToLive": self.ttl,
            "MaxDeliveryCount": self.count,
            "RequiresSession": lambda: self.flag("requires_session"),
            "LockDuration": lambda: self.duration("lock_duration_ms", lock_s, 5 * MINUTE),
        }

    def window(self) -> dict[str, Callable[[], tuple[object, str, object]]]:
        return {
            "DuplicateDetectionHistoryTimeWindow": lambda: self.duration("duplicate_window_ms", 5, 5 * MINUTE),
            "RequiresDuplicateDetection": lambda: self.flag("requires_duplicate_detection"),
        }

    def ttl(self) -> tuple[object, str, object]:
        return self.duration("default_ttl_ms", 5 * MINUTE, 60 * MINUTE)

    def count(self) -> tuple[object, str, object]:
        value = self.dice.randint(1, 10)
        return self.dice.choice([value, float(value)]), "max_delivery_count", value

    def flag(self, name: str) -> tuple[object, str, object]:
        value = self.dice.random() < 0.5
        return value, name, value

    def duration(self, name: str, low: int, high: int) -> tuple[object, str, object]:
        seconds = self.dice.choice([low, high, self.dice.randint(low, high)])
        forms = (
            f"PT{seconds}S",
            f"P0DT{seconds}S",
            f"PT{seconds // 60}M{seconds % 60}S",
            f"PT{seconds // 3600}H{seconds % 3600 // 60}M{seconds % 60}S",
        )
        return self.dice.choice(forms), name, seconds * 1000

    def some(
        self, makers: dict[str, Callable[[], tuple[object, str, object]]]
    ) -> tuple[dict[str, Any], dict[str, object]]:
        """Some of the properties as they are written, and the fields that they set."""
        given: dict[str, Any] = {}
        fields: dict[str, object] = {}
        for name, make in makers.items():
            chance = self.dice.random()
            if chance < 0.6:
                written = self.dice.choice([name] * 4 + [name.lower(), name[:1].lower() + name[1:]])
                given[written], own, meant = make()
                fields[own] = meant
            elif chance < 0.7:
                given[name] = self.dice.choice(EMPTY)
        return given, fields

    def properties(self, given: dict[str, Any]) -> dict[str, Any]:
        return {"Properties": given} if given else self.dice.choice([{}, {"Properties": {}}, {"Properties": None}])

    def names(self, count: int, length_max: int = 30) -> list[str]:
        found: dict[str, str] = {}
        while len(found) < count:
            middle = "".join(self.dice.choice(MIDDLE) for _ in range(self.dice.randint(0, length_max - 2)))
            new = f"{self.dice.choice(ENDS)}{middle}{self.dice.choice(ENDS)}"
            found.setdefault(new.lower(), new)
        return [*found.values()]

    def add_extra(self, document: dict[str, Any]) -> None:
        """A property that no schema names, at any object whose names it does not leave to the user."""
        places = [*_objects(document, "$")]
        owner, path = self.dice.choice(places)
        name = self.dice.choice([each for each in EXTRA if each not in owner])
        owner[name] = self.dice.choice(VALUES)
        self.extra.append(f"{path}.{name}")


def _objects(value: object, path: str) -> list[tuple[dict[str, Any], str]]:
    found: list[tuple[dict[str, Any], str]] = []
    if isinstance(value, dict):
        if value and not path.endswith(".CorrelationFilter.Properties"):
            found.append((value, path))
        for name, each in value.items():
            if name not in EXTRA:
                found += _objects(each, f"{path}.{name}")
    elif isinstance(value, list):
        for index, each in enumerate(value):
            found += _objects(each, f"{path}[{index}]")
    return found
