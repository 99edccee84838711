"""A client of a server whose disk fails, and the ledger of what the answers to it said.

What was accepted is there, once; of what was refused with "nothing was stored" nothing is; of the rest all or nothing.
"""

from __future__ import annotations

import http.client
import itertools
import json
import random
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from emubus.storage.journal.journaled_store import JOURNALED_BYTES_MAX

from ..programs import PROGRAM_S_MAX

LARGE_BYTES: Final = JOURNALED_BYTES_MAX + 1
"""So many go into the store's file at once, with `full`."""

CONFIG: Final = json.dumps(
    {
        "UserConfig": {
            "Namespaces": [
                {
                    "Name": "sbemulatorns",
                    "Queues": [
                        {"Name": "plain", "Properties": {"MaxDeliveryCount": 100}},
                        {"Name": "parts", "Properties": {"MaxDeliveryCount": 100, "EnablePartitioning": True}},
                    ],
                    "Topics": [],
                }
            ],
            "Logging": {"Type": "Console"},
        }
    }
)
QUEUES: Final = ("plain", "parts")


class Client:
    """Operations over HTTP, and the ledger of what their answers said."""

    def __init__(self, seed: int) -> None:
        self.port = 0
        self.stored: dict[str, str] = {}  # accepted: message id -> queue
        self.doubtful: set[str] = set()  # may be there, or may be gone
        self.never: set[str] = set()  # refused, nothing stored
        self.gone: set[str] = set()
        self.answers: Counter[str] = Counter()
        self._numbers = itertools.count()
        self._chance = random.Random(seed)

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Mapping[str, str], str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PROGRAM_S_MAX)
        try:
            data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
            connection.request(method, path, data, {"Content-Type": "application/json", **headers})
            answer = connection.getresponse()
            return answer.status, dict(answer.headers), answer.read().decode(errors="replace")
        finally:
            connection.close()

    def send(self, queue: str, **properties: str) -> None:
        name = f"m{next(self._numbers)}"
        size = self._chance.choice((20, 500, LARGE_BYTES))
        broker = json.dumps({"MessageId": name, **properties})
        status, _, text = self.ask("POST", f"/{queue}/messages", bytes(size), BrokerProperties=broker)
        self.answers[f"send {status}"] += 1
        if status == 201:
            self.stored[name] = queue
        elif "Nothing of it was stored" in text:
            self.never.add(name)
        else:
            assert "not known" in text, text
            self.doubtful.add(name)

    def receive(self, queue: str, *, complete: bool) -> None:
        status, headers, _ = self.ask("POST" if complete else "DELETE", f"/{queue}/messages/head?timeout=0")
        self.answers[f"receive {status}"] += 1
        if status not in (200, 201):
            # A destructive receive that was not confirmed may have taken any of them.
            if not complete and status != 204:
                self.doubtful |= {name for name, of in self.stored.items() if of == queue}
            return
        name = json.loads(headers["BrokerProperties"])["MessageId"]
        assert name not in self.never
        assert name not in self.gone
        if complete:
            status, _, text = self.ask(
                "DELETE", headers["Location"].split("://", 1)[-1].partition("/")[2].join(("/", ""))
            )
            self.answers[f"complete {status}"] += 1
            if status != 200:
                if "Nothing of it was stored" not in text:
                    self.doubtful.add(name)
                return
        self.gone.add(name)
        self.stored.pop(name, None)
        self.doubtful.discard(name)

    def administer(self) -> None:
        number = next(self._numbers)
        for method, path in (
            ("PUT", f"/emubus/v1/entities/new-{number}"),
            ("DELETE", f"/emubus/v1/entities/new-{number}"),
            ("PUT", f"/emubus/v1/snapshots/s{number}"),
            ("DELETE", f"/emubus/v1/snapshots/s{number}"),
        ):
            body = {"kind": "queue", "properties": {}} if method == "PUT" and "entities" in path else None
            status, _, text = self.ask(method, path, body)
            self.answers[f"administer {status}"] += 1
            assert status in (200, 201, 204, 404, 409, 503), text

    def work(self) -> None:
        """Everything, in any order."""
        steps: list[Callable[[], None]] = [
            lambda: self.send("plain"),
            lambda: self.send("parts"),
            lambda: self.send("parts", PartitionKey="k"),
        ] * 3
        steps += [
            lambda: self.receive("plain", complete=True),
            lambda: self.receive("parts", complete=False),
            self.administer,
        ]
        steps += [lambda: self.send("parts", ScheduledEnqueueTimeUtc="Mon, 01 Jan 2035 00:00:00 GMT")]
        self._chance.shuffle(steps)
        for step in steps:
            step()

    def wait_until_sound(self) -> None:
        """The stores that fail are tried again after a pause."""
        healths = {"failing"}
        while not healths <= {"available", "full"}:
            _, _, text = self.ask("GET", "/emubus/v1/stores")
            healths = {each["health"] for each in json.loads(text)["stores"]}

    def judge(self) -> None:
        found: Counter[str] = Counter()
        for queue in QUEUES:
            first: int | None = 0
            while first is not None:
                path = f"/emubus/v1/entities/{queue}/messages?count=100&from_sequence_number={first}"
                status, _, text = self.ask("GET", path)
                if status == 503:  # a commit from before the fault's end has failed meanwhile
                    self.wait_until_sound()
                    continue
                assert status == 200, text
                page = json.loads(text)
                found.update(each["properties"]["message_id"] for each in page["messages"])
                first = page["next_sequence_number"]
        assert [name for name, count in found.items() if count > 1] == []
        assert self.stored.keys() - self.doubtful - found.keys() == set()
        assert found.keys() & (self.never | self.gone) == set()
