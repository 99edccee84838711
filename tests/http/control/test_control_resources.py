"""The endpoint that applies declared resources: results, refusals, the log."""

from __future__ import annotations

from typing import Any

import pytest

from emubus.testing import EmubusServer

from .client import Http


def queue(name: str, **properties: object) -> dict[str, Any]:
    return {"kind": "queue", "path": [name], "properties": properties}


def test_each_resource_has_a_result_and_what_is_refused_is_logged() -> None:
    with EmubusServer([]) as server:
        http = Http(server.http_port)
        body: dict[str, Any] = {
            "resources": [queue("a", forwardTo="b"), queue("b", isNew=1), queue("c", lockDuration="PT1H")]
        }
        body["resources"][2]["origin"] = {"file": "main.json", "line": 3, "path": "$.resources[2]"}
        results = http.post("/resources", body)["results"]
        assert [(each["status"], each["what"], each["path"], each["notes"]) for each in results] == [
            ("created", "queue a", "a", []),
            ("created", "queue b", "b", ["queue b: the property isNew"]),
            ("refused", "queue c", "c", []),
        ]
        assert results[2]["why"] == "LockDuration is PT1H; allowed is PT5S to PT5M"
        assert results[2]["origin"] == "main.json:3 $.resources[2]"
        assert dict(server.server.broker.refusals.counts) == {"c": 1}


@pytest.mark.parametrize(
    ("resource", "error"),
    [
        ({**queue("a"), "kind": "bus"}, "body.resources[0].kind"),
        ({"kind": "queue", "path": ["a"]}, "properties"),
    ],
)
def test_what_is_no_resource_is_refused_with_its_place(resource: dict[str, Any], error: str) -> None:
    with EmubusServer([]) as server:
        answer = Http(server.http_port).ask("POST", "/resources", {"resources": [resource]})
        assert (answer.status, error in answer.json["error"]["message"]) == (400, True), answer.json


def test_a_path_with_another_number_of_names_is_left_out() -> None:
    with EmubusServer([]) as server:
        body = {"resources": [{**queue("a"), "path": ["a", "b"]}, queue("c")]}
        results = Http(server.http_port).post("/resources", body)["results"]
        assert [(each["status"], each["what"], each["why"]) for each in results] == [
            ("created", "queue c", ""),
            ("left out", "queue a/b", "its path has 2 names; it must have 1"),
        ]
