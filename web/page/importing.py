"""Files of forms: messages as JSON Lines, entities as a Config.json.

Does not know what a line says (`web.messages`) and what a Config.json means (`web.exports`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from aiohttp import BodyPartReader, MultipartReader, web
from aiohttp.http_exceptions import BadHttpMessage

from ...broker.errors import BrokerError
from ...broker.model.descriptions import SubscriptionDescription
from ..config_import import CONFIG_BYTES_MAX, import_config
from ..messages.transfer import imported
from . import namespace
from .flashes import Flash
from .forms import Form, FormError, quoted
from .site import Site, address

MULTIPART: Final = "multipart/form-data"
CHUNK_BYTES: Final = 64 << 10
PATH_BYTES_MAX: Final = 4 << 10
UNREADABLE: Final = (ValueError, RuntimeError, BadHttpMessage)
"""What aiohttp raises for parts that are none: boundaries, headers, lengths, character sets."""
FAILURES_SHOWN: Final = 20


async def load_messages(site: Site, request: web.Request) -> web.Response:
    """Send the messages of the uploaded file. FormError, BrokerError."""
    upload = _Upload(request)
    named = await upload.part("path", "The form has no entity (path) before its file.")
    entity = site.entity(
        b"".join([chunk async for chunk in upload.chunks(named, PATH_BYTES_MAX)]).decode(errors="replace")
    )
    if isinstance(entity.description, SubscriptionDescription):
        raise FormError(f"Messages are sent to the topic '{entity.description.topic_name}', not to a subscription.")
    file = await upload.part("lines", "The form has no file (lines).")
    found = await imported(site.broker, entity, upload.chunks(file), site.aside)
    lines = [(f"line {line}: {reason}", "") for line, reason in found.failures[:FAILURES_SHOWN]]
    text = f"{found.sent_count:,} message{'' if found.sent_count == 1 else 's'} imported."
    if found.failed_count:
        text += f" {found.failed_count:,} failed."
    return site.redirect(address("send", path=entity.path), Flash(text, lines, is_warning=bool(lines)))


async def load_config(site: Site, request: web.Request) -> web.Response:
    """Create the entities of the uploaded file that are missing. FormError."""
    upload = _Upload(request)
    file = await upload.part("config", "The form has no file (config).")
    data = b"".join([chunk async for chunk in upload.chunks(file, CONFIG_BYTES_MAX)])
    try:
        found = await import_config(site.services, data, site.aside)
    except BrokerError as error:
        return await namespace.show(site, request, Form({}).failed("import-config", error))
    lines = [(path, address("entity", path=path)) for path in found.created[:FAILURES_SHOWN]]
    lines += [(f"{path}: {reason}", "") for path, reason in found.failures[:FAILURES_SHOWN]]
    lines += [(warning, "") for warning in found.warnings[:FAILURES_SHOWN]]
    count = len(found.created)
    text = f"{count:,} entit{'y was' if count == 1 else 'ies were'} created; {len(found.existing):,} existed before."
    if found.failures:
        text += f" {len(found.failures):,} failed."
    return site.redirect(address("namespace"), Flash(text, lines, is_warning=bool(found.failures or found.warnings)))


class _Upload:
    """The parts of a form with a file. FormError for one that can't be read."""

    def __init__(self, request: web.Request) -> None:
        if request.content_type != MULTIPART:
            raise FormError(f"The body is {quoted(request.content_type)}; this form is {MULTIPART}.", status=415)
        self._request = request
        self._parts: MultipartReader | None = None

    async def part(self, name: str, missing: str) -> BodyPartReader:
        """The next part, which must have this name."""
        try:
            if self._parts is None:
                self._parts = await self._request.multipart()
            found = await self._parts.next()
        except UNREADABLE as error:
            raise _unreadable(error) from None
        if not isinstance(found, BodyPartReader) or found.name != name:
            raise FormError(missing)
        return found

    async def chunks(self, part: BodyPartReader, bytes_max: int | None = None) -> AsyncIterator[bytes]:
        size_bytes = 0
        try:
            while chunk := await part.read_chunk(CHUNK_BYTES):
                size_bytes += len(chunk)
                if bytes_max is not None and size_bytes > bytes_max:
                    raise FormError(f"{part.name}: more than {bytes_max} bytes.", part.name or "", status=413)
                yield chunk
        except UNREADABLE as error:
            raise _unreadable(error) from None


def _unreadable(error: Exception) -> FormError:
    return FormError(f"The form can't be read as {MULTIPART}: {quoted(ascii(str(error))[1:-1])}.")
