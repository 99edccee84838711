"""A request for a resource, what is answered, and refusals.

Knows the form of a call. Does not know resources.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final

from aiohttp import web

from ...broker.errors import BrokerError, Condition
from ..errors import ANSWERS, EXISTS, refusal_of

if TYPE_CHECKING:
    from ..services import Services
    from .state import State

JsonValue = object


class ArmRefusal(Exception):  # noqa: N818 - the answer to a request
    """An error answer: a status, Resource Manager's code for programs, and a sentence for people."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


@dataclass(frozen=True, slots=True)
class Reply:
    """The status of an answer, its JSON (None without a body), and headers that only it has."""

    status: int
    body: JsonValue = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


Rows = Callable[[Sequence[str]], Sequence[tuple["Operation", dict[str, str]]]]


@dataclass(frozen=True, slots=True)
class ArmCall:
    """A request: the parts of its path that have names, and its body."""

    services: Services
    state: State
    request: web.Request
    names: Mapping[str, str]
    """By the words in braces of the row's path, such as `namespace`, as the client wrote them."""
    version: str
    method: str
    rows: Rows
    """Finds the operations of a path, for a request that consists of others."""
    body: Mapping[str, object] = field(default_factory=dict[str, object])

    @property
    def subscription(self) -> str:
        """The path of the subscription, which every id begins with."""
        return f"/subscriptions/{self.names['subscription']}"

    def group_id(self, group: str) -> str:
        return f"{self.subscription}/resourceGroups/{group}"


def reply_of_list(items: Sequence[object]) -> Reply:
    """A list; it has all there are, so that there is never a next page."""
    return Reply(200, {"value": list(items)})


Run = Callable[[ArmCall], Awaitable[Reply]]


@dataclass(frozen=True)
class Operation:
    """A row. `bytes_max` limits its body; `is_public`: it needs no token."""

    method: str
    path: str
    run: Run
    bytes_max: int = 256 << 10
    is_public: bool = False
    is_loose: bool = False
    """Whether its body may be the JSON that the Azure CLI makes of a template (`loose_json.py`)."""

    @cached_property
    def words(self) -> tuple[str, ...]:
        return tuple(self.path.split("/"))

    @property
    def is_of_service_bus(self) -> bool:
        """Whether the path is one of the provider, whose versions are known."""
        return "providers/Microsoft.ServiceBus/" in self.path

    def names_in(self, parts: Sequence[str]) -> dict[str, str] | None:
        """The parts of a path that have names here; None if it is another path."""
        if len(parts) != len(self.words):
            return None
        found: dict[str, str] = {}
        for word, part in zip(self.words, parts, strict=True):
            if word.startswith("{"):
                if not part:
                    return None
                found[word[1:-1]] = part
            elif word.lower() != part.lower():
                return None
        return found


CODES: Final[Mapping[int, str]] = {
    400: "MessagingGatewayBadRequest",  # hashicorp/terraform-provider-azurerm 28576
    401: "AuthenticationFailed",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    500: "InternalServerError",
    503: "ServerUnavailable",
}
"""Codes by status, for errors of the administration; all but the first are guesses."""


def refusal_of_broker(error: BrokerError) -> ArmRefusal:
    """The refusal of the administration, in the words that the management API has for it."""
    found = refusal_of(error)
    if error.condition is Condition.ENTITY_ALREADY_EXISTS:
        return ArmRefusal(409, CODES[409], EXISTS)
    status = ANSWERS[error.condition].status if found.status != 400 else 400
    return ArmRefusal(status, CODES.get(status, "BadRequest"), found.detail)


def bad(message: str, code: str = "BadRequest") -> ArmRefusal:
    return ArmRefusal(400, code, message)


def missing(kind: str, name: str, group: str) -> ArmRefusal:
    """What Resource Manager says of a resource that there isn't."""
    text = f"The Resource 'Microsoft.ServiceBus/{kind}/{name}' under resource group '{group}' was not found."
    return ArmRefusal(404, "ResourceNotFound", text)


def no_parent(kind: str, name: str) -> ArmRefusal:
    """What it says of something below a resource that there isn't."""
    text = f"Can not perform requested operation on nested resource. Parent resource '{name}' ({kind}) not found."
    return ArmRefusal(404, "ParentResourceNotFound", text)
