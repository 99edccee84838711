"""The programs of `examples/spark`, each run whole by its `main`: in the shared Spark, with the SDK's messages."""

from __future__ import annotations

import io
import signal
import sys
import threading
from argparse import Namespace
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import archive
import chart
import copy_entity
import job
import key_skew
import pytest
import replay
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceivedMessage

from emubus.spark_connector.errors import Code, ConnectorError
from emubus.testing import EmubusServer

from .conftest import MakeQueue, Send

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SVG = "{http://www.w3.org/2000/svg}"
NEVER_CONNECTED = "Endpoint=sb://localhost:1;SharedAccessKeyName=n;SharedAccessKey=c2VjcmV0;UseDevelopmentEmulator=true"


@pytest.fixture
def secret(server: EmubusServer, tmp_path: Path) -> str:
    """A file with the connection string."""
    file = tmp_path / "secret.txt"
    file.write_text(f"\n{server.connection_string}\n")
    return str(file)


def message(number: int, key: str | None, **more: Any) -> ServiceBusMessage:
    return ServiceBusMessage(
        f"body {number}",
        message_id=f"id{number}",
        partition_key=key,
        application_properties={"number": number, "text": f"t{number}", "half": number / 2},
        **more,
    )


def send_keyed(client: ServiceBusClient, queue: str, numbers: Iterable[int], keys: int) -> None:
    """Messages by number, in order within each key; a batch for each key, for a batch has one."""
    by_key: dict[int, list[ServiceBusMessage]] = {}
    for number in numbers:
        by_key.setdefault(number % keys, []).append(message(number, f"key {number % keys}"))
    with client.get_queue_sender(queue) as sender:
        for each in by_key.values():
            sender.send_messages(each)


def peeked(client: ServiceBusClient, queue: str, **more: Any) -> list[ServiceBusReceivedMessage]:
    """All messages of a queue, in the order of their numbers."""
    found: list[ServiceBusReceivedMessage] = []
    with client.get_queue_receiver(queue, **more) as receiver:
        while True:
            first = found[-1].sequence_number or 0 if found else -1
            some = receiver.peek_messages(max_message_count=250, sequence_number=first + 1)
            if not some:
                return found
            found += some


def content(each: ServiceBusReceivedMessage) -> tuple[Any, ...]:
    """What a sender can set and these tests do."""
    return each.message_id, str(each), each.partition_key, each.application_properties


def contents(numbers: Iterable[int], keys: int) -> list[tuple[Any, ...]]:
    """What `send_keyed` has sent, as `content` shows it; sorted by number."""
    return [
        (
            f"id{number}",
            f"body {number}",
            f"key {number % keys}",
            {b"number": number, b"text": f"t{number}".encode(), b"half": number / 2},
        )
        for number in numbers
    ]


