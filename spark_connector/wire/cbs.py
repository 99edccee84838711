"""Claims: a token for each entity that the connection uses, renewed before it expires [wire 2].

Knows `$cbs` and when to renew a token. Does not know how tokens are made (`credentials`). A `Claims` belongs to its
connection; every user of an entity asks it first.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from ...codec.types import Timestamp
from ..conditions import CONDITION_BY_STATUS, wire_error
from ..dialing.credentials import Credential, Token
from ..errors import Code, ConnectorError
from ..timing import now_ms
from .engine import Engine
from .requests import Requests, read_head

RENEW_BEFORE_S: Final = 600
"""How long before its expiry a token is renewed; at three quarters of its life if that is later."""

RETRY_AFTER_S: Final = 30
"""When to try again if renewing has failed while the old token is still good."""

_log = logging.getLogger("emubus.spark")


@dataclass(slots=True)
class _Claim:
    renew_at_ms: float
    expires_at_ms: float


class Claims:
    """The tokens of one connection."""

    def __init__(self, engine: Engine, credential: Credential) -> None:
        self._engine = engine
        self._credential = credential
        self._requests: Requests | None = None
        self._claims: dict[str, _Claim] = {}

    def ensure(self, entity: str) -> None:
        """Make sure of a claim on `entity` that does not end soon; ConnectorError(UNAUTHORIZED) if there is none."""
        claim = self._claims.get(entity)
        now = now_ms()
        if claim is not None and now < claim.renew_at_ms:
            return
        try:
            token = self._credential.token(self._audience(entity))
            if claim is not None and token.expires_at_s * 1000 <= claim.expires_at_ms:  # it is the same token again
                claim.renew_at_ms = min(claim.expires_at_ms, now + RETRY_AFTER_S * 1000)
                return
            self._put(entity, token)
        except ConnectorError as error:
            if claim is None or now >= claim.expires_at_ms or self._engine.error is not None:
                raise
            _log.warning("could not renew the token for %s, which is good until it expires: %s", entity, error)
            claim.renew_at_ms = now + RETRY_AFTER_S * 1000
            return
        life_ms = token.expires_at_s * 1000 - now
        renew_before_ms = min(RENEW_BEFORE_S * 1000, life_ms / 4)
        self._claims[entity] = _Claim(now + life_ms - renew_before_ms, now + life_ms)

    def _audience(self, entity: str) -> str:
        return f"sb://{self._engine.endpoint.address_host}/{entity}"

    def _put(self, entity: str, token: Token) -> None:
        if self._requests is not None and self._requests.lost is not None:
            self._requests.discard()
            self._requests = None
        if self._requests is None:
            self._requests = Requests(self._engine, "$cbs", self._engine.where)
        pending = self._requests.begin(
            "put-token",
            token.text,
            {
                "type": token.type,
                "name": self._audience(entity),
                "expiration": Timestamp(int(token.expires_at_s * 1000)),
            },
        )
        properties = read_head(self._requests.end(pending)).properties
        status = properties.get("status-code", properties.get("statusCode"))
        if not isinstance(status, int) or not 200 <= status < 300:
            said = str(properties.get("status-description", properties.get("statusDescription", "")))
            condition = properties.get("errorCondition") or properties.get("error-condition")
            error = wire_error(str(condition or CONDITION_BY_STATUS.get(int(status or 0))), said, entity=entity)
            if status in (400, 401):
                error = ConnectorError(Code.UNAUTHORIZED, error.text, condition=error.condition)
            raise error
