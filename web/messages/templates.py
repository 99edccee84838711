"""Kept templates: messages by name that an operator sends again and again.

A template is a message as in JSON Lines (`json_lines`), with every type. All of them are one small file beside the
stores: a restart keeps them, and so does a reset of the namespace. A server in memory keeps them until it stops. Owned
by the HTTP server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

import structlog
from aiohttp import web

from ...broker.aside import Aside
from ...broker.errors import BrokerError, Condition
from ...broker.names import KeptFile, TemplateName
from ..json_object import JsonObject
from ..json_reader import read_json
from ..json_writer import json_pieces
from ..services import KeptFiles
from .json_lines import message_of

TEMPLATES_MAX: Final = 200
MESSAGE_CHARS_MAX: Final = 512 << 10
"""Longest message of a template, as JSON."""
FILE_VALUES_MAX: Final = TEMPLATES_MAX * MESSAGE_CHARS_MAX // 2
"""Most values in the file: all that its templates may have."""

log = structlog.get_logger(__name__)


class Templates:
    def __init__(self, files: KeptFiles | None, aside: Aside) -> None:
        self._files = files
        self._aside = aside
        self._kept: dict[TemplateName, JsonObject] | None = None
        self._turn = asyncio.Lock()

    async def all(self) -> Mapping[TemplateName, JsonObject]:
        """The messages by the names of their templates, in the order of these."""
        kept = await self._load()
        return {name: kept[name] for name in sorted(kept, key=str.casefold)}

    async def get(self, name: TemplateName) -> JsonObject:
        """The message of a template. BrokerError (not-found)."""
        kept = await self._load()
        if name not in kept:
            raise BrokerError(Condition.NOT_FOUND, f"There is no template '{name}'.")
        return kept[name]

    async def encoded(self, name: TemplateName) -> bytes:
        """The encoded message of a template. BrokerError (not-found)."""
        message = await self.get(name)
        data, _ = await self._aside.run(lambda: message_of({"message": dict(message)}))
        return data

    async def put(self, name: TemplateName, message: JsonObject) -> None:
        """Keep a message, in place of the one that has the name. BrokerError (argument-error: no message; too many)."""
        try:
            size = await self._aside.run(lambda: _checked_size(message))
        except ValueError as error:
            raise BrokerError(Condition.ARGUMENT_ERROR, f"This is no message: {error}.") from None
        if size > MESSAGE_CHARS_MAX:
            text = f"The message has {size} characters as JSON; a template has at most {MESSAGE_CHARS_MAX}."
            raise BrokerError(Condition.ARGUMENT_ERROR, text)
        kept = dict(await self._load())
        kept[name] = message
        if len(kept) > TEMPLATES_MAX:
            raise BrokerError(
                Condition.RESOURCE_LIMIT_EXCEEDED, f"There are {TEMPLATES_MAX} templates: delete one before."
            )
        await self._write(kept)

    async def delete(self, name: TemplateName) -> None:
        """Forget a template. BrokerError (not-found)."""
        await self.get(name)
        await self._write({each: message for each, message in (await self._load()).items() if each != name})

    async def _load(self) -> dict[TemplateName, JsonObject]:
        async with self._turn:
            if self._kept is None:
                data = b"" if self._files is None else await asyncio.to_thread(self._files.read, KeptFile.TEMPLATES)
                self._kept = await self._aside.run(lambda: _templates_in(data))
            return self._kept

    async def _write(self, kept: dict[TemplateName, JsonObject]) -> None:
        async with self._turn:
            if self._files is not None:
                data = await self._aside.run(lambda: b"".join(json_pieces(kept)))
                await asyncio.to_thread(self._files.write, KeptFile.TEMPLATES, data)
            self._kept = kept


def _checked_size(message: JsonObject) -> int:
    """The number of characters of a message as JSON. ValueError if it is none."""
    message_of({"message": dict(message)})
    return sum(map(len, json_pieces(message)))


def _templates_in(data: bytes) -> dict[TemplateName, JsonObject]:
    """The templates in a file; one that can't be read counts as none, and is said so in the log."""
    try:
        read = JsonObject(read_json(data or b"{}", FILE_VALUES_MAX))
        kept = {name: JsonObject(message) for name, message in read.items()}
    except (TypeError, ValueError) as error:
        log.warning("the templates of messages can't be read", file=KeptFile.TEMPLATES.value, cause=str(error))
        return {}
    found: dict[TemplateName, JsonObject] = {}
    for name, message in kept.items():
        try:
            found[TemplateName(name)] = message
        except BrokerError as error:  # an older release took it
            log.warning("a template is left out: its name", file=KeptFile.TEMPLATES.value, cause=error.description)
    return found


TEMPLATES: Final = web.AppKey("templates", Templates)
"""Where an application has its templates."""
