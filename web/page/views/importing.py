"""Importing messages: the file of a form, as JSON Lines. Does not know what a line says (`web.messages`)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from aiohttp import BodyPartReader, web

from ....broker.model.descriptions import SubscriptionDescription
from ...messages.transfer import imported
from ..flashes import Flash
from ..forms import FormError
from ..site import Site, address

MULTIPART: Final = "multipart/form-data"
CHUNK_BYTES: Final = 64 << 10
PATH_BYTES_MAX: Final = 4 << 10
FAILURES_SHOWN: Final = 20


async def load(site: Site, request: web.Request) -> web.Response:
    """Send the messages of the uploaded file. FormError, BrokerError."""
    if request.content_type != MULTIPART:
        raise FormError(f"The body is '{request.content_type}'; this form is {MULTIPART}.", status=415)
    parts = await request.multipart()
    named = await parts.next()
    if not isinstance(named, BodyPartReader) or named.name != "path":
        raise FormError("The form has no entity (path) before its file.")
    entity = site.entity((await named.read_chunk(PATH_BYTES_MAX)).decode(errors="replace"))
    if isinstance(entity.description, SubscriptionDescription):
        raise FormError(f"Messages are sent to the topic '{entity.description.topic_name}', not to a subscription.")
    await named.release()
    file = await parts.next()
    if not isinstance(file, BodyPartReader) or file.name != "lines":
        raise FormError("The form has no file (lines).")
    found = await imported(site.broker, entity, _chunks(file))
    lines = [(f"line {line}: {reason}", "") for line, reason in found.failures[:FAILURES_SHOWN]]
    text = f"{found.sent_count:,} message{'' if found.sent_count == 1 else 's'} imported."
    if found.failed_count:
        text += f" {found.failed_count:,} failed."
    return site.redirect(address("send", path=entity.path), Flash(text, lines, is_warning=bool(lines)))


async def _chunks(part: BodyPartReader) -> AsyncIterator[bytes]:
    while chunk := await part.read_chunk(CHUNK_BYTES):
        yield chunk
