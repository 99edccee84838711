"""`emubus purge`, `resubmit`, `job`, `reset`: commands for many messages at once."""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote

from ...exits import EXIT_FAILED, EXIT_OK, CommandError
from ...kit.answers import Answer, AnswerError
from ...options import ConfigError
from ...terminal import Progress, write_errors
from ..declaring import Command, Parsed
from .address import add_server_options, text_of
from .api import connect
from .output import add_json, add_yes, confirm, count_of, show
from .searching import matching

FAILURES_SHOWN: Final = 20
VERBS: Final = ("delete", "complete", "dead-letter", "defer", "resubmit", "move", "copy", "deliver-now")
SENDING: Final = ("resubmit", "move", "copy")
NUMBERS_MAX: Final = 1_000
"""As many as a request may name."""
STATES: Final = ("active", "deferred", "scheduled", "locked")
JOB_WAIT_MS: Final = 500
JOB_STILL_MAX: Final = 600
"""Looks without a change: five minutes, in which an outage for a test is over."""


def _add_common(parser: Command) -> None:
    add_json(parser)
    add_server_options(parser)


def add_purge(parser: Command) -> None:
    parser.argument("entity", nargs="*", metavar="ENTITY", help="paths of queues, topics or subscriptions")
    parser.switch("--all", help="purge every entity")
    add_yes(parser)
    _add_common(parser)
    parser.run = _purge


def _purge(parsed: Parsed) -> int:
    if bool(parsed.entity) == parsed.all:
        both = f"--all and {parsed.entity[0]} exclude each other: " if parsed.all else ""
        raise ConfigError(f"{both}give the entities to purge, or --all")
    confirm(parsed, f"Remove all messages of {', '.join(parsed.entity) or 'every entity'}, dead letters included")
    progress, count = Progress("purged entities", len(parsed.entity)), 0
    with connect(parsed) as api:
        if parsed.all:
            count = api.post("/reset", {"to": "empty"}).number("message_count")
        for number, path in enumerate(parsed.entity, 1):
            count += api.post(f"{api.entity(path)}/purge").number("message_count")
            progress.step(number)
    progress.end()
    show(parsed, {"message_count": count}, [f"removed {count} messages"])
    return EXIT_OK


def add_resubmit(parser: Command) -> None:
    parser.argument("entity", metavar="ENTITY", help="path of a queue or subscription (topic/name)")
    parser.argument("number", convert=int, nargs="*", metavar="NUMBER", help="only these sequence numbers")
    _add_common(parser)
    parser.run = _resubmit


def _resubmit(parsed: Parsed) -> int:
    failures: list[Answer] = []
    count, total, last, progress = 0, 0, 0, None
    with connect(parsed) as api:
        at = f"{api.entity(parsed.entity)}/resubmit"
        asked: dict[str, object] = {"sequence_numbers": parsed.number}
        while True:
            answer = api.post(at, asked)
            total = total or answer.number("total")
            progress = progress or Progress("resubmitted", len(parsed.number) or total)
            count += answer.number("resubmitted_count")
            failures += answer.parts("failures")
            progress.step(count)
            following = answer.number_or_none("next_sequence_number")
            if following is None:
                break
            if following <= last or count + len(failures) > total:
                raise AnswerError("next_sequence_number does not lead to the end")
            last = following
            asked = {"from_sequence_number": following, "ends": answer["ends"]}
    progress.end()
    result = {"resubmitted_count": count, "failures": failures}
    errors = failures_of(failures, "sequence_number")
    show(parsed, result, [f"resubmitted {count} of {len(parsed.number) or total} dead letters"])
    write_errors(errors)
    return EXIT_FAILED if failures else EXIT_OK


def add_job(parser: Command) -> None:
    parser.argument("verb", known=VERBS, metavar="VERB", help=" or ".join(VERBS))
    parser.argument("entity", metavar="ENTITY", help="path of a queue or subscription (topic/name)")
    parser.argument("number", convert=int, nargs="*", metavar="NUMBER", help="these sequence numbers")
    parser.switch("--all", help="all messages")
    parser.option("--count", convert=count_of, metavar="N", help="the first N of those only")
    add_filter(parser)
    parser.option("--to", metavar="ENTITY", help="resubmit, move, copy: another queue or topic")
    parser.option("--reason", metavar="TEXT", help="of dead letters")
    add_yes(parser)
    _add_common(parser)
    parser.run = _job


def add_filter(parser: Command) -> None:
    """Add the options that say which messages are meant."""
    parser.option("--where", metavar="SQL", help="those for which an expression as in a rule is true")
    parser.option("--text", metavar="TEXT", convert=text_of, help="those with this text anywhere")
    parser.option("--state", known=STATES, metavar="STATE", help=" or ".join(STATES))
    parser.option("--session", metavar="ID", help="those of this message session")
    parser.switch(
        "--dead-letters", name="sub_queue", const="dead-letter", default="active", help="of the dead-letter queue"
    )


