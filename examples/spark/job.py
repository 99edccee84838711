"""Shared by the programs of this folder: arguments, the Spark session, progress, and clear ends.

Knows how a program runs: it reports wrong arguments before Spark is started, shows its progress in one line on stderr
at most every second, ends in good order on SIGINT and SIGTERM, and shows failures as one line. Exit codes: 0 done, 1
failed, 2 wrong arguments, 128 + N stopped by signal N. Does not know what is read and written.

A `Job` lives for one run of a program. It stops the Spark session only if it has started it.
"""

from __future__ import annotations

import re
import signal
import sys
import threading
import traceback
import uuid
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from emubus.codec.durations import parse_seconds
from emubus.spark_connector import Code, ConnectorError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

T = TypeVar("T")
DONE, FAILED, WRONG_ARGUMENTS, BY_SIGNAL = 0, 1, 2, 128
POLL_S: Final = 0.25
QUERY_POLL_S: Final = 1  # Spark takes whole seconds
LINE_INTERVAL_S: Final = 1.0
ERROR_CHARS_MAX: Final = 1_000
WORK_STAYS: Final = "what had been done stays"
_ARGUMENT_CODES: Final = frozenset({Code.OPTION_INVALID, Code.UNKNOWN_OPTION, Code.MODE_UNSUPPORTED})
_CONNECTOR_LINES: Final = re.compile(r"\[SERVICEBUS_[A-Z_]+\] [^\n]*")
_PYTHONS: Final = re.compile(r"^\s*(?:[\w.]+\.)?(\w*(?:Error|Exception)\b.*)$", re.MULTILINE)


class WrongArgumentsError(Exception):
    """Invalid arguments; one line."""


class StoppedError(Exception):
    """A signal came before the work was done."""


# ---- arguments


def make_parser(name: str, about: str | None) -> ArgumentParser:
    """A parser with the arguments that all these programs take; `about` is the program's docstring."""
    parser = ArgumentParser(
        prog=name,
        description=about,
        formatter_class=RawDescriptionHelpFormatter,
        epilog="exit codes: 0 done, 1 failed, 2 wrong arguments, 130 and 143 stopped by SIGINT and SIGTERM",
    )
    parser.add_argument("--verbose", action="store_true", help="show Spark's log, and where in the code a failure was")
    return parser


def add_connection(parser: ArgumentParser, prefix: str = "", what: str = "the connector") -> None:
    """`--connection-string-file` and `--option`, with `prefix` before their names."""
    parser.add_argument(
        f"--{prefix}connection-string-file",
        metavar="FILE",
        help="a file that holds the connection string, - for stdin; without it give its parts by options",
    )
    parser.add_argument(
        f"--{prefix}option",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help=f"any other option of {what}, may be repeated",
    )


def add_source(parser: ArgumentParser, prefix: str = "") -> None:
    parser.add_argument(f"--{prefix}queue", metavar="QUEUE", help="read this queue")
    parser.add_argument(f"--{prefix}topic", metavar="TOPIC", help="read a subscription of this topic")
    parser.add_argument(f"--{prefix}subscription", metavar="NAME", help="which subscription")
    parser.add_argument(f"--{prefix}dead-letters", action="store_true", help="read its dead letters instead")


def add_target(parser: ArgumentParser, prefix: str = "") -> None:
    parser.add_argument(f"--{prefix}queue", metavar="QUEUE", help="write to this queue")
    parser.add_argument(f"--{prefix}topic", metavar="TOPIC", help="write to this topic")


def connector_options(arguments: Namespace, prefix: str = "", **defaults: str) -> dict[str, str]:
    """The connector's options that the arguments give; WrongArgumentsError if the file or an option can't be read."""
    values = vars(arguments)
    prefix = prefix.replace("-", "_")
    options = dict(defaults)
    file = values[f"{prefix}connection_string_file"]
    if file is not None:
        options["connectionString"] = _secret(file)
    for name in ("queue", "topic", "subscription"):
        if values.get(prefix + name) is not None:
            options[name] = values[prefix + name]
    if values.get(f"{prefix}dead_letters"):
        options["subQueue"] = "deadLetter"
    for text in values[f"{prefix}option"]:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise WrongArgumentsError(f"--{prefix.replace('_', '-')}option takes NAME=VALUE, and there is no '='")
        options[name] = value
    return options


def _secret(file: str) -> str:
    """A secret from a file; what the file holds is never shown."""
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise WrongArgumentsError(f"the connection string can't be read from {file!r}: {why}") from None
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if len(lines) != 1:
        raise WrongArgumentsError(f"{file!r} must hold one line, the connection string; it holds {len(lines)}")
    return lines[0]


def trigger_of(arguments: Namespace) -> dict[str, Any]:
    """What `DataStreamWriter.trigger` takes, from `--available-now` and `--interval`."""
    if arguments.available_now:
        return {"availableNow": True}
    try:
        return {"processingTime": f"{int(parse_seconds(arguments.interval) * 1000)} milliseconds"}
    except ValueError:
        raise WrongArgumentsError(f"--interval {arguments.interval!r} is no duration, like 500ms, 10s or 2m") from None