def by_number(rows: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(rows, key=lambda row: int(row[0].removeprefix("id")))


def archived(spark: SparkSession, folder: Path) -> list[tuple[Any, ...]]:
    """An archive's rows by message number."""
    frame = spark.read.parquet(str(folder)).selectExpr(
        "messageId", "CAST(body AS STRING)", "partitionKey", "applicationProperties", "state"
    )
    return by_number(tuple(row) for row in frame.collect())


def rows_of(numbers: Iterable[int], keys: int) -> list[tuple[Any, ...]]:
    """What `archived` gives for what `send_keyed` has sent."""
    return [
        (
            f"id{number}",
            f"body {number}",
            f"key {number % keys}",
            {"number": f'{{"int":{number}}}', "text": f'"t{number}"', "half": str(number / 2)},
            "active",
        )
        for number in numbers
    ]


def said(capsys: pytest.CaptureFixture[str]) -> tuple[str, list[str]]:
    """The last line on stdout without what differs from run to run, and the lines on stderr."""
    out, err = capsys.readouterr()
    return out.strip().rpartition(" in ")[0], err.splitlines()


# ---- archive


def test_an_archive_has_each_message_once_after_a_crash_in_the_middle(
    spark: SparkSession, secret: str, client: ServiceBusClient, queue: str, tmp_path: Path, capsys: Any
) -> None:
    folder = tmp_path / "archive"
    words = ["--connection-string-file", secret, "--queue", queue, "--output", str(folder), "--available-now"]
    words += ["--option", "maxMessagesPerTrigger=25"]
    send_keyed(client, queue, range(40), keys=7)
    assert archive.main(words) == 0
    assert said(capsys)[0] == f"archive: 40 rows of {queue} archived in {folder} (2 batches)"
    assert archived(spark, folder) == rows_of(range(40), keys=7)
    # What a crash leaves: a batch whose files are written, but which neither the archive nor the query has noted.
    for noted in ("_checkpoint/commits/1", "_checkpoint/commits/.1.crc", "_spark_metadata/1", "_spark_metadata/.1.crc"):
        (folder / noted).unlink()
    assert len(archived(spark, folder)) == 25
    send_keyed(client, queue, range(40, 60), keys=7)
    assert archive.main(words) == 0
    assert said(capsys)[0] == f"archive: 35 rows of {queue} archived in {folder} (2 batches)"
    assert archived(spark, folder) == rows_of(range(60), keys=7)
    assert len(peeked(client, queue)) == 60


def test_a_continuous_archive_of_dead_letters_drains_them_and_ends_at_a_signal(
    spark: SparkSession,
    secret: str,
    client: ServiceBusClient,
    queue: str,
    tmp_path: Path,
    capsys: Any,
) -> None:
    folder = tmp_path / "archive"
    send_keyed(client, queue, range(6), keys=1)
    with client.get_queue_receiver(queue) as receiver:
        for each in receiver.receive_messages(max_message_count=6, max_wait_time=60):
            receiver.dead_letter_message(each, reason=f"reason of {each.message_id}")
    words = ["--connection-string-file", secret, "--queue", queue, "--dead-letters", "--output", str(folder)]
    words += ["--drain", "--interval", "100ms"]

    def end_it_when_drained() -> None:
        with (
            client.get_queue_receiver(queue, sub_queue="deadletter") as dead_letters,
            client.get_queue_receiver(queue) as receiver,
        ):
            for _ in range(400):
                if not dead_letters.peek_messages(max_message_count=1, sequence_number=1):
                    break
                # Waits for a message that does not come.
                assert receiver.receive_messages(max_message_count=1, max_wait_time=0.2) == []
        signal.raise_signal(signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    ender = threading.Thread(target=end_it_when_drained)
    ender.start()
    code = archive.main(words)
    ender.join()
    assert (code, signal.getsignal(signal.SIGTERM)) == (128 + signal.SIGTERM, before)
    assert said(capsys)[1][-1] == "archive: stopped: 6 rows are done; the next run continues from the checkpoint"
    rows = spark.read.parquet(str(folder)).select("messageId", "deadLetterReason").collect()
    assert sorted(map(tuple, rows)) == [(f"id{number}", f"reason of id{number}") for number in range(6)]
    assert peeked(client, queue, sub_queue="deadletter") == []


# ---- replay


def test_a_replay_keeps_order_by_key_and_types_and_a_second_one_changes_nothing(
    spark: SparkSession, secret: str, client: ServiceBusClient, make_queue: MakeQueue, send: Send, tmp_path: Path
) -> None:
    source = make_queue()
    target = make_queue(enable_partitioning=True, requires_duplicate_detection=True)
    send_keyed(client, source, range(120), keys=9)
    send(source, ServiceBusMessage("no key", message_id="id120"))
    reader = spark.read.format("servicebus").options(connectionString=Path(secret).read_text(), queue=source)
    frame = reader.option("applicationPropertiesFormat", "json").load()
    # Without ids, and not in order: as an archive of many files may be read.
    no_ids = frame.selectExpr("* EXCEPT (messageId)", "if(messageId = 'id5', null, messageId) AS messageId")
    no_ids.sortWithinPartitions("body").write.parquet(str(tmp_path / "archive"))
    words = ["--connection-string-file", secret, "--input", str(tmp_path / "archive"), "--queue", target]
    assert [replay.main([*words, "--tasks", "3", "--where", "body <> 'body 7'"]) for _ in range(2)] == [0, 0]
    original = {each.message_id: each.sequence_number for each in peeked(client, source)}
    found = peeked(client, target)
    replayed = [content(each) for each in found]
    expected = [row for row in contents(range(120), keys=9) if row[0] != "id7"]
    expected[5] = (f"replay/{original['id5']}", *expected[5][1:])
    no_key = [row for row in replayed if row[0] == "id120"]
    keyed = [row for row in replayed if row[0] != "id120"]
    assert [row[:2] for row in no_key] == [("id120", "no key")]
    assert sorted(keyed, key=lambda row: int(row[1].removeprefix("body "))) == expected
    for key in range(9):
        numbers = [int(row[1].removeprefix("body ")) for row in keyed if row[2] == f"key {key}"]
        assert numbers == [number for number in range(key, 120, 9) if number != 7]


def test_a_total_order_replay_sends_everything_in_order(
    spark: SparkSession, secret: str, client: ServiceBusClient, make_queue: MakeQueue, tmp_path: Path, capsys: Any
) -> None:
    target = make_queue()
    rows = [(number * 7 % 30, f"body {number * 7 % 30}") for number in range(30)]
    frame = spark.createDataFrame(rows, "sequenceNumber bigint, body string")
    frame.repartition(4).write.parquet(str(tmp_path / "archive"))
    words = ["--connection-string-file", secret, "--input", str(tmp_path / "archive"), "--queue", target]
    assert replay.main([*words, "--total-order"]) == 0
    assert said(capsys)[0] == f"replay: 30 rows of {tmp_path / 'archive'} sent to {target}"
    found = [(each.message_id, str(each)) for each in peeked(client, target)]
    assert found == [(f"replay/{number}", f"body {number}") for number in range(30)]


# ---- copy


def test_dead_letters_are_copied_once_to_another_queue(
    spark: SparkSession,
    secret: str,
    client: ServiceBusClient,
    make_queue: MakeQueue,
    capsys: Any,
) -> None:
    source, target = make_queue(), make_queue()
    send_keyed(client, source, range(5), keys=2)
    with client.get_queue_receiver(source) as receiver:
        for each in receiver.receive_messages(max_message_count=5, max_wait_time=60):
            receiver.dead_letter_message(each)
    words = ["--from-connection-string-file", secret, "--from-queue", source, "--from-dead-letters"]
    assert copy_entity.main([*words, "--to-connection-string-file", secret, "--to-queue", target, "--once"]) == 0
    assert said(capsys)[0] == f"copy_entity: 5 rows of {source}/$DeadLetterQueue copied to {target}"
    assert by_number(content(each) for each in peeked(client, target)) == contents(range(5), keys=2)
    assert len(peeked(client, source, sub_queue="deadletter")) == 5


def test_a_streamed_copy_goes_on_where_it_was(
    spark: SparkSession,
    secret: str,
    client: ServiceBusClient,
    make_queue: MakeQueue,
    tmp_path: Path,
    capsys: Any,
) -> None:
    source, target = make_queue(), make_queue(enable_partitioning=True)
    words = ["--from-connection-string-file", secret, "--from-queue", source, "--to-connection-string-file", secret]
    words += ["--to-queue", target, "--checkpoint", str(tmp_path / "checkpoint"), "--available-now"]
    summaries = []
    for numbers in (range(20), range(20, 30)):
        send_keyed(client, source, numbers, keys=3)
        assert copy_entity.main(words) == 0
        summaries.append(said(capsys)[0])
    assert summaries == [f"copy_entity: {n} rows of {source} copied to {target} (1 batches)" for n in (20, 10)]
    copied = [content(each) for each in peeked(client, target)]
    assert by_number(copied) == contents(range(30), keys=3)
    for key in range(3):
        assert [row[0] for row in copied if row[2] == f"key {key}"] == [f"id{n}" for n in range(key, 30, 3)]


# ---- keys


def test_the_skew_of_keys_is_counted_shown_and_drawn(
    spark: SparkSession,
    secret: str,
    client: ServiceBusClient,
    make_queue: MakeQueue,
    tmp_path: Path,
    capsys: Any,
) -> None:
    queue, plot = make_queue(enable_partitioning=True), tmp_path / "plot.svg"
    with client.get_queue_sender(queue) as sender:
        for key, count in (("<big>", 12), ("small", 4), (None, 3)):
            sender.send_messages([ServiceBusMessage(b"x", partition_key=key) for _ in range(count)])
    held: dict[int, list[str | None]] = {partition: [] for partition in range(16)}
    for each in peeked(client, queue):
        held[(each.sequence_number or 0) >> 48].append(each.partition_key)
    home = {key: partition for partition, keys in held.items() for key in keys}
    words = ["--connection-string-file", secret, "--queue", queue, "--plot", str(plot), "--top", "5"]
    assert key_skew.main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [f"{queue}: 19 messages", "partition      messages   share       keys    keyless"]
    assert [line.split()[:5] for line in lines[2:18]] == [
        [
            str(partition),
            str(len(keys)),
            f"{len(keys) / 19:.1%}",
            str(len({key for key in keys if key})),
            str(keys.count(None)),
        ]
        for partition, keys in held.items()
    ]
    most = max(map(len, held.values()))
    assert lines[18:] == [
        f"the fullest has {most / (19 / 16):.2f} times the mean of 1.2",
        "partition      messages   share  key",
        f"{home['<big>']:>9}            12   63.2%  <big>",
        f"{home['small']:>9}             4   21.1%  small",
        f"drawn to {plot}",
    ]
    root = ElementTree.parse(plot).getroot()
    texts = [each.text for each in root.iter(f"{SVG}text")]
    assert texts[0] == f"{queue}: 19 messages"
    assert texts[1:33:2] == [str(len(keys)) for keys in held.values()]
    assert texts[2:34:2] == [str(partition) for partition in range(16)]
    assert texts[33:] == [
        "mean",
        "messages by partition",
        "<big>",
        f"12 in partition {home['<big>']}",
        "small",
        f"4 in partition {home['small']}",
    ]


def test_the_skew_of_an_archive_by_another_key(spark: SparkSession, tmp_path: Path, capsys: Any) -> None:
    rows = [(0, f"subject {number % 3}") for number in range(10)]
    frame = spark.createDataFrame(rows, "partitionId int, subject string")
    frame.write.parquet(str(tmp_path / "archive"))
    words = ["--input", str(tmp_path / "archive"), "--key", "subject", "--top", "1"]
    assert key_skew.main([*words, "--plot", str(tmp_path / "plot.svg")]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{tmp_path / 'archive'}: 10 messages",
        "partition      messages   share       keys    keyless",
        f"        0            10  100.0%          3          0  {'█' * 30}",
        "the fullest has 1.00 times the mean of 10.0",
        "partition      messages   share  key",
        "        0             4   40.0%  subject 0",
        f"drawn to {tmp_path / 'plot.svg'}",
    ]


def test_bars_are_as_long_as_their_numbers() -> None:
    drawn = chart.draw("t", {0: 30, 1: 10}, [chart.KeyCount("k" * 40, 0, 20)])
    bars = [each.attrib for each in ElementTree.fromstring(drawn).iter(f"{SVG}rect")][1:]
    assert [(each["height"], each["fill"]) for each in bars[:3]] == [
        ("186.7", chart.COLOURS[0]),
        ("93.3", chart.REST_COLOUR),
        ("93.3", chart.REST_COLOUR),
    ]
    assert "k" * 27 + "…" in drawn
    assert "k" * 28 not in drawn


# ---- errors of one line


def test_what_the_service_refuses_is_reported_in_one_line(
    spark: SparkSession, secret: str, tmp_path: Path, capsys: Any
) -> None:
    words = ["--connection-string-file", secret, "--queue", "nosuch", "--output", str(tmp_path / "archive")]
    assert archive.main([*words, "--available-now"]) == 1
    out, lines = said(capsys)
    assert (out, len([line for line in lines if "rows" not in line])) == ("", 1)
    assert lines[-1].startswith("archive: [SERVICEBUS_ENTITY_NOT_FOUND] nosuch: ")


def test_an_archive_that_is_not_there_is_reported_in_one_line(
    spark: SparkSession, secret: str, tmp_path: Path, capsys: Any
) -> None:
    nowhere = tmp_path / "nowhere"
    assert replay.main(["--connection-string-file", secret, "--input", str(nowhere), "--queue", "q"]) == 1
    expected = f"replay: [PATH_NOT_FOUND] Path does not exist: file:{nowhere}. SQLSTATE: 42K03\n"
    assert capsys.readouterr() == ("", expected)


@pytest.mark.parametrize(
    ("program", "words", "line"),
    [
        (archive, ["--queue", "q", "--interval", "soon"], "--interval 'soon' is no duration, like 500ms, 10s or 2m"),
        (archive, ["--queue", "q", "--option", "modedrain"], "--option takes NAME=VALUE, and there is no '='"),
        (
            archive,
            ["--queue", "q", "--option", "moode=drain"],
            "[SERVICEBUS_UNKNOWN_OPTION] there is no option 'moode': did you mean mode?",
        ),
        (
            archive,
            [],
            "[SERVICEBUS_OPTION_INVALID] nothing to read: name a queue by the option queue, or a subscription by topic "
            "and subscription",
        ),
        (
            key_skew,
            ["--queue", "q", "--plot", "/nowhere/a.svg"],
            "--plot '/nowhere/a.svg' must be a file ending in .svg in a folder that exists",
        ),
        (
            key_skew,
            ["--queue", "q", "--plot", "a.png"],
            "--plot 'a.png' must be a file ending in .svg in a folder that exists",
        ),
        (
            key_skew,
            ["--queue", "q", "--input", "folder"],
            "give either --input or an entity with its connection, not both",
        ),
    ],
)
def test_wrong_arguments_are_reported_in_one_line_before_anything_is_done(
    program: Any, words: list[str], line: str, tmp_path: Path, capsys: Any
) -> None:
    file = tmp_path / "secret.txt"
    file.write_text(NEVER_CONNECTED)
    more = ["--output", str(tmp_path / "archive")] if program is archive else []
    assert program.main(["--connection-string-file", str(file), *more, *words]) == 2
    name = program.__name__.rpartition(".")[2]
    assert capsys.readouterr() == ("", f"{name}: {line}\n")
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ([], "give one of --once and --checkpoint"),
        (["--once", "--checkpoint", "folder"], "give one of --once and --checkpoint"),
        (["--once"], "give one of --to-queue and --to-topic"),
        (
            ["--once", "--to-queue", "b", "--drain"],
            "[SERVICEBUS_MODE_UNSUPPORTED] mode=drain with spark.read: a batch query never learns when its rows are "
            "safe, so it can't take messages away; use readStream.trigger(availableNow=True), or mode=browse",
        ),
    ],
)
def test_a_copy_needs_a_target_and_a_way(words: list[str], line: str, tmp_path: Path, capsys: Any) -> None:
    file = tmp_path / "secret.txt"
    file.write_text(NEVER_CONNECTED)
    ends = ["--from-connection-string-file", str(file), "--to-connection-string-file", str(file), "--from-queue", "a"]
    assert copy_entity.main([*ends, *words]) == 2
    assert capsys.readouterr() == ("", f"copy_entity: {line}\n")


