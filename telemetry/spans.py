"""Spans of what happens to messages: one for each send, receive, settlement and forwarding of a message.

Knows how a message carries the context of its trace (`traceparent`, or `Diagnostic-Id` of older SDKs), and remembers it
for the messages in the broker, as the broker's observer. Does not know where spans go (`otlp`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from opentelemetry.trace import (
    INVALID_SPAN_CONTEXT,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    Tracer,
    get_current_span,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from ..broker.api import Event, EventKind, PartitionRef
from ..broker.errors import BrokerError
from ..broker.message.message import Message

CONTEXTS_MAX: Final = 50_000
"""Messages whose trace is remembered; of an older one later spans begin a trace of their own."""
DIAGNOSTIC_ID: Final = "Diagnostic-Id"
SYSTEM: Final = "servicebus"

_SEND, _SETTLE = ("send", SpanKind.SERVER), ("settle", SpanKind.SERVER)
_RECEIVE, _FORWARD = ("receive", SpanKind.SERVER), ("forward", SpanKind.INTERNAL)
OPERATIONS: Final[Mapping[EventKind, tuple[str, SpanKind]]] = {
    EventKind.SENT: _SEND,
    EventKind.REFUSED: _SEND,
    EventKind.LOCKED: _RECEIVE,
    EventKind.RECEIVED: _RECEIVE,
    EventKind.FORWARDED: _FORWARD,
    EventKind.COPIED: _FORWARD,
    EventKind.COMPLETED: _SETTLE,
    EventKind.ABANDONED: _SETTLE,
    EventKind.DEFERRED: _SETTLE,
    EventKind.RELEASED: _SETTLE,
    EventKind.DEAD_LETTERED: _SETTLE,
}
ENDS: Final = frozenset({EventKind.COMPLETED, EventKind.RECEIVED, EventKind.EXPIRED, EventKind.DELETED})
"""After these a message is gone."""
BRINGS: Final = frozenset({EventKind.ACTIVATED, EventKind.FORWARDING, EventKind.RESUBMITTED})
"""By these a message gets a new number, without a span."""

_propagator = TraceContextTextMapPropagator()


class SpanObserver:
    """Makes spans of the events of committed batches; `offset_ms` is how far the broker's clock is ahead."""

    is_on = True

    def __init__(self, tracer: Tracer, offset_ms: Callable[[], int]) -> None:
        self._tracer = tracer
        self._offset_ms = offset_ms
        self._contexts: OrderedDict[tuple[int, int], SpanContext] = OrderedDict()

    def observe(self, now: int, events: Sequence[Event]) -> None:
        """Make the spans of a batch that was executed at `now` (Unix ms): from then until now."""
        began_ns = (now - self._offset_ms()) * 1_000_000
        for event in events:
            if event.kind in OPERATIONS or event.kind in ENDS or event.kind in BRINGS:
                self._event(event, began_ns)

    def forget(self) -> None:
        """The stores are exchanged: the same numbers will be other messages."""
        self._contexts.clear()

    def _event(self, event: Event, began_ns: int) -> None:
        queue_id = event.ref.queue_id
        for position, number in enumerate(event.numbers):
            message = event.messages[position] if position < len(event.messages) else None
            context = self._context(queue_id, number, message, event.source)
            if event.kind in OPERATIONS:
                span = self._span(event, number, context, began_ns)
                context = context if context.is_valid else span.get_span_context()
            if event.kind in ENDS:
                self._contexts.pop((queue_id, number or 0), None)
            elif number is not None and context.is_valid:
                self._contexts[queue_id, number] = context
                if len(self._contexts) > CONTEXTS_MAX:
                    self._contexts.popitem(last=False)

    def _context(
        self, queue_id: int, number: int | None, message: Message | None, source: tuple[int, int] | None
    ) -> SpanContext:
        """The context that a message brings along, or that it or its source is known by."""
        found = INVALID_SPAN_CONTEXT if message is None else context_in(message)
        if not found.is_valid and source is not None:
            found = self._contexts.get(source, INVALID_SPAN_CONTEXT)
        if not found.is_valid and number is not None:
            found = self._contexts.get((queue_id, number), INVALID_SPAN_CONTEXT)
        return found

    def _span(self, event: Event, number: int | None, parent: SpanContext, began_ns: int) -> Span:
        name, kind = OPERATIONS[event.kind]
        context = set_span_in_context(NonRecordingSpan(parent)) if parent.is_valid else None
        span = self._tracer.start_span(
            f"{name} {event.ref.path}",
            context,
            kind,
            _attributes(name, event.kind, event.ref, number, event.facts),
            start_time=began_ns,
        )
        if event.kind is EventKind.REFUSED:
            span.set_status(Status(StatusCode.ERROR, str(event.facts.get("reason", ""))))
        span.end()
        return span


def context_in(message: Message) -> SpanContext:
    """The context of the trace that a message belongs to; an invalid one if it has none that can be read."""
    try:
        properties = message.application_properties()
    except BrokerError:
        return INVALID_SPAN_CONTEXT
    parent = properties.get("traceparent") or properties.get(DIAGNOSTIC_ID)
    if not isinstance(parent, str):
        return INVALID_SPAN_CONTEXT
    carrier = {"traceparent": parent, "tracestate": str(properties.get("tracestate") or "")}
    return get_current_span(_propagator.extract(carrier)).get_span_context()


def _attributes(
    operation: str, kind: EventKind, ref: PartitionRef, number: int | None, facts: Mapping[str, object]
) -> dict[str, AttributeValue]:
    """What a span says; the names are those of OpenTelemetry's conventions for messaging, where there is one."""
    found: dict[str, AttributeValue] = {
        "messaging.system": SYSTEM,
        "messaging.operation.name": operation,
        "messaging.destination.name": ref.path,
    }
    if operation != "forward":
        found["messaging.operation.type"] = operation
    if operation == "settle":
        found["messaging.servicebus.disposition_status"] = kind.value
    if ref.partitioned:
        found["messaging.destination.partition.id"] = str(ref.index)
    if number is not None:
        found["emubus.sequence_number"] = number
    elif kind in (EventKind.SENT, EventKind.FORWARDED):
        found["emubus.dropped"] = "duplicate"
    for name in ("by", "reason"):
        if facts.get(name):
            found[f"emubus.{name}"] = str(facts[name])
    return found
