"""Files of forms: messages as JSON Lines, entities as a Config.json.

Does not know what a line says (`web.messages`) and what a Config.json means (`web.exports`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from aiohttp import BodyPartReader, MultipartReader, web

from ....broker.errors import BrokerError
from ....broker.model.descriptions import SubscriptionDescription
from ...exports.config_import import CONFIG_BYTES_MAX, import_config
from ...messages.transfer import imported
from ..flashes import Flash
from ..forms import Form, FormError
from ..site import Site, address
from . import namespace

MULTIPART: Final = "multipart/form-data"
CHUNK_BYTES: Final = 64 << 10
PATH_BYTES_MAX: Final = 4 << 10
FAILURES_SHOWN: Final = 20


async def load(site: Site, request: web.Request) -> web.Response:
    """Send the messages of the uploaded file. FormError, BrokerError."""
    parts = await _parts(request)
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


async def load_config(site: Site, request: web.Request) -> web.Response:
    """Create the entities of the uploaded file that are missing. FormError."""
    file = await (await _parts(request)).next()
    if not isinstance(file, BodyPartReader) or file.name != "config":
        raise FormError("The form has no file (config).")
    data = b""
    async for chunk in _chunks(file):
        data += chunk
        if len(data) > CONFIG_BYTES_MAX:
            raise FormError(f"The file has more than {CONFIG_BYTES_MAX} bytes.", "config", status=413)
    try:
        found = import_config(site.services, data)
    except BrokerError as error:
        return await namespace.show(site, request, Form({}).failed("import-config", error))
    lines = [(path, address("entity", path=path)) for path in found.created[:FAILURES_SHOWN]]
    lines += [(f"{path}: {reason}", "") for path, reason in found.failures[:FAILURES_SHOWN]]
    count = len(found.created)
    text = f"{count:,} entit{'y was' if count == 1 else 'ies were'} created; {len(found.existing):,} existed before."
    if found.failures:
        text += f" {len(found.failures):,} failed."
    return site.redirect(address("namespace"), Flash(text, lines, is_warning=bool(found.failures)))


async def _parts(request: web.Request) -> MultipartReader:
    if request.content_type != MULTIPART:
        raise FormError(f"The body is '{request.content_type}'; this form is {MULTIPART}.", status=415)
    return await request.multipart()


async def _chunks(part: BodyPartReader) -> AsyncIterator[bytes]:
    while chunk := await part.read_chunk(CHUNK_BYTES):
        yield chunk
