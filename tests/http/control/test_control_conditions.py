"""The endpoints of conditions: their JSON, what they refuse, and the metrics."""

from __future__ import annotations

from azure.servicebus import ServiceBusClient, ServiceBusMessage

from emubus.conditions.presets import PRESETS
from emubus.conditions.table import TABLE

from .client import Http
from .conftest import PLAIN


def test_a_condition_is_read_with_its_plan_and_what_struck(control: Http, sdk: ServiceBusClient) -> None:
    body = {"name": "internal-error", "seed": 7, "entity": PLAIN, "count": 2, "set": {"internal-error.share": 1}}
    begun = control.post("/conditions", body)
    assert {name: begun[name] for name in ("id", "name", "seed", "entity", "is_on", "ends_at", "left")} == {
        "id": 1, "name": "internal-error", "seed": 7, "entity": PLAIN, "is_on": True, "ends_at": None, "left": 2,
    }  # fmt: skip
    assert begun["values"] == [{"name": "internal-error.share", "value": 1.0}]
    assert control.get("/conditions") == {"conditions": [begun]}
    with sdk.get_queue_sender(PLAIN) as sender:
        sender.send_messages(ServiceBusMessage("x"))
    ended = control.get("/conditions/1")
    assert (ended["is_on"], ended["left"], ended["struck_count"]) == (False, 0, 2)
    assert [(each["behaviour"], each["scope"], each["what"], each["decision"]) for each in ended["struck"]] == [
        ("internal-error", PLAIN, "send", 1),
        ("internal-error", PLAIN, "send", 2),
    ]
    metrics = control.send("GET", "/metrics").content.decode()
    assert 'emubus_condition_strikes_total{behaviour="internal-error"} 2.0' in metrics
    assert "emubus_conditions 0.0" in metrics


def test_conditions_are_ended_one_by_one_or_all_at_once(control: Http) -> None:
    for name in ("unsure", "trickle", "quiet-hours"):
        control.post("/conditions", {"name": name})
    assert control.ask("DELETE", "/conditions/2").json == {"ended_count": 1}
    assert control.ask("DELETE", "/conditions/2").status == 404
    assert control.ask("DELETE", "/conditions").json == {"ended_count": 2}
    assert control.get("/conditions") == {"conditions": []}
    assert control.ask("GET", "/conditions/9").status == 404


def test_a_parameter_of_another_behaviour_is_a_conflict(control: Http) -> None:
    refused = control.ask("POST", "/conditions", {"name": "trickle", "set": {"reset.share": 0.5}})
    assert refused.status == 409
    assert "trickle has no parameter 'reset.share'" in refused.json["error"]["message"]
    assert control.ask("POST", "/conditions", {"name": "trickle", "set": {"trickle.gap_ms": 0}}).status == 400
    assert control.ask("POST", "/conditions", {"name": "storm"}).status == 400


def test_the_table_is_read(control: Http) -> None:
    table = control.get("/conditions/table")
    assert [each["name"] for each in table["behaviours"]] == [row.name for row in TABLE]
    assert [each["name"] for each in table["presets"]] == list(PRESETS)