def add_trigger(parser: ArgumentParser) -> None:
    """How long a streaming program runs, and how often it looks."""
    parser.add_argument("--available-now", action="store_true", help="process the present messages, then end")
    parser.add_argument(
        "--interval", metavar="TIME", default="10s", help="how often to look for more; default %(default)s"
    )


# ---- a run


def run(parser: ArgumentParser, work: Callable[[Job], str], argv: Sequence[str] | None) -> int:
    """Parse, work, and report the end: `work` returns the last line for stdout. Returns the exit code."""
    arguments = parser.parse_args(argv)
    job = Job(parser.prog, arguments)
    try:
        with job.signals():
            try:
                result = work(job)
            finally:
                job.close()
    except Exception as error:
        if job.signal is not None:  # then Spark may have been ended by the same signal, and fail in many ways
            job.say(f"stopped: {error if isinstance(error, StoppedError) else WORK_STAYS}")
            return BY_SIGNAL + job.signal
        if arguments.verbose:
            traceback.print_exc()
        job.say(one_line(error))
        return WRONG_ARGUMENTS if _is_argument(error) else FAILED
    sys.stdout.write(f"{result}\n")
    return DONE


def _is_argument(error: Exception) -> bool:
    return isinstance(error, WrongArgumentsError) or (
        isinstance(error, ConnectorError) and error.code in _ARGUMENT_CODES
    )


def one_line(error: BaseException) -> str:
    """The error for the user: the connector's own line if there is one in it, else the most informative line."""
    if isinstance(error, ModuleNotFoundError):
        return f"{error.msg}: install emubus[spark]"
    text = str(error) or type(error).__name__
    connector_lines = _CONNECTOR_LINES.findall(text)
    pythons = _PYTHONS.findall(text) if "Traceback (most recent" in text else []
    lines = [line.strip().removeprefix(": ") for line in text.splitlines() if line.strip()]
    if lines[0].startswith("An error occurred while calling") and len(lines) > 1:
        del lines[0]
    line = (connector_lines or pythons or lines[:1])[-1].strip()
    return line if len(line) <= ERROR_CHARS_MAX else f"{line[:ERROR_CHARS_MAX]}…"


@dataclass
class Snapshot:
    """How far a program is; None is not known. `lag` is in rows, `tasks` is done and all of the present jobs."""

    rows: int | None = None
    rows_per_s: float | None = None
    lag: int | None = None
    batch: int | None = None
    tasks: tuple[int, int] | None = None

    def __str__(self) -> str:
        parts = [
            *([f"{self.rows:,} rows"] if self.rows is not None else []),
            *([f"{self.rows_per_s:,.0f} rows/s"] if self.rows_per_s is not None else []),
            *([f"lag {self.lag:,}"] if self.lag is not None else []),
            *([f"{self.percent} %"] if self.percent is not None else []),
            *([f"batch {self.batch}"] if self.batch is not None else []),
            *([f"{self.tasks[0]} of {self.tasks[1]} tasks"] if self.tasks is not None else []),
        ]
        return ", ".join(parts)

    @property
    def percent(self) -> int | None:
        """The finished part: of rows if they are known, else of tasks; None if neither is known."""
        if self.rows is not None and self.lag is not None:
            done, total = self.rows, self.rows + self.lag
        elif self.rows is None and self.tasks is not None:
            done, total = self.tasks
        else:
            return None
        return 100 * done // total if total else None


class Batches:
    """Sums up a query's progress reports, of which Spark keeps the last hundred only."""

    def __init__(self) -> None:
        self.rows = 0
        self.count = 0
        self.rows_per_s: float | None = None
        self.lag: int | None = None
        self.last: int | None = None

    def add(self, reports: Iterable[Any]) -> None:
        """Take the reports in; those that were seen before don't count again."""
        from emubus.spark_connector import servicebus_lag

        for report in reports:
            lags = servicebus_lag(report)
            if lags:
                self.lag = sum(sum(each.values()) for each in lags.values())
            # A report without rows may be an idle one, which bears the number of the batch that comes.
            if report.numInputRows and (self.last is None or report.batchId > self.last):
                self.last = report.batchId
                self.count += 1
                self.rows += report.numInputRows
                self.rows_per_s = report.processedRowsPerSecond


