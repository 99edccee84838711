"""A data folder from its making to its end: older ones open, others are refused, what was cut short is finished."""

from __future__ import annotations

import json
import shutil
import stat
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
import structlog
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusClient, ServiceBusMessage
from structlog.testing import LogCapture, capture_logs

from emubus import data_folder, snapshots
from emubus.broker.admin.folder_view import DataFolderError
from emubus.broker.admin.verify import check_data_folder
from emubus.broker.model.catalog import CatalogError
from emubus.broker.model.descriptions import QueueDescription
from emubus.data_folder import DataFolder, read_namespace
from emubus.namespace import own_folder
from emubus.server import StartError
from emubus.storage import (
    FORMAT_VERSION,
    FolderState,
    Manifest,
    StoreError,
    mark_store,
    read_manifest,
    sync_file,
    sync_store,
    write_manifest,
)
from emubus.testing import EmubusServer

from ..log_levels import every_level
from ..rounds import rounds
from .folders import small
from .folders.killing import Kill, Killed
from .folders.making import CASES, PURGED, SPREAD, TARGET, WAIT_S, found
from .folders.opening import STORES, contents, rows_of

FOLDERS = Path(__file__).with_name("folders")
LATER = (TARGET, PURGED)
STEPS_MAX = 100
PARTS = ["namespace", "store-00", "store-01"]


