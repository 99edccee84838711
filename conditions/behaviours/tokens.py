"""Tokens that are refused, and how many a connection may put.

Knows the refusals of the `$cbs` node and of administration clients. Does not know what a token opens.
"""

from __future__ import annotations

from typing import Final

from ...broker import service_errors
from ...broker.errors import BrokerError
from .. import texts
from ..behaviour import Behaviour, Circumstances, Parameter, Row, key_of, share
from ..strikes import AdminRefusal, AdminRequest

TOPIC: Final = "Tokens"


class TokenRefused(Behaviour):
    """Tokens are refused although they are good: to clients they look expired, forged, or not checked at all."""

    def putting_token(self, connection: int, audience: str) -> BrokerError | None:
        scope = key_of(audience)
        if not self.covers(audience) or not self.chosen(scope) or not self.on.record(scope, "token refused"):
            return None
        match self.word("why"):
            case "expired":
                return texts.token_expired(self.on.clock.now_ms())
            case "signature":
                return texts.token_not_signed()
            case _:
                return texts.internal()

    def before_admin(self, request: AdminRequest) -> AdminRefusal | None:
        scope = f"{key_of(request.path)} administration"
        if not self.covers(request.path) or not self.chosen(scope) or not self.on.record(scope, "token refused"):
            return None
        if self.word("why") == "node":
            return AdminRefusal(500, texts.admin_failed())
        return AdminRefusal(401, texts.admin_token_refused())


class Tokens(Behaviour):
    """A connection may put tokens for few audiences."""

    def __init__(self, on: Circumstances) -> None:
        super().__init__(on)
        self._audiences: dict[int, set[str]] = {}

    def putting_token(self, connection: int, audience: str) -> BrokerError | None:
        """Refuse a token for one audience too many; a newer token for one of them is taken."""
        audiences, key = self._audiences.setdefault(connection, set()), key_of(audience)
        if key in audiences:
            return None
        if len(audiences) >= self.number("max"):
            scope = f"connection {connection}"
            refused = self.on.record(scope, "token refused")
            return service_errors.tokens_exceeded(self.number("max")) if refused else None
        audiences.add(key)
        return None


ROWS: Final = (
    Row(
        "token-refused",
        TOPIC,
        "A token is refused although it is good. With `count` 1 the next one is taken.",
        "entity",
        "`$cbs`: status 401, `ExpiredToken: …` or `InvalidSignature: …`, or 500; HTTP 401, `SubCode=40103`, or 500",
        "azure-service-bus 182; status 500: azure-event-hubs-spark 343",
        (
            share(),
            Parameter(
                "why",
                "What the service says: expired, not signed by a key of its own, or a node in trouble.",
                "expired",
                choices=("expired", "signature", "node"),
            ),
        ),
        TokenRefused,
    ),
    Row(
        "tokens",
        "Quotas",
        "A connection may put tokens for few entities. Counted from the start of the condition.",
        "connection",
        "`$cbs`: status 403, `The maximum number of '…' tokens per connection has been reached.`",
        "documentation (troubleshooting); azure-sdk-for-js 1714",
        (Parameter("max", "Entities that a connection has tokens for.", 1_000, "entities", 0, 1_000),),
        Tokens,
    ),
)
