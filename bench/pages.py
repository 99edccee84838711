"""What the pages and a search cost with 100 000 messages in a queue and 3 000 entities.

Fills a queue, creates queues, and asks for every page, and for searches and groupings that look at all messages; each
is a new one, since a message comes before it. Prints for each the median of its processor time on the server and of its
wall clock, and marks what is over its bar: 300 ms for a page, and for a search 50 ms and 10 us for each message. The
exit status is 1 if one is, by processor time.

    python bench/pages.py --messages 100000 --entities 3000
    python bench/pages.py --messages 10000 --entities 100          # searches have to stay below 150 ms
"""

from __future__ import annotations

import argparse
import html
import http.client
import json
import re
import statistics
import sys
import time
from collections.abc import Mapping
from typing import Final

from starting import BrokerError, Emubus, exit_code, load, running, workplace

BODY_BYTES: Final = 1_000
PAGE_BAR_MS: Final = 300.0
SEARCH_BAR_MS: Final = 50.0
MESSAGE_BAR_MS: Final = 0.01
ROOT: Final = "/emubus/page"
QUEUE: Final = "partitioned"
PAGES: Final[Mapping[str, str]] = {
    "entities": "/",
    "entities, folded": "/?folded=yes",
    "entities, by active": "/?sort=active",
    "entities, with messages": "/?only=messages",
    "entities, by name": "/?find=extra-2999",
    "entity": f"{ROOT}/entity?path={QUEUE}",
    "topic": f"{ROOT}/entity?path=plain-topic",
    "edit": f"{ROOT}/edit?path={QUEUE}",
    "messages": f"{ROOT}/messages?path={QUEUE}",
    "messages, newest": f"{ROOT}/messages?path={QUEUE}&order=newest",
    "dead letters": f"{ROOT}/messages?path={QUEUE}&queue=dead-letter",
    "send": f"{ROOT}/send?path={QUEUE}",
    "rules": f"{ROOT}/rules?path=plain-topic/Subscriptions/s1",
    "sessions": f"{ROOT}/sessions?path=plain-sessions",
    "create": f"{ROOT}/create?kind=subscription",
    "charts": f"{ROOT}/charts",
    "charts of an entity": f"{ROOT}/charts?path={QUEUE}&span=1d",
    "flow": f"{ROOT}/flow",
    "story": f"{ROOT}/story",
    "failures": f"{ROOT}/failures",
    "namespace": f"{ROOT}/namespace",
}
SEARCHES: Final[Mapping[str, str]] = {
    "text": f"{ROOT}/messages?path={QUEUE}&text=nothing-like-it",
    "text, newest first": f"{ROOT}/messages?path={QUEUE}&text=nothing-like-it&order=newest",
    "SQL, system property": f"{ROOT}/messages?path={QUEUE}&where=sys.MessageId%20%3D%20%27none%27",
    "SQL, own property": f"{ROOT}/messages?path={QUEUE}&where=color%20%3D%20%27none%27",
    "SQL, pattern": f"{ROOT}/messages?path={QUEUE}&where=color%20LIKE%20%27none%25%27",
    "SQL, header": f"{ROOT}/messages?path={QUEUE}&where=sys.TimeToLive%20IS%20NOT%20NULL",
    "SQL, half of all": f"{ROOT}/messages?path={QUEUE}&where=color%20%3C%3E%20%27none%27",
    "SQL, number": f"{ROOT}/messages?path={QUEUE}&where=amount%20%3E%205000",
    "state": f"{ROOT}/messages?path={QUEUE}&state=deferred",
    "session": f"{ROOT}/messages?path={QUEUE}&session=none",
    "groups by subject": f"{ROOT}/messages?path={QUEUE}&group=subject",
    "groups by key": f"{ROOT}/messages?path={QUEUE}&group=key",
    "groups by property": f"{ROOT}/messages?path={QUEUE}&group_property=color",
    "newest, deep": f"{ROOT}/messages?path={QUEUE}&order=newest&skip=9900",
    "keys": f"{ROOT}/keys?path={QUEUE}",
}


class Client:
    """Requests to the server on one connection."""

    def __init__(self, broker: Emubus) -> None:
        self._broker = broker
        self._connection = http.client.HTTPConnection("127.0.0.1", broker.port, timeout=120)

    def ask(self, method: str, path: str, body: bytes | None = None) -> str:
        """The body of an answer. Raises BrokerError if it is an error."""
        headers = {"Accept": "text/html"} if body is None else {"Content-Type": "application/json"}
        self._connection.request(method, path, body, headers)
        answer = self._connection.getresponse()
        text = answer.read().decode()
        if answer.status >= 400:
            raise BrokerError(f"{path}: {answer.status} {text[:300]}")
        return text

    def whole(self, path: str) -> None:
        """A page, and those that follow while a search that took too long goes on."""
        text = self.ask("GET", path)
        while "Search on" in text:
            (following,) = re.findall(r'rel="next" href="([^"]*)"', text)
            text = self.ask("GET", html.unescape(following))

    def cost_ms(self, path: str) -> tuple[float, float]:
        """Processor time of the server and wall clock for a page, of which nothing is remembered."""
        self.ask("POST", f"/emubus/v1/entities/{QUEUE}/messages", b'{"messages": [{"body": "another"}]}')
        used_ns, started_s = self._broker.used().process_ns, time.perf_counter()
        self.whole(path)
        return (self._broker.used().process_ns - used_ns) / 1e6, (time.perf_counter() - started_s) * 1e3


def fill(broker: Emubus, client: Client, messages: int, entities: int) -> None:
    """Create queues, and send messages to one. Raises BrokerError."""
    queues = [{"Name": f"extra-{number:04}", "Properties": {}} for number in range(entities)]
    namespace = {"Name": "sbemulatorns", "Queues": queues}
    config = {"UserConfig": {"Namespaces": [namespace], "Logging": {"Type": "File"}}}
    found = json.loads(client.ask("POST", "/emubus/v1/config", json.dumps(config).encode()))
    if len(found["created"]) != entities:
        raise BrokerError(f"{len(found['created'])} of {entities} queues were created: {found['failures'][:1]}")
    load(broker, "send", QUEUE, messages, BODY_BYTES, "--shape", "properties")


def main(argv: list[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--entities", type=int, default=3_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", help="where the data is; default: the folder for temporary files")
    arguments = parser.parse_args(argv)
    over = 0
    with workplace(arguments.folder) as folder:
        broker = Emubus(folder)
        with running(broker):
            client = Client(broker)
            fill(broker, client, arguments.messages, arguments.entities)
            search_bar_ms = SEARCH_BAR_MS + MESSAGE_BAR_MS * arguments.messages
            for kind, bar_ms, paths in (("page", PAGE_BAR_MS, PAGES), ("search", search_bar_ms, SEARCHES)):
                for name, path in paths.items():
                    rounds = [client.cost_ms(path) for _ in range(arguments.rounds)]
                    used_ms, wall_ms = (statistics.median(each) for each in zip(*rounds, strict=True))
                    is_over = used_ms > bar_ms
                    over += is_over
                    mark = f"  OVER {bar_ms:.0f} ms" if is_over else ""
                    print(f"{kind:7} {name:24} {used_ms:7.1f} ms of processor {wall_ms:7.1f} ms{mark}", flush=True)
            print(f"memory  {broker.memory()}")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(exit_code(main))