@pytest.fixture
def kill_at(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """Die before the n-th change of a folder."""
    kill = Kill()
    counted = kill.counted
    monkeypatch.setattr(data_folder, "mark_store", counted(mark_store))
    monkeypatch.setattr(data_folder, "sync_store", counted(sync_store))
    monkeypatch.setattr(data_folder, "write_manifest", counted(write_manifest))
    monkeypatch.setattr(shutil, "rmtree", counted(shutil.rmtree))
    yield kill.arm
    monkeypatch.undo()


def ends(work: Path, begin: Callable[[], None], kill_at: Callable[[int], None]) -> Iterator[None]:
    """Begin a start that is killed at its first step, its second, and so on; each time yield to look at the folder."""
    for count in range(1, STEPS_MAX):
        begin()
        kill_at(count)
        try:
            with suppress(Killed):
                rows_of(work)
                return
        finally:
            kill_at(0)
        yield
        shutil.rmtree(work)
    raise AssertionError("there are more steps than were tried")


def prepare(folder: Path) -> None:
    owned = own_folder(folder)
    try:
        owned.prepare(STORES)
    finally:
        owned.release()


def message_rows(rows: dict[str, str]) -> list[str]:
    return [rows[f"store-0{index} messages"].split()[0] for index in range(STORES)]


@pytest.mark.parametrize(
    ("archive", "folder", "later"),
    [
        ("format-1", "data", ()),
        ("format-3", "killed", LATER),
        ("format-4", "data", LATER),
        ("format-5", "killed", LATER),
        *rounds((), (("format-3", "data", LATER), ("format-4", "killed", LATER), ("format-5", "data", LATER))),
    ],
)
def test_a_folder_of_an_older_release_opens_with_every_message_and_is_upgraded_with_one_line(
    archive: str, folder: str, later: Sequence[str], tmp_path: Path
) -> None:
    with tarfile.open(FOLDERS / f"{archive}.tar.gz") as packed:
        packed.extractall(tmp_path, filter="data")
    data = tmp_path / folder
    before = contents(data)
    report = check_data_folder(data)
    assert report.problems == []
    assert report.notes == ["an older release of emubus made it: the next start upgrades it"]
    assert contents(data) == before
    expected = json.loads((FOLDERS / f"{archive}.json").read_text())
    with (
        every_level(),
        capture_logs() as lines,
        EmubusServer(data_dir=data) as server,
        ServiceBusClient.from_connection_string(server.connection_string) as client,
    ):
        shown = json.loads(json.dumps(found(client, later)))
        if later:
            assert [each.sequence_number for each in server.peek(PURGED)] == [6, 7]  # five before the purge
    assert shown == expected
    (upgrade,) = [line for line in lines if "upgrad" in line["event"]]
    assert (upgrade["from_format"], upgrade["to_format"]) == (int(archive[-1]), FORMAT_VERSION)
    manifest = read_manifest(data)
    assert manifest is not None
    assert (manifest.state, len(manifest.parts), manifest.version) == (FolderState.CLOSED, 17, FORMAT_VERSION)
    assert (check_data_folder(data).problems, check_data_folder(data).notes) == ([], [])


@pytest.mark.parametrize("folder", ["data", "killed"])
def test_sessions_that_differed_in_case_are_one_and_partitions_stay_where_they_were(
    folder: str, tmp_path: Path
) -> None:
    with tarfile.open(FOLDERS / "format-4.tar.gz") as packed:
        packed.extractall(tmp_path, filter="data")
    with (
        EmubusServer(data_dir=tmp_path / folder) as server,
        ServiceBusClient.from_connection_string(server.connection_string) as client,
    ):
        assert in_session(client, CASES, "miXed") == (["0", "1", "2", "5"], b"newer")
        assert in_session(client, CASES, "Äö") == (["3", "4"], b"other")
        assert in_session(client, CASES, "Lower") == (["6"], None)
        assert in_session(client, CASES, "upper") == (["7"], b"only")
        assert in_session(client, CASES, "EMPTY") == ([], b"no messages")
        taken = [next_session(client, CASES) for _ in range(4)]
        assert taken == [("mixed", 4), ("äö", 2), ("lower", 1), ("upper", 1)]
        spread = {"Mixed": (["0", "5"], b"newer"), "UPPER": (["7"], b"only"), "Empty": ([], b"no messages")}
        assert {name: in_session(client, SPREAD, name) for name in spread} == spread
        with client.get_queue_sender(SPREAD) as sender:
            sender.send_messages(ServiceBusMessage("more", session_id="UPPER", message_id="8"))
        assert in_session(client, SPREAD, "UPPER")[0] == ["7", "8"]
    assert check_data_folder(tmp_path / folder).problems == []


def in_session(client: ServiceBusClient, queue: str, name: str) -> tuple[list[str | None], bytes | None]:
    """The ids of the messages in a session, and its state."""
    with client.get_queue_receiver(queue, session_id=name) as receiver:
        state = receiver.session.get_state()
        ids = [each.message_id for each in receiver.peek_messages(100)]
        return ids, state


def next_session(client: ServiceBusClient, queue: str) -> tuple[str, int]:
    """The next session's name in lower case, and how many messages were received from it."""
    with client.get_queue_receiver(queue, session_id=NEXT_AVAILABLE_SESSION) as receiver:
        messages = receiver.receive_messages(max_message_count=10, max_wait_time=WAIT_S)
        for each in messages:
            receiver.complete_message(each)
        return (receiver.session.session_id or "").lower(), len(messages)


def test_a_snapshot_of_an_older_release_is_restored(tmp_path: Path) -> None:
    with tarfile.open(FOLDERS / "format-3.tar.gz") as packed:
        packed.extractall(tmp_path, filter="data")
    old = tmp_path / "data"
    (old / "emubus.json").unlink()
    values = {"format": 1, "taken_at": 1, "entity_count": 11, "message_count": 1, "store_count": 16, "size_bytes": 1}
    (old / "snapshot.json").write_text(json.dumps(values))
    expected = json.loads((FOLDERS / "format-3.json").read_text())
    with (
        EmubusServer(data_dir=tmp_path / "new") as server,
        ServiceBusClient.from_connection_string(server.connection_string) as client,
    ):
        (tmp_path / "new" / "snapshots").mkdir(exist_ok=True)
        old.rename(tmp_path / "new" / "snapshots" / "old")
        server.restore("old")
        assert json.loads(json.dumps(found(client))) == expected


def test_an_upgrade_that_is_cut_short_at_any_step_is_finished_by_the_next_start(
    small_folders: Path, kill_at: Callable[[int], None], tmp_path: Path
) -> None:
    work = tmp_path / "work"

    def begin() -> None:
        shutil.copytree(small_folders / "closed", work)
        small.age(work)

    begin()
    expected = rows_of(work)
    shutil.rmtree(work)
    kills = 0
    for _ in ends(work, begin, kill_at):
        kills += 1
        assert check_data_folder(work).problems == []
        assert rows_of(work) == expected
    assert kills > len(PARTS)
    assert message_rows(expected) != ["0", "0"]


def test_a_making_that_is_cut_short_at_any_step_is_done_again_by_the_next_start(
    kill_at: Callable[[int], None], tmp_path: Path
) -> None:
    work = tmp_path / "work"
    kills = 0
    for _ in ends(work, lambda: None, kill_at):
        kills += 1
        assert message_rows(rows_of(work)) == ["0", "0"]
        assert check_data_folder(work).problems == []
    assert kills > len(PARTS)


def test_a_deletion_that_is_cut_short_at_any_step_is_finished_by_the_next_start(
    small_folders: Path, kill_at: Callable[[int], None], tmp_path: Path
) -> None:
    work = tmp_path / "work"

    def begin() -> None:
        shutil.copytree(small_folders / "closed", work)
        owned = own_folder(work, fresh=True)
        owned.release()

    kills = 0
    for _ in ends(work, begin, kill_at):
        kills += 1
        assert message_rows(rows_of(work)) == ["0", "0"]
    assert kills > 2 * len(PARTS)


def test_an_upgrade_with_a_store_of_another_folder_in_it_is_refused(
    small_folders: Path, kill_at: Callable[[int], None], tmp_path: Path
) -> None:
    work = tmp_path / "work"
    shutil.copytree(small_folders / "closed", work)
    small.age(work)
    kill_at(4)
    with suppress(Killed):
        rows_of(work)
    kill_at(0)
    shutil.rmtree(work / "store-01")
    shutil.copytree(small_folders / "closed" / "store-01", work / "store-01")
    with pytest.raises(DataFolderError, match=r"store-01/data\.mdb .* belongs to another data folder"):
        rows_of(work)


def test_a_folder_of_the_first_release_without_one_of_its_stores_is_refused(
    small_folders: Path, tmp_path: Path
) -> None:
    for name in PARTS:
        work = tmp_path / name
        shutil.copytree(small_folders / "closed", work)
        small.age(work)
        shutil.rmtree(work / name)
        before = contents(work)
        with pytest.raises(DataFolderError, match=f"data folder {work}: {name}/data.mdb is missing; "):
            prepare(work)
        assert contents(work).items() - before.items() <= {("emubus.lock", contents(work)["emubus.lock"])}


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"format": "2"}', b'{"format": 2}', b"[" * 100_000])
def test_a_manifest_that_cannot_be_read_is_refused_by_name(small_folders: Path, content: bytes, tmp_path: Path) -> None:
    shutil.copytree(small_folders / "closed", tmp_path / "data")
    (tmp_path / "data" / "emubus.json").write_bytes(content)
    with pytest.raises(DataFolderError, match=r"emubus\.json can't be used: "):
        prepare(tmp_path / "data")


