"""Snapshots over HTTP: taken under load, carried from server to server, restored under the running one."""

from __future__ import annotations

import hashlib
import json
import resource
import shutil
import tarfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import lmdb
import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiveMode
from azure.servicebus.exceptions import ServiceBusServerBusyError
from structlog.testing import capture_logs

from emubus.broker.model.descriptions import QueueDescription
from emubus.testing import EmubusServer

from .client import ROOT, Answered, Http
from .conftest import PARTS, PLAIN, QUEUES, SESSIONS, sdk_of
from .test_control_entities import KEYS, WAIT_S, keyed, send

PAGE_BYTES = 4096
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
    assert server.call(lambda: {each.path for each in server.server.broker.namespace.entities()}) == {
        PLAIN,
        PARTS,
        SESSIONS,
    }


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


# ---- snapshots that can't be used


def test_an_archive_of_any_form_but_plain_files_is_refused_before_it_is_unpacked(control: Http, tmp_path: Path) -> None:
    control.done(control.ask("PUT", "/snapshots/s"))
    good = download(control, "s")
    end = good[-2 * tarfile.BLOCKSIZE :]
    plain = good[: -len(end)]

    def header(name: str, kind: bytes, size_bytes: int = 0, target: str = "") -> bytes:
        info = tarfile.TarInfo(name)
        info.type, info.size, info.linkname = kind, size_bytes, target
        return info.tobuf(tarfile.GNU_FORMAT)

    huge = bytearray(header("store-15/data.mdb", tarfile.GNUTYPE_SPARSE))
    huge[386:482] = b"00000000000\0" * 8  # offsets and sizes of the pieces
    huge[483:495] = b"30000000000\0"  # what it would be when unpacked: 3 GiB
    huge[148:156] = b" " * 8
    huge[148:156] = b"%06o\0 " % sum(huge)
    bad = {
        "sparse": bytes(huge),
        "symbolic link": header("store-15/data.mdb", tarfile.SYMTYPE, target="/etc/passwd"),
        "hard link": header("store-15/data.mdb", tarfile.LNKTYPE, target="namespace/data.mdb"),
        "device": header("store-15/data.mdb", tarfile.CHRTYPE),
        "pipe": header("store-15/data.mdb", tarfile.FIFOTYPE),
        "folder": header("store-15", tarfile.DIRTYPE),
        "long name": header("././@LongLink", tarfile.GNUTYPE_LONGNAME, 512) + b"x" * 512,
        "extended header": header("x", tarfile.XHDTYPE, 512) + b"x" * 512,
        "the same file twice": header("store-15/data.mdb", tarfile.REGTYPE, 512) + b"x" * 512,
        "absolute name": header(str(tmp_path / "escaped"), tarfile.REGTYPE),
        "more bytes than follow": header("store-99/data.mdb", tarfile.REGTYPE, 1 << 60),
        "fewer bytes than none": header("store-99/data.mdb", tarfile.REGTYPE, -512),
        "a header of noise": b"\x55" * 512,
    }
    for name, member in bad.items():
        refused = upload(control, "bad", plain + member + end)
        assert (refused.status, refused.json["error"]["code"]) == (400, "bad-request"), (name, refused.content)
        assert refused.json["error"]["message"].startswith("The archive is not a snapshot: "), name
    assert [each["name"] for each in control.get("/snapshots")["snapshots"]] == ["s"]
    assert not (tmp_path / "escaped").exists()
    assert upload(control, "again", good).status == 201


def spoil(folder: Path, part: str, table: str, key: bytes, value: bytes) -> None:
    """Write a row that no server would write into a snapshot."""
    with lmdb.open(str(folder / part), max_dbs=16, lock=False) as env, env.begin(write=True) as txn:
        txn.put(key, value, db=env.open_db(table.encode(), txn))


