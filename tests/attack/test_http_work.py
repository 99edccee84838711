"""While requests over HTTP make as much work as they can, another client's sends stay quick and the memory small.

A row of `WORK` is a request whose body or answer a caller or sender has made large. Judged as in `test_strangers`.
"""

from __future__ import annotations

import base64
import http.client
import json
import sys
import threading
import time
from collections.abc import Callable, Container, Iterator
from contextlib import suppress
from urllib.parse import quote

import pytest

from emubus.broker.access import sign

from ..rounds import rounds
from .test_strangers import (
    COMPUTED_MS_MAX,
    MEMORY_MIB_MAX,
    SECONDS,
    Figures,
    Guarded,
    Sends,
    computed_ms,
    judge,
    ready,
    result,
    start,
)

THREADS = 6
KEY = base64.b64encode(b"RootManageSharedAccessKey:SAS_KEY_VALUE").decode()
HEADERS = {"Authorization": f"Basic {KEY}", "Accept": "text/html"}
JOBS = "/emubus/v1/jobs"
START = b'{"verb": "copy", "entity": "watched", "changes": {"application_properties": {'
WIDE = START + b",".join(b'"p%d": 1' % number for number in range(600_000)) + b"}}}"
LIKE = "%20OR%20".join(f"a%20LIKE%20'%25{number}_x%25'" for number in range(8))
Request = tuple[str, str, bytes, str]


def config(number: int, queues: int) -> bytes:
    found = [{"Name": f"q{number}-{each}", "Properties": {}} for each in range(queues)]
    return json.dumps({"UserConfig": {"Namespaces": [{"Name": "ns", "Queues": found, "Topics": []}]}}).encode()


WORK: dict[str, Callable[[int], Request]] = {
    "JSON of many names": lambda _: ("POST", JOBS, WIDE, "application/json"),
    "page of deep XML": lambda _: ("GET", "/emubus/page/messages?path=xml", b"", ""),
    "deep JSON of 8 MiB": lambda _: ("POST", JOBS, START + b'"a":' + b"[" * 400 + b" " * (8 << 20), "application/json"),
    "Config.json of 400 queues": lambda n: ("POST", "/emubus/v1/config", config(n, 400), "application/json"),
    "export of a Config.json": lambda _: ("GET", "/emubus/v1/config", b"", ""),
    "export as commands": lambda _: ("GET", "/emubus/v1/config/commands", b"", ""),
    "list of messages": lambda _: ("GET", "/emubus/v1/entities/xml/messages?count=250", b"", ""),
    "search with SQL": lambda _: ("GET", f"/emubus/page/messages?path=xml&where={LIKE}", b"", ""),
    "export of messages": lambda _: ("GET", "/emubus/v1/entities/xml/messages/lines", b"", ""),
    "batch over REST": lambda _: (
        "POST",
        "/copies/messages",
        b"[" + b",".join([b'{"Body":"x"}'] * 60_000) + b"]",
        "application/vnd.microsoft.servicebus.json",
    ),
    "JSON Lines": lambda _: (
        "POST",
        "/emubus/v1/entities/copies/messages/lines",
        b'{"message": {"body": {"kind": "value", "value": [' + b"1," * 20_000 + b"1]}}}\n",
        "application/jsonl",
    ),
}
_FILTER = {"FilterType": "Sql", "SqlFilter": {"SqlExpression": "a = 1"}}
MANY: dict[str, object] = {
    "Queues": [{"Name": "watched"}, *({"Name": f"many-{n}"} for n in range(1_500))],
    "Topics": [
        {
            "Name": "t",
            "Subscriptions": [
                {
                    "Name": f"s{n}",
                    "Rules": [{"Name": f"r{r}", "Properties": _FILTER} for r in range(300 if n == 0 else 1)],
                }
                for n in range(1_000)
            ],
        }
    ],
}
LISTS: dict[str, Callable[[int], Request]] = {
    "queues as XML": lambda _: ("GET", "/$Resources/queues?$top=1000", b"", ""),
    "queues chosen by a filter": lambda _: (
        "GET",
        "/$Resources/queues?$top=1000&$filter=MessageCount%20Gt%200",
        b"",
        "",
    ),
    "subscriptions as XML": lambda _: ("GET", "/t/Subscriptions?$top=1000", b"", ""),
    "rules as XML": lambda _: ("GET", "/t/Subscriptions/s0/Rules?$top=1000", b"", ""),
    "entities as JSON": lambda _: ("GET", "/emubus/v1/entities?count=1000", b"", ""),
    "page of queues": lambda _: ("GET", "/", b"", ""),
    "metrics": lambda _: ("GET", "/metrics", b"", ""),
    "story": lambda _: ("GET", "/emubus/v1/story?count=1000", b"", ""),
}
"""Answers about many entities at once, from a server that has them."""
SHORT = ("JSON of many names", "page of deep XML")


