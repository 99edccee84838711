"""Sends traces and metrics to an OpenTelemetry collector: OTLP over HTTP, as protobuf.

Knows OpenTelemetry's exporters and which of its environment variables switch what; the exporters read the others
(headers, time-outs, samplers, batches) themselves. Needs the extra `emubus[otel]`. Owned by the composition root.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Final

import structlog
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from ..broker.api import Observer
from ..broker.clock import Clock, Timer
from .collecting import Sources, collect, release
from .collector import SOUND, CollectorSession, CollectorState, on_own_thread
from .observers import Observers
from .otlp_metrics import metrics_data
from .spans import SpanObserver

INTERVAL: Final = "OTEL_METRIC_EXPORT_INTERVAL"
INTERVAL_MS: Final = 60_000
STOP_MS: Final = 2_000
"""How long a stop waits for the collector. Containers are killed 10 s after they are asked to stop."""
PROTOCOL: Final = "http/protobuf"

log = structlog.get_logger("emubus")


class CollectorError(Exception):
    """The collector does not take everything; the text says what, and why."""


class OtlpError(Exception):
    """A variable has a value that can't be used; the text is one line."""


class Otlp:
    """Traces and metrics for the collector at `endpoint`, such as `http://localhost:4318`. Raises OtlpError."""

    def __init__(self, endpoint: str, variables: Mapping[str, str], clock: Clock) -> None:
        self.state = CollectorState()
        self._clock = clock
        self._interval_ms = _interval_ms(variables)
        protocol = variables.get("OTEL_EXPORTER_OTLP_PROTOCOL", PROTOCOL)
        if protocol != PROTOCOL:
            raise OtlpError(f"OTEL_EXPORTER_OTLP_PROTOCOL is '{protocol}': emubus sends {PROTOCOL} (port 4318) only")
        base = endpoint.rstrip("/")
        self._resource = Resource.create({"service.name": "emubus", "service.version": release()}).merge(
            OTELResourceDetector().detect()
        )
        self._provider: TracerProvider | None = None
        if _is_wanted(variables, "OTEL_TRACES_EXPORTER"):
            self._provider = TracerProvider(resource=self._resource, shutdown_on_exit=False)
            to = None if variables.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") else f"{base}/v1/traces"
            session = CollectorSession("traces", self.state)
            self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(to, session=session)))
        self._exporter: OTLPMetricExporter | None = None
        if _is_wanted(variables, "OTEL_METRICS_EXPORTER"):
            to = None if variables.get("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT") else f"{base}/v1/metrics"
            self._exporter = OTLPMetricExporter(to, session=CollectorSession("metrics", self.state))
        self._scope = InstrumentationScope("emubus", release())
        self._began_ns = self._now_ns()
        self._sources: Sources | None = None
        self._timer: Timer | None = None
        self._is_due = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def observer(self, other: Observer) -> Observer:
        """The observer for the broker: `other`, and one that makes spans."""
        if self._provider is None:
            return other
        tracer = self._provider.get_tracer("emubus", release())
        return Observers(other, SpanObserver(tracer, lambda: self._clock.offset_ms))

    def start(self, sources: Sources) -> None:
        """Send metrics from now on, each interval."""
        self._sources = sources
        self._task = asyncio.get_running_loop().create_task(self._send_each_interval())
        self._tick_later()

    async def stop(self) -> None:
        """Send what has not been sent, as far as the collector takes it soon."""
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
        try:
            async with self._clock.time_limit(STOP_MS):
                await self._send_the_rest()
        except Exception as error:  # a collector must neither hold up nor end a stop
            log.warning("not all traces and metrics were sent", cause=str(error) or "the collector takes its time")
        if self._exporter is not None:
            self._exporter.shutdown()

    async def _send_the_rest(self) -> None:
        if self._provider is None:
            await self._send_metrics()
        else:  # beside each other: one that hangs must not cost the other its time
            await asyncio.gather(self._send_metrics(), on_own_thread("otlp-traces", self._provider.shutdown))
        if str(self.state) != SOUND:
            raise CollectorError(str(self.state))

    def _tick_later(self) -> None:
        self._timer = self._clock.call_after(self._interval_ms, self._tick)

    def _tick(self) -> None:
        self._is_due.set()
        self._tick_later()

    async def _send_each_interval(self) -> None:
        while True:
            await self._is_due.wait()
            self._is_due.clear()
            try:
                await self._send_metrics()
            except Exception as error:  # a collector must not stop the server
                self.state.note("metrics", type(error).__name__)

    async def _send_metrics(self) -> None:
        if self._exporter is None or self._sources is None:
            return
        families = await collect(self._sources)
        data = metrics_data(families, self._resource, self._scope, self._began_ns, self._now_ns())
        await on_own_thread("otlp-metrics", partial(self._exporter.export, data))

    def _now_ns(self) -> int:
        """The machine's time: the broker's clock may be elsewhere."""
        return (self._clock.now_ms() - self._clock.offset_ms) * 1_000_000


def _is_wanted(variables: Mapping[str, str], name: str) -> bool:
    return variables.get("OTEL_SDK_DISABLED", "").lower() != "true" and variables.get(name, "otlp") != "none"


def _interval_ms(variables: Mapping[str, str]) -> int:
    text = variables.get(INTERVAL) or str(INTERVAL_MS)
    if not (text.isascii() and text.isdecimal() and int(text) > 0):
        raise OtlpError(f"{INTERVAL} is '{text}': give milliseconds above 0")
    return int(text)
