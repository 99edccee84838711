"""Spans of what happens in a broker: contexts that messages bring along, refusals, bounds. No wire."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from emubus.broker.api import Abandon, Complete, Defer, ReceiveMode
from emubus.broker.broker import Broker
from emubus.broker.clock import Clock
from emubus.broker.errors import BrokerError
from emubus.broker.model.descriptions import QueueDescription
from emubus.telemetry import spans as module
from emubus.telemetry.observers import Observers
from emubus.telemetry.spans import SpanObserver

from ..broker.driving import encoded
from ..broker.namespace import Receiver, open_broker, send

TRACE_ID = 0x0AF7651916CD43DD8448EB211C80319C
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
OTHER = "00-11111111111111111111111111111111-b7ad6b7169203331-01"


class Traced:
    """A broker with a frozen clock and its spans."""

    def __init__(self, *queues: QueueDescription) -> None:
        self.clock = Clock(start_at=1_800_000_000_000, frozen=True)
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        observer = SpanObserver(provider.get_tracer("test"), lambda: self.clock.offset_ms)
        self.broker: Broker = open_broker(*queues, clock=self.clock, observer=Observers(observer))

    @property
    def spans(self) -> list[ReadableSpan]:
        """All spans, the oldest first."""
        return list(self._exporter.get_finished_spans())

    def trace_ids(self) -> set[int]:
        """The traces of all spans."""
        return {span.context.trace_id for span in self.spans if span.context is not None}


@pytest.mark.parametrize(
    ("properties", "joins"),
    [
        ({"traceparent": PARENT}, True),
        ({"Diagnostic-Id": PARENT}, True),
        ({"traceparent": PARENT, "Diagnostic-Id": OTHER, "tracestate": "a=b"}, True),
        ({"Diagnostic-Id": "|old.1."}, False),
        ({"traceparent": 7}, False),
        ({}, False),
    ],
)
async def test_a_message_is_in_the_trace_that_its_properties_name(
    properties: Mapping[str, object], joins: bool
) -> None:
    traced = Traced(QueueDescription("q"))
    await send(traced.broker, "q", encoded(properties=dict(properties)))
    await Receiver(traced.broker, "q", ReceiveMode.RECEIVE_AND_DELETE).receive(1)
    assert [span.name for span in traced.spans] == ["send q", "receive q"]
    assert len(traced.trace_ids()) == 1
    assert (traced.trace_ids() == {TRACE_ID}) is joins


async def test_each_settlement_is_a_span_and_a_new_delivery_stays_in_the_trace() -> None:
    traced = Traced(QueueDescription("q", max_delivery_count=2))
    await send(traced.broker, "q", encoded())
    receiver = Receiver(traced.broker, "q")
    for outcome in (Abandon(), Abandon()):
        (delivery,) = await receiver.receive(1)
        assert await receiver.settle(delivery, outcome) is None
    dead = Receiver(traced.broker, "q/$DeadLetterQueue")
    (delivery,) = await dead.receive(1)
    assert await dead.settle(delivery, Complete()) is None
    found = [(span.attributes or {}).get("messaging.servicebus.disposition_status") for span in traced.spans]
    assert [each for each in found if each] == ["abandoned", "abandoned", "dead-lettered", "completed"]
    assert len(traced.trace_ids()) == 1


async def test_a_refusal_and_a_dropped_duplicate_are_seen_in_the_span() -> None:
    traced = Traced(
        QueueDescription("once", requires_duplicate_detection=True), QueueDescription("full", max_size_mb=1)
    )
    for _ in range(2):
        await send(traced.broker, "once", encoded(id="m"))
    with pytest.raises(BrokerError):  # noqa: PT012 - as many as fit
        for _ in range(10):
            await send(traced.broker, "full", encoded("x" * 200_000))
    dropped = [(span.attributes or {}).get("emubus.dropped") for span in traced.spans if span.name == "send once"]
    assert dropped == [None, "duplicate"]
    last = traced.spans[-1]
    assert last.status.status_code is StatusCode.ERROR
    assert "size" in (last.status.description or "")


async def test_the_time_of_a_span_is_the_machines_whatever_the_brokers_clock_says() -> None:
    traced = Traced(QueueDescription("q"))
    await send(traced.broker, "q", encoded())
    (span,) = traced.spans
    assert span.start_time is not None
    assert span.end_time is not None
    assert 0 <= span.end_time - span.start_time < 60_000_000_000


@pytest.mark.parametrize(("contexts_max", "joins"), [(2, False), (3, True)])
async def test_the_broker_remembers_the_traces_of_so_many_messages(
    monkeypatch: pytest.MonkeyPatch, contexts_max: int, joins: bool
) -> None:
    monkeypatch.setattr(module, "CONTEXTS_MAX", contexts_max)
    traced = Traced(QueueDescription("q"))
    for _ in range(3):
        await send(traced.broker, "q", encoded())
    receiver = Receiver(traced.broker, "q")
    (delivery,) = await receiver.receive(1)
    assert await receiver.settle(delivery, Defer()) is None
    (first, _, _, received, settled) = (span.context.trace_id for span in traced.spans if span.context is not None)
    assert received == settled
    assert (received == first) is joins
