"""Endpoints for kept templates: messages by name, to be sent again and again.

Knows the JSON of a template. Does not know where templates are kept (`web.messages.templates`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aiohttp import web

from ...broker.admin.overview import Overview
from ...broker.errors import BrokerError
from ...broker.names import TemplateName
from ..json_writer import json_pieces
from ..messages.templates import MESSAGE_CHARS_MAX, TEMPLATES, Templates
from ..single_send import send_each
from .endpoints import ControlCall, Endpoint, answer_in_pieces, answer_of_list
from .messages import SENT, sent_json
from .schema import anything, array, default, integer, mapping, named, record, text

COUNT_MAX: Final = 100
BODY_BYTES_MAX: Final = 6 * MESSAGE_CHARS_MAX
"""A character in JSON may be written with six bytes."""
_NAME: Final = text("Name of the template.", chars_min=1, chars_max=TemplateName.CHARS_MAX)
_AT: Final = {"name": _NAME}
_MESSAGE: Final = mapping(
    "A message as in JSON Lines: header, properties, application_properties, annotations, body.",
    anything("A section."),
)
TEMPLATE: Final = named("Template", record("A template.", {"name": _NAME, "message": _MESSAGE}))
ALL: Final = named("Templates", record("Templates.", {"templates": array("By name.", TEMPLATE)}))
DELETED: Final = named("DeletedTemplate", record("The deleted template.", {"name": _NAME}))
EXAMPLE: Final = {"message": {"properties": {"subject": "order"}, "body": {"kind": "data", "text": "hello"}}}


def _name(call: ControlCall) -> TemplateName:
    return TemplateName(call.path.one("name", str))


def _templates(call: ControlCall) -> Templates:
    return call.request.app[TEMPLATES]


def _template_json(name: str, message: Mapping[str, object]) -> dict[str, object]:
    return {"name": name, "message": dict(message)}


async def list_templates(call: ControlCall) -> object:
    found = list((await _templates(call).all()).items())
    return await answer_of_list(
        call, "templates", found, lambda each: _template_json(*each), lambda _: MESSAGE_CHARS_MAX
    )


async def show_template(call: ControlCall) -> object:
    return await _answer(call, _name(call))


async def put_template(call: ControlCall) -> object:
    """Keep a message under a name."""
    name, message = _name(call), call.body.object_of("message")
    await _templates(call).put(name, message)
    return await _answer(call, name)


async def _answer(call: ControlCall, name: TemplateName) -> web.StreamResponse:
    message = await _templates(call).get(name)
    return await answer_in_pieces(call.request, lambda: json_pieces(_template_json(name, message)))


async def delete_template(call: ControlCall) -> object:
    name = _name(call)
    await _templates(call).delete(name)
    return {"name": name}


async def send_template(call: ControlCall) -> object:
    """Send the message of a template, once or more often."""
    broker = call.services.broker
    entity = Overview(broker.namespace).entity(call.body.one("entity", str))
    data = await _templates(call).encoded(_name(call))
    results = await send_each(broker, entity, [data] * call.body.one("count", int))
    refused = next((each for each in results if isinstance(each, BrokerError)), None)
    if refused is not None and len(results) == 1:
        raise refused
    return {"results": [sent_json(entity, each) for each in results]}


ENDPOINTS: Final = (
    Endpoint("GET", "/templates", "The kept templates of messages", list_templates, ALL),
    Endpoint("GET", "/templates/{name}", "A template", show_template, TEMPLATE, at=_AT),
    Endpoint(
        "PUT",
        "/templates/{name}",
        "Keep a message under a name, in place of the one that has it",
        put_template,
        TEMPLATE,
        at=_AT,
        body=record("The message.", {"message": _MESSAGE}),
        errors=(409,),
        body_bytes_max=BODY_BYTES_MAX,
        example=EXAMPLE,
    ),
    Endpoint("DELETE", "/templates/{name}", "Forget a template", delete_template, DELETED, at=_AT),
    Endpoint(
        "POST",
        "/templates/{name}/send",
        "Send the message of a template to a queue or topic",
        send_template,
        SENT,
        at=_AT,
        body=record(
            "Where, and how often.",
            {
                "entity": text("Path of the queue or topic.", chars_min=1, chars_max=400),
                "count": default(integer("How often.", 1, COUNT_MAX), 1),
            },
        ),
        errors=(409,),
        example={"entity": "orders", "count": 3},
    ),
)
