"""Jobs over the control API: each verb, filters, failures, a stop, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from emubus.broker.api import OutageKind
from emubus.broker.message.builder import NewMessage
from emubus.broker.model.descriptions import EntityStatus, QueueDescription, SubscriptionDescription, TopicDescription
from emubus.testing import EmubusServer

from ...web.namespace import counts, hold, holders, lock, send
from .client import Http

FROM, TO, ONCE, SESSIONS = "from", "to", "once", "with-sessions"


@pytest.fixture(scope="module")
def running() -> Iterator[EmubusServer]:
    queues = (
        QueueDescription(FROM, enable_partitioning=True),
        QueueDescription(TO),
        QueueDescription(ONCE, requires_duplicate_detection=True),
        QueueDescription(SESSIONS, requires_session=True),
        QueueDescription("closed", status=EntityStatus.SEND_DISABLED),
    )
    with EmubusServer(queues) as server:
        server.create(TopicDescription("t"))
        server.create(SubscriptionDescription("t", "s"))
        yield server


@pytest.fixture
def server(running: EmubusServer) -> Iterator[EmubusServer]:
    """The server of this file, empty."""
    yield running
    running.call(running.clock.thaw)
    running.end_outage(range(16))
    running.purge()


def run(control: Http, verb: str, entity: str = FROM, **asked: Any) -> dict[str, Any]:
    """The end of a job; without numbers it is for all messages."""
    asked = {"filter": {}, **asked} if "sequence_numbers" not in asked else asked
    job: dict[str, Any] = control.post("/jobs", {"verb": verb, "entity": entity, "wait_ms": 20_000, **asked})
    assert job["state"] != "running"
    return job


def figures(job: dict[str, Any]) -> tuple[int, int, int]:
    return job["total"], job["done_count"], job["failed_count"]


def fill(server: EmubusServer, count: int = 30, path: str = FROM, **fields: Any) -> None:
    send(server, path, *(NewMessage(b"x", {"subject": "s"}, {"n": n}, **fields) for n in range(count)))


def test_each_verb_ends_where_it_should(control: Http, server: EmubusServer) -> None:
    fill(server, 130)
    assert figures(run(control, "dead-letter", filter={"where": "n < 10"}, reason="why", description="because")) == (
        130,
        10,
        0,
    )
    dead = server.peek(FROM, "dead-letter")[0].application_properties
    assert (dead["DeadLetterReason"], dead["DeadLetterErrorDescription"]) == ("why", "because")
    assert figures(run(control, "resubmit", sub_queue="dead-letter", filter={"where": "n < 4"})) == (10, 4, 0)
    run(control, "move", sub_queue="dead-letter", target=TO)
    assert counts(server, FROM) == {"active": 124}
    assert run(control, "defer", filter={"where": "n >= 100"})["done_count"] == 30
    assert run(control, "complete", filter={"state": "deferred"})["done_count"] == 30
    assert run(control, "copy", target=TO, filter={"where": "n = 50"})["target"] == TO
    assert (counts(server, FROM), counts(server, TO)) == ({"active": 94}, {"active": 7})
    assert figures(run(control, "delete")) == (94, 94, 0)
    assert counts(server, FROM) == {}


def test_a_copy_without_a_target_is_sent_again_with_its_changes(control: Http, server: EmubusServer) -> None:
    send(server, FROM, NewMessage(b"old", {"message-id": "m", "subject": "s"}, {"a": 1, "b": "x"}, ttl_ms=60_000))
    changes = {
        "body_base64": "AP8=",
        "subject": None,
        "correlation_id": "c",
        "application_properties": {"a": None, "u": {"type": "uint", "value": 7}},
        "partition_key": "k",
        "ttl_ms": None,
    }
    assert run(control, "copy", changes=changes)["done_count"] == 1
    old, new = sorted(server.peek(FROM), key=lambda each: str(each.body["base64"] or ""))
    assert (old.properties, new.properties) == (
        {"message_id": "m", "subject": "s", **_times(old)},
        {"message_id": "m", "correlation_id": "c"},
    )
    assert (new.body["base64"], new.application_properties) == ("AP8=", {"b": "x", "u": 7})
    assert (new.annotations["x-opt-partition-key"], "ttl_ms" in new.header) == ("k", False)


def _times(message: Any) -> dict[str, Any]:
    return {name: message.properties[name] for name in ("absolute_expiry_time", "creation_time")}


def test_a_message_that_moves_is_not_lost_whatever_its_target_says(control: Http, server: EmubusServer) -> None:
    send(server, ONCE, NewMessage(b"x", {"message-id": "known"}))
    send(server, FROM, NewMessage(b"x", {"message-id": "known"}), NewMessage(b"x", {"message-id": "unknown"}))
    job = run(control, "move", target=ONCE)
    assert (figures(job), job["failures"][0]["message"][:31]) == ((2, 1, 1), "it would be dropped as a duplic")
    job = run(control, "move", target="closed")
    assert (figures(job), "disabled" in job["failures"][0]["message"].lower()) == ((1, 0, 1), True)
    assert counts(server, FROM) == {"active": 1}
    assert len(lock(server, FROM, 1)) == 1  # it was given back
    assert control.ask("POST", "/jobs", {"verb": "move", "entity": FROM, "filter": {}, "target": "no"}).status == 404


def test_scheduled_messages_are_cancelled_moved_and_delivered(control: Http, server: EmubusServer) -> None:
    later = server.call(server.clock.now_ms) + 3_600_000
    fill(server, 4, scheduled_enqueue_at=later)
    one, two, three, four = sorted(each.sequence_number for each in server.peek(FROM))
    job = run(control, "complete", sequence_numbers=[one])
    assert job["failures"] == [{"sequence_number": one, "message": "it is locked, scheduled or gone"}]
    assert figures(run(control, "delete", sequence_numbers=[one])) == (1, 1, 0)
    assert figures(run(control, "move", sequence_numbers=[two], target=TO)) == (1, 1, 0)
    assert figures(run(control, "deliver-now", sequence_numbers=[three])) == (1, 1, 0)
    assert (counts(server, FROM), counts(server, TO)) == ({"active": 1, "scheduled": 1}, {"scheduled": 1})
    run(control, "move", filter={"state": "active"}, target=TO)
    assert counts(server, TO) == {"active": 1, "scheduled": 1}  # it is not scheduled again
    assert [each.sequence_number for each in server.peek(FROM)] == [four]


def test_what_is_locked_or_gone_fails_and_says_so(control: Http, server: EmubusServer) -> None:
    fill(server, 3, TO)
    (taken,) = lock(server, TO, 1)
    job = run(control, "delete", TO, sequence_numbers=[taken, taken + 1, 99])
    assert figures(job) == (3, 1, 2)
    assert {each["sequence_number"]: each["message"] for each in job["failures"]} == {
        taken: "it is locked or gone",
        99: "it is locked or gone",
    }
    fill(server, 2)
    number = server.peek(FROM)[0].sequence_number
    server.begin_outage([number >> 48], OutageKind.DOWN)
    job = run(control, "delete", sequence_numbers=[number])
    assert job["failures"][0]["message"] == "its messaging store can't be reached"
    assert run(control, "delete")["error"] == f"Partitions that could not be reached were left out: {number >> 48}."


def test_a_job_takes_only_what_was_there_when_it_began(control: Http, server: EmubusServer) -> None:
    fill(server, 60)
    assert figures(run(control, "copy")) == (60, 60, 0)
    assert figures(run(control, "move")) == (120, 120, 0)
    assert counts(server, FROM) == {"active": 120}
    fill(server, 5, "t")
    assert figures(run(control, "move", "t/Subscriptions/s")) == (5, 5, 0)
    assert counts(server, "t/Subscriptions/s") == {"active": 5}


def test_a_job_is_stopped_between_two_batches(control: Http, server: EmubusServer) -> None:
    fill(server, 40)
    server.call(server.clock.freeze)
    server.begin_outage(range(16), OutageKind.SLOW, delay_ms=60_000)  # commits wait for the clock, which stands
    job = control.post("/jobs", {"verb": "copy", "entity": FROM, "target": TO, "filter": {}})
    again = control.ask("POST", "/jobs", {"verb": "copy", "entity": FROM, "target": TO, "filter": {}})
    assert (again.status, "is running" in again.json["error"]["message"]) == (409, True)
    assert control.post(f"/jobs/{job['id']}/stop")["id"] == job["id"]
    server.end_outage(range(16))
    server.call(server.clock.thaw)
    ended = control.get(f"/jobs/{job['id']}?wait_ms=20000")
    assert control.get("/jobs")["jobs"][0] == ended
    assert (ended["id"], ended["state"], ended["done_count"] < 40) == (job["id"], "stopped", True)
    assert counts(server, FROM) == {"active": 40}


def test_what_can_not_be_done_is_refused(control: Http, server: EmubusServer) -> None:
    fill(server, 1, TO)
    for asked, status, sentence in (
        ({"verb": "delete", "entity": TO}, 409, "either sequence_numbers or a filter"),
        ({"verb": "delete", "entity": TO, "filter": {}, "sequence_numbers": [1]}, 409, "either sequence_numbers"),
        ({"verb": "delete", "entity": "no", "filter": {}}, 404, "could not be found"),
        ({"verb": "delete", "entity": TO, "filter": {"where": "a = = 1"}}, 409, "line 1"),
        ({"verb": "resubmit", "entity": TO, "filter": {}}, 409, "'resubmit' is for dead letters"),
        ({"verb": "dead-letter", "entity": TO, "sub_queue": "dead-letter", "filter": {}}, 409, "outside of sub-queues"),
        ({"verb": "copy", "entity": TO, "filter": {}, "changes": {"body_base64": "?"}}, 409, "not base64"),
        ({"verb": "copy", "entity": TO, "filter": {}, "changes": {"application_properties": {"a": {}}}}, 409, "a type"),
        ({"verb": "copy", "entity": TO, "filter": {}, "changes": {"body": "", "body_base64": ""}}, 409, "exclude"),
    ):
        refused = control.ask("POST", "/jobs", asked)
        assert (refused.status, sentence in refused.json["error"]["message"]) == (status, True), refused.content
    lost = {"lock_tokens": ["6e2b1f0c-3c2d-4b5a-9f00-0123456789ab"], "outcome": "complete"}
    assert control.ask("POST", f"/entities/{TO}/settle", lost).status == 409
    large = {"messages": [{"body": "x" * 300_000}]}
    assert control.ask("POST", f"/entities/{TO}/messages", large).status == 413
    assert (control.ask("GET", "/jobs/999").status, control.ask("POST", "/jobs/999/stop").status) == (404, 404)
    assert counts(server, TO) == {"active": 1}


def fill_sessions(server: EmubusServer, count: int, *names: str) -> None:
    send(server, SESSIONS, *(NewMessage(b"x", {"group-id": each}, {"n": n}) for n in range(count) for each in names))


def test_each_verb_acts_on_messages_of_sessions(control: Http, server: EmubusServer) -> None:
    fill_sessions(server, 40, "a", "b", "c")
    later = server.call(server.clock.now_ms) + 3_600_000
    send(server, SESSIONS, NewMessage(b"later", {"group-id": "a"}, scheduled_enqueue_at=later))
    assert figures(run(control, "defer", SESSIONS, filter={"where": "n < 4"})) == (121, 12, 0)
    assert figures(run(control, "complete", SESSIONS, filter={"state": "deferred", "session_id": "a"})) == (121, 4, 0)
    assert run(control, "dead-letter", SESSIONS, filter={"where": "n < 10"}, reason="why")["done_count"] == 26
    assert run(control, "resubmit", SESSIONS, sub_queue="dead-letter", filter={"where": "n < 1"})["done_count"] == 2
    assert run(control, "delete", SESSIONS, filter={"session_id": "c"})["done_count"] == 31
    assert run(control, "move", SESSIONS, target=TO)["failed_count"] == 0
    assert counts(server, SESSIONS) == {"dead-letter": 24}
    assert counts(server, TO) == {"active": 61, "scheduled": 1}
    moved = [each for each in server.peek(TO) if each.properties["session_id"] == "b" and each.state == "active"]
    assert [each.application_properties["n"] for each in moved][:-1] == list(range(10, 40))
    assert holders(server, SESSIONS) == {}


def test_a_job_leaves_out_a_session_that_a_client_holds_and_names_the_client(
    control: Http, server: EmubusServer
) -> None:
    fill_sessions(server, 60, "mine", "taken")
    holder = hold(server, SESSIONS, "taken", "orders 1.0")
    job = run(control, "delete", SESSIONS)
    assert figures(job) == (120, 60, 60)
    assert {each["message"] for each in job["failures"]} == {"its session 'taken' is held by orders 1.0"}
    assert holders(server, SESSIONS) == {"taken": "orders 1.0"}
    server.call(holder.close)
    assert figures(run(control, "delete", SESSIONS)) == (60, 60, 0)