class Job:
    """One run of a program: its arguments, its session and its progress."""

    def __init__(self, name: str, arguments: Namespace) -> None:
        self.name = name
        self.arguments = arguments
        self.signal: int | None = None
        self._spark: SparkSession | None = None
        self._is_own = False
        self._begun_at_s = monotonic()
        self._shown_at_s = self._begun_at_s
        self._shown = ""

    # ---- the session

    @property
    def spark(self) -> SparkSession:
        """The session, with the format registered: the present one, or a new one."""
        if self._spark is None:
            from pyspark.sql import SparkSession

            from emubus.spark_connector import register

            active = SparkSession.getActiveSession()
            self._is_own = active is None
            self._spark = active or self._started()
            register(self._spark)
            self._begun_at_s = monotonic()
        return self._spark

    def _started(self) -> SparkSession:
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.appName(self.name).config("spark.ui.showConsoleProgress", "false")
        spark: SparkSession = builder.getOrCreate()
        context = spark.sparkContext
        if str(context.master).startswith("local") and context.pythonExec == "python3":
            context.pythonExec = sys.executable  # the first python3 of the path may lack the connector
        if not self.arguments.verbose:
            context.setLogLevel("OFF")
        return spark

    def close(self) -> None:
        """Stop the session if this job has started it."""
        if self._spark is not None and self._is_own:
            self._spark.stop()

    # ---- telling

    def say(self, text: str) -> None:
        sys.stderr.write(f"{self.name}: {text}\n")
        sys.stderr.flush()

    def show_progress(self, snapshot: Snapshot) -> None:
        """Show the progress, unless that was less than a second ago or nothing has changed."""
        now_s = monotonic()
        text = str(snapshot)
        if now_s - self._shown_at_s >= LINE_INTERVAL_S and text and text != self._shown:
            self._shown, self._shown_at_s = text, now_s
            self.say(text)

    def summary(self, rows: int, what: str) -> str:
        """The last line: the work done, and its speed since the start of the session."""
        seconds = monotonic() - self._begun_at_s
        return f"{self.name}: {rows:,} rows {what} in {seconds:.1f} s ({rows / max(seconds, 0.001):,.0f} rows/s)"

    # ---- waiting

    def follow(self, query: StreamingQuery) -> Batches:
        """Show a query's progress to its end; raises its failures, and StoppedError after a signal."""
        batches = Batches()
        while not query.awaitTermination(QUERY_POLL_S):
            batches.add(query.recentProgress)
            if self.signal is not None:
                query.stop()
                raise StoppedError(f"{batches.rows:,} rows are done; the next run continues from the checkpoint")
            tasks = self._tasks(str(query.runId))
            self.show_progress(Snapshot(batches.rows, batches.rows_per_s, batches.lag, batches.last, tasks))
        batches.add(query.recentProgress)
        return batches

    def watch(self, action: Callable[[], T]) -> T:
        """Run Spark jobs and show their progress in tasks; StoppedError after a signal.

        Spark finds the format only in the thread that has registered it, so another thread shows the progress.
        """
        group = uuid.uuid4().hex
        context = self.spark.sparkContext
        done = threading.Event()

        def look() -> None:
            with suppress(Exception):  # if Spark is gone, the action says so
                while not done.wait(POLL_S):
                    if self.signal is not None:
                        context.cancelJobGroup(group)
                    else:
                        self.show_progress(Snapshot(tasks=self._tasks(group)))

        looking = threading.Thread(target=look, name="progress", daemon=True)
        context.setJobGroup(group, self.name)
        looking.start()
        try:
            result = action()
        finally:
            done.set()
            looking.join()
            context.setLocalProperty("spark.jobGroup.id", cast(str, None))  # none, as before
        if self.signal is not None:
            raise StoppedError(WORK_STAYS)
        return result

    def _tasks(self, group: str) -> tuple[int, int] | None:
        """Tasks of the stages that run now, done and all."""
        tracker = self.spark.sparkContext.statusTracker()
        jobs = [tracker.getJobInfo(each) for each in tracker.getJobIdsForGroup(group)]
        running = {stage for each in jobs if each is not None and each.status == "RUNNING" for stage in each.stageIds}
        stages = [info for each in sorted(running) if (info := tracker.getStageInfo(each)) is not None]
        if not stages:
            return None
        return sum(each.numCompletedTasks for each in stages), sum(each.numTasks for each in stages)

    @contextmanager
    def signals(self) -> Iterator[None]:
        """Note SIGINT and SIGTERM instead of dying of them; where a program isn't on the main thread, don't."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def note(number: int, _frame: object) -> None:
            if self.signal is not None:
                raise KeyboardInterrupt  # asked twice: now
            self.signal = number

        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        for number in before:
            signal.signal(number, note)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


# ---- frames


def as_frame_to_send(frame: DataFrame, name: str) -> DataFrame:
    """A frame of messages as it can be sent again.

    Past schedules would only change the order. Messages without an id get one from their sequence number, so that
    duplicate detection recognises a repetition.
    """
    from pyspark.sql import functions as f

    due = f.when(f.col("scheduledEnqueueTime") > f.current_timestamp(), f.col("scheduledEnqueueTime"))
    made = f.concat(f.lit(f"{name}/"), f.col("sequenceNumber").cast("string"))
    known = {column.lower() for column in frame.columns}
    if "sequencenumber" not in known:
        raise WrongArgumentsError("there is no column sequenceNumber, which gives the order of messages")
    if "scheduledenqueuetime" in known:
        frame = frame.withColumn("scheduledEnqueueTime", due)
    return frame.withColumn("messageId", f.coalesce("messageId", made) if "messageid" in known else made)
