"""Endpoints for jobs: one verb on named messages, or on all that match a filter.

Knows the JSON of a job and of a plan. Does not know how a message is acted on (`web.messages`).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Final

from ...broker.address import SubQueue
from ...broker.message.bounds import IDENTIFIER_CHARS_MAX
from ...broker.message.builder import TTL_MS_MAX
from ...codec.json_values import from_json
from ..json_object import JsonObject
from ..messages.changes import PARTITION_KEY, SCHEDULED_FOR, Changes, Lifetime, scheduled_for
from ..messages.filter import SQL_CHARS_MAX, STATES_ASKED, TEXT_CHARS_MAX, Criteria, FilterRefusal, filter_of
from ..messages.jobs import JOBS, NUMBERS_MAX, Job, Jobs, JobState, Selection
from ..messages.verbs import Plan, Verb
from .endpoints import ControlCall, ControlRefusal, Endpoint
from .entities import ENTITY_PATH, SUB_QUEUES
from .message_json import FAILED_MESSAGE, NUMBER_MAX
from .messages import AT_MS_MAX, SEND_BYTES_MAX, TEXT_FIELDS
from .schema import (
    Schema,
    anything,
    array,
    choice,
    default,
    integer,
    mapping,
    named,
    nullable,
    partial_record,
    record,
    text,
)

WAIT_MS_MAX: Final = 60_000
_NAME_OF: Final[Mapping[SubQueue, str]] = {each: name for name, each in SUB_QUEUES.items()}
_AT: Final = {"job": integer("Number of the job.", 1, NUMBER_MAX)}
_WAIT: Final = default(integer("How long the answer waits for the end.", 0, WAIT_MS_MAX), 0)
_INSTANT: Final = nullable(integer("An instant (Unix ms).", 0, AT_MS_MAX))


def _optional(schema: Schema) -> Schema:
    return default(nullable(schema), None)


FILTER_QUERY: Final[Mapping[str, Schema]] = {
    "text": text("Text anywhere in the message.", chars_max=TEXT_CHARS_MAX),
    "where": text("A SQL expression as in a rule.", chars_max=SQL_CHARS_MAX),
    "state": choice("State of the message.", STATES_ASKED),
    "after": integer("Enqueued at this instant (Unix ms) or later.", 0, AT_MS_MAX),
    "before": integer("Enqueued before this instant (Unix ms).", 0, AT_MS_MAX),
    "session_id": text("Only messages of this message session.", chars_max=IDENTIFIER_CHARS_MAX),
    "partition_id": integer("Only messages of this partition.", 0, 65535),
    "from_sequence_number": integer("Only from this sequence number on.", 0, NUMBER_MAX),
}
_NON_EMPTY: Final[Mapping[str, Schema]] = {
    "text": text("Text anywhere in the message.", chars_min=1, chars_max=TEXT_CHARS_MAX),
    "where": text("A SQL expression as in a rule.", chars_min=1, chars_max=SQL_CHARS_MAX),
}
"""A job changes what it finds: an empty text would be all messages, and no script means them by an unset variable."""
FILTER: Final = named(
    "MessageFilter",
    record(
        "Messages that match all of it.",
        {name: _optional(each) for name, each in {**FILTER_QUERY, **_NON_EMPTY}.items()},
    ),
)
CHANGES: Final = named(
    "Changes",
    partial_record(
        "What differs in the messages that are sent. An absent field stays; null removes it.",
        {
            "body": text("A new body, as text.", chars_max=SEND_BYTES_MAX),
            "body_base64": text("A new body in base64.", chars_max=SEND_BYTES_MAX),
            **{
                name: nullable(text(f"The {name}.", chars_max=IDENTIFIER_CHARS_MAX, pattern=pattern))
                for name, pattern in ((each, "[ -~]*" if each == "content_type" else None) for each in TEXT_FIELDS)
            },
            "partition_key": nullable(text("The partition key.", chars_max=IDENTIFIER_CHARS_MAX)),
            "application_properties": mapping(
                "Values by name: as in JSON Lines, with their types; null removes one.", anything("A value.")
            ),
            "ttl_ms": nullable(integer("Time to live in milliseconds.", 1, TTL_MS_MAX)),
            "scheduled_at": _INSTANT,
        },
    ),
)
JOB: Final = named(
    "Job",
    record(
        "A job and how far it is.",
        {
            "id": integer("Its number.", 1, NUMBER_MAX),
            "verb": choice("What it does with each message.", Verb),
            "entity": text("Where the messages are.", chars_max=10_000),
            "sub_queue": choice("Sub-queue of the entity.", SUB_QUEUES),
            "target": nullable(text("Where they go.", chars_max=10_000)),
            "state": choice("How far it is.", JobState),
            "total": integer("Messages at the start, or named.", 0, NUMBER_MAX),
            "searched_count": integer("Messages that were looked at.", 0, NUMBER_MAX),
            "done_count": integer("Messages with which it was done.", 0, NUMBER_MAX),
            "failed_count": integer("Messages that stay as they are.", 0, NUMBER_MAX),
            "failures": array(
                "The first of them.",
                FAILED_MESSAGE,
            ),
            "error": nullable(text("Why it ended early, or what it left out.", chars_max=100_000)),
            "started_at": integer("When it began.", 0, NUMBER_MAX),
            "ended_at": nullable(integer("When it ended.", 0, NUMBER_MAX)),
        },
    ),
)
ALL_JOBS: Final = named("Jobs", record("Jobs.", {"jobs": array("The newest first; at most the last 100.", JOB)}))
NEW_JOB: Final = named(
    "NewJob",
    record(
        "What to do, and with which messages: those with some sequence numbers, or all that match a filter ({}: all).",
        {
            "verb": choice("What to do with each message.", Verb),
            "entity": ENTITY_PATH,
            "sub_queue": default(choice("Sub-queue of the entity.", SUB_QUEUES), "active"),
            "sequence_numbers": _optional(
                array("These messages.", integer("A number.", 0, NUMBER_MAX), count_max=NUMBERS_MAX)
            ),
            "filter": _optional(FILTER),
            "target": _optional(text("resubmit, move, copy: another queue or topic.", chars_min=1, chars_max=400)),
            "changes": _optional(CHANGES),
            "reason": _optional(text("dead-letter: the reason.")),
            "description": _optional(text("dead-letter: its description.")),
            "wait_ms": _WAIT,
        },
    ),
)


def job_json(job: Job) -> dict[str, object]:
    """A job, as `JOB` describes it."""
    return {
        "id": job.number,
        "verb": job.plan.verb.value,
        "entity": job.plan.path,
        "sub_queue": _NAME_OF[job.plan.sub_queue],
        "target": job.target,
        "state": job.state.value,
        "total": job.total,
        "searched_count": job.searched_count,
        "done_count": job.done_count,
        "failed_count": job.failed_count,
        "failures": [{"sequence_number": number, "message": reason} for number, reason in job.failures],
        "error": job.error,
        "started_at": job.started_at,
        "ended_at": job.ended_at,
    }


def changes_of(asked: JsonObject, now: int) -> Changes:
    """The changes of a request. ControlRefusal."""
    if "body" in asked and "body_base64" in asked:
        raise ControlRefusal(409, "body and body_base64 exclude each other.")
    body = asked.one("body", str).encode() if "body" in asked else None
    try:
        if "body_base64" in asked:
            body = base64.b64decode(asked.one("body_base64", str), validate=True)
        properties = {name: from_json(value) for name, value in asked.object_of("application_properties").items()}
    except binascii.Error:
        raise ControlRefusal(409, "body_base64 is not base64.") from None
    except ValueError as error:
        raise ControlRefusal(409, f"application_properties: {error}.") from None
    annotations = {PARTITION_KEY: asked["partition_key"]} if "partition_key" in asked else {}
    if "scheduled_at" in asked:
        annotations[SCHEDULED_FOR] = scheduled_for(asked.optional("scheduled_at", int))
    return Changes(
        body,
        {amqp_name: asked[name] for name, amqp_name in TEXT_FIELDS.items() if name in asked},
        properties,
        annotations,
        Lifetime(asked.optional("ttl_ms", int), now) if "ttl_ms" in asked else None,
    )


def selection_of(asked: JsonObject) -> Selection:
    """The selection of a filter. ControlRefusal."""
    try:
        criteria = Criteria(
            asked.optional("text", str) or "",
            asked.optional("where", str) or "",
            asked.optional("state", str) or "",
            asked.optional("after", int),
            asked.optional("before", int),
        )
        found = filter_of(criteria)
    except FilterRefusal as refusal:
        raise ControlRefusal(409, refusal.text) from None
    return Selection(
        None,
        found,
        asked.optional("from_sequence_number", int) or 0,
        asked.optional("partition_id", int),
        asked.optional("session_id", str),
    )


def _jobs(call: ControlCall) -> Jobs:
    return call.request.app[JOBS]


def _job_of(call: ControlCall) -> Job:
    number = call.path.one("job", int)
    job = _jobs(call).get(number)
    if job is None:
        raise ControlRefusal(404, f"There is no job {number}.")
    return job


async def start_job(call: ControlCall) -> object:
    body = call.body
    if (body["sequence_numbers"] is None) == (body["filter"] is None):
        raise ControlRefusal(409, "Give either sequence_numbers or a filter; {} is the filter that all match.")
    plan = Plan(
        Verb(body.one("verb", str)),
        body.one("entity", str),
        SUB_QUEUES[body.one("sub_queue", str)],
        body.optional("target", str),
        Changes() if body["changes"] is None else changes_of(body.object_of("changes"), call.services.clock.now_ms()),
        body.optional("reason", str),
        body.optional("description", str),
    )
    named = body.list_of("sequence_numbers", int)
    selection = Selection(named) if body["filter"] is None else selection_of(body.object_of("filter"))
    return job_json(await _jobs(call).start(plan, selection, body.one("wait_ms", int)))


async def list_jobs(call: ControlCall) -> object:
    return {"jobs": [job_json(each) for each in _jobs(call).all()]}


async def show_job(call: ControlCall) -> object:
    job = _job_of(call)
    await _jobs(call).wait(job, call.query.one("wait_ms", int))
    return job_json(job)


async def stop_job(call: ControlCall) -> object:
    job = _job_of(call)
    job.stop()
    return job_json(job)


ENDPOINTS: Final = (
    Endpoint("GET", "/jobs", "The running jobs and the last ones", list_jobs, ALL_JOBS),
    Endpoint(
        "POST",
        "/jobs",
        "Begin a job: do something with named messages, or with all that match a filter",
        start_job,
        JOB,
        body=NEW_JOB,
        status=201,
        errors=(404, 409),
        body_bytes_max=2 * SEND_BYTES_MAX,
        example={
            "verb": "move",
            "entity": "orders",
            "sub_queue": "dead-letter",
            "filter": {"where": "DeadLetterReason = 'MaxDeliveryCountExceeded'"},
            "target": "orders-retry",
            "changes": {"application_properties": {"attempt": {"type": "int", "value": 2}}},
        },
    ),
    Endpoint("GET", "/jobs/{job}", "A job", show_job, JOB, at=_AT, query={"wait_ms": _WAIT}),
    Endpoint(
        "POST", "/jobs/{job}/stop", "Stop a job after its current batch; what is done stays done", stop_job, JOB, at=_AT
    ),
)