def test_a_secret_is_read_from_a_file_or_stdin_and_never_shown(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["--queue", "q", "--output", str(tmp_path / "archive")]
    (tmp_path / "two").write_text(f"{NEVER_CONNECTED}\n{NEVER_CONNECTED}\n")
    codes = [archive.main(["--connection-string-file", str(tmp_path / name), *words]) for name in ("none", "two")]
    monkeypatch.setattr(sys, "stdin", io.StringIO("Endpoint=sb://h;SharedAccessKey=c2VjcmV0"))
    codes.append(archive.main(["--connection-string-file", "-", *words]))
    out, err = capsys.readouterr()
    assert (codes, out, "c2VjcmV0" in err) == ([2, 2, 2], "", False)
    assert err.splitlines()[:2] == [
        f"archive: the connection string can't be read from '{tmp_path / 'none'}': No such file or directory",
        f"archive: '{tmp_path / 'two'}' must hold one line, the connection string; it holds 2",
    ]
    assert err.splitlines()[2].startswith("archive: [SERVICEBUS_OPTION_INVALID] ")


@pytest.mark.parametrize("program", [archive, replay, copy_entity, key_skew])
def test_each_program_explains_itself(program: Any, capsys: Any) -> None:
    with pytest.raises(SystemExit) as ended:
        program.main(["--help"])
    shown = capsys.readouterr().out
    assert ended.value.code == 0
    assert (program.__doc__.splitlines()[0] in shown, "exit codes: 0 done" in shown) == (True, True)


def test_numbers_out_of_range_are_wrong_arguments(capsys: Any) -> None:
    with pytest.raises(SystemExit) as replay_ended:
        replay.main(["--input", "folder", "--tasks", "0"])
    with pytest.raises(SystemExit) as skew_ended:
        key_skew.main(["--top", "many"])
    assert (replay_ended.value.code, skew_ended.value.code) == (2, 2)
    lines = [line for line in capsys.readouterr().err.splitlines() if "error:" in line]
    assert lines == [
        "replay: error: argument --tasks: '0' is no number from 1 to 10000",
        "key_skew: error: argument --top: 'many' is no number from 1 to 1000",
    ]


# ---- lines


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "[STREAM_FAILED] terminated: Traceback (most recent call last):\n  File x\nemubus.ConnectorError: "
            "[SERVICEBUS_DATA_LOSS] q: gone\n\n JVM stacktrace",
            "[SERVICEBUS_DATA_LOSS] q: gone",
        ),
        (
            "An error occurred while calling o1.save.\n: org.apache.spark.SparkException: no\n\tat x",
            "org.apache.spark.SparkException: no",
        ),
        ("[PYTHON_EXCEPTION] Traceback (most recent call last):\n  File x\nValueError: bad", "ValueError: bad"),
        ("", "ValueError"),
        ("x" * 1001, "x" * 1000 + "…"),
    ],
)
def test_an_error_of_many_lines_becomes_the_one_that_says_most(text: str, line: str) -> None:
    assert job.one_line(ValueError(text)) == line