def filter_of(parsed: Parsed) -> dict[str, str]:
    """The filter of the control API that the options say."""
    given: dict[str, str | None] = {
        "where": parsed.where,
        "text": parsed.text,
        "state": parsed.state,
        "session_id": parsed.session,
    }
    return {name: value for name, value in given.items() if value is not None}


def _job(parsed: Parsed) -> int:
    chosen = filter_of(parsed)
    if sum((bool(parsed.number), bool(chosen), parsed.all)) != 1:
        raise ConfigError("say which messages: NUMBERs, a filter such as --where, or --all")
    for flag, given, verbs in (("--to", parsed.to, SENDING), ("--reason", parsed.reason, ("dead-letter",))):
        if given is not None and parsed.verb not in verbs:
            raise ConfigError(f"{flag} is for {', '.join(verbs)}, not for {parsed.verb}")
    # Without it they go where they came from: somewhere else only for dead letters, deferred and scheduled ones.
    are_active = parsed.sub_queue == "active" and parsed.state in (None, "active")
    if parsed.verb == "move" and parsed.to is None and are_active:
        raise ConfigError(f"--to is missing: say where the messages of '{parsed.entity}' are moved")
    numbers: list[int] = parsed.number
    if parsed.count is not None:
        if numbers:
            raise ConfigError("--count goes with a filter or --all, not with NUMBERs")
        if parsed.count > NUMBERS_MAX:
            raise ConfigError(f"--count is {parsed.count}; allowed is 1 to {NUMBERS_MAX} at a time")
        numbers = _first_numbers(parsed)
    if parsed.verb == "delete":
        which = f"{len(numbers)} messages" if numbers else "all messages" if parsed.all else "what is found"
        confirm(parsed, f"Delete {which} of {parsed.entity}")
    asked: dict[str, object] = {
        "verb": parsed.verb,
        "sub_queue": parsed.sub_queue,
        "target": parsed.to,
        "reason": parsed.reason,
        "wait_ms": JOB_WAIT_MS,
        **({"filter": chosen} if parsed.count is None and not numbers else {"sequence_numbers": numbers}),
    }
    with connect(parsed) as api:
        if parsed.to is not None:
            asked["target"] = api.get(api.entity(parsed.to)).text("path")  # refused with the nearest name
        job = api.post("/jobs", {**asked, "entity": unquote(api.entity(parsed.entity).rpartition("/")[2])})
        progress = Progress("searched", job.number("total"))
        try:
            seen, still_count = _progress_of(job), 0
            while job["state"] == "running":
                progress.step(job.number("searched_count"))
                job = api.get(f"/jobs/{job.number('id')}?wait_ms={JOB_WAIT_MS}")
                still_count = still_count + 1 if _progress_of(job) == seen else 0
                seen = _progress_of(job)
                if still_count == JOB_STILL_MAX:
                    raise CommandError(
                        f"job {job['id']} is running, but does nothing: {JOB_STILL_MAX} looks found no change"
                    )
        except KeyboardInterrupt:
            api.post(f"/jobs/{job.number('id')}/stop")
            raise
        finally:
            progress.end()
    errors = failures_of(job.parts("failures"), "sequence_number")
    errors += [] if job["error"] is None else [str(job["error"])]
    show(parsed, job, [f"{job['verb']}: {job['done_count']} messages done, {job['failed_count']} failed"])
    write_errors(errors)
    return EXIT_FAILED if job["failed_count"] or job["error"] is not None else EXIT_OK


def failures_of(failures: list[Answer], name: str) -> list[str]:
    """The first failures of single messages, each after the member that says which message."""
    return [f"{each[name]}: {each['message']}" for each in failures[:FAILURES_SHOWN]]


def _first_numbers(parsed: Parsed) -> list[int]:
    """The numbers of the first `--count` messages that are meant."""
    with connect(parsed) as api:
        path = unquote(api.entity(parsed.entity).rpartition("/")[2])
    wanted = (parsed, filter_of(parsed), path, parsed.sub_queue, parsed.count)
    return [each.number("sequence_number") for each in matching(*wanted)]


def _progress_of(job: Answer) -> tuple[int, ...]:
    return tuple(job.number(name) for name in ("searched_count", "done_count", "failed_count"))


def add_reset(parser: Command) -> None:
    parser.option(
        "--to",
        known=["start", "config", "empty"],
        default="start",
        metavar="STATE",
        help="start (default): entities of the start, no messages, outages and faults, real time; "
        "config: entities of the start, no messages; empty: the present entities, no messages",
    )
    add_yes(parser)
    _add_common(parser)
    parser.run = _reset


def _reset(parsed: Parsed) -> int:
    what = "all messages" if parsed.to == "empty" else "all messages, and the entities that the start does not have"
    confirm(parsed, f"Remove {what}")
    with connect(parsed) as api:
        answer = api.post("/reset", {"to": parsed.to})
    show(parsed, answer, [f"reset to {parsed.to}: removed {answer['message_count']} messages"])
    return EXIT_OK