def test_a_folder_of_a_newer_format_is_refused_with_the_release_that_wrote_it(
    small_folders: Path, tmp_path: Path
) -> None:
    shutil.copytree(small_folders / "closed", tmp_path / "data")
    (tmp_path / "data" / "emubus.json").write_text('{"format": 7, "release": "7.0", "more": {}}')
    with pytest.raises(DataFolderError, match=r"format version 7 .* up to 6: use the release that wrote it \('7\.0'\)"):
        prepare(tmp_path / "data")
    assert "format version 7" in check_data_folder(tmp_path / "data").problems[0]


# ---- other folders


def test_a_folder_with_content_of_others_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "main.py").write_text("print()")
    before = contents(tmp_path)
    for fresh in (False, True):
        with pytest.raises(DataFolderError) as raised:
            own_folder(tmp_path, fresh=fresh)
        assert str(raised.value) == (
            f"data folder {tmp_path}: is not empty, and not a data folder of emubus (it has src); "
            "name an empty or a new folder with --data"
        )
    assert check_data_folder(tmp_path).problems == ["is not empty, and not a data folder of emubus (it has src)"]
    with pytest.raises(StoreError, match="not a data folder of emubus"):
        read_namespace(tmp_path)
    assert contents(tmp_path) == before


def test_what_tools_put_into_empty_folders_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()
    (tmp_path / ".gitkeep").touch()
    assert message_rows(rows_of(tmp_path)) == ["0", "0"]


