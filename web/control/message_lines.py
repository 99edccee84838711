"""Endpoints for messages as JSON Lines: export as a stream, import of a stream.

Knows the answers. Does not know what a line says (`web.messages.json_lines`).
"""

from __future__ import annotations

from typing import Final

from aiohttp import hdrs, web

from ...broker.admin.overview import Overview
from ...broker.errors import BrokerError
from ...broker.model.descriptions import SubscriptionDescription
from ..messages.transfer import JSON_LINES, Imported, exported, imported
from ..transport.connection import uses_body_as_it_comes
from .endpoints import ControlCall, ControlRefusal, Endpoint
from .entities import ENTITY_AT, ENTITY_PATH, SUB_QUEUES, entity_with_messages
from .jobs import FILTER_QUERY, selection_of
from .message_json import NUMBER_MAX
from .schema import Schema, array, choice, default, integer, named, record, text

CHUNK_BYTES: Final = 64 << 10
_AT: Final = {"entity": ENTITY_PATH}
_PATH: Final = f"/entities/{ENTITY_AT}/messages/lines"
LINES: Final[Schema] = {"type": "string", "description": "One JSON object a line, each a message."}
IMPORTED: Final = named(
    "Imported",
    record(
        "What became of the lines.",
        {
            "sent_count": integer("Messages that were sent.", 0, NUMBER_MAX),
            "failed_count": integer("Lines that were not sent, or not in their state.", 0, NUMBER_MAX),
            "failures": array(
                "The first of them.",
                named(
                    "FailedLine",
                    record(
                        "A line.",
                        {
                            "line": integer("Its number, from 1.", 1, NUMBER_MAX),
                            "message": text("Why.", chars_max=100_000),
                        },
                    ),
                ),
            ),
        },
    ),
)


def imported_json(found: Imported) -> dict[str, object]:
    """What became of the lines, as `IMPORTED` describes it."""
    failures = [{"line": line, "message": reason} for line, reason in found.failures]
    return {"sent_count": found.sent_count, "failed_count": found.failed_count, "failures": failures}


async def export_messages(call: ControlCall) -> object:
    """The messages as lines. A store that fails meanwhile cuts the connection: a part is not taken for the whole."""
    broker = call.services.broker
    entity = entity_with_messages(call)
    lines = exported(broker, entity, SUB_QUEUES[call.query.one("sub_queue", str)], selection_of(call.query), call.aside)
    first = await anext(lines, b"")  # a refusal comes before the answer begins
    name = "".join(each if each.isalnum() else "-" for each in entity.path.lower() if each.isascii())
    response = web.StreamResponse(headers={hdrs.CONTENT_DISPOSITION: f'attachment; filename="{name}.jsonl"'})
    response.content_type = JSON_LINES
    await response.prepare(call.request)
    try:
        await response.write(first)
        async for chunk in lines:
            if chunk:
                await response.write(chunk)
        await response.write_eof()
    except BrokerError:
        if call.request.transport is not None:
            call.request.transport.close()
    except ConnectionError:
        pass  # the client has left
    return response


async def import_messages(call: ControlCall) -> object:
    broker = call.services.broker
    entity = Overview(broker.namespace).entity(call.path.one("entity", str))
    if isinstance(entity.description, SubscriptionDescription):
        raise ControlRefusal(409, f"Messages are sent to the topic '{entity.description.topic_name}'.")
    uses_body_as_it_comes(call.request)
    return imported_json(await imported(broker, entity, call.request.content.iter_chunked(CHUNK_BYTES), call.aside))


ENDPOINTS: Final = (
    Endpoint(
        "GET",
        _PATH,
        "Export messages as JSON Lines: every section, body and type",
        export_messages,
        LINES,
        at=_AT,
        query={"sub_queue": default(choice("Sub-queue of the entity.", SUB_QUEUES), "active"), **FILTER_QUERY},
        errors=(409,),
        gives=JSON_LINES,
    ),
    Endpoint(
        "POST",
        _PATH,
        "Import messages: send those of JSON Lines, in their order; deferred and scheduled ones are so again",
        import_messages,
        IMPORTED,
        at=_AT,
        errors=(409,),
        takes=JSON_LINES,
    ),
)
