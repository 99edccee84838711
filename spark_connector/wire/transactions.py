"""Local transactions: declared and discharged over a link to the coordinator [wire 8].

Knows the messages and states of the coordinator. Does not know the work of a transaction: a sender gets the transaction
as an argument. The connection has one link to the coordinator for all transactions; they are lost with it.
"""

from __future__ import annotations

from copy import copy
from typing import Any, Final

from ...codec.encode import encode
from ..conditions import wire_error
from ..errors import Code, ConnectorError
from ..timing import monotonic_s
from .engine import ACCEPTED, DECLARED, REJECTED, Engine, Pointer, condition_error
from .links import COORDINATOR, BaseLink, make_sender
from .values import VALUE, described, ffi, lib, value_of

DECLARE: Final = 0x31
DISCHARGE: Final = 0x32
NAME: Final = "the transaction coordinator"


class Coordinator(BaseLink):
    """The link; one request at a time."""

    def __init__(self, engine: Engine) -> None:
        pointer = make_sender(engine, None)
        lib.pn_terminus_set_type(lib.pn_link_target(pointer), lib.PN_COORDINATOR)
        super().__init__(engine, NAME, pointer)
        self._timeout_s = engine.endpoint.operation_timeout_s
        self._number = 0
        self._answers: list[tuple[int, Any, ConnectorError | None]] = []
        self.attach(self._timeout_s)

    def on_open(self) -> None:
        self.attached = lib.pn_terminus_get_type(lib.pn_link_remote_target(self.pointer)) == COORDINATOR

    def ask(self, code: int, fields: list[object]) -> tuple[int, Any]:
        """Send declare or discharge; returns the state and fields of the answer. ConnectorError if refused."""
        self.check()
        deadline_s = monotonic_s() + self._timeout_s
        self._until(lambda: lib.pn_link_credit(self.pointer) > 0, deadline_s, "credit")
        message = encode(described(VALUE, described(code, fields)))
        self._number += 1
        tag = ffi.from_buffer(self._number.to_bytes(8, "big"))
        self._answers.clear()
        lib.pn_delivery(self.pointer, ffi.new("pn_bytes_t *", {"size": 8, "start": tag})[0])
        lib.pn_link_send(self.pointer, message, len(message))
        lib.pn_link_advance(self.pointer)
        self._until(lambda: self._answers, deadline_s, "the answer")
        state, value, error = self._answers.pop()
        if error is not None:
            raise error
        return state, value

    def _until(self, is_done: Any, deadline_s: float, what: str) -> None:
        self.engine.run_until(lambda: is_done() or self.lost, deadline_s, f"{what} of {NAME}")
        if not is_done() and self.lost is not None:
            raise copy(self.lost)

    def on_delivery(self, delivery: Pointer) -> None:
        state = int(lib.pn_delivery_remote_state(delivery))
        if not state and not lib.pn_delivery_settled(delivery):
            return
        remote = lib.pn_delivery_remote(delivery)
        error = None
        if state == REJECTED:
            error = condition_error(lib.pn_disposition_condition(remote), NAME) or wire_error(None, None, entity=NAME)
        value = value_of(lib.pn_disposition_data(remote)) if state == DECLARED else None
        lib.pn_delivery_settle(delivery)
        self._answers.append((state, value, error))


class Transaction:
    """Made by `Connection.transaction`; `declare()` before it is used, `discharge()` once at the end."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._id: bytes | None = None

    @property
    def id(self) -> bytes:
        """Its id on the wire; ValueError if it is not declared."""
        if self._id is None:
            raise ValueError("the transaction is not declared, or over")
        return self._id

    @property
    def is_open(self) -> bool:
        return self._id is not None

    def declare(self) -> None:
        if self._id is not None:
            raise ValueError("the transaction is declared already")
        state, value = self._coordinator.ask(DECLARE, [None])
        if state != DECLARED or not isinstance(value, list) or not isinstance(value[0], bytes):
            raise ConnectorError(Code.REFUSED, f"{self._coordinator.engine.where} offers no transactions")
        self._id = value[0]

    def discharge(self, commit: bool) -> None:
        """Commit or roll back; ConnectorError if the commit fails, in which case nothing was done."""
        number, self._id = self.id, None
        state, _ = self._coordinator.ask(DISCHARGE, [number, not commit])
        if state != ACCEPTED:
            raise ConnectorError(Code.REFUSED, f"{NAME} has not confirmed the transaction's end: it may have failed")