def test_a_folder_with_snapshots_only_is_not_taken_for_new(small_folders: Path, tmp_path: Path) -> None:
    (tmp_path / "snapshots" / "s").mkdir(parents=True)
    with pytest.raises(DataFolderError, match=r"is not empty, and emubus\.json and all stores are missing; .*--fresh"):
        prepare(tmp_path)
    assert message_rows(rows_of_fresh(tmp_path)) == ["0", "0"]
    assert (tmp_path / "snapshots" / "s").is_dir()


def rows_of_fresh(folder: Path) -> dict[str, str]:
    own_folder(folder, fresh=True).release()
    return rows_of(folder)


# ---- fresh


@pytest.mark.parametrize("damage", ["none", "manifest", "store"])
def test_fresh_deletes_entities_and_messages_and_keeps_the_rest(
    small_folders: Path, damage: str, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    small.copy(small_folders / "open", data)
    for kept in ("snapshots/s/snapshot.json", "tls/ca.pem", "notes.txt"):
        (data / kept).parent.mkdir(parents=True, exist_ok=True)
        (data / kept).write_text("kept")
    if damage == "manifest":
        (data / "emubus.json").unlink()
    elif damage == "store":
        (data / "store-01" / "data.mdb").write_bytes(b"junk")
    command = ["serve", "--fresh", "--amqp-port", "0", "--http-port", "0", "--data", str(data)]
    command += ["--profile", "premium", "--premium-partitions", "2"]
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "emubus", *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert "Successfully Up" in process.stdout.readline()
        process.terminate()
        log = process.stderr.read()
    assert "deleted=namespace, store-00, store-01" in log.replace("'", "").replace('"', "")
    report = check_data_folder(data)
    assert (report.problems, list(report.queues)) == ([], ["queue.1"])
    for kept in ("snapshots/s/snapshot.json", "tls/ca.pem", "notes.txt"):
        assert (data / kept).read_text() == "kept"


def test_fresh_deletes_no_file_of_others(small_folders: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(small_folders / "closed", data)
    (data / "store-01" / "thesis.txt").write_text("mine")
    before = contents(data)
    with pytest.raises(
        DataFolderError, match=r"store-01/thesis\.txt is not emubus's, and is not deleted; move it away"
    ):
        own_folder(data, fresh=True)
    assert contents(data).items() - before.items() <= {("emubus.lock", contents(data)["emubus.lock"])}


# ---- rows


JUNK = {
    "entity without a description": ("namespace", "entities", b"qx", b"{}"),
    "entity of no kind": ("namespace", "entities", b"zx", b'{"id": 1, "description": {}}'),
    "entity that is no JSON": ("namespace", "entities", b"qx", b"\xff"),
    "count of stores": ("namespace", "namespace", b"store_count", b"many"),
    "deleted entity": ("namespace", "deleted", b"abcd", b"null"),
    "counters": ("store-01", "state", b"\0\0\0\1", b"junk"),
    "key of counters": ("store-00", "state", b"junk junk", b"junk"),
    "due": ("store-00", "due", b"\0", b""),
}


@pytest.mark.parametrize("junk", JUNK)
def test_a_row_that_cannot_be_read_is_named_by_the_start_and_by_the_check(
    small_folders: Path, junk: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    small.copy(small_folders / "open", data)
    part, table, key, value = JUNK[junk]
    small.put_row(data, part, table, key, value)
    named = rf"{part}: row {key!r} of table '{table}' can't be read \("
    found_by_check = "\n".join(check_data_folder(data).problems)
    assert named.replace("\\(", "(") in found_by_check.replace("\\\\", "\\")
    with pytest.raises(StartError) as raised:
        small.run(data)
    assert named.replace("\\(", "(") in str(raised.value)
    assert ("\n" in str(raised.value), raised.value.exit_code) == (False, 2)
    assert "--fresh" in str(raised.value)


def test_a_stored_message_that_cannot_be_read_is_found_by_the_check(small_folders: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    small.copy(small_folders / "open", data)
    small.put_row(data, "store-00", "messages", b"short", b"junk")
    (problem, *_) = check_data_folder(data).problems
    assert problem.startswith("store-00: row b'short' of table 'messages' can't be read (error: ")


def test_a_property_that_cannot_change_is_refused_with_every_remedy(tmp_path: Path) -> None:
    def start(*, sessions: bool) -> None:
        queue = {"Name": "q", "Properties": {"RequiresSession": sessions}}
        namespace = {"Name": "n", "Queues": [queue], "Topics": []}
        config = tmp_path / "Config.json"
        config.write_text(json.dumps({"UserConfig": {"Namespaces": [namespace], "Logging": {"Type": "File"}}}))
        EmubusServer(config_file=config, data_dir=tmp_path / "data").close()

    start(sessions=False)
    with pytest.raises(StartError) as raised:
        start(sessions=True)
    assert raised.value.exit_code == 2
    assert str(raised.value) == (
        "'q': RequiresSession is false in the data folder and true in the configuration; it is chosen when an entity "
        "is created and can't be changed: keep the old value in the configuration, delete the entity before the next "
        "start, or start with --fresh (EMUBUS_FRESH=yes), which deletes all entities and messages of the data folder"
    )
    start(sessions=False)


# ---- who may read it


def test_only_the_owner_may_read_a_new_data_folder_and_what_is_in_it(tmp_path: Path) -> None:
    data = tmp_path / "a" / "data"
    with EmubusServer([QueueDescription("q")], data_dir=data, tls_dir=data) as server:
        server.snapshot("s")
        server.restore("s")
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (data, *data.rglob("*"))}
    wrong = {
        str(path.relative_to(tmp_path)): f"{mode:04o}"
        for path, mode in modes.items()
        if mode != (0o700 if path.is_dir() else 0o600) and path.name != "ca.pem"
    }
    assert wrong == {}


def test_a_wider_mode_of_an_older_folder_is_left_and_logged(
    small_folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    shutil.copytree(small_folders / "closed", data)
    logged = LogCapture()
    logger = structlog.wrap_logger(None, processors=[logged], wrapper_class=structlog.BoundLogger)
    monkeypatch.setattr(data_folder, "log", logger)  # that of the module may be bound to another test's settings
    owned = DataFolder(data, "test")
    owned.warn_of_readers()
    assert logged.entries == []
    data.chmod(0o755)
    (data / "store-00" / "data.mdb").chmod(0o644)
    owned.warn_of_readers()
    owned.release()
    assert [each["remedy"] for each in logged.entries] == [f"chmod -R go= {data}"]
    assert (stat.S_IMODE(data.stat().st_mode), stat.S_IMODE((data / "store-00/data.mdb").stat().st_mode)) == (
        0o755,
        0o644,
    )


def test_the_catalog_error_is_no_traceback_for_route(small_folders: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    small.copy(small_folders / "open", data)
    small.put_row(data, "namespace", "entities", b"qx", b"{}")
    with pytest.raises(CatalogError, match="namespace: row b'qx' of table 'entities' can't be read"):
        read_namespace(data)


def test_new_parts_are_on_the_disk_before_the_manifest_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []

    def write(folder: Path, manifest: Manifest) -> None:
        steps.append(manifest.state.value)
        write_manifest(folder, manifest)

    def sync(folder: Path) -> None:
        steps.append(folder.name)
        sync_store(folder)

    monkeypatch.setattr(data_folder, "write_manifest", write)
    monkeypatch.setattr(data_folder, "sync_store", sync)
    owned = DataFolder(tmp_path / "data", "test")
    owned.prepare(2)
    owned.release()
    assert (steps[0], sorted(steps[1:4]), steps[4:]) == ("making", PARTS, ["open", "closed"])


def test_the_names_of_a_new_folder_and_of_its_snapshots_are_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []

    def noted(path: Path) -> None:
        synced.append(path)
        sync_file(path)

    monkeypatch.setattr(data_folder, "sync_file", noted)
    monkeypatch.setattr(snapshots, "sync_file", noted)
    with EmubusServer([QueueDescription("q")], data_dir=tmp_path / "above" / "data") as server:
        assert synced[:2] == [tmp_path / "above", tmp_path]  # by the names of the folders in them
        synced.clear()
        server.snapshot("s")
        assert tmp_path / "above" / "data" in synced
        assert tmp_path / "above" / "data" / "snapshots" in synced
