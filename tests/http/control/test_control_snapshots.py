"""Snapshots over HTTP: taken under load, carried from server to server, restored under the running one."""

from __future__ import annotations

import hashlib
import json
import tarfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiveMode

from emubus.broker.description import QueueDescription
from emubus.testing import EmubusServer

from .client import ROOT, Answered, Http
from .conftest import PARTS, PLAIN, QUEUES, SESSIONS, sdk_of
from .test_control_entities import KEYS, WAIT_S, keyed, send

TAR = {"Content_Type": "application/x-tar"}


@pytest.fixture(params=["memory", "disk"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[EmubusServer]:
    with EmubusServer(QUEUES, data_dir=tmp_path / "data" if request.param == "disk" else None) as running:
        yield running


def everything(control: Http) -> dict[str, Any]:
    """Every message of every entity, and what partitions give out next; locks and use aside."""
    found: dict[str, Any] = {}
    for entity in control.get("/entities")["entities"]:
        path = entity["path"].replace("/", "%2F")
        partitions = control.get(f"/entities/{path}/partitions")["partitions"]
        volatile = {"locked_count": None, "last_activity_at": None}
        found[path] = [{**each, **volatile} for each in partitions]
        for sub_queue in ("active", "dead-letter"):
            shown = control.get(f"/entities/{path}/messages?count=250&sub_queue={sub_queue}")["messages"]
            found[f"{path} {sub_queue}"] = [{**each, "locked_until_at": None} for each in shown]
    return found


def fill(sdk: ServiceBusClient) -> None:
    send(sdk, PARTS, *[keyed(key, key) for key in KEYS])
    send(sdk, SESSIONS, *[ServiceBusMessage(name, session_id=name) for name in "abc"])
    send(sdk, PLAIN, *[ServiceBusMessage("x" * 1_000 * number) for number in range(1, 20)])
    with sdk.get_queue_receiver(PLAIN) as receiver:
        first, second, third = receiver.receive_messages(max_message_count=3, max_wait_time=WAIT_S)
        receiver.dead_letter_message(first)
        receiver.defer_message(second)
        receiver.abandon_message(third)


def test_a_restored_namespace_is_as_it_was_and_works(
    server: EmubusServer, control: Http, sdk: ServiceBusClient
) -> None:
    fill(sdk)
    before = everything(control)
    taken = control.done(control.ask("PUT", "/snapshots/first"))
    counted = sum(sum(each["messages"].values()) for each in control.get("/entities")["entities"])
    assert (taken["name"], taken["store_count"], taken["entity_count"], taken["message_count"]) == (
        "first",
        16,
        3,
        counted,
    )
    assert control.get("/snapshots") == {"snapshots": [taken]}
    assert control.get("/snapshots/first") == taken
    with sdk.get_queue_sender(PLAIN) as sender, sdk.get_queue_receiver(PARTS) as receiver:
        sender.send_messages(ServiceBusMessage("after"))
        for message in receiver.receive_messages(max_message_count=5, max_wait_time=WAIT_S):
            receiver.complete_message(message)
        server.create(QueueDescription("later"))
        server.delete(SESSIONS)
        assert everything(control) != before
        assert control.post("/snapshots/first/restore") == taken
        assert everything(control) == before
        sender.send_messages(ServiceBusMessage("y"))  # on its old link, which was detached
        got: list[str] = []
        while len(got) < len(KEYS):
            more = receiver.receive_messages(max_message_count=50, max_wait_time=WAIT_S)
            assert more
            for message in more:
                receiver.complete_message(message)
                got.append(str(message))
        assert sorted(got) == sorted(KEYS)
    with sdk.get_queue_receiver(SESSIONS, session_id="b") as session:
        assert [str(each) for each in session.receive_messages(max_wait_time=WAIT_S)] == ["b"]
    control.post("/snapshots/first/restore")
    assert everything(control) == before


def test_a_restore_ends_outages_and_locks(server: EmubusServer, control: Http, sdk: ServiceBusClient) -> None:
    server.freeze()
    send(sdk, PLAIN, ServiceBusMessage("x"))
    with sdk.get_queue_receiver(PLAIN) as receiver:
        receiver.receive_messages(max_wait_time=WAIT_S)
        control.ask("PUT", "/snapshots/s")
        control.post("/outages", {"stores": list(range(16)), "kind": "slow", "delay_ms": 1_000_000})
        control.post("/snapshots/s/restore")
    assert {each["health"] for each in control.get("/stores")["stores"]} == {"available"}
    (shown,) = control.get(f"/entities/{PLAIN}/messages")["messages"]
    assert (shown["locked_until_at"], shown["delivery_count"]) == (None, 0)
    with sdk.get_queue_receiver(PLAIN, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE) as receiver:
        assert [str(each) for each in receiver.receive_messages(max_wait_time=WAIT_S)] == ["x"]


def test_the_test_kit_takes_and_restores_snapshots(server: EmubusServer, sdk: ServiceBusClient) -> None:
    server.snapshot("empty")
    send(sdk, PLAIN, ServiceBusMessage("x"))
    assert server.purge(PLAIN) == 1
    send(sdk, PLAIN, ServiceBusMessage("y"))
    assert server.restore("empty").message_count == 0
    assert server.purge() == 0
    server.create(QueueDescription("later"))
    server.reset()
    assert server.call(lambda: {each.path for each in server.server.broker.entities()}) == {PLAIN, PARTS, SESSIONS}


def test_snapshots_are_kept_under_their_names_until_they_are_deleted(control: Http) -> None:
    for name in ("b", "a", "A.1_2-3"):
        control.done(control.ask("PUT", f"/snapshots/{name}"))
    assert [each["name"] for each in control.get("/snapshots")["snapshots"]] == ["b", "a", "A.1_2-3"]
    refused = control.ask("PUT", "/snapshots/a")
    assert (refused.status, refused.json["error"]["message"]) == (409, "There is a snapshot 'a' already.")
    assert control.ask("DELETE", "/snapshots/a").json == {"name": "a"}
    for method, path in (("DELETE", ""), ("GET", ""), ("POST", "/restore"), ("GET", "/archive")):
        assert control.ask(method, f"/snapshots/a{path}").status == 404
    control.done(control.ask("PUT", "/snapshots/a"))


def download(control: Http, name: str) -> bytes:
    answered = control.ask("GET", f"/snapshots/{name}/archive")
    assert (answered.status, answered.headers["Content-Type"]) == (200, "application/x-tar")
    return answered.content


def upload(control: Http, name: str, archive: bytes) -> Answered:
    return control.send("PUT", f"{ROOT}/snapshots/{name}/archive", archive, **TAR)


def test_a_snapshot_is_carried_to_another_server(
    server: EmubusServer, control: Http, sdk: ServiceBusClient, tmp_path: Path
) -> None:
    fill(sdk)
    before = everything(control)
    control.done(control.ask("PUT", "/snapshots/s"))
    archive = download(control, "s")
    with tarfile.open(fileobj=BytesIO(archive)) as files:
        names = files.getnames()
    assert names == ["namespace/data.mdb", "snapshot.json", *(f"store-{index:02}/data.mdb" for index in range(16))]
    for folder in (None, tmp_path / "other"):
        with EmubusServer([QueueDescription("other")], data_dir=folder) as other:
            elsewhere = Http(other.http_port)
            kept = upload(elsewhere, "carried", archive)
            assert (kept.status, kept.json["name"], kept.json["message_count"]) == (201, "carried", len(KEYS) + 3 + 19)
            assert elsewhere.get("/entities")["total"] == 1
            elsewhere.post("/snapshots/carried/restore")
            assert everything(elsewhere) == before
            with sdk_of(other) as client:
                send(client, PLAIN, ServiceBusMessage("y"))


def changed(archive: bytes, name: str, content: bytes | None, new_name: str | None = None) -> bytes:
    """The archive with another content, name or nothing in the place of one file."""
    out = BytesIO()
    with tarfile.open(fileobj=BytesIO(archive)) as files, tarfile.open(fileobj=out, mode="w") as written:
        for member in files:
            source = files.extractfile(member)
            assert source is not None
            data = source.read()
            if member.name == name:
                if content is None and new_name is None:
                    continue
                data = data if content is None else content
                member.name = new_name or member.name
                member.size = len(data)
            written.addfile(member, BytesIO(data))
    return out.getvalue()


def test_what_is_no_snapshot_is_refused_and_nothing_of_it_is_kept(control: Http, tmp_path: Path) -> None:
    control.done(control.ask("PUT", "/snapshots/s"))
    good = download(control, "s")
    manifest = json.loads(next(iter(tar_files(good, "snapshot.json"))))
    bad = {
        "nothing": b"",
        "text": b"no archive at all" * 100,
        "cut": good[: len(good) // 2],
        "escape": changed(good, "store-03/data.mdb", None, "../../escaped"),
        "absolute": changed(good, "store-03/data.mdb", None, str(tmp_path / "escaped")),
        "missing": changed(good, "store-03/data.mdb", None),
        "garbage": changed(good, "store-03/data.mdb", b"\x00" * 50_000),
        "catalog": changed(good, "namespace/data.mdb", b"x" * 10_000),
        "no manifest": changed(good, "snapshot.json", None),
        "manifest": changed(good, "snapshot.json", b"[]"),
        "format": changed(good, "snapshot.json", json.dumps({**manifest, "format": 9}).encode()),
        "counts": changed(good, "snapshot.json", json.dumps({**manifest, "store_count": 10**9}).encode()),
        "more": changed(good, "snapshot.json", json.dumps({**manifest, "more": 1}).encode()),
    }
    for name, archive in bad.items():
        refused = upload(control, "bad", archive)
        assert (refused.status, refused.json["error"]["code"]) == (400, "bad-request"), (name, refused.content)
    assert [each["name"] for each in control.get("/snapshots")["snapshots"]] == ["s"]
    assert not (tmp_path / "escaped").exists()
    assert upload(control, "s", good).status == 409
    assert control.send("PUT", f"{ROOT}/snapshots/x/archive", good, Content_Type="text/plain").status == 415
    assert upload(control, "good", good).status == 201


def tar_files(archive: bytes, name: str) -> Iterator[bytes]:
    with tarfile.open(fileobj=BytesIO(archive)) as files:
        source = files.extractfile(name)
        assert source is not None
        yield source.read()


def test_a_snapshot_of_another_number_of_stores_is_not_restored(control: Http, sdk: ServiceBusClient) -> None:
    control.done(control.ask("PUT", "/snapshots/s"))
    archive = download(control, "s")
    manifest = json.loads(next(iter(tar_files(archive, "snapshot.json"))))
    fewer = changed(archive, "store-15/data.mdb", None)
    fewer = changed(fewer, "snapshot.json", json.dumps({**manifest, "store_count": 15}).encode())
    assert upload(control, "fewer", fewer).status == 201
    send(sdk, PLAIN, ServiceBusMessage("x"))
    refused = control.ask("POST", "/snapshots/fewer/restore")
    assert (refused.status, refused.json["error"]["code"]) == (409, "conflict")
    assert "15 messaging stores and this namespace 16" in refused.json["error"]["message"]
    assert control.get(f"/entities/{PLAIN}")["messages"]["active"] == 1


def test_a_download_is_the_same_each_time(control: Http) -> None:
    control.done(control.ask("PUT", "/snapshots/s"))
    assert len({hashlib.sha256(download(control, "s")).digest() for _ in range(2)}) == 1