def test_an_error_of_the_connector_is_its_own_line() -> None:
    assert job.one_line(ConnectorError(Code.REFUSED, "no")) == "[SERVICEBUS_REFUSED] no"


def test_progress_tells_what_is_known() -> None:
    known = job.Snapshot(rows=1500, rows_per_s=999.6, lag=500, batch=3, tasks=(7, 16))
    assert [str(each) for each in (known, job.Snapshot(tasks=(1, 4)), job.Snapshot(rows=0, lag=0))] == [
        "1,500 rows, 1,000 rows/s, lag 500, 75 %, batch 3, 7 of 16 tasks",
        "25 %, 1 of 4 tasks",
        "0 rows, lag 0",
    ]


def test_progress_is_reported_at_most_every_second_and_only_if_it_changed(
    monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    now_s = [100.0]
    monkeypatch.setattr(job, "monotonic", lambda: now_s[0])
    run = job.Job("archive", Namespace(verbose=False))
    for at_s, rows in ((100.5, 1), (101.0, 2), (101.9, 3), (102.0, 4), (103.0, 4), (103.1, 5)):
        now_s[0] = at_s
        run.show_progress(job.Snapshot(rows=rows))
    assert capsys.readouterr().err.splitlines() == ["archive: 2 rows", "archive: 4 rows", "archive: 5 rows"]
