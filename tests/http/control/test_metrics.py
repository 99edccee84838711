"""Metrics as Prometheus reads them, and one log line per request."""

from __future__ import annotations

import logging

import pytest
import structlog
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from emubus.broker.model.descriptions import QueueDescription
from emubus.testing import EmubusServer
from emubus.web.transport import request_log

from .client import ROOT, Http
from .conftest import PARTS, PLAIN
from .test_control_entities import KEYS, WAIT_S, keyed, send

Labels = frozenset[tuple[str, str]]


def scrape(control: Http) -> dict[str, dict[Labels, float]]:
    """Every sample by name and labels."""
    answered = control.send("GET", "/metrics")
    assert answered.status == 200
    assert answered.headers["Content-Type"].startswith("text/plain; version=")
    found: dict[str, dict[Labels, float]] = {}
    for family in text_string_to_metric_families(answered.content.decode()):
        for sample in family.samples:
            found.setdefault(sample.name, {})[frozenset(sample.labels.items())] = sample.value
    return found


def total(samples: dict[Labels, float], **labels: str) -> float:
    return sum(value for each, value in samples.items() if set(labels.items()) <= each)


def test_messages_locks_sizes_and_numbers_are_reported_per_partition(
    control: Http, sdk: ServiceBusClient, server: EmubusServer
) -> None:
    assert "emubus_messages" not in scrape(control)
    send(sdk, PARTS, *[keyed(key) for key in KEYS])
    with sdk.get_queue_receiver(PARTS) as receiver:
        (dead, *_) = taken = receiver.receive_messages(max_message_count=4, max_wait_time=WAIT_S)
        receiver.dead_letter_message(dead)
        found = scrape(control)
        partitions = control.get(f"/entities/{PARTS}/partitions")["partitions"]
        assert total(found["emubus_messages"], entity=PARTS, state="active") == len(KEYS) - 1
        assert total(found["emubus_messages"], entity=PARTS, state="dead-letter") == 1
        assert total(found["emubus_messages_locked"], entity=PARTS) == len(taken) - 1
        for each in partitions:
            place = {"entity": PARTS, "partition": str(each["partition_id"]), "store": str(each["store"])}
            if each["last_activity_at"] is None:
                assert total(found["emubus_partition_size_bytes"], **place) == 0
                continue
            active = total(found["emubus_messages"], **place, state="active")
            following = total(found["emubus_partition_next_sequence_number"], **place)
            seconds = total(found["emubus_partition_last_activity_timestamp_seconds"], **place)
            assert active == each["messages"]["active"]
            assert following == each["next_sequence_number"] & ((1 << 48) - 1)
            assert total(found["emubus_partition_size_bytes"], **place) == each["size_bytes"]
            assert seconds == each["last_activity_at"] / 1000


def test_commits_are_reported_per_store(control: Http, sdk: ServiceBusClient) -> None:
    before = scrape(control)
    assert total(before["emubus_store_commits_total"]) == 0
    send(sdk, PLAIN, *[ServiceBusMessage("x") for _ in range(7)])
    (store,) = [each["store"] for each in control.get("/stores")["stores"] if each["commit_count"]]
    found = scrape(control)
    here = {"store": str(store)}
    assert total(found["emubus_store_commits_total"]) == total(found["emubus_store_commits_total"], **here) == 7
    assert total(found["emubus_store_commit_duration_seconds_count"], **here) == 7
    assert 0 < total(found["emubus_store_commit_duration_seconds_sum"], **here) < WAIT_S
    assert total(found["emubus_store_batch_commands_sum"], **here) >= 7
    assert found["emubus_store_batch_commands_bucket"][frozenset({*here.items(), ("le", "+Inf")})] == 7
    assert total(found["emubus_store_commit_failures_total"]) == 0
    control.post("/outages", {"stores": [store], "kind": "down"})
    assert total(scrape(control)["emubus_store_available"], **here) == 0


def test_connections_links_entities_faults_and_the_process_are_reported(control: Http, sdk: ServiceBusClient) -> None:
    with sdk.get_queue_sender(PLAIN) as sender:
        sender.send_messages(ServiceBusMessage("x"))
        control.post("/faults", {"kind": "lost-lock"})
        found = scrape(control)
        assert found["emubus_amqp_connections"] == {frozenset(): 1}
        assert found["emubus_amqp_links"][frozenset()] >= 1
        assert found["emubus_faults"] == {frozenset(): 1}
        assert found["emubus_entities"] == {
            frozenset({("kind", "queue")}): 3,
            frozenset({("kind", "topic")}): 0,
            frozenset({("kind", "subscription")}): 0,
        }
        assert found["process_resident_memory_bytes"][frozenset()] > 1 << 20


def test_names_of_entities_are_written_so_that_they_can_be_read(control: Http, server: EmubusServer) -> None:
    name = "a-b/C.d_e~f"
    server.create(QueueDescription(name))
    with_sdk = ServiceBusClient.from_connection_string(server.connection_string)
    with with_sdk, with_sdk.get_queue_sender(name) as sender:
        sender.send_messages(ServiceBusMessage("x"))
    assert total(scrape(control)["emubus_messages"], entity=name, state="active") == 1


def test_every_request_is_one_line_at_debug(control: Http, monkeypatch: pytest.MonkeyPatch) -> None:
    everything = structlog.make_filtering_bound_logger(logging.DEBUG)  # the test kit's own shows warnings only
    monkeypatch.setattr(request_log, "log", structlog.wrap_logger(None, wrapper_class=everything))
    with capture_logs() as lines:
        control.ask("GET", "/clock")
        control.ask("GET", "/entities/none")
        control.ask("PUT", "/clock")
    found = [line for line in lines if line["event"] == "request"]
    assert [(line["log_level"], line["method"], line["path"], line["status"]) for line in found] == [
        ("debug", "GET", f"{ROOT}/clock", 200),
        ("debug", "GET", f"{ROOT}/entities/none", 404),
        ("debug", "PUT", f"{ROOT}/clock", 405),
    ]
    assert all(0 <= line["duration_ms"] < 10_000 for line in found)


@pytest.mark.parametrize("kind", ["down", "slow"])
def test_metrics_are_there_while_stores_are_out(control: Http, sdk: ServiceBusClient, kind: str) -> None:
    send(sdk, PLAIN, ServiceBusMessage("x"))
    control.post("/outages", {"stores": list(range(16)), "kind": kind})
    found = scrape(control)
    assert ("emubus_messages" in found) is (kind == "slow")
    assert set(found["emubus_store_available"].values()) == {0.0 if kind == "down" else 1.0}
