"""An answer of a management node that may fail on purpose, put in front of the node's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final, assert_never

from ...broker import service_errors
from ...broker.api import Abandon
from ...broker.errors import BrokerError
from ...conditions.faults import FaultOperation
from ...conditions.strikes import Effect, Strike
from ..nodes.management import ASSOCIATED_LINK, refusal
from ..nodes.operations import Body
from ..nodes.requests import Answer, ReplyRoom, Request, Response
from .point import InjectionPoint

_OPERATIONS: Final[Mapping[str | None, FaultOperation]] = {
    "com.microsoft:renew-lock": FaultOperation.RENEW,
    "com.microsoft:renew-session-lock": FaultOperation.RENEW,
    "com.microsoft:update-disposition": FaultOperation.SETTLE,
}


class FaultyAnswering:
    """The tap of a node: answers requests with what answers without faults, or fails."""

    def __init__(self, point: InjectionPoint) -> None:
        self._point = point

    async def __call__(self, answer: Answer, request: Request, room: ReplyRoom) -> Response | None:
        """The response; None is none at all."""
        name = request.text("operation") or ""
        point = self._point
        point.used(request.text(ASSOCIATED_LINK))
        strike = point.next_strike(
            _OPERATIONS.get(name, FaultOperation.REQUEST),
            lambda: _messages_asked(request),
            request=request,
            tokens=_tokens_of(request),
        )
        if strike is None:
            return await answer(request, room)
        match strike.effect:
            case Effect.REFUSE:
                if strike.delay_ms:
                    await point.wait(strike.delay_ms)
                return refusal(request, self._tracked(strike.error or service_errors.lock_lost()))
            case Effect.LOSE_LOCK:
                return refusal(request, self._tracked(await self._lose(request)))
            case Effect.DETACH | Effect.CUT:
                point.end(strike)
                return None
            case Effect.IGNORE:
                return None
            case Effect.HOLD:
                await point.wait(strike.delay_ms)
            case Effect.LIMIT:
                body = request.body if isinstance(request.body, dict) else {}
                request = replace(request, body={**body, "message-count": strike.count})
            case Effect.DELAY | Effect.FORGET | Effect.FORGET_AND_CUT | Effect.FORGET_AND_DETACH:
                pass  # it is done first
            case _:
                assert_never(strike.effect)
        response = await answer(request, room)
        return await self._after(strike, response)

    async def _after(self, strike: Strike, response: Response | None) -> Response | None:
        """What becomes of the response of a request that is done."""
        match strike.effect:
            case Effect.DELAY:
                await self._point.wait(strike.delay_ms)
            case Effect.FORGET:
                return None
            case Effect.FORGET_AND_CUT:
                self._point.cut()
                return None
            case Effect.FORGET_AND_DETACH:
                self._point.detach(strike.error)
                return None
            case _:
                pass
        return response

    def _tracked(self, error: BrokerError) -> BrokerError:
        return self._point.connection.tracker.answered(error, self._point.address)

    async def _lose(self, request: Request) -> BrokerError:
        """End the locks that a request names; returns the error of the response."""
        if isinstance(request.body, dict) and "session-id" in request.body and "lock-tokens" not in request.body:
            return service_errors.session_lock_lost()
        with suppress(BrokerError):  # they are lost already, or there are none
            await self._point.connection.broker.messages.settle(
                self._point.address, Body(request.body).lock_tokens(), Abandon({})
            )
        return service_errors.lock_lost()


def _tokens_of(request: Request) -> Sequence[bytes]:
    """The lock tokens that a request is about; none if it names none, or wrong ones."""
    if not isinstance(request.body, dict) or "lock-tokens" not in request.body:
        return ()
    with suppress(BrokerError):
        return Body(request.body).lock_tokens()
    return ()


def _messages_asked(request: Request) -> int:
    count = request.body.get("message-count") if isinstance(request.body, dict) else None
    return count if isinstance(count, int) else 1
