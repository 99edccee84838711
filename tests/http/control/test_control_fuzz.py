"""Schemathesis on the control API: requests made from its own document, good ones and bad ones."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator

import pytest
import schemathesis
from schemathesis.config import SchemathesisConfig
from schemathesis.engine import events, from_schema

from emubus.testing import EmubusServer
from emubus.web.control import ENDPOINTS

from ...rounds import rounds
from .client import ROOT, Http
from .conftest import QUEUES

ARCHIVE = f"PUT {ROOT}/snapshots/{{name}}/archive"
ENTITY = f"{ROOT}/entities/{{entity}}"
# No schema says which bytes are an archive, what a profile allows, what is SQL or a message, and which fields of a
# query must be there.
BEYOND_SCHEMA = (
    ARCHIVE,
    f"POST {ROOT}/config",
    f"PUT {ROOT}/templates/{{name}}",
    f"PUT {ENTITY}",
    f"PATCH {ENTITY}/properties",
    f"PUT {ENTITY}/rules/{{rule}}",
    f"POST {ENTITY}/messages",
    f"POST {ROOT}/jobs",
    f"DELETE {ROOT}/roles",
)
WAITS = {"ReceiveMessagesRequest": "timeout_ms", "NewJob": "wait_ms"}
"""Fields that say how long an answer waits: here at most `WAIT_MS`, which the server does not know."""
WAIT_MS = 20
WAITING = (f"POST {ENTITY}/receive", f"POST {ROOT}/jobs")
CONDITION = f"{ROOT}/conditions/{{id}}"  # one that was ended can be read for a while, and ended again
EVENTS = f"{ROOT}/events"  # an answer without end
NAME_ONLY = re.compile(r"\{entity:.*\)\?\}")
EXAMPLES_MAX = rounds(3, 200)
SEED = 20_260_101

SETTINGS = {
    "seed": SEED,
    "continue-on-failure": True,
    "generation": {"max-examples": EXAMPLES_MAX, "database": "none"},
    "phases": {"stateful": {"enabled": True, "max-steps": 6}},
    # 503 is what the document says of a store that is out, and the requests put stores out.
    "checks": {"not_a_server_error": {"expected-statuses": ["2xx", "3xx", "4xx", "503"]}},
    "operations": [
        *({"include-name": each, "checks": {"positive_data_acceptance": {"enabled": False}}} for each in BEYOND_SCHEMA),
        *({"include-name": each, "checks": {"negative_data_rejection": {"enabled": False}}} for each in WAITING),
        *(
            {"include-name": f"{method} {CONDITION}", "checks": {"use_after_free": {"enabled": False}}}
            for method in ("GET", "DELETE")
        ),
    ],
}


@pytest.fixture
def quiet() -> Iterator[None]:
    """aiohttp tells of every request that is no HTTP; here they are sent on purpose."""
    logger = logging.getLogger("aiohttp.server")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(before)


@pytest.mark.usefixtures("quiet")
@pytest.mark.filterwarnings("default")
def test_requests_made_from_the_document_find_nothing() -> None:
    schemathesis.serializer.alias(["application/x-tar", "application/jsonl"], "application/octet-stream")
    found: list[tuple[str, str, str]] = []
    seen: set[str] = set()
    with EmubusServer(QUEUES) as server:
        document = Http(server.http_port).get("/openapi.json")
        for name, field in WAITS.items():
            document["components"]["schemas"][name]["properties"][field]["maximum"] = WAIT_MS
        schema = schemathesis.openapi.from_dict(document, config=SchemathesisConfig.from_dict(SETTINGS))
        schema.config.update(base_url=f"http://127.0.0.1:{server.http_port}")
        for event in from_schema(schema.exclude(path=EVENTS)).execute():
            if isinstance(event, events.ScenarioFinished):
                seen.add(event.label or "")
                for checks in event.recorder.checks.values():
                    found += [
                        (check.name, event.label or "", each.failure.message + each.code_sample)
                        for check in checks
                        if (each := check.failure_info) is not None
                    ]
            elif isinstance(event, events.NonFatalError | events.FatalError):
                found.append(("error", getattr(event, "label", ""), repr(vars(event))))
    assert found == []
    rows = {f"{each.method} {ROOT}{NAME_ONLY.sub('{entity}', each.path)}" for each in ENDPOINTS}
    assert rows - {f"GET {EVENTS}"} <= seen
