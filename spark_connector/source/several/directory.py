"""The names of a namespace's entities, from the service's administration over HTTP [http 3].

Knows the lists of queues, topics and subscriptions, their pages, and what refusals mean to a user. Uses nothing that
only emubus has: on Azure the same lists need a credential with the right Manage. Does not know what entities are read
for. Each call opens a connection of its own, because lists are seldom asked for.
"""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Iterator
from typing import Final
from urllib.parse import quote
from xml.etree import ElementTree

from ...choice import SUBSCRIPTIONS, EntityChoice
from ...conditions import unavailable
from ...dialing.credentials import JWT_TYPE
from ...errors import Code, ConnectorError
from ...options import ConnectionOptions

PAGE: Final = 100  # the most that the service gives at once
VERSION: Final = "2021-05"
PAGE_BYTES_MAX: Final = 16 << 20
_ATOM: Final = "{http://www.w3.org/2005/Atom}"
_REMEDY: Final = "give a credential with the right Manage, or name the entities by the option entities"


def matching(options: ConnectionOptions, choice: EntityChoice) -> list[str]:
    """The paths, with sub-queue, of the entities that match the pattern now, in order.

    ConnectorError: UNAUTHORIZED without the right Manage, UNAVAILABLE (retriable) without an answer in time, REFUSED.
    """
    pattern = choice.pattern
    if pattern is None:
        return []
    directory = _Directory(options, choice.administration_port)
    found = [name for name in directory.names("$Resources/Queues") if pattern.matches(name)]
    if pattern.asks_subscriptions:
        for topic in directory.names("$Resources/Topics"):
            if pattern.matches_topic(topic):
                paths = (f"{topic}{SUBSCRIPTIONS}{name}" for name in directory.names(f"{topic}{SUBSCRIPTIONS[:-1]}"))
                found += [path for path in paths if pattern.matches(path)]
    return sorted(f"{path}{choice.sub_queue}" for path in found)


class _Directory:
    def __init__(self, options: ConnectionOptions, port: int) -> None:
        self._endpoint = options.endpoint
        self._credential = options.credential
        self._port = port

    def names(self, address: str) -> Iterator[str]:
        """The names in a list, page by page."""
        skip = 0
        while True:
            page = self._page(address, skip)
            yield from page
            skip += len(page)
            if len(page) < PAGE:
                return

    def _page(self, address: str, skip: int) -> list[str]:
        path = f"/{quote(address)}?$skip={skip}&$top={PAGE}&api-version={VERSION}"
        status, reason, body = self._get(path)
        if status in (401, 403):
            raise ConnectorError(Code.UNAUTHORIZED, f"entityPattern: the service lists no entities: {_REMEDY}")
        if status == 404:  # a topic that was deleted meanwhile
            return []
        if status != 200:
            retriable = status >= 500 or status == 429
            code = Code.THROTTLED if status in (429, 503) else Code.REFUSED
            text = f"entityPattern: the service answers the list {address} with {status} {reason}: {_REMEDY}"
            raise ConnectorError(code, text, retriable=retriable)
        return _titles(body, self._where)

    def _get(self, path: str) -> tuple[int, str, bytes]:
        endpoint = self._endpoint
        timeout_s = endpoint.operation_timeout_s
        connection = (
            http.client.HTTPSConnection(
                endpoint.host,
                self._port,
                timeout=timeout_s,
                context=ssl.create_default_context(cafile=endpoint.ca_file),
            )
            if endpoint.tls
            else http.client.HTTPConnection(endpoint.host, self._port, timeout=timeout_s)
        )
        try:
            connection.request("GET", path, headers={"Authorization": self._authorization()})
            response = connection.getresponse()
            return response.status, response.reason, response.read(PAGE_BYTES_MAX)
        except (OSError, http.client.HTTPException) as error:
            raise unavailable(
                f"entityPattern: {self._where} gives no list of entities ({error or type(error).__name__}): check the "
                "option administrationPort, or name the entities by the option entities"
            ) from None
        finally:
            connection.close()

    def _authorization(self) -> str:
        token = self._credential.token(f"{'https' if self._endpoint.tls else 'http'}://{self._endpoint.address_host}/")
        return f"Bearer {token.text}" if token.type == JWT_TYPE else token.text

    @property
    def _where(self) -> str:
        return f"{self._endpoint.host}:{self._port}"


def _titles(body: bytes, where: str) -> list[str]:
    """The titles of a feed's entries; ConnectorError(REFUSED) if it is no feed."""
    try:
        if b"<!DOCTYPE" in body:  # its entities could grow without bound
            raise ElementTree.ParseError("it has a document type")
        feed = ElementTree.fromstring(body)
    except ElementTree.ParseError as error:
        raise ConnectorError(
            Code.REFUSED,
            f"entityPattern: {where} answers with something else than a list of entities ({error}): check the option "
            "administrationPort",
        ) from None
    return [title.text or "" for title in feed.iterfind(f"{_ATOM}entry/{_ATOM}title")]