@pytest.mark.parametrize(
    ("part", "table", "key"),
    [
        ("namespace", "entities", b"qx"),
        ("namespace", "deleted", b"abcd"),
        ("store-03", "messages", b"x"),
        ("store-03", "due", b"x"),
        ("store-15", "state", b"x"),
        ("store-00", "session_messages", b"x"),
        ("store-00", "duplicates", b"x"),
    ],
)
def test_a_snapshot_that_is_not_sound_is_not_restored_and_clients_go_on(
    tmp_path: Path, part: str, table: str, key: bytes
) -> None:
    data = tmp_path / "data"
    with EmubusServer(QUEUES, data_dir=data) as server, sdk_of(server) as sdk:
        control = Http(server.http_port)
        control.done(control.ask("PUT", "/snapshots/s"))
        spoil(data / "snapshots" / "s", part, table, key, b"junk")
        with sdk.get_queue_sender(PLAIN) as sender, sdk.get_queue_receiver(PLAIN) as receiver:
            sender.send_messages(ServiceBusMessage("before"))
            (locked,) = receiver.receive_messages(max_wait_time=WAIT_S)
            before = everything(control)
            refused = control.ask("POST", "/snapshots/s/restore")
            assert (refused.status, refused.json["error"]["code"]) == (409, "conflict")
            row = f"{part}: row {key!r} of table '{table}' can't be read ("
            assert refused.json["error"]["message"].startswith(
                f"The snapshot 's' is damaged and was not restored: {row}"
            )
            assert everything(control) == before
            receiver.complete_message(locked)  # on its link and by its lock, which nobody has taken away
            sender.send_messages(ServiceBusMessage("after"))
        assert not (data / ".restore").exists()
        with urllib.request.urlopen(f"http://127.0.0.1:{server.http_port}/health") as answer:
            assert answer.status == 200


@pytest.mark.parametrize("content", ["zeros", "cut"])
def test_a_snapshot_with_a_damaged_file_is_not_restored(server: EmubusServer, control: Http, content: str) -> None:
    control.done(control.ask("PUT", "/snapshots/s"))
    data_file = server.server.snapshots._folder / "s" / "store-07" / "data.mdb"
    with data_file.open("r+b") as file:
        if content == "cut":
            file.truncate(2 * PAGE_BYTES)
        else:
            size_bytes = file.seek(0, 2)
            file.seek(2 * PAGE_BYTES)
            file.write(bytes(size_bytes - 2 * PAGE_BYTES))
    refused = control.ask("POST", "/snapshots/s/restore")
    assert (refused.status, refused.json["error"]["code"]) == (409, "conflict")
    assert "store-07" in refused.json["error"]["message"]
    assert control.get("/entities")["total"] == 3


@pytest.mark.parametrize("room_bytes", [0, 1, 20_000, 100_000])
def test_a_snapshot_without_room_is_refused_as_busy_and_nothing_of_it_is_left(tmp_path: Path, room_bytes: int) -> None:
    data = tmp_path / "data"
    with EmubusServer(QUEUES, data_dir=data) as server, sdk_of(server) as sdk:
        control = Http(server.http_port)
        send(sdk, PLAIN, *[ServiceBusMessage("x" * 50_000) for _ in range(3)])
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (room_bytes, before[1]))
        try:
            with capture_logs():  # what the server logs goes to a file that is too large, too
                refused = control.ask("PUT", "/snapshots/s")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert (refused.status, refused.json["error"]["code"]) == (503, "unavailable")
        assert "could not be" in refused.json["error"]["message"]
        assert list((data / "snapshots").glob("*")) == []
        assert control.ask("PUT", "/snapshots/s").status == 201


# ---- the folder under the running server


def test_a_data_folder_that_is_taken_away_makes_the_server_unhealthy_until_it_is_back(tmp_path: Path) -> None:
    data = tmp_path / "data"

    def health(server: EmubusServer) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{server.http_port}/health") as answer:
                return answer.status, json.load(answer)["status"]
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)["status"]

    with EmubusServer(QUEUES, data_dir=data) as server, sdk_of(server, retry_total=0) as sdk:
        with sdk.get_queue_sender(PLAIN) as sender:
            sender.send_messages(ServiceBusMessage("first"))
            for take_away in (lambda: None, lambda: shutil.copytree(tmp_path / "away", data)):
                data.rename(tmp_path / "away")
                take_away()
                assert health(server) == (503, "unhealthy")
                with pytest.raises(ServiceBusServerBusyError, match=r"data\.mdb was (deleted|replaced) while"):
                    sender.send_messages(ServiceBusMessage("lost"))
                shutil.rmtree(data, ignore_errors=True)
                (tmp_path / "away").rename(data)
                assert health(server) == (200, "healthy")
        with sdk_of(server) as patient, patient.get_queue_sender(PLAIN) as sender:
            sender.send_messages(ServiceBusMessage("second"))  # its store is tried again soon
        with sdk.get_queue_receiver(PLAIN) as receiver:
            shown = [str(each) for each in receiver.peek_messages(10)]
    assert shown == ["first", "second"]
    with EmubusServer(data_dir=data) as server, sdk_of(server) as sdk, sdk.get_queue_receiver(PLAIN) as receiver:
        assert [str(each) for each in receiver.peek_messages(10)] == ["first", "second"]
