"""The `$management` node of an entity [wire 7].

Knows the bodies of the operations and the meaning of their statuses. Does not know the messages in a reply: the reply
to a peek is returned as bytes, for the codec. A `Management` is made by its connection, once per entity.

Some operations are emubus's own (`emubus:…`); other services, and earlier releases of it, don't offer them, and the
caller uses standard operations instead. With `Endpoint.standard_only` this node answers for the service, "not offered",
and sends nothing that the service does not know. So a caller goes the way that it goes on Azure.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final
from uuid import UUID

from ...codec.types import Int, Timestamp, Uint
from ..conditions import CONDITION_BY_STATUS, wire_error
from ..errors import ConnectorError
from .engine import Engine
from .requests import Head, Pending, Requests, read_body, read_head
from .values import longs, uuids

OK: Final = 200
NOTHING: Final = (202, 204)
NOT_FOUND: Final = 404
MESSAGE_NOT_FOUND: Final = "com.microsoft:message-not-found"
NOT_IMPLEMENTED: Final = "amqp:not-implemented"
SESSIONS_PER_PAGE: Final = 100
ALL_SESSIONS_MS: Final = 253402300800000
"""The last-updated-time that asks for message sessions with messages rather than recent states [wire 7.3]."""

PEEK: Final = "com.microsoft:peek-message"
GENERATION: Final = "emubus:generation"
"""The property of a request that the service refuses if the entity has another generation (emubus only)."""

GET_PARTITIONS: Final = "emubus:get-partitions"
LIST_NUMBERS: Final = "emubus:list-sequence-numbers"
DELETE_BEFORE: Final = "emubus:delete-messages-before"
DELETE_BY_NUMBER: Final = "emubus:delete-messages"
CLAIM: Final = "emubus:claim-messages"
BATCH_DELETE: Final = "com.microsoft:batch-delete-messages"
RECEIVE: Final = "com.microsoft:receive-by-sequence-number"
UPDATE_DISPOSITION: Final = "com.microsoft:update-disposition"
GET_SESSIONS: Final = "com.microsoft:get-message-sessions"


@dataclass(frozen=True, slots=True)
class PartitionRange:
    """The extent of a partition: `next_sequence_number` is that of the next message.

    `partition_id` is the number in the top 16 bits of sequence numbers; `first_sequence_number` is that of the first
    message, or the next number if there is none.
    """

    partition_id: int
    first_sequence_number: int
    next_sequence_number: int
    message_count: int

    @property
    def is_whole(self) -> bool:
        """Whether there is a message with each number in between."""
        return self.message_count == self.next_sequence_number - self.first_sequence_number


@dataclass(frozen=True, slots=True)
class ClaimAnswer:
    """Runs (first number, count) of the messages that are deferred now, and of finished ones that are locked."""

    claimed: tuple[tuple[int, int], ...]
    has_more: bool
    locked: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Response:
    """A decoded response; `body` is plain Python (maps are dicts, arrays lists, times Unix milliseconds)."""

    status: int
    condition: str | None
    description: str
    body: Any


class Management:
    """The node of `entity` (a path, with sub-queue). Every method raises ConnectorError when the service refuses."""

    def __init__(self, engine: Engine, entity: str, authorize: Callable[[str], None]) -> None:
        self.entity = entity
        self.unavailable_partitions: tuple[int, ...] = ()
        """Ids of the partitions that the last `partitions()` couldn't tell about."""
        self.generation: str | None = None
        """What the last `partitions()` said; another text means that all sequence numbers began again."""
        self._authorize = authorize
        self._properties: Mapping[str, object] = {
            "com.microsoft:server-timeout": Uint(int(engine.endpoint.operation_timeout_s * 1000)),
        }
        self._standard_only = engine.endpoint.standard_only
        self._requests = Requests(engine, f"{entity}/$management", entity)

    def of_generation(self, generation: str | None) -> Management:
        """The same node, whose requests fail with DATA_LOSS if the entity has another generation; None: any."""
        if generation is None or self._standard_only:
            return self
        bound = copy.copy(self)
        bound._properties = {**self._properties, GENERATION: generation}
        return bound

    @property
    def lost(self) -> ConnectorError | None:
        """The error that made it unusable."""
        return self._requests.lost

    def discard(self) -> None:
        self._requests.discard()

    @property
    def open_count(self) -> int:
        return self._requests.open_count

    # ---- looking

    def peek(
        self, from_sequence_number: int, count: int, *, session_id: str | None = None, partition_id: int | None = None
    ) -> bytes | None:
        """Up to `count` messages from a number on: the encoded response, or None if there are none."""
        return self.end(self.begin_peek(from_sequence_number, count, session_id=session_id, partition_id=partition_id))

    def begin_peek(
        self,
        from_sequence_number: int,
        count: int,
        *,
        session_id: str | None = None,
        partition_id: int | None = None,
        deferred_only: bool = False,
    ) -> Pending:
        """Send the request of `peek` without waiting; any number may be open.

        `partition_id` and `deferred_only` are emubus's own; an older one shows all messages, and so does every service
        with `standard_only`: the caller has to look at what it gets.
        """
        body: dict[str, object] = {"from-sequence-number": int(from_sequence_number), "message-count": Int(count)}
        if session_id is not None:
            body["session-id"] = session_id
        if partition_id is not None and not self._standard_only:
            body["emubus:partition-id"] = Int(partition_id)
        if deferred_only and not self._standard_only:
            body["emubus:deferred-only"] = Int(1)
        self._authorize(self.entity)
        return self._requests.begin(PEEK, body, self._properties)

    def end(self, pending: Pending) -> bytes | None:
        data = self._requests.end(pending)
        head = read_head(data)
        status, condition, _ = _status(head)
        if status == OK:
            return data
        if status in NOTHING or (status == NOT_FOUND and condition == MESSAGE_NOT_FOUND):
            return None
        raise self._refusal(_response(data, head))

    def partitions(self, *, is_known: bool = False) -> list[PartitionRange] | None:
        """The reachable partitions of the entity; None if the service has no such operation.

        With `is_known` it had, so every refusal is an error that does not say outright that there is none: emubus under
        the condition `no-emubus-operations`, or started with `--service-only` for a checkpoint of before, says so.
        """
        if self._standard_only:
            return None
        response = self.request(GET_PARTITIONS, {})
        if response.condition == NOT_IMPLEMENTED or (not is_known and response.status in (400, 405, 501)):
            return None
        body = self._required(response).body
        self.generation = body.get("generation")
        self.unavailable_partitions = tuple(body.get("unavailable-partitions") or ())
        return [
            PartitionRange(
                partition_id=row["partition-id"],
                first_sequence_number=row["first-sequence-number"],
                next_sequence_number=row["next-sequence-number"],
                message_count=row["message-count"],
            )
            for row in body["partitions"]
        ]

    def numbers(self, partition_id: int, first: int, count: int) -> list[int] | None:
        """Up to `count` sequence numbers that a partition has from `first` on, in order; None if it is not offered."""
        if self._standard_only:
            return None
        body = {"partition-id": Int(partition_id), "from-sequence-number": int(first), "message-count": Int(count)}
        response = self.request(LIST_NUMBERS, body)
        if _is_unknown(response):
            return None
        return [int(each) for each in self._required(response).body["sequence-numbers"]]

    def message_sessions(self) -> list[str]:
        """Every message session that has active messages or a state."""
        found: list[str] = []
        while True:
            body = {
                "last-updated-time": Timestamp(ALL_SESSIONS_MS),
                "skip": Int(len(found)),
                "top": Int(SESSIONS_PER_PAGE),
            }
            response = self.request(GET_SESSIONS, body)
            if response.status in NOTHING or response.condition == "com.microsoft:session-not-found":
                return found
            page = self._required(response).body.get("sessions-ids") or []
            found += page
            if len(page) < SESSIONS_PER_PAGE:
                return found

    # ---- removing

    def delete_before(self, partition_id: int, sequence_number: int, count_max: int) -> int | None:
        """Delete up to `count_max` available messages of a partition below a number; how many, None if not offered."""
        if self._standard_only:
            return None
        body = {
            "partition-id": Int(partition_id),
            "sequence-number-before": int(sequence_number),
            "message-count": Int(count_max),
        }
        response = self.request(DELETE_BEFORE, body)
        if response.condition == NOT_IMPLEMENTED or response.status == 501:
            return None
        return int(self._required(response).body["message-count"])

    def delete_by_number(self, numbers: Iterable[int]) -> int | None:
        """Delete those of these messages that are available; how many, None if it is not offered."""
        if self._standard_only:
            return None
        response = self.request(DELETE_BY_NUMBER, {"sequence-numbers": longs(numbers)})
        if _is_unknown(response):
            return None
        return int(self._required(response).body["message-count"])

    def batch_delete(self, count: int, enqueued_before_ms: int, *, session_id: str | None = None) -> int | None:
        """Delete up to `count` available messages enqueued before an instant, oldest first; returns how many.

        None if it is not offered: by older services, and on partitioned entities.
        """
        body: dict[str, object] = {"message-count": Int(count), "enqueued-time-utc": Timestamp(enqueued_before_ms)}
        if session_id is not None:
            body["session-id"] = session_id
        response = self.request(BATCH_DELETE, body)
        if response.status in NOTHING or response.condition == MESSAGE_NOT_FOUND:
            return 0
        if response.status == 501 or response.condition in (NOT_IMPLEMENTED, "amqp:not-allowed"):
            return None
        return int(self._required(response).body["message-count"])

    # ---- deferred messages

    def receive_by_sequence_number(
        self, numbers: Iterable[int], *, delete: bool, session_id: str | None = None
    ) -> list[tuple[UUID | None, bytes]]:
        """Lock deferred messages (or delete them, with `delete`): lock token and encoded message of each.

        ConnectorError(REFUSED) with the condition `com.microsoft:message-not-found` if one of them is missing.
        """
        body: dict[str, object] = {"sequence-numbers": longs(numbers), "receiver-settle-mode": Uint(0 if delete else 1)}
        if session_id is not None:
            body["session-id"] = session_id
        response = self.request(RECEIVE, body)
        if response.status in NOTHING:
            return []
        rows = self._required(response).body["messages"]
        return [(row.get("lock-token"), row["message"]) for row in rows]

    def update_disposition(self, tokens: Sequence[UUID], status: str, **fields: object) -> None:
        """Settle messages by their lock tokens: `completed`, `abandoned`, `defered` or `suspended`.

        Further fields as Python names: `session_id`, `deadletter_reason`, `properties_to_modify`, ….
        """
        self.end_disposition(self.begin_disposition(tokens, status, **fields))

    def begin_disposition(self, tokens: Sequence[UUID], status: str, **fields: object) -> Pending:
        """Send the request of `update_disposition` without waiting; any number may be open."""
        body = {"disposition-status": status, "lock-tokens": uuids(tokens)}
        body.update({name.replace("_", "-"): value for name, value in fields.items() if value is not None})
        self._authorize(self.entity)
        return self._requests.begin(UPDATE_DISPOSITION, body, self._properties)

    def end_disposition(self, pending: Pending) -> None:
        data = self._requests.end(pending)
        self._required(_response(data, read_head(data)))

    # ---- claims, of emubus only

    def begin_claim(
        self,
        partition_id: int,
        before: int,
        count: int,
        properties: Mapping[str, object],
        finished: Sequence[tuple[int, int]] = (),
    ) -> Pending:
        """Send a request to defer up to `count` available messages of a partition below a number; does not wait.

        It also deletes the deferred messages of the runs `finished` (first number, count).
        """
        assert not self._standard_only  # asked for only after `partitions` has answered
        body: dict[str, object] = {
            "partition-id": Int(partition_id),
            "sequence-number-before": before,
            "message-count": Int(count),
            "properties-to-modify": dict(properties),
            # Empty, too: without it the request is that of an earlier connector.
            "finished-runs": longs(chain.from_iterable(finished)),
        }
        self._authorize(self.entity)
        return self._requests.begin(CLAIM, body, self._properties)

    def end_claim(self, pending: Pending) -> ClaimAnswer | None:
        """Wait for the answer to `begin_claim`; None if it is not offered."""
        data = self._requests.end(pending)
        response = _response(data, read_head(data))
        if _is_unknown(response):
            return None
        body = self._required(response).body
        return ClaimAnswer(_pairs(body["claimed-runs"]), bool(body["has-more"]), _pairs(body["locked-runs"]))

    # ---- any operation

    def request(
        self, operation: str, body: Mapping[str, object], *, properties: Mapping[str, object] | None = None
    ) -> Response:
        """Send any operation and decode its response, whatever its status; values as in `values`."""
        self._authorize(self.entity)
        pending = self._requests.begin(operation, dict(body), {**self._properties, **(properties or {})})
        data = self._requests.end(pending)
        return _response(data, read_head(data))

    def _required(self, response: Response) -> Response:
        if response.status != OK:
            raise self._refusal(response)
        return response

    def _refusal(self, response: Response) -> ConnectorError:
        condition = response.condition or CONDITION_BY_STATUS.get(response.status)
        return wire_error(condition, response.description, entity=self.entity)


def _status(head: Head) -> tuple[int, str | None, str]:
    properties = head.properties
    status = properties.get("statusCode", properties.get("status-code"))
    condition = properties.get("errorCondition") or properties.get("error-condition")
    description = properties.get("statusDescription") or properties.get("status-description") or ""
    return (status if isinstance(status, int) else 500), (str(condition) if condition else None), str(description)


def _is_unknown(response: Response) -> bool:
    """Whether the service has no such operation; it is not known how Azure says so."""
    return response.status in (405, 501) or response.condition == NOT_IMPLEMENTED


def _response(data: bytes, head: Head) -> Response:
    status, condition, description = _status(head)
    return Response(status, condition, description, read_body(data, head))


def _pairs(flat: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Runs that came as first number and count in turns."""
    return tuple(zip(flat[::2], flat[1::2], strict=True))
