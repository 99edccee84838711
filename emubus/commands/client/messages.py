"""`emubus send`, `peek`, `receive`, `settle`."""

from __future__ import annotations

import base64
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import quote

from ...exits import EXIT_FAILED, EXIT_OK, CommandError
from ...kit.answers import Answer, AnswerError
from ...options import ConfigError
from ...terminal import Progress, one_line, write_errors
from ..declaring import Command, Parsed
from .address import add_server_options
from .api import Api, connect
from .output import add_json, count_of, instant, numbers_of, show, span_ms, span_text, table

SENT_MAX: Final = 1_000_000
"""Messages of one command: so many results take 300 MB."""
SEND_AT_ONCE: Final = 100
SEND_AT_ONCE_BYTES: Final = 4 << 20
PEEK_AT_ONCE: Final = 250
WAIT_MS_MAX: Final = 60_000
EMPTY_PAGES_MAX: Final = 1_000
"""In a row: a page is empty if the server has looked at its share of messages and found none."""
BODY_CHARS: Final = 60
SUB_QUEUES: Final = ("active", "dead-letter", "transfer-dead-letter")
_TOKEN: Final = re.compile("[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_TEXTS: Final = ("message_id", "session_id", "subject", "correlation_id", "content_type", "reply_to", "partition_key")


def _add_entity(parser: Command, what: str = "path of a queue or subscription (topic/name)") -> None:
    parser.argument("entity", metavar="ENTITY", help=what)


def _add_common(parser: Command) -> None:
    add_json(parser)
    add_server_options(parser)


def _add_sub_queue(parser: Command) -> None:
    parser.switch(
        "--dead-letters", name="sub_queue", const="dead-letter", default="active", help="of the dead-letter queue"
    )
    parser.option("--sub-queue", known=SUB_QUEUES, metavar="NAME", help=" or ".join(SUB_QUEUES))


# ---------------------------------------------------------------- send


def add_send(parser: Command) -> None:
    _add_entity(parser, "name of a queue or topic")
    parser.argument("body", nargs="?", metavar="BODY", help="the body; without it stdin is read")
    parser.option("-d", "--data", name="data", metavar="BODY", help="the body, as in curl")
    parser.option("--file", convert=Path, metavar="FILE", help="the body is this file")
    parser.switch("--lines", help="each line of stdin or FILE is a message")
    parser.option("--count", convert=count_of, default=1, metavar="N", help="send it N times")
    for name in _TEXTS:
        parser.option(f"--{name.replace('_', '-')}", metavar="TEXT")
    parser.option("--property", repeats=True, metavar="NAME=VALUE", help="may be repeated")
    parser.option("--ttl", convert=span_ms, metavar="SPAN", help="time to live, such as 30s")
    parser.option("--delay", convert=span_ms, metavar="SPAN", help="schedule it so far from now")
    _add_common(parser)
    parser.run = _send


def _send(parsed: Parsed) -> int:
    message = {name: getattr(parsed, name) for name in _TEXTS if getattr(parsed, name) is not None}
    message["application_properties"] = dict(map(_property, parsed.property))
    if parsed.ttl is not None:
        message["ttl_ms"] = parsed.ttl
    if parsed.delay:  # none: now
        message["delay_ms"] = parsed.delay
    given = list(_bodies(parsed))
    if len(given) * parsed.count > SENT_MAX:
        raise ConfigError(f"--count is {parsed.count}; allowed are {SENT_MAX} messages in all, {len(given)} each time")
    bodies = given * parsed.count
    progress, results = Progress("sent", len(bodies)), list[Answer]()
    with connect(parsed) as api:
        at = f"{api.entity(parsed.entity)}/messages"
        for portion in _portions(bodies):
            results += api.post(at, {"messages": [{**message, **_body(each)} for each in portion]}).parts("results")
            progress.step(len(results))
    progress.end()
    failed = [each for each in results if each["error"] is not None]
    show(parsed, {"results": results}, _sent_lines(results))
    write_errors(str(each["error"]) for each in failed)
    return EXIT_FAILED if failed else EXIT_OK


def _bodies(parsed: Parsed) -> Iterator[bytes]:
    texts = [each for each in (parsed.body, parsed.data) if each is not None]
    if len(texts) > 1 or (texts and (parsed.file is not None or parsed.lines)):
        raise ConfigError("BODY, --data, --file and --lines exclude each other: give BODY alone")
    if texts:
        yield texts[0].encode(errors="surrogateescape")
        return
    try:
        data = sys.stdin.buffer.read() if parsed.file is None else parsed.file.read_bytes()
    except OSError as error:
        what = "stdin" if parsed.file is None else f"--file {parsed.file}"
        raise ConfigError(f"{what} can't be read: {error.strerror or error}") from error
    yield from (data.splitlines() if parsed.lines else [data])


def _body(data: bytes) -> dict[str, str]:
    try:
        return {"body": data.decode()}
    except UnicodeDecodeError:
        return {"body_base64": base64.b64encode(data).decode("ascii")}


def _portions(bodies: list[bytes]) -> Iterator[list[bytes]]:
    portion: list[bytes] = []
    size_bytes = 0
    for each in bodies:
        if portion and (len(portion) == SEND_AT_ONCE or size_bytes + len(each) > SEND_AT_ONCE_BYTES):
            yield portion
            portion, size_bytes = [], 0
        portion.append(each)
        size_bytes += len(each)
    if portion:
        yield portion


def _property(text: str) -> tuple[str, object]:
    """A property: a whole number, a number, true or false if the text is one, else a string. ConfigError."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise ConfigError(f"--property is '{text}'; allowed is NAME=VALUE")
    if value in ("true", "false"):
        return name, value == "true"
    for kind in (int, float):
        try:
            if value.isascii() and value == value.strip() and "_" not in value and value.lower() not in ("nan", "inf"):
                return name, kind(value)
        except ValueError:
            continue
    return name, value


def _sent_lines(results: list[Answer]) -> Iterator[str]:
    sent = [each for each in results if each["sequence_number"] is not None]
    dropped = sum(each["sequence_number"] is None and each["error"] is None for each in results)
    if len(sent) == 1:
        (one,) = sent
        yield f"sent: sequence number {one['sequence_number']}, partition {one['partition_id']}"
    elif sent:
        partitions = sorted({each.number("partition_id") for each in sent})
        yield f"sent {len(sent)} messages to partition{'s' * (len(partitions) > 1)} {', '.join(map(str, partitions))}"
    if dropped:
        yield f"dropped as duplicates: {dropped}"


# ---------------------------------------------------------------- peek


def add_peek(parser: Command) -> None:
    _add_entity(parser)
    _add_sub_queue(parser)
    parser.option("--count", convert=count_of, default=50, metavar="N", help="at most N messages (50)")
    parser.option("--from", name="first", convert=int, default=0, metavar="NUMBER", help="from this sequence number")
    parser.option("--session", metavar="ID", help="only this message session")
    parser.option("--partition", convert=int, metavar="N", help="only this partition")
    parser.switch("--body", help="print whole bodies, nothing else")
    _add_common(parser)
    parser.run = _peek


def _peek(parsed: Parsed) -> int:
    query = f"sub_queue={parsed.sub_queue}"
    query += "" if parsed.session is None else f"&session_id={quote(parsed.session, safe='')}"
    query += "" if parsed.partition is None else f"&partition_id={parsed.partition}"
    found: list[Answer] = []
    with connect(parsed) as api:
        at = f"{_entity_with_messages(api, parsed.entity)}/messages?{query}"
        following: int | None = parsed.first
        empty_count = 0
        while following is not None and len(found) < parsed.count:
            count = min(PEEK_AT_ONCE, parsed.count - len(found))
            page = api.get(f"{at}&from_sequence_number={following}&count={count}")
            own, next_number = page.parts("messages"), page.number_or_none("next_sequence_number")
            empty_count = 0 if own else empty_count + 1
            if next_number is not None and (next_number <= following or empty_count > EMPTY_PAGES_MAX):
                raise AnswerError("next_sequence_number does not lead to the end")
            found += own
            following = next_number
    lines = _message_lines(found, whole=parsed.body, are_dead=parsed.sub_queue != "active")
    show(parsed, {"messages": found, "next_sequence_number": following}, lines)
    return EXIT_OK


def _entity_with_messages(api: Api, path: str) -> str:
    """The address of a queue or subscription. CommandError: a topic has none that could be peeked."""
    at = api.entity(path)
    if api.get(at)["kind"] == "topic":
        raise CommandError(
            f"'{path}' is a topic, whose messages are in its subscriptions: peek {path}/NAME; "
            f"`emubus ls {path}/` lists them"
        )
    return at


def _message_lines(messages: list[Answer], *, whole: bool, are_dead: bool) -> list[str]:
    """Bodies, or a table; of dead letters it says why they are."""
    if whole:
        return [body_text(each) for each in messages]
    if are_dead:
        names = ["NUMBER", "PARTITION", "ENQUEUED", "DELIVERIES", "MESSAGE ID", "REASON", "DESCRIPTION", "BODY"]
        return table(names, map(_dead_letter, messages))
    rows = [
        [
            each["sequence_number"],
            each["partition_id"],
            each["state"],
            instant(each.number_or_none("enqueued_at")),
            each["delivery_count"],
            each.part("properties").get("message_id"),
            each.part("properties").get("session_id"),
            one_line(body_text(each), BODY_CHARS),
        ]
        for each in messages
    ]
    return table(["NUMBER", "PARTITION", "STATE", "ENQUEUED", "DELIVERIES", "MESSAGE ID", "SESSION", "BODY"], rows)


def _dead_letter(message: Answer) -> list[object]:
    own = message.part("application_properties")
    return [
        message["sequence_number"],
        message["partition_id"],
        instant(message.number_or_none("enqueued_at")),
        message["delivery_count"],
        message.part("properties").get("message_id"),
        own.get("DeadLetterReason"),
        own.get("DeadLetterErrorDescription"),
        one_line(body_text(message), BODY_CHARS),
    ]


def body_text(message: Answer) -> str:
    """The body as text; binary data in base64."""
    body = message.part("body")
    if body["text"] is not None:
        return str(body["text"])
    if body["base64"] is not None:
        return f"base64:{body['base64']}"
    return "" if body["kind"] == "none" else str(body["json"])


# ---------------------------------------------------------------- receive, settle


def add_receive(parser: Command) -> None:
    _add_entity(parser)
    _add_sub_queue(parser)
    parser.option("--count", convert=count_of, default=1, metavar="N", help="at most N messages (1)")
    parser.option("--wait", convert=span_ms, default=0, metavar="SPAN", help="wait for the first, at most 60s")
    parser.option("--session", metavar="ID", help="this message session; default: the next one with messages")
    parser.option(
        "--then",
        known=["complete", "abandon", "dead-letter", "defer", "lock"],
        default="complete",
        metavar="OUTCOME",
        help="complete (default), abandon, dead-letter, defer, or lock: settle later",
    )
    parser.option("--reason", metavar="TEXT", help="of a dead letter")
    parser.option("--deferred", convert=numbers_of, default=(), metavar="NUMBER,…", help="these deferred messages")
    parser.switch("--body", help="print whole bodies, nothing else")
    _add_common(parser)
    parser.run = _receive


def _receive(parsed: Parsed) -> int:
    _check_reason(parsed, parsed.then, "--then dead-letter")
    if parsed.wait > WAIT_MS_MAX:
        raise ConfigError(f"--wait is {span_text(parsed.wait)}; allowed is {span_text(WAIT_MS_MAX)} at most")
    asked = {
        "count": min(parsed.count, PEEK_AT_ONCE),
        "timeout_ms": parsed.wait,
        "outcome": parsed.then,
        "sub_queue": parsed.sub_queue,
        "session_id": parsed.session,
        "sequence_numbers": parsed.deferred,
        "reason": parsed.reason,
    }
    with connect(parsed) as api:
        answer = api.post(f"{api.entity(parsed.entity)}/receive", asked)
        messages = answer.parts("messages")
        while 0 < len(messages) < parsed.count and not parsed.deferred:
            asked |= {"count": min(PEEK_AT_ONCE, parsed.count - len(messages)), "timeout_ms": 0}
            more = api.post(f"{api.entity(parsed.entity)}/receive", {**asked, "session_id": answer["session_id"]})
            own = more.parts("messages")
            if not own:
                break
            messages += own
    answer["messages"] = messages
    lines = _message_lines(messages, whole=parsed.body, are_dead=parsed.sub_queue != "active")
    if parsed.then == "lock":
        lines += [f"lock token of {each['sequence_number']}: {each['lock_token']}" for each in messages]
    show(parsed, answer, lines)
    return EXIT_OK if messages else EXIT_FAILED


def _check_reason(parsed: Parsed, outcome: str, needed: str) -> None:
    """ConfigError: a reason is given to what is no dead letter; who forgot the outcome would lose the message."""
    given = [f"--{name}" for name in ("reason", "description") if getattr(parsed, name, None) is not None]
    if given and outcome != "dead-letter":
        raise ConfigError(f"{given[0]} is for dead letters, not for {outcome}: give it with {needed}")


def add_settle(parser: Command) -> None:
    _add_entity(parser)
    parser.argument(
        "outcome",
        known=["complete", "abandon", "dead-letter", "defer"],
        metavar="OUTCOME",
        help="complete, abandon, dead-letter or defer",
    )
    parser.argument("token", nargs="+", convert=_token, metavar="TOKEN", help="lock tokens, from receive --then lock")
    _add_sub_queue(parser)
    parser.option("--reason", metavar="TEXT", help="of a dead letter")
    parser.option("--description", metavar="TEXT", help="of a dead letter")
    _add_common(parser)
    parser.run = _settle


def _token(text: str) -> str:
    if not _TOKEN.fullmatch(text):
        raise ValueError(f"is {one_line(text, BODY_CHARS)!r}; allowed is a lock token, from receive --then lock")
    return text


def _settle(parsed: Parsed) -> int:
    _check_reason(parsed, parsed.outcome, "the OUTCOME dead-letter")
    with connect(parsed) as api:
        answer = _settle_tokens(api, parsed)
    show(parsed, answer, [f"settled: {answer['settled_count']} ({parsed.outcome})"])
    return EXIT_OK


def _settle_tokens(api: Api, parsed: Parsed) -> Answer:
    return api.post(
        f"{api.entity(parsed.entity)}/settle",
        {
            "lock_tokens": parsed.token,
            "outcome": parsed.outcome,
            "sub_queue": parsed.sub_queue,
            "reason": parsed.reason,
            "description": parsed.description,
        },
    )