def token() -> str:
    """A token for all of the namespace; administration takes nothing else."""
    expiry, resource = str(int(time.time()) + 3_600), quote("http://localhost/", safe="")
    signature = quote(sign(resource, expiry, "SAS_KEY_VALUE"), safe="")
    return f"SharedAccessSignature sr={resource}&sig={signature}&se={expiry}&skn=RootManageSharedAccessKey"


def ask(port: int, request: Request) -> int:
    method, path, body, kind = request
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    try:
        headers = {**HEADERS, **({"Content-Type": kind} if kind else {})}
        if not path.startswith(("/emubus/", "/metrics")) and path != "/":
            headers["Authorization"] = token()
        connection.request(method, path, body or None, headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    guarded = Guarded(tmp_path_factory.mktemp("worked"))
    for name in ("xml", "copies"):
        body = b'{"kind": "queue"}'
        assert ask(guarded.port, ("PUT", f"/emubus/v1/entities/{name}", body, "application/json")) == 201
    xml = "<a>" + "<b c='d'>" * 3_000 + "</b>" * 3_000 + "</a>"
    lines = json.dumps({"message": {"body": {"kind": "data", "text": xml}}}).encode() + b"\n"
    path = "/emubus/v1/entities/xml/messages/lines"
    assert ask(guarded.port, ("POST", path, lines * 25, "application/jsonl")) == 200
    yield guarded
    guarded.stop()


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    guarded = Guarded(tmp_path_factory.mktemp("crowded"), entities=MANY)
    yield guarded
    guarded.stop()


@pytest.mark.slow
@pytest.mark.xdist_group("attack")
@pytest.mark.parametrize("kind", rounds(SHORT, tuple(WORK)))
def test_work_over_http_delays_nobody_and_fills_no_memory(server: Guarded, kind: str, slowness: float) -> None:
    work_beside_sends(server, kind, WORK[kind], slowness, allowed=range(500))


@pytest.mark.slow
@pytest.mark.xdist_group("attack")
@pytest.mark.parametrize("kind", rounds(("queues as XML",), tuple(LISTS)))
def test_a_list_of_many_entities_delays_nobody(crowded: Guarded, kind: str, slowness: float) -> None:
    work_beside_sends(crowded, kind, LISTS[kind], slowness, allowed=[200])


def work_beside_sends(
    server: Guarded, kind: str, request: Callable[[int], Request], slowness: float, *, allowed: Container[int]
) -> None:
    def attempt() -> Figures:
        server.forget_memory()
        watcher = start("watcher.py", server.port, server.process.pid, SECONDS + 1)
        ready(watcher)
        statuses: list[int] = []
        ends = time.monotonic() + SECONDS

        def work(first: int) -> None:
            number = first
            # On a busy machine all answers of that time may be 503, for work that takes too long.
            while time.monotonic() < ends or (first == 0 and not any(each in allowed for each in statuses)):
                with suppress(
                    OSError, http.client.HTTPException
                ):  # the server may close a connection: that holds it up, too
                    statuses.append(ask(server.port, request(number)))
                number += THREADS

        threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
        for thread in threads:
            thread.start()
        sends: Sends = json.loads(result(watcher))
        for thread in threads:
            thread.join()
        figures = {"computed_ms": round(computed_ms(sends)), "memory_mib": server.memory_mib}
        sys.stdout.write(json.dumps({"kind": kind, **figures, "requests": len(statuses), "sends": len(sends)}) + "\n")
        assert [each for each in statuses if each not in allowed and each != 503] == []
        assert any(each in allowed for each in statuses)
        return figures

    judge(server, attempt, {"computed_ms": COMPUTED_MS_MAX * slowness, "memory_mib": MEMORY_MIB_MAX})
