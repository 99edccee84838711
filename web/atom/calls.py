"""One management request: its target, its body, and what its query and headers ask for [http 2].

Knows api-version, paging and the addresses that answers repeat. Does not know entities.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import urlencode

from aiohttp import hdrs, web

from ..limits import PAGE_ENTITIES, PAGE_ENTITIES_MAX, XML_BYTES_MAX
from ..resources import Resource
from .parsing import bad
from .refusals import too_large

NEWEST: Final = "9999-99"  # stands for the api-version of a request without one


class ManagementCall:
    """A parsed request: its target, body and query."""

    def __init__(self, request: web.Request, target: Resource, body: bytes) -> None:
        self.request = request
        self.target = target
        self.body = body
        self.version = request.query.get("api-version") or NEWEST
        self.is_change = request.method == hdrs.METH_PUT
        self.is_update = self.is_change and hdrs.IF_MATCH in request.headers
        self.is_create = self.is_change and not self.is_update

    @property
    def short_query(self) -> str:
        """The query that follows an entity's address in a list."""
        version = self.request.query.get("api-version")
        return "" if version is None else f"?api-version={version}"

    def address(self, *, subscription: bool = False) -> str:
        """The address of the request with its query, the path decoded and in the client's spelling.

        JavaScript takes the names from it. Addresses of subscriptions and rules have the scheme sb in answers to GET.
        """
        scheme = "sb" if subscription and not self.is_change else self.request.scheme
        query = self.request.rel_url.raw_query_string
        slash = "/" if self.target.is_open else ""
        return f"{scheme}://{self.request.host}/{self.target.path}{slash}{f'?{query}' if query else ''}"

    def address_of(self, path: str) -> str:
        """The address of an entity in a list."""
        return f"{self.request.scheme}://{self.request.host}/{path}{self.short_query}"

    def page(self) -> tuple[int, int]:
        """The number of entities to skip and to return; HttpRefusal (400), for `$skip` first."""
        skip = self._count("$skip", 0)
        return skip, min(self._count("$top", PAGE_ENTITIES), PAGE_ENTITIES_MAX)

    def page_address(self, skip: int, top: int) -> str:
        others = [(name, value) for name, value in self.request.query.items() if name not in ("$skip", "$top")]
        query = urlencode([("$skip", str(skip)), ("$top", str(top)), *others], safe="$")
        return f"{self.request.scheme}://{self.request.host}/{self.target.path}?{query}"

    def _count(self, name: str, default: int) -> int:
        text = self.request.query.get(name)
        if not text:
            return default
        if not (text.isascii() and text.isdecimal() and len(text) <= 10):
            raise bad(f"Parameter '{name.removeprefix('$')}' should be non-negative integer.")
        return int(text)


async def body_of(request: web.Request) -> bytes:
    """Read the body; HttpRefusal (413) if it is larger than a description may be."""
    if request.content_length is not None and request.content_length > XML_BYTES_MAX:
        raise too_large()
    body = await request.read()
    if len(body) > XML_BYTES_MAX:
        raise too_large()
    return body
